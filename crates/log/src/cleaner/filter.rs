//! What becomes of each batch: it stays as it is, is written again with the records that stay, keeps its header only, or goes. The rules
//! are those of Kafka's `Cleaner` and `MemoryRecords.filterTo`.

use std::collections::HashMap;
use std::ops::Range;

use milena_records::{Batch, BatchBuilder, BatchMut, Compression, Compressor, ControlType, Decompressor, Record};

use super::offset_map::OffsetMap;
use super::transactions::Transactions;
use super::{BatchFault, Stats};

/// The last thing that a producer wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastWritten {
    /// Offset of its last record; `None` when its last batch is a marker.
    pub(crate) data_offset: Option<i64>,
    pub(crate) epoch: i16,
}

/// The rules of one cleaning.
#[derive(Debug)]
pub(super) struct Rules<'c> {
    pub(super) map: &'c OffsetMap,
    /// When the cleaning began, ms since 1970.
    pub(super) now_ms: i64,
    /// `delete.retention.ms`.
    pub(super) delete_retention_ms: i64,
    /// As of the beginning of the group.
    pub(super) high_watermark: i64,
    /// The producers that are still known, by their ids.
    pub(super) producers: &'c HashMap<i64, LastWritten>,
}

/// What is to be written for a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// Nothing.
    Nothing,
    /// The batch as it is.
    Verbatim,
    /// The bytes in this range of the output.
    Rewritten(Range<usize>),
}

/// Contexts and buffers for reading and writing batches, reused from one to the next.
#[derive(Debug)]
pub(super) struct Workbench {
    pub(super) decompressor: Decompressor,
    compressor: Compressor,
    builder: BatchBuilder,
    /// For each record of the batch, whether it stays.
    stays: Vec<bool>,
}

impl Workbench {
    /// Bodies of more than `limit` decompressed bytes are refused.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            decompressor: Decompressor::new(limit),
            compressor: Compressor::new(),
            builder: BatchBuilder::new(),
            stays: Vec::new(),
        }
    }
}

/// The kind of a control batch's record; `None` when it has no record.
pub(super) fn control_kind(batch: &Batch<'_>) -> Result<Option<ControlType>, BatchFault> {
    // Control batches are written by brokers, and never compressed.
    let first = batch.plain_records()?.next().transpose()?;
    Ok(first.map(|record| record.key.and_then(ControlType::from_key).unwrap_or(ControlType::LeaderChange)))
}

impl Rules<'_> {
    /// Decides about one batch, whose checksum is right; what is to be written instead of it is appended to `out`.
    pub(super) fn judge(
        &self,
        batch: &Batch<'_>,
        transactions: &mut Transactions,
        bench: &mut Workbench,
        stats: &mut Stats,
        out: &mut Vec<u8>,
    ) -> Result<Kept, BatchFault> {
        let control = batch.is_control();
        // Nothing is left of the marker's transaction, or the transaction of these records was aborted.
        let dead = match control {
            true => transactions.marker(batch, control_kind(batch)?),
            false => transactions.batch(batch),
        };
        let discard = dead && (!control || batch.delete_horizon().is_some_and(|horizon| horizon <= self.now_ms));
        let header_stays = self.is_last_of_producer(batch) || batch.next_offset() == self.high_watermark;
        if discard && !header_stays {
            return Ok(Kept::Nothing);
        }
        let records = batch.records(&mut bench.decompressor)?;
        let (mut kept, mut tombstones) = (0, false);
        bench.stays.clear();
        for record in records.clone() {
            let record = record?;
            let stays = !discard && (control || self.stays(batch, &record, stats));
            bench.stays.push(stays);
            kept += usize::from(stays);
            tombstones |= stays && record.value.is_none();
        }
        stats.messages_read += bench.stays.len() as u64;
        stats.messages_written += kept as u64;
        if kept == 0 {
            return if header_stays { self.header_only(batch, bench, out) } else { Ok(Kept::Nothing) };
        }
        let horizon = match batch.delete_horizon() {
            None if tombstones || (dead && control) => Some(self.now_ms.saturating_add(self.delete_retention_ms)),
            horizon if kept < bench.stays.len() => horizon,
            _ => return Ok(Kept::Verbatim),
        };
        let mut builder = std::mem::take(&mut bench.builder).like(batch);
        if let Some(horizon) = horizon {
            builder = builder.delete_horizon(horizon);
        }
        let mut records = records;
        for stays in &bench.stays {
            if !stays {
                records.pass_over();
            } else if let Some(record) = records.next().transpose()? {
                builder.push_record(record.offset_delta, record.timestamp(batch), &record);
            }
        }
        assert_eq!(usize::try_from(builder.count()), Ok(kept), "both walks meet the same records");
        builder.set_last_offset_delta(batch.last_offset_delta());
        let start = out.len();
        let size = builder.finish(&mut bench.compressor, out)?;
        bench.builder = builder;
        Ok(Kept::Rewritten(start..start + size))
    }

    fn stays(&self, batch: &Batch<'_>, record: &Record<'_>, stats: &mut Stats) -> bool {
        let offset = record.offset(batch);
        if offset > self.map.latest_offset() {
            return true;
        }
        let Some(key) = record.key else {
            stats.invalid_messages += 1;
            return false;
        };
        let wanted = record.value.is_some() || batch.delete_horizon().is_none_or(|horizon| self.now_ms < horizon);
        wanted && self.map.get(key).is_none_or(|latest| offset >= latest)
    }

    /// Whether the batch holds the last sequence, or else the last epoch, of a producer that is still known.
    fn is_last_of_producer(&self, batch: &Batch<'_>) -> bool {
        let Some(last) = self.producers.get(&batch.producer_id()).filter(|_| batch.has_producer_id()) else {
            return false;
        };
        match last.data_offset {
            Some(offset) => batch.last_offset() == offset,
            None => batch.is_control() && batch.producer_epoch() == last.epoch,
        }
    }

    fn header_only(&self, batch: &Batch<'_>, bench: &mut Workbench, out: &mut Vec<u8>) -> Result<Kept, BatchFault> {
        let mut builder = std::mem::take(&mut bench.builder).like(batch).compression(Compression::None, 0);
        builder.set_last_offset_delta(batch.last_offset_delta());
        let start = out.len();
        builder.finish(&mut bench.compressor, out)?;
        bench.builder = builder;
        BatchMut::parse(&mut out[start..])?.set_max_timestamp(batch.timestamp_type(), batch.max_timestamp());
        Ok(Kept::Rewritten(start..out.len()))
    }
}
