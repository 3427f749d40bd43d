//! Failures of one log directory out of two, by each kind of operation.

use std::path::{Path, PathBuf};

use milena_config::{BrokerConfig, Settings};
use milena_io::{Fault, FaultKind, SimClock, SimDisk, StepKind};
use milena_metadata::Image;
use milena_protocol::ErrorCode;
use milena_records::BatchBuilder;

use super::*;
use crate::test_image::id;

const DIRS: [&str; 3] = ["/a", "/b", "/c"];

/// Three directories, the metadata log in the first, and a partition of the topic `t` in each.
struct Node {
    disk: SimDisk,
    storage: Storage,
    replicas: Replicas,
}

impl Node {
    fn new() -> Self {
        let disk = SimDisk::new(7);
        let ids: Vec<_> = DIRS.into_iter().zip(101..).map(|(dir, at)| (PathBuf::from(dir), id(at))).collect();
        let clock = Arc::new(SimClock::new(0));
        let storage = Storage::lock(Arc::new(disk.clone()), clock, &ids, Path::new(DIRS[0])).unwrap();
        storage.take_clean_markers();
        let config = BrokerConfig::load(&Settings::new()).unwrap();
        let settings = PartitionSettings::of_topic(&config, &Image::default(), "t");
        let topic = Arc::new(TopicIdentity { name: "t".into(), id: id(1) });
        let replicas = Replicas::default();
        let make = |index| Arc::new(storage.create(&topic, index, 0, &settings).unwrap());
        replicas.add((0..3).map(make).collect());
        let node = Self { disk, storage, replicas };
        (0..3).for_each(|index| node.append(index).unwrap());
        node
    }

    fn append(&self, index: i32) -> Result<(), LogError> {
        let mut builder = BatchBuilder::new();
        builder.push(0, None, Some(b"value"), &[]);
        let mut batch = builder.build().unwrap();
        self.partition(index).append_as_leader(&mut [&mut batch], 0).map(|_| ())
    }

    fn partition(&self, index: i32) -> Arc<Partition> {
        Arc::clone(self.replicas.topics().by_name("t").unwrap().partition(index).unwrap())
    }

    fn fail(&self, kind: FaultKind, on: StepKind, path_contains: &str) {
        self.disk.fail(Fault { kind, on, path_contains: path_contains.to_owned(), times: u64::MAX });
    }

    fn offline(&self) -> Vec<usize> {
        (0..3).filter(|&at| self.storage.directories()[at].is_offline()).collect()
    }

    fn fatal(&self) -> Option<Fatal> {
        self.storage.fatal().borrow().clone()
    }
}

#[test]
fn partitions_are_put_where_the_fewest_are_and_an_offline_directory_gets_none() {
    let node = Node::new();
    let at = |index| node.partition(index).directory().index();
    assert_eq!([at(0), at(1), at(2)], [0, 1, 2]);
    node.fail(FaultKind::Io, StepKind::Create, "/b/u-0");
    let partition = node.partition(0);
    let (topic, settings) = (Arc::new(TopicIdentity { name: "u".into(), id: id(2) }), partition.settings());
    node.storage.directories()[0].partitions.store(9, Ordering::Relaxed);
    let made: Vec<usize> =
        (0..2).map(|index| node.storage.create(&topic, index, 0, &settings).unwrap().directory().index()).collect();
    assert_eq!((made, node.offline()), (vec![2, 2], vec![1]));
}

#[test]
fn a_failed_write_takes_its_directory_offline_and_the_others_go_on() {
    let node = Node::new();
    node.fail(FaultKind::Io, StepKind::Write, "/b/");
    assert!(node.append(1).is_err());
    assert_eq!((node.offline(), node.fatal()), (vec![1], None));
    assert!(node.append(0).is_ok() && node.append(2).is_ok());
    node.disk.clear_faults();
    assert!(matches!(node.append(1), Err(LogError::Offline { .. })), "nothing is acknowledged afterwards");
}

#[test]
fn a_failed_read_takes_its_directory_offline() {
    let node = Node::new();
    let partition = node.partition(1);
    // More than what is remembered of where batches begin.
    (0..100).for_each(|_| node.append(1).unwrap());
    node.fail(FaultKind::Io, StepKind::Read, "/b/");
    assert!(partition.read(0, 1 << 20, true).is_err());
    assert_eq!(node.offline(), [1]);
    assert!(matches!(partition.read(1, 1 << 20, true), Err(LogError::Offline { .. })));
}

#[test]
fn a_checkpoint_or_a_sync_that_fails_takes_its_directory_offline() {
    for (step, path) in [
        (StepKind::Write, "/b/recovery-point"),
        (StepKind::Sync, "/b/recovery-point"),
        (StepKind::Rename, "/b/recovery-point"),
        (StepKind::SyncDir, "/b"),
        (StepKind::Sync, "/b/t-1/partition.metadata"),
    ] {
        let node = Node::new();
        node.fail(FaultKind::Io, step, path);
        node.storage.sync_created();
        let _ = node.storage.checkpoint(&node.replicas, Checkpoint::RecoveryPoint);
        assert_eq!(node.offline(), [1], "{step:?} of {path}");
    }
}

#[test]
fn a_full_disk_takes_nothing_offline_and_appends_succeed_when_there_is_space() {
    let node = Node::new();
    node.fail(FaultKind::NoSpace, StepKind::Write, "/b/");
    assert!(node.append(1).is_err());
    assert!(node.storage.checkpoint(&node.replicas, Checkpoint::HighWatermark).is_err());
    assert!(node.partition(1).read(0, 1 << 20, true).unwrap().is_some());
    assert_eq!(node.offline(), [0; 0]);
    node.disk.clear_faults();
    assert!(node.append(1).is_ok());
}

#[test]
fn partitions_of_a_failed_directory_answer_with_a_storage_error() {
    let node = Node::new();
    let partition = node.partition(1);
    node.fail(FaultKind::Io, StepKind::Write, "/b/");
    let _ = node.append(1);
    assert!(node.storage.has_failed());
    assert_eq!(node.storage.take_failed().iter().map(|failed| failed.id).collect::<Vec<_>>(), [id(102)]);
    assert_eq!(node.replicas.take_offline().len(), 1);
    assert!(!node.storage.has_failed() && node.storage.take_failed().is_empty());
    let topics = node.replicas.topics();
    let topic = topics.by_name("t").unwrap();
    let error = |index| topic.served(index).err();
    assert_eq!([error(0), error(1), error(2)], [None, Some(ErrorCode::KAFKA_STORAGE_ERROR), None]);
    assert_eq!(error(3), Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
    assert!(partition.is_retired());
    assert_eq!(partition.gone(), ErrorCode::KAFKA_STORAGE_ERROR);
}

#[test]
fn a_failed_directory_gets_neither_checkpoints_nor_the_clean_marker() {
    let node = Node::new();
    node.fail(FaultKind::Io, StepKind::Write, "/b/t-1");
    let _ = node.append(1);
    node.disk.clear_faults();
    node.replicas.take_offline();
    let Node { disk, storage, replicas } = node;
    storage.close(&replicas, 5).unwrap();
    let read = |path: &str| milena_log::read_file(&disk, Path::new(path)).unwrap();
    assert!(read("/a/.kafka_cleanshutdown").is_some() && read("/c/.kafka_cleanshutdown").is_some());
    assert_eq!(read("/b/.kafka_cleanshutdown"), None);
    assert_eq!(read("/b/recovery-point-offset-checkpoint").as_deref(), Some(&b""[..]));
    assert_eq!(read("/c/recovery-point-offset-checkpoint").as_deref(), Some(&b"0\n1\nt 2 1\n"[..]));
}

#[test]
fn without_the_metadata_directory_or_any_other_the_broker_ends() {
    let node = Node::new();
    node.fail(FaultKind::Io, StepKind::Write, "/a/t-0");
    let _ = node.append(0);
    assert_eq!(node.fatal(), Some(Fatal::Metadata { dir: "/a".into() }));
    let ids = [(PathBuf::from("/x"), id(1)), (PathBuf::from("/y"), id(2))];
    let disk = Arc::new(SimDisk::new(8));
    let storage = Storage::lock(disk, Arc::new(SimClock::new(0)), &ids, Path::new("/z")).unwrap();
    storage.directories()[0].fail(&"broken");
    assert_eq!(storage.fatal().borrow().clone(), None);
    storage.directories()[1].fail(&"broken");
    assert_eq!(storage.fatal().borrow().clone(), Some(Fatal::All { last: "/y".into() }));
}

#[test]
fn failures_that_can_not_be_told_end_the_broker_when_patience_is_over() {
    let node = Node::new();
    node.storage.directories()[1].fail(&"broken");
    node.storage.take_failed();
    node.storage.failures_untold(Duration::from_secs(3600));
    assert!(node.storage.has_failed() && node.fatal().is_none());
    node.storage.failures_untold(Duration::ZERO);
    assert_eq!(node.fatal(), Some(Fatal::Untold { patience: Duration::ZERO }));
}
