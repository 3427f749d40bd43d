//! Configurations of topics, brokers, groups and client metrics.

use std::collections::BTreeMap;

use milena_protocol::messages::ListConfigResourcesRequest;
use milena_protocol::messages::describe_configs_request::{DescribeConfigsRequest, DescribeConfigsResource};
use milena_protocol::messages::describe_configs_response::{DescribeConfigsResourceResult, DescribeConfigsSynonym};
use milena_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};

use super::{Admin, Outcomes};
use crate::call::Target;
use crate::error::{Error, check};

/// What has configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceType {
    /// A topic.
    Topic,
    /// A broker; all of them when the name is empty.
    Broker,
    /// The loggers of a broker.
    BrokerLogger,
    /// A subscription to clients' metrics.
    ClientMetrics,
    /// A group.
    Group,
}

impl ResourceType {
    const ALL: [Self; 5] = [Self::Topic, Self::Broker, Self::BrokerLogger, Self::ClientMetrics, Self::Group];

    const fn number(self) -> i8 {
        match self {
            Self::Topic => 2,
            Self::Broker => 4,
            Self::BrokerLogger => 8,
            Self::ClientMetrics => 16,
            Self::Group => 32,
        }
    }

    fn of_number(number: i8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

/// One thing that has configurations.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigResource {
    /// What it is.
    pub kind: ResourceType,
    /// Its name: a topic's, a broker's id, a group's.
    pub name: String,
}

impl ConfigResource {
    /// A topic.
    pub fn topic(name: impl Into<String>) -> Self {
        Self { kind: ResourceType::Topic, name: name.into() }
    }

    /// Broker-side answers come from the broker itself.
    fn target(&self) -> Target<'static> {
        match (self.kind, self.name.parse()) {
            (ResourceType::Broker | ResourceType::BrokerLogger, Ok(id)) => Target::Broker(id),
            _ => Target::Any,
        }
    }
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConfigSource {
    /// The topic's own.
    DynamicTopic,
    /// The broker's own, changed while it runs.
    DynamicBroker,
    /// All brokers', changed while they run.
    DynamicDefaultBroker,
    /// The broker's file.
    StaticBroker,
    /// Nobody set it.
    Default,
    /// A logger's level.
    DynamicBrokerLogger,
    /// The subscription's own.
    ClientMetrics,
    /// The group's own.
    Group,
    /// Something that this client does not know.
    Unknown,
}

impl ConfigSource {
    fn of_number(number: i8) -> Self {
        match number {
            1 => Self::DynamicTopic,
            2 => Self::DynamicBroker,
            3 => Self::DynamicDefaultBroker,
            4 => Self::StaticBroker,
            5 => Self::Default,
            6 => Self::DynamicBrokerLogger,
            7 => Self::ClientMetrics,
            8 => Self::Group,
            _ => Self::Unknown,
        }
    }

    /// Kafka's name, such as `DYNAMIC_TOPIC_CONFIG`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DynamicTopic => "DYNAMIC_TOPIC_CONFIG",
            Self::DynamicBroker => "DYNAMIC_BROKER_CONFIG",
            Self::DynamicDefaultBroker => "DYNAMIC_DEFAULT_BROKER_CONFIG",
            Self::StaticBroker => "STATIC_BROKER_CONFIG",
            Self::Default => "DEFAULT_CONFIG",
            Self::DynamicBrokerLogger => "DYNAMIC_BROKER_LOGGER_CONFIG",
            Self::ClientMetrics => "DYNAMIC_CLIENT_METRICS_CONFIG",
            Self::Group => "DYNAMIC_GROUP_CONFIG",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
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
    /// A fraction.
    Double,
    /// Texts with commas between them.
    List,
    /// A Java class.
    Class,
    /// A secret.
    Password,
    /// Something that this client does not know.
    Unknown,
}

impl ConfigType {
    fn of_number(number: i8) -> Self {
        match number {
            1 => Self::Boolean,
            2 => Self::String,
            3 => Self::Int,
            4 => Self::Short,
            5 => Self::Long,
            6 => Self::Double,
            7 => Self::List,
            8 => Self::Class,
            9 => Self::Password,
            _ => Self::Unknown,
        }
    }
}

/// One configuration and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigEntry {
    /// Its name.
    pub name: String,
    /// Its value; `None` when there is none or it is secret.
    pub value: Option<String>,
    /// Where the value comes from.
    pub source: ConfigSource,
    /// Whether it can't be changed while the broker runs.
    pub read_only: bool,
    /// Whether its value is secret.
    pub sensitive: bool,
    /// What the value is.
    pub kind: ConfigType,
    /// All places that have a value, the one that counts first; empty unless asked for.
    pub synonyms: Vec<ConfigSynonym>,
}

impl ConfigEntry {
    /// Whether nobody set it.
    pub fn is_default(&self) -> bool {
        self.source == ConfigSource::Default
    }
}

/// A value in one of the places that can have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigSynonym {
    /// The name there.
    pub name: String,
    /// The value there.
    pub value: Option<String>,
    /// The place.
    pub source: ConfigSource,
}

/// A change of one configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigChange {
    /// Gives it a value.
    Set(String, String),
    /// Takes its value away.
    Delete(String),
    /// Adds to a list.
    Append(String, String),
    /// Takes from a list.
    Subtract(String, String),
}

impl Admin {
    /// The configurations of resources, with what lies below their values if asked.
    ///
    /// # Errors
    /// When a broker that must be asked does not answer.
    pub async fn describe_configs(
        &self,
        resources: Vec<ConfigResource>,
        synonyms: bool,
    ) -> Result<Outcomes<ConfigResource, Vec<ConfigEntry>>, Error> {
        let mut found = Vec::new();
        for (target, resources) in by_target(resources) {
            let resource = |resource: &ConfigResource| DescribeConfigsResource {
                resource_type: resource.kind.number(),
                resource_name: resource.name.clone().into(),
                configuration_keys: None,
            };
            let request = DescribeConfigsRequest {
                resources: resources.iter().map(resource).collect(),
                include_synonyms: synonyms,
                include_documentation: false,
            };
            let read = self.client.call(target, &request).read(|response| {
                let described = response.results.iter().map(|result| {
                    let entries = check(result.error_code, result.error_message.as_deref());
                    let kind = ResourceType::of_number(result.resource_type).unwrap_or(ResourceType::Topic);
                    let resource = ConfigResource { kind, name: result.resource_name.to_string() };
                    (resource, entries.map(|()| result.configs.iter().map(entry).collect()))
                });
                Ok(described.collect::<Vec<_>>())
            });
            found.extend(read.await?);
        }
        Ok(found)
    }

    /// Changes configurations, or only says whether they could be changed.
    ///
    /// # Errors
    /// When a broker that must be asked does not answer.
    pub async fn alter_configs(
        &self,
        changes: Vec<(ConfigResource, Vec<ConfigChange>)>,
        validate_only: bool,
    ) -> Result<Outcomes<ConfigResource, ()>, Error> {
        let mut done = Vec::new();
        for (resource, changes) in changes {
            let target = match resource.target() {
                Target::Any => Target::Controller,
                broker => broker,
            };
            let request = IncrementalAlterConfigsRequest {
                resources: vec![AlterConfigsResource {
                    resource_type: resource.kind.number(),
                    resource_name: resource.name.clone().into(),
                    configs: changes.into_iter().map(alterable).collect(),
                }],
                validate_only,
            };
            let read = self.client.call(target, &request).read(|response| {
                let mut outcomes = response.responses.iter();
                Ok(outcomes
                    .next()
                    .map_or(Ok(()), |outcome| check(outcome.error_code, outcome.error_message.as_deref())))
            });
            done.push((resource, read.await?));
        }
        Ok(done)
    }

    /// The resources of one kind that have configurations of their own.
    ///
    /// # Errors
    /// When no broker answers.
    pub async fn list_config_resources(&self, kind: ResourceType) -> Result<Vec<ConfigResource>, Error> {
        let request = ListConfigResourcesRequest { resource_types: vec![kind.number()].into() };
        let read = self.client.call(Target::Any, &request).read(|response| {
            check(response.error_code, None)?;
            let resources = response.config_resources.iter().filter_map(|resource| {
                let kind = ResourceType::of_number(resource.resource_type)?;
                Some(ConfigResource { kind, name: resource.resource_name.to_string() })
            });
            Ok(resources.collect())
        });
        read.await
    }
}

/// One request for all that any broker can answer, one for each broker that must answer itself.
fn by_target(resources: Vec<ConfigResource>) -> Vec<(Target<'static>, Vec<ConfigResource>)> {
    let mut any = Vec::new();
    let mut brokers = BTreeMap::<i32, Vec<ConfigResource>>::new();
    for resource in resources {
        match resource.target() {
            Target::Broker(id) => brokers.entry(id).or_default().push(resource),
            _ => any.push(resource),
        }
    }
    let any = (!any.is_empty()).then_some((Target::Any, any));
    any.into_iter().chain(brokers.into_iter().map(|(id, resources)| (Target::Broker(id), resources))).collect()
}

fn alterable(change: ConfigChange) -> AlterableConfig<'static> {
    let (config_operation, name, value) = match change {
        ConfigChange::Set(name, value) => (0, name, Some(value)),
        ConfigChange::Delete(name) => (1, name, None),
        ConfigChange::Append(name, value) => (2, name, Some(value)),
        ConfigChange::Subtract(name, value) => (3, name, Some(value)),
    };
    AlterableConfig { name: name.into(), config_operation, value: value.map(Into::into) }
}

fn entry(config: &DescribeConfigsResourceResult<'_>) -> ConfigEntry {
    let synonym = |synonym: &DescribeConfigsSynonym<'_>| ConfigSynonym {
        name: synonym.name.to_string(),
        value: synonym.value.as_deref().map(str::to_owned),
        source: ConfigSource::of_number(synonym.source),
    };
    ConfigEntry {
        name: config.name.to_string(),
        value: config.value.as_deref().map(str::to_owned),
        source: ConfigSource::of_number(config.config_source),
        read_only: config.read_only,
        sensitive: config.is_sensitive,
        kind: ConfigType::of_number(config.config_type),
        synonyms: config.synonyms.iter().map(synonym).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_is_asked_about_itself_and_anybody_about_the_rest() {
        let broker = |name: &str| ConfigResource { kind: ResourceType::Broker, name: name.to_owned() };
        let asked = by_target(vec![broker("2"), ConfigResource::topic("t"), broker(""), broker("2")]);
        let expected = [
            (Target::Any, vec![ConfigResource::topic("t"), broker("")]),
            (Target::Broker(2), vec![broker("2"), broker("2")]),
        ];
        assert_eq!(asked, expected);
    }

    #[test]
    fn kinds_have_kafkas_numbers() {
        for kind in ResourceType::ALL {
            assert_eq!(ResourceType::of_number(kind.number()), Some(kind));
        }
        assert_eq!(ResourceType::of_number(3), None);
    }
}
