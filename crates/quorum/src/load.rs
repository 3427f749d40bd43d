//! What is on disk becomes an image: the newest snapshot that can be read, then the log behind it.

use std::path::{Path, PathBuf};

use milena_io::{Disk, FileExt};
use milena_log::{Log, read_file};
use milena_metadata::{Image, Loader, Provenance, VersionedRecord};
use milena_raft::VoterSet;
use milena_records::{Batch, batches};

use crate::batches::{Contents, ControlRecord, decode, encode_value};
use crate::error::{IoContext, QuorumError};
use crate::integrity::LoggedVoters;
use crate::snapshot::{self, SnapshotId, Unreadable};

/// Name of the snapshot that older releases formatted every log directory with.
const LEGACY_BOOTSTRAP: &str = "bootstrap.checkpoint";
/// How much of the log is read at once, bytes.
const READ_BYTES: usize = 1 << 20;

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
}

/// The voters that a metadata log names, of which the log itself, where it is whole, has named `logged` last; `None` when
/// only the configuration names them. Changes nothing.
pub(crate) fn voters(
    disk: &dyn Disk,
    metadata_dir: &Path,
    dir: &Path,
    logged: Option<LoggedVoters>,
) -> Result<Option<VoterSet>, QuorumError> {
    let ids = match disk.metadata(dir).context("cannot look at", dir)? {
        Some(_) => snapshot::list(disk, dir)?,
        None => Vec::new(),
    };
    // A snapshot has the voters of the log before its end.
    let newer =
        |id: &&SnapshotId| **id != SnapshotId::BOOTSTRAP && logged.as_ref().is_none_or(|l| l.offset < id.end_offset);
    for id in ids.iter().rev().filter(newer) {
        match snapshot::read_records(disk, dir, *id, |_| Ok(())) {
            Ok(quorum) if quorum.voters.is_some() => return Ok(quorum.voters),
            Ok(_) => break,
            // An older one may do.
            Err(Unreadable::Content(_)) => {}
            Err(Unreadable::Io(error)) => return Err(error),
        }
    }
    if let Some(logged) = logged {
        return Ok(Some(logged.voters));
    }
    let mut state = State::new(0);
    state.read_bootstrap(disk, metadata_dir, dir, &ids)?;
    Ok(state.voters)
}

/// Loads snapshots and log. Truncates the log where the newest snapshot is ahead of it.
pub(crate) fn load(disk: &dyn Disk, metadata_dir: &Path, log: &mut Log) -> Result<State, QuorumError> {
    let dir = log.dir().to_owned();
    let ids = snapshot::list(disk, &dir)?;
    let mut state = State::new(log.latest_epoch().unwrap_or(0));
    state.read_bootstrap(disk, metadata_dir, &dir, &ids)?;
    let start = match newest_readable(disk, &dir, log, &ids)? {
        None => log.log_start_offset(),
        Some((id, snapshot)) => {
            if snapshot.quorum.kraft_version > 0 {
                state.kraft_version = snapshot.quorum.kraft_version;
                state.voters_unlogged = false;
            }
            state.voters = snapshot.quorum.voters.or(state.voters);
            state.loader = Loader::new(snapshot.image);
            state.epoch = state.epoch.max(id.epoch);
            if id.end_offset > log.log_end_offset() {
                tracing::warn!(
                    "the metadata log ends at {}, before the snapshot at {}: it is emptied",
                    log.log_end_offset(),
                    id.end_offset
                );
                log.truncate_fully_and_start_at(id.end_offset)?;
            }
            id.end_offset
        }
    };
    state.replay(log, start)?;
    Ok(state)
}

/// The newest snapshot whose content is whole. An older one serves if the log reaches from it to the end.
fn newest_readable(
    disk: &dyn Disk,
    dir: &Path,
    log: &Log,
    ids: &[SnapshotId],
) -> Result<Option<(SnapshotId, snapshot::Snapshot)>, QuorumError> {
    let log_start_offset = log.log_start_offset();
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
                if id.end_offset > log.log_end_offset() {
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

    /// Replays the log from `offset` to its end.
    fn replay(&mut self, log: &Log, mut offset: i64) -> Result<(), QuorumError> {
        let end = log.log_end_offset();
        let mut buf = Vec::new();
        while offset < end {
            let before = offset;
            if let Some(slice) = log.read(offset, READ_BYTES, end, true)? {
                buf.resize(slice.len, 0);
                slice.file.read_exact_at(&mut buf, slice.position).context("cannot read", log.dir())?;
                // The last batch may be cut; it is read again from its own offset.
                for batch in batches(&buf).map_while(Result::ok) {
                    if batch.last_offset() >= offset {
                        self.apply(log.dir(), &batch)?;
                        offset = batch.next_offset();
                    }
                }
            }
            if offset == before {
                let reason = "the log holds nothing there".to_owned();
                return Err(QuorumError::Batch { path: log.dir().to_owned(), offset, reason });
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
