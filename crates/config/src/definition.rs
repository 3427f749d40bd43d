//! What a configuration key is, and the catalogs of all of Kafka's keys and ours. The tables are data
//! (`data/*.tsv`), read once; no key is spelled out in code here.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::error::ConfigError;
use crate::validator::Validator;
use crate::value::Value;

/// The type of a configuration's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConfigType {
    /// `true` or `false`.
    Boolean,
    /// Text.
    String,
    /// 32 bits.
    Int,
    /// 16 bits.
    Short,
    /// 64 bits.
    Long,
    /// 64-bit floating point.
    Double,
    /// Comma separated texts.
    List,
    /// The name of a Java class.
    Class,
    /// Text that is never shown.
    Password,
}

impl ConfigType {
    /// Code in DescribeConfigs responses, version 3 and later.
    pub fn code(self) -> i8 {
        match self {
            Self::Boolean => 1,
            Self::String => 2,
            Self::Int => 3,
            Self::Short => 4,
            Self::Long => 5,
            Self::Double => 6,
            Self::List => 7,
            Self::Class => 8,
            Self::Password => 9,
        }
    }

    /// Kafka's name of the type: `INT`, `LIST`, ….
    pub fn name(self) -> &'static str {
        match self {
            Self::Boolean => "BOOLEAN",
            Self::String => "STRING",
            Self::Int => "INT",
            Self::Short => "SHORT",
            Self::Long => "LONG",
            Self::Double => "DOUBLE",
            Self::List => "LIST",
            Self::Class => "CLASS",
            Self::Password => "PASSWORD",
        }
    }

    fn from_name(name: &str) -> Self {
        const ALL: [ConfigType; 9] = [
            ConfigType::Boolean,
            ConfigType::String,
            ConfigType::Int,
            ConfigType::Short,
            ConfigType::Long,
            ConfigType::Double,
            ConfigType::List,
            ConfigType::Class,
            ConfigType::Password,
        ];
        ALL.into_iter().find(|t| t.name() == name).unwrap_or_else(|| panic!("unknown type {name} in a table"))
    }
}

/// When a broker configuration may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateMode {
    /// Only by a restart.
    ReadOnly,
    /// Dynamically, for one named broker.
    PerBroker,
    /// Dynamically, for one broker or as the default of all.
    ClusterWide,
    /// As cluster-wide, and not known to `server.properties` (the replication throttles).
    DynamicOnly,
}

impl UpdateMode {
    /// Kafka's name of the mode.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::PerBroker => "per-broker",
            Self::ClusterWide => "cluster-wide",
            Self::DynamicOnly => "dynamic-only",
        }
    }
}

/// One configuration key.
#[derive(Debug, Clone)]
pub struct Definition {
    /// The key.
    pub name: &'static str,
    /// Type of its value.
    pub kind: ConfigType,
    /// Default value; [`Value::Null`] both for a null default and for a required key.
    pub default: Value,
    /// No default: somebody must set it.
    pub required: bool,
    /// What values are allowed.
    pub validator: Validator,
    /// `HIGH`, `MEDIUM` or `LOW`.
    pub importance: &'static str,
    /// When it may change; other resources than brokers may always change.
    pub update_mode: UpdateMode,
    /// The value is never shown.
    pub sensitive: bool,
    /// Not listed unless set.
    pub internal: bool,
    /// The broker configuration that is the default of this topic or group configuration.
    pub broker_key: Option<&'static str>,
    /// Broker configurations that bound this group configuration from below and above.
    pub broker_bounds: (Option<&'static str>, Option<&'static str>),
    /// Milena acts on it as Kafka does; otherwise it is parsed, validated and described only.
    pub effective: bool,
}

impl Definition {
    /// Parses and validates a raw value.
    ///
    /// # Errors
    /// Kafka's message for a value of the wrong type or out of bounds.
    pub fn parse(&self, text: &str) -> Result<Value, ConfigError> {
        let mut value = Value::parse(self.name, self.kind, text)?;
        self.validator.normalise(&mut value);
        self.validator.check(self.name, &value)?;
        Ok(value)
    }

    /// Text of the default, `None` when there is none or it is null.
    pub fn default_text(&self) -> Option<String> {
        self.default.text()
    }
}

/// All keys of one kind of resource, ordered by name.
#[derive(Debug)]
pub struct Catalog {
    definitions: Vec<Definition>,
    index: HashMap<&'static str, usize>,
}

impl Catalog {
    /// The key of that name.
    pub fn get(&self, name: &str) -> Option<&Definition> {
        self.index.get(name).map(|i| &self.definitions[*i])
    }

    /// All keys by name.
    pub fn iter(&self) -> impl Iterator<Item = &Definition> {
        self.definitions.iter()
    }

    fn new(kind: &str, tables: &[&'static str]) -> Self {
        let mut definitions: Vec<Definition> = tables.iter().flat_map(|table| read_table(table)).collect();
        definitions.sort_by_key(|d| d.name);
        for (_, name) in effective_keys().filter(|(k, _)| *k == kind) {
            let definition = definitions.iter_mut().find(|d| d.name == name);
            definition.unwrap_or_else(|| panic!("effective.tsv: no {kind} key {name}")).effective = true;
        }
        let index = definitions.iter().enumerate().map(|(i, d)| (d.name, i)).collect();
        Self { definitions, index }
    }
}

/// Broker keys: Kafka's and Milena's own (`milena.*`).
pub fn broker() -> &'static Catalog {
    static CATALOG: LazyLock<Catalog> = LazyLock::new(|| {
        Catalog::new("broker", &[include_str!("../data/broker.tsv"), include_str!("../data/milena.tsv")])
    });
    &CATALOG
}

/// Topic keys.
pub fn topic() -> &'static Catalog {
    static CATALOG: LazyLock<Catalog> = LazyLock::new(|| Catalog::new("topic", &[include_str!("../data/topic.tsv")]));
    &CATALOG
}

/// Group keys.
pub fn group() -> &'static Catalog {
    static CATALOG: LazyLock<Catalog> = LazyLock::new(|| Catalog::new("group", &[include_str!("../data/group.tsv")]));
    &CATALOG
}

/// Client metrics subscription keys.
pub fn client_metrics() -> &'static Catalog {
    static CATALOG: LazyLock<Catalog> =
        LazyLock::new(|| Catalog::new("client_metrics", &[include_str!("../data/client_metrics.tsv")]));
    &CATALOG
}

/// Kind of resource and name of every key that Milena acts on.
fn effective_keys() -> impl Iterator<Item = (&'static str, &'static str)> {
    include_str!("../data/effective.tsv").lines().skip(1).filter_map(|line| line.split_once('\t'))
}

/// Reads a table whose first line names the columns. The tables are part of the program, so a bad line is a
/// bug that the first test run meets: it panics with the line.
fn read_table(table: &'static str) -> Vec<Definition> {
    let mut lines = table.lines();
    let columns: Vec<&str> = lines.next().unwrap_or_default().split('\t').collect();
    lines.filter(|line| !line.is_empty()).map(|line| read_line(&columns, line)).collect()
}

fn read_line(columns: &[&str], line: &'static str) -> Definition {
    let cells: Vec<&'static str> = line.split('\t').collect();
    let optional = |name: &str| {
        columns.iter().position(|c| *c == name).and_then(|i| cells.get(i).copied()).filter(|cell| *cell != "-")
    };
    let cell = |name: &str| optional(name).unwrap_or_else(|| panic!("no {name} in table line {line:?}"));
    let name = cell("name");
    let kind = ConfigType::from_name(cell("type"));
    let default = match cell("default") {
        "null" | "required" => Value::Null,
        "\"\"" => parse_default(name, kind, ""),
        text => parse_default(name, kind, text),
    };
    let bounds = optional("broker_bounds").and_then(|b| b.split_once(".."));
    let bound = |text: &'static str| Some(text).filter(|t| !t.is_empty());
    Definition {
        name,
        kind,
        default,
        required: cell("default") == "required",
        validator: Validator::from_table(cell("valid")),
        importance: cell("importance"),
        update_mode: match optional("update") {
            Some("read-only") => UpdateMode::ReadOnly,
            Some("per-broker") => UpdateMode::PerBroker,
            Some("dynamic-only") => UpdateMode::DynamicOnly,
            Some("cluster-wide") | None => UpdateMode::ClusterWide,
            Some(other) => panic!("unknown update mode {other} of {name}"),
        },
        sensitive: kind == ConfigType::Password,
        internal: optional("internal") == Some("true"),
        broker_key: optional("broker_key"),
        broker_bounds: bounds.map_or((None, None), |(low, high)| (bound(low), bound(high))),
        effective: false,
    }
}

fn parse_default(name: &str, kind: ConfigType, text: &str) -> Value {
    Value::parse(name, kind, text).unwrap_or_else(|error| panic!("bad default in a table: {error}"))
}
