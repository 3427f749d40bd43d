//! How many connections there may be, changed while the node runs.

use std::time::Duration;

use milena_testkit::client::{Event, RawClient};
use serde_json::json;

use crate::common::Node;

const PER_ADDRESS: &str = "max.connections.per.ip";

/// Alters the default of all brokers.
fn set(client: &mut RawClient, name: &str, value: &str) {
    let configs = json!([{"name": name, "configOperation": 0, "value": value}]);
    let resources = json!([{"resourceType": 4, "resourceName": "", "configs": configs}]);
    let answer = client.call("IncrementalAlterConfigs", 1, &json!({"resources": resources})).unwrap();
    assert_eq!(answer["responses"][0]["errorCode"], 0, "{answer}");
}

fn is_served(mut client: RawClient) -> bool {
    client.call("ApiVersions", 0, &json!({})).is_ok()
}

#[test]
fn connections_of_one_address_are_limited_from_the_change_on_and_after_a_restart() {
    let mut node = Node::start();
    let mut client = node.client();
    assert!(is_served(node.client()));
    set(&mut client, PER_ADDRESS, "1");
    let mut refused = node.client();
    assert_eq!(refused.next_event(Duration::from_secs(60)).unwrap(), Event::Closed);
    set(&mut client, PER_ADDRESS, "2");
    while !is_served(node.client()) {
        std::thread::yield_now();
    }
    set(&mut client, PER_ADDRESS, "1");
    drop(client);
    node.stop();
    node.start_again();
    let mut only = node.client();
    only.call("ApiVersions", 0, &json!({})).unwrap();
    assert!(!is_served(node.client()));
}
