//! Cutting the log at its end, and beginning it anew elsewhere.

use super::Log;
use crate::error::{IoContext, Result};
use crate::names::{SNAPSHOT, segment_offset};
use crate::producers::{Producers, Source, remove_snapshots, restore};
use crate::segment::Segment;

impl Log {
    /// Removes every record at and above `offset`. Returns whether there was one.
    ///
    /// An offset inside of a batch removes the whole batch. The recovery-point checkpoint must be written afterwards, before the next append:
    /// until then it may say that offsets are durable which are about to be written anew.
    ///
    /// # Errors
    /// [`LogError::Io`](crate::LogError::Io) and damaged files; the log is poisoned then.
    pub fn truncate_to(&mut self, offset: i64) -> Result<bool> {
        self.writable()?;
        if offset >= self.log_end_offset {
            return Ok(false);
        }
        let first = self.segments[0].base_offset;
        let cut = if offset < first { self.restart_at(offset.max(0)) } else { self.cut_log(offset) };
        if cut.is_err() {
            self.poison();
        }
        cut.map(|()| true)
    }

    /// Removes everything and lets the log begin, and end, at `offset`.
    ///
    /// # Errors
    /// As [`truncate_to`](Self::truncate_to).
    pub fn truncate_fully_and_start_at(&mut self, offset: i64) -> Result<()> {
        self.writable()?;
        let restarted = self.restart_at(offset);
        if restarted.is_err() {
            self.poison();
        }
        restarted
    }

    /// Stages *drop*, *names*, *cut*, *producers*. Also undoes a failed append, whose batches are above the log end offset.
    pub(super) fn cut_log(&mut self, offset: i64) -> Result<()> {
        self.supersede_flushes();
        self.recent.clear();
        self.drop_segments(|segment| segment.base_offset > offset)?;
        let home = &self.home;
        let active = self.segments.last_mut().expect("the first segment begins at or below the offset");
        let removed = active.truncate_to_offset(home, offset)?;
        self.log_end_offset = removed.map_or(offset, |base_offset| base_offset.min(offset)).min(self.log_end_offset);
        self.log_start_offset = self.log_start_offset.min(self.log_end_offset);
        self.flushed_to = self.flushed_to.min(self.log_end_offset);
        self.epochs.truncate_from_end(self.log_end_offset);
        self.closed_cleanly = false;
        self.restore_producers()
    }

    /// Stage *producers*.
    fn restore_producers(&mut self) -> Result<()> {
        let home = &self.home;
        let entries = home.disk.list(&home.dir).context("listing", &home.dir)?;
        let snapshots: Vec<i64> = entries.iter().filter_map(|entry| segment_offset(&entry.name, SNAPSHOT)).collect();
        let (segments, end) = (&self.segments[..], self.log_end_offset);
        self.producers = restore(&Source { home, segments, end, clean: false, expire: None }, &snapshots)?.producers;
        self.synced_snapshot = None;
        self.written_snapshot = None;
        Ok(())
    }

    fn restart_at(&mut self, offset: i64) -> Result<()> {
        self.supersede_flushes();
        self.recent.clear();
        self.producers = Producers::default();
        self.synced_snapshot = None;
        self.written_snapshot = None;
        remove_snapshots(&self.home)?;
        let dropped = self.drop_segments(|_| true);
        if self.segments.is_empty() {
            // Stands in until the files are there, also if they can't be made.
            self.segments.push(Segment::existing(offset, 0));
            self.log_start_offset = offset;
            self.log_end_offset = offset;
            self.flushed_to = offset;
            self.epochs.clear();
        }
        dropped?;
        self.marks.names += 1;
        self.segments[0] = Segment::create(&self.home, offset, self.config.new_length())?;
        self.closed_cleanly = false;
        Ok(())
    }

    /// Stages *drop* and *names*: the last segments, as far as `which` says.
    ///
    /// From the last one down, so that a crash leaves no gap; made durable, so that none comes back behind what is written next.
    fn drop_segments(&mut self, which: impl Fn(&Segment) -> bool) -> Result<()> {
        let keep = self.segments.iter().rposition(|segment| !which(segment)).map_or(0, |last| last + 1);
        if keep == self.segments.len() {
            return Ok(());
        }
        let dir = &self.home.dir;
        while self.segments.len() > keep {
            self.active().remove(&self.home)?;
            self.segments.pop();
        }
        self.home.disk.sync_dir(dir).context("syncing", dir)
    }
}
