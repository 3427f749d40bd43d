//! ListConfigResources. v0: client metrics subscriptions only. v1: types asked for, none meaning all.

use std::borrow::Cow;

use milena_metadata::{ConfigResourceType, Image};
use milena_net::Outgoing;
use milena_protocol::messages::ListConfigResourcesRequest;
use milena_protocol::messages::list_config_resources_response::{ConfigResource, ListConfigResourcesResponse};
use milena_protocol::{ApiKey, ErrorCode};

use crate::registry::{Api, Handler};
use crate::request::{Call, Refusal};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::LIST_CONFIG_RESOURCES, 0..=1, Handler::Now(handle));

/// Every type there is, in the order of the answer.
const TYPES: [ConfigResourceType; 5] = [
    ConfigResourceType::GROUP,
    ConfigResourceType::CLIENT_METRICS,
    ConfigResourceType::BROKER_LOGGER,
    ConfigResourceType::BROKER,
    ConfigResourceType::TOPIC,
];

fn handle(call: &Call<'_>, services: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: ListConfigResourcesRequest<'_> = call.request()?;
    let image = services.image();
    call.answer(out, &response(&image, &request.resource_types, call.header.version))
}

fn response<'i>(image: &'i Image, asked: &[i8], version: i16) -> ListConfigResourcesResponse<'i> {
    let known = |code: &i8| TYPES.iter().any(|t| t.0 == *code);
    if !asked.iter().all(known) {
        return ListConfigResourcesResponse { error_code: ErrorCode::UNSUPPORTED_VERSION.0, ..Default::default() };
    }
    let wanted = |kind: &ConfigResourceType| match version {
        0 => *kind == ConfigResourceType::CLIENT_METRICS,
        _ => asked.is_empty() || asked.contains(&kind.0),
    };
    let mut config_resources = Vec::new();
    for kind in TYPES.into_iter().filter(wanted) {
        let named = |resource_name: Cow<'i, str>| ConfigResource { resource_name, resource_type: kind.0 };
        config_resources.extend(names(image, kind).into_iter().map(named));
    }
    ListConfigResourcesResponse { config_resources, ..Default::default() }
}

/// Names of the resources of a type: all topics and running brokers, and those groups and subscriptions that have
/// something set.
fn names(image: &Image, kind: ConfigResourceType) -> Vec<Cow<'_, str>> {
    match kind {
        ConfigResourceType::TOPIC => image.topics().iter().map(|t| Cow::Borrowed(&*t.name)).collect(),
        ConfigResourceType::BROKER | ConfigResourceType::BROKER_LOGGER => {
            image.cluster().brokers().filter(|b| !b.fenced).map(|b| Cow::Owned(b.id.to_string())).collect()
        }
        kind => {
            let set = image.configs().iter().filter(|(resource, _)| resource.kind == kind);
            set.map(|(resource, _)| Cow::Borrowed(&*resource.name)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use milena_protocol::messages::ConfigRecord;

    use super::*;
    use crate::test_image::{broker, image, topic};

    /// Error and resources as `type:name`.
    fn ask(asked: &[i8], version: i16) -> (i16, String) {
        let config = |resource_type, name: &'static str| {
            ConfigRecord { resource_type, resource_name: name.into(), name: "x".into(), value: Some("1".into()) }.into()
        };
        let records = [broker(1, false), broker(2, true), config(32, "g"), config(16, "m"), config(4, "1")];
        let image = image(records.into_iter().chain(topic("t", 1, &[&[1]])).chain(topic("s", 2, &[&[1]])));
        let response = response(&image, asked, version);
        let resource = |r: &ConfigResource<'_>| format!("{}:{}", r.resource_type, r.resource_name);
        let resources: Vec<String> = response.config_resources.iter().map(resource).collect();
        (response.error_code, resources.join(" "))
    }

    #[test]
    fn all_types_are_listed_unless_some_are_asked_for() {
        assert_eq!(ask(&[], 1), (0, "32:g 16:m 8:1 4:1 2:s 2:t".to_owned()));
        assert_eq!(ask(&[4, 32, 4], 1), (0, "32:g 4:1".to_owned()));
        assert_eq!(ask(&[], 0), (0, "16:m".to_owned()));
    }

    #[test]
    fn an_unknown_type_refuses_the_request() {
        for asked in [[2, 99], [0, 2], [1, 1]] {
            assert_eq!(ask(&asked, 1), (35, String::new()));
        }
    }
}
