//! What changes of a large image cost: `cargo run --release -p milena-metadata --example image_cost`.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "an example measures")]

use std::time::Instant;

use milena_metadata::Image;
use milena_protocol::messages::{PartitionChangeRecord, PartitionRecord, TopicRecord};
use milena_protocol::{MetadataRecord, Uuid};

fn id(n: u32) -> Uuid {
    let mut bytes = [7; 16];
    bytes[..4].copy_from_slice(&n.to_be_bytes());
    Uuid::from_bytes(bytes)
}

/// `topics` topics with `partitions` partitions each.
fn records(topics: u32, partitions: i32) -> Vec<MetadataRecord<'static>> {
    let mut records = Vec::new();
    for n in 0..topics {
        records.push(TopicRecord { name: format!("topic-{n}").into(), topic_id: id(n) }.into());
        for partition_id in 0..partitions {
            let record = PartitionRecord {
                partition_id,
                topic_id: id(n),
                replicas: vec![1].into(),
                isr: vec![1].into(),
                leader: 1,
                leader_epoch: 0,
                partition_epoch: 0,
                directories: vec![id(1)].into(),
                ..PartitionRecord::default()
            };
            records.push(record.into());
        }
    }
    records
}

fn measure(topics: u32, partitions: i32) {
    let records = records(topics, partitions);
    let start = Instant::now();
    let (image, _) = Image::default().apply(&records).expect("consistent records");
    let built = start.elapsed();
    let change: MetadataRecord<'_> =
        PartitionChangeRecord { topic_id: id(topics / 2), partition_id: 0, leader: -1, ..Default::default() }.into();
    let rounds = 1000;
    let mut current = image.clone();
    let start = Instant::now();
    for _ in 0..rounds {
        current = current.apply([&change]).expect("the partition exists").0;
    }
    let changed = start.elapsed() / rounds;
    let start = Instant::now();
    let written = image.records().count();
    println!(
        "{topics} topics of {partitions} partitions: built from records in {built:?}, one change {changed:?}, {written} \
         snapshot records in {:?}",
        start.elapsed()
    );
}

fn main() {
    measure(1, 20_000);
    measure(2_000, 10);
    measure(20_000, 1);
}
