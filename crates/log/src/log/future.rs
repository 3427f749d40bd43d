//! A copy of a log in another log directory: how it grows, and how it takes the log's place. The copy's directory has the suffix `-future`
//! until then.

use milena_records::batches;

use super::Log;
use crate::error::{IoContext, Result};
use crate::names::{DirKind, PartitionDirName};
use crate::producers::write_snapshot;

impl Log {
    /// Removes from this log, an older copy of `source`, what `source` does not have, as the leader epochs tell. Where nothing is common, it
    /// begins anew at the log start of `source`.
    ///
    /// # Errors
    /// As [`truncate_to`](Self::truncate_to).
    pub fn agree_with(&mut self, source: &Log) -> Result<()> {
        let mut ours = self.leader_epochs().iter().rev().map(|entry| entry.epoch);
        let common = ours.find(|epoch| source.leader_epochs().iter().any(|entry| entry.epoch == *epoch));
        let end = |log: &Log, epoch| log.end_offset_for_epoch(epoch).end_offset;
        let agreed = common.map_or(0, |epoch| end(self, epoch).min(end(source, epoch)));
        if agreed < source.log_start_offset() || agreed < self.log_start_offset() {
            return self.truncate_fully_and_start_at(source.log_start_offset());
        }
        self.truncate_to(agreed).map(|_| ())
    }

    /// Appends the whole ones of the batches in `bytes`, which [`read`](Self::read) has found in the log that this is a copy of, at this log's end.
    /// Returns their length.
    ///
    /// # Errors
    /// As [`append_as_follower`](Self::append_as_follower); [`LogError::Malformed`](crate::LogError::Malformed) for a batch with a wrong checksum.
    pub fn append_copy(&mut self, bytes: &[u8], now_ms: i64) -> Result<usize> {
        let (mut whole, mut first) = (0, self.log_end_offset);
        for batch in batches(bytes).map_while(std::result::Result::ok) {
            batch.verify_crc()?;
            if whole == 0 {
                first = batch.base_offset();
            }
            whole += batch.size();
        }
        if self.size() == 0 && first < self.log_end_offset {
            // The log start of the other lies inside of a batch.
            self.truncate_fully_and_start_at(first)?;
        }
        self.append_as_follower(&bytes[..whole], now_ms)?;
        Ok(whole)
    }

    /// Puts this log, a copy that has everything up to the end of `source`, in the place of `source`, whose directory is then one that waits for its
    /// deletion. What is durable in `source` is durable in the copy before. `source` takes no more changes.
    ///
    /// Stages *keep* (a flush if the copy lacks one, and the producer snapshot), *leave* (the source gets the suffix `-delete`), *names* (of
    /// its log directory), *enter* (the copy loses the suffix `-future`; durable with its next flush). A crash before *leave* leaves the source,
    /// one after it a complete copy and no source.
    ///
    /// # Errors
    /// [`LogError::Io`](crate::LogError::Io); the source keeps its place then if the disk lets it.
    pub fn take_place_of(&mut self, source: &mut Log, unique: u128) -> Result<()> {
        self.writable()?;
        source.writable()?;
        assert_eq!(self.log_end_offset, source.log_end_offset, "the copy ends where the log does");
        if self.flushed_to < source.flushed_to {
            self.flush()?;
        }
        self.set_log_start_offset(source.log_start_offset)?;
        for entry in source.leader_epochs() {
            self.epochs.assign(entry.epoch, entry.start_offset);
        }
        write_snapshot(&self.home, self.log_end_offset, &source.producers)?;
        let name = source.dir_name()?;
        let name = PartitionDirName::format(&name.topic, name.partition, DirKind::Current, 0);
        source.rename_for_deletion(unique)?;
        let parent = source.home.parent();
        let entered = source.home.disk.sync_dir(parent).context("syncing", parent).and_then(|()| self.rename_to(&name));
        if let Err(error) = entered {
            source.rename_to(&name)?;
            source.closed = false;
            return Err(error);
        }
        std::mem::swap(&mut self.producers, &mut source.producers);
        self.closed_cleanly = false;
        self.marks.names += 1;
        self.marks.parent += 1;
        Ok(())
    }
}
