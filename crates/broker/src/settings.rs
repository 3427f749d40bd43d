//! From configuration to what the lower layers take.

use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use milena_config::topic::CompressionType;
use milena_config::{BrokerConfig, Overrides, TopicConfig};
use milena_log::LogConfig;
use milena_metadata::Image;
use milena_net::{ConnectionLimits, ListenerConfig, NetConfig};
use milena_records::{Compression, TimestampType};

/// Whether the records of every produced batch are looked at.
const PRODUCE_VALIDATION: &str = "milena.produce.validation";
/// Most decompressed bytes of a batch, unless `max.message.bytes` is larger.
pub const MAX_DECOMPRESSED_BYTES: usize = 256 << 20;

/// What a partition takes from its topic's configuration.
pub struct PartitionSettings {
    /// For its log.
    pub log: Arc<LogConfig>,
    /// How long a deleted partition's files stay, ms (`file.delete.delay.ms`).
    pub file_delete_delay_ms: i64,
    /// For the records of a produced batch.
    pub records: RecordRules,
    /// For its compaction.
    pub compaction: CompactionRules,
}

/// When a compacted log is cleaned, and what of it stays for a while.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompactionRules {
    /// More than this part of the log must be dirty (`min.cleanable.dirty.ratio`).
    pub min_dirty_ratio: f64,
    /// Younger records are left alone, ms (`min.compaction.lag.ms`).
    pub min_lag_ms: i64,
    /// Older dirty records are cleaned however few there are, ms (`max.compaction.lag.ms`).
    pub max_lag_ms: i64,
    /// How long tombstones and markers stay, ms (`delete.retention.ms`).
    pub delete_retention_ms: i64,
}

/// What a topic demands of the records of a produced batch, and how it stores them.
#[derive(Debug, Clone)]
pub struct RecordRules {
    /// Every record has a key (`cleanup.policy` with `compact`).
    pub keyed: bool,
    /// Whose time a stored record has (`message.timestamp.type`).
    pub timestamp_type: TimestampType,
    /// How far a record's stamp may lie behind the broker's clock, ms (`message.timestamp.before.max.ms`).
    pub before_max_ms: i64,
    /// How far a record's stamp may lie ahead of the broker's clock, ms (`message.timestamp.after.max.ms`).
    pub after_max_ms: i64,
    /// Codec that batches are stored with; `None` keeps the producer's (`compression.type`).
    pub codec: Option<Compression>,
    /// The level for that codec (`compression.<codec>.level`).
    pub level: i32,
    /// Longest batch, bytes (`max.message.bytes`).
    pub max_batch_bytes: usize,
    /// Longest record of a compressed batch, bytes (`max.decompressed.message.bytes`).
    pub max_record_bytes: i32,
    /// Batches that are stored as they came are taken at their header's word (`milena.produce.validation`).
    pub trust_headers: bool,
}

impl RecordRules {
    /// Most decompressed bytes of a batch.
    pub fn max_decompressed_bytes(&self) -> usize {
        self.max_batch_bytes.max(MAX_DECOMPRESSED_BYTES)
    }
}

impl PartitionSettings {
    /// The settings of a topic.
    pub fn of_topic(broker: &BrokerConfig, image: &Image, topic: &str) -> Arc<Self> {
        static NONE: Overrides = Overrides::new();
        let overrides = image.configs().topic(topic).map_or(&NONE, |overrides| overrides);
        let config = TopicConfig::new(broker, overrides);
        Arc::new(Self {
            log: Arc::new(log_config(broker, &config)),
            file_delete_delay_ms: config.file_delete_delay_ms,
            records: record_rules(broker, &config),
            compaction: CompactionRules {
                min_dirty_ratio: config.min_cleanable_dirty_ratio,
                min_lag_ms: config.min_compaction_lag_ms,
                max_lag_ms: config.max_compaction_lag_ms,
                delete_retention_ms: config.delete_retention_ms,
            },
        })
    }
}

fn record_rules(broker: &BrokerConfig, config: &TopicConfig) -> RecordRules {
    let (codec, level) = match config.compression_type {
        CompressionType::Producer => (None, 0),
        CompressionType::Uncompressed => (Some(Compression::None), 0),
        CompressionType::Snappy => (Some(Compression::Snappy), 0),
        CompressionType::Gzip => (Some(Compression::Gzip), config.compression_gzip_level),
        CompressionType::Lz4 => (Some(Compression::Lz4), config.compression_lz4_level),
        CompressionType::Zstd => (Some(Compression::Zstd), config.compression_zstd_level),
    };
    RecordRules {
        keyed: config.cleanup_policy.compact,
        timestamp_type: match config.message_timestamp_type {
            milena_config::topic::TimestampType::CreateTime => TimestampType::CreateTime,
            milena_config::topic::TimestampType::LogAppendTime => TimestampType::LogAppendTime,
        },
        before_max_ms: config.message_timestamp_before_max_ms,
        after_max_ms: config.message_timestamp_after_max_ms,
        codec,
        level,
        max_batch_bytes: usize::try_from(config.max_message_bytes).unwrap_or(0),
        max_record_bytes: config.max_decompressed_message_bytes,
        trust_headers: broker.value(PRODUCE_VALIDATION).text().as_deref() == Some("headers"),
    }
}

fn log_config(broker: &BrokerConfig, config: &TopicConfig) -> LogConfig {
    LogConfig {
        segment_bytes: u64::try_from(config.segment_bytes).unwrap_or(0),
        segment_ms: config.segment_ms,
        segment_jitter_ms: config.segment_jitter_ms,
        preallocate: config.preallocate,
        segment_index_bytes: u64::try_from(config.segment_index_bytes).unwrap_or(0),
        index_interval_bytes: u64::try_from(config.index_interval_bytes).unwrap_or(0),
        compact: config.cleanup_policy.compact,
        flush_messages: config.flush_messages,
        flush_ms: config.flush_ms,
        delete: config.cleanup_policy.delete,
        retention_ms: config.retention_ms,
        retention_bytes: config.retention_bytes,
        producer_id_expiration_ms: broker.producer_id_expiration_ms().into(),
        transaction_verification: broker.transaction_partition_verification_enable(),
    }
}

/// What the network layer takes. Without `num.network.threads` there is a reactor for each core, and without
/// `socket.receive.buffer.bytes` and `socket.send.buffer.bytes` the system sizes the buffers of a connection: Kafka's
/// default of 100 KiB makes receiving large requests half as dear again. Controller listeners are not opened: a quorum of
/// one has nobody to talk to.
pub fn net_config(config: &BrokerConfig) -> NetConfig {
    let listeners = config.broker_listeners().map(|listener| ListenerConfig {
        name: listener.name.as_str().into(),
        host: listener.host.clone(),
        port: listener.port,
    });
    let limit = |limit: i32| usize::try_from(limit).unwrap_or(0);
    let receive_memory = u64::try_from(config.queued_max_request_bytes()).ok();
    let given = |key: &str| config.statics().get(key).and_then(|value| value.trim().parse::<usize>().ok());
    let defaults = NetConfig::default();
    NetConfig {
        listeners: listeners.collect(),
        reactors: given("num.network.threads"),
        max_frame_bytes: limit(config.socket_request_max_bytes()),
        max_idle: u64::try_from(config.connections_max_idle_ms()).ok().map(Duration::from_millis),
        connections: connection_limits(config),
        send_buffer_bytes: given("socket.send.buffer.bytes"),
        receive_buffer_bytes: given("socket.receive.buffer.bytes"),
        backlog: u32::try_from(config.socket_listen_backlog_size()).unwrap_or(50),
        max_receive_memory_bytes: receive_memory.unwrap_or(defaults.max_receive_memory_bytes),
        ..defaults
    }
}

/// How many connections there may be.
pub fn connection_limits(config: &BrokerConfig) -> ConnectionLimits {
    let limit = |limit: i32| usize::try_from(limit).unwrap_or(0);
    ConnectionLimits {
        max: limit(config.max_connections()),
        max_per_ip: limit(config.max_connections_per_ip()),
        per_ip_overrides: per_ip_overrides(config),
    }
}

/// Whether the limits of connections are others.
pub fn changes_connection_limits(old: &BrokerConfig, new: &BrokerConfig) -> bool {
    old.max_connections() != new.max_connections()
        || old.max_connections_per_ip() != new.max_connections_per_ip()
        || old.max_connections_per_ip_overrides() != new.max_connections_per_ip_overrides()
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

#[cfg(test)]
mod tests {
    use milena_config::Settings;

    use super::*;

    #[test]
    fn the_system_sizes_the_buffers_of_sockets_unless_they_are_set() {
        let buffers = |set: &[(&str, &str)]| {
            let mut settings = Settings::new();
            set.iter().for_each(|(key, value)| settings.override_flag(&format!("{key}={value}")).unwrap());
            let net = net_config(&BrokerConfig::load(&settings).unwrap());
            (net.receive_buffer_bytes, net.send_buffer_bytes)
        };
        assert_eq!(buffers(&[]), (None, None));
        let set = [("socket.receive.buffer.bytes", "102400"), ("socket.send.buffer.bytes", "-1")];
        assert_eq!(buffers(&set), (Some(102_400), None));
    }
}
