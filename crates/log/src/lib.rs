//! One partition's log, and a log directory's files.
//!
//! What lives here: segments and their indexes, reading and appending, recovery, the leader-epoch cache, checkpoints and the other
//! small files of a data directory, all byte for byte Kafka's. What does not: leadership, the high watermark, validation of batches.

mod config;
mod error;
mod log;

pub use config::LogConfig;
pub use error::{LogError, Result};
pub use log::{Appended, EpochEnd, Flush, Log, OpenParams, Recovery, Slice, TimestampOffset};
