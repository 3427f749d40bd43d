//! Faults under load: a process that is killed again and again, and a disk that is full.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use milena_testkit::batch::{Batch, Record, Stored};
use milena_testkit::client::RawClient;
use serde_json::json;

use crate::common::child::{self, Process};
use crate::common::requests::{create_topic, fetch_all, metadata, produce, produce_request};
use crate::common::seeded::Random;
use crate::common::{Node, TempDir, format_directory};

const PRODUCERS: i32 = 4;
/// Requests that a producer has under way.
const UNDER_WAY: u64 = 3;

/// How often a process is killed: four times, or as many times more as `MILENA_ROUNDS` says.
fn rounds() -> u64 {
    4 * milena_testkit::rounds()
}

/// Milliseconds since 1970: of producers that were silent for long a start knows nothing.
fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as i64
}

/// An idempotent producer of a partition of its own, and how many of its batches are acknowledged.
struct Producer {
    id: i64,
    partition: i32,
    acknowledged: u64,
}

impl Producer {
    fn new(client: &mut RawClient, partition: i32) -> Self {
        let body = json!({"transactionalId": null, "transactionTimeoutMs": 1});
        let answer = client.call("InitProducerId", 4, &body).unwrap();
        Self { id: answer["producerId"].as_i64().unwrap(), partition, acknowledged: 0 }
    }

    fn batch(&self, number: u64) -> Vec<u8> {
        let value = format!("{number} {}", "x".repeat((number * 37 % 3000) as usize));
        let batch = Batch::new(now(), vec![Record::text(0, 0, "key", &value)]);
        let sequence = i32::try_from(number).unwrap();
        Batch { producer_id: self.id, producer_epoch: 0, base_sequence: sequence, ..batch }.build()
    }

    /// Produces from the first batch that is not acknowledged on, until the other side is gone.
    fn run(&mut self, client: &mut RawClient, total: &AtomicU64) {
        loop {
            let numbers = self.acknowledged..self.acknowledged + UNDER_WAY;
            let send = |number| client.send("Produce", 9, &produce_request("t", self.partition, &self.batch(number)));
            let Ok(ids) = numbers.map(send).collect::<Result<Vec<_>, _>>() else { return };
            for id in ids {
                let Ok(answer) = client.receive("Produce", 9, id) else { return };
                let answer = &answer["responses"][0]["partitionResponses"][0];
                let at = (&answer["errorCode"], answer["baseOffset"].as_u64());
                assert_eq!(at, (&json!(0), Some(self.acknowledged)), "{answer}");
                self.acknowledged += 1;
                total.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// Every acknowledged batch is there once and in its place, and at most those that were under way behind them.
    fn check(&self, client: &mut RawClient) {
        let bytes = fetch_all(client, "t", self.partition);
        let batches = Stored::split(&bytes).unwrap();
        let count = batches.len() as u64;
        let expected = self.acknowledged..=self.acknowledged + UNDER_WAY;
        assert!(expected.contains(&count), "{count} of {expected:?} batches in partition {}", self.partition);
        for (number, batch) in batches.iter().enumerate() {
            assert_eq!(batch.base_offset(), number as i64);
            let records = batch.records().unwrap();
            let value = records[0]["v"].as_str().unwrap();
            assert_eq!(value.split(' ').next(), Some(number.to_string().as_str()), "{value}");
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_or_there_twice_however_often_the_process_is_killed_under_load() {
    let dir = TempDir::with_prefix("milena-killed-").unwrap();
    let data = dir.path().join("data");
    format_directory(&data);
    let (mut random, mut producers) = (Random::new(now() as u64), Vec::new());
    for _ in 0..rounds() {
        let process = Process::start(&data);
        let mut client = process.client();
        if producers.is_empty() {
            create_topic(&mut client, "t", PRODUCERS, &[("segment.bytes", "1048576")]);
            producers = (0..PRODUCERS).map(|partition| Producer::new(&mut client, partition)).collect();
        }
        producers.iter().for_each(|producer: &Producer| producer.check(&mut client));
        let (total, enough) = (AtomicU64::new(0), 50 + random.below(1000) as u64);
        std::thread::scope(|scope| {
            for producer in &mut producers {
                let (mut client, total) = (process.client(), &total);
                scope.spawn(move || producer.run(&mut client, total));
            }
            while total.load(Ordering::SeqCst) < enough {
                std::thread::yield_now();
            }
            process.kill();
        });
    }
    let node = Node::on(dir);
    producers.iter().for_each(|producer| producer.check(&mut node.client()));
}

/// The error of creating a topic.
fn create(client: &mut RawClient, name: &str) -> i64 {
    let topic = json!({"name": name, "numPartitions": 1, "replicationFactor": 1});
    let answer = client.call("CreateTopics", 7, &json!({"topics": [topic], "timeoutMs": 30000})).unwrap();
    answer["topics"][0]["errorCode"].as_i64().unwrap()
}

/// Produces batches of `bytes` until one is refused; how many were taken, and the error.
fn produce_until_refused(client: &mut RawClient, bytes: usize, most: u64) -> (u64, i64) {
    let record = Record { value: Some(vec![b'x'; bytes]), ..Record::text(0, 0, "key", "") };
    let batch = Batch::new(now(), vec![record]).build();
    for taken in 0..most {
        let answer = produce(client, "t", 0, &batch);
        if answer["errorCode"] != 0 {
            return (taken, answer["errorCode"].as_i64().unwrap());
        }
    }
    (most, 0)
}

#[test]
fn a_disk_filled_to_the_brim_refuses_writes_serves_reads_and_goes_on_when_there_is_space() {
    if !child::can_mount() {
        println!("no file system can be mounted here");
        return;
    }
    let dir = TempDir::with_prefix("milena-full-").unwrap();
    let process = Process::start_on_small_disk(dir.path(), 24);
    let mut client = process.client();
    create_topic(&mut client, "t", 1, &[("segment.bytes", "1048576")]);
    let mut taken = 0;
    for round in 0..3 {
        let filler = process.inside(dir.path()).join(format!("filler-{round}"));
        let content = vec![1; 8 << 20];
        // The disk takes as much as there is.
        let _ = std::fs::write(&filler, &content);
        for bytes in [100_000, 1000, 1] {
            let (more, error) = produce_until_refused(&mut client, bytes, 1 << 20);
            assert_eq!(error, 56, "round {round}: {more} batches of {bytes}");
            taken += more;
        }
        // The end of a page may have room for the record.
        let error = create(&mut client, &format!("maybe-{round}"));
        assert!([0, 56].contains(&error), "round {round}: {error}");
        let bytes = fetch_all(&mut client, "t", 0);
        assert_eq!(Stored::split(&bytes).unwrap().len() as u64, taken, "round {round}");
        std::fs::remove_file(&filler).unwrap();
        assert_eq!(produce_until_refused(&mut client, 10, 10), (10, 0), "round {round}");
        taken += 10;
        assert_eq!(create(&mut client, &format!("yes-{round}")), 0);
        let there = metadata(&mut client, &format!("maybe-{round}"))["errorCode"] == 0;
        assert_eq!(there, error == 0, "round {round}");
    }
    let bytes = fetch_all(&mut client, "t", 0);
    let offsets: Vec<_> = Stored::split(&bytes).unwrap().iter().map(|batch| batch.base_offset() as u64).collect();
    assert_eq!(offsets, (0..taken).collect::<Vec<_>>());
}
