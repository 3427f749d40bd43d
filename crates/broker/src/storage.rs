//! The broker's log directories: where partitions are put, opened, checkpointed and deleted. Which partitions there
//! are is the metadata's word.
//!
//! A checkpoint names partitions without their topic ids. So that no line of a deleted topic is taken for one of a later
//! topic of the same name, the lines go before the deletion is over.
//!
//! Order of a stop, so that a crash at any point is seen as one: every log is closed and synced, then the checkpoints
//! are written, then the clean marker, then the locks go.

mod checkpoints;
mod directory;
mod open;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use milena_io::{Clock, Disk};
use milena_log::{Checkpoint, DirKind, Log, LogDirectory, LogError, OpenParams, PartitionDirName};
use milena_protocol::Uuid;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::flusher::Flusher;
use crate::partition::{Partition, TopicIdentity};
use crate::replicas::Replicas;
use crate::settings::PartitionSettings;

use checkpoints::Checkpointed;
pub(crate) use directory::Failures;
pub use directory::{Directory, Fatal};
pub use open::{Found, Wanted};

/// All log directories.
pub struct Storage {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    flusher: Arc<Flusher>,
    directories: Vec<Arc<Directory>>,
    failures: Arc<Failures>,
    deletions: Mutex<Vec<Deletion>>,
    /// New partitions whose files' names and topic ids are not synced yet.
    created: Mutex<Vec<PathBuf>>,
    checkpointed: Mutex<Checkpointed>,
    /// Partitions that could not be made, by topic id.
    missing: Mutex<BTreeSet<(Uuid, i32)>>,
    /// Replicas and their directories, which the metadata may not know yet.
    placed: Mutex<Vec<(Uuid, i32, Uuid)>>,
}

/// What is deleted, and when it goes.
struct Deletion {
    what: Doomed,
    due_ms: i64,
}

/// What waits for its deletion under its last name.
enum Doomed {
    /// The directory of a deleted partition.
    Partition(PathBuf),
    /// A file of a removed segment.
    File(PathBuf),
}

impl Storage {
    /// Locks the directories, which have these ids; the metadata log is in `metadata_dir`. Nothing else in them changes.
    ///
    /// # Errors
    /// [`LogError::Locked`] when another process has one of them; then none is locked.
    pub fn lock(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        ids: &[(PathBuf, Uuid)],
        metadata_dir: &Path,
    ) -> Result<Self, LogError> {
        let mut storage = Self {
            disk,
            flusher: Arc::new(Flusher::new(Arc::clone(&clock))),
            clock,
            directories: Vec::new(),
            failures: Failures::new(metadata_dir),
            deletions: Mutex::default(),
            created: Mutex::default(),
            checkpointed: Mutex::default(),
            missing: Mutex::default(),
            placed: Mutex::default(),
        };
        for (index, (path, id)) in ids.iter().enumerate() {
            match LogDirectory::open(Arc::clone(&storage.disk), path) {
                Ok(files) => {
                    storage.directories.push(Arc::new(Directory::new(files, *id, index, &storage.failures)));
                }
                Err(error) => {
                    storage.unlock();
                    return Err(error);
                }
            }
        }
        Ok(storage)
    }

    /// Gives the directories back, for a start that fails before it has changed anything.
    pub fn unlock(self) {
        for directory in &self.directories {
            if let Err(error) = directory.files.unlock() {
                tracing::warn!(path = %directory.path().display(), %error, "a log directory can't be unlocked");
            }
        }
    }

    /// Takes the clean-shutdown markers: a crash from here on is seen as one.
    pub fn take_clean_markers(&self) {
        for directory in self.online() {
            let taken = directory.files.take_clean_marker().and_then(|marker| {
                directory.files.create_checkpoints(&Checkpoint::ALL)?;
                Ok(marker)
            });
            match taken {
                Ok(marker) => *directory.clean.lock() = marker,
                Err(error) => directory.fail(&error),
            }
        }
    }

    /// A partition's directory, if there is any.
    ///
    /// # Errors
    /// When a directory can't be read.
    pub fn any_partition(&self) -> Result<Option<PathBuf>, LogError> {
        for directory in self.online() {
            let partitions = directory.files.partitions()?;
            if let Some(found) = partitions.into_iter().find(|found| found.name.kind == DirKind::Current) {
                return Ok(Some(found.path));
            }
        }
        Ok(None)
    }

    /// The epoch with which the broker stopped in order; -1 when it did not, or directories say different things.
    pub fn previous_broker_epoch(&self) -> i64 {
        let mut epochs = self.directories.iter().map(|it| it.clean().map_or(-1, |marker| marker.broker_epoch));
        let first = epochs.next().unwrap_or(-1);
        if epochs.all(|epoch| epoch == first) { first } else { -1 }
    }

    /// Who flushes their partitions.
    pub fn flusher(&self) -> &Arc<Flusher> {
        &self.flusher
    }

    /// The directories, in the order of the configuration.
    pub fn directories(&self) -> &[Arc<Directory>] {
        &self.directories
    }

    /// Those that have not failed.
    pub fn online(&self) -> impl Iterator<Item = &Arc<Directory>> {
        self.directories.iter().filter(|directory| !directory.is_offline())
    }

    /// Whether a directory has failed whose partitions are still to be taken away.
    pub fn has_failed(&self) -> bool {
        self.failures.has_new()
    }

    /// The directories that have failed, if any did since the last call.
    pub fn take_failed(&self) -> Vec<Arc<Directory>> {
        if !self.failures.take() {
            return Vec::new();
        }
        self.directories.iter().filter(|directory| directory.is_offline()).cloned().collect()
    }

    /// Failed directories that the metadata does not know of yet must be told again. The broker ends when that goes on for longer than `patience`.
    pub fn failures_untold(&self, patience: Duration) {
        self.failures.untold(patience);
    }

    /// The metadata knows of all failed directories.
    pub fn failures_told(&self) {
        self.failures.told();
    }

    /// The metadata log's disk has failed.
    pub fn metadata_failed(&self) {
        self.failures.end(Fatal::Metadata { dir: self.failures.metadata_dir().to_owned() });
    }

    /// Takes note of replicas, by topic id and partition, that are in these directories, which the metadata may not know yet.
    pub fn note_placed(&self, placed: Vec<(Uuid, i32, Uuid)>) {
        self.placed.lock().extend(placed);
    }

    /// The replicas of [`note_placed`](Self::note_placed), which are then no longer noted.
    pub fn take_placed(&self) -> Vec<(Uuid, i32, Uuid)> {
        std::mem::take(&mut *self.placed.lock())
    }

    /// Whether the metadata may not know all of failed directories and placed replicas.
    pub fn has_untold(&self) -> bool {
        self.has_failed() || !self.placed.lock().is_empty()
    }

    /// Tells when and why the broker can't go on.
    pub fn fatal(&self) -> watch::Receiver<Option<Fatal>> {
        self.failures.fatal()
    }

    /// Makes a new partition in the directory that has the fewest, or where that one fails in the next.
    ///
    /// # Errors
    /// When its files can't be made.
    pub fn create(
        &self,
        topic: &Arc<TopicIdentity>,
        index: i32,
        leader_epoch: i32,
        settings: &Arc<PartitionSettings>,
    ) -> Result<Partition, LogError> {
        let mut directories: Vec<&Arc<Directory>> = self.online().collect();
        directories.sort_by_key(|directory| directory.partitions.load(Ordering::Relaxed));
        let mut failed = None;
        for directory in directories {
            match self.create_in(directory, topic, index, settings) {
                Ok(log) => {
                    directory.partitions.fetch_add(1, Ordering::Relaxed);
                    self.placed.lock().push((topic.id, index, directory.id));
                    let (topic, directory) = (Arc::clone(topic), Arc::clone(directory));
                    return Partition::lead(
                        topic,
                        index,
                        directory,
                        log,
                        leader_epoch,
                        Arc::clone(settings),
                        &self.flusher,
                    );
                }
                Err(error) => {
                    directory.note_error(&error);
                    failed = Some(error);
                    if !directory.is_offline() {
                        break;
                    }
                }
            }
        }
        Err(failed.unwrap_or_else(|| LogError::Offline { dir: self.directories[0].path().to_owned() }))
    }

    fn create_in(
        &self,
        directory: &Directory,
        topic: &TopicIdentity,
        index: i32,
        settings: &PartitionSettings,
    ) -> Result<Log, LogError> {
        let name = PartitionDirName::format(&topic.name, index, DirKind::Current, 0);
        let path = directory.path().join(name);
        if self.disk.metadata(&path).is_ok_and(|found| found.is_some()) {
            // An older topic's, that could not be moved away: its records are not this one's.
            self.set_aside(&topic.name, index, &path)?;
        }
        let log = self.create_log(topic, &path, settings).inspect_err(|_| {
            // What there is of it is empty; what can't be removed is set aside by the next attempt.
            let _ = self.disk.remove_dir_all(&path);
        })?;
        self.created.lock().push(path);
        Ok(log)
    }

    fn create_log(&self, topic: &TopicIdentity, path: &Path, settings: &PartitionSettings) -> Result<Log, LogError> {
        let params = OpenParams { clean: true, recovery_point: 0, log_start_offset: 0, now_ms: self.clock.now_ms() };
        let (log, _) = Log::open(Arc::clone(&self.disk), path, Arc::clone(&settings.log), params)?;
        milena_log::write_topic_id_unsynced(&*self.disk, path, &topic.id.to_string())?;
        Ok(log)
    }

    /// Takes note of a partition that the metadata has here and that could not be made.
    pub fn note_missing(&self, topic: Uuid, index: i32) {
        self.missing.lock().insert((topic, index));
    }

    /// The partitions that could not be made, which are then no longer noted.
    pub fn take_missing(&self) -> BTreeSet<(Uuid, i32)> {
        std::mem::take(&mut *self.missing.lock())
    }

    /// Whether there are partitions that could not be made.
    pub fn has_missing(&self) -> bool {
        !self.missing.lock().is_empty()
    }

    /// Moves a retired partition's directory out of the way; its files go after `file.delete.delay.ms`.
    pub fn delete_later(&self, partition: &Partition) {
        let mut log = partition.log();
        if self.created.lock().iter().any(|path| path == log.dir()) {
            // A power loss may take the rename back. Without its id the directory would be taken for a later topic's.
            self.sync_created();
        }
        if let Err(error) = log.rename_for_deletion(fastrand::u128(..)) {
            tracing::error!(%partition, %error, "a deleted partition's directory can't be moved away");
            partition.note_error(&error);
            return;
        }
        partition.directory().partitions.fetch_sub(1, Ordering::Relaxed);
        let due_ms = self.clock.now_ms().saturating_add(partition.settings().file_delete_delay_ms);
        self.deletions.lock().push(Deletion { what: Doomed::Partition(log.dir().to_owned()), due_ms });
    }

    /// Queues files of removed segments for their removal after `delay_ms` (`file.delete.delay.ms`).
    pub fn remove_later(&self, files: impl IntoIterator<Item = PathBuf>, delay_ms: i64) {
        let due_ms = self.clock.now_ms().saturating_add(delay_ms);
        let doomed = files.into_iter().map(|path| Deletion { what: Doomed::File(path), due_ms });
        self.deletions.lock().extend(doomed);
    }

    /// Makes the names and topic ids of new partitions last.
    pub fn sync_created(&self) {
        let created = std::mem::take(&mut *self.created.lock());
        if created.is_empty() {
            return;
        }
        for path in created {
            match milena_log::sync_topic_id(&*self.disk, &path) {
                Err(error) if !is_missing(&error) => self.sync_failed(&path, &error),
                // Synced, or deleted since.
                _ => {}
            }
        }
        for directory in self.online() {
            if let Err(source) = self.disk.sync_dir(directory.path()) {
                let path = directory.path().to_owned();
                self.sync_failed(directory.path(), &LogError::Io { operation: "syncing", path, source });
            }
        }
    }

    /// What a failed sync has lost no later one brings back: the next start must look for itself.
    fn sync_failed(&self, path: &Path, error: &LogError) {
        tracing::error!(path = %path.display(), %error, "a new partition can't be synced; the next start checks it");
        for directory in self.directories.iter().filter(|directory| path.starts_with(directory.path())) {
            directory.unsynced.store(true, Ordering::Relaxed);
            directory.note_error(error);
        }
    }

    /// Time since some fixed moment, which never goes backwards.
    pub fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    /// The wall clock, ms since 1970.
    pub fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// Removes the files of deleted partitions and of removed segments whose time has come.
    pub fn delete_due(&self) {
        let now_ms = self.clock.now_ms();
        let due: Vec<Deletion> = self.deletions.lock().extract_if(.., |deletion| deletion.due_ms <= now_ms).collect();
        for deletion in due {
            let (removed, path) = match deletion.what {
                Doomed::Partition(path) => (self.disk.remove_dir_all(&path), path),
                Doomed::File(path) => (self.disk.remove_file(&path), path),
            };
            match removed {
                // A segment's file has gone with its partition.
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::error!(path = %path.display(), %error, "a deleted file can't be removed");
                }
                _ => {}
            }
        }
    }

    /// Closes every partition and leaves the directories as a clean stop does. A directory in which anything failed
    /// gets no clean marker.
    ///
    /// # Errors
    /// The first failure.
    pub fn close(self, replicas: &Replicas, broker_epoch: i64) -> Result<(), LogError> {
        let topics = replicas.topics();
        let close = |directory: &Arc<Directory>| {
            let here = topics.partitions().filter(|partition| Arc::ptr_eq(&partition.directory(), directory));
            let closed = directory.files.close_logs(here.map(|partition| partition.log()));
            closed.inspect_err(|error| {
                tracing::error!(path = %directory.path().display(), %error, "can't be closed");
                directory.note_error(error);
            })
        };
        let online: Vec<_> = self.online().cloned().collect();
        let closed: Vec<Result<(), LogError>> = online.iter().map(close).collect();
        self.sync_created();
        // That of the cleaner is written whenever it changes.
        for which in Checkpoint::ALL.into_iter().filter(|which| *which != Checkpoint::Cleaner) {
            self.checkpoint(replicas, which)?;
        }
        for (directory, closed) in online.into_iter().zip(closed) {
            closed?;
            if !directory.unsynced.load(Ordering::Relaxed) && !directory.is_offline() {
                directory.files.write_clean_marker(broker_epoch)?;
            }
            directory.files.unlock()?;
        }
        Ok(())
    }
}

/// Whether a file or directory is not there.
fn is_missing(error: &LogError) -> bool {
    matches!(error, LogError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests;
