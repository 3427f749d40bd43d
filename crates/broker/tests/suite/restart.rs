//! What a start finds after a stop in order and after a kill.

use std::sync::atomic::{AtomicBool, Ordering};

use milena_testkit::batch::{Batch, Codec, Record, Stored};
use milena_testkit::client::RawClient;
use serde_json::json;

use crate::common::child::Process;
use crate::common::requests::{create_topic, delete_topic, fetch_all, metadata, produce};
use crate::common::seeded::Random;
use crate::common::{Node, TempDir, format_directory};

const TIME: i64 = 1_700_000_000_000;
const PARTITIONS: i32 = 3;

/// A batch of random size, content and codec, with values of up to `largest` bytes.
fn random_batch(random: &mut Random, largest: usize) -> Vec<u8> {
    let codec = Codec::ALL[random.below(5)];
    let count = 1 + random.below(20);
    let records = (0..count as i64).map(|delta| {
        let value = random.bytes_up_to(largest);
        Record { value: Some(value), ..Record::text(delta, delta, &format!("key {delta}"), "") }
    });
    Batch::new(TIME, records.collect()).with(codec).build()
}

/// Produces `count` random batches, with values of up to `largest` bytes, to random partitions of `topic`.
fn produce_random(client: &mut RawClient, topic: &str, count: usize, largest: usize, random: &mut Random) {
    for _ in 0..count {
        let partition = random.below(PARTITIONS as usize) as i32;
        let answer = produce(client, topic, partition, &random_batch(random, largest));
        assert_eq!(answer["errorCode"], 0, "{answer}");
    }
}

/// All bytes of all partitions of a topic.
fn contents(client: &mut RawClient, topic: &str) -> Vec<Vec<u8>> {
    (0..PARTITIONS).map(|partition| fetch_all(client, topic, partition)).collect()
}

fn topic_id(client: &mut RawClient, topic: &str) -> String {
    metadata(client, topic)["topicId"].as_str().unwrap().to_owned()
}

/// A configuration value of a topic, with its source.
fn config(client: &mut RawClient, topic: &str, key: &str) -> (String, i64) {
    let resource = json!({"resourceType": 2, "resourceName": topic, "configurationKeys": [key]});
    let answer = client.call("DescribeConfigs", 4, &json!({"resources": [resource]})).unwrap();
    let config = &answer["results"][0]["configs"][0];
    (config["value"].as_str().unwrap().to_owned(), config["configSource"].as_i64().unwrap())
}

#[test]
fn after_a_stop_everything_is_as_it_was() {
    let mut random = Random::new(1);
    let mut node = Node::start();
    let mut client = node.client();
    // Small segments, so that some are rolled.
    create_topic(&mut client, "small", PARTITIONS, &[("segment.bytes", "1048576"), ("retention.ms", "-1")]);
    create_topic(&mut client, "gone", 1, &[]);
    create_topic(&mut client, "plain", PARTITIONS, &[]);
    delete_topic(&mut client, "gone");
    for topic in ["small", "plain"] {
        produce_random(&mut client, topic, 100, 8000, &mut random);
    }
    let before = ["small", "plain"].map(|topic| (topic_id(&mut client, topic), contents(&mut client, topic)));
    node.stop();
    node.start_again();
    let report = node.broker().report();
    assert!(report.clean && report.found.recovered == 0 && report.found.bytes_cut == 0, "{report:?}");
    assert_eq!(report.found.partitions, 6);
    let files = std::fs::read_dir(node.data_dir().join("small-0")).unwrap();
    let segments = files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|e| e == "log")).count();
    assert!(segments > 1, "{segments} segment");
    let mut client = node.client();
    let after = ["small", "plain"].map(|topic| (topic_id(&mut client, topic), contents(&mut client, topic)));
    assert!(after == before);
    assert_eq!(metadata(&mut client, "gone")["errorCode"], 3);
    assert_eq!(config(&mut client, "small", "retention.ms"), ("-1".to_owned(), 1));
    // And it goes on where it was.
    let end = Stored::split(&after[1].1[0]).unwrap().last().map(|b| b.base_offset() + i64::from(b.last_offset_delta()));
    let answer = produce(&mut client, "plain", 0, &random_batch(&mut random, 100));
    assert_eq!(answer["baseOffset"].as_i64(), end.map(|last| last + 1));
}

#[test]
fn after_a_kill_everything_acknowledged_is_there() {
    let mut random = Random::new(2);
    let dir = TempDir::with_prefix("milena-killed-").unwrap();
    let data = dir.path().join("data");
    format_directory(&data);
    let mut before: Option<(String, Vec<Vec<u8>>)> = None;
    for round in 0..3 {
        let process = Process::start(&data);
        let mut client = process.client();
        if let Some((id, bytes)) = &before {
            assert_eq!(topic_id(&mut client, "t"), *id, "round {round}");
            assert!(contents(&mut client, "t") == *bytes, "round {round}");
        } else {
            create_topic(&mut client, "t", PARTITIONS, &[("segment.bytes", "1048576")]);
        }
        produce_random(&mut client, "t", 60, 400, &mut random);
        before = Some((topic_id(&mut client, "t"), contents(&mut client, "t")));
        create_topic(&mut client, &format!("last-of-round-{round}"), 1, &[]);
        process.kill();
    }
    let node = Node::on(dir);
    assert!(!node.broker().report().clean);
    let mut client = node.client();
    assert!(contents(&mut client, "t") == before.unwrap().1);
    for round in 0..3 {
        assert_eq!(metadata(&mut client, &format!("last-of-round-{round}"))["errorCode"], 0);
    }
}

#[test]
fn a_copy_made_while_records_arrive_holds_what_was_acknowledged_before_and_nothing_broken() {
    let node = Node::start();
    create_topic(&mut node.client(), "t", PARTITIONS, &[]);
    let enough = AtomicBool::new(false);
    for seed in 3..6 {
        enough.store(false, Ordering::SeqCst);
        produce_random(&mut node.client(), "t", 20, 400, &mut Random::new(seed));
        let acknowledged = contents(&mut node.client(), "t");
        let copy = std::thread::scope(|scope| {
            let producer = scope.spawn(|| {
                let (mut client, mut random) = (node.client(), Random::new(seed + 100));
                while !enough.load(Ordering::SeqCst) {
                    produce_random(&mut client, "t", 1, 400, &mut random);
                }
            });
            let copy = node.copy();
            enough.store(true, Ordering::SeqCst);
            producer.join().unwrap();
            copy
        });
        let everything = contents(&mut node.client(), "t");
        let recovered = Node::on(copy);
        for (partition, bytes) in contents(&mut recovered.client(), "t").iter().enumerate() {
            assert!(bytes.starts_with(&acknowledged[partition]), "seed {seed}, partition {partition}");
            assert!(everything[partition].starts_with(bytes), "seed {seed}, partition {partition}");
        }
    }
}

#[test]
fn after_a_kill_topics_configurations_and_ids_are_there() {
    let dir = TempDir::with_prefix("milena-killed-").unwrap();
    let data = dir.path().join("data");
    format_directory(&data);
    let process = Process::start(&data);
    let mut client = process.client();
    create_topic(&mut client, "gone", 2, &[]);
    produce(&mut client, "gone", 0, &Batch::of(3, TIME).build());
    let old = create_topic(&mut client, "again", 1, &[]);
    produce(&mut client, "again", 0, &Batch::of(3, TIME).build());
    create_topic(&mut client, "t", 1, &[("retention.ms", "1000")]);
    let edit = json!({"name": "retention.ms", "configOperation": 0, "value": "-1"});
    let resource = json!({"resourceType": 2, "resourceName": "t", "configs": [edit]});
    client.call("IncrementalAlterConfigs", 1, &json!({"resources": [resource]})).unwrap();
    let more = json!({"topics": [{"name": "t", "count": 3, "assignments": null}], "timeoutMs": 30000});
    client.call("CreatePartitions", 3, &more).unwrap();
    delete_topic(&mut client, "gone");
    delete_topic(&mut client, "again");
    let new = create_topic(&mut client, "again", 1, &[]);
    let producer = producer_id(&mut client);
    process.kill();
    let node = Node::on(dir);
    let mut client = node.client();
    assert_eq!(metadata(&mut client, "gone")["errorCode"], 3);
    assert!(new != old && topic_id(&mut client, "again") == new);
    assert!(fetch_all(&mut client, "again", 0).is_empty());
    assert_eq!(metadata(&mut client, "t")["partitions"].as_array().unwrap().len(), 3);
    assert_eq!(config(&mut client, "t", "retention.ms"), ("-1".to_owned(), 1));
    assert!(producer_id(&mut client) > producer);
    let names =
        std::fs::read_dir(node.data_dir()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<_> = names.filter(|name| name.starts_with("gone-") && !name.ends_with("-delete")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The id of a new idempotent producer.
fn producer_id(client: &mut RawClient) -> i64 {
    let answer =
        client.call("InitProducerId", 4, &json!({"transactionalId": null, "transactionTimeoutMs": 1})).unwrap();
    assert_eq!(answer["errorCode"], 0, "{answer}");
    answer["producerId"].as_i64().unwrap()
}

#[test]
fn partitions_stay_in_the_log_directory_they_are_in() {
    let mut node = Node::start_in_two_directories();
    let mut client = node.client();
    create_topic(&mut client, "t", 6, &[]);
    let mut random = Random::new(9);
    for partition in 0..6 {
        produce(&mut client, "t", partition, &random_batch(&mut random, 100));
    }
    let spread = |client: &mut RawClient| {
        let answer = client.call("DescribeLogDirs", 4, &json!({"topics": null})).unwrap();
        let dirs = answer["results"].as_array().unwrap().iter();
        dirs.map(|dir| (dir["logDir"].clone(), dir["topics"][0]["partitions"].clone())).collect::<Vec<_>>()
    };
    let before = spread(&mut client);
    assert!(before.iter().all(|(_, partitions)| partitions.as_array().unwrap().len() == 3), "{before:?}");
    node.stop();
    node.start_again();
    assert_eq!(spread(&mut node.client()), before);
}

/// A checkpoint's lines that begin with a topic's name.
fn checkpoint_lines(node: &Node, file: &str, topic: &str) -> Vec<String> {
    let text = std::fs::read_to_string(node.data_dir().join(file)).unwrap();
    text.lines().filter(|line| line.starts_with(&format!("{topic} "))).map(str::to_owned).collect()
}

#[test]
fn no_line_of_a_deleted_topic_outlives_its_deletion() {
    const FILES: [&str; 2] = ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"];
    let mut node = Node::start();
    create_topic(&mut node.client(), "gone", 1, &[]);
    node.stop();
    node.start_again();
    for file in FILES {
        assert_eq!(checkpoint_lines(&node, file, "gone").len(), 1, "{file}");
    }
    delete_topic(&mut node.client(), "gone");
    for file in FILES {
        assert_eq!(checkpoint_lines(&node, file, "gone"), [""; 0], "{file}");
    }
}

#[test]
fn a_start_takes_lines_out_of_the_checkpoints_that_are_nobodys() {
    let mut node = Node::start();
    create_topic(&mut node.client(), "t", 1, &[]);
    node.stop();
    let file = "recovery-point-offset-checkpoint";
    std::fs::write(node.data_dir().join(file), "0\n2\nghost 0 1000\nt 0 0\n").unwrap();
    node.start_again();
    assert_eq!(checkpoint_lines(&node, file, "ghost"), [""; 0]);
    assert_eq!(checkpoint_lines(&node, file, "t"), ["t 0 0"]);
}
