use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use milena_io::{Disk, Fault, FaultKind, FileExt, Rng, SimClock, SimDisk, SimRng, StepKind};
use milena_log::OpenParams;
use milena_protocol::Uuid;
use milena_records::{Batch, BatchBuilder, batches};

use super::*;
use crate::flusher::Flusher;
use crate::partition::TopicIdentity;
use crate::test_partitions::{directory, settings};

const PARAMS: OpenParams =
    OpenParams { clean: false, recovery_point: 0, log_start_offset: 0, cleaned_to: 0, now_ms: 0 };

/// Partitions of one topic on a disk of their own.
struct World {
    disk: SimDisk,
    clock: Arc<SimClock>,
    flusher: Arc<Flusher>,
}

impl World {
    fn new(seed: u64) -> Self {
        let disk = SimDisk::new(seed);
        let clock = Arc::new(SimClock::new(0));
        let flusher = Arc::new(Flusher::new(Arc::<SimClock>::clone(&clock)));
        Self { disk, clock, flusher }
    }

    fn partition(&self, index: i32, overrides: &[(&'static str, &'static str)]) -> Arc<Partition> {
        let settings = settings(overrides);
        let disk = Arc::new(self.disk.clone());
        let directory = directory(&disk);
        let (log, _) = Log::open(disk, &dir(index), Arc::clone(&settings.log), PARAMS).unwrap();
        let topic = Arc::new(TopicIdentity { name: "t".into(), id: Uuid::ZERO });
        Arc::new(Partition::lead(topic, index, directory, log, 0, settings, &self.flusher).unwrap())
    }

    /// Waits until so many syncs are held.
    fn until_held(&self, syncs: usize) {
        while self.disk.held(StepKind::Sync) < syncs {
            std::thread::yield_now();
        }
    }

    /// How often files were synced whose names end like this.
    fn syncs(&self, suffix: &str) -> usize {
        self.disk.trace().iter().filter(|step| step.contains("Sync ") && step.ends_with(suffix)).count()
    }
}

fn dir(index: i32) -> PathBuf {
    format!("/t-{index}").into()
}

fn batch(timestamp: i64, len: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.push(timestamp, None, Some(&vec![timestamp as u8; len]), &[]);
    builder.build().unwrap()
}

/// Appends one record; the log end offset after it.
fn append(partition: &Arc<Partition>) -> i64 {
    partition.append_as_leader(&mut [&mut batch(1, 10)], &[], 0).unwrap().last_offset + 1
}

/// Waits for the outcome of what was appended below `end`.
fn outcome(partition: &Partition, end: i64) -> Result<(), ErrorCode> {
    loop {
        match partition.acknowledges(end) {
            Some(outcome) => return outcome,
            None => std::thread::yield_now(),
        }
    }
}

#[test]
fn what_is_appended_while_a_sync_runs_is_made_durable_by_one_more() {
    let world = World::new(0);
    world.flusher.set_threads(4);
    let partition = world.partition(0, &[("flush.messages", "1")]);
    world.disk.hold(StepKind::Sync);
    let first = append(&partition);
    world.until_held(1);
    let ends: Vec<i64> = (0..15).map(|_| append(&partition)).collect();
    let last = ends[14];
    assert_eq!((partition.acknowledges(first), partition.acknowledges(last)), (None, None));
    assert_eq!(partition.high_watermark(), 0, "consumers wait too, as in Kafka");
    world.disk.release(StepKind::Sync);
    assert_eq!(outcome(&partition, last), Ok(()));
    assert_eq!((partition.high_watermark(), world.syncs(".log")), (16, 2));
}

#[test]
fn the_append_that_reaches_flush_messages_waits_and_those_before_it_do_not() {
    let world = World::new(0);
    let partition = world.partition(0, &[("flush.messages", "3")]);
    world.disk.hold(StepKind::Sync);
    let ends: Vec<i64> = (0..2).map(|_| append(&partition)).collect();
    assert!(ends.iter().all(|&end| partition.acknowledges(end) == Some(Ok(()))));
    let third = append(&partition);
    assert_eq!((partition.acknowledges(third), partition.high_watermark()), (None, 2));
    let fourth = append(&partition);
    assert_eq!(partition.acknowledges(fourth), None, "it comes behind the third");
    world.disk.release(StepKind::Sync);
    assert_eq!(outcome(&partition, fourth), Ok(()));
    world.flusher.stop();
    assert_eq!(world.syncs(".log"), 1);
}

#[test]
fn partitions_wait_for_their_own_syncs_only() {
    let world = World::new(0);
    world.flusher.set_threads(2);
    let slow = world.partition(0, &[("flush.messages", "1")]);
    let plain = world.partition(1, &[]);
    world.disk.hold(StepKind::Sync);
    let held = append(&slow);
    world.until_held(1);
    let free = append(&plain);
    assert_eq!((slow.acknowledges(held), plain.acknowledges(free)), (None, Some(Ok(()))));
    world.disk.release(StepKind::Sync);
    assert_eq!(outcome(&slow, held), Ok(()));
}

#[test]
fn a_failed_sync_acknowledges_nothing_and_ends_all_writes() {
    let world = World::new(0);
    let partition = world.partition(0, &[("flush.messages", "1")]);
    let acknowledged = append(&partition);
    assert_eq!(outcome(&partition, acknowledged), Ok(()));
    let fault = Fault { kind: FaultKind::Io, on: StepKind::Sync, path_contains: ".log".into(), times: 1 };
    world.disk.fail(fault);
    let lost = append(&partition);
    assert_eq!(outcome(&partition, lost), Err(ErrorCode::KAFKA_STORAGE_ERROR));
    assert!(partition.append_as_leader(&mut [&mut batch(1, 10)], &[], 0).is_err());
    assert_eq!((partition.high_watermark(), partition.acknowledges(acknowledged)), (1, Some(Ok(()))));
    assert_eq!(partition.acknowledges(lost), Some(Err(ErrorCode::KAFKA_STORAGE_ERROR)), "it stays so");
}

#[test]
fn new_settings_hold_from_the_next_append_on() {
    let world = World::new(0);
    let partition = world.partition(0, &[]);
    append(&partition);
    partition.set_settings(settings(&[("flush.messages", "2")]));
    world.disk.hold(StepKind::Sync);
    let end = append(&partition);
    assert_eq!(partition.acknowledges(end), None, "two records are not durable");
    world.disk.release(StepKind::Sync);
    assert_eq!(outcome(&partition, end), Ok(()));
    partition.set_settings(settings(&[]));
    world.disk.hold(StepKind::Sync);
    let end = append(&partition);
    assert_eq!(partition.acknowledges(end), Some(Ok(())));
    world.disk.release(StepKind::Sync);
}

#[test]
fn flush_ms_counts_from_the_last_flush_and_is_seen_by_the_timer_only() {
    let world = World::new(0);
    let [timed, other] = [("flush.ms", "100"), ("flush.ms", "9223372036854775807")].map(|it| [it]);
    let (timed, other) = (world.partition(0, &timed), world.partition(1, &other));
    let flushed = || [timed.log().flushed_to(), other.log().flushed_to()];
    for partition in [&timed, &other] {
        assert_eq!(outcome(partition, append(partition)), Ok(()));
    }
    world.clock.advance(Duration::from_millis(99));
    world.flusher.tick();
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(flushed(), [0, 0]);
    world.flusher.tick();
    other.set_settings(settings(&[("flush.ms", "50")]));
    while flushed() != [1, 0] {
        std::thread::yield_now();
    }
    world.flusher.tick();
    world.flusher.stop();
    assert_eq!((flushed(), world.syncs(".log")), ([1, 1], 2));
}

#[test]
fn an_idle_partition_is_not_looked_at() {
    let world = World::new(0);
    let partition = world.partition(0, &[("flush.ms", "1")]);
    assert_eq!(Arc::strong_count(&partition), 1);
    append(&partition);
    assert_eq!(Arc::strong_count(&partition), 2, "the timer looks after it");
    world.clock.advance(Duration::from_millis(5));
    world.flusher.tick();
    world.flusher.stop();
    assert_eq!(Arc::strong_count(&partition), 1);
}

#[test]
fn a_roll_is_flushed_without_anyone_waiting() {
    let world = World::new(0);
    let partition = world.partition(0, &[("segment.bytes", "1048576")]);
    world.disk.hold(StepKind::Sync);
    for _ in 0..2 {
        let mut large = batch(1, 700_000);
        let end = partition.append_as_leader(&mut [&mut large], &[], 0).unwrap().last_offset + 1;
        assert_eq!(partition.acknowledges(end), Some(Ok(())));
    }
    world.until_held(1);
    assert_eq!(partition.log().recovery_point(), 0);
    world.disk.release(StepKind::Sync);
    world.flusher.stop();
    assert_eq!(partition.log().recovery_point(), 1);
    assert_eq!([world.syncs("0.log"), world.syncs("1.log")], [1, 0], "the disk is not at work where appends go");
}

#[test]
fn a_partition_that_goes_during_a_flush_answers_at_once_and_is_no_failure() {
    let world = World::new(0);
    let partition = world.partition(0, &[("flush.messages", "1")]);
    world.disk.hold(StepKind::Sync);
    let end = append(&partition);
    world.until_held(1);
    partition.retire();
    partition.log().rename_for_deletion(7).unwrap();
    assert_eq!(partition.acknowledges(end), Some(Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)));
    world.disk.release(StepKind::Sync);
    world.flusher.stop();
    assert!(!partition.flushes.failed.load(Ordering::Relaxed));
}

#[test]
fn a_stop_does_the_flushes_that_are_queued() {
    let world = World::new(0);
    let partitions: Vec<_> = (0..5).map(|index| world.partition(index, &[("flush.messages", "1")])).collect();
    world.disk.hold(StepKind::Sync);
    let ends: Vec<i64> = partitions.iter().map(append).collect();
    world.until_held(1);
    std::thread::scope(|scope| {
        let stopped = scope.spawn(|| world.flusher.stop());
        world.disk.release(StepKind::Sync);
        stopped.join().unwrap();
    });
    assert!(partitions.iter().zip(ends).all(|(partition, end)| partition.acknowledges(end) == Some(Ok(()))));
}

/// Appends to two partitions from four threads until power fails, and looks for what was acknowledged.
fn lose_power(seed: u64) {
    const PARTITIONS: usize = 2;
    let mut rng = SimRng::new(seed);
    let world = World::new(seed);
    world.flusher.set_threads(2);
    let overrides = [("flush.messages", if seed.is_multiple_of(3) { "4" } else { "1" }), ("segment.bytes", "1048576")];
    let partitions: Vec<_> = (0..PARTITIONS as i32).map(|index| world.partition(index, &overrides)).collect();
    world.disk.crash_at(Some(world.disk.steps() + 1 + rng.below(200)));
    let every = overrides[0].1 == "1";
    let (acknowledged, points) = (parking_lot::Mutex::new(Vec::new()), [const { AtomicI64::new(0) }; PARTITIONS]);
    let number = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (partitions, acknowledged, points, number) = (&partitions, &acknowledged, &points, &number);
            scope.spawn(move || {
                loop {
                    let number = number.fetch_add(1, Ordering::Relaxed);
                    let at = (thread + number) % PARTITIONS;
                    let mut bytes = batch(number as i64, if number % 16 == 0 { 500_000 } else { 3000 });
                    let Ok(appended) = partitions[at].append_as_leader(&mut [&mut bytes], &[], 0) else { return };
                    if outcome(&partitions[at], appended.last_offset + 1).is_err() {
                        return;
                    }
                    if every {
                        acknowledged.lock().push((at, bytes));
                    }
                    points[at].fetch_max(partitions[at].log().recovery_point(), Ordering::Relaxed);
                }
            });
        }
    });
    world.flusher.stop();
    world.disk.restart();
    let acknowledged = acknowledged.into_inner();
    for (at, point) in points.into_iter().enumerate() {
        let params = OpenParams { recovery_point: point.into_inner(), ..PARAMS };
        let config = Arc::clone(&settings(&overrides).log);
        let (log, _) = Log::open(Arc::new(world.disk.clone()), &dir(at as i32), config, params).unwrap();
        assert!(log.log_end_offset() >= params.recovery_point, "seed {seed}: partition {at}");
        for (_, bytes) in acknowledged.iter().filter(|(partition, _)| *partition == at) {
            let offset = Batch::parse(bytes).unwrap().base_offset();
            let slice = log.read(offset, 1, i64::MAX, true).ok().flatten();
            let slice = slice.unwrap_or_else(|| panic!("seed {seed}: offset {offset} of partition {at} is gone"));
            let mut found = vec![0; slice.len];
            slice.file.read_exact_at(&mut found, slice.position).unwrap();
            assert_eq!(batches(&found).next().unwrap().unwrap().bytes(), bytes, "seed {seed}: offset {offset}");
        }
    }
}

#[test]
fn what_was_acknowledged_with_flush_messages_1_survives_every_power_loss() {
    for seed in 0..60 * milena_testkit::rounds() {
        lose_power(seed);
    }
}

#[test]
fn a_new_partitions_topic_id_is_durable_with_its_first_record() {
    for seed in 0..40 * milena_testkit::rounds() {
        let world = World::new(seed);
        let partition = world.partition(0, &[("flush.messages", "1")]);
        let id = Uuid::random(|bytes| SimRng::new(seed).fill(bytes)).to_string();
        milena_log::write_topic_id_unsynced(&world.disk, &dir(0), &id).unwrap();
        assert_eq!(outcome(&partition, append(&partition)), Ok(()));
        world.flusher.stop();
        world.disk.restart();
        assert!(world.disk.metadata(&dir(0)).unwrap().is_some());
        assert_eq!(milena_log::read_topic_id(&world.disk, &dir(0)).unwrap(), Some(id));
    }
}
