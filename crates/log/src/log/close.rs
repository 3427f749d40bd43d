//! The end of a log: an orderly close, or its deletion.

use super::Log;
use crate::error::{IoContext, Result};
use crate::names::{DirKind, PartitionDirName, SNAPSHOT, segment_name, segment_offset};
use crate::snapshot;
use crate::text::bad;

impl Log {
    /// Leaves the files as Kafka's orderly stop does, all durable: exact index lengths, the final time entry, a producer snapshot at the log
    /// end. The log stays readable and takes no more changes. Costs nothing when it was opened clean and not changed since.
    ///
    /// # Errors
    /// [`LogError`](crate::LogError) of the stage that failed; the directory's clean marker must not be written then.
    pub fn close(&mut self) -> Result<()> {
        self.writable()?;
        if !self.closed_cleanly {
            let home = &self.home;
            self.segments.last_mut().expect("a log has a segment").finish(home)?;
            self.write_snapshot()?;
            if let Some(flush) = self.flush_of(self.segments.len())? {
                flush.sync()?;
                self.flushed(flush);
            }
        }
        self.closed = true;
        Ok(())
    }

    /// Stage *snapshot*. Those at the segments' base offsets stay, others are of no use. A log that never held a record needs none.
    fn write_snapshot(&mut self) -> Result<()> {
        if self.size() == 0 {
            return Ok(());
        }
        let (disk, dir) = (&self.home.disk, &self.home.dir);
        let name = segment_name(self.log_end_offset, SNAPSHOT);
        let mut found = false;
        for entry in disk.list(dir).context("listing", dir)? {
            let Some(offset) = segment_offset(&entry.name, SNAPSHOT) else { continue };
            found |= entry.name == name;
            if offset != self.log_end_offset && self.segments.iter().all(|segment| segment.base_offset != offset) {
                let path = dir.join(&entry.name);
                disk.remove_file(&path).context("removing", &path)?;
                self.marks.names += 1;
            }
        }
        if !found {
            crate::text::replace_file(&**disk, &dir.join(name), &snapshot::empty())?;
        }
        Ok(())
    }

    /// Stage *rename* of a deletion: the directory becomes `topic-N.<32 hex of unique>-delete` and waits there, out of the way of a new topic of
    /// the same name. The log stays readable and takes no more changes.
    ///
    /// The new name is durable once the log directory is synced. If a crash takes it back, the partition is found again under its old name with
    /// its old topic id.
    ///
    /// # Errors
    /// [`LogError::Io`](crate::LogError::Io); nothing has changed then.
    pub fn rename_for_deletion(&mut self, unique: u128) -> Result<()> {
        let name = self.home.dir.file_name().and_then(|name| name.to_str()).and_then(PartitionDirName::parse);
        let name = name.ok_or_else(|| bad(&self.home.dir, "is no directory of a partition"))?;
        let renamed = PartitionDirName::format(&name.topic, name.partition, DirKind::Delete, unique);
        let to = self.home.parent().join(renamed);
        self.supersede_flushes();
        self.home.disk.rename(&self.home.dir, &to).context("renaming to", &to)?;
        self.home.dir = to;
        self.closed = true;
        Ok(())
    }

    /// Stage *remove* of a deletion: the directory with everything in it.
    ///
    /// # Errors
    /// [`LogError::Io`](crate::LogError::Io); what is left is removed after the next start.
    pub fn delete(self) -> Result<()> {
        self.home.disk.remove_dir_all(&self.home.dir).context("removing", &self.home.dir)
    }
}
