//! What can go wrong with the metadata log and its directory.

use std::io;
use std::path::{Path, PathBuf};

use milena_log::LogError;
use milena_metadata::ReplayError;
use milena_raft::ElectionStateError;

/// An error of the metadata log. All are fatal for a controller: what it has acknowledged stays on disk, and it must be
/// opened again before it acknowledges anything else.
#[derive(Debug, thiserror::Error)]
pub enum QuorumError {
    /// The disk failed.
    #[error("{operation} {}: {source}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// The disk's answer.
        source: io::Error,
    },
    /// The log failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A record contradicts the image.
    #[error("metadata log, offsets {base_offset} to {last_offset}: {source}")]
    Replay {
        /// First offset of the batch.
        base_offset: i64,
        /// Last offset of the batch.
        last_offset: i64,
        /// What is wrong with it.
        source: ReplayError,
    },
    /// A batch of the log or of a snapshot cannot be read.
    #[error("{}: the batch at offset {offset} cannot be read: {reason}", path.display())]
    Batch {
        /// The file or directory.
        path: PathBuf,
        /// Base offset of the batch.
        offset: i64,
        /// What is wrong with it.
        reason: String,
    },
    /// The log is damaged in its middle. Nothing was changed.
    #[error(
        "{}: the batch at byte {position}, which should begin with offset {offset}, is damaged ({reason}), but records behind \
         it are whole, so this is no interrupted write; restore the file from a copy, or remove what follows that byte to go \
         on without it", path.display()
    )]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Where the bad batch begins, bytes.
        position: u64,
        /// Offset that it should begin with.
        offset: i64,
        /// What is wrong with it.
        reason: String,
    },
    /// No snapshot can be read that the log continues.
    #[error("{}: {reason}, and no older snapshot reaches the log start offset {log_start_offset}", path.display())]
    Snapshot {
        /// The newest snapshot.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// Where the log begins.
        log_start_offset: i64,
    },
    /// The log's beginning is gone and no snapshot stands for it.
    #[error("{}: the metadata log begins at offset {log_start_offset}, but there is no snapshot up to there", dir.display())]
    MissingSnapshot {
        /// The directory of the metadata log.
        dir: PathBuf,
        /// Where the log begins.
        log_start_offset: i64,
    },
    /// The file `quorum-state` cannot be understood.
    #[error("{}: {source}", path.display())]
    QuorumState {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ElectionStateError,
    },
    /// This node is not the only voter, so it cannot lead alone.
    #[error(
        "node {node_id} with directory id {directory_id} is not the only voter of the quorum (voters: [{voters}]): \
         only a quorum of one is supported"
    )]
    NotTheOnlyVoter {
        /// This node.
        node_id: i32,
        /// Its metadata directory.
        directory_id: String,
        /// Ids of the voters.
        voters: String,
    },
    /// Records that do not fit into one batch.
    #[error("{records} records of {bytes} bytes do not fit into one batch of the metadata log")]
    TooLarge {
        /// How many records.
        records: usize,
        /// Their size.
        bytes: usize,
    },
    /// A record that has no form in the version asked for.
    #[error("a {record} cannot be written in version {version}: {reason}")]
    Encode {
        /// The record's name.
        record: &'static str,
        /// The version.
        version: i16,
        /// What the encoder said.
        reason: String,
    },
    /// An earlier failure: nothing is acknowledged any more.
    #[error("the metadata log takes no more records: {reason}")]
    Failed {
        /// The first error.
        reason: String,
    },
}

/// Adds what was tried on which file.
pub(crate) trait IoContext<T> {
    fn context(self, operation: &'static str, path: &Path) -> Result<T, QuorumError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn context(self, operation: &'static str, path: &Path) -> Result<T, QuorumError> {
        self.map_err(|source| QuorumError::Io { operation, path: path.to_owned(), source })
    }
}

impl QuorumError {
    /// The disk does not do what it must.
    pub fn is_disk_failure(&self) -> bool {
        match self {
            Self::Io { source, .. } => milena_io::is_disk_failure(source),
            Self::Log(error) => error.is_disk_failure(),
            _ => false,
        }
    }
}
