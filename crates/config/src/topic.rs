//! A topic's configuration: its overrides on top of the broker's values that are its defaults, and the rules
//! that creating or altering a topic checks.

use std::collections::BTreeMap;

use crate::Overrides;
use crate::broker::BrokerConfig;
use crate::definition::{self, Definition};
use crate::error::{AlterError, ConfigError};
use crate::value::{FromValue, Value};

/// `cleanup.policy`. Neither: an unlimited log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanupPolicy {
    /// Old records of a key are removed.
    pub compact: bool,
    /// Old segments are removed.
    pub delete: bool,
}

/// `compression.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressionType {
    /// As the producer sent it.
    Producer,
    /// None.
    Uncompressed,
    /// gzip.
    Gzip,
    /// Snappy.
    Snappy,
    /// LZ4 frames.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// `message.timestamp.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer's time.
    CreateTime,
    /// The broker's time at append.
    LogAppendTime,
}

impl FromValue for CleanupPolicy {
    fn from_value(value: Option<&Value>) -> Self {
        let has = |policy: &str| matches!(value, Some(Value::List(entries)) if entries.iter().any(|e| e == policy));
        Self { compact: has("compact"), delete: has("delete") }
    }
}

impl FromValue for CompressionType {
    fn from_value(value: Option<&Value>) -> Self {
        match value.and_then(Value::text).as_deref() {
            Some("uncompressed") => Self::Uncompressed,
            Some("gzip") => Self::Gzip,
            Some("snappy") => Self::Snappy,
            Some("lz4") => Self::Lz4,
            Some("zstd") => Self::Zstd,
            _ => Self::Producer,
        }
    }
}

impl FromValue for TimestampType {
    fn from_value(value: Option<&Value>) -> Self {
        match value.and_then(Value::text).as_deref() {
            Some("LogAppendTime") => Self::LogAppendTime,
            _ => Self::CreateTime,
        }
    }
}

macro_rules! topic_config {
    ($($field:ident: $kind:ty = $name:literal;)*) => {
        /// Effective configuration of one topic. Times are in ms, sizes in bytes, -1 is no limit.
        #[derive(Debug, Clone)]
        pub struct TopicConfig {
            values: BTreeMap<&'static str, Value>,
            /// `internal.segment.bytes` where it is set, else `segment.bytes`.
            pub segment_bytes: i32,
            $(
                #[doc = concat!("`", $name, "`, effective.")]
                pub $field: $kind,
            )*
        }

        impl TopicConfig {
            fn from_values(values: BTreeMap<&'static str, Value>) -> Self {
                let segment_bytes = match values.get("internal.segment.bytes") {
                    Some(Value::Int(bytes)) => *bytes,
                    _ => i32::from_value(values.get("segment.bytes")),
                };
                Self { segment_bytes, $($field: <$kind>::from_value(values.get($name)),)* values }
            }
        }
    };
}

topic_config! {
    cleanup_policy: CleanupPolicy = "cleanup.policy";
    compression_type: CompressionType = "compression.type";
    compression_gzip_level: i32 = "compression.gzip.level";
    compression_lz4_level: i32 = "compression.lz4.level";
    compression_zstd_level: i32 = "compression.zstd.level";
    delete_retention_ms: i64 = "delete.retention.ms";
    file_delete_delay_ms: i64 = "file.delete.delay.ms";
    flush_messages: i64 = "flush.messages";
    flush_ms: i64 = "flush.ms";
    index_interval_bytes: i32 = "index.interval.bytes";
    max_compaction_lag_ms: i64 = "max.compaction.lag.ms";
    max_decompressed_message_bytes: i32 = "max.decompressed.message.bytes";
    max_message_bytes: i32 = "max.message.bytes";
    message_timestamp_after_max_ms: i64 = "message.timestamp.after.max.ms";
    message_timestamp_before_max_ms: i64 = "message.timestamp.before.max.ms";
    message_timestamp_type: TimestampType = "message.timestamp.type";
    min_cleanable_dirty_ratio: f64 = "min.cleanable.dirty.ratio";
    min_compaction_lag_ms: i64 = "min.compaction.lag.ms";
    min_insync_replicas: i32 = "min.insync.replicas";
    preallocate: bool = "preallocate";
    remote_storage_enable: bool = "remote.storage.enable";
    retention_bytes: i64 = "retention.bytes";
    retention_ms: i64 = "retention.ms";
    segment_index_bytes: i32 = "segment.index.bytes";
    segment_jitter_ms: i64 = "segment.jitter.ms";
    segment_ms: i64 = "segment.ms";
    unclean_leader_election_enable: bool = "unclean.leader.election.enable";
}

impl TopicConfig {
    /// The configuration of a topic with `overrides`. An override that does not parse (written by another version)
    /// has no effect.
    pub fn new(broker: &BrokerConfig, overrides: &Overrides) -> Self {
        let parsed = |d: &Definition| overrides.get(d.name).and_then(|text| d.parse(text).ok());
        let value = |d: &Definition| parsed(d).unwrap_or_else(|| default_value(broker, d));
        Self::from_values(definition::topic().iter().map(|d| (d.name, value(d))).collect())
    }

    /// Effective value of a topic key; `Null` for an unknown one.
    pub fn value(&self, name: &str) -> &Value {
        self.values.get(name).unwrap_or(&Value::Null)
    }
}

/// The value of a topic key that no override sets: the broker's, converted where units differ.
fn default_value(broker: &BrokerConfig, definition: &Definition) -> Value {
    match (definition.name, definition.broker_key) {
        ("retention.ms", _) => Value::Long(broker.log_retention_ms()),
        ("segment.ms", _) => Value::Long(broker.log_roll_ms()),
        ("segment.jitter.ms", _) => Value::Long(broker.log_roll_jitter_ms()),
        ("flush.ms", _) => Value::Long(broker.log_flush_interval_ms()),
        (_, Some(key)) => broker.value(key).clone(),
        (_, None) => definition.default.clone(),
    }
}

/// Checks what a topic's overrides would be after a creation or an alteration.
///
/// `existing` are the overrides before; they matter when remote storage is turned off.
///
/// # Errors
/// INVALID_CONFIG with Kafka's message.
pub fn validate(broker: &BrokerConfig, overrides: &Overrides, existing: &Overrides) -> Result<(), AlterError> {
    let catalog = definition::topic();
    if let Some(unknown) = overrides.keys().find(|name| catalog.get(name).is_none()) {
        return Err(AlterError::InvalidConfig(format!("Unknown topic config name: {unknown}")));
    }
    for definition in catalog.iter() {
        match overrides.get(definition.name) {
            Some(text) => drop(definition.parse(text)?),
            // A broker may have a value that its own definition allows and the topic's does not.
            None => definition.validator.check(definition.name, &default_value(broker, definition))?,
        }
    }
    let config = TopicConfig::new(broker, overrides);
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms {
        return Err(AlterError::InvalidConfig(format!(
            "conflict topic config setting min.compaction.lag.ms ({}) > max.compaction.lag.ms ({})",
            config.min_compaction_lag_ms, config.max_compaction_lag_ms
        )));
    }
    if config.remote_storage_enable {
        return validate_remote_storage(broker, &config);
    }
    let was_remote = existing.get("remote.storage.enable").is_some_and(|v| v.eq_ignore_ascii_case("true"));
    if was_remote && config.value("remote.log.delete.on.disable") != &Value::Boolean(true) {
        return Err(AlterError::InvalidConfig(
            "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote \
             data and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you \
             want to disable remote storage and delete all remote data, please set \
             `remote.storage.enable=false,remote.log.delete.on.disable=true`."
                .to_owned(),
        ));
    }
    Ok(())
}

fn validate_remote_storage(broker: &BrokerConfig, config: &TopicConfig) -> Result<(), AlterError> {
    let refuse = |message: &str| Err(AlterError::InvalidConfig(message.to_owned()));
    if !broker.remote_log_storage_system_enable() {
        return refuse(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log \
             storage.",
        );
    }
    if config.cleanup_policy.compact {
        return refuse(
            "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list.",
        );
    }
    for unit in ["bytes", "ms"] {
        validate_local_retention(config, unit)?;
    }
    if config.value("remote.log.copy.disable") == &Value::Boolean(true) {
        for unit in ["ms", "bytes"] {
            let (local, total) = local_and_total(config, unit);
            if local != -2 && local != total {
                return Err(AlterError::InvalidConfig(format!(
                    "When `remote.log.copy.disable` is set to true, the `local.retention.{unit}` and \
                     `retention.{unit}` must be set to the identical value because there will be no more logs copied \
                     to the remote storage."
                )));
            }
        }
    }
    for unit in ["ms", "bytes"] {
        validate_copy_lag(config, unit)?;
    }
    Ok(())
}

/// `local.retention.{unit}` and `retention.{unit}`.
fn local_and_total(config: &TopicConfig, unit: &str) -> (i64, i64) {
    let number = |name: String| config.value(&name).integer().unwrap_or(-1);
    (number(format!("local.retention.{unit}")), number(format!("retention.{unit}")))
}

fn validate_local_retention(config: &TopicConfig, unit: &str) -> Result<(), ConfigError> {
    let (local, total) = local_and_total(config, unit);
    let name = format!("local.retention.{unit}");
    if total == -1 || local == -2 {
        return Ok(());
    }
    if local == -1 {
        let reason = format!("Value must not be -1 as retention.{unit} value is set as {total}.");
        return Err(ConfigError::invalid(&name, local.to_string(), reason));
    }
    if local > total {
        let reason = format!("Value must not be more than retention.{unit} property value: {total}");
        return Err(ConfigError::invalid(&name, local.to_string(), reason));
    }
    Ok(())
}

fn validate_copy_lag(config: &TopicConfig, unit: &str) -> Result<(), ConfigError> {
    let name = format!("remote.copy.lag.{unit}");
    let lag = config.value(&name).integer().unwrap_or(-1);
    let (local, total) = local_and_total(config, unit);
    let effective = if local == -2 { total } else { local };
    if effective == -1 || lag <= effective {
        return Ok(());
    }
    let reason = format!("Value must not exceed local.retention.{unit} (effective value: {effective})");
    Err(ConfigError::invalid(&name, lag.to_string(), reason))
}
