//! The broker's log directories: where partitions are put, opened, checkpointed and deleted. Which partitions there
//! are is the metadata's word.
//!
//! A checkpoint names partitions without their topic ids. So that no line of a deleted topic is taken for one of a later
//! topic of the same name, the lines go before the deletion is over.
//!
//! Order of a stop, so that a crash at any point is seen as one: every log is closed and synced, then the checkpoints
//! are written, then the clean marker, then the locks go.

mod checkpoints;
mod claim;
mod directory;
mod moving;
mod open;
mod placing;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use milena_io::{Clock, Disk};
use milena_log::{Checkpoint, DirKind, Log, LogDirectory, LogError, OpenParams, PartitionDirName};
use milena_protocol::{ErrorCode, Uuid};
use milena_quorum::Assignment;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::flusher::Flusher;
use crate::mover::Mover;
use crate::partition::{Partition, TopicIdentity};
use crate::replicas::Replicas;
use crate::settings::PartitionSettings;

use checkpoints::Checkpointed;
pub(crate) use directory::Failures;
pub use directory::{Directory, Fatal};
pub use moving::Move;
pub use open::{OpenReport, Opened, Wanted};
pub use placing::{EVERY_DIRECTORY, New};

/// All log directories.
pub struct Storage {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    flusher: Arc<Flusher>,
    mover: Arc<Mover>,
    directories: Vec<Arc<Directory>>,
    failures: Arc<Failures>,
    deletions: Mutex<Vec<Deletion>>,
    /// New partitions whose files' names and topic ids are not synced yet.
    created: Mutex<Vec<PathBuf>>,
    checkpointed: Mutex<Checkpointed>,
    /// Partitions that could not be made, by topic id.
    missing: Mutex<BTreeSet<(Uuid, i32)>>,
    /// Replicas and their directories, which the metadata may not know yet.
    placed: Mutex<Vec<Assignment>>,
    /// Directories were cordoned or freed, which the metadata does not know yet.
    cordons_changed: AtomicBool,
    /// Lock of the metadata log's directory, where that is none of the others.
    metadata: Option<LogDirectory>,
}

/// What is deleted, and when it goes.
struct Deletion {
    what: Deleted,
    due_ms: i64,
}

/// What waits for its deletion under its last name.
enum Deleted {
    /// The directory of a deleted partition.
    Partition(PathBuf),
    /// A file of a removed segment.
    File(PathBuf),
}

impl Storage {
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

    /// Whether the metadata may not know all of failed directories, placed replicas, and those whose move is to end.
    pub fn has_untold(&self) -> bool {
        self.has_failed()
            || !self.placed.lock().is_empty()
            || self.cordons_changed.load(Ordering::Acquire)
            || self.mover.has_caught_up()
    }

    /// Where failures are told that the node can't go on with.
    pub(crate) fn failures(&self) -> &Arc<Failures> {
        &self.failures
    }

    /// # Errors
    /// Why the broker can't go on.
    pub fn check(&self) -> Result<(), Fatal> {
        self.fatal().borrow().clone().map_or(Ok(()), Err)
    }

    /// Tells when and why the broker can't go on.
    pub fn fatal(&self) -> watch::Receiver<Option<Fatal>> {
        self.failures.fatal()
    }

    /// Moves a retired partition's directory out of the way; its files go after `file.delete.delay.ms`.
    pub fn delete_later(&self, partition: &Partition) {
        // What fails is found at the next start, which deletes it: its topic is gone.
        let _ = self.drop_future(partition);
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
        self.queue_deletions([Deleted::Partition(log.dir().to_owned())], partition.settings().file_delete_delay_ms);
    }

    /// Queues what is removed after `delay_ms` (`file.delete.delay.ms`).
    fn queue_deletions(&self, what: impl IntoIterator<Item = Deleted>, delay_ms: i64) {
        let due_ms = self.clock.now_ms().saturating_add(delay_ms);
        self.deletions.lock().extend(what.into_iter().map(|what| Deletion { what, due_ms }));
    }

    /// Queues files of removed segments for their removal after `delay_ms` (`file.delete.delay.ms`).
    pub fn remove_later(&self, files: impl IntoIterator<Item = PathBuf>, delay_ms: i64) {
        self.queue_deletions(files.into_iter().map(Deleted::File), delay_ms);
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
        if let Some(directory) = self.directory_of(path) {
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

    /// The directory that holds a path.
    fn directory_of(&self, path: &Path) -> Option<&Arc<Directory>> {
        let holding = self.directories.iter().filter(|directory| path.starts_with(directory.path()));
        holding.max_by_key(|directory| directory.path().as_os_str().len())
    }

    /// Removes the files of deleted partitions and of removed segments whose time has come.
    pub fn delete_due(&self) {
        let now_ms = self.clock.now_ms();
        let due: Vec<Deletion> = self.deletions.lock().extract_if(.., |deletion| deletion.due_ms <= now_ms).collect();
        for deletion in due {
            let (Deleted::Partition(path) | Deleted::File(path)) = &deletion.what;
            let Some(directory) = self.directory_of(path).filter(|directory| !directory.is_offline()) else { continue };
            let removed = match &deletion.what {
                Deleted::Partition(path) => self.disk.remove_dir_all(path),
                Deleted::File(path) => self.disk.remove_file(path),
            };
            match removed {
                // A segment's file has gone with its partition.
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    let error = LogError::Io { operation: "removing", path: path.clone(), source };
                    tracing::error!(%error, "a deleted file can't be removed");
                    directory.note_error(&error);
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
        let futures: Vec<_> = topics.partitions().filter_map(|partition| partition.future()).collect();
        let close = |directory: &Arc<Directory>| {
            let here = topics.partitions().filter(|partition| Arc::ptr_eq(&partition.directory(), directory));
            let coming = futures.iter().filter(|future| Arc::ptr_eq(&future.directory, directory));
            let logs = here.map(|partition| partition.log()).chain(coming.map(|future| future.log()));
            let closed = directory.files.close_logs(logs);
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
        self.metadata.map_or(Ok(()), |metadata| metadata.unlock())
    }
}

/// Whether a file or directory is not there.
fn is_missing(error: &LogError) -> bool {
    matches!(error, LogError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests;
