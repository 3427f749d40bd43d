use std::path::{Path, PathBuf};

use arc_swap::ArcSwap;
use milena_config::Settings;
use milena_io::{Disk, Fault, FaultKind, SimClock, SimDisk, StepKind};
use milena_log::Checkpoint;
use milena_protocol::MetadataRecord;
use milena_protocol::messages::RemoveTopicRecord;
use milena_records::BatchBuilder;

use super::*;
use crate::test_image::{id, image, topic};

const DIR: &str = "/data";

/// A publisher over one directory of a simulated disk, which follows an image.
struct Cluster {
    disk: SimDisk,
    publisher: Publisher,
}

impl Cluster {
    fn new() -> Self {
        Self::on(SimDisk::new(1))
    }

    fn on(disk: SimDisk) -> Self {
        disk.create_dir_all(Path::new(DIR)).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let directories = vec![(PathBuf::from(DIR), Ok(id(101)))];
        let storage = Storage::lock(shared, Arc::new(SimClock::new(0)), directories, Path::new("/metadata")).unwrap();
        let config = BrokerConfig::load(&Settings::new()).unwrap();
        let live = Live {
            image: ArcSwap::from_pointee(image([]).into()),
            config: ArcSwap::from_pointee(config),
            voting: Default::default(),
        };
        let live = Arc::new(live);
        let (replicas, storage) = (Arc::default(), Arc::new(storage));
        let clock = Arc::new(SimClock::new(0));
        let coordinators = Arc::new(Coordinators::new(Arc::clone(&live), clock, Arc::clone(&replicas)));
        let readers = DiskThreads::new("reader", 1);
        let connections = milena_net::Server::bind(milena_net::NetConfig::default()).unwrap().limits();
        let publisher = Publisher { node_id: 1, live, replicas, storage, coordinators, readers, connections };
        Self { disk, publisher }
    }

    fn follow(&self, records: &[MetadataRecord<'static>]) {
        let (image, delta) = self.publisher.live.image.load().apply(records).unwrap();
        self.publisher.follow(vec![Loaded { image, delta }]);
    }

    /// Makes the topic `t` with an id that ends with `last`.
    fn create(&self, last: u8, partitions: &[&[i32]]) {
        self.follow(&topic("t", last, partitions));
    }

    fn delete(&self, last: u8) {
        self.follow(&[RemoveTopicRecord { topic_id: id(last) }.into()]);
    }

    fn partition(&self, index: i32) -> Option<Arc<Partition>> {
        self.publisher.replicas.topics().by_name("t")?.partition(index).cloned()
    }

    fn append(&self, records: usize) {
        let mut builder = BatchBuilder::new();
        for _ in 0..records {
            builder.push(0, None, Some(b"value"), &[]);
        }
        let mut batch = builder.build().unwrap();
        self.partition(0).unwrap().append_as_leader(&mut [&mut batch], &[], 0).unwrap();
    }

    fn checkpoint(&self) {
        for which in Checkpoint::ALL {
            self.publisher.storage.checkpoint(&self.publisher.replicas, which).unwrap();
        }
    }

    /// A checkpoint's lines that begin with the topic's name.
    fn lines(&self, which: Checkpoint) -> Vec<String> {
        let path = Path::new(DIR).join(which.file_name());
        let bytes = milena_log::read_file(&self.disk, &path).unwrap().unwrap_or_default();
        let text = String::from_utf8(bytes).unwrap();
        text.lines().filter(|line| line.starts_with("t ")).map(str::to_owned).collect()
    }

    fn fail(&self, on: StepKind, path_contains: &str) {
        let path_contains = path_contains.to_owned();
        self.disk.fail(Fault { kind: FaultKind::NoSpace, on, path_contains, times: u64::MAX });
    }
}

#[test]
fn a_deleted_topic_has_left_the_checkpoints_when_its_deletion_is_over() {
    let cluster = Cluster::new();
    cluster.create(1, &[&[1]]);
    cluster.append(9);
    cluster.partition(0).unwrap().set_cleaned_to(Some(5));
    cluster.checkpoint();
    assert_eq!(cluster.lines(Checkpoint::HighWatermark), ["t 0 9"]);
    assert_eq!(cluster.lines(Checkpoint::Cleaner), ["t 0 5"]);
    assert_eq!(cluster.lines(Checkpoint::RecoveryPoint).len(), 1);
    cluster.delete(1);
    for which in Checkpoint::ALL {
        assert_eq!(cluster.lines(which), [""; 0], "{which:?}");
    }
}

#[test]
fn lines_that_could_not_be_taken_out_go_with_the_next_attempt() {
    let cluster = Cluster::new();
    cluster.create(1, &[&[1]]);
    cluster.append(9);
    cluster.checkpoint();
    cluster.fail(StepKind::Write, "checkpoint");
    cluster.delete(1);
    assert_eq!(cluster.lines(Checkpoint::HighWatermark), ["t 0 9"]);
    cluster.disk.clear_faults();
    cluster.publisher.storage.forget_deleted(&cluster.publisher.replicas);
    assert_eq!(cluster.lines(Checkpoint::HighWatermark), [""; 0]);
}

#[test]
fn a_deletion_writes_no_checkpoint_that_has_no_line_of_the_topic() {
    let cluster = Cluster::new();
    cluster.checkpoint();
    cluster.create(1, &[&[1]]);
    let count = || cluster.disk.trace().iter().filter(|step| step.contains("checkpoint")).count();
    let before = count();
    cluster.delete(1);
    assert_eq!(count(), before);
}

/// Stops over a directory in which `fail` is wrong while a new partition is synced; whether it is marked clean then.
fn marked_clean_after(fail: Option<StepKind>) -> bool {
    let cluster = Cluster::new();
    cluster.create(1, &[&[1]]);
    if let Some(step) = fail {
        cluster.fail(step, if step == StepKind::Sync { "partition.metadata" } else { DIR });
    }
    cluster.publisher.storage.sync_created();
    cluster.disk.clear_faults();
    let Publisher { storage, replicas, .. } = cluster.publisher;
    Arc::into_inner(storage).unwrap().close(&replicas, 7).unwrap();
    let marker = Path::new(DIR).join(".kafka_cleanshutdown");
    milena_log::read_file(&cluster.disk, &marker).unwrap().is_some()
}

#[test]
fn a_directory_whose_new_partitions_could_not_be_synced_is_not_marked_clean() {
    assert!(marked_clean_after(None));
    assert!(!marked_clean_after(Some(StepKind::Sync)));
    assert!(!marked_clean_after(Some(StepKind::SyncDir)));
}

#[test]
fn partitions_that_could_not_be_made_are_made_when_there_is_space() {
    let cluster = Cluster::new();
    cluster.fail(StepKind::Write, "partition.metadata");
    cluster.create(1, &[&[1], &[1]]);
    assert!(cluster.partition(0).is_none() && cluster.publisher.storage.has_missing());
    cluster.publisher.make_missing();
    assert!(cluster.partition(0).is_none() && cluster.publisher.storage.has_missing());
    cluster.disk.clear_faults();
    cluster.publisher.make_missing();
    assert!(cluster.partition(0).is_some() && cluster.partition(1).is_some());
    assert!(!cluster.publisher.storage.has_missing());
    cluster.append(1);
}

#[test]
fn partitions_of_a_topic_that_was_deleted_meanwhile_are_not_made() {
    let cluster = Cluster::new();
    cluster.fail(StepKind::Write, "partition.metadata");
    cluster.create(1, &[&[1]]);
    cluster.delete(1);
    cluster.disk.clear_faults();
    cluster.publisher.make_missing();
    assert!(cluster.partition(0).is_none() && !cluster.publisher.storage.has_missing());
    assert_eq!(cluster.disk.metadata(&Path::new(DIR).join("t-0")).unwrap(), None);
}

#[test]
fn a_topic_made_again_has_no_records_of_one_whose_files_could_not_be_moved_away() {
    let cluster = Cluster::new();
    cluster.create(1, &[&[1]]);
    cluster.append(9);
    cluster.fail(StepKind::Rename, "t-0");
    cluster.delete(1);
    cluster.disk.clear_faults();
    cluster.create(2, &[&[1]]);
    let partition = cluster.partition(0).unwrap();
    assert_eq!((partition.topic.id, partition.high_watermark()), (id(2), 0));
}

#[test]
fn a_topic_made_again_within_the_second_has_no_records_of_the_one_before_after_a_power_loss() {
    for seed in 0..300 * milena_testkit::rounds() {
        let cluster = Cluster::on(SimDisk::new(seed));
        cluster.checkpoint();
        cluster.create(1, &[&[1]]);
        cluster.append(9);
        cluster.delete(1);
        cluster.create(2, &[&[1]]);
        cluster.disk.restart();
        let again = Cluster::on(cluster.disk.clone());
        let settings = PartitionSettings::of_topic(&again.publisher.live.config.load(), &image([]), "t");
        let topic = Arc::new(TopicIdentity { name: "t".into(), id: id(2) });
        let wanted = crate::storage::Wanted { topic, index: 0, leader_epoch: 0, settings, directory: id(101) };
        again.publisher.storage.look().unwrap();
        let opened = again.publisher.storage.open_all(vec![wanted], 1).unwrap();
        assert_eq!(opened.partitions[0].high_watermark(), 0, "seed {seed}");
    }
}
