//! Topics that change while clients use them.

use std::time::Duration;

use milena_testkit::batch::Batch;
use milena_testkit::client::RawClient;
use serde_json::{Value, json};

use crate::common::Node;
use crate::common::requests::{create_topic, delete_topic, fetch, fetch_request, metadata, produce};

const TIME: i64 = 1_700_000_000_000;

fn three() -> Vec<u8> {
    Batch::of(3, TIME).build()
}

/// A fetch in a session: the answer as a whole.
fn fetch_in_session(client: &mut RawClient, version: i16, session: i64, epoch: i32, topics: &Value) -> Value {
    let mut body = json!({"maxWaitMs": 0, "minBytes": 0, "maxBytes": 1 << 20, "topics": topics});
    body["sessionId"] = session.into();
    body["sessionEpoch"] = epoch.into();
    let body = milena_testkit::wire::fit("FetchRequest", version, &body).unwrap();
    client.call("Fetch", version, &body).unwrap()
}

/// The error of the only partition of an answer, or `None` when the answer names no partition.
fn only_error(answer: &Value) -> Option<i64> {
    assert_eq!(answer["errorCode"], 0, "{answer}");
    answer["responses"].get(0).map(|topic| topic["partitions"][0]["errorCode"].as_i64().unwrap())
}

/// Fetches `t` at its end in a session of `version`, deletes it, makes it again with one record: the errors that the
/// session then tells, after the deletion and after the creation.
fn errors_of_a_recreated_topic(version: i16) -> (Option<i64>, Option<i64>) {
    let node = Node::start();
    let mut client = node.client();
    let id = create_topic(&mut client, "t", 1, &[]);
    produce(&mut client, "t", 0, &three());
    let topics = fetch_request("t", &id, 0, 3)["topics"].take();
    let session = fetch_in_session(&mut client, version, 0, 0, &topics)["sessionId"].as_i64().unwrap();
    assert_eq!(only_error(&fetch_in_session(&mut client, version, session, 1, &json!([]))), None);
    delete_topic(&mut client, "t");
    let deleted = only_error(&fetch_in_session(&mut client, version, session, 2, &json!([])));
    create_topic(&mut client, "t", 1, &[]);
    produce(&mut client, "t", 0, &Batch::of(1, TIME).build());
    let recreated = only_error(&fetch_in_session(&mut client, version, session, 3, &json!([])));
    (deleted, recreated)
}

#[test]
fn a_session_by_id_learns_that_its_topic_is_another_one_now() {
    assert_eq!(errors_of_a_recreated_topic(13), (Some(3), Some(103)));
    assert_eq!(errors_of_a_recreated_topic(18), (Some(3), Some(103)));
}

#[test]
fn a_session_by_name_goes_on_with_the_topic_that_has_the_name() {
    assert_eq!(errors_of_a_recreated_topic(12), (Some(3), Some(1)));
}

#[test]
fn the_id_of_a_topic_that_was_deleted_is_unknown_and_its_name_starts_empty() {
    let node = Node::start();
    let mut client = node.client();
    let old = create_topic(&mut client, "t", 1, &[]);
    produce(&mut client, "t", 0, &three());
    delete_topic(&mut client, "t");
    let by_id = |client: &mut RawClient, id: &str| {
        let topics = json!([{"topicId": id, "partitions": [{"partition": 0, "partitionMaxBytes": 1000}]}]);
        let answer = client.call("Fetch", 13, &json!({"maxWaitMs": 0, "minBytes": 0, "topics": topics})).unwrap();
        only_error(&answer)
    };
    assert_eq!(by_id(&mut client, &old), Some(100));
    assert_eq!(produce(&mut client, "t", 0, &three())["errorCode"], 3);
    let new = create_topic(&mut client, "t", 1, &[]);
    assert_ne!(new, old);
    assert_eq!((by_id(&mut client, &old), by_id(&mut client, &new)), (Some(100), Some(0)));
    let empty = fetch(&mut client, "t", 0, 0);
    assert_eq!((&empty["highWatermark"], &empty["logStartOffset"]), (&json!(0), &json!(0)));
    assert_eq!(produce(&mut client, "t", 0, &three())["baseOffset"], 0);
}

#[test]
fn a_fetch_that_waits_ends_when_its_topic_is_deleted() {
    let node = Node::start();
    let (mut waiting, mut other) = (node.client(), node.client());
    let id = create_topic(&mut other, "t", 1, &[]);
    let mut body = fetch_request("t", &id, 0, 0);
    body["maxWaitMs"] = 600_000.into();
    body["minBytes"] = 1.into();
    let body = milena_testkit::wire::fit("FetchRequest", 13, &body).unwrap();
    let correlation = waiting.send("Fetch", 13, &body).unwrap();
    delete_topic(&mut other, "t");
    let answer = waiting.receive("Fetch", 13, correlation).unwrap();
    assert_eq!(only_error(&answer), Some(3));
}

#[test]
fn partitions_that_are_added_can_be_used_at_once() {
    let mut node = Node::start();
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[]);
    let more = json!({"topics": [{"name": "t", "count": 4, "assignments": null}], "timeoutMs": 30000});
    assert_eq!(client.call("CreatePartitions", 3, &more).unwrap()["results"][0]["errorCode"], 0);
    for partition in 0..4 {
        assert_eq!(produce(&mut client, "t", partition, &three())["baseOffset"], 0, "{partition}");
    }
    assert_eq!(produce(&mut client, "t", 4, &three())["errorCode"], 3);
    node.stop();
    node.start_again();
    let mut client = node.client();
    assert_eq!(metadata(&mut client, "t")["partitions"].as_array().unwrap().len(), 4);
    for partition in 0..4 {
        assert_eq!(fetch(&mut client, "t", partition, 0)["highWatermark"], 3, "{partition}");
    }
}

/// Sets one configuration value of the topic `t`, or with `None` takes it back.
fn alter(client: &mut RawClient, name: &str, value: Option<&str>) -> Value {
    let config = json!({"name": name, "configOperation": i8::from(value.is_none()), "value": value});
    let resource = json!({"resourceType": 2, "resourceName": "t", "configs": [config]});
    client.call("IncrementalAlterConfigs", 1, &json!({"resources": [resource]})).unwrap()["responses"][0].take()
}

#[test]
fn a_configuration_change_counts_for_the_next_request() {
    let node = Node::start();
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[]);
    let large = Batch::of(100, TIME).build();
    assert_eq!(produce(&mut client, "t", 0, &large)["errorCode"], 0);
    assert_eq!(alter(&mut client, "max.message.bytes", Some("200"))["errorCode"], 0);
    assert_eq!(produce(&mut client, "t", 0, &large)["errorCode"], 10);
    assert_eq!(produce(&mut client, "t", 0, &three())["errorCode"], 0);
    assert_eq!(alter(&mut client, "max.message.bytes", Some("many"))["errorCode"], 40);
    assert_eq!(alter(&mut client, "max.message.bytes", None)["errorCode"], 0);
    assert_eq!(produce(&mut client, "t", 0, &large)["errorCode"], 0);
    assert_eq!(alter(&mut client, "message.timestamp.type", Some("LogAppendTime"))["errorCode"], 0);
    assert!(produce(&mut client, "t", 0, &three())["logAppendTimeMs"].as_i64().unwrap() > TIME);
}

#[test]
fn only_the_name_of_the_longest_length_is_taken() {
    let node = Node::start();
    let mut client = node.client();
    let code = |client: &mut RawClient, name: &str| {
        let topic = json!({"name": name, "numPartitions": 1, "replicationFactor": 1});
        client.call("CreateTopics", 7, &json!({"topics": [topic]})).unwrap()["topics"][0]["errorCode"].take()
    };
    assert_eq!(code(&mut client, &"a".repeat(249)), 0);
    assert_eq!(produce(&mut client, &"a".repeat(249), 0, &three())["baseOffset"], 0);
    for bad in [&"a".repeat(250), "", ".", "..", "a/b", "a b", "../../x", "ä", "a\0b"] {
        assert_eq!(code(&mut client, bad), 17, "{bad}");
    }
    // A name that differs from another one in dots and underscores only.
    assert_eq!((code(&mut client, "a.b"), code(&mut client, "a_b")), (json!(0), json!(17)));
}

#[test]
fn fifty_topics_made_by_asking_for_them_can_be_used_soon() {
    let node = Node::start();
    let mut client = node.client();
    let names: Vec<_> = (0..50).map(|number| format!("fresh-{number}")).collect();
    let topics: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
    client.call("Metadata", 12, &json!({"topics": topics, "allowAutoTopicCreation": true})).unwrap();
    for name in &names {
        // As clients do: asks again until the topic is there.
        while metadata(&mut client, name)["errorCode"] != 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(produce(&mut client, name, 0, &three())["errorCode"], 0, "{name}");
    }
}

#[test]
fn the_quorum_is_this_node_and_its_log_ends_where_the_metadata_does() {
    let node = Node::start();
    let mut client = node.client();
    let partitions = json!([{"partitionIndex": 0}]);
    let request = json!({"topics": [{"topicName": "__cluster_metadata", "partitions": partitions}]});
    let mut ask = || client.call("DescribeQuorum", 2, &request).unwrap();
    let before = ask();
    // The topic and its partitions.
    create_topic(&mut node.client(), "t", 2, &[]);
    let after = ask();
    let end = |answer: &Value| answer["topics"][0]["partitions"][0]["highWatermark"].as_i64().unwrap();
    assert_eq!(end(&after), end(&before) + 3);
    let partition = &after["topics"][0]["partitions"][0];
    assert_eq!((&partition["errorCode"], &partition["leaderId"]), (&json!(0), &json!(1)));
    assert_eq!(partition["observers"], json!([]));
    let voters = partition["currentVoters"].as_array().unwrap();
    assert_eq!((voters.len(), &voters[0]["replicaId"]), (1, &json!(1)));
    assert_eq!(voters[0]["logEndOffset"], end(&after));
    assert_eq!(after["nodes"][0]["listeners"][0]["name"], "CONTROLLER");
    let metadata = std::fs::read_to_string(node.data_dir().join("meta.properties")).unwrap();
    let directory = voters[0]["replicaDirectoryId"].as_str().unwrap();
    assert!(metadata.contains(&format!("directory.id={directory}")), "{directory} is not in {metadata}");
}
