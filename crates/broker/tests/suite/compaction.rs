//! Compaction of a running broker: what readers see, what its settings do, and what stays over a start.

use std::time::{Duration, Instant};

use milena_testkit::batch::{Batch, Codec, Record, Stored};
use milena_testkit::client::RawClient;
use serde_json::{Value, json};

use crate::common::Node;
use crate::common::requests::{create_topic, delete_topic, fetch_all, produce};

const TIME: i64 = 1_700_000_000_000;
/// How long something that comes by itself is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
const QUICK: &[&str] = &["log.cleaner.backoff.ms=20", "log.segment.delete.delay.ms=0"];

/// Every batch of `put` begins a new segment.
const SMALL: [(&str, &str); 4] = [
    ("cleanup.policy", "compact"),
    ("min.cleanable.dirty.ratio", "0.01"),
    ("segment.ms", "1000"),
    ("retention.ms", "-1"),
];

/// Produces one batch of records; the batches are a minute apart.
fn put(client: &mut RawClient, topic: &str, minute: i64, records: &[(&str, Option<&str>)]) {
    let records = records.iter().enumerate().map(|(at, (key, value))| Record {
        value: value.map(|value| value.as_bytes().to_vec()),
        ..Record::text(at as i64, 0, key, "")
    });
    let codec = Codec::ALL[minute as usize % 5];
    let batch = Batch::new(TIME + 60_000 * minute, records.collect()).with(codec).build();
    let answer = produce(client, topic, 0, &batch);
    assert_eq!(answer["errorCode"], 0, "{answer}");
}

/// Offset, key and value of each record.
fn records(client: &mut RawClient, topic: &str) -> Vec<(i64, String, Option<String>)> {
    let bytes = fetch_all(client, topic, 0);
    let all = Stored::split(&bytes).unwrap().into_iter().flat_map(|batch| batch.records().unwrap());
    let text = |value: &Value| value.as_str().map(str::to_owned);
    all.map(|record| (record["o"].as_i64().unwrap(), text(&record["k"]).unwrap(), text(&record["v"]))).collect()
}

/// Waits until the topic has these records.
fn settles(client: &mut RawClient, topic: &str, expected: &[(i64, &str, Option<&str>)]) {
    let expected: Vec<_> =
        expected.iter().map(|(offset, key, value)| (*offset, (*key).to_owned(), value.map(str::to_owned))).collect();
    let begun = Instant::now();
    loop {
        let found = records(client, topic);
        if found == expected {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{topic} does not settle: {found:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn alter(client: &mut RawClient, kind: i64, name: &str, key: &str, value: &str) {
    let config = json!({"name": key, "configOperation": 0, "value": value});
    let resource = json!({"resourceType": kind, "resourceName": name, "configs": [config]});
    let answer = client.call("IncrementalAlterConfigs", 1, &json!({"resources": [resource]})).unwrap();
    assert_eq!(answer["responses"][0]["errorCode"], 0, "{answer}");
}

fn cleaner_checkpoint(node: &Node) -> String {
    std::fs::read_to_string(node.data_dir().join("cleaner-offset-checkpoint")).unwrap()
}

/// Five batches; the last one is in the segment that is written to.
fn fill(client: &mut RawClient, topic: &str) {
    put(client, topic, 0, &[("a", Some("1")), ("b", Some("1")), ("c", Some("1"))]);
    put(client, topic, 1, &[("a", Some("2")), ("b", None)]);
    put(client, topic, 2, &[("c", Some("2")), ("c", Some("3"))]);
    put(client, topic, 3, &[("d", Some("1"))]);
    put(client, topic, 4, &[("a", Some("9"))]);
}

const CLEAN: &[(i64, &str, Option<&str>)] =
    &[(3, "a", Some("2")), (4, "b", None), (6, "c", Some("3")), (7, "d", Some("1")), (8, "a", Some("9"))];

#[test]
fn the_last_of_each_key_stays_and_the_checkpoint_outlives_the_broker() {
    let mut node = Node::start_with(QUICK);
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &SMALL);
    create_topic(&mut client, "plain", 1, &SMALL[1..]);
    fill(&mut client, "t");
    fill(&mut client, "plain");
    settles(&mut client, "t", CLEAN);
    let begun = Instant::now();
    while cleaner_checkpoint(&node) != "0\n1\nt 0 8\n" {
        assert!(begun.elapsed() < PATIENCE, "the checkpoint is {:?}", cleaner_checkpoint(&node));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(records(&mut client, "plain").len(), 9);
    node.stop();
    node.start_again();
    let mut client = node.client();
    settles(&mut client, "t", CLEAN);
    assert_eq!(cleaner_checkpoint(&node), "0\n1\nt 0 8\n");
    put(&mut client, "t", 5, &[("e", Some("1"))]);
    settles(&mut client, "t", &[&CLEAN[1..], &[(9, "e", Some("1"))]].concat());
    delete_topic(&mut client, "t");
    assert_eq!(cleaner_checkpoint(&node), "0\n0\n");
}

#[test]
fn tombstones_go_after_their_retention_and_a_change_of_policy_leaves_the_topic_readable() {
    let node = Node::start_with(QUICK);
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[&SMALL[1..], &[("delete.retention.ms", "0")]].concat());
    fill(&mut client, "t");
    // All of it is cleaned at once: a second cleaning would take the tombstone.
    alter(&mut client, 2, "t", "cleanup.policy", "compact");
    settles(&mut client, "t", CLEAN);
    put(&mut client, "t", 5, &[("x", Some("1"))]);
    let without: Vec<_> = CLEAN[2..].iter().copied().chain([(9, "x", Some("1"))]).collect();
    settles(&mut client, "t", &without);
    alter(&mut client, 2, "t", "cleanup.policy", "delete");
    for minute in 6..9 {
        put(&mut client, "t", minute, &[("x", Some("2"))]);
    }
    let more: Vec<_> = without.iter().copied().chain((10..13).map(|offset| (offset, "x", Some("2")))).collect();
    settles(&mut client, "t", &more);
    alter(&mut client, 2, "t", "cleanup.policy", "compact,delete");
    let last: Vec<_> = without[..3].iter().copied().chain([(11, "x", Some("2")), (12, "x", Some("2"))]).collect();
    settles(&mut client, "t", &last);
}

#[test]
fn what_is_younger_than_the_lag_or_too_little_is_left_until_a_setting_says_otherwise() {
    let node = Node::start_with(QUICK);
    let mut client = node.client();
    create_topic(&mut client, "lag", 1, &[&SMALL[..], &[("min.compaction.lag.ms", "9000000000000")]].concat());
    create_topic(&mut client, "ratio", 1, &[&[SMALL[0], ("min.cleanable.dirty.ratio", "1")], &SMALL[2..]].concat());
    create_topic(&mut client, "off", 1, &SMALL[1..]);
    create_topic(&mut client, "t", 1, &SMALL);
    for topic in ["lag", "ratio", "off", "t"] {
        fill(&mut client, topic);
    }
    settles(&mut client, "t", CLEAN);
    for (topic, key, value) in [
        ("lag", "min.compaction.lag.ms", "1000"),
        ("ratio", "max.compaction.lag.ms", "1000"),
        ("off", "cleanup.policy", "compact"),
    ] {
        assert_eq!(records(&mut client, topic).len(), 9, "{topic}");
        alter(&mut client, 2, topic, key, value);
        settles(&mut client, topic, CLEAN);
    }
}

#[test]
fn the_settings_of_the_cleaner_are_live_and_its_threads_come_and_go() {
    let node = Node::start_with(&["log.cleaner.backoff.ms=3600000", "log.cleaner.min.cleanable.ratio=0.01"]);
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[&SMALL[..1], &SMALL[2..]].concat());
    fill(&mut client, "t");
    alter(&mut client, 4, "", "log.cleaner.threads", "2");
    alter(&mut client, 4, "", "log.cleaner.dedupe.buffer.size", "4194304");
    assert_eq!(records(&mut client, "t").len(), 9);
    alter(&mut client, 4, "", "log.cleaner.backoff.ms", "20");
    settles(&mut client, "t", CLEAN);
    alter(&mut client, 4, "", "log.cleaner.threads", "1");
    put(&mut client, "t", 5, &[("e", Some("1"))]);
    settles(&mut client, "t", &[&CLEAN[1..], &[(9, "e", Some("1"))]].concat());
}

#[test]
fn without_the_cleaner_nothing_is_cleaned_and_a_damaged_log_is_left_to_be_read() {
    let mut node = Node::start_with(&["log.cleaner.enable=false", "log.cleaner.backoff.ms=20"]);
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &SMALL);
    create_topic(&mut client, "damaged", 1, &SMALL);
    fill(&mut client, "t");
    fill(&mut client, "damaged");
    node.stop();
    let path = node.data_dir().join("damaged-0/00000000000000000003.log");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    node.start_again();
    assert_eq!(records(&mut node.client(), "t").len(), 9);
    node.stop();
    node.set("log.cleaner.enable=true");
    node.start_again();
    let mut client = node.client();
    settles(&mut client, "t", CLEAN);
    assert_eq!(Stored::split(&fetch_all(&mut client, "damaged", 0)).unwrap().len(), 5);
    assert!(!cleaner_checkpoint(&node).contains("damaged"));
}
