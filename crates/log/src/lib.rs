//! One partition's log, and a log directory's files.
//!
//! What lives here: segments and their indexes, reading and appending, recovery, the leader-epoch cache, checkpoints and the other
//! small files of a data directory, all byte for byte Kafka's. What does not: leadership, the high watermark, validation of batches.

/// The transaction index, `.txnindex`.
mod aborted;
/// Log compaction.
mod cleaner;
/// The settings of a topic that a log obeys.
mod config;
/// A log directory: its lock, its own files, its partitions.
mod directory;
/// Which leader epoch wrote which offsets.
mod epochs;
/// What can go wrong with a log.
mod error;
/// Offset index, time index and transaction index of a segment.
mod index;
/// What a start cuts off a log, kept beside it.
mod kept;
/// A partition's log: an ordered row of segments.
mod log;
/// Names of the files and directories of a partition.
mod names;
/// `partition.metadata`, with the topic's id.
mod partition_metadata;
/// The idempotent producers of a partition.
mod producers;
/// `meta.properties`, with the ids of cluster, node and directory.
mod properties;
/// Making the index files of a stopped broker's partition anew.
mod rebuild;
/// Checking a segment batch by batch, and building its indexes anew.
mod recover;
/// Walking over batch headers without their records.
mod scan;
/// One segment: a `.log` file with its indexes.
mod segment;
/// Producer snapshots, `<offset>.snapshot`.
mod snapshot;
/// The writer of small files, and the text checkpoints.
mod text;
/// Checking the files of a log directory without changing any.
mod verify;

pub use aborted::AbortedTxn;
pub use cleaner::{CleanError, Cleaned, Cleaner, CleanerConfig, Host, Stats as CleanStats, Task as CleanTask};
pub use config::LogConfig;
pub use directory::{Checkpoint, CleanMarker, LogDirectory, Offsets, PartitionDir};
pub use epochs::{EpochEnd, EpochEntry};
pub use error::{LogError, Result};
pub use log::{
    Appended, Cleanable, CleaningLimits, Due, Flush, Log, LogView, Marker, Missing, OpenParams, Recovery, Removal,
    Slice, TimestampOffset, look,
};
pub use names::{DirKind, PartitionDirName};
pub use partition_metadata::{read_topic_id, sync_topic_id, write_topic_id, write_topic_id_unsynced};
pub use producers::{ProducerState, Unwritten, VerificationGuard, VerificationStart};
pub use properties::MetaProperties;
pub use rebuild::{RebuildReport, RebuiltIndex, Unreadable, rebuild_indexes};
pub use text::{read_file, replace_file};
pub use verify::{
    Condition, Finding, Report, Verified, log_bytes, verify_directory, verify_partition, verify_snapshot,
};
