//! Appending: offsets and epochs into the buffers, rolling, one vectored write.

use std::io::IoSlice;

use milena_records::{Batch, BatchError, BatchMut, batches};

use super::recent::Start;
use super::{Log, Segment};
use crate::config::LogConfig;
use crate::error::{IoContext, LogError, Result};
use crate::index::{IndexEntry, OffsetEntry, TimeEntry};
use crate::names::Home;
use crate::producers::{ProducerBatch, Unwritten, VerificationGuard, write_snapshot};
use crate::segment::RESERVE_FROM;

/// Space reserved behind the end: as much again as the segment has, within these bounds, bytes.
const RESERVE: std::ops::RangeInclusive<u64> = 64 << 10..=64 << 20;
/// Of a batch without sequences.
const NO_SEQUENCE: i32 = -1;
/// Positions in an index are 31 bits.
const MAX_SEGMENT_BYTES: u64 = i32::MAX as u64;

/// Where an append went. The base offsets of the batches that were written stand in their first eight bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record of the first batch that was written; the log end offset when none was.
    pub first_offset: i64,
    /// Offset of the last record of the last batch that was written; one below `first_offset` when none was.
    pub last_offset: i64,
    /// The batches that were left out, by their place among those given, ascending; takes no memory when there are none.
    pub unwritten: Vec<(usize, Unwritten)>,
}

/// Who has made a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Client,
    Coordinator,
}

/// What an append does to the last segment before anything is written.
struct Plan<'c> {
    config: &'c LogConfig,
    segment: i64,
    size: u64,
    first_timestamp: Option<i64>,
    /// Index entries that still fit; each batch may take one.
    room: u64,
    oldest_ms: i64,
    since_ms: i64,
    now_ms: i64,
}

impl Plan<'_> {
    /// Adds a batch; false when it needs a new segment.
    fn admits(&mut self, batch: &Batch<'_>) -> bool {
        let size = batch.size() as u64;
        let age = match self.first_timestamp {
            Some(first) if first >= 0 => batch.max_timestamp().saturating_sub(first),
            _ => self.now_ms.saturating_sub(self.since_ms),
        };
        let full = self.size + size > self.config.segment_bytes.min(MAX_SEGMENT_BYTES) || age > self.oldest_ms;
        let far = batch.last_offset() - self.segment > i64::from(i32::MAX);
        if (self.size > 0 && full) || far || self.room == 0 {
            return false;
        }
        self.size += size;
        self.room -= 1;
        self.first_timestamp.get_or_insert(batch.max_timestamp());
        true
    }
}

impl Log {
    /// Appends whole batches, one in each slice; gives them consecutive offsets from the log end on and stamps offset and leader epoch into
    /// the buffers. `now_ms` is the wall clock, ms since 1970.
    ///
    /// One write, unless a segment is rolled in between; index entries stay in memory until there are many. The log end offset moves last.
    ///
    /// A batch of an idempotent producer is judged by what its producer has written, earlier batches of the same call included. One that may
    /// not follow is left out and changes nothing; its buffer is of no use afterwards.
    ///
    /// The `guards` of [`begin_verification`](Self::begin_verification) stand at the places of the batches that they were given for. One that
    /// is not needed does no harm, and there may be fewer than batches.
    ///
    /// # Errors
    /// Nothing was appended then. [`LogError::BatchTooLarge`], [`LogError::Malformed`], [`LogError::Poisoned`], [`LogError::Io`]. Only
    /// when a failed write can't be cut off again is the outcome open, and the log is poisoned.
    pub fn append(
        &mut self,
        batches: &mut [&mut [u8]],
        guards: &[Option<VerificationGuard>],
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Appended> {
        self.append_from(Origin::Client, batches, guards, leader_epoch, now_ms)
    }

    /// As [`append`](Self::append), for a batch of a coordinator that lives in this broker. It has no
    /// sequence of its own, even where it belongs to the transaction of a producer.
    ///
    /// # Errors
    /// As `append`.
    pub fn append_as_coordinator(
        &mut self,
        batch: &mut [u8],
        guard: Option<VerificationGuard>,
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Appended> {
        self.append_from(Origin::Coordinator, &mut [batch], &[guard], leader_epoch, now_ms)
    }

    fn append_from(
        &mut self,
        origin: Origin,
        batches: &mut [&mut [u8]],
        guards: &[Option<VerificationGuard>],
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Appended> {
        self.writable()?;
        let mut next = self.log_end_offset;
        let mut unwritten = Vec::new();
        let last = batches.len().saturating_sub(1);
        self.producers.begin_append();
        for (at, bytes) in batches.iter_mut().enumerate() {
            let mut batch = BatchMut::parse(bytes)?;
            batch.set_base_offset(next);
            batch.set_partition_leader_epoch(leader_epoch);
            let batch = batch.as_batch();
            let after = self.admissible(&batch, next)?;
            match self.judge(&batch, origin, guards.get(at).copied().flatten(), at < last) {
                Ok(()) => next = after,
                Err(why) => unwritten.push((at, why)),
            }
        }
        if !unwritten.is_empty() && next == self.log_end_offset {
            return Ok(Appended { first_offset: next, last_offset: next - 1, unwritten });
        }
        let appended = match batches {
            [one] => self.append_placed(&[IoSlice::new(one)], now_ms),
            many => self.append_placed(&written(many, &unwritten), now_ms),
        };
        appended.map(|appended| Appended { unwritten, ..appended })
    }

    /// Whether a batch may follow those of its producer. With `more` to come it counts as written from now on.
    fn judge(
        &mut self,
        batch: &Batch<'_>,
        origin: Origin,
        guard: Option<VerificationGuard>,
        more: bool,
    ) -> std::result::Result<(), Unwritten> {
        let Some(mut batch) = ProducerBatch::of(batch) else { return Ok(()) };
        if origin == Origin::Coordinator {
            batch.base_sequence = NO_SEQUENCE;
        }
        self.producers.judge(&batch, self.config.transaction_verification, guard)?;
        if more {
            self.producers.admit(&batch);
        }
        Ok(())
    }

    /// Appends whole batches that have their offsets and epochs from elsewhere: a leader's, or the metadata quorum's.
    ///
    /// # Errors
    /// As [`append`](Self::append), and [`LogError::OutOfOrder`] when a batch begins below the log end offset.
    pub fn append_as_follower(&mut self, bytes: &[u8], now_ms: i64) -> Result<Appended> {
        self.writable()?;
        let mut next = self.log_end_offset;
        let mut slices = Vec::new();
        for batch in batches(bytes) {
            let batch = batch?;
            next = self.admissible(&batch, next)?;
            slices.push(IoSlice::new(batch.bytes()));
        }
        self.append_placed(&slices, now_ms)
    }

    /// Checks a batch with its offsets against the offset that it must not go below; returns the one after it.
    pub(super) fn admissible(&self, batch: &Batch<'_>, least: i64) -> Result<i64> {
        let (base_offset, last_offset) = (batch.base_offset(), batch.last_offset());
        if base_offset < least || batch.last_offset_delta() < 0 || last_offset < base_offset || last_offset == i64::MAX
        {
            return Err(LogError::OutOfOrder { base_offset, last_offset, log_end_offset: least });
        }
        let segment_bytes = self.config.segment_bytes.min(MAX_SEGMENT_BYTES);
        if batch.size() as u64 > segment_bytes {
            return Err(LogError::BatchTooLarge { size: batch.size() as u64, segment_bytes });
        }
        Ok(last_offset + 1)
    }

    pub(super) fn append_placed(&mut self, batches: &[IoSlice<'_>], now_ms: i64) -> Result<Appended> {
        let (Some(first), Some(last)) = (batches.first(), batches.last()) else {
            return Err(BatchError::Truncated { needed: milena_records::BATCH_OVERHEAD, available: 0 }.into());
        };
        let (first_offset, last_offset) = (checked(first).base_offset(), checked(last).last_offset());
        let before = (self.segments.len(), self.active().size);
        if let Err(error) = self.write_all(batches, now_ms) {
            self.undo_append(before);
            return Err(error);
        }
        for bytes in batches {
            let batch = checked(bytes);
            if self.epochs.latest() != Some(batch.partition_leader_epoch()) {
                self.epochs.assign(batch.partition_leader_epoch(), batch.base_offset());
            }
        }
        self.closed_cleanly = false;
        self.log_end_offset = last_offset + 1;
        Ok(Appended { first_offset, last_offset, unwritten: Vec::new() })
    }

    /// Writes the batches in as few runs as rolling allows.
    fn write_all(&mut self, mut batches: &[IoSlice<'_>], now_ms: i64) -> Result<()> {
        self.leave_damaged_tail(now_ms)?;
        let home = &self.home;
        let active = self.segments.last_mut().expect("a log has a segment");
        active.write_out_if_many(home)?;
        active.prepare_tail(home)?;
        while !batches.is_empty() {
            let run = self.run_length(batches, now_ms);
            if run == 0 {
                let base_offset = checked(&batches[0]).base_offset();
                self.roll_to(base_offset, now_ms)?;
                assert!(
                    self.run_length(batches, now_ms) > 0,
                    "a batch does not fit into the new segment {base_offset}"
                );
                continue;
            }
            let (now, later) = batches.split_at(run);
            self.write_run(now)?;
            batches = later;
        }
        Ok(())
    }

    /// Begins a new segment if the last one, before its first append, does not end at the log end: what is written behind damage could not be
    /// found again.
    fn leave_damaged_tail(&mut self, now_ms: i64) -> Result<()> {
        let active = self.active();
        if active.tail().is_some() || active.size == 0 {
            return Ok(());
        }
        match active.end_offset(&self.home) {
            Ok(end) if end == self.log_end_offset => Ok(()),
            Err(error @ LogError::Io { .. }) => Err(error),
            Err(error) if active.base_offset == self.log_end_offset => Err(error),
            _ => self.roll_to(self.log_end_offset, now_ms),
        }
    }

    /// How many of the batches go into the last segment.
    fn run_length(&self, batches: &[IoSlice<'_>], now_ms: i64) -> usize {
        let active = self.active();
        let mut plan = Plan {
            config: &self.config,
            segment: active.base_offset,
            size: active.size,
            first_timestamp: active.tail().and_then(|tail| tail.first_timestamp),
            room: self.index_room(active),
            oldest_ms: self.config.segment_ms.saturating_sub(self.jitter(active.base_offset)),
            since_ms: self.active_since_ms,
            now_ms,
        };
        batches.iter().take_while(|bytes| plan.admits(&checked(bytes))).count()
    }

    /// Index entries that still fit. One time entry is kept free for the end of the segment.
    fn index_room(&self, active: &Segment) -> u64 {
        let Some((offsets, times)) = active.index_lengths() else { return 0 };
        let most = self.config.segment_index_bytes;
        let offsets = (most / OffsetEntry::SIZE as u64).saturating_sub(offsets);
        let times = (most / TimeEntry::SIZE as u64).saturating_sub(1).saturating_sub(times);
        // An empty segment takes a batch whatever the limit says, or there would be no end of rolling.
        offsets.min(times).max(u64::from(active.size == 0))
    }

    /// By how much `segment.ms` is shortened for this segment, ms; the same every time.
    fn jitter(&self, base_offset: i64) -> i64 {
        let most = self.config.segment_jitter_ms.min(self.config.segment_ms);
        if most <= 0 {
            return 0;
        }
        let seed = self.home.dir.as_os_str().as_encoded_bytes().iter();
        let hash = seed.fold(base_offset as u64 ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        (hash >> 1) as i64 % most
    }

    /// Stages *reserve* and *write* for batches that all go into the last segment.
    fn write_run(&mut self, batches: &[IoSlice<'_>]) -> Result<()> {
        let home = &self.home;
        let active = self.segments.last_mut().expect("a log has a segment");
        let position = active.size;
        let bytes: u64 = batches.iter().map(|bytes| bytes.len() as u64).sum();
        reserve(active, home, position + bytes, self.config.segment_bytes)?;
        active.file(home)?.write_vectored_at(batches, position).context_at("writing", || active.path(home))?;
        for bytes in batches {
            let batch = checked(bytes);
            let size = batch.size() as u64;
            active.note_batch(batch.last_offset(), batch.max_timestamp(), size, self.config.index_interval_bytes);
            if let Some(aborted) = ProducerBatch::of(&batch).and_then(|batch| self.producers.apply(&batch)) {
                active.note_aborted(aborted);
            }
        }
        let first = checked(&batches[0]);
        let start =
            Start { offset: first.base_offset(), segment: active.base_offset, position, size: first.size() as u64 };
        self.recent.appended(start, bytes);
        Ok(())
    }

    /// Stage *cut*: the log ends at its log end offset again, or takes no more writes.
    fn undo_append(&mut self, (segments, size): (usize, u64)) {
        let home = &self.home;
        let written = self.segments.len() != segments || self.active().size != size;
        let cut = if written {
            self.cut_log(self.log_end_offset)
        } else if self.active().tail().is_some() {
            self.segments.last_mut().expect("a log has a segment").cut_to_size(home)
        } else {
            Ok(())
        };
        if cut.is_err() {
            self.poison();
        }
    }

    /// Begins a new segment at the log end; nothing happens while the last one is empty.
    ///
    /// # Errors
    /// [`LogError::Io`]; the last segment goes on being written to.
    pub fn roll(&mut self, now_ms: i64) -> Result<()> {
        self.writable()?;
        if self.active().size == 0 {
            return Ok(());
        }
        self.roll_to(self.log_end_offset, now_ms)
    }

    /// Stages *finish*, *snapshot* and *create*. Whoever holds the log waits for no sync.
    pub(super) fn roll_to(&mut self, base_offset: i64, now_ms: i64) -> Result<()> {
        let home = &self.home;
        let active = self.segments.last_mut().expect("a log has a segment");
        if active.base_offset == base_offset {
            return Ok(());
        }
        active.finish(home)?;
        if self.synced_snapshot != Some(base_offset) {
            write_snapshot(home, base_offset, &self.producers)?;
        }
        self.marks.names += 1;
        match Segment::create(home, base_offset, self.config.new_length()) {
            Ok(next) => self.segments.push(next),
            Err(error) => {
                // What was made of it must not be found beside a last segment that goes on growing.
                if Segment::existing(base_offset, 0).remove(home).is_err() {
                    self.poison();
                }
                return Err(error);
            }
        }
        self.active_since_ms = now_ms;
        self.closed_cleanly = false;
        self.rolled = true;
        Ok(())
    }
}

/// The batches that are not left out.
fn written<'b>(batches: &'b [&mut [u8]], unwritten: &[(usize, Unwritten)]) -> Vec<IoSlice<'b>> {
    let mut left_out = unwritten.iter().map(|(at, _)| *at).peekable();
    let written = batches.iter().enumerate().filter(|(at, _)| left_out.next_if_eq(at).is_none());
    written.map(|(_, bytes)| IoSlice::new(bytes)).collect()
}

/// The view of a batch that was checked when the append began.
fn checked<'a>(bytes: &'a [u8]) -> Batch<'a> {
    Batch::parse(bytes).expect("the append began by parsing every batch")
}

/// Reserves space up to `end` and ahead of it. Where that fails the write decides.
fn reserve(active: &mut Segment, home: &Home, end: u64, segment_bytes: u64) -> Result<()> {
    let size = active.size;
    let file = std::sync::Arc::clone(active.file(home)?);
    let Some(tail) = active.tail_mut() else { return Ok(()) };
    if end <= tail.reserved || end < RESERVE_FROM {
        return Ok(());
    }
    let from = tail.reserved.max(size);
    let to = (end + end.clamp(*RESERVE.start(), *RESERVE.end())).min(segment_bytes.max(end));
    tail.reserved = match file.allocate(from, to - from) {
        Ok(()) => to,
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => u64::MAX,
        Err(_) => end,
    };
    Ok(())
}
