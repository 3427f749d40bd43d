//! Groups as the broker hosts them.

use milena_config::BrokerConfig;
use milena_coordinator::group::{GroupSettings, Groups, Request};
use milena_records::Compression;

use super::coordinator::Kind;

impl Kind for Groups {
    const TOPIC: &'static str = "__consumer_offsets";

    fn empty() -> Self {
        Self::new()
    }

    fn settings(config: &BrokerConfig) -> GroupSettings {
        let limit = |limit: i32| usize::try_from(limit).unwrap_or(0);
        GroupSettings {
            min_session_timeout_ms: config.group_min_session_timeout_ms(),
            max_session_timeout_ms: config.group_max_session_timeout_ms(),
            max_size: limit(config.group_max_size()),
            initial_rebalance_delay_ms: config.group_initial_rebalance_delay_ms(),
            offset_metadata_max_bytes: limit(config.offset_metadata_max_bytes()),
            offsets_retention_ms: i64::from(config.offsets_retention_minutes()) * 60_000,
            offsets_retention_check_interval_ms: config.offsets_retention_check_interval_ms(),
        }
    }

    fn compression(config: &BrokerConfig) -> Compression {
        let id = i16::try_from(config.offsets_topic_compression_codec()).ok();
        id.and_then(Compression::from_id).unwrap_or(Compression::None)
    }

    fn summary(&self) -> String {
        let (commits, keys, groups) = (self.replayed_commits(), self.committed_keys(), self.len());
        format!("{commits} commits for {keys} keys of {groups} groups")
    }

    fn topics_deleted(names: &[String]) -> Option<Request<'_>> {
        Some(Request::TopicsDeleted(names))
    }
}
