//! Opening the partitions that a broker finds at its start: in parallel, from the recovery points after an unclean stop.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use milena_io::Disk;
use milena_log::{Checkpoint, DirKind, Log, LogError, OpenParams, PartitionDirName, read_topic_id, write_topic_id};
use parking_lot::Mutex;

use super::checkpoints::Lines;
use super::{Deletion, Directory, Doomed, Storage};
use crate::partition::{Partition, TopicIdentity};
use crate::settings::PartitionSettings;

/// What opening found, for the start's report.
#[derive(Debug, Default, Clone, Copy)]
pub struct Found {
    /// Partitions opened.
    pub partitions: usize,
    /// Of these, how many had batches checked because the last stop was not clean.
    pub recovered: usize,
    /// Bytes cut off behind the last good batch, over all partitions.
    pub bytes_cut: u64,
}

/// A partition that the metadata wants here.
pub struct Wanted {
    /// Its topic.
    pub topic: Arc<TopicIdentity>,
    /// Its number.
    pub index: i32,
    /// Epoch of its leadership.
    pub leader_epoch: i32,
    /// Its settings.
    pub settings: Arc<PartitionSettings>,
}

/// A partition's directory, and how to open it.
pub(super) struct Place {
    pub(super) directory: usize,
    path: PathBuf,
    params: OpenParams,
    cleaned_to: Option<i64>,
}

impl Storage {
    /// Opens the partitions that the metadata wants, on `threads` threads; those that have no directory are made. What
    /// is there and not wanted is set aside as stray.
    ///
    /// # Errors
    /// The first partition that can't be opened, or a directory that can't be read.
    pub fn open_all(&self, wanted: Vec<Wanted>, threads: usize) -> Result<(Vec<Arc<Partition>>, Found), LogError> {
        let mut places = HashMap::new();
        let mut lines = Vec::with_capacity(self.directories.len());
        for (at, directory) in self.directories.iter().enumerate() {
            let checkpoints = Lines::read(&directory.files);
            self.find_places(at, directory, &checkpoints, &mut places)?;
            lines.push(checkpoints);
        }
        let mut take = |wanted: &Wanted| places.remove(&(wanted.topic.name.clone(), wanted.index));
        let mut jobs = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            let place = match take(&wanted) {
                Some(place) if belongs_to(&*self.disk, &place, &wanted.topic)? => Some(place),
                Some(place) => {
                    self.set_aside(&wanted.topic.name, wanted.index, &place.path)?;
                    None
                }
                None => None,
            };
            jobs.push((wanted, place));
        }
        for ((topic, index), place) in &places {
            self.set_aside(topic, *index, &place.path)?;
        }
        self.learn_checkpointed(&lines, &jobs);
        self.open_parallel(&jobs, threads)
    }

    /// Reads which partitions a directory has. Those that wait for their deletion are queued for it.
    fn find_places(
        &self,
        at: usize,
        directory: &Directory,
        checkpoints: &Lines,
        places: &mut HashMap<(String, i32), Place>,
    ) -> Result<(), LogError> {
        let clean = directory.clean().is_some();
        for found in directory.files.partitions()? {
            let (topic, index) = (found.name.topic, found.name.partition);
            match found.name.kind {
                DirKind::Current => {
                    let params = OpenParams {
                        clean,
                        recovery_point: checkpoints.get(Checkpoint::RecoveryPoint, &topic, index).unwrap_or(0),
                        log_start_offset: checkpoints.get(Checkpoint::LogStart, &topic, index).unwrap_or(0),
                        now_ms: self.clock.now_ms(),
                    };
                    let cleaned_to = checkpoints.get(Checkpoint::Cleaner, &topic, index);
                    places.insert((topic, index), Place { directory: at, path: found.path, params, cleaned_to });
                }
                DirKind::Delete => {
                    let what = Doomed::Partition(found.path);
                    self.deletions.lock().push(Deletion { what, due_ms: self.clock.now_ms() });
                }
                DirKind::Future | DirKind::Stray => {}
            }
        }
        Ok(())
    }

    /// Renames a directory that the metadata does not know, so that nothing is lost and nothing is served.
    pub(super) fn set_aside(&self, topic: &str, index: i32, path: &Path) -> Result<(), LogError> {
        let name = PartitionDirName::format(topic, index, DirKind::Stray, fastrand::u128(..));
        let to = path.with_file_name(name);
        tracing::warn!(from = %path.display(), to = %to.display(), "a partition that the metadata does not know is set aside");
        self.disk.rename(path, &to).map_err(|source| LogError::Io { operation: "renaming", path: to, source })
    }

    fn open_parallel(
        &self,
        jobs: &[(Wanted, Option<Place>)],
        threads: usize,
    ) -> Result<(Vec<Arc<Partition>>, Found), LogError> {
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::with_capacity(jobs.len()));
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, jobs.len().max(1)) {
                scope.spawn(|| {
                    while let Some((wanted, place)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let opened = self.open_one(wanted, place.as_ref());
                        results.lock().push(opened);
                    }
                });
            }
        });
        let mut found = Found::default();
        let mut partitions = Vec::with_capacity(jobs.len());
        for opened in results.into_inner() {
            let (partition, recovered, cut) = opened?;
            partitions.push(Arc::new(partition));
            found.partitions += 1;
            found.recovered += usize::from(recovered);
            found.bytes_cut += cut;
        }
        Ok((partitions, found))
    }

    /// Opens or makes one partition; also whether batches had to be checked, and how many bytes were cut.
    fn open_one(&self, wanted: &Wanted, place: Option<&Place>) -> Result<(Partition, bool, u64), LogError> {
        let Wanted { topic, index, leader_epoch, settings } = wanted;
        let Some(place) = place else {
            return Ok((self.create(topic, *index, *leader_epoch, settings)?, false, 0));
        };
        let (log, recovery) = Log::open(Arc::clone(&self.disk), &place.path, Arc::clone(&settings.log), place.params)?;
        if let Some(offset) = recovery.cut_at {
            let reason = recovery.reason.as_deref().unwrap_or("the last batch is incomplete");
            tracing::warn!(log = %place.path.display(), offset, bytes = recovery.bytes_cut, reason, "a torn tail was cut");
        }
        if log.log_end_offset() < place.params.recovery_point {
            tracing::error!(
                log = %place.path.display(), from = log.log_end_offset(), to = place.params.recovery_point,
                "records that were on disk are missing"
            );
        }
        let directory = &self.directories[place.directory];
        directory.partitions.fetch_add(1, Ordering::Relaxed);
        self.placed.lock().push((topic.id, *index, directory.id));
        let (topic, directory) = (Arc::clone(topic), Arc::clone(directory));
        let partition =
            Partition::lead(topic, *index, directory, log, *leader_epoch, Arc::clone(settings), &self.flusher)?;
        partition.set_cleaned_to(place.cleaned_to);
        Ok((partition, recovery.segments_scanned > 0, recovery.bytes_cut))
    }
}

/// Whether a directory is that of this topic, and not of an older one of the same name. A directory without an id, as
/// old brokers and power losses leave them, is taken for the topic's and gets it.
fn belongs_to(disk: &dyn Disk, place: &Place, topic: &TopicIdentity) -> Result<bool, LogError> {
    let wanted = topic.id.to_string();
    if let Some(id) = read_topic_id(disk, &place.path)? {
        return Ok(id == wanted);
    }
    write_topic_id(disk, &place.path, &wanted)?;
    Ok(true)
}
