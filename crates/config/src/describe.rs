//! The entries of a DescribeConfigs response, without the wire: effective value, source, synonyms. Which
//! resources exist and who may see them is the caller's business.

use std::collections::BTreeSet;

use crate::Overrides;
use crate::broker::BrokerConfig;
use crate::definition::{self, Definition, UpdateMode};
use crate::documentation;
use crate::dynamic;
use crate::group;
use crate::topic::TopicConfig;

/// Where a value comes from. [`Source::code`] is the code on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Override of a topic.
    Topic,
    /// Dynamic configuration of one broker.
    DynamicBroker,
    /// Dynamic configuration of all brokers.
    DynamicDefaultBroker,
    /// `server.properties`, environment, flags.
    StaticBroker,
    /// The default.
    Default,
    /// Level of a logger.
    DynamicBrokerLogger,
    /// Override of a client metrics subscription.
    ClientMetrics,
    /// Override of a group.
    Group,
}

impl Source {
    /// Code in DescribeConfigs responses.
    pub fn code(self) -> i8 {
        match self {
            Self::Topic => 1,
            Self::DynamicBroker => 2,
            Self::DynamicDefaultBroker => 3,
            Self::StaticBroker => 4,
            Self::Default => 5,
            Self::DynamicBrokerLogger => 6,
            Self::ClientMetrics => 7,
            Self::Group => 8,
        }
    }
}

/// A name under which a value is, or could be, set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synonym {
    /// The name.
    pub name: String,
    /// The value there; `None` if sensitive.
    pub value: Option<String>,
    /// Where it is set.
    pub source: Source,
}

/// One configuration of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub name: String,
    /// Effective value; `None` if unset or sensitive.
    pub value: Option<String>,
    /// Cannot change while the node runs.
    pub read_only: bool,
    /// Where the value comes from.
    pub source: Source,
    /// The value is not shown.
    pub sensitive: bool,
    /// All values, effective one first; empty unless asked for.
    pub synonyms: Vec<Synonym>,
    /// Code of the type, 0 for unknown keys.
    pub kind: i8,
    /// One line about the key; `None` unless asked for.
    pub documentation: Option<String>,
}

/// What a DescribeConfigs request asks for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    /// Keys to describe; none or an empty list means all, unknown ones are left out.
    pub keys: Option<&'a BTreeSet<&'a str>>,
    /// Fill [`Entry::synonyms`].
    pub synonyms: bool,
    /// Fill [`Entry::documentation`].
    pub documentation: bool,
}

impl Options<'_> {
    fn wants(&self, name: &str) -> bool {
        self.keys.is_none_or(|keys| keys.is_empty() || keys.contains(name))
    }

    fn documentation(&self, definition: Option<&Definition>) -> Option<String> {
        definition.filter(|_| self.documentation).map(documentation::line)
    }
}

/// A topic with `overrides`.
pub fn topic(broker: &BrokerConfig, overrides: &Overrides, options: Options<'_>) -> Vec<Entry> {
    let config = TopicConfig::new(broker, overrides);
    let mut entries = Vec::new();
    for definition in definition::topic().iter().filter(|d| options.wants(d.name)) {
        let overridden = overrides.contains_key(definition.name);
        if definition.internal && !overridden {
            continue;
        }
        let value = config.value(definition.name).text();
        let mut synonyms = definition.broker_key.map(|key| broker_synonyms(broker, key)).unwrap_or_default();
        if overridden {
            synonyms.insert(0, own_synonym(definition, value.clone(), Source::Topic));
        }
        entries.push(entry(definition, value, false, synonyms, options));
    }
    entries
}

/// The node itself.
pub fn broker(broker: &BrokerConfig, options: Options<'_>) -> Vec<Entry> {
    let known = definition::broker().iter().filter(|d| {
        let set = broker.effective().contains_key(d.name) || broker.statics().contains_key(d.name);
        set || !(d.internal || d.update_mode == UpdateMode::DynamicOnly)
    });
    let known = known.filter(|d| options.wants(d.name)).map(|d| (d.name, broker.text(d.name)));
    let others = broker.effective().iter().filter(|(name, _)| definition::broker().get(name).is_none());
    let others = others.filter(|(name, _)| options.wants(name));
    let others = others.map(|(name, value)| (name.as_str(), Some(value.clone())));
    known.chain(others).map(|(name, value)| broker_entry(broker, name, value, true, options)).collect()
}

/// The dynamic default of all brokers (resource with the empty name).
pub fn broker_default(broker: &BrokerConfig, options: Options<'_>) -> Vec<Entry> {
    let wanted = broker.dynamic().default.iter().filter(|(name, _)| options.wants(name));
    wanted.map(|(name, value)| broker_entry(broker, name, Some(value.clone()), false, options)).collect()
}

/// A group with `overrides`.
pub fn group(broker: &BrokerConfig, overrides: &Overrides, options: Options<'_>) -> Vec<Entry> {
    let mut entries = Vec::new();
    for definition in definition::group().iter().filter(|d| options.wants(d.name)) {
        let overridden = overrides.get(definition.name).and_then(|text| definition.parse(text).ok());
        if definition.internal && overridden.is_none() {
            continue;
        }
        let default = group::default_value(broker, definition);
        let value = overridden.clone().unwrap_or_else(|| default.clone()).text();
        let mut synonyms = match definition.broker_key {
            Some(key) => broker_synonyms(broker, key),
            None => default.text().map(|t| own_synonym(definition, Some(t), Source::Default)).into_iter().collect(),
        };
        if overridden.is_some() {
            synonyms.insert(0, own_synonym(definition, value.clone(), Source::Group));
        }
        entries.push(entry(definition, value, false, synonyms, options));
    }
    entries
}

/// A client metrics subscription with `overrides`.
pub fn client_metrics(overrides: &Overrides, options: Options<'_>) -> Vec<Entry> {
    let wanted = definition::client_metrics().iter().filter(|d| options.wants(d.name));
    wanted
        .map(|definition| {
            let overridden = overrides.get(definition.name).and_then(|text| definition.parse(text).ok());
            let own = overridden.as_ref().map(|v| own_synonym(definition, v.text(), Source::ClientMetrics));
            let value = overridden.unwrap_or_else(|| definition.default.clone()).text();
            entry(definition, value, false, own.into_iter().collect(), options)
        })
        .collect()
}

/// The loggers of a node, by name and level.
pub fn loggers<'a>(loggers: impl IntoIterator<Item = (&'a str, &'a str)>, options: Options<'_>) -> Vec<Entry> {
    let wanted = loggers.into_iter().filter(|(name, _)| options.wants(name));
    wanted
        .map(|(name, level)| Entry {
            name: name.to_owned(),
            value: Some(level.to_owned()),
            read_only: false,
            source: Source::DynamicBrokerLogger,
            sensitive: false,
            synonyms: Vec::new(),
            kind: 0,
            documentation: Some(String::new()),
        })
        .collect()
}

fn broker_entry(broker: &BrokerConfig, name: &str, value: Option<String>, own: bool, options: Options<'_>) -> Entry {
    let definition = dynamic::definition_of(name);
    let sensitive = definition.is_none_or(|d| d.sensitive);
    let mut synonyms = broker_synonyms(broker, name);
    synonyms.retain(|s| own || s.source == Source::DynamicDefaultBroker);
    let source = synonyms.first().map_or(Source::Default, |s| s.source);
    if !options.synonyms {
        synonyms.clear();
    }
    Entry {
        name: name.to_owned(),
        value: value.filter(|_| !sensitive),
        read_only: !dynamic::is_dynamic(name),
        source,
        sensitive,
        synonyms,
        kind: definition.map_or(0, |d| d.kind.code()),
        documentation: options.documentation(definition),
    }
}

fn entry(
    definition: &Definition,
    value: Option<String>,
    read_only: bool,
    mut synonyms: Vec<Synonym>,
    options: Options<'_>,
) -> Entry {
    let source = synonyms.first().map_or(Source::Default, |s| s.source);
    if !options.synonyms {
        synonyms.clear();
    }
    Entry {
        name: definition.name.to_owned(),
        value,
        read_only,
        source,
        sensitive: definition.sensitive,
        synonyms,
        kind: definition.kind.code(),
        documentation: options.documentation(Some(definition)),
    }
}

fn own_synonym(definition: &Definition, value: Option<String>, source: Source) -> Synonym {
    Synonym { name: definition.name.to_owned(), value, source }
}

/// Where the broker key `name` and those it is looked up together with are set, highest first. What comes before
/// the first entry of `name` itself is left out, as Kafka leaves it out.
fn broker_synonyms(broker: &BrokerConfig, name: &str) -> Vec<Synonym> {
    let sensitive = dynamic::definition_of(name).is_none_or(|d| d.sensitive);
    let names = dynamic::synonyms(name);
    let dynamic = broker.dynamic();
    let layers = [
        (&dynamic.broker, Source::DynamicBroker),
        (&dynamic.default, Source::DynamicDefaultBroker),
        (broker.statics(), Source::StaticBroker),
    ];
    let mut synonyms = Vec::new();
    let shown = |value: String| Some(value).filter(|_| !sensitive);
    for (layer, source) in layers {
        for name in &names {
            if let Some(value) = layer.get(*name) {
                synonyms.push(Synonym { name: (*name).to_owned(), value: shown(value.clone()), source });
            }
        }
    }
    for name in &names {
        // The dynamic-only keys are unknown to the file's definitions, so they have no default there.
        let default = definition::broker().get(name).filter(|d| d.update_mode != UpdateMode::DynamicOnly);
        if let Some(value) = default.and_then(Definition::default_text) {
            synonyms.push(Synonym { name: (*name).to_owned(), value: shown(value), source: Source::Default });
        }
    }
    synonyms.into_iter().skip_while(|s| s.name != name).collect()
}
