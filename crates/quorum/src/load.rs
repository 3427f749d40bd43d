//! What is on disk becomes an image: the newest snapshot that can be read, then the log behind it.

use std::path::{Path, PathBuf};

use milena_io::Disk;
use milena_log::read_file;
use milena_metadata::{Image, Loader, Provenance, VersionedRecord};
use milena_raft::VoterSet;
use milena_records::Batch;

use crate::batches::{Contents, ControlRecord, decode, encode_value};
use crate::error::{IoContext, QuorumError};
use crate::integrity::{self, Walked};
use crate::snapshot::{self, SnapshotId, Unreadable};

/// Name of the snapshot that older releases formatted every log directory with.
const LEGACY_BOOTSTRAP: &str = "bootstrap.checkpoint";

/// The state of the metadata log on disk.
pub(crate) struct State {
    pub(crate) loader: Loader,
    pub(crate) kraft_version: i16,
    /// The recorded voters; `None` when only the configuration names them.
    pub(crate) voters: Option<VoterSet>,
    /// Whether version and voters stand only in the bootstrap snapshot and must be written into the log.
    pub(crate) voters_unlogged: bool,
    /// Encoded records a fresh cluster starts with.
    pub(crate) bootstrap: Vec<Vec<u8>>,
    pub(crate) epoch: i32,
    /// Bytes of the log behind the newest snapshot.
    pub(crate) bytes_since_snapshot: u64,
    /// Timestamp of the first batch behind the newest snapshot.
    pub(crate) oldest_unsnapshotted: Option<i64>,
    /// Where the log must begin, emptied, when the newest snapshot is ahead of it.
    pub(crate) begins_anew: Option<i64>,
}

/// Loads snapshots and the log that was walked over. Changes nothing.
pub(crate) fn load(disk: &dyn Disk, metadata_dir: &Path, dir: &Path, walked: &Walked) -> Result<State, QuorumError> {
    let ids = match disk.metadata(dir).context("cannot look at", dir)? {
        Some(_) => snapshot::list(disk, dir)?,
        None => Vec::new(),
    };
    let mut state = State::new(walked.epoch);
    state.read_bootstrap(disk, metadata_dir, dir, &ids)?;
    let start = match newest_readable(disk, dir, walked, &ids)? {
        None => walked.start,
        Some((id, snapshot)) => {
            if snapshot.quorum.kraft_version > 0 {
                state.kraft_version = snapshot.quorum.kraft_version;
                state.voters_unlogged = false;
            }
            state.voters = snapshot.quorum.voters.or(state.voters);
            state.loader = Loader::new(snapshot.image);
            state.epoch = state.epoch.max(id.epoch);
            state.begins_anew = (id.end_offset > walked.end).then_some(id.end_offset);
            id.end_offset
        }
    };
    integrity::replay(disk, dir, walked, start, |batch| state.apply(dir, batch))?;
    Ok(state)
}

/// The newest snapshot whose content is whole. An older one serves if the log reaches from it to the end.
fn newest_readable(
    disk: &dyn Disk,
    dir: &Path,
    walked: &Walked,
    ids: &[SnapshotId],
) -> Result<Option<(SnapshotId, snapshot::Snapshot)>, QuorumError> {
    let log_start_offset = walked.start;
    let mut broken: Option<(PathBuf, String)> = None;
    for id in ids.iter().rev().copied().filter(|id| *id != SnapshotId::BOOTSTRAP) {
        if id.end_offset < log_start_offset {
            break;
        }
        match snapshot::read(disk, dir, id) {
            Ok(snapshot) => return Ok(Some((id, snapshot))),
            Err(Unreadable::Io(error)) => return Err(error),
            Err(Unreadable::Content(reason)) => {
                let path = dir.join(id.file_name());
                tracing::warn!("{}: {reason}", path.display());
                if id.end_offset > walked.end {
                    return Err(QuorumError::Snapshot { path, reason, log_start_offset });
                }
                broken.get_or_insert((path, reason));
            }
        }
    }
    match broken {
        _ if log_start_offset == 0 => Ok(None),
        Some((path, reason)) => Err(QuorumError::Snapshot { path, reason, log_start_offset }),
        None => Err(QuorumError::MissingSnapshot { dir: dir.to_owned(), log_start_offset }),
    }
}

impl State {
    fn new(epoch: i32) -> Self {
        Self {
            loader: Loader::new(Image::default()),
            kraft_version: 0,
            voters: None,
            voters_unlogged: false,
            bootstrap: Vec::new(),
            epoch,
            bytes_since_snapshot: 0,
            oldest_unsnapshotted: None,
            begins_anew: None,
        }
    }

    /// Takes voters and first records from the snapshot that formatting wrote, here or where older releases put it.
    fn read_bootstrap(
        &mut self,
        disk: &dyn Disk,
        metadata_dir: &Path,
        dir: &Path,
        ids: &[SnapshotId],
    ) -> Result<(), QuorumError> {
        let candidates = [
            (dir.join(SnapshotId::BOOTSTRAP.file_name()), ids.contains(&SnapshotId::BOOTSTRAP)),
            (metadata_dir.join(LEGACY_BOOTSTRAP), true),
        ];
        for (path, _) in candidates.into_iter().filter(|(_, expected)| *expected) {
            let Some(bytes) = read_file(disk, &path)? else { continue };
            let mut records = Vec::new();
            let quorum = snapshot::parse(&bytes, |record| {
                let record = VersionedRecord::new(record.clone(), record.max_version());
                records.push(encode_value(&record).map_err(|e| e.to_string())?);
                Ok(())
            });
            let quorum = match quorum {
                Ok(quorum) => quorum,
                Err(reason) => return Err(QuorumError::Snapshot { path, reason, log_start_offset: 0 }),
            };
            self.kraft_version = self.kraft_version.max(quorum.kraft_version);
            self.voters_unlogged |= quorum.voters.is_some();
            self.voters = self.voters.take().or(quorum.voters);
            if self.bootstrap.is_empty() {
                self.bootstrap = records;
            }
        }
        Ok(())
    }

    fn apply(&mut self, dir: &Path, batch: &Batch<'_>) -> Result<(), QuorumError> {
        let offset = batch.base_offset();
        self.bytes_since_snapshot += batch.size() as u64;
        self.oldest_unsnapshotted.get_or_insert(batch.max_timestamp());
        self.epoch = self.epoch.max(batch.partition_leader_epoch());
        let contents = decode(batch).map_err(|reason| QuorumError::Batch { path: dir.to_owned(), offset, reason })?;
        match contents {
            Contents::Data(records) => {
                let provenance = Provenance {
                    last_contained_offset: batch.last_offset(),
                    last_contained_epoch: batch.partition_leader_epoch(),
                    last_contained_timestamp: batch.max_timestamp(),
                };
                self.loader.load(offset, &records, provenance).map_err(|source| QuorumError::Replay {
                    base_offset: offset,
                    last_offset: batch.last_offset(),
                    source,
                })?;
            }
            Contents::Control(records) => {
                for record in records {
                    match record {
                        ControlRecord::KRaftVersion(level) => self.kraft_version = level,
                        ControlRecord::Voters(voters) => {
                            self.voters = Some(voters);
                            self.voters_unlogged = false;
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }
}
