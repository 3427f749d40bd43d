//! Groups as the broker hosts them.

use std::fmt;
use std::sync::Arc;

use milena_config::{BrokerConfig, Overrides, group};
use milena_coordinator::group::consumer::{Metadata, TopicInfo};
use milena_coordinator::group::{GroupSettings, Groups, Migration, Request};
use milena_metadata::{ConfigResource, Image, Partition, Topic};
use milena_protocol::Uuid;
use milena_records::Compression;

use super::coordinator::CoordinatorEngine;
use crate::published::Published;
use crate::services::Live;

impl CoordinatorEngine for Groups {
    const TOPIC: &'static str = "__consumer_offsets";

    fn empty() -> Self {
        Self::new()
    }

    fn settings(live: &Live) -> GroupSettings {
        let config = live.config.load_full();
        let limit = |limit: i32| usize::try_from(limit).unwrap_or(0);
        GroupSettings {
            min_session_timeout_ms: config.group_min_session_timeout_ms(),
            max_session_timeout_ms: config.group_max_session_timeout_ms(),
            max_size: limit(config.group_max_size()),
            initial_rebalance_delay_ms: config.group_initial_rebalance_delay_ms(),
            offset_metadata_max_bytes: limit(config.offset_metadata_max_bytes()),
            offsets_retention_ms: i64::from(config.offsets_retention_minutes()) * 60_000,
            offsets_retention_check_interval_ms: config.offsets_retention_check_interval_ms(),
            consumer_max_size: limit(config.group_consumer_max_size()),
            migration: migration(&config),
            metadata: Arc::new(Cluster { image: live.image.load_full(), config }),
        }
    }

    fn compression(config: &BrokerConfig) -> Compression {
        let id = i16::try_from(config.offsets_topic_compression_codec()).ok();
        id.and_then(Compression::from_id).unwrap_or(Compression::None)
    }

    fn load_buffer_bytes(config: &BrokerConfig) -> i32 {
        config.offsets_load_buffer_size()
    }

    fn summary(&self) -> String {
        let (commits, keys, groups) = (self.replayed_commits(), self.committed_keys(), self.len());
        format!("{commits} commits for {keys} keys of {groups} groups")
    }

    fn topics_deleted(names: &[String]) -> Option<Request<'_>> {
        Some(Request::TopicsDeleted(names))
    }
}

/// Whether groups of the consumer protocol are served: the cluster knows them, and `group.coordinator.rebalance.protocols`
/// names them.
pub(super) fn speaks_consumer(live: &Live) -> bool {
    let (config, image) = (live.config.load(), live.image.load());
    let known = image.features().iter().any(|(name, level)| name == "group.version" && level >= 1);
    known && config.list("group.coordinator.rebalance.protocols").iter().any(|name| name == "consumer")
}

/// Which way groups with members may change their protocol.
fn migration(config: &BrokerConfig) -> Migration {
    let policy = config.str("group.consumer.migration.policy").unwrap_or_default();
    let is = |name: &str| policy.eq_ignore_ascii_case(name);
    Migration { upgrades: is("upgrade") || is("bidirectional"), downgrades: is("downgrade") || is("bidirectional") }
}

/// The cluster as groups see it, at one time.
struct Cluster {
    image: Arc<Published>,
    config: Arc<BrokerConfig>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({})", self.version())
    }
}

impl Metadata for Cluster {
    fn version(&self) -> i64 {
        self.image.provenance().last_contained_offset
    }

    fn topic(&self, name: &str) -> Option<TopicInfo> {
        let topic = self.image.topics().get(name)?;
        let racks = topic.partitions.iter().map(|partition| racks(&self.image, partition)).collect();
        Some(TopicInfo { id: topic.id, racks })
    }

    fn name(&self, id: Uuid) -> Option<String> {
        self.image.topics().get_by_id(id).map(|topic| topic.name.to_string())
    }

    fn names(&self) -> Vec<String> {
        self.image.topics().iter().map(|topic: &Arc<Topic>| topic.name.to_string()).collect()
    }

    fn assignors(&self) -> Vec<String> {
        self.config.list("group.consumer.assignors").to_vec()
    }

    fn group_config(&self, id: &str, name: &str) -> i64 {
        static NONE: Overrides = Overrides::new();
        let overrides = self.image.configs().get(&ConfigResource::group(id));
        group::value(&self.config, overrides.map_or(&NONE, |overrides| &**overrides), name).integer().unwrap_or(0)
    }
}

/// The racks of a partition's replicas.
fn racks(image: &Image, partition: &Partition) -> Vec<String> {
    let broker = |id: &i32| image.cluster().broker(*id);
    partition.replicas.iter().filter_map(broker).filter_map(|broker| broker.rack.clone()).collect()
}
