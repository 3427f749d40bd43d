//! Where static settings come from and which of them wins: flags over environment over file. Settings are
//! raw texts with their origin here; the broker's configuration gives them types.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::definition;
use crate::dynamic;
use crate::environment;
use crate::properties;
use crate::suggest;
use crate::value;

/// Where a setting was made. The order is the precedence, lowest first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Milena's own start without a file.
    BuiltIn,
    /// A properties file.
    File {
        /// The file.
        path: PathBuf,
        /// Line of the entry, from 1.
        line: usize,
    },
    /// An environment variable.
    Environment {
        /// Its name.
        variable: String,
    },
    /// The command line.
    Flag {
        /// The flag as typed: `--override num.partitions=0`.
        flag: String,
    },
}

/// Rank of the command line, the highest.
const FLAG: u8 = 3;

impl Origin {
    fn rank(&self) -> u8 {
        match self {
            Self::BuiltIn => 0,
            Self::File { .. } => 1,
            Self::Environment { .. } => 2,
            Self::Flag { .. } => FLAG,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built in"),
            Self::File { path, line } => write!(f, "{}, line {line}", path.display()),
            Self::Environment { variable } => write!(f, "environment variable {variable}"),
            Self::Flag { flag } => write!(f, "{flag}"),
        }
    }
}

/// One raw setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Raw value.
    pub value: String,
    /// Where it was made.
    pub origin: Origin,
}

/// Something that does not stop the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The whole sentence.
    pub message: String,
}

/// A source of settings that cannot be read.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// A properties file with a broken escape.
    #[error("{path}: {source}")]
    Properties {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: properties::MalformedEscape,
    },
    /// An override that is not `name=value`.
    #[error("--override {0}: expected name=value")]
    Override(String),
    /// A `--listen` without host and port.
    #[error("--listen {0}: expected HOST:PORT, such as localhost:9092, or :9092 for all interfaces")]
    Listen(String),
}

/// The raw static settings by name.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    entries: BTreeMap<String, Setting>,
    has_file: bool,
    /// What `--listen` says.
    listen: Option<String>,
}

impl Settings {
    /// No settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the text of a properties file; of a repeated name the last counts.
    ///
    /// # Errors
    /// A malformed unicode escape.
    pub fn file(&mut self, path: &Path, text: &str) -> Result<(), SettingsError> {
        self.has_file = true;
        let parsed =
            properties::parse(text).map_err(|source| SettingsError::Properties { path: path.to_owned(), source })?;
        for property in parsed {
            let origin = Origin::File { path: path.to_owned(), line: property.line };
            self.set(property.name, property.value, origin);
        }
        Ok(())
    }

    /// Adds the `KAFKA_*` variables among `variables`.
    pub fn environment(&mut self, variables: impl IntoIterator<Item = (String, String)>) {
        for (variable, value) in variables {
            if let Some(name) = environment::configuration_name(&variable) {
                self.set(name, value, Origin::Environment { variable });
            }
        }
    }

    /// Adds one `--override name=value`.
    ///
    /// # Errors
    /// A text without `=` or without name.
    pub fn override_flag(&mut self, text: &str) -> Result<(), SettingsError> {
        let parts = text.split_once('=').filter(|(name, _)| !name.trim().is_empty());
        let (name, value) = parts.ok_or_else(|| SettingsError::Override(text.to_owned()))?;
        self.set(name.trim().to_owned(), value.to_owned(), Origin::Flag { flag: format!("--override {text}") });
        Ok(())
    }

    /// `--data-dir DIR`: the one log directory.
    pub fn data_dir_flag(&mut self, dir: &str) {
        self.set("log.dirs".to_owned(), dir.to_owned(), Origin::Flag { flag: format!("--data-dir {dir}") });
    }

    /// `--listen ADDRESS`: `host:port`, or listeners as Kafka writes them. They take the place of those that clients and
    /// brokers use; the controllers' stay.
    ///
    /// # Errors
    /// An address without a port.
    pub fn listen_flag(&mut self, address: &str) -> Result<(), SettingsError> {
        let has_port = |place: &String| place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let places = value::parse_list(address);
        if places.is_empty() || !places.iter().all(has_port) {
            return Err(SettingsError::Listen(address.to_owned()));
        }
        self.listen = Some(address.to_owned());
        Ok(())
    }

    /// Sets `listeners` to what `--listen` and the other sources make of it.
    pub(crate) fn apply_listen_flag(&mut self) {
        let Some(address) = self.listen.take() else { return };
        let entries = |name| self.get(name).map_or_else(Vec::new, |setting| value::parse_list(&setting.value));
        let name_of = |listener: &str| listener.split_once("://").map(|(name, _)| name.to_uppercase());
        let controllers = entries("controller.listener.names");
        let (kept, replaced): (Vec<String>, Vec<String>) = entries("listeners")
            .into_iter()
            .partition(|listener| name_of(listener).is_some_and(|name| controllers.contains(&name)));
        let mut listeners = value::parse_list(&address);
        if let [place] = &mut listeners[..]
            && !place.contains("://")
        {
            let name = if let [one] = &replaced[..] { name_of(one) } else { None };
            *place = format!("{}://{place}", name.unwrap_or_else(|| "PLAINTEXT".to_owned()));
        }
        let named_anew = |listener: &String| listeners.iter().any(|new| name_of(new) == name_of(listener));
        let kept: Vec<String> = kept.into_iter().filter(|listener| !named_anew(listener)).collect();
        listeners.extend(kept);
        let origin = Origin::Flag { flag: format!("--listen {address}") };
        self.set("listeners".to_owned(), listeners.join(","), origin);
    }

    /// Sets a value unless one of higher precedence is there.
    pub fn set(&mut self, name: String, value: String, origin: Origin) {
        let stays = self.entries.get(&name).is_some_and(|present| present.origin.rank() > origin.rank());
        if !stays {
            self.entries.insert(name, Setting { value, origin });
        }
    }

    /// The setting of that name.
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.entries.get(name)
    }

    /// Whether a properties file is among the sources.
    pub fn has_file(&self) -> bool {
        self.has_file
    }

    /// All settings by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Setting)> {
        self.entries.iter().map(|(name, setting)| (name.as_str(), setting))
    }

    /// One warning for each name that no definition knows, with the nearest one that exists, and one for `--listen` beside
    /// an address that clients are told all the same.
    pub fn warnings(&self) -> Vec<Warning> {
        let unknown = self.iter().filter(|(name, _)| dynamic::definition_of(name).is_none()).map(unknown_name);
        let told = self.get("advertised.listeners").filter(|told| self.listen.is_some() && told.origin.rank() < FLAG);
        let told = told.map(|Setting { value, origin }| Warning {
            message: format!("clients are told advertised.listeners={value} ({origin}), whatever --listen says"),
        });
        unknown.chain(told).collect()
    }

    /// One warning for the names whose values ask for something that does not happen here, for a node that starts.
    pub fn without_effect(&self) -> Option<Warning> {
        let idle: Vec<&str> =
            self.iter().filter(|(name, setting)| is_idle(name, setting)).map(|(name, _)| name).collect();
        (!idle.is_empty()).then(|| Warning { message: format!("without effect: {}", idle.join(", ")) })
    }
}

/// Values that a node without others is right to have: nothing is missed where nothing acts on them. `None` is any value.
const RIGHT_ALONE: [(&str, Option<&str>); 3] = [
    ("inter.broker.listener.name", None),
    ("share.coordinator.state.topic.min.isr", Some("1")),
    ("share.coordinator.state.topic.replication.factor", Some("1")),
];

fn is_idle(name: &str, setting: &Setting) -> bool {
    let value = setting.value.trim();
    let is_right = |(key, right): &(&str, Option<&str>)| *key == name && right.is_none_or(|right| right == value);
    let asks_in_vain = |d: &definition::Definition| {
        !d.effective && d.default_text().unwrap_or_default() != value && !RIGHT_ALONE.iter().any(is_right)
    };
    dynamic::definition_of(name).is_some_and(asks_in_vain)
}

fn unknown_name((name, setting): (&str, &Setting)) -> Warning {
    let nearest = suggest::nearest(name, definition::broker().iter().map(|d| d.name));
    let hint = nearest.map(|n| format!(", did you mean {n}?")).unwrap_or_default();
    Warning { message: format!("unknown configuration {name} ({}){hint}", setting.origin) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_environment_and_environment_over_file() {
        let mut settings = Settings::new();
        settings.override_flag("a=flag").unwrap();
        settings.environment([("KAFKA_A".into(), "env".into()), ("KAFKA_B".into(), "env".into())]);
        settings.file(Path::new("s.properties"), "a=file\nb=file\nc=1\nc=2").unwrap();
        let value = |name: &str| settings.get(name).unwrap().value.as_str();
        assert_eq!((value("a"), value("b"), value("c")), ("flag", "env", "2"));
        assert_eq!(settings.get("c").unwrap().origin.to_string(), "s.properties, line 4");
    }

    #[test]
    fn an_unknown_name_is_a_warning_with_the_nearest_name() {
        let mut settings = Settings::new();
        settings.file(Path::new("f"), "num.partition=3\nlog.dirs=/d").unwrap();
        let messages: Vec<_> = settings.warnings().into_iter().map(|w| w.message).collect();
        assert_eq!(messages, ["unknown configuration num.partition (f, line 1), did you mean num.partitions?"]);
    }

    #[test]
    fn an_address_to_listen_at_has_a_port() {
        for address in ["localhost:9092", ":9092", "[::1]:0", "A://h:1,B://:2"] {
            assert!(Settings::new().listen_flag(address).is_ok(), "{address}");
        }
        for address in ["9092", "localhost", "", "A://h", "h:x", "h:1,h"] {
            let error = Settings::new().listen_flag(address).unwrap_err().to_string();
            assert!(error.contains("expected HOST:PORT"), "{error}");
        }
    }

    #[test]
    fn values_that_are_right_for_a_node_alone_are_not_told_to_be_without_effect() {
        let mut settings = Settings::new();
        let text = "inter.broker.listener.name=PLAINTEXT\nshare.coordinator.state.topic.replication.factor=1\n\
                    share.coordinator.state.topic.min.isr=1\ntransaction.state.log.min.isr=1\nauthorizer.class.name=";
        settings.file(Path::new("f"), text).unwrap();
        assert_eq!(settings.without_effect(), None);
        settings.override_flag("share.coordinator.state.topic.replication.factor=2").unwrap();
        let message = settings.without_effect().unwrap().message;
        assert_eq!(message, "without effect: share.coordinator.state.topic.replication.factor");
    }

    #[test]
    fn names_that_change_nothing_are_told_where_they_are_not_at_their_default() {
        let mut settings = Settings::new();
        let text = "num.replica.fetchers=4\nlistener.name.x.ssl.key.password=s\nreplica.fetch.min.bytes=1\nlog.dirs=/d";
        settings.file(Path::new("f"), text).unwrap();
        let message = settings.without_effect().unwrap().message;
        assert_eq!(message, "without effect: listener.name.x.ssl.key.password, num.replica.fetchers");
        assert!(settings.warnings().is_empty());
    }

    #[test]
    fn what_clients_are_told_beside_a_listen_flag_is_a_warning() {
        let mut settings = Settings::new();
        settings.file(Path::new("f"), "advertised.listeners=PLAINTEXT://a:1").unwrap();
        assert!(settings.warnings().is_empty());
        settings.listen_flag("localhost:2").unwrap();
        let messages: Vec<_> = settings.warnings().into_iter().map(|w| w.message).collect();
        assert_eq!(
            messages,
            ["clients are told advertised.listeners=PLAINTEXT://a:1 (f, line 1), whatever --listen says"]
        );
        settings.override_flag("advertised.listeners=PLAINTEXT://localhost:2").unwrap();
        assert!(settings.warnings().is_empty());
    }

    #[test]
    fn an_override_needs_a_name_and_a_value() {
        for text in ["a", "=b", " =b"] {
            assert!(Settings::new().override_flag(text).is_err(), "{text}");
        }
    }
}
