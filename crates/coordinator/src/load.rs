//! Builds an engine's state from its partition's log.

use milena_protocol::DecodeError;
use milena_records::{Batch, ControlType, Decompressor, RecordError};

use crate::engine::{Engine, Input, Replayed};
use crate::runtime::Runtime;

/// Why a log can't be replayed.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The batch's records can't be read.
    #[error("the batch at offset {offset}: {error}")]
    Records {
        /// The batch's first offset.
        offset: i64,
        /// What is wrong.
        error: RecordError,
    },
    /// A record is not what its type says.
    #[error("the record at offset {offset}: {error}")]
    Record {
        /// The record's offset.
        offset: i64,
        /// What is wrong.
        error: DecodeError,
    },
}

/// An engine that is given the log from its start to its end.
pub struct Loader<E> {
    engine: E,
    end_offset: i64,
    decompressor: Decompressor,
}

impl<E: Engine> Loader<E> {
    /// Begins with an engine that knows nothing. No batch may decompress to more than `max_decompressed_bytes`.
    pub fn new(engine: E, max_decompressed_bytes: usize) -> Self {
        Self { engine, end_offset: 0, decompressor: Decompressor::new(max_decompressed_bytes) }
    }

    /// The engine, to be looked at.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// Replays the next batch.
    ///
    /// # Errors
    /// [`LoadError`]; the partition can't be served then.
    pub fn replay(&mut self, batch: &Batch<'_>) -> Result<(), LoadError> {
        replay_batch(&mut self.engine, batch, &mut self.decompressor)?;
        self.end_offset = batch.next_offset();
        Ok(())
    }

    /// The log has ended: the engine begins to work.
    pub fn finish(self, input: &mut Input<'_, E::Settings>) -> Runtime<E> {
        Runtime::new(self.engine, self.end_offset, self.decompressor, input)
    }
}

/// Gives the records of a batch to an engine.
pub(crate) fn replay_batch<E: Engine>(
    engine: &mut E,
    batch: &Batch<'_>,
    decompressor: &mut Decompressor,
) -> Result<(), LoadError> {
    let unreadable = |error| LoadError::Records { offset: batch.base_offset(), error };
    let producer_id = batch.is_transactional().then(|| batch.producer_id());
    for record in batch.records(decompressor).map_err(unreadable)? {
        let record = record.map_err(unreadable)?;
        let Some(key) = record.key else { continue };
        if batch.is_control() {
            match ControlType::from_key(key) {
                Some(ControlType::Commit) => engine.replay_end_of_transaction(batch.producer_id(), true),
                Some(ControlType::Abort) => engine.replay_end_of_transaction(batch.producer_id(), false),
                _ => {}
            }
            continue;
        }
        let Some((kind, key)) = key.split_first_chunk() else { continue };
        let (offset, kind) = (record.offset(batch), i16::from_be_bytes(*kind));
        engine
            .replay(&Replayed { offset, producer_id, kind, key, value: record.value })
            .map_err(|error| LoadError::Record { offset, error })?;
    }
    Ok(())
}
