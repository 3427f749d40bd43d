//! Log directories that fail while a node runs, or do not work when it starts.

use std::path::{Path, PathBuf};

use milena_broker::broker::{BrokerError, Fatal};
use milena_testkit::batch::Batch;
use milena_testkit::client::RawClient;
use serde_json::{Value, json};

use crate::common::Node;
use crate::common::requests::{create_topic, fetch, metadata, produce};

const STORAGE_ERROR: i64 = 56;
const LEADER_NOT_AVAILABLE: i64 = 5;

/// The two directories of a node that starts in two.
fn dirs(node: &Node) -> (PathBuf, PathBuf) {
    (node.data_dir(), node.data_dir().with_file_name("more"))
}

/// A node in two directories with two partitions of `t` in each, all with one record; which of them are in the second one.
fn node() -> (Node, RawClient, Vec<i32>) {
    let node = Node::start_in_two_directories();
    let mut client = node.client();
    create_topic(&mut client, "t", 4, &[]);
    for partition in 0..4 {
        assert_eq!(produce(&mut client, "t", partition, &one())["baseOffset"], 0);
    }
    let more = dirs(&node).1;
    let second = (0..4).filter(|partition| more.join(format!("t-{partition}")).exists()).collect();
    (node, client, second)
}

fn one() -> Vec<u8> {
    Batch::of(1, 1_700_000_000_000).build()
}

/// Has the second directory fail: a topic is made while it is away, then another, so that the first one's aftermath is over.
fn fail_second(node: &Node, client: &mut RawClient) -> PathBuf {
    let (_, more) = dirs(node);
    let away = more.with_file_name("away");
    std::fs::rename(&more, &away).unwrap();
    create_topic(client, "u", 2, &[]);
    create_topic(client, "v", 1, &[]);
    away
}

fn error_of(answer: &Value) -> i64 {
    answer["errorCode"].as_i64().unwrap()
}

fn list_offsets(client: &mut RawClient, partition: i32) -> Value {
    let asked = json!({"partitionIndex": partition, "currentLeaderEpoch": -1, "timestamp": -1});
    let body = json!({"replicaId": -1, "isolationLevel": 0, "topics": [{"name": "t", "partitions": [asked]}]});
    client.call("ListOffsets", 6, &body).unwrap()["topics"][0]["partitions"][0].take()
}

fn end_of_epoch(client: &mut RawClient, partition: i32) -> Value {
    let asked = json!({"partition": partition, "currentLeaderEpoch": -1, "leaderEpoch": 0});
    let body = json!({"replicaId": -1, "topics": [{"topic": "t", "partitions": [asked]}]});
    client.call("OffsetForLeaderEpoch", 4, &body).unwrap()["topics"][0]["partitions"][0].take()
}

fn log_dir(client: &mut RawClient, dir: &Path) -> Value {
    let answer = client.call("DescribeLogDirs", 4, &json!({"topics": null})).unwrap();
    let mut results = answer["results"].as_array().unwrap().iter();
    results.find(|result| result["logDir"] == dir.to_str().unwrap()).unwrap().clone()
}

/// What AlterReplicaLogDirs answers for a partition of `t`.
fn alter(client: &mut RawClient, version: i16, partition: i32, dir: &Path) -> i64 {
    let body = json!({"dirs": [{"path": dir, "topics": [{"name": "t", "partitions": [partition]}]}]});
    let answer = client.call("AlterReplicaLogDirs", version, &body).unwrap();
    assert_eq!(answer["results"][0]["topicName"], "t");
    error_of(&answer["results"][0]["partitions"][0])
}

/// What DescribeLogDirs says of a partition of `t` in a directory: whether it is a future one; `None` when it is not there.
fn is_future(client: &mut RawClient, dir: &Path, partition: i32) -> Option<bool> {
    let told = log_dir(client, dir);
    let topics = told["topics"].as_array().unwrap().iter().filter(|topic| topic["name"] == "t");
    let mut partitions = topics.flat_map(|topic| topic["partitions"].as_array().unwrap());
    let told = partitions.find(|told| told["partitionIndex"] == partition)?;
    assert!(told["offsetLag"].as_i64() >= Some(0) && told["partitionSize"].as_i64() >= Some(0));
    told["isFutureKey"].as_bool()
}

#[test]
fn a_partition_moves_to_another_directory_while_it_is_written_to() {
    let (mut node, mut client, second) = node();
    let (data, more) = dirs(&node);
    let moved = second[0];
    let mut end = 1;
    assert_eq!(alter(&mut client, 2, moved, Path::new("/nowhere")), 57);
    assert_eq!(alter(&mut client, 1, moved, &more), 0, "where it is");
    assert_eq!(alter(&mut client, 2, moved, &data), 0);
    while is_future(&mut client, &data, moved) != Some(false) {
        assert_eq!(produce(&mut client, "t", moved, &one())["baseOffset"], end);
        end += 1;
    }
    assert_eq!(is_future(&mut client, &more, moved), None);
    assert_eq!(produce(&mut client, "t", moved, &one())["baseOffset"], end);
    let name = format!("t-{moved}");
    assert!(data.join(&name).exists() && !more.join(&name).exists());
    node.stop();
    // That the directory it came from does not work is nothing to it.
    std::fs::rename(&more, more.with_file_name("away")).unwrap();
    std::fs::write(&more, b"").unwrap();
    node.start_again();
    let mut client = node.client();
    assert_eq!(list_offsets(&mut client, moved)["offset"], end + 1);
    assert_eq!(produce(&mut client, "t", moved, &one())["baseOffset"], end + 1);
}

#[test]
fn a_directory_that_fails_takes_its_partitions_offline_and_the_others_serve_on() {
    let (node, mut client, second) = node();
    assert_eq!(second.len(), 2);
    fail_second(&node, &mut client);
    for partition in 0..4 {
        let expected = if second.contains(&partition) { STORAGE_ERROR } else { 0 };
        assert_eq!(error_of(&produce(&mut client, "t", partition, &one())), expected, "{partition}");
        assert_eq!(error_of(&fetch(&mut client, "t", partition, 0)), expected, "{partition}");
        assert_eq!(error_of(&list_offsets(&mut client, partition)), expected, "{partition}");
        assert_eq!(error_of(&end_of_epoch(&mut client, partition)), expected, "{partition}");
    }
    for told in metadata(&mut client, "t")["partitions"].as_array().unwrap() {
        let offline = second.iter().any(|partition| told["partitionIndex"] == *partition);
        let expected = match offline {
            true => json!([LEADER_NOT_AVAILABLE, -1, [], [1]]),
            false => json!([0, 1, [1], []]),
        };
        let told = json!([told["errorCode"], told["leaderId"], told["isrNodes"], told["offlineReplicas"]]);
        assert_eq!(told, expected);
    }
    let (data, more) = dirs(&node);
    let failed = log_dir(&mut client, &more);
    assert_eq!((error_of(&failed), &failed["topics"], &failed["totalBytes"]), (STORAGE_ERROR, &json!([]), &json!(-1)));
    assert_eq!(error_of(&log_dir(&mut client, &data)), 0);
    assert_eq!(produce(&mut client, "u", 1, &one())["baseOffset"], 0, "what is new goes to the other directory");
}

#[test]
fn what_was_in_a_failed_directory_is_back_when_the_directory_is() {
    let (mut node, mut client, second) = node();
    let away = fail_second(&node, &mut client);
    node.stop();
    assert!(!away.join(".kafka_cleanshutdown").exists());
    let (data, more) = dirs(&node);
    assert!(data.join(".kafka_cleanshutdown").exists());
    // Neither a directory nor missing.
    std::fs::write(&more, b"").unwrap();
    node.start_again();
    let mut client = node.client();
    for partition in 0..4 {
        let expected = if second.contains(&partition) { STORAGE_ERROR } else { 0 };
        assert_eq!(error_of(&produce(&mut client, "t", partition, &one())), expected, "{partition}");
    }
    assert_eq!(error_of(&log_dir(&mut client, &more)), STORAGE_ERROR);
    node.stop();
    std::fs::remove_file(&more).unwrap();
    std::fs::rename(&away, &more).unwrap();
    node.start_again();
    let mut client = node.client();
    for partition in 0..4 {
        let end = if second.contains(&partition) { 1 } else { 2 };
        assert_eq!(produce(&mut client, "t", partition, &one())["baseOffset"], end, "{partition}");
    }
    assert!(metadata(&mut client, "t")["partitions"].as_array().unwrap().iter().all(|told| told["leaderId"] == 1));
}

#[test]
fn without_the_metadata_directory_the_node_ends() {
    let (node, mut client, _) = node();
    let (data, _) = dirs(&node);
    let failed = node.broker().failed();
    std::fs::rename(&data, data.with_file_name("away")).unwrap();
    let body = json!({"topics": [{"name": "x", "numPartitions": 1, "replicationFactor": 1}]});
    let answer = client.call("CreateTopics", 7, &body).unwrap();
    assert_eq!(error_of(&answer["topics"][0]), STORAGE_ERROR);
    let fatal = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(failed);
    assert_eq!(fatal, Fatal::Metadata { dir: data });
}

#[test]
fn a_partition_in_two_directories_refuses_the_start_and_changes_nothing() {
    let (mut node, _, second) = node();
    node.stop();
    let (data, more) = dirs(&node);
    let name = format!("t-{}", second[0]);
    crate::common::copy(&more.join(&name), &data.join(&name));
    let overrides = [format!("log.dirs={},{}", data.display(), more.display())];
    let refused = crate::common::start(&data, "127.0.0.1:0", &[&overrides[0]], false).err().unwrap();
    assert!(matches!(refused, BrokerError::Log(_)) && refused.to_string().contains(&name), "{refused}");
    assert!(data.join(".kafka_cleanshutdown").exists() && more.join(".kafka_cleanshutdown").exists());
}

#[test]
fn the_metadata_says_in_which_directory_each_partition_is_and_follows_those_that_were_moved() {
    let (mut node, _, second) = node();
    node.stop();
    let (data, more) = dirs(&node);
    let name = format!("t-{}", second[0]);
    std::fs::rename(more.join(&name), data.join(&name)).unwrap();
    node.start_again();
    assert_eq!(produce(&mut node.client(), "t", second[0], &one())["baseOffset"], 1);
    node.stop();
    // In the metadata it is in the first directory now: that the second does not work is nothing to it.
    std::fs::rename(&more, more.with_file_name("away")).unwrap();
    std::fs::write(&more, b"").unwrap();
    node.start_again();
    let mut client = node.client();
    assert_eq!(produce(&mut client, "t", second[0], &one())["baseOffset"], 2);
    let leaders = metadata(&mut client, "t");
    let leader = |partition: i32| {
        let mut told = leaders["partitions"].as_array().unwrap().iter();
        told.find(|told| told["partitionIndex"] == partition).unwrap()["leaderId"].clone()
    };
    assert_eq!((leader(second[0]), leader(second[1])), (json!(1), json!(-1)));
}

#[test]
fn the_metadata_log_may_have_a_directory_of_its_own() {
    let node = Node::start_with_metadata_apart();
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[]);
    let apart = node.data_dir().with_file_name("metadata");
    assert!(apart.join("__cluster_metadata-0").exists() && apart.join(".lock").exists());
    assert!(node.data_dir().join("t-0").exists() && !apart.join("t-0").exists());
    assert_eq!(
        client.call("DescribeLogDirs", 4, &json!({"topics": null})).unwrap()["results"].as_array().unwrap().len(),
        1
    );
}
