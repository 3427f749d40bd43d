//! The node's effective configuration: static settings, then the dynamic default of all brokers, then the
//! dynamic configuration of this broker. Immutable; a dynamic change makes a new one. Rules between settings
//! are in `checks`, endpoints in [`listeners`].

mod checks;
mod getters;
pub mod listeners;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

pub use listeners::{Listener, SecurityProtocol, Voter};

use crate::Overrides;
use crate::definition::{self, Definition};
use crate::dynamic;
use crate::error::ConfigError;
use crate::settings::{Origin, Settings};
use crate::value::Value;

/// Dynamic broker configuration as it stands in the metadata image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DynamicConfig {
    /// Of this broker.
    pub broker: Overrides,
    /// Default of all brokers (the resource with the empty name).
    pub default: Overrides,
}

/// A static setting that stops the start, with the place it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartError {
    /// What is wrong.
    pub error: ConfigError,
    /// Where the setting was made; `None` for a missing one.
    pub origin: Option<Origin>,
    /// What can be done about it.
    pub advice: Option<&'static str>,
}

/// What to do where `listeners` makes no addresses for clients.
const ADVERTISE: &str = "advertised.listeners is not set, so clients are told what listeners says. Set it to where they \
                         find the broker, or listen on :PORT, of which they are told this machine's name.";

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(origin) => write!(f, "{} ({origin})", self.error)?,
            None => write!(f, "{}", self.error)?,
        }
        self.advice.map_or(Ok(()), |advice| write!(f, "\n  {advice}"))
    }
}

impl std::error::Error for StartError {}

/// A replication factor above the number of brokers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreachableReplicas {
    /// The setting.
    pub key: &'static str,
    /// Its value.
    pub wanted: i64,
    /// How many brokers there are.
    pub brokers: usize,
    /// What does not work.
    pub consequence: &'static str,
}

impl fmt::Display for UnreachableReplicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, wanted, brokers, consequence } = self;
        let there = if *brokers == 1 { "there is 1 broker".to_owned() } else { format!("there are {brokers} brokers") };
        write!(f, "{key} is {wanted}, and {there}: {consequence}")
    }
}

/// Effective configuration of the node.
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    statics: Overrides,
    dynamic: DynamicConfig,
    effective: Overrides,
    values: BTreeMap<&'static str, Value>,
    typed: getters::Typed,
    listeners: Vec<Listener>,
    advertised: Vec<Listener>,
    voters: Vec<Voter>,
    own_start: bool,
}

impl BrokerConfig {
    /// The configuration of a node that starts with `settings`.
    ///
    /// Without a properties file, Milena's own start fills what nobody set: `node.id=1`, both roles, a plaintext
    /// listener on `localhost:9092`, `./milena-data`, internal topics of one replica, as Kafka's own sample file has them.
    /// Such a node is a quorum of one and opens no controller listener; `localhost:9093` is the address its voter set names.
    ///
    /// # Errors
    /// Every value that is not allowed; if there is none, the first broken rule between values.
    pub fn load(settings: &Settings) -> Result<Self, Vec<StartError>> {
        let mut settings = settings.clone();
        if !settings.has_file() {
            fill_own_start(&mut settings);
        }
        settings.apply_listen_flag();
        let statics = with_node_id_synonyms(settings.iter().map(|(n, s)| (n.to_owned(), s.value.clone())).collect());
        let located = |error: ConfigError| {
            let mut stated = settings.get(error.name());
            let mut advice = None;
            // An address that is not advertised elsewhere comes from the listeners.
            if stated.is_none() && error.name() == "advertised.listeners" {
                stated = settings.get("listeners");
                advice = stated.filter(|s| s.value.contains("0.0.0.0")).map(|_| ADVERTISE);
            }
            StartError { error, origin: stated.map(|s| s.origin.clone()), advice }
        };
        let (values, errors) = parse_values(&statics);
        if !errors.is_empty() {
            // What is wrong with one name of the node's id is not said of the other.
            let other = |name: &str| match name {
                "node.id" => settings.get("broker.id"),
                "broker.id" => settings.get("node.id"),
                _ => None,
            };
            let is_said = |error: &ConfigError| settings.get(error.name()).is_some() || other(error.name()).is_none();
            return Err(errors.into_iter().filter(is_said).map(located).collect());
        }
        let layers = Layers { effective: statics.clone(), statics, dynamic: DynamicConfig::default() };
        Self::assemble(layers, values, !settings.has_file()).map_err(|error| vec![located(error)])
    }

    /// The configuration with other dynamic values. A dynamic value that is not valid (written by another version)
    /// has no effect and is returned.
    pub fn with_dynamic(&self, dynamic: DynamicConfig) -> (Self, Vec<ConfigError>) {
        let mut dynamic = dynamic;
        let mut ignored = Vec::new();
        for layer in [&mut dynamic.default, &mut dynamic.broker] {
            layer.retain(|name, value| match dynamic::check_value(name, value) {
                Ok(()) => true,
                Err(error) => {
                    ignored.push(error);
                    false
                }
            });
        }
        match self.try_with_dynamic(dynamic) {
            Ok(config) => (config, ignored),
            Err(error) => {
                ignored.push(error);
                (self.clone(), ignored)
            }
        }
    }

    /// The configuration with other dynamic values, all of which are valid.
    pub(crate) fn try_with_dynamic(&self, dynamic: DynamicConfig) -> Result<Self, ConfigError> {
        let effective = dynamic::overlay(&dynamic::overlay(&self.statics, &dynamic.default), &dynamic.broker);
        let (values, errors) = parse_values(&effective);
        if let Some(error) = errors.into_iter().next() {
            return Err(error);
        }
        Self::assemble(Layers { statics: self.statics.clone(), dynamic, effective }, values, self.own_start)
    }

    fn assemble(layers: Layers, values: BTreeMap<&'static str, Value>, own_start: bool) -> Result<Self, ConfigError> {
        let typed = getters::Typed::new(&values);
        let mut config = Self {
            statics: layers.statics,
            dynamic: layers.dynamic,
            effective: layers.effective,
            values,
            typed,
            listeners: Vec::new(),
            advertised: Vec::new(),
            voters: Vec::new(),
            own_start,
        };
        config.listeners = listeners::listeners(&config)?;
        config.advertised = listeners::advertised(&config)?;
        config.voters = listeners::voters(&config)?;
        checks::check(&config)?;
        Ok(config)
    }

    /// Effective value of a known key; `Null` for one that is unset or unknown.
    pub fn value(&self, name: &str) -> &Value {
        self.values.get(name).unwrap_or(&Value::Null)
    }

    /// Kafka's text of the effective value: `None` for null, for passwords and for unknown names.
    pub fn text(&self, name: &str) -> Option<String> {
        self.value(name).text()
    }

    /// Raw static settings by name, unknown ones included.
    pub fn statics(&self) -> &Overrides {
        &self.statics
    }

    /// The dynamic values in effect.
    pub fn dynamic(&self) -> &DynamicConfig {
        &self.dynamic
    }

    /// Raw values in effect by name, unknown and listener-prefixed ones included; defaults are not among them.
    pub fn effective(&self) -> &Overrides {
        &self.effective
    }

    /// What the node listens on, `controller.listener.names` included.
    pub fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    /// What clients and brokers are told to connect to, without controller listeners. An empty host means this
    /// machine's name.
    pub fn advertised_listeners(&self) -> &[Listener] {
        &self.advertised
    }

    /// `controller.quorum.voters`, parsed.
    pub fn quorum_voters(&self) -> &[Voter] {
        &self.voters
    }

    /// Whether the listener of that name serves the controller quorum.
    pub fn is_controller_listener(&self, name: &str) -> bool {
        self.list("controller.listener.names").iter().any(|n| n == name)
    }

    /// What the node listens on for clients and brokers.
    pub fn broker_listeners(&self) -> impl Iterator<Item = &Listener> {
        self.listeners.iter().filter(|l| !self.is_controller_listener(&l.name))
    }

    /// What the node listens on for the controller quorum.
    pub fn controller_listeners(&self) -> impl Iterator<Item = &Listener> {
        self.listeners.iter().filter(|l| self.is_controller_listener(&l.name))
    }

    /// Name of the listener that brokers use among themselves.
    pub fn inter_broker_listener_name(&self) -> &str {
        match self.value("inter.broker.listener.name") {
            Value::String(name) => name,
            _ => self.str("security.inter.broker.protocol").unwrap_or("PLAINTEXT"),
        }
    }

    /// `process.roles` contains `broker`.
    pub fn is_broker(&self) -> bool {
        self.list("process.roles").iter().any(|role| role == "broker")
    }

    /// `process.roles` contains `controller`.
    pub fn is_controller(&self) -> bool {
        self.list("process.roles").iter().any(|role| role == "controller")
    }

    /// `log.dirs`, or `log.dir` when it is not set.
    pub fn log_dirs(&self) -> &[String] {
        match self.value("log.dirs") {
            Value::List(dirs) => dirs,
            _ => self.list("log.dir"),
        }
    }

    /// `metadata.log.dir`, or the first log directory.
    pub fn metadata_log_dir(&self) -> &str {
        let first = || self.log_dirs().first().map_or("", String::as_str);
        self.str("metadata.log.dir").unwrap_or_else(first)
    }

    /// The log directories, and that of the metadata log if it is none of them.
    pub fn all_dirs(&self) -> Vec<PathBuf> {
        let mut dirs: Vec<_> = self.log_dirs().iter().map(PathBuf::from).collect();
        let metadata_dir = PathBuf::from(self.metadata_log_dir());
        if !dirs.contains(&metadata_dir) {
            dirs.push(metadata_dir);
        }
        dirs
    }

    /// Milena's own start (no properties file) as the only voter, without a listener for other controllers.
    pub fn is_closed_quorum_of_one(&self) -> bool {
        self.own_start && self.is_controller() && self.voters.is_empty() && self.controller_listeners().next().is_none()
    }

    /// Retention of logs in ms, -1 without limit: `log.retention.ms`, else minutes, else hours.
    pub fn log_retention_ms(&self) -> i64 {
        let minutes = || self.integer("log.retention.minutes").map(|m| m * 60_000);
        let ms = self.integer("log.retention.ms").or_else(minutes);
        let ms = ms.or_else(|| self.integer("log.retention.hours").map(|h| h * 3_600_000)).unwrap_or(-1);
        if ms < 0 { -1 } else { ms }
    }

    /// Age in ms at which a segment is rolled: `log.roll.ms`, else hours.
    pub fn log_roll_ms(&self) -> i64 {
        self.ms_or_hours("log.roll.ms", "log.roll.hours")
    }

    /// Largest random delay of a roll in ms: `log.roll.jitter.ms`, else hours.
    pub fn log_roll_jitter_ms(&self) -> i64 {
        self.ms_or_hours("log.roll.jitter.ms", "log.roll.jitter.hours")
    }

    /// Longest time in ms that a record stays unflushed: `log.flush.interval.ms`, else the flush scheduler's interval.
    pub fn log_flush_interval_ms(&self) -> i64 {
        self.integer("log.flush.interval.ms").unwrap_or_else(|| self.log_flush_scheduler_interval_ms())
    }

    fn ms_or_hours(&self, ms: &str, hours: &str) -> i64 {
        self.integer(ms).or_else(|| self.integer(hours).map(|h| h * 3_600_000)).unwrap_or(0)
    }

    /// `max.connections.per.ip.overrides`: address or host name, and its limit.
    pub fn max_connections_per_ip_overrides(&self) -> Vec<(String, i32)> {
        max_connections_per_ip_overrides(self).unwrap_or_default()
    }

    /// Value of a listener's setting: `listener.name.{name}.{key}`, else `key` itself.
    pub fn for_listener(&self, listener: &str, key: &str) -> Value {
        let prefixed = format!("listener.name.{}.{key}", listener.to_lowercase());
        let own = self.effective.get(&prefixed).zip(definition::broker().get(key));
        own.and_then(|(text, definition)| definition.parse(text).ok()).unwrap_or_else(|| self.value(key).clone())
    }

    /// The topics that need more replicas than so many brokers can have, so that they can't be made: what sets their number, that
    /// number, and what does not work without them.
    pub fn unreachable_replicas(&self, brokers: usize) -> Vec<UnreachableReplicas> {
        const NEEDED: [(&str, &str); 3] = [
            ("offsets.topic.replication.factor", "__consumer_offsets can't be made, and no group works without it"),
            (
                "transaction.state.log.replication.factor",
                "__transaction_state can't be made, and no transaction works without it",
            ),
            ("default.replication.factor", "no topic can be made whose creator does not name a number"),
        ];
        let beyond = |(key, consequence): (&'static str, &'static str)| {
            let wanted = self.integer(key).filter(|wanted| usize::try_from(*wanted).is_ok_and(|n| n > brokers))?;
            Some(UnreachableReplicas { key, wanted, brokers, consequence })
        };
        NEEDED.into_iter().filter_map(beyond).collect()
    }

    /// Entries of a LIST key; empty for null and for other types.
    pub fn list(&self, name: &str) -> &[String] {
        match self.value(name) {
            Value::List(entries) => entries,
            _ => &[],
        }
    }

    /// Text of a STRING, CLASS or PASSWORD key.
    pub fn str(&self, name: &str) -> Option<&str> {
        match self.value(name) {
            Value::String(text) | Value::Password(text) => Some(text),
            _ => None,
        }
    }

    /// Number of an INT, SHORT or LONG key.
    pub fn integer(&self, name: &str) -> Option<i64> {
        self.value(name).integer()
    }
}

/// The raw texts of a configuration.
struct Layers {
    statics: Overrides,
    dynamic: DynamicConfig,
    effective: Overrides,
}

/// What Milena's start without a properties file sets where nobody else does. A node alone can have one replica only.
pub(crate) const OWN_START: [(&str, &str); 11] = [
    ("node.id", "1"),
    ("process.roles", "broker,controller"),
    ("listeners", "PLAINTEXT://localhost:9092"),
    ("log.dirs", "./milena-data"),
    ("controller.listener.names", "CONTROLLER"),
    ("controller.quorum.bootstrap.servers", "localhost:9093"),
    ("offsets.topic.replication.factor", "1"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
    ("share.coordinator.state.topic.replication.factor", "1"),
    ("share.coordinator.state.topic.min.isr", "1"),
];

fn fill_own_start(settings: &mut Settings) {
    for (name, value) in OWN_START {
        // The old name of the node's id stands for it.
        if name != "node.id" || settings.get("broker.id").is_none() {
            settings.set(name.to_owned(), value.to_owned(), Origin::BuiltIn);
        }
    }
}

/// Parses `max.connections.per.ip.overrides`.
fn max_connections_per_ip_overrides(config: &BrokerConfig) -> Result<Vec<(String, i32)>, ConfigError> {
    let name = "max.connections.per.ip.overrides";
    let entries = crate::value::parse_list(config.str(name).unwrap_or_default());
    let parse = |entry: &String| {
        let (host, limit) = entry.rsplit_once(':')?;
        Some((host.trim().to_owned(), limit.trim().parse().ok()?))
    };
    let refuse = |entry: &String| {
        ConfigError::rule(
            name,
            format!("Error parsing configuration property '{name}': {entry} is not {{ip}}:{{limit}}"),
        )
    };
    entries.iter().map(|entry| parse(entry).ok_or_else(|| refuse(entry))).collect()
}

/// `node.id` and `broker.id` stand for each other.
fn with_node_id_synonyms(mut statics: Overrides) -> Overrides {
    match (statics.get("node.id").cloned(), statics.get("broker.id").cloned()) {
        (Some(id), None) => statics.insert("broker.id".to_owned(), id),
        (None, Some(id)) => statics.insert("node.id".to_owned(), id),
        _ => None,
    };
    statics
}

/// Every known key's value, its default where nothing sets it, and all that is wrong.
fn parse_values(raw: &Overrides) -> (BTreeMap<&'static str, Value>, Vec<ConfigError>) {
    let mut errors = Vec::new();
    let mut values = BTreeMap::new();
    for definition in definition::broker().iter() {
        match parse_one(definition, raw.get(definition.name)) {
            Ok(value) => drop(values.insert(definition.name, value)),
            Err(error) => {
                errors.push(error);
                values.insert(definition.name, definition.default.clone());
            }
        }
    }
    for (name, text) in raw {
        let listed = definition::broker().get(name).is_some();
        errors.extend(if listed { None } else { dynamic::check_value(name, text).err() });
    }
    (values, errors)
}

fn parse_one(definition: &Definition, raw: Option<&String>) -> Result<Value, ConfigError> {
    match raw {
        Some(text) => definition.parse(text),
        None if definition.required => Err(ConfigError::Missing { name: definition.name.to_owned() }),
        None => Ok(definition.default.clone()),
    }
}
