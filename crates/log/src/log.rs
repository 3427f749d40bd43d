//! A partition's log: an ordered row of segments, of which the last is written to.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use milena_io::{Disk, File};
use milena_records::Batch;

use crate::config::LogConfig;
use crate::error::Result;

/// What a log is opened with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenParams {
    /// The log directory was stopped in order: sizes are trusted, nothing is scanned.
    pub clean: bool,
    /// From `recovery-point-offset-checkpoint`; 0 without an entry.
    pub recovery_point: i64,
    /// From `log-start-offset-checkpoint`; 0 without an entry.
    pub log_start_offset: i64,
    /// Wall clock, ms since 1970.
    pub now_ms: i64,
}

/// What opening had to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Segments whose batches were read and checked.
    pub segments_scanned: usize,
    /// Bytes read for that.
    pub bytes_scanned: u64,
    /// Bytes cut off behind the last good batch, those of dropped later segments included.
    pub bytes_cut: u64,
    /// Log end offset after a cut; `None` when nothing was cut.
    pub cut_at: Option<i64>,
    /// Why the first bad batch is bad.
    pub reason: Option<String>,
}

/// Where an append went. The batches' base offsets stand in their first eight bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record of the first batch.
    pub first_offset: i64,
    /// Offset of the last record of the last batch.
    pub last_offset: i64,
}

/// A range of whole bytes of one segment's file; the last batch in it may be cut.
#[derive(Debug, Clone)]
pub struct Slice {
    /// The segment's file. It stays readable after the segment is deleted.
    pub file: Arc<dyn File>,
    /// Where the first batch begins, bytes.
    pub position: u64,
    /// How many bytes; 0 when there is nothing to read.
    pub len: usize,
    /// Base offset of the segment.
    pub segment: i64,
    /// The first batch is longer than `max_bytes` and was left out.
    pub first_batch_cut: bool,
}

/// A record found by its timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampOffset {
    /// The record's timestamp, ms since 1970.
    pub timestamp: i64,
    /// The record's offset.
    pub offset: i64,
    /// Leader epoch of its batch; -1 when unknown.
    pub leader_epoch: i32,
}

/// Answer to "where did this leader epoch end".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEnd {
    /// Largest known epoch that is not above the asked one; -1 when undefined.
    pub epoch: i32,
    /// First offset after that epoch; -1 when undefined.
    pub end_offset: i64,
}

/// One partition's log. Not synchronised: appends need `&mut`, reads `&`.
#[derive(Debug)]
pub struct Log {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    config: Arc<LogConfig>,
    log_start_offset: i64,
    log_end_offset: i64,
}

/// Work of a flush that needs no log: sync it without the partition's lock, then hand it to [`Log::flushed`].
#[derive(Debug)]
pub struct Flush;

macro_rules! later {
    () => {
        panic!("not landed yet")
    };
}

#[allow(unused_variables, missing_docs, clippy::unused_self)]
impl Log {
    /// Opens the log in `dir`, an existing or missing directory; what is missing is made.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: Arc<LogConfig>,
        params: OpenParams,
    ) -> Result<(Log, Recovery)> {
        later!()
    }
    /// Appends whole batches, each slice one; gives them consecutive offsets and stamps offset and epoch into the buffers.
    pub fn append(&mut self, batches: &mut [&mut [u8]], leader_epoch: i32, now_ms: i64) -> Result<Appended> {
        later!()
    }
    /// Appends whole batches that have their offsets and epochs.
    pub fn append_as_follower(&mut self, batches: &[u8], now_ms: i64) -> Result<Appended> {
        later!()
    }
    /// Where to read from `offset` on. `end_offset` is exclusive.
    pub fn read(&self, offset: i64, max_bytes: usize, end_offset: i64, at_least_one_batch: bool) -> Result<Slice> {
        later!()
    }
    /// The first record at or after log start whose timestamp is `timestamp` or later.
    pub fn offset_for_timestamp(&self, timestamp: i64) -> Result<Option<TimestampOffset>> {
        later!()
    }
    /// The record of the largest timestamp.
    pub fn max_timestamp_offset(&self) -> Result<Option<TimestampOffset>> {
        later!()
    }
    pub fn end_offset_for_epoch(&self, epoch: i32) -> EpochEnd {
        later!()
    }
    /// Epoch of the leader that wrote `offset`.
    pub fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        later!()
    }
    /// A leader of `epoch` begins at `start_offset`.
    pub fn assign_epoch(&mut self, epoch: i32, start_offset: i64) {
        later!()
    }
    pub fn latest_epoch(&self) -> Option<i32> {
        later!()
    }
    pub fn log_start_offset(&self) -> i64 {
        self.log_start_offset
    }
    pub fn log_end_offset(&self) -> i64 {
        self.log_end_offset
    }
    pub fn recovery_point(&self) -> i64 {
        later!()
    }
    /// Sum of the segments' `.log` files, bytes.
    pub fn size(&self) -> u64 {
        later!()
    }
    pub fn dir(&self) -> &Path {
        &self.dir
    }
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }
    pub fn config(&self) -> &Arc<LogConfig> {
        &self.config
    }
    pub fn set_config(&mut self, config: Arc<LogConfig>) {
        self.config = config;
    }
    /// DeleteRecords: raises the log start offset.
    pub fn set_log_start_offset(&mut self, offset: i64) -> Result<()> {
        later!()
    }
    pub fn roll(&mut self, now_ms: i64) -> Result<()> {
        later!()
    }
    /// What must be synced to make everything below the log end offset durable; `None` when nothing is.
    pub fn begin_flush(&mut self) -> Result<Option<Flush>> {
        later!()
    }
    pub fn flushed(&mut self, flush: Flush) {
        later!()
    }
    /// Begin, sync and end of a flush in one.
    pub fn flush(&mut self) -> Result<()> {
        later!()
    }
    pub fn truncate_to(&mut self, offset: i64) -> Result<()> {
        later!()
    }
    pub fn truncate_fully_and_start_at(&mut self, offset: i64) -> Result<()> {
        later!()
    }
    /// Renames the directory to `topic-N.<32 hex>-delete`; the log stays readable.
    pub fn rename_for_deletion(&mut self, suffix: u128) -> Result<()> {
        later!()
    }
    /// Removes the directory.
    pub fn delete(self) -> Result<()> {
        later!()
    }
    /// Flushes and leaves the files as Kafka's clean stop does.
    pub fn close(&mut self) -> Result<()> {
        later!()
    }
    /// Reads the batches of a slice, for callers that look into them.
    pub fn read_batches<'b>(&self, slice: &Slice, buf: &'b mut Vec<u8>) -> Result<Vec<Batch<'b>>> {
        later!()
    }
}

impl Flush {
    /// Does the syncs. On an error the log takes no more writes.
    pub fn sync(&self) -> Result<()> {
        later!()
    }
}
