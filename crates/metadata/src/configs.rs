//! Dynamic configuration: what `ConfigRecord`s said about topics, brokers, groups and client metrics. Their meaning,
//! defaults and validation live with the configuration definitions.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

/// The kind of thing that is configured, by Kafka's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigResourceType(pub i8);

impl ConfigResourceType {
    /// A topic, named.
    pub const TOPIC: Self = Self(2);
    /// A broker by id, or every broker when the name is empty.
    pub const BROKER: Self = Self(4);
    /// A broker's loggers.
    pub const BROKER_LOGGER: Self = Self(8);
    /// A client metrics subscription.
    pub const CLIENT_METRICS: Self = Self(16);
    /// A group.
    pub const GROUP: Self = Self(32);

    /// Kafka's name of the type; `UNKNOWN` for any other id.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TOPIC => "TOPIC",
            Self::BROKER => "BROKER",
            Self::BROKER_LOGGER => "BROKER_LOGGER",
            Self::CLIENT_METRICS => "CLIENT_METRICS",
            Self::GROUP => "GROUP",
            _ => "UNKNOWN",
        }
    }
}

/// One thing that can be configured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigResource {
    /// What kind of thing it is.
    pub kind: ConfigResourceType,
    /// Its name; empty for the default of its kind.
    pub name: String,
}

impl ConfigResource {
    /// A topic.
    pub fn topic(name: &str) -> Self {
        Self { kind: ConfigResourceType::TOPIC, name: name.to_owned() }
    }

    /// One broker.
    pub fn broker(id: i32) -> Self {
        Self { kind: ConfigResourceType::BROKER, name: id.to_string() }
    }

    /// The default of all brokers.
    pub fn default_broker() -> Self {
        Self { kind: ConfigResourceType::BROKER, name: String::new() }
    }

    /// A group.
    pub fn group(id: &str) -> Self {
        Self { kind: ConfigResourceType::GROUP, name: id.to_owned() }
    }
}

impl fmt::Display for ConfigResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConfigResource(type={}, name='{}')", self.kind.name(), self.name)
    }
}

/// Names and values set on one resource, ascending by name.
pub type ConfigMap = BTreeMap<String, String>;

/// All dynamic configuration. A clone shares everything with its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configs {
    resources: RedBlackTreeMapSync<ConfigResource, Arc<ConfigMap>>,
}

impl Configs {
    /// What is set on a resource; `None` when nothing is.
    pub fn get(&self, resource: &ConfigResource) -> Option<&Arc<ConfigMap>> {
        self.resources.get(resource)
    }

    /// What is set on a topic; `None` when nothing is.
    pub fn topic(&self, name: &str) -> Option<&Arc<ConfigMap>> {
        self.get(&ConfigResource::topic(name))
    }

    /// One value set on a resource.
    pub fn value(&self, resource: &ConfigResource, name: &str) -> Option<&str> {
        self.get(resource)?.get(name).map(String::as_str)
    }

    /// All resources that have something set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (&ConfigResource, &Arc<ConfigMap>)> {
        self.resources.iter()
    }

    pub(crate) fn set(&mut self, resource: &ConfigResource, name: &str, value: Option<&str>) {
        let mut map = self.resources.get(resource).cloned().unwrap_or_default();
        let entries = Arc::make_mut(&mut map);
        match value {
            Some(value) => entries.insert(name.to_owned(), value.to_owned()),
            None => entries.remove(name),
        };
        if map.is_empty() {
            self.resources.remove_mut(resource);
        } else {
            self.resources.insert_mut(resource.clone(), map);
        }
    }

    pub(crate) fn remove(&mut self, resource: &ConfigResource) -> bool {
        self.resources.remove_mut(resource)
    }
}
