//! A partition's log: an ordered row of segments, of which the last is written to. This file has the state and its simple questions;
//! each operation has its own file below.

mod append;
mod clean;
mod close;
mod flush;
mod future;
mod open;
mod read;
mod recent;
mod remove;
mod retention;
mod timestamps;
mod transactions;
mod truncate;
mod view;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use milena_io::Disk;

use crate::config::LogConfig;
use crate::epochs::{EpochCache, EpochEnd, EpochEntry};
use crate::error::{IoContext, LogError, Result};
use crate::names::Home;
use crate::producers::{ProducerState, Producers};
use crate::segment::Segment;
pub use append::Appended;
pub(crate) use clean::Version;
pub use clean::{Cleanable, CleaningLimits};
pub use flush::Flush;
use flush::{Marks, Shared};
pub use open::{OpenParams, Recovery};
pub use read::{Missing, Slice};
use recent::Recent;
pub use remove::Removal;
pub use retention::Due;
pub use timestamps::TimestampOffset;
pub use transactions::Marker;
pub use view::{LogView, look};

/// One partition's log, exactly as Kafka keeps it on disk. Not synchronised: appends need `&mut`, reads `&`.
///
/// Order of I/O, with the names of the stages that the crash tests stop in:
/// - append: *reserve* (space behind the end, rarely), *write* (all batches in one vectored write), then in memory the index entries, those of
///   the transaction index included, and, last, the log end offset. A failed write is *cut* again; if that fails too, the log takes no more writes.
/// - roll: *finish* (final time entry, the index files complete, zeros of a preallocated file cut off), *snapshot* (of the producers, at the new segment's
///   base offset), *create* (the new segment's files). Nothing is synced; durable with the next flush, but for the snapshot, which a checksum
///   guards and any older one can stand in for. The recovery point stays inside of the segment until then.
/// - flush: *spare* (space reserved behind the end of segments no longer written to is given back), *data* (`.log` files from the recovery point on, and those of segments whose indexes are not durable), *indexes* (of segments no
///   longer written to), *epochs* (`leader-epoch-checkpoint`, replaced), *names* (the directory, and the one above a new log), then in memory
///   the recovery point. One that a roll asks for leaves the last segment alone.
/// - truncation: *drop* (later segments, the last one first), *names*, *cut* (the `.log` file that stays, its index files before it),
///   *producers* (snapshots beyond the new end go, durably; the state at the new end is read).
///   The caller writes the recovery-point checkpoint before it appends again.
/// - removal of the oldest segments: *keep* (a flush, and the producer snapshot of the one that stays), *rename* (the files get the suffix `.deleted`, the oldest segment first and of each its `.log` first);
///   durable with the next flush. What a power loss brings back lies below the log start offset, whose checkpoint line stays until then.
/// - compaction, for each new segment: *clean* (its files with the suffix `.cleaned`, synced), *swap* (they get the suffix `.swap`: from here
///   on a start completes the rest), *replace* (the old files get the suffix `.deleted`, the new ones their names), *names*.
/// - close: *finish*, *spare*, *snapshot* (the producer snapshot at the log end), then a flush that includes the last segment's indexes.
/// - a transaction index is made when the first entry leaves memory. A start makes those of the segments that it checks anew, and replaces
///   one that can't be true: *contents* (beside it), *rename*, *names*.
/// - deletion: *rename* (of the directory), later *remove*.
/// - a copy taking a log's place: *keep* (a flush of the copy if it lacks one that the log had, the producer snapshot), *leave* (the log's
///   directory is renamed as for a deletion), *names* (the one above it), *enter* (the copy's directory loses its suffix).
#[derive(Debug)]
pub struct Log {
    home: Home,
    config: Arc<LogConfig>,
    /// Sorted by base offset; never empty.
    segments: Vec<Segment>,
    log_start_offset: i64,
    log_end_offset: i64,
    /// Everything below is durable.
    flushed_to: i64,
    epochs: EpochCache,
    recent: Recent,
    producers: Producers,
    /// Offset of a producer snapshot that is durable.
    synced_snapshot: Option<i64>,
    /// Offset of a producer snapshot that a start has found sound, durable or not.
    written_snapshot: Option<i64>,
    shared: Arc<Shared>,
    /// Counts what makes a flush under way worthless: truncations.
    generation: u64,
    /// Changes of names and epochs, and how many of them are durable.
    marks: Marks,
    synced: Marks,
    /// Version of the epochs that differs from the durable one by a last epoch without records only, if it had none since.
    only_led: u64,
    /// Count of [`Marks::names`] at the last removal of segments.
    removed: u64,
    /// Flushes begun.
    flushes: u64,
    /// A segment was finished since the last flush began.
    rolled: bool,
    /// When the last segment was made or opened, ms since 1970.
    active_since_ms: i64,
    /// The files are as after [`Log::close`].
    closed_cleanly: bool,
    closed: bool,
}

impl Log {
    /// Offset of the first record that can be read.
    pub fn log_start_offset(&self) -> i64 {
        self.log_start_offset
    }

    /// Offset that the next record will get.
    pub fn log_end_offset(&self) -> i64 {
        self.log_end_offset
    }

    /// For the recovery-point checkpoint: where an unclean start must begin to scan.
    ///
    /// Everything below is durable, and so are the indexes of the segments that end there or before. It lies inside of the last segment as long as
    /// that is written to: a roll may come before the next checkpoint, and the start after a crash must make its indexes then.
    pub fn recovery_point(&self) -> i64 {
        let unsynced = self.finished_segments().iter().find(|segment| !segment.indexes_synced);
        let active = self.active();
        let most = match unsynced {
            Some(segment) => segment.base_offset,
            None if active.indexes_synced => self.log_end_offset,
            None => active.base_offset.max(self.log_end_offset - 1),
        };
        self.flushed_to.min(most)
    }

    /// Checks that nobody else writes to the last segment: its file is as long as this log made it.
    ///
    /// # Errors
    /// [`LogError::Corrupt`] when it is not, [`LogError::Io`].
    pub fn check_sole_writer(&self) -> Result<()> {
        let active = self.active();
        let path = active.path(&self.home);
        let found = self.home.disk.metadata(&path).and_then(|found| found.ok_or(std::io::ErrorKind::NotFound.into()));
        let len = found.context("measuring", &path)?.len;
        if len != active.size {
            let reason = format!("another process writes to it: it has {len} bytes instead of {}", active.size);
            return Err(LogError::Corrupt { path, position: active.size, reason });
        }
        Ok(())
    }

    /// Sum of the segments' `.log` files, bytes.
    pub fn size(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size).sum()
    }

    /// Base offset of each segment, ascending.
    pub fn segment_base_offsets(&self) -> impl Iterator<Item = i64> {
        self.segments.iter().map(|segment| segment.base_offset)
    }

    /// The partition's directory.
    pub fn dir(&self) -> &Path {
        &self.home.dir
    }

    /// The disk that the log is on.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.home.disk
    }

    /// The settings in force.
    pub fn config(&self) -> &Arc<LogConfig> {
        &self.config
    }

    /// Puts new settings in force, from the next append on.
    pub fn set_config(&mut self, config: Arc<LogConfig>) {
        self.config = config;
    }

    /// Raises the log start offset (DeleteRecords, retention); a lower one changes nothing. Kept by the log-start checkpoint, which is the
    /// caller's.
    ///
    /// # Errors
    /// [`LogError::OffsetOutOfRange`] beyond the log end offset.
    pub fn set_log_start_offset(&mut self, offset: i64) -> Result<()> {
        if offset > self.log_end_offset {
            return Err(self.out_of_range(offset));
        }
        if offset > self.log_start_offset {
            self.log_start_offset = offset;
            self.epochs.truncate_from_start(offset);
            self.closed_cleanly = false;
        }
        Ok(())
    }

    /// Whether the log start offset belongs into the log-start checkpoint: it is above the first segment's base offset, or the removal of
    /// segments below it is not durable yet.
    pub fn log_start_needs_checkpoint(&self) -> bool {
        self.log_start_offset > self.segments[0].base_offset || self.removed > self.synced.names
    }

    /// What is known of the idempotent producers, in the order of their ids.
    pub fn producers(&self) -> impl Iterator<Item = ProducerState> {
        self.producers.states()
    }

    /// Forgets the producers that have written nothing for `producer.id.expiration.ms`. `now_ms` is the wall clock, ms since 1970.
    pub fn expire_producers(&mut self, now_ms: i64) {
        self.producers.expire(now_ms, self.config.producer_id_expiration_ms);
    }

    /// The leader epochs and their start offsets, ascending.
    pub fn leader_epochs(&self) -> &[EpochEntry] {
        self.epochs.entries()
    }

    /// The newest leader epoch; `None` in a log that has none.
    pub fn latest_epoch(&self) -> Option<i32> {
        self.epochs.latest()
    }

    /// A leader of `epoch` begins at `start_offset`. Entries that contradict it go; a repetition changes nothing.
    ///
    /// # Errors
    /// [`LogError::Poisoned`].
    pub fn assign_epoch(&mut self, epoch: i32, start_offset: i64) -> Result<()> {
        self.writable()?;
        let before = self.epochs.version();
        let was_kept = before == self.synced.epochs || self.has_only_led();
        self.epochs.assign(epoch, start_offset);
        let is_without_records = start_offset == self.log_end_offset;
        if was_kept && is_without_records {
            self.only_led = self.epochs.version();
        }
        // An epoch without records gives way to the next leader's: a log that is only led needs no close.
        self.closed_cleanly &= self.epochs.version() == before || is_without_records;
        Ok(())
    }

    /// Whether all that the file of the epochs lacks is a last epoch without records.
    fn has_only_led(&self) -> bool {
        let last = self.epochs.entries().last();
        self.only_led == self.epochs.version() && last.is_some_and(|last| last.start_offset == self.log_end_offset)
    }

    /// Epoch of the leader that wrote `offset`; `None` when unknown.
    pub fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        self.epochs.epoch_of(offset)
    }

    /// Where a leader epoch ended, as OffsetForLeaderEpoch and diverging fetches answer it.
    pub fn end_offset_for_epoch(&self, epoch: i32) -> EpochEnd {
        self.epochs.end_offset_for(epoch, self.log_end_offset)
    }

    /// Refuses every change from now on: the disk has failed elsewhere in a way that concerns this log.
    pub fn poison(&self) {
        self.shared.poisoned.store(true, Ordering::Release);
    }

    /// Whether the log refuses changes.
    pub fn is_poisoned(&self) -> bool {
        self.shared.poisoned.load(Ordering::Acquire)
    }

    fn writable(&self) -> Result<()> {
        if self.closed || self.is_poisoned() {
            return Err(LogError::Poisoned { dir: self.home.dir.clone() });
        }
        Ok(())
    }

    fn out_of_range(&self, offset: i64) -> LogError {
        LogError::OffsetOutOfRange { offset, start: self.log_start_offset, end: self.log_end_offset }
    }

    /// The segment that is written to.
    fn active(&self) -> &Segment {
        self.segments.last().expect("a log has a segment")
    }

    /// The segments that are no longer written to.
    fn finished_segments(&self) -> &[Segment] {
        &self.segments[..self.segments.len() - 1]
    }

    /// Place of the segment that would hold `offset`.
    fn segment_at(&self, offset: i64) -> usize {
        segment_at(&self.segments, offset)
    }

    /// Offset after the last one that segment number `at` can hold.
    fn segment_end(&self, at: usize) -> i64 {
        self.segments.get(at + 1).map_or(self.log_end_offset, |next| next.base_offset)
    }
}

/// Place of the segment that would hold `offset`.
fn segment_at(segments: &[Segment], offset: i64) -> usize {
    segments.partition_point(|segment| segment.base_offset <= offset).saturating_sub(1)
}
