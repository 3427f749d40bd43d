//! How records leave: because somebody asks for it, or because they are old.

use std::time::{Duration, Instant};

use milena_testkit::batch::Batch;
use milena_testkit::client::RawClient;
use serde_json::{Value, json};

use crate::common::child::Process;
use crate::common::requests::{create_topic, fetch, produce};
use crate::common::{Node, TempDir, format_directory};

/// Long before the limit of any test's topic.
const LONG_AGO: i64 = 1_500_000_000_000;

/// Six records of long ago, in two batches.
fn produce_six(client: &mut RawClient) {
    for _ in 0..2 {
        let answer = produce(client, "t", 0, &Batch::of(3, LONG_AGO).build());
        assert_eq!(answer["errorCode"], 0, "{answer}");
    }
}

fn delete_records(client: &mut RawClient, before: i64) -> Value {
    let partitions = json!([{"partitionIndex": 0, "offset": before}]);
    let body = json!({"topics": [{"name": "t", "partitions": partitions}], "timeoutMs": 30000});
    client.call("DeleteRecords", 2, &body).unwrap()["topics"][0]["partitions"][0].take()
}

fn offset(client: &mut RawClient, timestamp: i64) -> i64 {
    let partitions = json!([{"partitionIndex": 0, "currentLeaderEpoch": -1, "timestamp": timestamp}]);
    let body = json!({"replicaId": -1, "topics": [{"name": "t", "partitions": partitions}]});
    client.call("ListOffsets", 7, &body).unwrap()["topics"][0]["partitions"][0]["offset"].as_i64().unwrap()
}

fn earliest(client: &mut RawClient) -> i64 {
    offset(client, -2)
}

fn set(client: &mut RawClient, name: &str, value: &str) {
    let configs = json!([{"name": name, "configOperation": 0, "value": value}]);
    let resources = json!([{"resourceType": 2, "resourceName": "t", "configs": configs}]);
    let answer = client.call("IncrementalAlterConfigs", 1, &json!({"resources": resources})).unwrap();
    assert_eq!(answer["responses"][0]["errorCode"], 0, "{answer}");
}

/// How many files of the partition end with this.
fn files(node: &Node, suffix: &str) -> usize {
    let names = std::fs::read_dir(node.data_dir().join("t-0")).unwrap();
    names.filter(|name| name.as_ref().unwrap().file_name().to_string_lossy().ends_with(suffix)).count()
}

#[test]
fn deleted_records_stay_deleted_whatever_ends_the_broker() {
    let dir = TempDir::with_prefix("milena-deleted-").unwrap();
    let data = dir.path().join("data");
    format_directory(&data);
    let process = Process::start(&data);
    let mut client = process.client();
    create_topic(&mut client, "t", 1, &[("retention.ms", "-1")]);
    produce_six(&mut client);
    assert_eq!(delete_records(&mut client, 4)["lowWatermark"], 4);
    process.kill();
    let mut node = Node::on(dir);
    let mut client = node.client();
    assert_eq!((earliest(&mut client), offset(&mut client, -1)), (4, 6));
    assert_eq!(fetch(&mut client, "t", 0, 3)["errorCode"], 1);
    assert_eq!(delete_records(&mut client, -1)["lowWatermark"], 6);
    node.stop();
    node.start_again();
    let mut client = node.client();
    assert_eq!((earliest(&mut client), offset(&mut client, -1)), (6, 6));
    assert_eq!(produce(&mut client, "t", 0, &Batch::of(1, LONG_AGO).build())["baseOffset"], 6);
    assert_eq!(fetch(&mut client, "t", 0, 6)["logStartOffset"], 6);
}

#[test]
fn those_who_delete_records_all_the_time_keep_nothing_else_from_being_done() {
    let node = Node::start_with(&["replica.high.watermark.checkpoint.interval.ms=1"]);
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[]);
    produce_six(&mut client);
    let kept = || std::fs::read_to_string(node.data_dir().join("replication-offset-checkpoint")).unwrap_or_default();
    let patience = Instant::now() + Duration::from_secs(20);
    while !kept().contains("t 0 6") {
        assert!(Instant::now() < patience, "no high watermark is kept: {}", kept());
        assert_eq!(delete_records(&mut client, 1)["errorCode"], 0);
    }
}

#[test]
fn a_limit_that_is_set_while_a_topic_is_in_use_takes_effect() {
    let often = ["log.initial.task.delay.ms=0", "log.retention.check.interval.ms=10"];
    let node = Node::start_with(&often);
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[("retention.ms", "-1"), ("file.delete.delay.ms", "0")]);
    produce_six(&mut client);
    set(&mut client, "retention.ms", "1000");
    while earliest(&mut client) < 6 {
        std::thread::yield_now();
    }
    while files(&node, ".deleted") > 0 {
        std::thread::yield_now();
    }
    assert_eq!(files(&node, ".log"), 1);
    set(&mut client, "cleanup.policy", "");
    produce_six(&mut client);
    assert_eq!((delete_records(&mut client, 7)["lowWatermark"].as_i64(), offset(&mut client, -1)), (Some(7), 12));
}
