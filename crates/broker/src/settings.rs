//! From configuration to what the lower layers take.

use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use milena_config::{BrokerConfig, Overrides, TopicConfig};
use milena_log::LogConfig;
use milena_metadata::Image;
use milena_net::{ListenerConfig, NetConfig};

/// What a partition takes from its topic's configuration.
pub struct PartitionSettings {
    /// For its log.
    pub log: Arc<LogConfig>,
    /// Longest batch, bytes (`max.message.bytes`).
    pub max_message_bytes: usize,
    /// How long a deleted partition's files stay, ms (`file.delete.delay.ms`).
    pub file_delete_delay_ms: i64,
}

impl PartitionSettings {
    /// The settings of a topic.
    pub fn of_topic(broker: &BrokerConfig, image: &Image, topic: &str) -> Arc<Self> {
        static NONE: Overrides = Overrides::new();
        let overrides = image.configs().topic(topic).map_or(&NONE, |overrides| overrides);
        let config = TopicConfig::new(broker, overrides);
        Arc::new(Self {
            log: Arc::new(log_config(&config)),
            max_message_bytes: usize::try_from(config.max_message_bytes).unwrap_or(0),
            file_delete_delay_ms: config.file_delete_delay_ms,
        })
    }
}

fn log_config(config: &TopicConfig) -> LogConfig {
    LogConfig {
        segment_bytes: u64::try_from(config.segment_bytes).unwrap_or(0),
        segment_ms: config.segment_ms,
        segment_jitter_ms: config.segment_jitter_ms,
        segment_index_bytes: u64::try_from(config.segment_index_bytes).unwrap_or(0),
        index_interval_bytes: u64::try_from(config.index_interval_bytes).unwrap_or(0),
        compact: config.cleanup_policy.compact,
    }
}

/// What the network layer takes. Without `num.network.threads` there is a reactor for each core. Controller listeners are not opened: a quorum of one has nobody to talk to.
pub fn net_config(config: &BrokerConfig) -> NetConfig {
    let listeners = config.broker_listeners().map(|listener| ListenerConfig {
        name: listener.name.as_str().into(),
        host: listener.host.clone(),
        port: listener.port,
    });
    let limit = |limit: i32| usize::try_from(limit).unwrap_or(0);
    let receive_memory = u64::try_from(config.queued_max_request_bytes()).ok();
    let buffer = |bytes: i32| usize::try_from(bytes).ok();
    let defaults = NetConfig::default();
    NetConfig {
        listeners: listeners.collect(),
        reactors: config.statics().get("num.network.threads").and_then(|threads| threads.trim().parse().ok()),
        max_frame_bytes: limit(config.socket_request_max_bytes()),
        max_idle: u64::try_from(config.connections_max_idle_ms()).ok().map(Duration::from_millis),
        max_connections: limit(config.max_connections()),
        max_connections_per_ip: limit(config.max_connections_per_ip()),
        max_connections_per_ip_overrides: per_ip_overrides(config),
        send_buffer_bytes: buffer(config.socket_send_buffer_bytes()),
        receive_buffer_bytes: buffer(config.socket_receive_buffer_bytes()),
        backlog: u32::try_from(config.socket_listen_backlog_size()).unwrap_or(50),
        max_receive_memory_bytes: receive_memory.unwrap_or(defaults.max_receive_memory_bytes),
        ..defaults
    }
}

/// Addresses with a limit of their own; a name that can't be resolved has none.
fn per_ip_overrides(config: &BrokerConfig) -> HashMap<IpAddr, usize> {
    let overrides = config.max_connections_per_ip_overrides();
    let resolved = overrides.iter().filter_map(|(host, limit)| {
        let address = (host.as_str(), 0).to_socket_addrs().ok()?.next()?;
        Some((address.ip(), usize::try_from(*limit).ok()?))
    });
    resolved.collect()
}
