//! Making the log durable, with the slow part outside of the partition's lock.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use milena_io::{Disk, File};
use parking_lot::Mutex;

use super::Log;
use crate::error::{IoContext, LogError, Result};
use crate::names::EPOCHS;
use crate::partition_metadata;
use crate::segment::Segment;
use crate::text::replace_file;

/// What a log and its flushes under way share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) poisoned: AtomicBool,
    gate: Mutex<Gate>,
}

/// Flushes of one log trim files, and write names and epochs, one at a time, the newest epochs last.
#[derive(Debug, Default)]
struct Gate {
    /// Generation below which a flush has nothing more to write.
    generation: u64,
    /// Number of the newest flush whose epochs were written.
    newest: u64,
}

/// How far everything but the data is durable: counts of changes, and which of them the last flush took along.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// Names made or removed in the directory.
    pub(super) names: u64,
    /// The directory itself was made.
    pub(super) parent: u64,
    /// Version of the epochs.
    pub(super) epochs: u64,
}

/// The slow part of a flush: [`sync`](Flush::sync) it without holding the log, then hand it to [`Log::flushed`].
#[derive(Debug)]
pub struct Flush {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    shared: Arc<Shared>,
    generation: u64,
    end_offset: i64,
    /// What has space reserved behind its end, and where that is, bytes.
    spare: Vec<(PathBuf, Arc<dyn File>, u64)>,
    data: Vec<(PathBuf, Arc<dyn File>)>,
    indexes: Vec<(PathBuf, Arc<dyn File>)>,
    finished: Vec<i64>,
    epochs: Option<String>,
    number: u64,
    /// What this flush makes durable.
    marks: Marks,
    /// What was durable before it.
    synced: Marks,
}

impl Flush {
    /// Everything below this offset is durable afterwards.
    pub fn end_offset(&self) -> i64 {
        self.end_offset
    }

    /// Stages *spare*, *data*, *indexes*, *epochs* and *names*, the last with a new partition's topic id. Blocks as long as the disk does.
    ///
    /// # Errors
    /// [`LogError::Io`]; the log then refuses every change, unless only *spare* has failed: what a failed sync has lost no later one brings
    /// back.
    pub fn sync(&self) -> Result<()> {
        self.give_back_spare()?;
        let result = self.sync_all();
        if result.is_err() {
            self.shared.poisoned.store(true, Ordering::Release);
        }
        result
    }

    /// A truncation, after which one of these segments may be written to again, waits for this or has superseded it.
    fn give_back_spare(&self) -> Result<()> {
        let gate = self.shared.gate.lock();
        if self.generation < gate.generation {
            return Ok(());
        }
        self.spare.iter().try_for_each(|(path, file, end)| file.truncate(*end).context("trimming", path))
    }

    fn sync_all(&self) -> Result<()> {
        if self.shared.poisoned.load(Ordering::Acquire) {
            return Err(LogError::Poisoned { dir: self.dir.clone() });
        }
        for (path, file) in self.data.iter().chain(&self.indexes) {
            file.sync_data().context("syncing", path)?;
        }
        let mut gate = self.shared.gate.lock();
        if self.generation < gate.generation {
            return Ok(());
        }
        if let Some(epochs) = &self.epochs
            && gate.newest <= self.number
        {
            replace_file(&*self.disk, &self.dir.join(EPOCHS), epochs.as_bytes())?;
            gate.newest = self.number;
        }
        if self.marks.parent != self.synced.parent {
            partition_metadata::sync_if_there(&*self.disk, &self.dir)?;
        }
        if self.marks.names != self.synced.names {
            self.disk.sync_dir(&self.dir).context("syncing", &self.dir)?;
        }
        if self.marks.parent != self.synced.parent {
            let parent = self.dir.parent().unwrap_or(std::path::Path::new("."));
            self.disk.sync_dir(parent).context("syncing", parent)?;
        }
        Ok(())
    }
}

impl Log {
    /// What must be synced to make everything below the log end offset durable, and the index files of finished segments; `None` when all
    /// that is.
    ///
    /// # Errors
    /// [`LogError::Poisoned`]; files that can't be opened.
    pub fn begin_flush(&mut self) -> Result<Option<Flush>> {
        self.begin_flush_of(self.segments.len())
    }

    /// As [`begin_flush`](Self::begin_flush), without the segment that is written to: whoever appends does not meet the disk at work on it.
    ///
    /// # Errors
    /// The same.
    pub fn begin_flush_of_finished(&mut self) -> Result<Option<Flush>> {
        self.begin_flush_of(self.segments.len() - 1)
    }

    /// Of the `count` oldest segments.
    fn begin_flush_of(&mut self, count: usize) -> Result<Option<Flush>> {
        self.writable()?;
        let with_data: Vec<usize> = (0..count).filter(|at| self.has_unsynced_data(*at)).collect();
        let finished: Vec<usize> = (0..count).filter(|at| self.has_unsynced_indexes(*at)).collect();
        let marks = Marks { epochs: self.epochs.version(), ..self.marks };
        if with_data.is_empty() && marks == self.synced {
            return Ok(None);
        }
        self.flushes += 1;
        self.rolled = false;
        let mut flush = Flush {
            disk: Arc::clone(&self.home.disk),
            dir: self.home.dir.clone(),
            shared: Arc::clone(&self.shared),
            generation: self.generation,
            end_offset: self.segments.get(count).map_or(self.log_end_offset, |next| next.base_offset),
            spare: Vec::new(),
            data: Vec::new(),
            indexes: Vec::new(),
            finished: finished.iter().map(|at| self.segments[*at].base_offset).collect(),
            epochs: (marks.epochs != self.synced.epochs).then(|| self.epochs.format()),
            number: self.flushes,
            marks,
            synced: self.synced,
        };
        let home = &self.home;
        for segment in with_data.into_iter().map(|at| &self.segments[at]) {
            flush.data.push((segment.path(home), Arc::clone(segment.file(home)?)));
        }
        for segment in finished.into_iter().map(|at| &self.segments[at]) {
            if segment.has_spare() {
                flush.spare.push((segment.path(home), Arc::clone(segment.file(home)?), segment.size));
            }
            flush.indexes.extend(segment.index_files(home)?);
        }
        Ok(Some(flush))
    }

    /// Whether the `.log` file of segment number `at` is to be synced: not all its batches are durable, or it may have become shorter since they
    /// were.
    pub(super) fn has_unsynced_data(&self, at: usize) -> bool {
        self.has_unsynced_indexes(at) || self.segment_end(at) > self.flushed_to
    }

    /// Whether the segment is no longer written to and its index files are not durable.
    fn has_unsynced_indexes(&self, at: usize) -> bool {
        at + 1 < self.segments.len() && !self.segments[at].indexes_synced
    }

    /// Everything below this offset is durable.
    pub fn flushed_to(&self) -> i64 {
        self.flushed_to
    }

    /// A segment was finished since the last flush began: a flush makes its indexes durable and lets the recovery point pass it.
    pub fn wants_flush(&self) -> bool {
        self.rolled
    }

    /// Takes note of a synced flush: the recovery point advances. False when the log was truncated meanwhile or is another one; then nothing is known, and
    /// another flush must tell.
    pub fn flushed(&mut self, flush: Flush) -> bool {
        if flush.generation != self.generation || !Arc::ptr_eq(&flush.shared, &self.shared) {
            return false;
        }
        self.flushed_to = self.flushed_to.max(flush.end_offset);
        self.synced.names = self.synced.names.max(flush.marks.names);
        self.synced.parent = self.synced.parent.max(flush.marks.parent);
        self.synced.epochs = self.synced.epochs.max(flush.marks.epochs);
        let finished = self.segments.iter_mut().filter(|segment| flush.finished.contains(&segment.base_offset));
        finished.for_each(Segment::flushed);
        true
    }

    /// Makes everything below the log end offset durable and advances the recovery point.
    ///
    /// # Errors
    /// As [`begin_flush`](Self::begin_flush) and [`Flush::sync`].
    pub fn flush(&mut self) -> Result<()> {
        if let Some(flush) = self.begin_flush()? {
            flush.sync()?;
            self.flushed(flush);
        }
        Ok(())
    }

    /// What flushes under way have not written yet, they never will: the log is being changed under them.
    pub(super) fn supersede_flushes(&mut self) {
        self.generation += 1;
        self.shared.gate.lock().generation = self.generation;
    }
}
