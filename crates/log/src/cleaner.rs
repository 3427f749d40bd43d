//! Log compaction: of the records with one key only the last stays. What lives here: the map from keys to their last offsets, which segments
//! are written into one, what becomes of each batch, and the new segment's files. What does not: the swap in the log (`log/clean`), which
//! log is cleaned when, and threads, which are the broker's.
//!
//! A cleaning reads the dirty section once for the map, then all segments up to where the map reaches, group by group, and swaps one new
//! segment in for each group. Memory is the map, two buffers, and one batch where that is longer than a buffer.

mod chunks;
mod filter;
mod group;
mod offset_map;
mod target;
mod transactions;

use std::io::IoSlice;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use milena_records::{Batch, BatchError, BuildError, RecordError, batches};
use parking_lot::Mutex;

pub(crate) use chunks::Source;
pub(crate) use filter::LastWritten;
use filter::{Kept, Rules, Workbench, control_kind};
pub(crate) use group::SegmentSizes;
use group::group;
use offset_map::OffsetMap;
pub(crate) use target::Target;
use transactions::Transactions;

use crate::aborted::AbortedTxn;
use crate::error::{IoContext, LogError};
use crate::log::{Log, LogView, Version, look};

/// Least length of a buffer: a batch header must fit in.
const LEAST_BUFFER: usize = 4 << 10;

/// How one cleaner works.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CleanerConfig {
    /// Most bytes of the map (`log.cleaner.dedupe.buffer.size`, for one thread).
    pub map_bytes: u64,
    /// How full the map may be (`log.cleaner.io.buffer.load.factor`).
    pub load_factor: f64,
    /// Length of each of the two buffers, bytes (half of `log.cleaner.io.buffer.size`, for one thread).
    pub buffer_bytes: usize,
    /// Most decompressed bytes of one batch.
    pub decompressed_bytes: usize,
}

/// What is to be cleaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// First offset that was not cleaned yet.
    pub first_dirty: i64,
    /// Base offset of the first segment that must not be touched; from [`Log::cleanable`].
    pub end: i64,
    /// Wall clock, ms since 1970.
    pub now_ms: i64,
    /// `delete.retention.ms`: how long tombstones and markers stay after they were first met here, ms.
    pub delete_retention_ms: i64,
    /// Longest record of a compressed batch, bytes (`max.decompressed.message.bytes`).
    pub max_record_bytes: i32,
}

/// What a cleaning needs of its surroundings.
pub trait Host {
    /// `bytes` were read or written. Waits as long as the budget for that demands; false: the cleaning is to be given up.
    fn go_on(&mut self, bytes: u64) -> bool;

    /// The high watermark of the log: the batch that ends there keeps its header.
    fn high_watermark(&self) -> i64;

    /// Files that no segment owns any more, to be removed after `file.delete.delay.ms`.
    fn remove_later(&mut self, files: Vec<PathBuf>);
}

/// What a cleaning did.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stats {
    /// Bytes read for the map.
    pub map_bytes_read: u64,
    /// Records and markers read for the map.
    pub map_messages_read: u64,
    /// How long that took.
    pub map_time: Duration,
    /// How full the map was, of what it may take.
    pub map_utilization: f64,
    /// Bytes of the segments that were cleaned.
    pub bytes_read: u64,
    /// Bytes of the segments that stand in their place.
    pub bytes_written: u64,
    /// Records and markers read while cleaning; those in batches that went as a whole are not among them.
    pub messages_read: u64,
    /// Records and markers that stayed.
    pub messages_written: u64,
    /// Records without a key, which went.
    pub invalid_messages: u64,
    /// How long all of it took.
    pub time: Duration,
}

/// A finished cleaning.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cleaned {
    /// First offset that is not clean now: for `cleaner-offset-checkpoint`.
    pub end: i64,
    /// What was done.
    pub stats: Stats,
}

/// Why a cleaning ended early. The segments that were swapped in by then stay.
#[derive(Debug, thiserror::Error)]
pub enum CleanError {
    /// The host or a change of the log demanded it; it can be tried again.
    #[error("the cleaning was given up")]
    GivenUp,
    /// Not even one batch's keys fit into the map.
    #[error("the keys of the batch behind offset {offset} do not fit into log.cleaner.dedupe.buffer.size")]
    MapTooSmall {
        /// Where the dirty section begins.
        offset: i64,
    },
    /// The files are damaged, or the disk fails.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// What is wrong with a batch.
#[derive(Debug, thiserror::Error)]
enum BatchFault {
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error(transparent)]
    Records(#[from] RecordError),
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// Cleans logs, one after the other, with buffers that are used again. One a thread.
#[derive(Debug)]
pub struct Cleaner {
    config: CleanerConfig,
    chunk: Vec<u8>,
    rewritten: Vec<u8>,
    pieces: Vec<Piece>,
    bench: Workbench,
}

/// Bytes to be written: of the chunk that was read, or of what was written anew.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Read(Range<usize>),
    Rewritten(Range<usize>),
}

/// What one cleaning carries from segment to segment.
struct Round<'c> {
    log: &'c Mutex<Log>,
    task: Task,
    host: &'c mut dyn Host,
    version: &'c Version,
    map: OffsetMap,
    transactions: Transactions,
    stats: Stats,
}

impl Round<'_> {
    fn go_on(&mut self, bytes: usize) -> Result<(), CleanError> {
        if self.host.go_on(bytes as u64) { Ok(()) } else { Err(CleanError::GivenUp) }
    }

    fn source(&self, base_offset: i64) -> Result<Source, CleanError> {
        self.log.lock().source(self.version, base_offset)?.ok_or(CleanError::GivenUp)
    }

    /// A segment from where its dirty part begins.
    fn dirty_source(&self, base_offset: i64) -> Result<Source, CleanError> {
        let mut source = self.source(base_offset)?;
        let Task { first_dirty, end, .. } = self.task;
        if first_dirty > base_offset {
            source.position = look(self.log, |log| log.view_below(end), |view| view.position_of(first_dirty)).0?;
        }
        Ok(source)
    }
}

impl Cleaner {
    /// A cleaner that has done nothing.
    pub fn new(config: CleanerConfig) -> Self {
        Self {
            config,
            chunk: Vec::new(),
            rewritten: Vec::new(),
            pieces: Vec::new(),
            bench: Workbench::new(config.decompressed_bytes),
        }
    }

    /// Cleans a log. Its lock is taken for moments only: to open a file, to make one, and to swap.
    ///
    /// # Errors
    /// [`CleanError`]. When the log was truncated, closed or lost segments meanwhile it is [`CleanError::GivenUp`], whatever else was met.
    pub fn clean(&mut self, log: &Mutex<Log>, task: Task, host: &mut dyn Host) -> Result<Cleaned, CleanError> {
        let version = log.lock().version();
        let cleaned = self.clean_version(log, task, host, &version);
        self.chunk = Vec::new();
        self.rewritten = Vec::new();
        cleaned.map_err(|error| if log.lock().is_version(&version) { error } else { CleanError::GivenUp })
    }

    fn clean_version(
        &mut self,
        log: &Mutex<Log>,
        task: Task,
        host: &mut dyn Host,
        version: &Version,
    ) -> Result<Cleaned, CleanError> {
        #[expect(clippy::disallowed_methods, reason = "the time is told, nothing is decided by it")]
        let begun = Instant::now();
        let config = std::sync::Arc::clone(log.lock().config());
        let segments = look(log, |log| log.view_below(task.end), LogView::sizes).0?;
        let first = segments.partition_point(|segment| segment.base_offset <= task.first_dirty).saturating_sub(1);
        let mut round = Round {
            log,
            task,
            host,
            version,
            map: OffsetMap::new(self.config.map_bytes, self.config.load_factor),
            transactions: Transactions::new(aborted_between(log, task.first_dirty, task.end)?),
            stats: Stats::default(),
        };
        self.chunk = vec![0; self.config.buffer_bytes.max(LEAST_BUFFER)];
        self.bench.decompressor.set_max_record_size(task.max_record_bytes);
        self.build_map(&mut round, &segments[first..])?;
        round.stats.map_time = begun.elapsed();
        round.stats.map_utilization = round.map.utilization();
        let end = round.map.latest_offset() + 1;
        if end <= task.first_dirty && task.first_dirty < task.end {
            return Err(CleanError::MapTooSmall { offset: task.first_dirty });
        }
        let reached = segments.partition_point(|segment| segment.base_offset < end);
        let from = segments.first().map_or(end, |segment| segment.base_offset);
        // The map may end inside of a segment, which is written to its end all the same.
        let to = segments.get(reached).map_or(task.end, |segment| segment.base_offset);
        round.transactions = Transactions::new(aborted_between(log, from, to)?);
        for group in group(&segments[..reached], config.segment_bytes, config.segment_index_bytes, task.end) {
            self.clean_group(&mut round, group)?;
        }
        round.stats.time = begun.elapsed();
        Ok(Cleaned { end, stats: round.stats })
    }

    /// Fills the map from the dirty segments, as far as it reaches.
    fn build_map(&mut self, round: &mut Round<'_>, dirty: &[SegmentSizes]) -> Result<(), CleanError> {
        for (at, segment) in dirty.iter().enumerate() {
            let mut source = round.dirty_source(segment.base_offset)?;
            loop {
                let start = source.position;
                let len = source.read(&mut self.chunk)?;
                if len == 0 {
                    break;
                }
                round.stats.map_bytes_read += len as u64;
                round.go_on(len)?;
                let mut position = start;
                for batch in batches(&self.chunk[..len]) {
                    let batch = batch.map_err(|error| source.corrupt(position, error))?;
                    source.check(&batch, position)?;
                    let mapped = map_batch(round, &mut self.bench, &batch);
                    if !mapped.map_err(|fault| source.corrupt(position, fault))? {
                        return Ok(());
                    }
                    position += batch.size() as u64;
                }
            }
            let next = dirty.get(at + 1).map_or(round.task.end, |next| next.base_offset);
            round.map.cover(next - 1);
        }
        Ok(())
    }

    /// Writes a group's segments into one and swaps it in.
    fn clean_group(&mut self, round: &mut Round<'_>, group: &[SegmentSizes]) -> Result<(), CleanError> {
        let base_offset = group[0].base_offset;
        let target = round.log.lock().create_target(round.version, base_offset)?;
        let mut target = target.ok_or(CleanError::GivenUp)?;
        let written = self.write_group(round, group, &mut target);
        let swapped = written.and_then(|()| {
            let mut deleted = Vec::new();
            let swapped = round.log.lock().swap_in(round.version, &target, group, &mut deleted);
            round.host.remove_later(deleted);
            if swapped? { Ok(()) } else { Err(CleanError::GivenUp) }
        });
        if swapped.is_err() {
            round.log.lock().discard_target(round.version, &target);
            return swapped;
        }
        round.stats.bytes_read += group.iter().map(|segment| segment.size).sum::<u64>();
        round.stats.bytes_written += target.size();
        let (disk, dir) = {
            let log = round.log.lock();
            (std::sync::Arc::clone(log.disk()), log.dir().to_owned())
        };
        let synced = disk.sync_dir(&dir).context("syncing", &dir);
        Ok(synced.inspect_err(|_| round.log.lock().poison())?)
    }

    fn write_group(
        &mut self,
        round: &mut Round<'_>,
        group: &[SegmentSizes],
        target: &mut Target,
    ) -> Result<(), CleanError> {
        let producers = round.log.lock().last_written();
        for segment in group {
            let mut source = round.source(segment.base_offset)?;
            let high_watermark = round.host.high_watermark();
            loop {
                let start = source.position;
                let len = source.read(&mut self.chunk)?;
                if len == 0 {
                    break;
                }
                self.rewritten.clear();
                self.pieces.clear();
                let rules = Rules {
                    map: &round.map,
                    now_ms: round.task.now_ms,
                    delete_retention_ms: round.task.delete_retention_ms,
                    high_watermark,
                    producers: &producers,
                };
                let mut at = 0;
                for batch in batches(&self.chunk[..len]) {
                    let position = start + at as u64;
                    let batch = batch.map_err(|error| source.corrupt(position, error))?;
                    source.check(&batch, position)?;
                    let (transactions, stats) = (&mut round.transactions, &mut round.stats);
                    let kept = rules.judge(&batch, transactions, &mut self.bench, stats, &mut self.rewritten);
                    match kept.map_err(|fault| source.corrupt(position, fault))? {
                        Kept::Nothing => {}
                        Kept::Verbatim => {
                            target.note(&batch)?;
                            push(&mut self.pieces, Piece::Read(at..at + batch.size()));
                        }
                        Kept::Rewritten(range) => {
                            let bytes = &self.rewritten[range.clone()];
                            target.note(&Batch::parse(bytes).map_err(|error| source.corrupt(position, error))?)?;
                            push(&mut self.pieces, Piece::Rewritten(range));
                        }
                    }
                    at += batch.size();
                }
                let written = self.write_pieces(target)?;
                round.go_on(len + written)?;
            }
        }
        let kept = round.transactions.take_kept();
        if !kept.is_empty() {
            round.log.lock().add_aborted(round.version, target, &kept)?;
        }
        Ok(target.finish()?)
    }

    /// Writes what stays of a chunk; returns how many bytes that is.
    fn write_pieces(&self, target: &mut Target) -> Result<usize, CleanError> {
        if self.pieces.is_empty() {
            return Ok(0);
        }
        let bytes = |piece: &Piece| match piece {
            Piece::Read(range) => IoSlice::new(&self.chunk[range.clone()]),
            Piece::Rewritten(range) => IoSlice::new(&self.rewritten[range.clone()]),
        };
        let slices: Vec<IoSlice<'_>> = self.pieces.iter().map(bytes).collect();
        target.write(&slices)?;
        Ok(slices.iter().map(|slice| slice.len()).sum())
    }
}

/// The aborted transactions with records in a range of offsets, and perhaps others. The marker of each stands at or above `start`.
fn aborted_between(log: &Mutex<Log>, start: i64, end: i64) -> crate::Result<Vec<AbortedTxn>> {
    look(log, |log| log.view_of_aborted_from(start), |view| view.aborted_between(start, end)).0
}

/// Adds a piece; one that follows the last makes it longer.
fn push(pieces: &mut Vec<Piece>, piece: Piece) {
    match (pieces.last_mut(), &piece) {
        (Some(Piece::Read(last)), Piece::Read(next)) | (Some(Piece::Rewritten(last)), Piece::Rewritten(next))
            if last.end == next.start =>
        {
            last.end = next.end;
        }
        _ => pieces.push(piece),
    }
}

/// Puts a batch's keys into the map; false when it is full, and covers the offsets before this batch only.
fn map_batch(round: &mut Round<'_>, bench: &mut Workbench, batch: &Batch<'_>) -> Result<bool, BatchFault> {
    let from = round.task.first_dirty;
    if batch.is_control() {
        round.transactions.marker(batch, control_kind(batch)?);
        round.stats.map_messages_read += 1;
    } else if round.transactions.batch(batch) {
        round.stats.map_messages_read += u64::try_from(batch.count()).unwrap_or(0);
    } else {
        for record in batch.records(&mut bench.decompressor)? {
            let record = record?;
            let offset = record.offset(batch);
            if let Some(key) = record.key
                && offset >= from
                && !round.map.put(key, offset)
            {
                return Ok(false);
            }
            round.stats.map_messages_read += 1;
        }
    }
    if batch.last_offset() >= from {
        round.map.cover(batch.last_offset());
    }
    Ok(true)
}
