//! What changed between two images, for those who publish the change. Holds names and ids; the values are in the images.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use milena_protocol::Uuid;

use crate::configs::ConfigResource;
use crate::quotas::QuotaEntity;
use crate::topics::Topic;

/// Topics and partitions that changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicsDelta {
    /// Topics of the old image that are gone, by id, as they were.
    pub deleted: BTreeMap<Uuid, Arc<Topic>>,
    /// Topics of the new image that the old one had not.
    pub created: BTreeSet<Uuid>,
    /// Partitions of the new image that are new or changed, by topic id; those of created topics included.
    pub changed: BTreeMap<Uuid, BTreeSet<i32>>,
}

/// Everything that changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// Feature names whose level was written.
    pub features: BTreeSet<String>,
    /// Brokers registered, changed or unregistered.
    pub brokers: BTreeSet<i32>,
    /// Controllers registered or unregistered.
    pub controllers: BTreeSet<i32>,
    /// Topics and partitions.
    pub topics: TopicsDelta,
    /// Resources whose configuration changed, those of deleted topics included.
    pub configs: BTreeSet<ConfigResource>,
    /// Entities whose quotas changed.
    pub client_quotas: BTreeSet<QuotaEntity>,
    /// Access control entries added or removed.
    pub acls: BTreeSet<Uuid>,
    /// SCRAM credentials (mechanism, user) set or removed.
    pub scram: BTreeSet<(i8, String)>,
    /// Delegation tokens set or removed.
    pub delegation_tokens: BTreeSet<String>,
    /// Whether a producer id block was given out.
    pub producer_ids: bool,
}

impl Delta {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
