//! One partition's log, and a log directory's files.
//!
//! What lives here: segments and their indexes, reading and appending, recovery, the leader-epoch cache, checkpoints and the other
//! small files of a data directory, all byte for byte Kafka's. What does not: leadership, the high watermark, validation of batches.

mod aborted;
mod cleaner;
mod config;
mod directory;
mod epochs;
mod error;
mod index;
mod kept;
mod log;
mod names;
mod partition_metadata;
mod producers;
mod properties;
mod rebuild;
mod recover;
mod scan;
mod segment;
mod snapshot;
mod text;
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
