//! The end of a log: an orderly close, or its deletion.

use std::path::PathBuf;

use milena_io::OpenMode;

use super::Log;
use super::flush::Marks;
use crate::error::{IoContext, Result};
use crate::names::{DirKind, EPOCHS, Home, PartitionDirName, SNAPSHOT, segment_name, segment_offset};
use crate::snapshot;
use crate::text::{Replacement, bad};

/// What a close has written and must still make durable.
#[derive(Debug)]
pub(crate) struct Closing {
    small: Vec<Replacement>,
    /// A file that says what it must, and may not be durable.
    written: Option<PathBuf>,
    strays: Vec<PathBuf>,
    /// The last segment's `.log` has become shorter.
    shortened: bool,
}

impl Closing {
    /// Puts the small files in place. Their contents must be durable, and the names are to be synced afterwards.
    fn rename(&self, home: &Home) -> Result<()> {
        for stray in &self.strays {
            home.disk.remove_file(stray).context("removing", stray)?;
        }
        self.small.iter().try_for_each(|small| small.rename(&*home.disk))
    }
}

impl Log {
    /// Leaves the files as Kafka's orderly stop does, all durable: exact index lengths, the final time entry, a producer snapshot at the log
    /// end. The log stays readable and takes no more changes. Costs nothing when it was opened clean and not changed since.
    ///
    /// # Errors
    /// [`LogError`](crate::LogError) of the stage that failed; the directory's clean marker must not be written then.
    pub fn close(&mut self) -> Result<()> {
        if let Some(closing) = self.begin_close()? {
            let closed = self.sync_closing(&closing);
            self.end_close(closed)?;
        }
        Ok(())
    }

    /// Stages *data*, *indexes* and the contents of the small files, then their names.
    fn sync_closing(&self, closing: &Closing) -> Result<()> {
        let home = &self.home;
        let last = self.segments.len() - 1;
        let to_sync = |at: &usize| self.has_unsynced_data(*at) || (*at == last && closing.shortened);
        for segment in (0..=last).filter(to_sync).map(|at| &self.segments[at]) {
            segment.file(home)?.sync_data().context_at("syncing", || segment.path(home))?;
        }
        for segment in self.segments.iter().filter(|segment| !segment.indexes_synced) {
            for (path, file) in segment.index_files(home)? {
                file.sync_data().context("syncing", &path)?;
            }
        }
        for small in &closing.small {
            small.sync(&*home.disk)?;
        }
        if let Some(path) = &closing.written {
            let synced = home.disk.open(path, OpenMode::Write).and_then(|file| file.sync_data());
            synced.context("syncing", path)?;
        }
        closing.rename(home)?;
        home.disk.sync_dir(&home.dir).context("syncing", &home.dir)?;
        let new = self.marks.parent != self.synced.parent;
        if new { home.disk.sync_dir(home.parent()).context("syncing", home.parent()) } else { Ok(()) }
    }

    /// Stages *finish*, *spare*, and *snapshot* and *epochs* beside the old files. `None` when the log needs nothing and is closed.
    pub(crate) fn begin_close(&mut self) -> Result<Option<Closing>> {
        self.writable()?;
        self.closed = self.closed_cleanly;
        if self.closed {
            return Ok(None);
        }
        self.supersede_flushes();
        let home = &self.home;
        let active = self.segments.last_mut().expect("a log has a segment");
        let shortened = !active.indexes_synced && active.finish(home)?;
        self.segments.iter_mut().try_for_each(|segment| segment.give_back_spare(home))?;
        let mut closing = Closing { small: Vec::new(), written: None, strays: Vec::new(), shortened };
        if self.epochs.version() != self.synced.epochs && !self.has_only_led() {
            let text = self.epochs.format();
            closing.small.push(Replacement::write(&*home.disk, &home.dir.join(EPOCHS), text.as_bytes())?);
        }
        self.plan_snapshots(&mut closing)?;
        Ok(Some(closing))
    }

    /// The snapshots at the segments' base offsets stay, others are of no use. A log that never held a record needs none at its end.
    fn plan_snapshots(&self, closing: &mut Closing) -> Result<()> {
        let (disk, dir) = (&self.home.disk, &self.home.dir);
        let name = segment_name(self.log_end_offset, SNAPSHOT);
        let mut needed = self.size() > 0 || !self.producers.is_empty();
        needed &= self.synced_snapshot != Some(self.log_end_offset);
        for entry in disk.list(dir).context("listing", dir)? {
            let Some(offset) = segment_offset(&entry.name, SNAPSHOT) else { continue };
            if offset != self.log_end_offset && self.segments.iter().all(|segment| segment.base_offset != offset) {
                closing.strays.push(dir.join(&entry.name));
            }
        }
        if needed && self.written_snapshot == Some(self.log_end_offset) {
            closing.written = Some(dir.join(name));
        } else if needed {
            closing.small.push(Replacement::write(
                &**disk,
                &dir.join(name),
                &snapshot::format(self.producers.states()),
            )?);
        }
        Ok(())
    }

    /// The files are durable, or a stage of that has failed.
    pub(crate) fn end_close(&mut self, closed: Result<()>) -> Result<()> {
        if closed.is_err() {
            self.poison();
            return closed;
        }
        self.flushed_to = self.log_end_offset;
        self.synced_snapshot = Some(self.log_end_offset);
        self.synced = Marks { epochs: self.epochs.version(), ..self.marks };
        for segment in &mut self.segments {
            segment.indexes_synced = true;
        }
        self.closed = true;
        Ok(())
    }

    /// For [`LogDirectory::close_logs`](crate::LogDirectory::close_logs), between its two syncs.
    pub(crate) fn rename_closing(&self, closing: &Closing) -> Result<()> {
        closing.rename(&self.home)
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
        let name = self.dir_name()?;
        self.rename_to(&PartitionDirName::format(&name.topic, name.partition, DirKind::Delete, unique))?;
        self.closed = true;
        Ok(())
    }

    /// The directory's name.
    pub(super) fn dir_name(&self) -> Result<PartitionDirName> {
        let name = self.home.dir.file_name().and_then(|name| name.to_str()).and_then(PartitionDirName::parse);
        name.ok_or_else(|| bad(&self.home.dir, "is no directory of a partition"))
    }

    /// Gives the directory another name beside its old one.
    pub(super) fn rename_to(&mut self, name: &str) -> Result<()> {
        let to = self.home.parent().join(name);
        self.supersede_flushes();
        self.home.disk.rename(&self.home.dir, &to).context("renaming to", &to)?;
        self.home.dir = to;
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
