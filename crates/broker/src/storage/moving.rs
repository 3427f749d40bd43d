//! Moves of replicas between log directories (AlterReplicaLogDirs): where future replicas are made, found again after a start, dropped, and put in
//! the logs' places.
//!
//! The metadata hears of the new directory before a future replica takes over. So, after a crash: a partition's directory without a suffix is the
//! truth, and a move goes on beside it; if there is none, the future replica in the directory that the metadata names is complete.

use super::open::Place;
use super::*;
use crate::partition::FutureReplica;

/// A replica and where it is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Name of the topic.
    pub topic: Arc<str>,
    /// The partition.
    pub index: i32,
    /// Absolute path of the log directory.
    pub directory: Arc<str>,
}

impl Storage {
    /// Who copies.
    pub fn mover(&self) -> &Arc<Mover> {
        &self.mover
    }

    /// Begins moves, or ends them where a replica is to stay. What Kafka answers for each, in their order.
    pub fn alter_directories(&self, replicas: &Replicas, moves: &[Move]) -> Vec<ErrorCode> {
        let mut prepared = false;
        let mut alter = |wanted| self.alter_directory(replicas, wanted, &mut prepared).err().unwrap_or(ErrorCode::NONE);
        moves.iter().map(&mut alter).collect()
    }

    fn alter_directory(&self, replicas: &Replicas, wanted: &Move, prepared: &mut bool) -> Result<(), ErrorCode> {
        if !PartitionDirName::fits(&wanted.topic, wanted.index, DirKind::Future) {
            return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
        }
        let named = |directory: &&Arc<Directory>| directory.absolute_path().as_os_str() == &*wanted.directory;
        let directory = self.directories.iter().find(named).ok_or(ErrorCode::LOG_DIR_NOT_FOUND)?;
        if directory.is_offline() {
            return Err(ErrorCode::KAFKA_STORAGE_ERROR);
        }
        if directory.is_cordoned() {
            return Err(ErrorCode::INVALID_REPLICA_ASSIGNMENT);
        }
        let topics = replicas.topics();
        let topic = topics.by_name(&wanted.topic).ok_or(ErrorCode::REPLICA_NOT_AVAILABLE)?;
        let partition = topic.served(wanted.index).map_err(|error| match error {
            ErrorCode::KAFKA_STORAGE_ERROR => error,
            _ => ErrorCode::REPLICA_NOT_AVAILABLE,
        })?;
        if partition.future().is_some_and(|future| Arc::ptr_eq(&future.directory, directory)) {
            return Ok(());
        }
        self.drop_future(partition).map_err(|_| ErrorCode::KAFKA_STORAGE_ERROR)?;
        if Arc::ptr_eq(&partition.directory(), directory) {
            return Ok(());
        }
        if self.online().count() < self.directories.len() {
            // A future replica of it may be in the one that has failed.
            return Err(ErrorCode::KAFKA_STORAGE_ERROR);
        }
        if !*prepared {
            // Lines of an earlier log of a partition in its new directory would be taken for the future replica's.
            let written = Checkpoint::ALL.into_iter().try_for_each(|which| self.checkpoint(replicas, which));
            written.map_err(|_| ErrorCode::KAFKA_STORAGE_ERROR)?;
            *prepared = true;
        }
        self.create_future(partition, directory).map_err(|_| ErrorCode::KAFKA_STORAGE_ERROR)?;
        self.mover.queue(Arc::clone(partition));
        Ok(())
    }

    fn create_future(&self, partition: &Partition, directory: &Arc<Directory>) -> Result<(), LogError> {
        let name =
            PartitionDirName::format(&partition.topic.name, partition.index, DirKind::Future, fastrand::u128(..));
        let path = directory.path().join(name);
        let log = self.create_log(&partition.topic, &path, &partition.settings(), partition.log_start_offset());
        let log = log.inspect_err(|error| {
            tracing::error!(%partition, %error, "a future replica can't be made");
            directory.note_error(error);
            let _ = self.disk.remove_dir_all(&path);
        })?;
        tracing::info!(%partition, from = %partition.directory().path().display(), to = %directory.path().display(), "a move between log directories begins");
        directory.partitions.fetch_add(1, Ordering::Relaxed);
        partition.set_future(FutureReplica::new(Arc::clone(directory), log));
        Ok(())
    }

    /// Ends a move. What was copied is deleted.
    ///
    /// # Errors
    /// When the next start might go on with it.
    pub fn drop_future(&self, partition: &Partition) -> Result<(), LogError> {
        let Some(future) = partition.take_future().filter(|future| !future.directory.is_offline()) else {
            return Ok(());
        };
        let directory = &future.directory;
        let mut log = future.log();
        let dropped = log.rename_for_deletion(fastrand::u128(..)).and_then(|()| {
            let synced = self.disk.sync_dir(directory.path());
            synced.map_err(|source| LogError::Io { operation: "syncing", path: directory.path().to_owned(), source })
        });
        dropped.inspect_err(|error| {
            tracing::error!(%partition, %error, "a future replica can't be dropped");
            directory.note_error(error);
        })?;
        directory.partitions.fetch_sub(1, Ordering::Relaxed);
        self.delete_soon(log.dir().to_owned());
        Ok(())
    }

    /// What the start finds of a partition, and the future replicas of its name: the log to open and the future replica to go on with.
    ///
    /// Without a log, the future replica in the directory that the metadata names is complete and takes over, if all directories are there. What is
    /// of no use is deleted, or set aside if it may be the only copy.
    pub(super) fn settle_move(
        &self,
        wanted: &Wanted,
        place: Option<Place>,
        futures: Vec<Place>,
    ) -> Result<(Option<Place>, Option<Place>), LogError> {
        let topic = wanted.topic.id.to_string();
        let mut own = Vec::new();
        for future in futures {
            let id = milena_log::read_topic_id(&*self.disk, &future.path);
            match self.pass_failure(future.directory, id)? {
                Some(Some(id)) if id == topic => own.push(future),
                Some(_) => self.delete_soon(future.path),
                None => {}
            }
        }
        if place.is_some() {
            let future = own.pop();
            own.into_iter().for_each(|older| self.delete_soon(older.path));
            return Ok((place, future));
        }
        if self.online().count() < self.directories.len() {
            return Ok((None, None));
        }
        let named = |future: &Place| {
            wanted.directory.is_reserved() || self.directories[future.directory].id == wanted.directory
        };
        let complete = own.iter().position(named).map(|at| own.swap_remove(at));
        for other in own {
            let aside = self.set_aside(&wanted.topic.name, wanted.index, &other.path);
            self.pass_failure(other.directory, aside)?;
        }
        let Some(mut complete) = complete else { return Ok((None, None)) };
        let name = PartitionDirName::format(&wanted.topic.name, wanted.index, DirKind::Current, 0);
        let to = complete.path.with_file_name(name);
        tracing::info!(from = %complete.path.display(), to = %to.display(), "an interrupted move is completed");
        let renamed = self.disk.rename(&complete.path, &to);
        let renamed = renamed.map_err(|source| LogError::Io { operation: "renaming to", path: to.clone(), source });
        complete.path = to;
        Ok((self.pass_failure(complete.directory, renamed)?.map(|()| complete), None))
    }

    /// Goes on with a move that a stop or a crash has interrupted. What was copied and can't be used is deleted.
    pub(super) fn resume_move(&self, partition: &Partition, place: &Place) {
        let directory = &self.directories[place.directory];
        let settings = partition.settings();
        let opened = Log::open(Arc::clone(&self.disk), &place.path, Arc::clone(&settings.log), place.params);
        let resumed = opened.and_then(|(log, _)| {
            let future = FutureReplica::new(Arc::clone(directory), log);
            future.log().agree_with(&partition.log())?;
            Ok(future)
        });
        match resumed {
            Ok(future) => {
                directory.partitions.fetch_add(1, Ordering::Relaxed);
                partition.set_future(future);
            }
            Err(error) => {
                tracing::error!(%partition, %error, "a move between log directories can't go on");
                directory.note_error(&error);
                self.delete_soon(place.path.clone());
            }
        }
    }

    /// Has the moves go on that were found at the start.
    pub fn resume_moves(&self, replicas: &Replicas) {
        for partition in replicas.topics().partitions().filter(|partition| partition.future().is_some()) {
            self.mover.queue(Arc::clone(partition));
        }
    }

    /// Puts future replicas that have everything in the places of their logs. The metadata knows of their directories already.
    pub fn finish_moves(&self, replicas: &Replicas, caught_up: Vec<Arc<Partition>>) {
        // Or records that were deleted might be back after a crash.
        if self.checkpoint(replicas, Checkpoint::LogStart).is_err() {
            self.mover.stall(caught_up);
            return;
        }
        for partition in caught_up {
            let Some(future) = partition.future().filter(|_| !partition.is_retired()) else { continue };
            match partition.promote(&future, self.clock.now_ms()) {
                Ok(Some((left, path))) => {
                    tracing::info!(%partition, from = %left.path().display(), to = %future.directory.path().display(), "a partition has moved");
                    left.partitions.fetch_sub(1, Ordering::Relaxed);
                    self.queue_deletions([Deleted::Partition(path)], partition.settings().file_delete_delay_ms);
                }
                Ok(None) => self.mover.queue(partition),
                Err(error) => {
                    tracing::error!(%partition, %error, "a move can't be completed");
                    self.note_error(&error);
                    let directory = partition.directory();
                    if !directory.is_offline() {
                        self.placed(partition.topic.id, partition.index, &directory, false);
                    }
                    drop(directory);
                    self.mover.stall(vec![partition]);
                }
            }
        }
    }

    /// To be told of an error that may concern more than one directory.
    fn note_error(&self, error: &LogError) {
        if let LogError::Io { path, .. } = error
            && let Some(directory) = self.directory_of(path)
        {
            directory.note_error(error);
        }
    }

    /// Ends the moves that a failed directory takes part in. What was copied from it stays where it is, and is left in order.
    pub fn end_failed_moves(&self, replicas: &Replicas, taken: &[Arc<Partition>]) {
        for partition in replicas.topics().partitions() {
            if partition.future().is_some_and(|future| future.directory.is_offline()) {
                partition.take_future();
            }
        }
        for future in taken.iter().filter_map(|partition| partition.take_future()) {
            if !future.directory.is_offline()
                && let Err(error) = future.log().close()
            {
                tracing::error!(%error, "a future replica can't be closed");
                future.directory.unsynced.store(true, Ordering::Relaxed);
                future.directory.note_error(&error);
            }
        }
    }
}
