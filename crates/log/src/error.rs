//! What can go wrong with a log, typed. Which wire error code each one becomes is the broker's decision.

use std::io;
use std::path::{Path, PathBuf};

use milena_records::BatchError;

/// An error of a log or of a log directory's files.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// No record of this offset can be read here.
    #[error("offset {offset} is outside of the log, which holds {start} to {end} (exclusive)")]
    OffsetOutOfRange {
        /// What was asked for.
        offset: i64,
        /// Log start offset.
        start: i64,
        /// Log end offset.
        end: i64,
    },
    /// A batch that no segment can hold; nothing was written.
    #[error("a batch of {size} bytes does not fit into a segment of {segment_bytes}")]
    BatchTooLarge {
        /// Size of the batch, bytes.
        size: u64,
        /// `segment.bytes`.
        segment_bytes: u64,
    },
    /// Bytes given for appending that are no whole batches; nothing was written.
    #[error("what is to be appended is no record batch: {0}")]
    Malformed(#[from] BatchError),
    /// A batch that came with its offset does not follow the log; nothing was written.
    #[error(
        "a batch with the offsets {base_offset} to {last_offset} cannot follow the log end offset {log_end_offset}"
    )]
    OutOfOrder {
        /// First offset of the batch.
        base_offset: i64,
        /// Last offset of the batch.
        last_offset: i64,
        /// Log end offset before it.
        log_end_offset: i64,
    },
    /// The files contradict themselves.
    #[error("{} is corrupt at byte {position}: {reason}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where in it, bytes.
        position: u64,
        /// What is wrong.
        reason: String,
    },
    /// A record that can't be read, in a batch that was taken like that or was damaged since.
    #[error("a record of the batch at byte {position} of {} can't be read: {reason}", path.display())]
    BadRecord {
        /// The file.
        path: PathBuf,
        /// Where the batch begins in it, bytes.
        position: u64,
        /// Why.
        reason: milena_records::RecordError,
    },
    /// A text file (checkpoint, `meta.properties`, `partition.metadata`) that cannot be understood.
    #[error("{}: {reason}", path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the line.
        reason: String,
    },
    /// An earlier failure has left the end of the log unknown; it refuses every change until it is opened again.
    #[error("the log in {} takes no writes after an earlier failure", dir.display())]
    Poisoned {
        /// Directory of the partition.
        dir: PathBuf,
    },
    /// A partition is in two log directories.
    #[error(
        "{} and {} are one partition: a move between log directories was interrupted by the failure of one, or a directory \
         was copied; remove the one that lacks records, which is mostly that in a directory that has failed",
        first.display(), second.display()
    )]
    Duplicate {
        /// One directory.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// The partition's log directory has failed.
    #[error("the log directory {} has failed", dir.display())]
    Offline {
        /// The log directory.
        dir: PathBuf,
    },
    /// Another process uses the log directory.
    #[error("{} is locked: another process uses it", dir.display())]
    Locked {
        /// The log directory.
        dir: PathBuf,
    },
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
}

impl LogError {
    /// The disk had no space left: writes may work again later.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, LogError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull)
    }

    /// The disk does not do what it must: its log directory is to go offline.
    pub fn is_disk_failure(&self) -> bool {
        matches!(self, LogError::Io { source, .. } if milena_io::is_disk_failure(source))
    }
}

/// The result of everything here.
pub type Result<T> = std::result::Result<T, LogError>;

/// Adds what was tried on which file.
pub(crate) trait IoContext<T> {
    fn context(self, operation: &'static str, path: &Path) -> Result<T>;

    /// For paths that are not at hand: they are only made for an error.
    fn context_at(self, operation: &'static str, path: impl FnOnce() -> PathBuf) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn context(self, operation: &'static str, path: &Path) -> Result<T> {
        self.context_at(operation, || path.to_owned())
    }

    fn context_at(self, operation: &'static str, path: impl FnOnce() -> PathBuf) -> Result<T> {
        self.map_err(|source| LogError::Io { operation, path: path(), source })
    }
}
