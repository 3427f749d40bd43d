//! The idempotent producers of a partition: what was last written by each, whether a batch may follow, and which one is a repetition.
//! How the state is kept in files and read again is `restore`'s and `snapshot`'s business; who calls is the log.

mod producer;
mod restore;

use std::collections::BTreeMap;

use milena_records::Batch;

pub(crate) use producer::Producer;
pub(crate) use restore::{Source, remove_snapshots, restore, write_snapshot};

use crate::scan::Header;

/// Entries of [`Producers::ahead`] whose memory is kept for the next append.
const AHEAD_KEPT: usize = 32;

/// Why a batch of an idempotent producer was left out of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwritten {
    /// It has the sequences of one of its producer's last five batches: it was written before.
    Duplicate {
        /// Offset of the first record of the batch that was written.
        first_offset: i64,
        /// Largest timestamp of that batch, ms.
        timestamp: i64,
    },
    /// Its first sequence is not the one that must follow.
    OutOfOrderSequence,
    /// Its producer has written with a higher epoch.
    InvalidProducerEpoch,
}

/// What a log knows of one producer, as a snapshot keeps it and DescribeProducers answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerState {
    /// The producer.
    pub producer_id: i64,
    /// Its newest epoch.
    pub epoch: i16,
    /// Sequence of its last record; -1 without one in this epoch.
    pub last_sequence: i32,
    /// Offset of its last record; -1 without one in this epoch.
    pub last_offset: i64,
    /// How far before that its last batch began.
    pub offset_delta: i32,
    /// Largest timestamp of its last batch, ms.
    pub timestamp: i64,
    /// Epoch of the transaction coordinator that wrote its last marker; -1 without one.
    pub coordinator_epoch: i32,
    /// First offset of its open transaction; -1 without one.
    pub current_txn_first_offset: i64,
}

/// What of a batch's header concerns its producer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProducerBatch {
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
    pub(crate) base_sequence: i32,
    pub(crate) base_offset: i64,
    pub(crate) last_offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) is_control: bool,
    pub(crate) is_transactional: bool,
}

impl ProducerBatch {
    /// `None` for a batch without a producer id.
    pub(crate) fn of(batch: &Batch<'_>) -> Option<Self> {
        batch.has_producer_id().then(|| Self {
            producer_id: batch.producer_id(),
            epoch: batch.producer_epoch(),
            base_sequence: batch.base_sequence(),
            base_offset: batch.base_offset(),
            last_offset: batch.last_offset(),
            timestamp: batch.max_timestamp(),
            is_control: batch.is_control(),
            is_transactional: batch.is_transactional(),
        })
    }

    fn of_header(header: &Header) -> Option<Self> {
        (header.producer_id >= 0).then_some(Self {
            producer_id: header.producer_id,
            epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
            base_offset: header.base_offset,
            last_offset: header.last_offset,
            timestamp: header.max_timestamp,
            is_control: header.is_control(),
            is_transactional: header.is_transactional(),
        })
    }

    fn offset_delta(&self) -> i32 {
        // Offsets of a batch are its base and a 32-bit delta; both were checked when it was parsed.
        i32::try_from(self.last_offset - self.base_offset).unwrap_or(i32::MAX)
    }

    fn last_sequence(&self) -> i32 {
        milena_records::add_sequence(self.base_sequence, self.offset_delta())
    }
}

/// The producers of one partition. Costs no memory of its own while there are none.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    all: BTreeMap<i64, Box<Producer>>,
    /// Producers as they will be when the batches of the append under way are written.
    ahead: Vec<(i64, Producer)>,
}

impl Producers {
    /// An append begins to judge its batches.
    pub(crate) fn begin_append(&mut self) {
        if self.ahead.capacity() > AHEAD_KEPT {
            self.ahead = Vec::new();
        }
        self.ahead.clear();
    }

    /// Whether a batch may be written behind what was written and [admitted](Self::admit).
    pub(crate) fn judge(&self, batch: &ProducerBatch) -> Result<(), Unwritten> {
        let ahead = self.ahead.iter().find(|(id, _)| *id == batch.producer_id).map(|(_, producer)| producer);
        let known = ahead.or_else(|| self.all.get(&batch.producer_id).map(|producer| &**producer));
        known.map_or(Ok(()), |producer| producer.judge(batch))
    }

    /// The batch will be written before those that are judged next.
    pub(crate) fn admit(&mut self, batch: &ProducerBatch) {
        if let Some((_, producer)) = self.ahead.iter_mut().find(|(id, _)| *id == batch.producer_id) {
            return producer.apply(batch);
        }
        let mut producer = self.all.get(&batch.producer_id).map_or_else(Producer::new, |producer| **producer);
        producer.apply(batch);
        self.ahead.push((batch.producer_id, producer));
    }

    /// The batch stands in the log.
    pub(crate) fn apply(&mut self, batch: &ProducerBatch) {
        self.all.entry(batch.producer_id).or_insert_with(|| Box::new(Producer::new())).apply(batch);
    }

    /// Forgets who has written nothing for `expiration_ms` and has no open transaction.
    pub(crate) fn expire(&mut self, now_ms: i64, expiration_ms: i64) {
        self.all.retain(|_, producer| !producer.is_expired(now_ms, expiration_ms));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// In the order of their ids.
    pub(crate) fn states(&self) -> impl Iterator<Item = ProducerState> {
        self.all.iter().map(|(id, producer)| producer.state(*id))
    }

    fn from_states(states: impl Iterator<Item = ProducerState>) -> Self {
        let all = states.map(|state| (state.producer_id, Box::new(Producer::from_state(&state))));
        Self { all: all.collect(), ahead: Vec::new() }
    }
}

#[cfg(test)]
#[path = "producers/tests.rs"]
mod tests;
