//! Checking the files of a log directory without changing any: what a broker could not read, or would read wrongly. Beside a running
//! broker too, whose files grow meanwhile. Here is a partition as a whole; its segments are in `segment`, their indexes in `cursor`, a log
//! directory with its checkpoints in `directory`.

mod cursor;
mod directory;
mod segment;

use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use milena_io::Disk;

pub use directory::{verify_directory, verify_snapshot};

use crate::epochs::EpochCache;
use crate::error::{IoContext, LogError, Result};
use crate::names::{CLEANED, DELETED, EPOCHS, Home, LOG, SNAPSHOT, SWAP, offset_before, segment_offset};
use crate::partition_metadata::read_topic_id;
use crate::snapshot;
use crate::text::{read_file, read_text};

/// How the broker of the directory has left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// It is running: ends of files may be torn, and what was counted may have changed meanwhile.
    Running,
    /// It stopped in order: everything must fit together.
    Stopped,
    /// It was killed, or the machine was: the next start mends the last segment of each log.
    Crashed,
}

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub path: PathBuf,
    /// At which byte of the file, where one can tell.
    pub position: Option<u64>,
    /// Something is wrong. Otherwise it is worth knowing, but nothing is lost.
    pub is_problem: bool,
    /// What.
    pub what: String,
}

/// Who is told what is found.
pub trait Report {
    /// Something was found.
    fn found(&mut self, finding: Finding);
    /// So many bytes more of `.log` files have been read.
    fn progress(&mut self, bytes: u64);
}

/// What was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verified {
    /// Partitions.
    pub partitions: u64,
    /// Segments.
    pub segments: u64,
    /// Batches.
    pub batches: u64,
    /// Bytes of batches.
    pub bytes: u64,
}

impl AddAssign for Verified {
    fn add_assign(&mut self, other: Self) {
        self.partitions += other.partitions;
        self.segments += other.segments;
        self.batches += other.batches;
        self.bytes += other.bytes;
    }
}

/// Bytes of the `.log` files in a partition's directory, which [`verify_partition`] will read.
///
/// # Errors
/// [`LogError::Io`].
pub fn log_bytes(disk: &dyn Disk, dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in disk.list(dir).context("listing", dir)? {
        if segment_offset(&entry.name, LOG).is_some() {
            let path = dir.join(&entry.name);
            bytes += disk.metadata(&path).context("looking for", &path)?.map_or(0, |found| found.len);
        }
    }
    Ok(bytes)
}

/// Checks a partition: batches and their checksums, offsets, indexes, aborted transactions, epochs, producer snapshots, the topic's id.
///
/// With `only` it checks just the segment with this base offset. Returns what was read, and the log end offset.
///
/// # Errors
/// [`LogError::Io`] when the directory can't be listed. Files that can't be read are findings.
pub fn verify_partition(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    condition: Condition,
    only: Option<i64>,
    report: &mut dyn Report,
) -> Result<(Verified, i64)> {
    let home = Home { disk: Arc::clone(disk), dir: dir.to_owned() };
    let names: Vec<String> = disk.list(dir).context("listing", dir)?.into_iter().map(|entry| entry.name).collect();
    let mut bases: Vec<i64> = names.iter().filter_map(|name| segment_offset(name, LOG)).collect();
    bases.sort_unstable();
    let mut partition = Partition { home: &home, condition, report, names: &names, epochs: None };
    partition.epochs = partition.read_epochs();
    partition.small_files(&bases, only);
    let mut verified = Verified { partitions: 1, ..Verified::default() };
    let mut end = bases.first().copied().unwrap_or(0);
    for (at, &base) in bases.iter().enumerate() {
        if only.is_some_and(|only| only != base) {
            continue;
        }
        if only.is_none() && base < end {
            let path = home.segment_file(base, LOG);
            partition.problem(
                &path,
                Some(0),
                format!("begins at offset {base}, where the segment before ends at {end}"),
            );
        }
        let is_last = at + 1 == bases.len();
        let checked = partition.segment(base, bases.get(at + 1).copied(), is_last);
        end = checked.next_offset.max(end);
        verified += checked.verified;
    }
    Ok((verified, end))
}

/// One partition while it is checked.
struct Partition<'v> {
    home: &'v Home,
    condition: Condition,
    report: &'v mut dyn Report,
    names: &'v [String],
    /// `None` where there is no file that can be understood.
    epochs: Option<EpochCache>,
}

impl Partition<'_> {
    fn found(&mut self, path: &Path, position: Option<u64>, is_problem: bool, what: String) {
        self.report.found(Finding { path: path.to_owned(), position, is_problem, what });
    }

    fn problem(&mut self, path: &Path, position: Option<u64>, what: String) {
        self.found(path, position, true, what);
    }

    /// A file that can't be read, or says what can't be. One that is gone meanwhile beside a running broker was deleted by it.
    fn failed(&mut self, path: &Path, error: &LogError) {
        let gone = matches!(error, LogError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound);
        let deleted = gone && self.condition == Condition::Running;
        let (position, what) = match error {
            LogError::BadFile { reason, .. } => (None, reason.clone()),
            LogError::Corrupt { position, reason, .. } => (Some(*position), reason.clone()),
            LogError::Io { operation, source, .. } => (None, format!("{operation}: {source}")),
            other => (None, other.to_string()),
        };
        self.found(path, position, !deleted, what);
    }

    fn read_epochs(&mut self) -> Option<EpochCache> {
        let path = self.home.dir.join(EPOCHS);
        let text =
            read_text(&*self.home.disk, &path).and_then(|text| text.map(|t| EpochCache::parse(&path, &t)).transpose());
        text.unwrap_or_else(|error| {
            self.failed(&path, &error);
            None
        })
    }

    /// Everything that is no segment's.
    fn small_files(&mut self, bases: &[i64], only: Option<i64>) {
        if only.is_none()
            && let Err(error) = read_topic_id(&*self.home.disk, &self.home.dir)
        {
            self.failed(&self.home.dir.join("partition.metadata"), &error);
        }
        for name in self.names {
            let path = self.home.dir.join(name);
            if let Some(offset) = segment_offset(name, SNAPSHOT) {
                if only.is_none_or(|only| only == offset) {
                    self.snapshot(&path);
                }
            } else if let Some(offset) = offset_before(name, "") {
                if !bases.contains(&offset) && only.is_none() {
                    self.found(&path, None, false, "belongs to no segment".to_owned());
                }
            } else if only.is_none() {
                self.leftover(&path, name);
            }
        }
    }

    fn leftover(&mut self, path: &Path, name: &str) {
        let what = match () {
            () if offset_before(name, DELETED).is_some() => "waits for its deletion",
            () if offset_before(name, CLEANED).is_some() => "was being made by a compaction; a start removes it",
            () if offset_before(name, SWAP).is_some() => "was made by a compaction; a start puts it in place",
            () if name.ends_with(".tmp") => "was being written; the next writer writes over it",
            () => return,
        };
        self.found(path, None, false, what.to_owned());
    }

    /// A snapshot that was torn by a crash is passed over at the next start.
    fn snapshot(&mut self, path: &Path) {
        match read_file(&*self.home.disk, path) {
            Err(error) => self.failed(path, &error),
            Ok(Some(bytes)) if snapshot::parse(&bytes).is_none() => {
                let is_problem = self.condition == Condition::Stopped;
                self.found(path, None, is_problem, "is no sound producer snapshot; a start passes it over".to_owned());
            }
            Ok(_) => {}
        }
    }
}
