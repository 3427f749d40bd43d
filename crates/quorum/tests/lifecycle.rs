//! A broker's registrations and what they do to its partitions, in the sequences that Kafka's controller writes.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use common::{NOW, broker, controller, formatted, open, options, topic, uuid};
use milena_io::{Disk, FileExt, OpenMode, SimDisk, SimRng};
use milena_metadata::{LeaderRecoveryState, MetadataVersion, Partition};
use milena_protocol::MetadataRecord;
use milena_quorum::{Assignment, BrokerRegistration, MetadataLog, QuorumMode, TopicDefaults, format};
use milena_records::batches;

const DIR: &str = "/d";

fn disk() -> Arc<dyn Disk> {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(5));
    formatted(&disk, Path::new(DIR), QuorumMode::StaticVoters);
    disk
}

fn started(disk: &Arc<dyn Disk>, previous_epoch: i64) -> (MetadataLog, i64) {
    let mut log = open(disk, Path::new(DIR)).unwrap();
    log.register_controller(&controller(), NOW).unwrap();
    let (epoch, _) = log.register_broker(&broker(previous_epoch), TopicDefaults::default(), NOW).unwrap();
    log.unfence_broker(1, &[], TopicDefaults::default(), NOW).unwrap();
    (log, epoch)
}

fn partition(log: &MetadataLog) -> Partition {
    Partition::clone(log.image().topics().get("a").unwrap().partition(0).unwrap())
}

/// The records of every data batch at or after `offset`, as name and version.
fn records(disk: &Arc<dyn Disk>, offset: i64) -> Vec<Vec<String>> {
    let path = Path::new(DIR).join("__cluster_metadata-0/00000000000000000000.log");
    let bytes = disk.open(&path, OpenMode::Read).unwrap().read_all(1 << 20).unwrap();
    let named = |value: &[u8]| {
        let (record, version) = MetadataRecord::decode_framed(value).unwrap();
        format!("{} v{version}", record.name())
    };
    batches(&bytes)
        .map(Result::unwrap)
        .filter(|b| !b.is_control() && b.base_offset() >= offset)
        .map(|b| b.plain_records().unwrap().map(|r| named(r.unwrap().value.unwrap())).collect())
        .collect()
}

#[test]
fn a_first_start_registers_and_unfences() {
    let disk = disk();
    let (log, epoch) = started(&disk, -1);
    assert_eq!(epoch, 11);
    let registered = log.image().cluster().broker(1).unwrap().clone();
    assert_eq!((registered.epoch, registered.fenced, registered.directories.len()), (11, false, 1));
    assert_eq!(registered.cordoned_directories, Some(Vec::new()));
    assert!(log.image().cluster().controller(1).is_some());
    assert_eq!(
        records(&disk, 10),
        [
            vec!["RegisterControllerRecord v0"],
            vec!["RegisterBrokerRecord v4"],
            vec!["BrokerRegistrationChangeRecord v0", "BrokerRegistrationChangeRecord v3"],
        ]
    );
}

#[test]
fn a_clean_stop_takes_partitions_offline_and_a_restart_brings_them_back() {
    let disk = disk();
    let (mut log, epoch) = started(&disk, -1);
    log.append(&topic("a", uuid(1), 1), NOW).unwrap();
    let before_stop = log.end_offset();
    log.shut_down_broker(1, TopicDefaults::default(), NOW).unwrap();
    assert_eq!(
        records(&disk, before_stop),
        [
            vec!["BrokerRegistrationChangeRecord v1", "PartitionChangeRecord v2"],
            vec!["BrokerRegistrationChangeRecord v0"]
        ]
    );
    let offline = partition(&log);
    assert_eq!((offline.leader, offline.isr.len(), offline.leader_epoch, offline.partition_epoch), (-1, 0, 1, 1));
    assert_eq!((&offline.eligible_leader_replicas[..], &offline.last_known_elr[..]), (&[1][..], &[1][..]));
    log.close().unwrap();

    let (log, new_epoch) = started(&disk, epoch);
    assert!(new_epoch > epoch);
    let online = partition(&log);
    assert_eq!((online.leader, &online.isr[..], online.leader_epoch, online.partition_epoch), (1, &[1][..], 2, 2));
    assert!(online.eligible_leader_replicas.is_empty() && online.last_known_elr.is_empty());
    assert_eq!(online.leader_recovery_state, LeaderRecoveryState::Recovered);
}

#[test]
fn a_stop_without_partitions_only_fences() {
    let disk = disk();
    let (mut log, _) = started(&disk, -1);
    let before_stop = log.end_offset();
    log.shut_down_broker(1, TopicDefaults::default(), NOW).unwrap();
    assert_eq!(records(&disk, before_stop), [vec!["BrokerRegistrationChangeRecord v0"]]);
    assert!(log.shut_down_broker(1, TopicDefaults::default(), NOW).unwrap().is_empty());
}

#[test]
fn a_killed_broker_comes_back_with_new_leader_epochs_and_recovering() {
    let disk = disk();
    let (mut log, _) = started(&disk, -1);
    log.append(&topic("a", uuid(1), 1), NOW).unwrap();
    let killed_at = log.end_offset();
    drop(log);
    let (log, _) = started(&disk, -1);
    assert_eq!(
        records(&disk, killed_at),
        [
            vec!["RegisterControllerRecord v0"],
            vec!["PartitionChangeRecord v2", "BrokerRegistrationChangeRecord v0"],
            vec!["PartitionChangeRecord v2", "RegisterBrokerRecord v4"],
            vec!["BrokerRegistrationChangeRecord v0", "PartitionChangeRecord v2", "BrokerRegistrationChangeRecord v3"],
        ]
    );
    let online = partition(&log);
    assert_eq!((online.leader, &online.isr[..], online.leader_epoch, online.partition_epoch), (1, &[1][..], 2, 3));
    assert_eq!(online.leader_recovery_state, LeaderRecoveryState::Recovering);
    assert!(online.eligible_leader_replicas.is_empty() && online.last_known_elr.is_empty());
    let mut log = log;
    assert_eq!(log.report_recovered(1, NOW).unwrap().len(), 1);
    let recovered = partition(&log);
    assert_eq!((recovered.leader_recovery_state, recovered.leader_epoch), (LeaderRecoveryState::Recovered, 2));
    assert!(log.report_recovered(1, NOW).unwrap().is_empty());
}

/// A broker with three directories and the topic `a` in the first of them.
fn with_three_directories(disk: &Arc<dyn Disk>) -> MetadataLog {
    let mut log = open(disk, Path::new(DIR)).unwrap();
    let registration = BrokerRegistration { directories: vec![uuid(9), uuid(10), uuid(11)], ..broker(-1) };
    log.register_broker(&registration, TopicDefaults::default(), NOW).unwrap();
    log.unfence_broker(1, &[], TopicDefaults::default(), NOW).unwrap();
    log.append(&topic("a", uuid(1), 1), NOW).unwrap();
    log
}

/// Partition 0 of a topic was found in a directory.
fn found(topic: u64, directory: u64) -> Assignment {
    Assignment { topic_id: uuid(topic), partition_id: 0, directory: uuid(directory), may_lead: true }
}

#[test]
fn what_is_in_a_failed_directory_has_no_leader_until_it_is_found_in_another() {
    let disk = disk();
    let mut log = with_three_directories(&disk);
    let before = log.end_offset();
    log.fail_directories(1, &[uuid(10)], &[], TopicDefaults::default(), NOW).unwrap();
    assert_eq!((partition(&log).leader, partition(&log).leader_epoch), (1, 0));
    log.assign_directories(1, &[found(1, 9), found(2, 9)], TopicDefaults::default(), NOW).unwrap();
    log.fail_directories(1, &[uuid(9), uuid(10)], &[], TopicDefaults::default(), NOW).unwrap();
    assert!(log.fail_directories(1, &[uuid(9), uuid(10)], &[], TopicDefaults::default(), NOW).unwrap().is_empty());
    assert_eq!(
        records(&disk, before),
        [
            vec!["BrokerRegistrationChangeRecord v2"],
            vec!["PartitionChangeRecord v2", "BrokerRegistrationChangeRecord v2"],
        ]
    );
    let lost = partition(&log);
    assert_eq!((lost.leader, &lost.isr[..], &lost.eligible_leader_replicas[..]), (-1, &[][..], &[1][..]));
    assert_eq!((&lost.last_known_elr[..], &lost.directories[..]), (&[1][..], &[uuid(9)][..]));
}

#[test]
fn a_replica_in_a_directory_that_is_not_there_leads_when_it_is_found_elsewhere() {
    let disk = disk();
    drop(with_three_directories(&disk));
    let mut log = open(&disk, Path::new(DIR)).unwrap();
    let registration = BrokerRegistration { directories: vec![uuid(10)], ..broker(-1) };
    log.register_broker(&registration, TopicDefaults::default(), NOW).unwrap();
    log.unfence_broker(1, &[], TopicDefaults::default(), NOW).unwrap();
    assert_eq!(partition(&log).leader, -1);
    let before = log.end_offset();
    log.assign_directories(1, &[found(1, 10)], TopicDefaults::default(), NOW).unwrap();
    assert_eq!(records(&disk, before), [vec!["PartitionChangeRecord v2"]]);
    assert_eq!((partition(&log).leader, &partition(&log).directories[..]), (1, &[uuid(10)][..]));
}

#[test]
fn a_replica_that_was_made_elsewhere_leads_after_the_next_start_only() {
    let disk = disk();
    drop(with_three_directories(&disk));
    let again = |previous_epoch| {
        let mut log = open(&disk, Path::new(DIR)).unwrap();
        let registration = BrokerRegistration { directories: vec![uuid(10)], ..broker(previous_epoch) };
        log.register_broker(&registration, TopicDefaults::default(), NOW).unwrap();
        log.unfence_broker(1, &[], TopicDefaults::default(), NOW).unwrap();
        log
    };
    let mut log = again(-1);
    let made = Assignment { may_lead: false, ..found(1, 10) };
    log.assign_directories(1, &[made], TopicDefaults::default(), NOW).unwrap();
    assert_eq!((partition(&log).leader, &partition(&log).directories[..]), (-1, &[uuid(10)][..]));
    drop(log);
    assert_eq!(partition(&again(-1)).leader, 1);
}

#[test]
fn cordoned_directories_are_told_when_they_change() {
    let disk = disk();
    let mut log = with_three_directories(&disk);
    let before = log.end_offset();
    assert!(log.cordon_directories(1, &[], NOW).unwrap().is_empty());
    log.cordon_directories(1, &[uuid(9)], NOW).unwrap();
    assert!(log.cordon_directories(1, &[uuid(9)], NOW).unwrap().is_empty());
    assert_eq!(records(&disk, before), [vec!["BrokerRegistrationChangeRecord v3"]]);
    assert_eq!(log.image().cluster().broker(1).unwrap().cordoned_directories, Some(vec![uuid(9)]));
}

#[test]
fn without_eligible_leader_replicas_the_last_member_stays_in_sync() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(5));
    let mut old = options(&[Path::new(DIR)], QuorumMode::StaticVoters);
    old.release = Some(MetadataVersion::from_name("3.9").unwrap());
    old.features = BTreeMap::new();
    format(&disk, &old, &mut SimRng::new(1), NOW).unwrap();
    let (mut log, _) = started(&disk, -1);
    assert_eq!(log.image().configs().iter().count(), 0);
    let mut records_of_topic = topic("a", uuid(1), 1);
    records_of_topic.last_mut().unwrap().version = 1;
    log.append(&records_of_topic, NOW).unwrap();
    let killed_at = log.end_offset();
    drop(log);
    let (log, _) = started(&disk, -1);
    assert_eq!(
        records(&disk, killed_at)[1..],
        [
            vec!["PartitionChangeRecord v1", "BrokerRegistrationChangeRecord v0"],
            vec!["RegisterBrokerRecord v3"],
            vec!["BrokerRegistrationChangeRecord v0", "PartitionChangeRecord v1"],
        ]
    );
    let online = partition(&log);
    assert_eq!((online.leader, &online.isr[..], online.leader_epoch, online.partition_epoch), (1, &[1][..], 2, 2));
    assert_eq!(online.leader_recovery_state, LeaderRecoveryState::Recovered);
}
