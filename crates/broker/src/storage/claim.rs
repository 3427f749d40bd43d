//! The first steps of a start: the directories are locked, looked through, and their clean-shutdown markers taken. Nothing in them is changed before
//! all of that has succeeded which may refuse the start.

use std::collections::HashMap;

use super::*;
use crate::flusher::Flusher;
use crate::mover::Mover;

/// The metadata log's own directory.
const METADATA_PARTITION: &str = "__cluster_metadata-0";

impl Storage {
    /// Locks the directories, which have these ids, or can't be used; the metadata log is in `metadata_dir`, one of them or not. Nothing else in
    /// them changes.
    ///
    /// # Errors
    /// [`LogError::Locked`] when another process has one of them; then none is locked.
    pub fn lock(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        directories: Vec<(PathBuf, Result<Uuid, LogError>)>,
        metadata_dir: &Path,
    ) -> Result<Self, LogError> {
        let mut storage = Self {
            flusher: Arc::new(Flusher::new(Arc::clone(&clock))),
            mover: Arc::new(Mover::new(Arc::clone(&clock))),
            disk,
            clock,
            directories: Vec::new(),
            failures: Failures::new(metadata_dir),
            deletions: Mutex::default(),
            created: Mutex::default(),
            checkpointed: Mutex::default(),
            missing: Mutex::default(),
            placed: Mutex::default(),
            cordons_changed: AtomicBool::new(false),
            metadata: None,
        };
        let locked = storage.lock_all(directories).and_then(|()| {
            if storage.directories.iter().all(|directory| directory.path() != metadata_dir) {
                storage.metadata = Some(LogDirectory::open(Arc::clone(&storage.disk), metadata_dir)?);
            }
            Ok(())
        });
        if let Err(error) = locked {
            storage.unlock();
            return Err(error);
        }
        Ok(storage)
    }

    fn lock_all(&mut self, directories: Vec<(PathBuf, Result<Uuid, LogError>)>) -> Result<(), LogError> {
        let mut failed = Vec::new();
        for (index, (path, id)) in directories.into_iter().enumerate() {
            let opened = id.and_then(|id| Ok((LogDirectory::open(Arc::clone(&self.disk), &path)?, id)));
            let (files, id) = match opened {
                Ok(opened) => opened,
                Err(error @ LogError::Locked { .. }) => return Err(error),
                Err(error) => {
                    failed.push((index, error));
                    (LogDirectory::unlocked(Arc::clone(&self.disk), &path), Uuid::ZERO)
                }
            };
            self.directories.push(Arc::new(Directory::new(files, id, index, &self.failures)));
        }
        // All must be known first: whether any is left is asked with each.
        failed.into_iter().for_each(|(index, error)| self.directories[index].fail(&error));
        Ok(())
    }

    /// Gives the directories back, for a start that fails before it has changed anything.
    pub fn unlock(self) {
        for files in self.online().map(|directory| &directory.files).chain(&self.metadata) {
            if let Err(error) = files.unlock() {
                tracing::warn!(path = %files.path().display(), %error, "a log directory can't be unlocked");
            }
        }
    }

    /// Looks which partitions the directories hold. One that can't be read goes offline. Tells one of the partitions, if there is any.
    ///
    /// # Errors
    /// What no start may go on with: [`LogError::Duplicate`] for a partition that is in two directories, [`LogError::BadFile`] for a directory that
    /// is none of a partition, and for a metadata log where none belongs.
    pub fn look(&self) -> Result<Option<PathBuf>, LogError> {
        let mut seen: HashMap<(String, i32), PathBuf> = HashMap::new();
        for directory in self.online() {
            let strange = directory.path().join(METADATA_PARTITION);
            if directory.path() != self.failures.metadata_dir()
                && self.disk.metadata(&strange).is_ok_and(|found| found.is_some())
            {
                let reason = format!("the metadata log belongs into {}", self.failures.metadata_dir().display());
                return Err(LogError::BadFile { path: strange, reason });
            }
            let partitions = match directory.files.partitions() {
                Ok(partitions) => partitions,
                Err(error @ LogError::BadFile { .. }) => return Err(error),
                Err(error) => {
                    directory.fail(&error);
                    continue;
                }
            };
            for found in partitions.iter().filter(|found| found.name.kind == DirKind::Current) {
                let name = (found.name.topic.clone(), found.name.partition);
                if let Some(first) = seen.insert(name, found.path.clone()) {
                    return Err(LogError::Duplicate { first, second: found.path.clone() });
                }
            }
            *directory.found.lock() = partitions;
        }
        Ok(seen.into_values().min())
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

    /// The epoch with which the broker stopped in order; -1 when it did not, or directories say different things or nothing.
    pub fn previous_broker_epoch(&self) -> i64 {
        let mut epochs = self.directories.iter().map(|it| it.clean().map_or(-1, |marker| marker.broker_epoch));
        let first = epochs.next().unwrap_or(-1);
        if epochs.all(|epoch| epoch == first) { first } else { -1 }
    }
}
