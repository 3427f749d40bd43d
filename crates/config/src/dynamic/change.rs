//! Whether a change of dynamic broker configuration is allowed, with the sentences of Kafka's broker, which checks
//! it before it forwards the request to the controller.

use std::collections::HashSet;

use crate::Overrides;
use crate::alter::{Edit, Operation};
use crate::broker::{BrokerConfig, DynamicConfig};
use crate::definition::{self, ConfigType, UpdateMode};
use crate::error::{AlterError, ConfigError};
use crate::value::Value;

/// Keys that may only change with a listener's prefix.
const LISTENER_ONLY: [&str; 10] = [
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
];

/// Keys that may be set for all brokers although they have a listener's prefix.
const CLUSTER_LEVEL_LISTENER_KEYS: [&str; 3] =
    ["max.connection.creation.rate", "max.connections", "num.network.threads"];

/// Thread counts that may at most double and at most halve at once.
const THREAD_COUNTS: [&str; 8] = [
    "background.threads",
    "num.io.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
];

/// Checks IncrementalAlterConfigs of this broker (`per_broker`) or of the default of all brokers.
///
/// # Errors
/// INVALID_CONFIG or INVALID_REQUEST with Kafka's message.
pub fn check_alter(config: &BrokerConfig, per_broker: bool, edits: &[Edit<'_>]) -> Result<(), AlterError> {
    let dynamic = config.dynamic();
    let mut props = if per_broker { dynamic.broker.clone() } else { dynamic.default.clone() };
    for edit in edits {
        let value = edit.value.unwrap_or_default();
        match edit.operation {
            Operation::Set => drop(props.insert(edit.name.to_owned(), value.to_owned())),
            Operation::Delete => drop(props.remove(edit.name)),
            Operation::Append | Operation::Subtract => {
                let list = edit_list(edit, props.get(edit.name))?;
                props.insert(edit.name.to_owned(), list);
            }
        }
    }
    check_replacement(config, per_broker, &props)
}

/// Checks that `props` may become the whole dynamic configuration of this broker (`per_broker`) or of the default of
/// all brokers, as AlterConfigs makes it.
///
/// # Errors
/// INVALID_REQUEST with Kafka's message.
pub fn check_replacement(config: &BrokerConfig, per_broker: bool, props: &Overrides) -> Result<(), AlterError> {
    let mode = |name: &str| definition::broker().get(name).map(|d| d.update_mode);
    refuse_names(props, "Cannot update these configs dynamically", |name| mode(name) == Some(UpdateMode::ReadOnly))?;
    refuse_names(
        props,
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        |name| LISTENER_ONLY.contains(&name),
    )?;
    for (name, text) in props {
        super::check_value(name, text).map_err(invalid_request)?;
    }
    if !per_broker {
        let of_listener =
            |name: &str| super::listener_base(name).is_some_and(|base| !CLUSTER_LEVEL_LISTENER_KEYS.contains(&base));
        refuse_names(
            props,
            "Cannot update these configs at default cluster level, broker id must be specified",
            |name| mode(name) == Some(UpdateMode::PerBroker) || of_listener(name),
        )?;
    }
    let dynamic = config.dynamic().clone();
    let dynamic = match per_broker {
        true => DynamicConfig { broker: props.clone(), ..dynamic },
        false => DynamicConfig { default: props.clone(), ..dynamic },
    };
    let new = config.try_with_dynamic(dynamic).map_err(invalid_request)?;
    check_transition(config, &new).map_err(|sentence| {
        AlterError::InvalidRequest(format!(
            "Invalid value org.apache.kafka.common.config.ConfigException: {sentence} for configuration Invalid \
             dynamic configuration"
        ))
    })
}

fn invalid_request(error: ConfigError) -> AlterError {
    AlterError::InvalidRequest(error.to_string())
}

fn refuse_names(props: &Overrides, what: &str, refused: impl Fn(&str) -> bool) -> Result<(), AlterError> {
    let names: Vec<&str> = props.keys().map(String::as_str).filter(|name| refused(name)).collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(AlterError::InvalidRequest(format!("{what}: [{}]", names.join(", "))))
}

fn edit_list(edit: &Edit<'_>, current: Option<&String>) -> Result<String, AlterError> {
    let name = edit.name;
    let Some(definition) = definition::broker().get(name) else {
        return Err(AlterError::InvalidConfig(format!("Unknown config name: {name}")));
    };
    let append = edit.operation == Operation::Append;
    if definition.kind != ConfigType::List {
        let operation = if append { "append" } else { "subtract" };
        let message = format!("Config value {operation} is not allowed for config key: {name}");
        return Err(AlterError::InvalidConfig(message));
    }
    let base = current.cloned().or_else(|| definition.default_text()).unwrap_or_default();
    let mut entries: Vec<&str> = base.split(',').filter(|entry| !entry.is_empty()).collect();
    let named = edit.value.unwrap_or_default().split(',');
    if append {
        let known: HashSet<&str> = entries.iter().copied().collect();
        entries.extend(named.filter(|entry| !known.contains(entry)));
    } else {
        let named: HashSet<&str> = named.collect();
        entries.retain(|entry| !named.contains(entry));
    }
    Ok(entries.join(","))
}

/// What the running parts of a broker check when they are asked to take a new configuration.
fn check_transition(old: &BrokerConfig, new: &BrokerConfig) -> Result<(), String> {
    for name in THREAD_COUNTS {
        check_threads(name, old.integer(name), new.integer(name))?;
    }
    for listener in new.broker_listeners() {
        let name = "num.network.threads";
        let count = |config: &BrokerConfig| config.for_listener(&listener.name, name).integer();
        check_threads(name, count(old), count(new))?;
    }
    check_cleaner_threads(old.log_cleaner_threads(), new.log_cleaner_threads())?;
    let rate = |listener: &str| new.for_listener(listener, "max.connection.creation.rate").integer();
    if let Some(rate) = new.broker_listeners().filter_map(|l| rate(&l.name)).find(|rate| *rate <= 0) {
        return Err(format!("Invalid max.connection.creation.rate {rate}"));
    }
    check_local_retention(new, "ms", new.log_retention_ms())?;
    check_local_retention(new, "bytes", new.integer("log.retention.bytes").unwrap_or(-1))
}

fn check_threads(name: &str, old: Option<i64>, new: Option<i64>) -> Result<(), String> {
    let (Some(old), Some(new)) = (old, new) else { return Ok(()) };
    let limit = match new {
        _ if new == old => return Ok(()),
        _ if new <= 0 => "value should be at least 1".to_owned(),
        _ if new < old / 2 => format!("value should be at least half the current value {old}"),
        _ if new > old * 2 => format!("value should not be greater than double the current value {old}"),
        _ => return Ok(()),
    };
    Err(format!("Dynamic thread count update validation failed for {name}={new}, {limit}"))
}

fn check_cleaner_threads(old: i32, new: i32) -> Result<(), String> {
    match new {
        _ if new < 1 => Err("Log cleaner threads should be at least 1".to_owned()),
        _ if new < old / 2 => {
            Err(format!("Log cleaner threads cannot be reduced to less than half the current value {old}"))
        }
        _ if i64::from(new) > i64::from(old) * 2 => {
            Err(format!("Log cleaner threads cannot be increased to more than double the current value {old}"))
        }
        _ => Ok(()),
    }
}

fn check_local_retention(config: &BrokerConfig, unit: &str, total: i64) -> Result<(), String> {
    let (local_name, total_name) = (format!("log.local.retention.{unit}"), format!("log.retention.{unit}"));
    let Value::Long(local) = *config.value(&local_name) else { return Ok(()) };
    let reason = match local {
        -2 => return Ok(()),
        _ if total == -1 => return Ok(()),
        -1 => format!("Value must not be -1 as {total_name} value is set as {total}."),
        _ if local > total => format!("Value must not be more than {total_name} property value: {total}"),
        _ => return Ok(()),
    };
    Err(ConfigError::invalid(&local_name, local.to_string(), reason).to_string())
}
