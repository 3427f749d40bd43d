//! The metadata image: replay of metadata records, deltas, snapshots.
//!
//! Everything here is pure: records in, an immutable [`Image`] and a [`Delta`] out. Reading and writing logs and snapshot
//! files is the quorum's work; deciding which records to write is the controller's.

mod cluster;
mod configs;
mod delta;
mod error;
mod features;
mod image;
mod loader;
mod partition;
mod quotas;
mod replay;
mod security;
mod snapshot;
mod topics;
mod version;

pub use cluster::{Broker, Cluster, Controller, Endpoint, VersionRange};
pub use configs::{ConfigMap, ConfigResource, ConfigResourceType, Configs};
pub use delta::{Delta, TopicsDelta};
pub use error::ReplayError;
pub use features::{
    ELR_VERSION, Feature, FeatureError, Features, KRAFT_VERSION, METADATA_VERSION, bootstrap_features, feature,
    features,
};
pub use image::{Image, Provenance};
pub use loader::{Loaded, Loader};
pub use partition::{
    LeaderRecoveryState, NO_LEADER, NO_LEADER_CHANGE, Partition, directory_lost, directory_migrating,
    directory_unassigned,
};
pub use quotas::{ClientQuotas, QuotaEntity, QuotaValues};
pub use replay::ImageBuilder;
pub use security::{Acl, Acls, DelegationToken, DelegationTokens, ScramCredential, ScramCredentials};
pub use snapshot::VersionedRecord;
pub use topics::{Topic, Topics};
pub use version::{MetadataVersion, MetadataVersionError};
