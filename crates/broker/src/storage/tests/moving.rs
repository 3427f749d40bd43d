//! Moves between log directories: what is refused, how they end, and that one good copy is left whatever step a crash comes at.

use milena_records::{Batch, Decompressor};

use super::*;

impl Node {
    /// What AlterReplicaLogDirs answers for partition 0.
    fn alter(&self, directory: &str) -> ErrorCode {
        let wanted = Move { topic: "t".into(), index: 0, directory: directory.into() };
        self.storage.alter_directories(&self.replicas, &[wanted])[0]
    }

    fn finish(&self) {
        self.storage.finish_moves(&self.replicas, self.storage.mover().take_caught_up());
    }

    /// Appends a record whose value is its offset.
    fn append_offset(&self) -> Result<i64, LogError> {
        let partition = self.partition(0);
        let mut builder = BatchBuilder::new();
        builder.push(0, None, Some(partition.high_watermark().to_string().as_bytes()), &[]);
        let mut batch = builder.build().unwrap();
        Ok(partition.append_as_leader(&mut [&mut batch], &[], 0)?.last_offset + 1)
    }

    fn append_offsets(&self, count: usize) {
        for _ in 0..count {
            self.append_offset().unwrap();
        }
    }

    /// Starts on a disk; the metadata has partition 0 in the directory with this id.
    fn start(disk: &SimDisk, directory: Uuid) -> Self {
        let storage = lock(disk, &[]).unwrap();
        storage.look().unwrap();
        storage.take_clean_markers();
        let topic = Arc::new(TopicIdentity { name: "t".into(), id: id(1) });
        let directories = [directory, id(102), id(103)];
        let wanted = |(index, directory)| {
            let (topic, settings) = (Arc::clone(&topic), settings(&[]));
            Wanted { topic, index, leader_epoch: 1, settings, directory }
        };
        let opened = storage.open_all((0..).zip(directories).map(wanted).collect(), 1).unwrap();
        let node = Self { disk: disk.clone(), storage, replicas: Replicas::default() };
        node.replicas.add(opened.partitions);
        node
    }

    /// The directories of partition 0, without those that wait for their deletion.
    fn places(&self) -> Vec<String> {
        let names = DIRS.iter().flat_map(|dir| {
            let entries = self.disk.list(Path::new(dir)).unwrap();
            entries.into_iter().map(move |entry| format!("{dir}/{}", entry.name))
        });
        names.filter(|name| name.contains("/t-0") && !name.ends_with("-delete")).collect()
    }

    /// Every record of partition 0 has its offset as its value; the first ones were made without.
    fn check_records(&self) {
        let partition = self.partition(0);
        let mut offset = partition.log_start_offset();
        while let Some(found) = partition.read(offset, 1, true, Isolation::Uncommitted).unwrap() {
            let slice = found.slice;
            let mut bytes = vec![0; slice.len];
            milena_io::FileExt::read_exact_at(&*slice.file, &mut bytes, slice.position).unwrap();
            let batch = Batch::parse(&bytes).unwrap();
            for record in batch.records(&mut Decompressor::new(1 << 20)).unwrap() {
                let record = record.unwrap();
                let value = std::str::from_utf8(record.value.unwrap()).unwrap().to_owned();
                assert_eq!(value, if offset == 0 { "value".to_owned() } else { offset.to_string() });
                offset = record.offset(&batch) + 1;
            }
        }
        assert_eq!(offset, partition.high_watermark());
    }
}

/// A node that copies when it is told to.
fn node(seed: u64) -> Node {
    let node = Node::with_seed(seed);
    node.storage.mover().by_hand();
    node
}

#[test]
fn a_move_ends_where_it_was_to_go_with_all_records_and_leaves_nothing() {
    let node = node(1);
    node.append_offset().unwrap();
    assert_eq!((node.alter("/b"), node.alter("/b")), (ErrorCode::NONE, ErrorCode::NONE));
    node.storage.mover().copy(node.partition(0));
    node.append_offset().unwrap();
    node.finish();
    node.append_offset().unwrap();
    assert_eq!((node.partition(0).directory().index(), node.partition(0).is_moving()), (1, false));
    assert_eq!(node.places(), ["/b/t-0"]);
    node.check_records();
    assert_eq!(node.partition(0).high_watermark(), 4);
    let counts = node.storage.directories().iter().map(|directory| directory.partitions.load(Ordering::Relaxed));
    assert_eq!(counts.collect::<Vec<_>>(), [0, 2, 1]);
    let disk = node.stop();
    let node = Node::start(&disk, id(102));
    node.check_records();
    node.storage.delete_due();
    assert!(DIRS.iter().all(|dir| disk.list(Path::new(dir)).unwrap().iter().all(|it| !it.name.ends_with("-delete"))));
}

#[test]
fn moving_back_ends_a_move_and_its_copy_is_deleted() {
    let node = node(2);
    assert_eq!(node.alter("/b"), ErrorCode::NONE);
    node.storage.mover().copy(node.partition(0));
    assert_eq!(node.alter("/a"), ErrorCode::NONE);
    node.finish();
    assert_eq!((node.places(), node.partition(0).is_moving()), (vec!["/a/t-0".to_owned()], false));
    node.storage.delete_due();
    assert!(node.disk.list(Path::new("/b")).unwrap().iter().all(|entry| !entry.name.starts_with("t-0")));
}

#[test]
fn what_kafka_refuses_is_refused() {
    let node = node(3);
    let asked = |topic: &str, index, directory: &str| {
        let wanted = Move { topic: topic.into(), index, directory: directory.into() };
        node.storage.alter_directories(&node.replicas, &[wanted])[0]
    };
    assert_eq!(asked(&"t".repeat(215), 0, "/x"), ErrorCode::INVALID_TOPIC_EXCEPTION);
    assert_eq!(asked("t", 0, "/x"), ErrorCode::LOG_DIR_NOT_FOUND);
    assert_eq!(asked("t", 0, "b"), ErrorCode::LOG_DIR_NOT_FOUND);
    assert_eq!(asked("t", 3, "/b"), ErrorCode::REPLICA_NOT_AVAILABLE);
    assert_eq!(asked("u", 0, "/b"), ErrorCode::REPLICA_NOT_AVAILABLE);
    assert_eq!(asked("t", 0, "/a"), ErrorCode::NONE);
    node.storage.cordon(&["/b".into()]);
    assert_eq!(asked("t", 0, "/b"), ErrorCode::INVALID_REPLICA_ASSIGNMENT);
    node.storage.directories()[1].fail(&"broken");
    assert_eq!(asked("t", 0, "/b"), ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!(asked("t", 0, "/c"), ErrorCode::KAFKA_STORAGE_ERROR, "while a directory is offline");
    node.replicas.take_offline();
    assert_eq!(asked("t", 1, "/c"), ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!(node.places(), ["/a/t-0"]);
}

#[test]
fn a_copy_follows_where_old_records_are_deleted() {
    let node = node(4);
    node.append_offsets(9);
    assert_eq!(node.alter("/b"), ErrorCode::NONE);
    node.storage.mover().copy(node.partition(0));
    node.append_offsets(9);
    node.partition(0).change_log_start(|log| log.set_log_start_offset(15)).unwrap();
    node.finish();
    assert_eq!((node.partition(0).log_start_offset(), node.partition(0).high_watermark()), (15, 19));
    node.check_records();
    assert_eq!((node.places(), node.partition(0).log().leader_epochs().len()), (vec!["/b/t-0".to_owned()], 1));
}

#[test]
fn a_full_disk_holds_a_move_up_and_a_failed_one_ends_it() {
    let node = node(5);
    assert_eq!(node.alter("/b"), ErrorCode::NONE);
    node.fail(FaultKind::NoSpace, StepKind::Write, "-future");
    node.storage.mover().copy(node.partition(0));
    assert!(node.partition(0).is_moving() && !node.storage.mover().has_caught_up());
    node.disk.clear_faults();
    node.storage.mover().copy(node.partition(0));
    assert!(node.storage.mover().has_caught_up());
    node.fail(FaultKind::Io, StepKind::Write, "-future");
    node.append_offset().unwrap();
    node.finish();
    assert_eq!(node.offline(), [1]);
    node.storage.end_failed_moves(&node.replicas, &node.replicas.take_offline());
    assert!(!node.partition(0).is_moving());
    assert_eq!(node.append_offset().unwrap(), 3);
}

#[test]
fn what_was_copied_from_a_failed_directory_is_left_in_order() {
    let node = node(6);
    assert_eq!(node.alter("/c"), ErrorCode::NONE);
    node.storage.mover().copy(node.partition(0));
    let partition = node.partition(0);
    node.storage.directories()[0].fail(&"broken");
    node.storage.end_failed_moves(&node.replicas, &node.replicas.take_offline());
    assert!(!partition.is_moving());
    drop(partition);
    let disk = node.stop();
    let node = Node::start(&disk, id(101));
    let future = node.partition(0).future().unwrap();
    let log = future.log();
    assert_eq!((log.log_end_offset(), log.recovery_point()), (1, 1));
}

#[test]
fn the_end_of_a_move_that_fails_leaves_the_log_where_it_is() {
    for (step, path) in [(StepKind::Rename, "/b/t-0"), (StepKind::Create, "/b/t-0.")] {
        let node = node(7);
        assert_eq!(node.alter("/b"), ErrorCode::NONE);
        node.storage.mover().copy(node.partition(0));
        node.storage.take_placed();
        node.append_offsets(2);
        node.fail(FaultKind::Io, step, path);
        node.finish();
        assert_eq!((node.offline(), node.partition(0).directory().index()), (vec![1], 0), "{step:?}");
        assert_eq!(node.append_offset().unwrap(), 4, "{step:?}");
        let placed = node.storage.take_placed();
        assert_eq!(placed.iter().map(|it| it.directory).collect::<Vec<_>>(), [id(101)], "the metadata is told so");
    }
}

/// What must be there after a crash, and where the metadata has the partition.
struct Known {
    acknowledged: i64,
    durable: i64,
    log_start: i64,
    directory: Uuid,
}

/// Moves to `/b`, back, and to `/c`, with appends and a deletion of records in between, until a step fails.
fn script(node: &Node, known: &mut Known) -> Result<(), LogError> {
    let refused = |error: ErrorCode| match error {
        ErrorCode::NONE => Ok(()),
        _ => Err(LogError::Offline { dir: "/".into() }),
    };
    let append = |known: &mut Known| node.append_offset().map(|end| known.acknowledged = end);
    refused(node.alter("/b"))?;
    node.storage.mover().copy(node.partition(0));
    append(known)?;
    refused(node.alter("/a"))?;
    append(known)?;
    refused(node.alter("/c"))?;
    node.storage.mover().copy(node.partition(0));
    append(known)?;
    node.storage.checkpoint(&node.replicas, Checkpoint::RecoveryPoint)?;
    node.partition(0).change_log_start(|log| log.set_log_start_offset(2))?;
    node.storage.checkpoint(&node.replicas, Checkpoint::LogStart)?;
    known.log_start = 2;
    if !node.storage.mover().has_caught_up() {
        return Ok(());
    }
    known.directory = id(103);
    node.finish();
    append(known)?;
    node.partition(0).flush(true)?;
    known.durable = known.acknowledged;
    node.storage.checkpoint(&node.replicas, Checkpoint::RecoveryPoint)?;
    append(known)?;
    node.storage.checkpoint(&node.replicas, Checkpoint::LogStart)?;
    node.storage.delete_due();
    Ok(())
}

/// Crashes at step `at` and starts again; the number of steps without a crash.
fn crash(at: Option<u64>, power_loss: bool) -> u64 {
    let node = node(at.unwrap_or(0));
    node.append_offsets(3);
    node.storage.sync_created();
    node.disk.sync_dir(Path::new("/")).unwrap();
    node.partition(0).flush(true).unwrap();
    node.storage.checkpoint(&node.replicas, Checkpoint::RecoveryPoint).unwrap();
    let mut known = Known { acknowledged: 4, durable: 4, log_start: 0, directory: id(101) };
    let first = node.disk.steps();
    node.disk.crash_at(at.map(|step| first + step));
    let done = script(&node, &mut known);
    assert!(done.is_ok() || node.disk.has_crashed(), "{done:?}");
    let (disk, steps) = (node.disk.clone(), node.disk.steps() - first);
    drop(node);
    disk.crash_at(None);
    if power_loss {
        disk.restart()
    } else {
        disk.kill_process()
    }

    let node = Node::start(&disk, known.directory);
    node.storage.mover().by_hand();
    let least = if power_loss { known.durable } else { known.acknowledged };
    let partition = node.partition(0);
    assert!(partition.high_watermark() >= least, "{} of {least}", partition.high_watermark());
    assert!(partition.log_start_offset() >= known.log_start);
    node.check_records();
    let end = node.append_offset().unwrap();
    node.storage.mover().copy(node.partition(0));
    node.finish();
    assert!(!partition.is_moving());
    assert_eq!(partition.high_watermark(), end);
    node.append_offset().unwrap();
    node.check_records();
    node.storage.delete_due();
    assert_eq!(node.places().len(), 1, "{:?}", node.places());
    let at = node.partition(0).directory().id;
    let disk = node.stop();
    let node = Node::start(&disk, at);
    assert_eq!((node.partition(0).high_watermark(), node.places().len()), (end + 1, 1));
    node.check_records();
    steps
}

#[test]
fn whatever_step_a_crash_comes_at_all_records_are_there_once_and_the_move_can_go_on() {
    let steps = crash(None, true);
    assert!(steps > 50, "{steps}");
    for at in 1..=steps {
        for power_loss in [true, false] {
            let caught = std::panic::catch_unwind(|| crash(Some(at), power_loss));
            caught.inspect_err(|_| eprintln!("step {at}, power loss: {power_loss}")).unwrap();
        }
    }
}
