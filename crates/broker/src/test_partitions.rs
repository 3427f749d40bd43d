//! Partitions on a simulated disk, for unit tests.

use std::path::Path;
use std::sync::Arc;

use milena_config::{BrokerConfig, Settings};
use milena_io::{RealClock, SimDisk};
use milena_log::{Log, LogDirectory, OpenParams};
use milena_records::BatchBuilder;

use crate::flusher::Flusher;
use crate::partition::{Partition, TopicIdentity};
use crate::replicas::Replicas;
use crate::settings::PartitionSettings;
use crate::storage::{Directory, Failures};
use crate::test_image::{id, image, topic_config};

/// Leader epoch of all partitions here.
pub(crate) const EPOCH: i32 = 3;

/// The topic `t`, with a partition for each entry. An entry has the timestamps of its records, batch by batch.
pub(crate) fn topic(partitions: &[&[&[i64]]]) -> Replicas {
    topic_on(&Arc::new(SimDisk::new(0)), partitions)
}

/// As [`topic`], on this disk.
pub(crate) fn topic_on(disk: &Arc<SimDisk>, partitions: &[&[&[i64]]]) -> Replicas {
    let replicas = Replicas::default();
    let identity = Arc::new(TopicIdentity { name: "t".into(), id: id(1) });
    let partitions = (0..).zip(partitions).map(|(index, batches)| partition(disk, &identity, index, batches));
    replicas.add(partitions.collect());
    replicas
}

/// The directory that the partitions are in.
pub(crate) fn directory(disk: &Arc<SimDisk>) -> Arc<Directory> {
    let root = Path::new("/");
    let files = LogDirectory::unlocked(Arc::<SimDisk>::clone(disk), root);
    Arc::new(Directory::new(files, id(101), 0, &Failures::new(root)))
}

/// The settings of a topic, with these overrides.
pub(crate) fn settings(overrides: &[(&'static str, &'static str)]) -> Arc<PartitionSettings> {
    let config = BrokerConfig::load(&Settings::new()).unwrap();
    let records = overrides.iter().map(|&(name, value)| topic_config("t", name, value));
    PartitionSettings::of_topic(&config, &image(records), "t")
}

fn partition(disk: &Arc<SimDisk>, identity: &Arc<TopicIdentity>, index: i32, batches: &[&[i64]]) -> Arc<Partition> {
    let settings = settings(&[]);
    let params = OpenParams { clean: true, recovery_point: 0, log_start_offset: 0, cleaned_to: 0, now_ms: 0 };
    let directory = directory(disk);
    let (disk, dir) = (Arc::<SimDisk>::clone(disk), format!("/t-{index}"));
    let (log, _) = Log::open(disk, Path::new(&dir), Arc::clone(&settings.log), params).unwrap();
    let partition = Partition::lead(Arc::clone(identity), index, directory, log, EPOCH, settings, &flusher()).unwrap();
    let partition = Arc::new(partition);
    for timestamps in batches {
        append(&partition, timestamps);
    }
    partition
}

/// Appends a batch of records with these timestamps.
pub(crate) fn append(partition: &Arc<Partition>, timestamps: &[i64]) {
    let mut builder = BatchBuilder::new();
    for &timestamp in timestamps {
        builder.push(timestamp, None, Some(b"value"), &[]);
    }
    let mut batch = builder.build().unwrap();
    partition.append_as_leader(&mut [&mut batch], &[], 0).unwrap();
}

/// Flushes when asked.
pub(crate) fn flusher() -> Arc<Flusher> {
    Arc::new(Flusher::new(Arc::new(RealClock::new())))
}
