//! Snapshots of the metadata log: `<end offset>-<epoch>.checkpoint` files, each a header, the image's records and a
//! footer. They are written beside their final name and renamed, so a file with the final name is whole.

use std::io;
use std::path::{Path, PathBuf};

use milena_io::{Disk, FileExt, OpenMode};
use milena_metadata::{Image, ImageBuilder, Provenance};
use milena_protocol::MetadataRecord;
use milena_raft::VoterSet;
use milena_records::batches;

use crate::batches::{Contents, ControlRecord, MAX_BATCH_BYTES, Position, control_batch, data_batch, decode};
use crate::error::{IoContext, QuorumError};

/// Records of one batch in a snapshot.
const BATCH_RECORDS: usize = 1024;
/// Largest snapshot that is read, bytes.
const MAX_SNAPSHOT: u64 = 4 << 30;

const SUFFIX: &str = ".checkpoint";
const PART_SUFFIX: &str = ".checkpoint.part";

/// Names a snapshot: everything below `end_offset`, whose last record has `epoch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotId {
    /// First offset that is not contained.
    pub end_offset: i64,
    /// Leader epoch of the last record contained.
    pub epoch: i32,
}

impl SnapshotId {
    /// The snapshot that formatting writes. It holds the records a cluster starts with, not an image.
    pub(crate) const BOOTSTRAP: Self = Self { end_offset: 0, epoch: 0 };

    /// The file's name.
    pub(crate) fn file_name(self) -> String {
        format!("{:020}-{:010}{SUFFIX}", self.end_offset, self.epoch)
    }

    /// The id in a file's name; `None` for other files.
    pub(crate) fn from_file_name(name: &str) -> Option<Self> {
        let (offset, epoch) = name.strip_suffix(SUFFIX)?.split_once('-')?;
        let digits = |text: &str, len: usize| text.len() == len && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(offset, 20) || !digits(epoch, 10) {
            return None;
        }
        Some(Self { end_offset: offset.parse().ok()?, epoch: epoch.parse().ok()? })
    }
}

/// The quorum's part of a snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct QuorumRecords {
    pub(crate) last_contained_log_timestamp: i64,
    pub(crate) kraft_version: i16,
    pub(crate) voters: Option<VoterSet>,
}

impl QuorumRecords {
    /// The control records a snapshot begins with.
    fn header(&self) -> Vec<ControlRecord> {
        let last_contained_log_timestamp = self.last_contained_log_timestamp;
        let mut records = vec![ControlRecord::SnapshotHeader { last_contained_log_timestamp }];
        if self.kraft_version > 0 {
            records.push(ControlRecord::KRaftVersion(self.kraft_version));
            records.extend(self.voters.clone().map(ControlRecord::Voters));
        }
        records
    }
}

/// Writes a snapshot of encoded records; afterwards it is durable.
pub(crate) fn write(
    disk: &dyn Disk,
    dir: &Path,
    id: SnapshotId,
    quorum: &QuorumRecords,
    values: impl Iterator<Item = Result<Vec<u8>, QuorumError>>,
    now_ms: i64,
) -> Result<(), QuorumError> {
    let path = dir.join(id.file_name());
    let part = dir.join(format!("{}.part", id.file_name()));
    let mut writer = SnapshotWriter::create(disk, &part, id.epoch, now_ms)?;
    writer.control(&quorum.header())?;
    let mut pending = Vec::new();
    let mut bytes = 0;
    for value in values {
        let value = value?;
        if pending.len() == BATCH_RECORDS || bytes + value.len() > MAX_BATCH_BYTES {
            writer.data(&pending)?;
            pending.clear();
            bytes = 0;
        }
        bytes += value.len();
        pending.push(value);
    }
    if !pending.is_empty() {
        writer.data(&pending)?;
    }
    writer.control(&[ControlRecord::SnapshotFooter])?;
    writer.file.sync_all().context("cannot sync", &part)?;
    disk.set_read_only(&part).context("cannot make read-only", &part)?;
    disk.rename(&part, &path).context("cannot rename to", &path)?;
    disk.sync_dir(dir).context("cannot sync", dir)
}

struct SnapshotWriter<'a> {
    file: std::sync::Arc<dyn milena_io::File>,
    path: &'a Path,
    at: Position,
    size: u64,
}

impl<'a> SnapshotWriter<'a> {
    fn create(disk: &dyn Disk, path: &'a Path, epoch: i32, timestamp: i64) -> Result<Self, QuorumError> {
        // A file of an earlier, interrupted attempt may be read-only already.
        match disk.remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).context("cannot remove", path)?,
            _ => {}
        }
        let file = disk.open(path, OpenMode::CreateNew).context("cannot create", path)?;
        Ok(Self { file, path, at: Position { base_offset: 0, epoch, timestamp }, size: 0 })
    }

    fn control(&mut self, records: &[ControlRecord]) -> Result<(), QuorumError> {
        self.append(&control_batch(self.at, records)?, records.len())
    }

    fn data(&mut self, values: &[Vec<u8>]) -> Result<(), QuorumError> {
        self.append(&data_batch(self.at, values)?, values.len())
    }

    fn append(&mut self, batch: &[u8], records: usize) -> Result<(), QuorumError> {
        self.file.write_at(batch, self.size).context("cannot write", self.path)?;
        self.size += batch.len() as u64;
        self.at.base_offset += records as i64;
        Ok(())
    }
}

/// A snapshot's content.
pub(crate) struct Snapshot {
    pub(crate) quorum: QuorumRecords,
    pub(crate) image: Image,
}

/// Why a snapshot cannot be used: the disk, or its content.
pub(crate) enum Unreadable {
    Io(QuorumError),
    Content(String),
}

/// Reads a snapshot into an image. Its provenance is the snapshot's end.
pub(crate) fn read(disk: &dyn Disk, dir: &Path, id: SnapshotId) -> Result<Snapshot, Unreadable> {
    let mut builder = ImageBuilder::new(&Image::default());
    let quorum = read_records(disk, dir, id, |record| builder.replay(record).map_err(|e| e.to_string()))?;
    let provenance = Provenance {
        last_contained_offset: id.end_offset - 1,
        last_contained_epoch: id.epoch,
        last_contained_timestamp: quorum.last_contained_log_timestamp,
    };
    let (image, _) = builder.finish(provenance).map_err(|e| Unreadable::Content(e.to_string()))?;
    Ok(Snapshot { quorum, image })
}

/// Reads the records of a snapshot file, which must have its header and its footer.
pub(crate) fn read_records(
    disk: &dyn Disk,
    dir: &Path,
    id: SnapshotId,
    sink: impl FnMut(&MetadataRecord<'_>) -> Result<(), String>,
) -> Result<QuorumRecords, Unreadable> {
    let path = dir.join(id.file_name());
    let file = disk.open(&path, OpenMode::Read).context("cannot open", &path).map_err(Unreadable::Io)?;
    let bytes = file.read_all(MAX_SNAPSHOT).context("cannot read", &path).map_err(Unreadable::Io)?;
    parse(&bytes, sink).map_err(Unreadable::Content)
}

/// The records of a snapshot's bytes: every batch's checksum, the header first and the footer last.
pub(crate) fn parse(
    bytes: &[u8],
    mut sink: impl FnMut(&MetadataRecord<'_>) -> Result<(), String>,
) -> Result<QuorumRecords, String> {
    let mut quorum = QuorumRecords::default();
    let (mut header, mut footer) = (false, false);
    for batch in batches(bytes) {
        let batch = batch.map_err(|e| e.to_string())?;
        batch.verify_crc().map_err(|e| e.to_string())?;
        if footer {
            return Err("a batch follows the footer".to_owned());
        }
        match decode(&batch)? {
            Contents::Control(records) => {
                for record in records {
                    match record {
                        ControlRecord::SnapshotHeader { last_contained_log_timestamp } => {
                            header = true;
                            quorum.last_contained_log_timestamp = last_contained_log_timestamp;
                        }
                        ControlRecord::SnapshotFooter => footer = true,
                        ControlRecord::KRaftVersion(level) => quorum.kraft_version = level,
                        ControlRecord::Voters(voters) => quorum.voters = Some(voters),
                        ControlRecord::LeaderChange { .. } => {}
                    }
                }
            }
            Contents::Data(_) if !header => return Err("there is no header".to_owned()),
            Contents::Data(records) => records.iter().try_for_each(&mut sink)?,
        }
    }
    match (header, footer) {
        (false, _) => Err("there is no header".to_owned()),
        (true, false) => Err("there is no footer".to_owned()),
        (true, true) => Ok(quorum),
    }
}

/// The snapshots of a directory, ascending.
pub(crate) fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<SnapshotId>, QuorumError> {
    let entries = disk.list(dir).context("cannot list", dir)?;
    let files = entries.iter().filter(|entry| !entry.is_dir);
    let mut ids: Vec<_> = files.filter_map(|entry| SnapshotId::from_file_name(&entry.name)).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Removes what interrupted writes and deletions have left of snapshots.
pub(crate) fn remove_remains(disk: &dyn Disk, dir: &Path) -> Result<(), QuorumError> {
    let entries = disk.list(dir).context("cannot list", dir)?;
    let remains = |name: &str| name.ends_with(PART_SUFFIX) || name.ends_with(".checkpoint.deleted");
    for entry in entries.iter().filter(|entry| !entry.is_dir && remains(&entry.name)) {
        let path: PathBuf = dir.join(&entry.name);
        disk.remove_file(&path).context("cannot remove", &path)?;
    }
    Ok(())
}
