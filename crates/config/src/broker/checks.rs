//! Rules between the node's settings, with Kafka's sentences: roles and listeners, the quorum, times that bound
//! each other, limits of groups.

use super::{BrokerConfig, SecurityProtocol};
use crate::error::ConfigError;
use crate::value::Value;

/// Checks every rule, the first broken one is the error.
pub(super) fn check(config: &BrokerConfig) -> Result<(), ConfigError> {
    node_id(config)?;
    quorum(config)?;
    inter_broker_listener(config)?;
    controller_listeners(config)?;
    broker_listeners(config)?;
    log_times(config)?;
    connections(config)?;
    cordoned_log_dirs(config)?;
    group_limits(config)
}

fn require(holds: bool, name: &str, message: impl FnOnce() -> String) -> Result<(), ConfigError> {
    if holds { Ok(()) } else { Err(ConfigError::rule(name, format!("requirement failed: {}", message()))) }
}

fn node_id(config: &BrokerConfig) -> Result<(), ConfigError> {
    if config.value("broker.id") == config.value("node.id") {
        return Ok(());
    }
    let message = "`node.id` and `broker.id` must be set to the same value. `broker.id` is deprecated, please use \
                   `node.id` instead.";
    Err(ConfigError::rule("broker.id", message))
}

fn quorum(config: &BrokerConfig) -> Result<(), ConfigError> {
    let name = "controller.quorum.voters";
    let voters: Vec<i32> = config.quorum_voters().iter().map(|v| v.id).collect();
    if voters.is_empty() {
        if config.list("controller.quorum.bootstrap.servers").is_empty() {
            let message = "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of \
                           bootstrap controllers or controller.quorum.voters must contain a parseable set of \
                           controllers.";
            return Err(ConfigError::rule(name, message));
        }
        return Ok(());
    }
    let id = config.node_id();
    let set = format!("Set({})", voters.iter().map(i32::to_string).collect::<Vec<_>>().join(", "));
    match (config.is_controller(), voters.contains(&id)) {
        (true, false) => require(false, name, || {
            format!(
                "If process.roles contains the 'controller' role, the node id {id} must be included in the set of \
                 voters {name}={set}"
            )
        }),
        (false, true) => require(false, name, || {
            format!(
                "If process.roles contains just the 'broker' role, the node id {id} must not be included in the set \
                 of voters {name}={set}"
            )
        }),
        _ => Ok(()),
    }
}

fn inter_broker_listener(config: &BrokerConfig) -> Result<(), ConfigError> {
    let key = "inter.broker.listener.name";
    let Value::String(name) = config.value(key) else { return Ok(()) };
    if config.effective.contains_key("security.inter.broker.protocol") {
        let message = format!("Only one of {key} and security.inter.broker.protocol should be set.");
        return Err(ConfigError::rule(key, message));
    }
    let map = super::listeners::protocol_map(config)?;
    if map.iter().any(|(n, _)| *n == name.to_uppercase()) {
        return Ok(());
    }
    let message = format!("Listener with name {name} defined in {key} not found in listener.security.protocol.map.");
    Err(ConfigError::rule(key, message))
}

fn controller_listeners(config: &BrokerConfig) -> Result<(), ConfigError> {
    let name = "controller.listener.names";
    let wanted = config.list(name);
    let listens = |n: &String| config.listeners().iter().any(|l| l.name == *n);
    match (config.is_broker(), config.is_controller()) {
        (true, false) => require(!wanted.iter().any(listens), name, || {
            format!(
                "{name} must not contain a value appearing in the 'listeners' configuration when running KRaft with \
                 just the broker role"
            )
        }),
        (false, true) => {
            require(config.broker_listeners().next().is_none(), "listeners", || {
                format!(
                    "The listeners config must only contain KRaft controller listeners from {name} when \
                     process.roles=controller"
                )
            })?;
            all_controller_listeners_exist(config, wanted, listens)
        }
        _ => all_controller_listeners_exist(config, wanted, listens),
    }
}

fn all_controller_listeners_exist(
    config: &BrokerConfig,
    wanted: &[String],
    listens: impl Fn(&String) -> bool + Copy,
) -> Result<(), ConfigError> {
    let name = "controller.listener.names";
    if config.is_closed_quorum_of_one() {
        return Ok(());
    }
    require(wanted.iter().any(listens), name, || {
        format!(
            "{name} must contain at least one value appearing in the 'listeners' configuration when running the KRaft \
             controller role"
        )
    })?;
    require(wanted.iter().all(listens), name, || {
        format!(
            "{name} must only contain values appearing in the 'listeners' configuration when running the KRaft \
             controller role"
        )
    })
}

fn broker_listeners(config: &BrokerConfig) -> Result<(), ConfigError> {
    if !config.is_broker() {
        return Ok(());
    }
    let name = "advertised.listeners";
    let advertised: Vec<&str> = config.advertised_listeners().iter().map(|l| l.name.as_str()).collect();
    require(!advertised.is_empty(), name, || {
        "There must be at least one broker advertised listener. Perhaps all listeners appear in \
         controller.listener.names?"
            .to_owned()
    })?;
    // Milena's own start has no word of listeners between brokers to be told of.
    if config.own_start
        && let Some(listener) = config.broker_listeners().find(|l| l.protocol != SecurityProtocol::Plaintext)
    {
        let (name, protocol) = (&listener.name, listener.protocol.name());
        let message = format!("listener {name} wants {protocol}: TLS and SASL are not served, only PLAINTEXT");
        return Err(ConfigError::rule("listeners", message));
    }
    require(config.advertised_listeners().iter().all(|l| l.host != "0.0.0.0"), name, || {
        format!("{name} cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.")
    })?;
    let inter_broker = config.inter_broker_listener_name().to_uppercase();
    require(advertised.contains(&inter_broker.as_str()), "inter.broker.listener.name", || {
        format!(
            "inter.broker.listener.name must be a listener name defined in {name}. The valid options based on \
             currently configured listeners are {}",
            advertised.join(",")
        )
    })?;
    let names: Vec<&str> = config.listeners().iter().map(|l| l.name.as_str()).collect();
    require(advertised.iter().all(|n| names.contains(n)), name, || {
        format!(
            "{name} listener names must be equal to or a subset of the ones defined in listeners. Found {}. The valid \
             options based on the current configuration are {}",
            advertised.join(","),
            names.join(",")
        )
    })?;
    early_start_listeners(config, &names)
}

fn early_start_listeners(config: &BrokerConfig, names: &[&str]) -> Result<(), ConfigError> {
    let key = "early.start.listeners";
    let known = |n: &String| names.contains(&n.to_uppercase().as_str()) || config.is_controller_listener(n);
    match config.list(key).iter().find(|n| !known(n)) {
        None => Ok(()),
        Some(unknown) => {
            let message = format!(
                "{key} contains listener {}, but this is not contained in listeners or controller.listener.names",
                unknown.to_uppercase()
            );
            Err(ConfigError::rule(key, message))
        }
    }
}

fn log_times(config: &BrokerConfig) -> Result<(), ConfigError> {
    let retention = config.log_retention_ms();
    require(retention == -1 || retention >= 1, "log.retention.ms", || {
        "log.retention.ms must be unlimited (-1) or, greater than or equal to 1".to_owned()
    })?;
    require(config.log_roll_ms() >= 1, "log.roll.ms", || "log.roll.ms must be greater than or equal to 1".to_owned())?;
    require(config.log_roll_jitter_ms() >= 0, "log.roll.jitter.ms", || {
        "log.roll.jitter.ms must be greater than or equal to 0".to_owned()
    })?;
    let per_thread = config.log_cleaner_dedupe_buffer_size() / i64::from(config.log_cleaner_threads().max(1));
    require(per_thread > 1024 * 1024, "log.cleaner.dedupe.buffer.size", || {
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.".to_owned()
    })?;
    require(
        config.replica_fetch_wait_max_ms() <= config.replica_socket_timeout_ms(),
        "replica.fetch.wait.max.ms",
        || {
            "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary \
             socket timeouts"
                .to_owned()
        },
    )
}

fn connections(config: &BrokerConfig) -> Result<(), ConfigError> {
    let overrides = super::max_connections_per_ip_overrides(config)?;
    require(config.max_connections_per_ip() != 0 || !overrides.is_empty(), "max.connections.per.ip", || {
        "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.".to_owned()
    })?;
    let queued = config.queued_max_request_bytes();
    require(queued <= 0 || queued >= i64::from(config.socket_request_max_bytes()), "queued.max.request.bytes", || {
        "queued.max.request.bytes must be larger or equal to socket.request.max.bytes".to_owned()
    })
}

fn cordoned_log_dirs(config: &BrokerConfig) -> Result<(), ConfigError> {
    let name = "cordoned.log.dirs";
    let cordoned = config.list(name);
    if cordoned.len() == 1 && cordoned[0] == "*" {
        return Ok(());
    }
    let missing: Vec<&str> =
        cordoned.iter().filter(|dir| !config.log_dirs().contains(dir)).map(String::as_str).collect();
    require(missing.is_empty(), name, || {
        format!(
            "All entries in {name} must be present in log.dirs or log.dir. Missing entries : {}",
            missing.join(", ")
        )
    })
}

/// The smallest, the effective and the largest value of group limits must be in this order.
fn group_limits(config: &BrokerConfig) -> Result<(), ConfigError> {
    const BOUNDED: [(&str, &str); 12] = [
        ("group.consumer", "heartbeat.interval.ms"),
        ("group.consumer", "session.timeout.ms"),
        ("group.consumer", "assignment.interval.ms"),
        ("group.share", "heartbeat.interval.ms"),
        ("group.share", "session.timeout.ms"),
        ("group.share", "assignment.interval.ms"),
        ("group.share", "record.lock.duration.ms"),
        ("group.share", "delivery.count.limit"),
        ("group.share", "partition.max.record.locks"),
        ("group.streams", "heartbeat.interval.ms"),
        ("group.streams", "session.timeout.ms"),
        ("group.streams", "assignment.interval.ms"),
    ];
    for (group, limit) in BOUNDED {
        let (min, value, max) =
            (format!("{group}.min.{limit}"), format!("{group}.{limit}"), format!("{group}.max.{limit}"));
        at_least(config, &max, &min)?;
        at_least(config, &value, &min)?;
        at_most(config, &value, &max)?;
    }
    at_most(config, "group.streams.num.standby.replicas", "group.streams.max.standby.replicas")?;
    at_most(config, "group.streams.num.warmup.replicas", "group.streams.max.warmup.replicas")?;
    at_least(config, "group.streams.task.offset.interval.ms", "group.streams.min.task.offset.interval.ms")?;
    at_least(config, "group.share.max.share.sessions", "group.share.max.size")?;
    let protocols = "group.coordinator.rebalance.protocols";
    if !config.list(protocols).iter().any(|p| p == "classic") {
        return Err(ConfigError::rule(protocols, "Disabling the 'classic' protocol is not supported."));
    }
    Ok(())
}

fn at_least(config: &BrokerConfig, name: &str, bound: &str) -> Result<(), ConfigError> {
    if config.integer(name) >= config.integer(bound) {
        return Ok(());
    }
    Err(ConfigError::rule(name, format!("{name} must be greater than or equal to {bound}")))
}

fn at_most(config: &BrokerConfig, name: &str, bound: &str) -> Result<(), ConfigError> {
    if config.integer(name) <= config.integer(bound) {
        return Ok(());
    }
    Err(ConfigError::rule(name, format!("{name} must be less than or equal to {bound}")))
}
