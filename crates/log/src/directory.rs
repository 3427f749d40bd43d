//! A log directory: its lock, the files beside the partitions' directories, and which partitions it has.

use std::collections::BTreeMap;
use std::ops::DerefMut;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use milena_io::{Disk, DiskLock};
use parking_lot::Mutex;

use crate::error::{IoContext, LogError, Result};
use crate::log::Log;
use crate::names::PartitionDirName;
use crate::properties::MetaProperties;
use crate::text::{bad, format_checkpoint, parse_checkpoint, read_file, read_text, replace_file};

const LOCK: &str = ".lock";
const META_PROPERTIES: &str = "meta.properties";
const CLEAN_MARKER: &str = ".kafka_cleanshutdown";
const REMOTE_INDEX_CACHE: &str = "remote-log-index-cache";
pub(crate) const METADATA_PARTITION: &str = "__cluster_metadata-0";

/// The offset checkpoints of a log directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Checkpoint {
    /// `recovery-point-offset-checkpoint`: where an unclean start begins to scan; every log is in it.
    RecoveryPoint,
    /// `log-start-offset-checkpoint`: only logs that start above their first segment's base offset.
    LogStart,
    /// `replication-offset-checkpoint`: high watermarks.
    HighWatermark,
    /// `cleaner-offset-checkpoint`: first offset not yet compacted.
    Cleaner,
}

impl Checkpoint {
    /// All four.
    pub const ALL: [Checkpoint; 4] =
        [Checkpoint::RecoveryPoint, Checkpoint::LogStart, Checkpoint::HighWatermark, Checkpoint::Cleaner];

    /// Name of the file.
    pub fn file_name(self) -> &'static str {
        match self {
            Checkpoint::RecoveryPoint => "recovery-point-offset-checkpoint",
            Checkpoint::LogStart => "log-start-offset-checkpoint",
            Checkpoint::HighWatermark => "replication-offset-checkpoint",
            Checkpoint::Cleaner => "cleaner-offset-checkpoint",
        }
    }
}

/// Offsets by partition: the content of a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offsets(BTreeMap<String, BTreeMap<i32, i64>>);

impl Offsets {
    /// The offset of a partition.
    pub fn get(&self, topic: &str, partition: i32) -> Option<i64> {
        self.0.get(topic)?.get(&partition).copied()
    }

    /// Sets the offset of a partition.
    pub fn insert(&mut self, topic: &str, partition: i32, offset: i64) {
        match self.0.get_mut(topic) {
            Some(partitions) => partitions.insert(partition, offset),
            None => self.0.entry(topic.to_owned()).or_default().insert(partition, offset),
        };
    }

    /// Topic, partition and offset, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i32, i64)> {
        self.0.iter().flat_map(|(topic, partitions)| {
            partitions.iter().map(move |(partition, offset)| (topic.as_str(), *partition, *offset))
        })
    }

    fn parse(path: &Path, text: &str) -> Result<Offsets> {
        let entries = parse_checkpoint(path, text, |fields| {
            let &[topic, partition, offset] = fields else { return None };
            Some((topic.to_owned(), partition.parse().ok()?, offset.parse().ok()?))
        })?;
        let mut offsets = Offsets::default();
        for (topic, partition, offset) in entries {
            offsets.insert(&topic, partition, offset);
        }
        Ok(offsets)
    }

    fn format(&self) -> String {
        let lines: Vec<String> =
            self.iter().map(|(topic, partition, offset)| format!("{topic} {partition} {offset}")).collect();
        format_checkpoint(lines.into_iter())
    }
}

/// What a clean-shutdown marker said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanMarker {
    /// Epoch of the broker that stopped; -1 when the file does not tell.
    pub broker_epoch: i64,
}

/// A partition's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionDir {
    /// Its name, taken apart.
    pub name: PartitionDirName,
    /// Where it is.
    pub path: PathBuf,
}

/// A log directory that this process has locked.
///
/// Order of I/O over a run: *lock*; *unmark* ([`take_clean_marker`](Self::take_clean_marker), durable before any log is opened, so that a crash
/// from here on is seen as one); the logs are opened; checkpoints are replaced now and then; at the stop every log is closed, then the
/// checkpoints are written, then *mark* ([`write_clean_marker`](Self::write_clean_marker)) and only if all before succeeded; *unlock*.
#[derive(Debug)]
pub struct LogDirectory {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    lock: Mutex<Option<Box<dyn DiskLock>>>,
}

impl LogDirectory {
    /// Makes the directory if it is missing and locks it, against Kafka too.
    ///
    /// # Errors
    /// [`LogError::Locked`] when another process has it.
    pub fn open(disk: Arc<dyn Disk>, path: &Path) -> Result<LogDirectory> {
        disk.create_dir_all(path).context("creating", path)?;
        let lock_file = path.join(LOCK);
        match disk.lock(&lock_file).context("locking", &lock_file)? {
            Some(lock) => Ok(LogDirectory { disk, path: path.to_owned(), lock: Mutex::new(Some(lock)) }),
            None => Err(LogError::Locked { dir: path.to_owned() }),
        }
    }

    /// Without a lock: for tools that only read, or that run where no broker can.
    pub fn unlocked(disk: Arc<dyn Disk>, path: &Path) -> LogDirectory {
        LogDirectory { disk, path: path.to_owned(), lock: Mutex::new(None) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The disk it is on.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// `meta.properties`; `None` in a directory that was never formatted.
    ///
    /// # Errors
    /// [`LogError::BadFile`], [`LogError::Io`].
    pub fn meta_properties(&self) -> Result<Option<MetaProperties>> {
        let path = self.path.join(META_PROPERTIES);
        read_file(&*self.disk, &path)?.map(|bytes| MetaProperties::parse(&path, &bytes)).transpose()
    }

    /// Replaces `meta.properties`; `now_ms` goes into its comment, ms since 1970.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn write_meta_properties(&self, meta: &MetaProperties, now_ms: i64) -> Result<()> {
        replace_file(&*self.disk, &self.path.join(META_PROPERTIES), meta.format(now_ms).as_bytes())
    }

    /// Reads the clean-shutdown marker and removes it, durably. `None`: the last run did not stop in order.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn take_clean_marker(&self) -> Result<Option<CleanMarker>> {
        let path = self.path.join(CLEAN_MARKER);
        let Some(bytes) = read_file(&*self.disk, &path)? else { return Ok(None) };
        self.disk.remove_file(&path).context("removing", &path)?;
        self.disk.sync_dir(&self.path).context("syncing", &self.path)?;
        Ok(Some(CleanMarker { broker_epoch: broker_epoch(&bytes).unwrap_or(-1) }))
    }

    /// Writes the clean-shutdown marker. Every log must be closed and every checkpoint written before.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn write_clean_marker(&self, broker_epoch: i64) -> Result<()> {
        let content = format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch}}}");
        replace_file(&*self.disk, &self.path.join(CLEAN_MARKER), content.as_bytes())
    }

    /// A checkpoint; without the file it is empty.
    ///
    /// # Errors
    /// [`LogError::BadFile`], [`LogError::Io`]. Kafka goes on with an empty one at a start.
    pub fn read_checkpoint(&self, checkpoint: Checkpoint) -> Result<Offsets> {
        let path = self.path.join(checkpoint.file_name());
        read_text(&*self.disk, &path)?.map_or(Ok(Offsets::default()), |text| Offsets::parse(&path, &text))
    }

    /// Replaces a checkpoint.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn write_checkpoint(&self, checkpoint: Checkpoint, offsets: &Offsets) -> Result<()> {
        replace_file(&*self.disk, &self.path.join(checkpoint.file_name()), offsets.format().as_bytes())
    }

    /// Makes the checkpoints that are missing, empty, as Kafka does at a start.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn create_checkpoints(&self, which: &[Checkpoint]) -> Result<()> {
        for checkpoint in which {
            let path = self.path.join(checkpoint.file_name());
            self.disk.open(&path, milena_io::OpenMode::Create).context("creating", &path)?;
        }
        Ok(())
    }

    /// The directories of partitions, sorted by name, without that of the metadata quorum, which is not the broker's.
    ///
    /// # Errors
    /// [`LogError::BadFile`] for a directory whose name is no partition's: Kafka would refuse to start here.
    pub fn partitions(&self) -> Result<Vec<PartitionDir>> {
        let mut found = Vec::new();
        for entry in self.disk.list(&self.path).context("listing", &self.path)? {
            if !entry.is_dir || entry.name == REMOTE_INDEX_CACHE || entry.name == METADATA_PARTITION {
                continue;
            }
            let path = self.path.join(&entry.name);
            let Some(name) = PartitionDirName::parse(&entry.name) else {
                return Err(bad(
                    &path,
                    "is neither topic-partition nor one with a suffix; a log directory holds nothing else",
                ));
            };
            found.push(PartitionDir { name, path });
        }
        Ok(found)
    }

    /// Closes all these logs, which are in this directory, as [`Log::close`] does, with two syncs of the file system instead of several
    /// for each log. One that fails does not keep the others from being closed.
    ///
    /// # Errors
    /// The first failure; the clean marker must not be written then.
    pub fn close_logs<L: DerefMut<Target = Log>>(&self, logs: impl IntoIterator<Item = L>) -> Result<()> {
        let mut result = Ok(());
        let mut closing = Vec::new();
        for mut log in logs {
            match log.begin_close() {
                Ok(Some(begun)) => closing.push((log, begun)),
                Ok(None) => {}
                Err(error) => result = result.and(Err(error)),
            }
        }
        if closing.is_empty() {
            return result;
        }
        let synced = self.sync_file_system();
        let renamed: Vec<Result<()>> = match &synced {
            Ok(()) => closing.iter().map(|(log, begun)| log.rename_closing(begun)).collect(),
            Err(_) => Vec::new(),
        };
        let synced = synced.and_then(|()| self.sync_file_system());
        if let Err(error) = synced {
            closing.iter().for_each(|(log, _)| log.poison());
            return result.and(Err(error));
        }
        for ((mut log, _), renamed) in closing.into_iter().zip(renamed) {
            result = result.and(log.end_close(renamed));
        }
        result
    }

    /// Through the lock's open file, which hears of every write back that has failed since the start: syncing a log whose pages were lost
    /// before succeeds.
    fn sync_file_system(&self) -> Result<()> {
        let synced = match &*self.lock.lock() {
            Some(lock) => lock.sync_file_system(),
            None => self.disk.sync_file_system(&self.path),
        };
        synced.context("syncing", &self.path)
    }

    /// Gives the lock back and removes its file, as at an orderly stop. Dropping gives it back and leaves the file.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn unlock(&self) -> Result<()> {
        let lock = self.lock.lock().take();
        lock.map_or(Ok(()), |lock| lock.release().context("unlocking", &self.path))
    }
}

/// The number behind `"brokerEpoch":` in the marker's JSON.
fn broker_epoch(bytes: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let rest = text.split_once("\"brokerEpoch\"")?.1.trim_start().strip_prefix(':')?.trim_start();
    let end = rest.find(|char: char| char != '-' && !char.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}
