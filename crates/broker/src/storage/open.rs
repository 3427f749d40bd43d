//! Opening the partitions that a broker finds at its start: in parallel, from the recovery points after an unclean stop.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use milena_io::Disk;
use milena_log::{
    Checkpoint, DirKind, Log, LogError, OpenParams, PartitionDirName, Recovery, read_topic_id, write_topic_id,
};
use milena_protocol::Uuid;
use parking_lot::Mutex;

use super::checkpoints::Lines;
use super::{Deleted, Directory, New, Storage};
use crate::partition::{Partition, TopicIdentity};
use crate::settings::PartitionSettings;

/// What opening found, for the start's report.
#[derive(Debug, Default, Clone, Copy)]
pub struct OpenReport {
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
    /// Id of the directory that the metadata has it in, which may be none.
    pub directory: Uuid,
}

/// A partition's directory, and how to open it.
pub(super) struct Place {
    pub(super) directory: usize,
    pub(super) path: PathBuf,
    pub(super) params: OpenParams,
    cleaned_to: Option<i64>,
}

/// The directories of partitions, by topic and number.
#[derive(Default)]
struct Places {
    current: HashMap<(String, i32), Place>,
    future: HashMap<(String, i32), Vec<Place>>,
}

/// A partition to open or to make.
pub(super) struct Job {
    pub(super) wanted: Wanted,
    pub(super) place: Option<Place>,
    /// Its future replica.
    future: Option<Place>,
}

/// What opening leaves.
#[derive(Default)]
pub struct Opened {
    /// The open ones.
    pub partitions: Vec<Arc<Partition>>,
    /// Those whose directory has failed.
    pub offline: Vec<(Arc<TopicIdentity>, i32)>,
    /// For the report.
    pub found: OpenReport,
}

impl Storage {
    /// Opens the partitions that the metadata wants, which [`look`](Self::look) has found, on `threads` threads. Those that have no directory are
    /// made, unless they may be in one that has failed. What is there and not wanted is set aside as stray.
    ///
    /// # Errors
    /// The first partition that can't be opened, and not because its directory fails.
    pub fn open_all(&self, wanted: Vec<Wanted>, threads: usize) -> Result<Opened, LogError> {
        let mut places = Places::default();
        let mut lines = Vec::with_capacity(self.directories.len());
        for (at, directory) in self.directories.iter().enumerate() {
            let checkpoints = Lines::read(directory);
            self.find_places(at, directory, &checkpoints, &mut places);
            lines.push(checkpoints);
        }
        let mut jobs = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            let name = (wanted.topic.name.clone(), wanted.index);
            let place = places.current.remove(&name);
            let place = place.map(|place| self.own_place(&wanted, place)).transpose()?.flatten();
            let (place, future) = self.settle_move(&wanted, place, places.future.remove(&name).unwrap_or_default())?;
            jobs.push(Job { wanted, place, future });
        }
        for ((topic, index), place) in &places.current {
            let aside = self.set_aside(topic, *index, &place.path);
            self.pass_failure(place.directory, aside)?;
        }
        places.future.into_values().flatten().for_each(|place| self.delete_soon(place.path));
        self.learn_checkpointed(&lines, &jobs);
        self.tell_what_is_to_do(&jobs);
        let begun = self.monotonic();
        let opened = self.open_parallel(jobs, threads)?;
        let ms = self.monotonic().saturating_sub(begun).as_millis();
        tracing::info!("Loaded {} logs in {ms}ms", opened.found.partitions);
        Ok(opened)
    }

    /// As Kafka tells it.
    fn tell_what_is_to_do(&self, jobs: &[Job]) {
        for directory in self.online() {
            let here = |job: &&Job| job.place.as_ref().is_some_and(|place| place.directory == directory.index());
            let path = directory.path().display();
            match (jobs.iter().filter(here).count(), directory.clean()) {
                (0, _) => tracing::info!("No logs found to be loaded in {path}"),
                (logs, Some(_)) => {
                    tracing::info!("Skipping recovery of {logs} logs from {path} since clean shutdown file was found");
                }
                (logs, None) => {
                    tracing::info!("Recovering {logs} logs from {path} since no clean shutdown file was found");
                }
            }
        }
    }

    /// A place that is the wanted topic's and not that of an older one of the same name, which is set aside.
    fn own_place(&self, wanted: &Wanted, place: Place) -> Result<Option<Place>, LogError> {
        let own = belongs_to(&*self.disk, &place, &wanted.topic);
        if self.pass_failure(place.directory, own)? == Some(false) {
            let aside = self.set_aside(&wanted.topic.name, wanted.index, &place.path);
            self.pass_failure(place.directory, aside)?;
            return Ok(None);
        }
        Ok(Some(place))
    }

    /// `None` for what has failed with its directory.
    pub(super) fn pass_failure<T>(&self, directory: usize, result: Result<T, LogError>) -> Result<Option<T>, LogError> {
        let directory = &self.directories[directory];
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                directory.note_error(&error);
                if directory.is_offline() { Ok(None) } else { Err(error) }
            }
        }
    }

    /// Has a partition's directory removed soon.
    pub(super) fn delete_soon(&self, path: PathBuf) {
        self.queue_deletions([Deleted::Partition(path)], 0);
    }

    /// Where a directory's partitions are. Those that wait for their deletion are queued for it.
    fn find_places(&self, at: usize, directory: &Directory, checkpoints: &Lines, places: &mut Places) {
        let clean = directory.clean().is_some();
        for found in std::mem::take(&mut *directory.found.lock()) {
            let (topic, index) = (found.name.topic, found.name.partition);
            let cleaned_to = checkpoints.get(Checkpoint::Cleaner, &topic, index);
            let params = OpenParams {
                clean,
                recovery_point: checkpoints.get(Checkpoint::RecoveryPoint, &topic, index).unwrap_or(0),
                log_start_offset: checkpoints.get(Checkpoint::LogStart, &topic, index).unwrap_or(0),
                cleaned_to: cleaned_to.unwrap_or(0),
                now_ms: self.clock.now_ms(),
            };
            let place = Place { directory: at, path: found.path, params, cleaned_to };
            match found.name.kind {
                DirKind::Current => drop(places.current.insert((topic, index), place)),
                DirKind::Future => places.future.entry((topic, index)).or_default().push(place),
                DirKind::Delete => self.delete_soon(place.path),
                DirKind::Stray => {}
            }
        }
    }

    /// Renames a directory that the metadata does not know, so that nothing is lost and nothing is served.
    pub(super) fn set_aside(&self, topic: &str, index: i32, path: &Path) -> Result<(), LogError> {
        let name = PartitionDirName::format(topic, index, DirKind::Stray, fastrand::u128(..));
        let to = path.with_file_name(name);
        tracing::warn!(from = %path.display(), to = %to.display(), "a partition that the metadata does not know is set aside");
        self.disk.rename(path, &to).map_err(|source| LogError::Io { operation: "renaming", path: to, source })
    }

    fn open_parallel(&self, jobs: Vec<Job>, threads: usize) -> Result<Opened, LogError> {
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::with_capacity(jobs.len()));
        let done = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, jobs.len().max(1)) {
                scope.spawn(|| {
                    while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let opened = self.open_one(job);
                        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                        if let Ok(One::Open(partition, recovery)) = &opened
                            && recovery.segments_scanned > 0
                        {
                            let (segments, bytes) = (recovery.segments_scanned, recovery.bytes_scanned);
                            let end = partition.high_watermark();
                            tracing::info!(%partition, segments, bytes, end, "Recovered a log ({done}/{} completed)", jobs.len());
                        }
                        results.lock().push(opened);
                    }
                });
            }
        });
        let mut all = Opened::default();
        for opened in results.into_inner() {
            match opened? {
                One::Open(partition, recovery) => {
                    all.partitions.push(partition);
                    all.found.partitions += 1;
                    all.found.recovered += usize::from(recovery.segments_scanned > 0);
                    all.found.bytes_cut += recovery.bytes_cut;
                }
                One::Offline(topic, index) => all.offline.push((topic, index)),
            }
        }
        Ok(all)
    }

    /// Opens or makes one partition.
    fn open_one(&self, job: &Job) -> Result<One, LogError> {
        let Job { wanted, place, future } = job;
        let Wanted { topic, index, leader_epoch, settings, directory } = wanted;
        let offline = || One::Offline(Arc::clone(topic), *index);
        let Some(place) = place else {
            if self.online().count() < self.directories.len() {
                tracing::error!(topic = %topic.name, index, "a partition is offline: it is not in any log directory that works");
                return Ok(offline());
            }
            let partition = self.create(&New {
                topic,
                index: *index,
                leader_epoch: *leader_epoch,
                settings,
                directory: *directory,
            })?;
            if partition.directory().id != *directory && !directory.is_reserved() {
                tracing::error!(%partition, %directory, "the log directory of a partition is not there, it begins empty in another");
            }
            return Ok(One::Open(Arc::new(partition), Recovery::default()));
        };
        let opened = self.open_place(wanted, place);
        if let (Ok(One::Open(partition, _)), Some(future)) = (&opened, future) {
            self.resume_move(partition, future);
        }
        Ok(self.pass_failure(place.directory, opened)?.unwrap_or_else(offline))
    }

    fn open_place(&self, wanted: &Wanted, place: &Place) -> Result<One, LogError> {
        let directory = &self.directories[place.directory];
        if directory.is_offline() {
            return Err(LogError::Offline { dir: directory.path().to_owned() });
        }
        let Wanted { topic, index, leader_epoch, settings, .. } = wanted;
        let (log, recovery) = Log::open(Arc::clone(&self.disk), &place.path, Arc::clone(&settings.log), place.params)?;
        tell(&place.path, &recovery);
        if log.log_end_offset() < place.params.recovery_point {
            tracing::error!(
                log = %place.path.display(), from = log.log_end_offset(), to = place.params.recovery_point,
                "records that were on disk are missing"
            );
        }
        directory.partitions.fetch_add(1, Ordering::Relaxed);
        self.placed(topic.id, *index, directory, true);
        let (topic, directory, settings) = (Arc::clone(topic), Arc::clone(directory), Arc::clone(settings));
        let partition = Partition::lead(topic, *index, directory, log, *leader_epoch, settings, &self.flusher)?;
        partition.set_cleaned_to(place.cleaned_to);
        Ok(One::Open(Arc::new(partition), recovery))
    }
}

/// What became of one wanted partition.
enum One {
    Open(Arc<Partition>, Recovery),
    Offline(Arc<TopicIdentity>, i32),
}

/// Says what is damaged, and what was done about it.
fn tell(log: &Path, recovery: &Recovery) {
    let Some(reason) = &recovery.reason else { return };
    let (file, position) = recovery.place.as_ref().map_or((log, 0), |(file, position)| (file.as_path(), *position));
    match recovery.cut_at {
        Some(offset) => {
            let bytes = recovery.bytes_cut;
            tracing::warn!(file = %file.display(), position, offset, bytes, reason, "the log was cut before the first bad batch");
        }
        None => tracing::error!(file = %file.display(), position, reason, "a file is damaged"),
    }
    for kept in &recovery.kept {
        tracing::error!(file = %kept.display(), "what was cut may be sound and is kept in this file");
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
