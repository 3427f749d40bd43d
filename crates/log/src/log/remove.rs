//! Taking the oldest segments out of the log, as whole files.

use std::path::PathBuf;
use std::sync::Arc;

use milena_io::{Disk, OpenMode};

use super::{Flush, Log, Shared};
use crate::error::{IoContext, Result};
use crate::names::SNAPSHOT;

/// The oldest segments, which are to go: [`sync`](Removal::sync) it without holding the log, then hand it to [`Log::remove_segments`].
#[derive(Debug)]
pub struct Removal {
    disk: Arc<dyn Disk>,
    flush: Option<Flush>,
    shared: Arc<Shared>,
    generation: u64,
    /// Producer snapshot of the segment that will be the first.
    snapshot: PathBuf,
    /// Base offset of that segment.
    below: i64,
}

impl Removal {
    /// Stage *keep*: makes durable what stands in for all that goes, the leader epochs and the producers. Blocks as long as the disk does.
    ///
    /// # Errors
    /// [`LogError::Io`](crate::LogError::Io); nothing is removed then.
    pub fn sync(&self) -> Result<()> {
        self.flush.as_ref().map_or(Ok(()), Flush::sync)?;
        match self.disk.open(&self.snapshot, OpenMode::Write).and_then(|file| file.sync_data()) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            synced => synced.context("syncing", &self.snapshot),
        }
    }
}

impl Log {
    /// What must be durable before the `count` oldest segments go.
    ///
    /// # Errors
    /// As [`begin_flush_of_finished`](Self::begin_flush_of_finished).
    ///
    /// # Panics
    /// When no segment would be left: the last one is rolled before it goes.
    pub fn begin_removal(&mut self, count: usize) -> Result<Removal> {
        let below = self.segments[count].base_offset;
        let snapshot = self.home.segment_file(below, SNAPSHOT);
        let (disk, shared) = (Arc::clone(&self.home.disk), Arc::clone(&self.shared));
        Ok(Removal {
            disk,
            flush: self.begin_flush_of_finished()?,
            shared,
            generation: self.generation,
            snapshot,
            below,
        })
    }

    /// Takes the segments of `removal` out of the log, the oldest first; the log then begins, at the earliest, where the next one does.
    ///
    /// Stage *rename*: their files and the producer snapshots at their base offsets get the suffix `.deleted`. Who reads one goes on reading.
    /// The new paths are added to `deleted`, also at a failure; the caller removes them after `file.delete.delay.ms`, and a start removes them
    /// at once. Nothing happens when no segment begins where they end any more: the log was
    /// truncated or compacted meanwhile, or is another one.
    ///
    /// # Errors
    /// [`LogError::Poisoned`](crate::LogError::Poisoned), [`LogError::Io`](crate::LogError::Io); segments before the one that failed are gone.
    pub fn remove_segments(&mut self, removal: Removal, deleted: &mut Vec<PathBuf>) -> Result<()> {
        self.writable()?;
        let Removal { flush, shared, generation, below, .. } = removal;
        if !Arc::ptr_eq(&shared, &self.shared) || generation != self.generation {
            return Ok(());
        }
        if let Some(flush) = flush {
            self.flushed(flush);
        }
        let count = self.segments.partition_point(|segment| segment.base_offset < below);
        let same = self.segments.get(count).is_some_and(|segment| segment.base_offset == below);
        if count == 0 || !same || below > self.recovery_point() {
            return Ok(());
        }
        self.set_log_start_offset(below)?;
        self.recent.clear();
        self.closed_cleanly = false;
        self.marks.names += 1;
        self.removed = self.marks.names;
        let mut gone = 0;
        let home = &self.home;
        let renamed = self.segments[..count].iter().try_for_each(|segment| {
            let before = deleted.len();
            let renamed = segment.rename_deleted(home, deleted);
            gone += usize::from(renamed.is_ok() || deleted.len() > before);
            renamed.and_then(|()| home.rename_deleted(segment.base_offset, SNAPSHOT, deleted))
        });
        self.segments.drain(..gone);
        renamed
    }
}
