//! The broker's log directories: where partitions are put, opened, checkpointed and deleted. Which partitions there
//! are is the metadata's word.
//!
//! A checkpoint names partitions without their topic ids. So that no line of a deleted topic is taken for one of a later
//! topic of the same name, the lines go before the deletion is over.
//!
//! Order of a stop, so that a crash at any point is seen as one: every log is closed and synced, then the checkpoints
//! are written, then the clean marker, then the locks go.

mod checkpoints;
mod open;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use milena_io::{Clock, Disk};
use milena_log::{Checkpoint, CleanMarker, DirKind, Log, LogDirectory, LogError, OpenParams, PartitionDirName};
use milena_protocol::Uuid;
use parking_lot::Mutex;

use crate::flusher::Flusher;
use crate::partition::{Partition, TopicIdentity};
use crate::replicas::Replicas;
use crate::settings::PartitionSettings;

use checkpoints::Checkpointed;
pub use open::{Found, Wanted};

/// One log directory.
pub struct Directory {
    files: LogDirectory,
    /// What the clean-shutdown marker said; `None` when the last run did not stop in order.
    clean: Option<CleanMarker>,
    /// Its id in the metadata.
    pub id: Uuid,
    partitions: AtomicUsize,
    /// The names or topic ids of its partitions could not be synced in this run: its stop is not a clean one.
    unsynced: AtomicBool,
}

impl Directory {
    /// Where it is.
    pub fn path(&self) -> &Path {
        self.files.path()
    }
}

/// All log directories.
pub struct Storage {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    flusher: Arc<Flusher>,
    directories: Vec<Directory>,
    deletions: Mutex<Vec<Deletion>>,
    /// New partitions whose files' names and topic ids are not synced yet.
    created: Mutex<Vec<PathBuf>>,
    checkpointed: Mutex<Checkpointed>,
    /// Partitions that could not be made, by topic id.
    missing: Mutex<BTreeSet<(Uuid, i32)>>,
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
    /// Locks the directories, which have these ids. Nothing else in them changes.
    ///
    /// # Errors
    /// [`LogError::Locked`] when another process has one of them; then none is locked.
    pub fn lock(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>, ids: &[(PathBuf, Uuid)]) -> Result<Self, LogError> {
        let mut storage = Self {
            disk,
            flusher: Arc::new(Flusher::new(Arc::clone(&clock))),
            clock,
            directories: Vec::new(),
            deletions: Mutex::default(),
            created: Mutex::default(),
            checkpointed: Mutex::default(),
            missing: Mutex::default(),
        };
        for (path, id) in ids {
            match LogDirectory::open(Arc::clone(&storage.disk), path) {
                Ok(files) => {
                    let partitions = AtomicUsize::new(0);
                    let unsynced = AtomicBool::new(false);
                    storage.directories.push(Directory { files, clean: None, id: *id, partitions, unsynced });
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
        for directory in self.directories {
            let path = directory.path().to_owned();
            if let Err(error) = directory.files.unlock() {
                tracing::warn!(path = %path.display(), %error, "a log directory can't be unlocked");
            }
        }
    }

    /// Takes the clean-shutdown markers: a crash from here on is seen as one.
    ///
    /// # Errors
    /// When a marker or a checkpoint can't be read or written.
    pub fn take_clean_markers(&mut self) -> Result<(), LogError> {
        for directory in &mut self.directories {
            directory.clean = directory.files.take_clean_marker()?;
            directory.files.create_checkpoints(&Checkpoint::ALL)?;
        }
        Ok(())
    }

    /// A partition's directory, if there is any.
    ///
    /// # Errors
    /// When a directory can't be read.
    pub fn any_partition(&self) -> Result<Option<PathBuf>, LogError> {
        for directory in &self.directories {
            let partitions = directory.files.partitions()?;
            if let Some(found) = partitions.into_iter().find(|found| found.name.kind == DirKind::Current) {
                return Ok(Some(found.path));
            }
        }
        Ok(None)
    }

    /// The epoch with which the broker stopped in order; -1 when it did not, or directories say different things.
    pub fn previous_broker_epoch(&self) -> i64 {
        let mut epochs = self.directories.iter().map(|it| it.clean.map_or(-1, |marker| marker.broker_epoch));
        let first = epochs.next().unwrap_or(-1);
        if epochs.all(|epoch| epoch == first) { first } else { -1 }
    }

    /// Who flushes their partitions.
    pub fn flusher(&self) -> &Arc<Flusher> {
        &self.flusher
    }

    /// The directories, in the order of the configuration.
    pub fn directories(&self) -> &[Directory] {
        &self.directories
    }

    /// Makes a new partition in the directory that has the fewest.
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
        let emptiest = |&at: &usize| self.directories[at].partitions.load(Ordering::Relaxed);
        let at = (0..self.directories.len()).min_by_key(emptiest).unwrap_or(0);
        let name = PartitionDirName::format(&topic.name, index, DirKind::Current, 0);
        let path = self.directories[at].path().join(name);
        if self.disk.metadata(&path).is_ok_and(|found| found.is_some()) {
            // An older topic's, that could not be moved away: its records are not this one's.
            self.set_aside(&topic.name, index, &path)?;
        }
        let log = self.create_log(topic, &path, settings).inspect_err(|_| {
            // What there is of it is empty; what can't be removed is set aside by the next attempt.
            let _ = self.disk.remove_dir_all(&path);
        })?;
        self.created.lock().push(path);
        self.directories[at].partitions.fetch_add(1, Ordering::Relaxed);
        Partition::lead(Arc::clone(topic), index, at, log, leader_epoch, Arc::clone(settings), &self.flusher)
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
        if let Err(error) = log.rename_for_deletion(fastrand::u128(..)) {
            tracing::error!(%partition, %error, "a deleted partition's directory can't be moved away");
            return;
        }
        self.directories[partition.directory].partitions.fetch_sub(1, Ordering::Relaxed);
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
        for directory in &self.directories {
            if let Err(error) = self.disk.sync_dir(directory.path()) {
                self.sync_failed(directory.path(), &error);
            }
        }
    }

    /// What a failed sync has lost no later one brings back: the next start must look for itself.
    fn sync_failed(&self, path: &Path, error: &dyn fmt::Display) {
        tracing::error!(path = %path.display(), %error, "a new partition can't be synced; the next start checks it");
        for directory in self.directories.iter().filter(|directory| path.starts_with(directory.path())) {
            directory.unsynced.store(true, Ordering::Relaxed);
        }
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
        let close = |(at, directory): (usize, &Directory)| {
            let logs =
                topics.partitions().filter(|partition| partition.directory == at).map(|partition| partition.log());
            let closed = directory.files.close_logs(logs);
            closed.inspect_err(|error| tracing::error!(path = %directory.path().display(), %error, "can't be closed"))
        };
        let closed: Vec<Result<(), LogError>> = self.directories.iter().enumerate().map(close).collect();
        self.sync_created();
        for which in checkpoints::WRITTEN {
            self.checkpoint(replicas, which)?;
        }
        for (directory, closed) in self.directories.into_iter().zip(closed) {
            closed?;
            if !directory.unsynced.load(Ordering::Relaxed) {
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
