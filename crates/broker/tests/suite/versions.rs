//! What ApiVersions advertises is served, in every version.

use milena_broker::registry::APIS;
use milena_testkit::client::{Event, RawClient};
use milena_testkit::wire;
use serde_json::{Value, json};

use crate::common::Node;

/// Key, first and last version of every API that is advertised.
pub fn advertised(client: &mut RawClient) -> Vec<(i16, i16, i16)> {
    let answer = client.call("ApiVersions", 0, &json!({})).unwrap();
    let number = |api: &Value, name: &str| i16::try_from(api[name].as_i64().unwrap()).unwrap();
    let apis = answer["apiKeys"].as_array().unwrap().iter();
    apis.map(|api| (number(api, "apiKey"), number(api, "minVersion"), number(api, "maxVersion"))).collect()
}

/// Kafka's name of an API.
pub fn name_of(key: i16) -> String {
    wire::apis().unwrap().into_iter().find(|(k, _)| *k == key).unwrap().1
}

/// The least that is a request: the defaults, but an answer is wanted.
fn minimal(api: &str) -> Value {
    match api {
        "Produce" => json!({"acks": -1}),
        // Nothing in a filter may be UNKNOWN.
        "DescribeAcls" => {
            json!({"resourceTypeFilter": 1, "patternTypeFilter": 1, "operation": 1, "permissionType": 1})
        }
        _ => json!({}),
    }
}

/// Produce versions before 3 are advertised, so that old librdkafka versions compress, and refused.
fn is_refused(api: &str, version: i16) -> bool {
    api == "Produce" && version < 3
}

#[test]
fn every_advertised_version_is_answered() {
    let node = Node::start();
    let mut client = node.client();
    for (key, min, max) in advertised(&mut client) {
        let api = name_of(key);
        for version in min..=max {
            if is_refused(&api, version) {
                let mut refused = node.client();
                let header = wire::header(&api, version.max(3), 1, Some("test")).unwrap();
                let frame = [&key.to_be_bytes(), &version.to_be_bytes()[..], &header[4..]].concat();
                refused.send_frame(&frame).unwrap();
                assert_eq!(refused.next_event(refused.patience).unwrap(), Event::Closed, "{api} v{version}");
            } else {
                client.call(&api, version, &minimal(&api)).unwrap();
            }
        }
    }
}

#[test]
fn what_is_advertised_is_what_the_registry_serves() {
    let node = Node::start();
    let registered = APIS.iter().map(|api| (api.key.0, api.advertised_min, *api.versions.end()));
    assert_eq!(advertised(&mut node.client()), registered.collect::<Vec<_>>());
}

#[test]
fn the_consumer_protocol_is_unsupported_where_it_is_not_among_the_rebalance_protocols() {
    let node = Node::start_with(&["group.coordinator.rebalance.protocols=classic"]);
    let mut client = node.client();
    let body = json!({"groupId": "g", "memberId": "m", "rebalanceTimeoutMs": 1000, "subscribedTopicNames": ["t"]});
    assert_eq!(client.call("ConsumerGroupHeartbeat", 1, &body).unwrap()["errorCode"], 35);
    let described = client.call("ConsumerGroupDescribe", 0, &json!({"groupIds": ["g"]})).unwrap();
    assert_eq!((&described["groups"][0]["errorCode"], &described["groups"][0]["groupId"]), (&json!(35), &json!("g")));
}
