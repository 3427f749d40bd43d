//! Which directory a new partition goes to, and what the metadata must be told of that.

use super::*;

/// Stands for all log directories in `cordoned.log.dirs`.
pub const EVERY_DIRECTORY: &str = "*";

/// A partition to be made.
pub struct New<'a> {
    /// Its topic.
    pub topic: &'a Arc<TopicIdentity>,
    /// Its number.
    pub index: i32,
    /// Epoch of its leadership.
    pub leader_epoch: i32,
    /// Its settings.
    pub settings: &'a Arc<PartitionSettings>,
    /// Id of the directory that the metadata has it in, which may be none.
    pub directory: Uuid,
}

impl Storage {
    /// Makes a new partition in the directory that the metadata names, or else in that which has the fewest; where that one fails, in the next.
    ///
    /// # Errors
    /// When its files can't be made.
    pub fn create(&self, new: &New<'_>) -> Result<Partition, LogError> {
        let mut failed = None;
        for directory in self.candidates(new.directory) {
            match self.create_in(directory, new) {
                Ok(log) => {
                    let New { topic, index, leader_epoch, settings, .. } = *new;
                    self.placed(topic.id, index, directory, false);
                    directory.partitions.fetch_add(1, Ordering::Relaxed);
                    let (topic, directory) = (Arc::clone(topic), Arc::clone(directory));
                    let settings = Arc::clone(settings);
                    return Partition::lead(topic, index, directory, log, leader_epoch, settings, &self.flusher);
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

    /// The directories to try, in order. Cordoned ones come last: the controller gives a broker no replica that has no other.
    fn candidates(&self, named: Uuid) -> Vec<&Arc<Directory>> {
        let mut directories: Vec<&Arc<Directory>> = self.online().collect();
        directories.sort_by_key(|directory| {
            let partitions = directory.partitions.load(Ordering::Relaxed);
            (directory.id != named, directory.is_cordoned(), partitions)
        });
        directories
    }

    fn create_in(&self, directory: &Directory, new: &New<'_>) -> Result<Log, LogError> {
        let New { topic, index, settings, .. } = *new;
        let name = PartitionDirName::format(&topic.name, index, DirKind::Current, 0);
        let path = directory.path().join(name);
        if self.disk.metadata(&path).is_ok_and(|found| found.is_some()) {
            // An older topic's, that could not be moved away: its records are not this one's.
            self.set_aside(&topic.name, index, &path)?;
        }
        let log = self.create_log(topic, &path, settings, 0).inspect_err(|_| {
            // What there is of it is empty; what can't be removed is set aside by the next attempt.
            let _ = self.disk.remove_dir_all(&path);
        })?;
        self.created.lock().push(path);
        Ok(log)
    }

    /// Makes an empty log that begins at `log_start_offset`.
    pub(super) fn create_log(
        &self,
        topic: &TopicIdentity,
        path: &Path,
        settings: &PartitionSettings,
        log_start_offset: i64,
    ) -> Result<Log, LogError> {
        let params =
            OpenParams { clean: true, recovery_point: 0, log_start_offset, cleaned_to: 0, now_ms: self.clock.now_ms() };
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

    /// Takes note that a replica is in a directory; whether it was found there, or made.
    pub(super) fn placed(&self, topic_id: Uuid, partition_id: i32, directory: &Directory, found: bool) {
        let assignment = Assignment { topic_id, partition_id, directory: directory.id, may_lead: found };
        self.placed.lock().push(assignment);
    }

    /// Takes note of replicas whose directories the metadata may not know yet.
    pub fn note_placed(&self, placed: Vec<Assignment>) {
        self.placed.lock().extend(placed);
    }

    /// The replicas whose directories the metadata may not know yet, which are then no longer noted.
    pub fn take_placed(&self) -> Vec<Assignment> {
        std::mem::take(&mut *self.placed.lock())
    }

    /// Follows `cordoned.log.dirs`: these directories get no new partitions.
    pub fn cordon(&self, names: &[String]) {
        for directory in &self.directories {
            let cordoned = names.iter().any(|name| name == EVERY_DIRECTORY || Path::new(name) == directory.path());
            if directory.cordoned.swap(cordoned, Ordering::Relaxed) != cordoned {
                self.cordons_changed.store(true, Ordering::Release);
            }
        }
    }

    /// The ids of the cordoned directories, which the metadata is going to be told.
    pub fn take_cordoned(&self) -> Vec<Uuid> {
        self.cordons_changed.store(false, Ordering::Release);
        self.online().filter(|directory| directory.is_cordoned()).map(|directory| directory.id).collect()
    }

    /// The metadata could not be told of the cordoned directories.
    pub fn cordons_untold(&self) {
        self.cordons_changed.store(true, Ordering::Release);
    }
}
