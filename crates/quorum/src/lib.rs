//! Drives the quorum over a directory: metadata log, snapshots, quorum state, formatting.
//!
//! The decisions are elsewhere: who leads in `raft`, what records mean in `metadata`, which records to write in
//! `controller`. Here they meet a disk.

mod batches;
mod directories;
mod election;
mod error;
mod files;
mod format;
mod info;
mod integrity;
mod lifecycle;
mod load;
mod mapping;
mod metadata_log;
mod quorum_mode;
mod retention;
mod scram;
mod snapshot;

pub use directories::{Directories, DirectoryError};
pub use error::QuorumError;
pub use format::{FormatError, FormatOptions, Formatted, format};
pub use info::{Info, info};
pub use integrity::holds_no_metadata;
pub use lifecycle::{Assignment, BrokerRegistration, ControllerRegistration, TopicDefaults};
pub use mapping::{DependencyError, feature_dependencies, parse_feature, parse_features, version_mapping};
pub use metadata_log::{CommittedRecords, MetadataLog, MetadataLogOptions};
pub use quorum_mode::{InitialController, QuorumArguments, QuorumMode, QuorumModeError};
pub use scram::{ScramError, ScramMechanism, parse_scram};
pub use snapshot::SnapshotId;
