//! A formatted directory and its metadata log, in one line each.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use milena_io::{Disk, SimRng};
use milena_metadata::{Endpoint, VersionedRecord};
use milena_protocol::messages::{ConfigRecord, PartitionRecord, ProducerIdsRecord, RemoveTopicRecord, TopicRecord};
use milena_protocol::{MetadataRecord, Uuid};
use milena_quorum::{
    BrokerRegistration, ControllerRegistration, Directories, FormatOptions, MetadataLog, MetadataLogOptions,
    QuorumError, QuorumMode, format,
};
use milena_raft::VoterEndpoint;

pub const NOW: i64 = 1_796_068_410_000;
pub const CLUSTER: &str = "MkU3OEVBNTcwNTJENDM2Qg";

pub fn endpoint() -> VoterEndpoint {
    VoterEndpoint { name: "CONTROLLER".to_owned(), host: "127.0.0.1".to_owned(), port: 29093 }
}

pub fn options(dirs: &[&Path], mode: QuorumMode) -> FormatOptions {
    FormatOptions {
        cluster_id: CLUSTER.to_owned(),
        node_id: 1,
        dirs: dirs.iter().map(|d| d.to_path_buf()).collect(),
        metadata_dir: dirs[0].to_path_buf(),
        is_controller: true,
        mode,
        release: None,
        features: BTreeMap::new(),
        ignore_formatted: false,
        scram: Vec::new(),
    }
}

pub fn formatted(disk: &Arc<dyn Disk>, dir: &Path, mode: QuorumMode) {
    format(disk, &options(&[dir], mode), &mut SimRng::new(1), NOW).expect("an empty directory");
}

pub fn log_options(disk: &Arc<dyn Disk>, dir: &Path) -> MetadataLogOptions {
    let directories =
        Directories::load(disk, &[PathBuf::from(dir)], dir, 1, &mut SimRng::new(2), NOW).expect("formatted");
    let id = directories.id(dir).expect("its only directory");
    MetadataLogOptions::new(dir.to_owned(), 1, id, MetadataLogOptions::static_voter_ids([1]))
}

pub fn open(disk: &Arc<dyn Disk>, dir: &Path) -> Result<MetadataLog, QuorumError> {
    MetadataLog::open(disk.clone(), log_options(disk, dir), NOW)
}

pub fn controller() -> ControllerRegistration {
    let listeners = vec![listener("CONTROLLER", 29093)];
    ControllerRegistration { id: 1, incarnation_id: uuid(7), listeners }
}

pub fn broker(previous_epoch: i64) -> BrokerRegistration {
    BrokerRegistration {
        id: 1,
        incarnation_id: uuid(8),
        listeners: vec![listener("PLAINTEXT", 29092)],
        rack: None,
        directories: vec![uuid(9)],
        previous_epoch,
    }
}

fn listener(name: &str, port: u16) -> Endpoint {
    Endpoint { name: name.to_owned(), host: "127.0.0.1".to_owned(), port, security_protocol: 0 }
}

pub fn uuid(n: u64) -> Uuid {
    let mut bytes = [0x42; 16];
    bytes[8..].copy_from_slice(&n.to_be_bytes());
    Uuid::from_bytes(bytes)
}

/// A new topic with partitions led by broker 1, and one configuration.
pub fn topic(name: &str, id: Uuid, partitions: i32) -> Vec<VersionedRecord<'static>> {
    let mut records = vec![
        VersionedRecord::new(MetadataRecord::Topic(TopicRecord { name: name.to_owned().into(), topic_id: id }), 0),
        config(name, "retention.ms", "1000"),
    ];
    for partition_id in 0..partitions {
        let record = PartitionRecord {
            partition_id,
            topic_id: id,
            replicas: vec![1].into(),
            isr: vec![1].into(),
            leader: 1,
            leader_epoch: 0,
            partition_epoch: 0,
            directories: vec![uuid(9)].into(),
            ..PartitionRecord::default()
        };
        records.push(VersionedRecord::new(MetadataRecord::Partition(record), 2));
    }
    records
}

pub fn config(topic: &str, name: &str, value: &str) -> VersionedRecord<'static> {
    let record = ConfigRecord {
        resource_type: 2,
        resource_name: topic.to_owned().into(),
        name: name.to_owned().into(),
        value: Some(value.to_owned().into()),
    };
    VersionedRecord::new(MetadataRecord::Config(record), 0)
}

pub fn remove_topic(id: Uuid) -> VersionedRecord<'static> {
    VersionedRecord::new(MetadataRecord::RemoveTopic(RemoveTopicRecord { topic_id: id }), 0)
}

pub fn producer_ids(broker_epoch: i64, next_producer_id: i64) -> VersionedRecord<'static> {
    let record = ProducerIdsRecord { broker_id: 1, broker_epoch, next_producer_id };
    VersionedRecord::new(MetadataRecord::ProducerIds(record), 0)
}

/// Names of all topics, with their numbers of partitions.
pub fn topics(log: &MetadataLog) -> Vec<(String, usize)> {
    log.image().topics().iter().map(|t| (t.name.to_string(), t.partitions.len())).collect()
}
