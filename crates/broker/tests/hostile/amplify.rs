//! Requests that ask for much with few bytes: long names for many partitions, the same thing named again and again.

use std::time::Duration;

use milena_testkit::batch::Batch;
use milena_testkit::client::{Event, RawClient};
use serde_json::{Value, json};

use crate::common::Node;
use crate::common::requests::{create_topic, produce};
use crate::{alone, memory};

/// How much memory one such request may take, its answer included.
const MOST: u64 = 900 << 20;
/// How often a request names the same thing, or how many partitions it names.
const OFTEN: usize = 30_000;

/// From now on [`memory`] tells the most memory that the process had since.
pub fn forget_most_memory() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// A request that asks for much.
struct Row {
    api: &'static str,
    version: i16,
    body: Value,
}

/// Sends it; the broker answers or closes the connection, and has taken no more memory than it may.
fn ask(node: &Node, row: &Row) {
    let Row { api, version, body } = row;
    let mut client = node.client();
    client.patience = Duration::from_secs(120);
    forget_most_memory();
    let before = memory("VmRSS");
    client.send(api, *version, body).unwrap();
    let event = client.next_event(client.patience).unwrap();
    let most = memory("VmHWM");
    assert!(most < before + MOST, "{api} v{version}: {before} bytes before, {most} at the most");
    assert_ne!(event, Event::Silent, "{api} v{version}");
    node.client().call("ApiVersions", 0, &json!({})).unwrap();
}

fn row(api: &'static str, version: i16, body: Value) -> Row {
    Row { api, version, body }
}

fn again(value: &Value, times: usize) -> Value {
    vec![value.clone(); times].into()
}

#[test]
fn long_names_for_many_partitions_take_little_memory() {
    let _alone = alone();
    let node = Node::start();
    let long = "n".repeat(32_000);
    let partitions: Vec<usize> = (0..OFTEN).collect();
    let of = |key: &str| -> Value { partitions.iter().map(|partition| json!({key: partition})).collect() };
    let moved = json!({"dirs": [{"path": long, "topics": [{"name": long, "partitions": partitions}]}]});
    ask(&node, &row("AlterReplicaLogDirs", 2, moved));
    for version in [4, 12] {
        let topic = json!({"topic": long, "partitions": of("partition")});
        ask(&node, &row("Fetch", version, json!({"maxWaitMs": 0, "minBytes": 0, "topics": [topic]})));
    }
    let topic = json!({"name": long, "partitions": of("partitionIndex")});
    ask(&node, &row("ListOffsets", 7, json!({"replicaId": -1, "topics": [topic]})));
    ask(&node, &row("DeleteRecords", 2, json!({"timeoutMs": 1000, "topics": [topic]})));
    let topic = json!({"topic": long, "partitions": partitions});
    ask(&node, &row("ElectLeaders", 2, json!({"electionType": 0, "topicPartitions": [topic], "timeoutMs": 1000})));
    let of: Value = partitions.iter().map(|partition| json!({"partitionIndex": partition, "replicas": null})).collect();
    let topic = json!({"name": long, "partitions": of});
    ask(&node, &row("AlterPartitionReassignments", 1, json!({"timeoutMs": 1000, "topics": [topic]})));
    let topic = json!({"name": long, "partitionIndexes": partitions});
    ask(&node, &row("DescribeProducers", 0, json!({"topics": [topic]})));
    ask(&node, &row("OffsetFetch", 7, json!({"groupId": "g", "topics": [topic], "requireStable": false})));
}

/// A group of the consumer protocol and one of the classic, whose members say much about themselves, with a committed
/// offset that has long metadata.
fn make_groups(client: &mut RawClient) {
    client.call("FindCoordinator", 4, &json!({"keyType": 0, "coordinatorKeys": ["g"]})).unwrap();
    let commit = |client: &mut RawClient| {
        let metadata = "m".repeat(4000);
        let partition = json!({"partitionIndex": 0, "committedOffset": 1, "committedMetadata": metadata});
        let topics = json!([{"name": "t", "partitions": [partition]}]);
        let body = json!({"groupId": "o", "generationIdOrMemberEpoch": -1, "memberId": "", "topics": topics});
        client.call("OffsetCommit", 8, &body).unwrap()["topics"][0]["partitions"][0]["errorCode"] == 0
    };
    while !commit(client) {
        std::thread::yield_now();
    }
    let metadata = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, vec![1; 200_000]);
    let protocols = json!([{"name": "p", "metadata": metadata}]);
    let join = json!({
        "groupId": "g", "sessionTimeoutMs": 60000, "rebalanceTimeoutMs": 60000, "memberId": "", "protocolType": "consumer",
        "protocols": protocols,
    });
    let joined = client.call("JoinGroup", 3, &join).unwrap();
    assert_eq!(joined["errorCode"], 0, "{joined}");
    let names: Vec<String> = (0..2000).map(|number| format!("{number}{}", "n".repeat(200))).collect();
    let beat = json!({
        "groupId": "c", "memberId": "AAAAAAAAAAAAAAAAAAAAAQ", "memberEpoch": 0, "rebalanceTimeoutMs": 60000,
        "subscribedTopicNames": names, "topicPartitions": [],
    });
    let answer = client.call("ConsumerGroupHeartbeat", 1, &beat).unwrap();
    assert_eq!(answer["errorCode"], 0, "{answer}");
}

#[test]
fn naming_the_same_thing_again_and_again_takes_little_memory() {
    let _alone = alone();
    let node = Node::start_with(&["group.initial.rebalance.delay.ms=0", "offset.metadata.max.bytes=4096"]);
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[]);
    make_groups(&mut client);
    for id in 0..500 {
        let batch = Batch { producer_id: id, producer_epoch: 0, base_sequence: 0, ..Batch::of(1, 1_700_000_000_000) };
        assert_eq!(produce(&mut client, "t", 0, &batch.build())["errorCode"], 0);
    }
    for resource in [json!({"resourceType": 4, "resourceName": "1"}), json!({"resourceType": 32, "resourceName": "g"})]
    {
        let resources = again(&resource, OFTEN);
        let body = json!({"resources": resources, "includeSynonyms": true, "includeDocumentation": true});
        ask(&node, &row("DescribeConfigs", 4, body));
    }
    let groups = again(&json!("g"), OFTEN);
    ask(&node, &row("DescribeGroups", 5, json!({"groups": groups, "includeAuthorizedOperations": false})));
    let groups = again(&json!("c"), OFTEN);
    ask(&node, &row("ConsumerGroupDescribe", 0, json!({"groupIds": groups, "includeAuthorizedOperations": false})));
    let topic = json!({"name": "t", "partitionIndexes": again(&json!(0), 10 * OFTEN)});
    ask(&node, &row("DescribeProducers", 0, json!({"topics": [topic]})));
    ask(&node, &row("OffsetFetch", 7, json!({"groupId": "o", "topics": [topic], "requireStable": false})));
    let groups = again(&json!({"groupId": "o", "topics": null}), 10 * OFTEN);
    ask(&node, &row("OffsetFetch", 8, json!({"groups": groups, "requireStable": false})));
}
