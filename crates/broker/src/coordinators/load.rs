//! Reads a partition from its start to its end into an engine.

use std::sync::Arc;
use std::time::Instant;

use milena_coordinator::{LoadError, Loader};
use milena_io::FileExt;
use milena_log::LogError;
use milena_records::{BatchError, batches};

use super::coordinator::CoordinatorEngine;
use super::shard::Shard;
use crate::partition::Partition;

/// Most bytes that a batch may decompress to.
pub(super) const MAX_DECOMPRESSED_BYTES: usize = 64 << 20;

/// Why a partition can't be loaded.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Read(#[from] std::io::Error),
    #[error("the batch at offset {offset}: {error}")]
    Batch { offset: i64, error: BatchError },
    #[error(transparent)]
    Replay(#[from] LoadError),
    #[error("the coordinator has ended")]
    Ended,
}

/// Whether there is anything to load.
pub(super) fn has_records(partition: &Partition) -> bool {
    let log = partition.log();
    log.log_start_offset() < log.log_end_offset()
}

/// Loads a partition; its engine answers from then on, or never.
pub(super) fn load<E: CoordinatorEngine>(shard: &Arc<Shard<E>>) {
    let (partition, started) = (&shard.partition, Instant::now());
    match read(shard) {
        Ok((loader, bytes)) => {
            let took = started.elapsed();
            tracing::info!(%partition, "loaded {} from {bytes} bytes in {took:.1?}", loader.engine().summary());
            shard.loaded(|input| loader.finish(input));
        }
        Err(Failure::Ended) => {}
        Err(error) => {
            tracing::error!(%partition, %error, "a coordinator can't be loaded; what belongs to it is not served");
            shard.end();
        }
    }
}

fn read<E: CoordinatorEngine>(shard: &Shard<E>) -> Result<(Loader<E>, u64), Failure> {
    let partition = &shard.partition;
    let chunk = usize::try_from(shard.load_buffer_bytes()).unwrap_or(1);
    let mut loader = Loader::new(E::empty(), MAX_DECOMPRESSED_BYTES);
    let mut buffer = Vec::new();
    let (mut offset, end, mut bytes) = {
        let log = partition.log();
        (log.log_start_offset(), log.log_end_offset(), 0)
    };
    while offset < end {
        if shard.has_ended() || partition.is_retired() {
            return Err(Failure::Ended);
        }
        let Some(slice) = partition.read_written(offset, chunk, end)? else { break };
        buffer.resize(slice.len, 0);
        slice.file.read_exact_at(&mut buffer, slice.position)?;
        let before = offset;
        for batch in batches(&buffer) {
            // The last one of a piece may be cut; it comes again.
            let batch = match batch {
                Ok(batch) => batch,
                Err(_) if offset > before => break,
                Err(error) => return Err(Failure::Batch { offset, error }),
            };
            batch.verify_crc().map_err(|error| Failure::Batch { offset: batch.base_offset(), error })?;
            if batch.last_offset() >= offset {
                loader.replay(&batch)?;
            }
            offset = batch.next_offset().max(offset);
            bytes += batch.size() as u64;
        }
        if offset == before {
            break;
        }
    }
    Ok((loader, bytes))
}
