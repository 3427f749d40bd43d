//! Transactions as the log keeps them: markers, the last stable offset, and which aborted ones a reader must know of.

use std::io::IoSlice;

use milena_records::{BatchMut, EndTransaction};

use super::{Log, Segment, Slice};
use crate::aborted::AbortedTxn;
use crate::error::Result;
use crate::index::Index;
use crate::names::Home;
use crate::producers::{Unwritten, VerificationGuard, VerificationStart};

/// The end of a transaction in this partition, as its coordinator asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// Whose transaction.
    pub producer_id: i64,
    /// With transactions of version 2 one more than the transaction's batches have.
    pub producer_epoch: i16,
    /// How it ends, and who says so.
    pub end: EndTransaction,
    /// Version of the transactions; below 2 a marker has the epoch of its batches, and can't be told from one that comes late.
    pub transaction_version: i16,
    /// The topic's timestamps are those of the append.
    pub log_append_time: bool,
}

impl Log {
    /// Appends the marker of a transaction: one batch of one record, at the offset returned. A producer without an open transaction gets one
    /// too.
    ///
    /// # Errors
    /// As [`append`](Self::append). The inner error says why the marker may not be written: [`Unwritten::InvalidProducerEpoch`] or
    /// [`Unwritten::CoordinatorFenced`].
    pub fn append_marker(
        &mut self,
        marker: &Marker,
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<std::result::Result<i64, Unwritten>> {
        self.writable()?;
        let Marker { producer_id, producer_epoch, end, transaction_version, log_append_time } = *marker;
        if let Err(why) = self.producers.judge_marker(producer_id, producer_epoch, end, transaction_version) {
            return Ok(Err(why));
        }
        let mut builder = end.marker(producer_id, producer_epoch, now_ms);
        if log_append_time {
            builder = builder.log_append_time(now_ms);
        }
        let mut bytes = builder.build().expect("a short batch without compression can be built");
        let mut batch = BatchMut::parse(&mut bytes)?;
        batch.set_base_offset(self.log_end_offset);
        batch.set_partition_leader_epoch(leader_epoch);
        self.admissible(&batch.as_batch(), self.log_end_offset)?;
        self.append_placed(&[IoSlice::new(&bytes)], now_ms).map(|appended| Ok(appended.first_offset))
    }

    /// Before the first batch of a transaction is written, its coordinator must confirm that it knows of the transaction and this partition.
    /// The guard returned then goes with the batch to [`append`](Self::append), which refuses it if the transaction was ended
    /// meanwhile. `None` when the transaction is open here: nothing needs to be confirmed.
    ///
    /// # Errors
    /// [`Unwritten::InvalidProducerEpoch`] when the producer has written in a later epoch.
    pub fn begin_verification(
        &mut self,
        start: &VerificationStart,
    ) -> std::result::Result<Option<VerificationGuard>, Unwritten> {
        self.producers.verify(start)
    }

    /// Whether a producer has a transaction open in this epoch.
    pub fn has_open_transaction(&self, producer_id: i64, epoch: i16) -> bool {
        self.producers.has_open_transaction(producer_id, epoch)
    }

    /// First offset of a transaction that is open or whose marker is not known to be below the high watermark, not below the log start.
    pub fn first_unstable_offset(&self) -> Option<i64> {
        self.producers.first_unstable_offset().map(|offset| offset.max(self.log_start_offset))
    }

    /// Takes note of the high watermark and returns the offset up to which the outcome of every transaction is known.
    pub fn last_stable_offset(&mut self, high_watermark: i64) -> i64 {
        self.producers.replicated_to(high_watermark);
        self.first_unstable_offset().map_or(high_watermark, |unstable| unstable.min(high_watermark))
    }

    /// The aborted transactions that concern a reader of `slice`, which was [`read`](Self::read) from `offset` on and up to `end_offset`, in
    /// the order of their markers. There may be some among them that begin behind the slice.
    ///
    /// # Errors
    /// [`LogError::Io`](crate::LogError::Io).
    pub fn aborted_transactions(&self, offset: i64, slice: &Slice, end_offset: i64) -> Result<Vec<AbortedTxn>> {
        let at = self.segment_at(slice.segment);
        let aborted = self.segments[at..].iter().filter_map(Segment::aborted);
        concerning(&self.home, &self.segments[at], self.segment_end(at), aborted, (offset, slice, end_offset))
    }
}

/// The aborted transactions that concern the reader of a slice of `segment`, which ends at `segment_end`; `aborted` are those whose markers
/// are in it or behind.
pub(super) fn concerning<'l>(
    home: &Home,
    segment: &Segment,
    segment_end: i64,
    aborted: impl Iterator<Item = &'l Index<AbortedTxn>>,
    (offset, slice, end_offset): (i64, &Slice, i64),
) -> Result<Vec<AbortedTxn>> {
    let mut found = Vec::new();
    let mut aborted = aborted.peekable();
    if aborted.peek().is_none() {
        return Ok(found);
    }
    let behind = segment.offset_behind(home, slice.position + slice.len as u64);
    let upper = behind.unwrap_or(segment_end).min(end_offset);
    for aborted in aborted {
        if !aborted.collect(home, offset, upper, &mut found)? {
            break;
        }
    }
    Ok(found)
}
