//! DescribeConfigs. v1: synonyms, source. v3: type, documentation. v4: flexible.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use milena_config::describe::{self, Entry, Options, Synonym};
use milena_config::{BrokerConfig, Overrides, logger};
use milena_controller::{ApiError, validate_topic_name};
use milena_metadata::{ConfigResource, ConfigResourceType, Image};
use milena_net::{Outgoing, Replies};
use milena_protocol::messages::describe_configs_request::{DescribeConfigsRequest, DescribeConfigsResource};
use milena_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResponse, DescribeConfigsResult, DescribeConfigsSynonym,
};
use milena_protocol::{ApiKey, ErrorCode};
use tracing::level_filters::LevelFilter;

use crate::dispatch;
use crate::registry::{Api, Handler};
use crate::request::{Call, OwnedRequest, Refusal, Room};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::DESCRIBE_CONFIGS, 1..=4, Handler::Either(serve));

/// The one logger that is told of: it stands for the program.
const ROOT_LOGGER: &str = logger::ROOT;

/// Most resources that are described at once.
const MOST_AT_ONCE: usize = 16;

/// Answers few resources at once. More would keep others waiting: each takes far longer than its bytes, so they are for a
/// reader thread.
fn serve(call: &Call<'_>, services: &Arc<Services>, replies: &mut Replies<'_>) -> Result<(), Refusal> {
    let request: DescribeConfigsRequest<'_> = call.request()?;
    if request.resources.len() <= MOST_AT_ONCE {
        return replies.try_ready(|out| answer_to(call, &request, services, out));
    }
    let request = OwnedRequest::new(call, replies);
    dispatch::later(dispatch::read(request, Arc::clone(services), handle), replies);
    Ok(())
}

fn handle(call: &Call<'_>, services: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    answer_to(call, &call.request()?, services, out)
}

fn answer_to(
    call: &Call<'_>,
    request: &DescribeConfigsRequest<'_>,
    services: &Services,
    out: &mut Outgoing,
) -> Result<(), Refusal> {
    let (image, config) = (services.image(), services.config());
    let described = Described { image: &image, config: &config, node: services.node.id };
    call.answer(out, &response(request, &described, Room::default())?)
}

/// What a resource takes of the room beside its entries: looking for those that are wanted takes its time, too.
const RESOURCE_BYTES: usize = 2048;

fn response<'r>(
    request: &'r DescribeConfigsRequest<'r>,
    described: &Described<'_>,
    mut room: Room,
) -> Result<DescribeConfigsResponse<'r>, Refusal> {
    let is_known = |resource: &DescribeConfigsResource<'_>| kind_of(resource).is_some();
    let all_known = request.resources.iter().all(is_known);
    let result = |resource: &'r DescribeConfigsResource<'r>| {
        let entries = if all_known {
            described.entries(resource, request)
        } else {
            Err(invalid("a resource of the request has an unknown type"))
        };
        room.take(RESOURCE_BYTES + entries.iter().flatten().map(bytes_of).sum::<usize>())?;
        Ok(answer(resource, entries))
    };
    let results = request.resources.iter().map(result).collect::<Result<_, Refusal>>()?;
    Ok(DescribeConfigsResponse { results, ..Default::default() })
}

/// What an entry takes in memory.
fn bytes_of(entry: &Entry) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let synonym = |synonym: &Synonym| size_of::<Synonym>() + synonym.name.len() + text(&synonym.value);
    let synonyms: usize = entry.synonyms.iter().map(synonym).sum();
    size_of::<Entry>() + entry.name.len() + text(&entry.value) + text(&entry.documentation) + synonyms
}

/// What is described.
struct Described<'i> {
    image: &'i Image,
    config: &'i BrokerConfig,
    /// This node's id.
    node: i32,
}

/// A type of resource that has configurations.
fn kind_of(resource: &DescribeConfigsResource<'_>) -> Option<ConfigResourceType> {
    let kind = ConfigResourceType(resource.resource_type);
    let known = [
        ConfigResourceType::TOPIC,
        ConfigResourceType::BROKER,
        ConfigResourceType::BROKER_LOGGER,
        ConfigResourceType::CLIENT_METRICS,
        ConfigResourceType::GROUP,
    ];
    known.contains(&kind).then_some(kind)
}

impl Described<'_> {
    fn entries(
        &self,
        resource: &DescribeConfigsResource<'_>,
        request: &DescribeConfigsRequest<'_>,
    ) -> Result<Vec<Entry>, ApiError> {
        let keys: Option<BTreeSet<&str>> =
            resource.configuration_keys.as_ref().map(|keys| keys.iter().map(|key| &**key).collect());
        let options = Options {
            keys: keys.as_ref(),
            synonyms: request.include_synonyms,
            documentation: request.include_documentation,
        };
        let name = &*resource.resource_name;
        match ConfigResourceType(resource.resource_type) {
            ConfigResourceType::TOPIC => self.topic(name, options),
            ConfigResourceType::BROKER if name.is_empty() => Ok(describe::broker_default(self.config, options)),
            ConfigResourceType::BROKER => {
                self.check_broker(name, " or empty string,")?;
                Ok(describe::broker(self.config, options))
            }
            ConfigResourceType::BROKER_LOGGER => {
                self.check_broker(name, "")?;
                let level = LevelFilter::current().to_string().to_uppercase();
                Ok(describe::loggers([(ROOT_LOGGER, level.as_str())], options))
            }
            ConfigResourceType::CLIENT_METRICS if name.is_empty() => {
                Err(invalid("Client metrics subscription name must not be empty"))
            }
            ConfigResourceType::CLIENT_METRICS => Ok(describe::client_metrics(self.overrides(resource), options)),
            _ if name.is_empty() => Err(invalid("Group name must not be empty")),
            _ => Ok(describe::group(self.config, self.overrides(resource), options)),
        }
    }

    fn topic(&self, name: &str, options: Options<'_>) -> Result<Vec<Entry>, ApiError> {
        validate_topic_name(name)?;
        if self.image.topics().get(name).is_none() {
            return Err(ApiError::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, ""));
        }
        static NONE: Overrides = Overrides::new();
        let overrides = self.image.configs().topic(name).map_or(&NONE, |overrides| overrides);
        Ok(describe::topic(self.config, overrides, options))
    }

    /// Only this node can be asked for its configuration. `also` is what else may be named.
    fn check_broker(&self, name: &str, also: &str) -> Result<(), ApiError> {
        match name.parse::<i32>() {
            Ok(id) if id == self.node => Ok(()),
            Ok(id) => Err(invalid(format!("Unexpected broker id, expected {}{also} but received {id}", self.node))),
            Err(_) => Err(invalid(format!("Broker id must be an integer, but it is: {name}"))),
        }
    }

    fn overrides(&self, resource: &DescribeConfigsResource<'_>) -> &Overrides {
        static NONE: Overrides = Overrides::new();
        let kind = ConfigResourceType(resource.resource_type);
        let resource = ConfigResource { kind, name: resource.resource_name.to_string() };
        self.image.configs().get(&resource).map_or(&NONE, |overrides| overrides)
    }
}

fn invalid(message: impl Into<Cow<'static, str>>) -> ApiError {
    ApiError::new(ErrorCode::INVALID_REQUEST, message)
}

fn answer<'r>(
    resource: &'r DescribeConfigsResource<'r>,
    entries: Result<Vec<Entry>, ApiError>,
) -> DescribeConfigsResult<'r> {
    let mut result = DescribeConfigsResult {
        error_message: Some(Cow::Borrowed("")),
        resource_type: resource.resource_type,
        resource_name: Cow::Borrowed(&resource.resource_name),
        ..Default::default()
    };
    match entries {
        Ok(entries) => result.configs = entries.into_iter().map(entry).collect(),
        Err(refusal) => (result.error_code, result.error_message) = (refusal.code.0, refusal.message),
    }
    result
}

fn entry(entry: Entry) -> DescribeConfigsResourceResult<'static> {
    let synonym = |synonym: Synonym| DescribeConfigsSynonym {
        name: Cow::Owned(synonym.name),
        value: synonym.value.map(Cow::Owned),
        source: synonym.source.code(),
    };
    DescribeConfigsResourceResult {
        name: Cow::Owned(entry.name),
        value: entry.value.map(Cow::Owned),
        read_only: entry.read_only,
        config_source: entry.source.code(),
        is_sensitive: entry.sensitive,
        synonyms: entry.synonyms.into_iter().map(synonym).collect(),
        config_type: entry.kind,
        documentation: entry.documentation.map(Cow::Owned),
    }
}

#[cfg(test)]
mod tests;
