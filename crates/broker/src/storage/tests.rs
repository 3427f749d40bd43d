//! Failures of one log directory out of two, by each kind of operation.

mod moving;
mod steps;

use std::path::{Path, PathBuf};

use milena_io::{Fault, FaultKind, SimClock, SimDisk, StepKind};
use milena_metadata::directory_unassigned;
use milena_protocol::ErrorCode;
use milena_records::BatchBuilder;

use super::*;
use crate::partition::{Isolation, Partition, TopicIdentity};
use crate::test_image::id;
use crate::test_partitions::settings;

const DIRS: [&str; 3] = ["/a", "/b", "/c"];

/// Three directories, the metadata log in the first, and a partition of the topic `t` in each.
struct Node {
    disk: SimDisk,
    storage: Storage,
    replicas: Replicas,
}

/// The directories, of which some can't be used.
fn lock(disk: &SimDisk, broken: &[&str]) -> Result<Storage, LogError> {
    let id = |dir: &str, at| match broken.contains(&dir) {
        true => Err(LogError::BadFile { path: dir.into(), reason: "broken".into() }),
        false => Ok(id(at)),
    };
    let directories = DIRS.into_iter().zip(101..).map(|(dir, at)| (PathBuf::from(dir), id(dir, at))).collect();
    Storage::lock(Arc::new(disk.clone()), Arc::new(SimClock::new(0)), directories, Path::new(DIRS[0]))
}

/// Opens partitions of `t`, each of which the metadata has in a directory; those that are open, with their directories and end offsets, and those
/// that are offline.
fn open(storage: &Storage, partitions: &[(i32, Uuid)]) -> (Vec<(i32, usize, i64)>, Vec<i32>) {
    storage.look().unwrap();
    storage.take_clean_markers();
    let topic = Arc::new(TopicIdentity { name: "t".into(), id: id(1) });
    let wanted = |&(index, directory)| {
        let (topic, settings) = (Arc::clone(&topic), settings(&[]));
        Wanted { topic, index, leader_epoch: 0, settings, directory }
    };
    let opened = storage.open_all(partitions.iter().map(wanted).collect(), 2).unwrap();
    let place = |it: &Arc<Partition>| (it.index, it.directory().index(), it.high_watermark());
    let mut open: Vec<_> = opened.partitions.iter().map(place).collect();
    open.sort_unstable();
    let mut offline: Vec<_> = opened.offline.iter().map(|(_, index)| *index).collect();
    offline.sort_unstable();
    (open, offline)
}

impl Node {
    /// Stops, and gives the disk.
    fn stop(self) -> SimDisk {
        self.storage.close(&self.replicas, 5).unwrap();
        self.disk
    }

    fn new() -> Self {
        Self::with_seed(7)
    }

    fn with_seed(seed: u64) -> Self {
        let disk = SimDisk::new(seed);
        let storage = lock(&disk, &[]).unwrap();
        storage.take_clean_markers();
        let node = Self { disk, storage, replicas: Replicas::default() };
        node.replicas.add((0..3).map(|index| Arc::new(node.create("t", index).unwrap())).collect());
        (0..3).for_each(|index| node.append(index).unwrap());
        node
    }

    fn create(&self, topic: &str, index: i32) -> Result<Partition, LogError> {
        let topic = Arc::new(TopicIdentity { name: topic.into(), id: id(topic.len() as u8) });
        let directory = directory_unassigned();
        self.storage.create(&New { topic: &topic, index, leader_epoch: 0, settings: &settings(&[]), directory })
    }

    fn append(&self, index: i32) -> Result<(), LogError> {
        let mut builder = BatchBuilder::new();
        builder.push(0, None, Some(b"value"), &[]);
        let mut batch = builder.build().unwrap();
        self.partition(index).append_as_leader(&mut [&mut batch], &[], 0).map(|_| ())
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
    node.storage.directories()[0].partitions.store(9, Ordering::Relaxed);
    let made: Vec<usize> = (0..2).map(|index| node.create("u", index).unwrap().directory().index()).collect();
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
    assert!(partition.read(0, 1 << 20, true, Isolation::Uncommitted).is_err());
    assert_eq!(node.offline(), [1]);
    assert!(matches!(partition.read(1, 1 << 20, true, Isolation::Uncommitted), Err(LogError::Offline { .. })));
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
    assert!(node.partition(1).read(0, 1 << 20, true, Isolation::Uncommitted).unwrap().is_some());
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
    assert_eq!(partition.retired_error(), ErrorCode::KAFKA_STORAGE_ERROR);
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
    let directories = vec![(PathBuf::from("/x"), Ok(id(1))), (PathBuf::from("/y"), Ok(id(2)))];
    let disk = Arc::new(SimDisk::new(8));
    let storage = Storage::lock(disk, Arc::new(SimClock::new(0)), directories, Path::new("/z")).unwrap();
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

const T: [(i32, u8); 3] = [(0, 101), (1, 102), (2, 103)];

#[test]
fn a_directory_that_is_broken_at_the_start_leaves_its_partitions_offline() {
    let disk = Node::new().stop();
    let storage = lock(&disk, &["/b"]).unwrap();
    assert_eq!(storage.fatal().borrow().clone(), None);
    let wanted = T.map(|(index, at)| (index, id(at)));
    assert_eq!(open(&storage, &wanted), (vec![(0, 0, 1), (2, 2, 1)], vec![1]));
    assert_eq!(storage.previous_broker_epoch(), -1);
    assert!(lock(&Node::new().stop(), &["/a"]).unwrap().fatal().borrow().is_some(), "that of the metadata");
    assert!(lock(&Node::new().stop(), &DIRS).unwrap().fatal().borrow().is_some(), "all of them");
}

#[test]
fn a_directory_that_can_not_be_read_at_the_start_leaves_its_partitions_offline() {
    for (step, path) in [(StepKind::Read, "/b/"), (StepKind::Remove, "/b/.kafka_clean"), (StepKind::Rename, "/b/t-1")] {
        let disk = Node::new().stop();
        let storage = lock(&disk, &[]).unwrap();
        disk.fail(Fault { kind: FaultKind::Io, on: step, path_contains: path.into(), times: u64::MAX });
        // Partition 1 as found, and of another topic.
        let wanted: Vec<_> = T.into_iter().filter(|(index, _)| step != StepKind::Rename || *index != 1).collect();
        let wanted: Vec<_> = wanted.into_iter().map(|(index, at)| (index, id(at))).collect();
        let (opened, offline) = open(&storage, &wanted);
        assert_eq!(opened, [(0, 0, 1), (2, 2, 1)], "{step:?}");
        assert_eq!(offline.len(), wanted.len() - 2);
        assert!(storage.directories()[1].is_offline());
    }
}

#[test]
fn a_partition_that_is_nowhere_is_made_where_the_metadata_has_it_unless_a_directory_is_missing() {
    let disk = Node::new().stop();
    let storage = lock(&disk, &[]).unwrap();
    let wanted = [(0, id(101)), (1, id(102)), (2, id(103)), (3, id(103)), (4, id(99))];
    let (opened, offline) = open(&storage, &wanted);
    assert_eq!((opened[3], opened[4].2, offline), ((3, 2, 0), 0, vec![]));
    drop(storage);
    disk.kill_process();
    let storage = lock(&disk, &["/c"]).unwrap();
    assert_eq!(open(&storage, &[(0, id(101)), (7, id(101))]), (vec![(0, 0, 1)], vec![7]));
}

#[test]
fn what_refuses_a_start_leaves_the_clean_markers() {
    let refused = |dir: &str| {
        let disk = Node::new().stop();
        disk.create_dir(Path::new(dir)).unwrap();
        let storage = lock(&disk, &[]).unwrap();
        let refused = storage.look().unwrap_err().to_string();
        storage.unlock();
        for dir in DIRS {
            assert!(disk.metadata(&Path::new(dir).join(".kafka_cleanshutdown")).unwrap().is_some());
        }
        refused
    };
    assert!(refused("/a/t-1").contains("/a/t-1 and /b/t-1 are one partition"));
    assert!(refused("/c/photos").contains("/c/photos"));
    assert!(refused("/c/__cluster_metadata-0").contains("the metadata log belongs into /a"));
}

#[test]
fn a_cordoned_directory_gets_no_partitions_unless_all_are() {
    let node = Node::new();
    node.storage.cordon(&["/a".into(), "/b".into()]);
    assert!(node.storage.has_untold());
    assert_eq!(node.storage.take_cordoned(), [id(101), id(102)]);
    let made = |index| node.create("u", index).unwrap().directory().index();
    assert_eq!([made(0), made(1)], [2, 2]);
    node.storage.cordon(&["*".into()]);
    assert_eq!([made(2), made(3)], [0, 1]);
}

#[test]
fn two_directories_are_given_back_when_a_third_is_another_process() {
    let disk = SimDisk::new(3);
    let held = LogDirectory::open(Arc::new(disk.clone()), Path::new("/c")).unwrap();
    assert!(matches!(lock(&disk, &[]), Err(LogError::Locked { .. })));
    drop(held);
    assert!(lock(&disk, &[]).is_ok());
}
