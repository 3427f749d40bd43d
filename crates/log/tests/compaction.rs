//! Compaction against a model that knows nothing of segments, maps and groups, for random logs of every codec; and with a crash at every
//! step of it, by kill and by power loss, or a disk that fails or is full there.

mod common;

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{dir, disk, index_entries, names, open, read_from};
use milena_io::{Disk, FaultKind, FileExt, Rng, SimDisk, SimRng};
use milena_log::{
    CleanError, CleanTask, Cleaned, Cleaner, CleanerConfig, CleaningLimits, Host, Log, LogConfig, Marker, OpenParams,
    ProducerState,
};
use milena_records::{Batch, BatchBuilder, Compression, Compressor, Decompressor, EndTransaction, batches};
use milena_testkit::rounds;
use parking_lot::Mutex;

/// How long new seeds are begun.
fn budget() -> Duration {
    Duration::from_secs(5).saturating_mul(rounds() as u32)
}

const RETENTION_MS: i64 = 1000;
/// Producers that are only idempotent have the ids from 0 on, those with transactions the ids behind them.
const IDEMPOTENT: i64 = 3;
const TRANSACTIONAL: i64 = 3;
const CONFIG: CleanerConfig =
    CleanerConfig { map_bytes: 1 << 20, load_factor: 0.9, buffer_bytes: 4096, decompressed_bytes: 1 << 20 };

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 3000,
        index_interval_bytes: 300,
        compact: true,
        transaction_verification: false,
        ..LogConfig::default()
    }
}

type Header = (Vec<u8>, Option<Vec<u8>>);

/// A record as a consumer sees it, and which batch it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    offset: i64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<Header>,
    batch: i64,
}

/// The records that a consumer sees which reads only what is committed.
fn seen(log: &Log) -> Vec<Seen> {
    let (mut all, mut offset, end) = (Vec::new(), log.log_start_offset(), log.log_end_offset());
    while let Some(slice) = log.read(offset, 700, i64::MAX, true).unwrap() {
        let mut bytes = vec![0; slice.len];
        slice.file.read_exact_at(&mut bytes, slice.position).unwrap();
        let mut ahead = log.aborted_transactions(offset, &slice, end).unwrap();
        ahead.sort_by_key(|aborted| Reverse(aborted.first_offset));
        let mut aborting = HashSet::new();
        for batch in batches(&bytes).map_while(Result::ok) {
            batch.verify_crc().unwrap();
            while let Some(begun) = ahead.pop_if(|aborted| aborted.first_offset <= batch.last_offset()) {
                aborting.insert(begun.producer_id);
            }
            if batch.is_control() {
                aborting.remove(&batch.producer_id());
            } else if !(batch.is_transactional() && aborting.contains(&batch.producer_id())) {
                seen_of(&batch, &mut all);
            }
            offset = batch.next_offset();
        }
    }
    all
}

fn seen_of(batch: &Batch<'_>, all: &mut Vec<Seen>) {
    for record in batch.records(&mut Decompressor::new(1 << 20)).unwrap() {
        let record = record.unwrap();
        all.push(Seen {
            offset: record.offset(batch),
            timestamp: record.timestamp(batch),
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record.headers.iter().map(|it| (it.key.to_vec(), it.value.map(<[u8]>::to_vec))).collect(),
            batch: batch.base_offset(),
        });
    }
}

/// A batch of 1 to 6 records with few keys, some of them tombstones, some with headers.
fn random_batch(rng: &mut SimRng, clock: &mut i64) -> Vec<u8> {
    let codec = Compression::ALL[rng.below(5) as usize];
    let mut builder = BatchBuilder::new().compression(codec, codec.default_level());
    if rng.below(8) == 0 {
        builder = builder.log_append_time(*clock + 7);
    }
    for _ in 0..1 + rng.below(6) {
        *clock += rng.below(20) as i64 - 5;
        let key = format!("key-{}", rng.below(12)).into_bytes();
        let mut value = vec![0; rng.below(150) as usize];
        rng.fill(&mut value);
        let value = (rng.below(5) > 0).then_some(&value[..]);
        let headers: [(&[u8], Option<&[u8]>); 2] = [(b"h", Some(&key)), (b"", None)];
        builder.push(*clock, Some(&key), value, &headers[..rng.below(3) as usize]);
    }
    let mut bytes = Vec::new();
    builder.finish(&mut Compressor::new(), &mut bytes).unwrap();
    bytes
}

/// Appends batches, some of idempotent producers and some in transactions, which are all ended at the end; rolls now and then.
fn fill(log: &mut Log, rng: &mut SimRng, batches: u64, sequences: &mut HashMap<i64, i32>) {
    let (mut clock, mut open) = (10_000, BTreeSet::new());
    for _ in 0..batches {
        let mut bytes = random_batch(rng, &mut clock);
        let producer_id = rng.below(16) as i64;
        if producer_id < IDEMPOTENT + TRANSACTIONAL {
            let sequence = sequences.entry(producer_id).or_default();
            bytes = common::sent_by(producer_id, 0, *sequence, bytes);
            *sequence += Batch::parse(&bytes).unwrap().count();
        }
        if (IDEMPOTENT..IDEMPOTENT + TRANSACTIONAL).contains(&producer_id) {
            bytes = common::transactional(bytes);
            open.insert(producer_id);
        }
        log.append(&mut [&mut bytes], &[], 3, 0).unwrap();
        if rng.below(4) == 0
            && let Some(producer_id) = open.pop_first()
        {
            end_transaction(log, rng, producer_id);
        }
        if rng.below(9) == 0 {
            log.roll(0).unwrap();
        }
    }
    open.into_iter().for_each(|producer_id| end_transaction(log, rng, producer_id));
}

fn end_transaction(log: &mut Log, rng: &mut SimRng, producer_id: i64) {
    let end = EndTransaction { committed: rng.below(2) == 0, coordinator_epoch: 3 };
    let marker = Marker { producer_id, producer_epoch: 0, end, transaction_version: 1, log_append_time: false };
    log.append_marker(&marker, 3, 10_000).unwrap().unwrap();
}

fn random_log(disk: &SimDisk, rng: &mut SimRng) -> Log {
    let (mut log, _) = open(disk, &config(), false, 0);
    let count = 5 + rng.below(40);
    fill(&mut log, rng, count, &mut HashMap::new());
    log.flush().unwrap();
    log
}

/// The producers without their stamps: a batch is as old as its youngest record, which may have gone.
fn producers(log: &Log) -> Vec<ProducerState> {
    log.producers().map(|state| ProducerState { timestamp: 0, ..state }).collect()
}

/// Lets everything through and removes at once what is to be removed later.
struct Free<'d> {
    disk: &'d SimDisk,
    high_watermark: i64,
    /// How many times it goes on.
    patience: u64,
}

impl Host for Free<'_> {
    fn go_on(&mut self, _: u64) -> bool {
        let patient = self.patience > 0;
        self.patience = self.patience.saturating_sub(1);
        patient
    }

    fn high_watermark(&self) -> i64 {
        self.high_watermark
    }

    fn remove_later(&mut self, files: Vec<PathBuf>) {
        for file in files {
            // A crash of the disk is what the test is about.
            let _ = self.disk.remove_file(&file);
        }
    }
}

fn limits(now_ms: i64) -> CleaningLimits {
    CleaningLimits { last_stable_offset: i64::MAX, min_lag_ms: 0, max_lag_ms: i64::MAX, now_ms }
}

fn clean(disk: &SimDisk, log: &Mutex<Log>, cleaned_to: i64, now_ms: i64) -> Result<Cleaned, CleanError> {
    clean_with(CONFIG, u64::MAX, disk, log, cleaned_to, now_ms)
}

fn clean_with(
    config: CleanerConfig,
    patience: u64,
    disk: &SimDisk,
    log: &Mutex<Log>,
    cleaned_to: i64,
    now_ms: i64,
) -> Result<Cleaned, CleanError> {
    let (cleanable, high_watermark) = {
        let log = log.lock();
        (log.cleanable(Some(cleaned_to), &limits(now_ms)).unwrap(), log.log_end_offset())
    };
    let task = CleanTask {
        first_dirty: cleanable.first_dirty,
        end: cleanable.end,
        now_ms,
        delete_retention_ms: RETENTION_MS,
        max_record_bytes: i32::MAX,
    };
    Cleaner::new(config).clean(log, task, &mut Free { disk, high_watermark, patience })
}

fn content(log: &Mutex<Log>) -> Vec<u8> {
    let log = log.lock();
    read_from(&log, log.log_start_offset(), 700)
}

/// What must be left: the last record of each key below `end`, tombstones until their batch's horizon, everything from `end` on.
#[derive(Debug, Default)]
struct Model {
    /// By the base offset of the batch.
    horizons: HashMap<i64, i64>,
}

impl Model {
    fn clean(&mut self, before: &[Seen], end: i64, now_ms: i64) -> Vec<Seen> {
        let mut last = HashMap::new();
        for record in before.iter().filter(|record| record.offset < end) {
            last.insert(record.key.clone(), record.offset);
        }
        let stays = |record: &&Seen| {
            let due = self.horizons.get(&record.batch).is_some_and(|horizon| *horizon <= now_ms);
            record.offset >= end || (last[&record.key] == record.offset && (record.value.is_some() || !due))
        };
        let after: Vec<Seen> = before.iter().filter(stays).cloned().collect();
        for record in after.iter().filter(|record| record.offset < end && record.value.is_none()) {
            self.horizons.entry(record.batch).or_insert(now_ms + RETENTION_MS);
        }
        after
    }
}

/// Indexes lead to the batches that they name; offsets go up; every batch that is left can be found by any of its offsets.
fn verify(disk: &SimDisk, log: &Log) {
    let bytes = read_from(log, log.log_start_offset(), 333);
    let mut next = 0;
    for batch in batches(&bytes) {
        let batch = batch.unwrap();
        assert!(batch.base_offset() >= next);
        for offset in next..=batch.last_offset() {
            let slice = log.read(offset, 1, i64::MAX, true).unwrap().unwrap();
            let mut found = vec![0; slice.len];
            slice.file.read_at(&mut found, slice.position).unwrap();
            assert_eq!(found, batch.bytes(), "offset {offset}");
        }
        next = batch.next_offset();
    }
    for base in log.segment_base_offsets() {
        for (offset, position) in index_entries(disk, base) {
            let slice = log.read(offset, 1, i64::MAX, true).unwrap().unwrap();
            assert_eq!((slice.segment, slice.position), (base, position), "index of {base}");
        }
    }
}

#[test]
fn the_last_value_of_each_key_stays_and_tombstones_stay_until_their_horizon() {
    for seed in 0..150 * rounds() {
        let (disk, mut rng) = (disk(seed), SimRng::new(seed));
        let log = Mutex::new(random_log(&disk, &mut rng));
        let (mut model, mut cleaned_to, mut now_ms) = (Model::default(), 0, 1_000_000);
        for round in 0..4 {
            let before = seen(&log.lock());
            let end = log.lock().segment_base_offsets().last().unwrap();
            let expected = model.clean(&before, end, now_ms);
            let cleaned = clean(&disk, &log, cleaned_to, now_ms).unwrap();
            assert_eq!(cleaned.end, end.max(cleaned_to));
            let after = content(&log);
            assert_eq!(seen(&log.lock()), expected, "seed {seed}, round {round}");
            for batch in batches(&after).map(Result::unwrap).filter(|batch| batch.last_offset() < end) {
                let horizon = model.horizons.get(&batch.base_offset()).copied();
                assert!(batch.delete_horizon() == horizon || horizon.is_none() || batch.count() == 0, "seed {seed}");
            }
            verify(&disk, &log.lock());
            cleaned_to = cleaned.end;
            now_ms += rng.below(2 * RETENTION_MS as u64) as i64;
            let mut log = log.lock();
            let producers: Vec<_> = log.producers().collect();
            let mut sequences = producers.iter().map(|it| (it.producer_id, it.last_sequence + 1)).collect();
            let count = rng.below(12);
            fill(&mut log, &mut rng, count, &mut sequences);
        }
        assert!(names(&disk).iter().all(|name| !name.ends_with(".cleaned") && !name.ends_with(".swap")));
    }
}

#[test]
fn producers_are_known_after_a_start_that_reads_the_compacted_log() {
    for seed in 0..100 * rounds() {
        let (disk, mut rng) = (disk(seed), SimRng::new(seed));
        let log = Mutex::new(random_log(&disk, &mut rng));
        clean(&disk, &log, 0, 0).unwrap();
        let log = log.into_inner();
        let known = producers(&log);
        let (bytes, end) = (read_from(&log, 0, 700), log.log_end_offset());
        drop(log);
        for name in names(&disk).iter().filter(|name| name.ends_with(".snapshot")) {
            disk.remove_file(&dir().join(name)).unwrap();
        }
        let (log, _) = open(&disk, &config(), false, 0);
        assert_eq!(producers(&log), known, "seed {seed}");
        assert_eq!((read_from(&log, 0, 700), log.log_end_offset()), (bytes, end));
    }
}

#[test]
fn a_map_that_is_too_small_for_all_cleans_what_it_reaches_and_goes_on_there() {
    let config = CleanerConfig { map_bytes: 24 * 8, ..CONFIG };
    for seed in 0..60 * rounds() {
        let (disk, mut rng) = (disk(seed), SimRng::new(seed));
        let log = Mutex::new(random_log(&disk, &mut rng));
        let before = seen(&log.lock());
        let end = log.lock().segment_base_offsets().last().unwrap();
        let expected = Model::default().clean(&before, end, 0);
        let (mut cleaned_to, mut turns) = (0, 0);
        while cleaned_to < end {
            let cleaned = clean_with(config, u64::MAX, &disk, &log, cleaned_to, 0).unwrap();
            assert!(cleaned.end > cleaned_to && cleaned.end <= end);
            (cleaned_to, turns) = (cleaned.end, turns + 1);
        }
        assert_eq!(seen(&log.lock()), expected, "seed {seed}, {turns} turns");
    }
    let one = CleanerConfig { map_bytes: 24, ..CONFIG };
    let (disk, mut rng) = (disk(1), SimRng::new(1));
    let log = Mutex::new(random_log(&disk, &mut rng));
    let before = content(&log);
    let error = clean_with(one, u64::MAX, &disk, &log, 0, 0).unwrap_err();
    assert!(matches!(error, CleanError::MapTooSmall { offset: 0 }), "{error}");
    assert_eq!(content(&log), before);
}

#[test]
fn a_cleaning_that_is_given_up_at_any_moment_leaves_a_log_that_can_be_cleaned() {
    for seed in 0..20 * rounds() {
        let mut patience = 0;
        loop {
            let (disk, mut rng) = (disk(seed), SimRng::new(seed));
            let log = Mutex::new(random_log(&disk, &mut rng));
            let whole = clean_with(CONFIG, patience, &disk, &log, 0, 0);
            assert!(names(&disk).iter().all(|name| !name.contains(".cleaned") && !name.contains(".swap")));
            let given_up = matches!(whole, Err(CleanError::GivenUp));
            clean(&disk, &log, 0, 0).unwrap();
            let fresh = common::disk(seed);
            let other = Mutex::new(random_log(&fresh, &mut SimRng::new(seed)));
            clean(&fresh, &other, 0, 0).unwrap();
            assert_eq!(seen(&log.lock()), seen(&other.lock()), "seed {seed}, patience {patience}");
            if !given_up {
                break;
            }
            patience += 1;
        }
    }
}

#[test]
fn a_log_that_is_cut_or_loses_segments_meanwhile_is_left_as_it_is() {
    struct Cut<'l>(&'l Mutex<Log>, bool);
    impl Host for Cut<'_> {
        fn go_on(&mut self, _: u64) -> bool {
            if !std::mem::replace(&mut self.1, true) {
                self.0.lock().truncate_to(9).unwrap();
            }
            true
        }
        fn high_watermark(&self) -> i64 {
            i64::MAX
        }
        fn remove_later(&mut self, files: Vec<PathBuf>) {
            assert_eq!(files, Vec::<PathBuf>::new());
        }
    }
    let (disk, mut rng) = (disk(3), SimRng::new(3));
    let log = Mutex::new(random_log(&disk, &mut rng));
    let end = log.lock().segment_base_offsets().last().unwrap();
    let task = CleanTask { first_dirty: 0, end, now_ms: 0, delete_retention_ms: 0, max_record_bytes: i32::MAX };
    let error = Cleaner::new(CONFIG).clean(&log, task, &mut Cut(&log, false)).unwrap_err();
    assert!(matches!(error, CleanError::GivenUp), "{error}");
    assert!(log.lock().log_end_offset() <= 9);
    log.lock().flush().unwrap();
}

#[test]
fn a_damaged_batch_is_not_given_a_new_checksum() {
    let (disk, mut rng) = (disk(5), SimRng::new(5));
    let log = Mutex::new(random_log(&disk, &mut rng));
    let slice = log.lock().read(0, 1, i64::MAX, true).unwrap().unwrap();
    let mut byte = [0];
    slice.file.read_at(&mut byte, 70).unwrap();
    let path = dir().join("00000000000000000000.log");
    let file = disk.open(&path, milena_io::OpenMode::Write).unwrap();
    file.write_vectored_at(&[std::io::IoSlice::new(&[byte[0] ^ 1])], 70).unwrap();
    let error = clean(&disk, &log, 0, 0).unwrap_err().to_string();
    assert!(error.contains("00000000000000000000.log is corrupt at byte 0: "), "{error}");
    assert!(names(&disk).iter().all(|name| !name.ends_with(".cleaned")));
}

/// What happens at one step of a cleaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    PowerLoss,
    Kill,
    Failure(FaultKind),
}

const TROUBLES: [Trouble; 4] =
    [Trouble::PowerLoss, Trouble::Kill, Trouble::Failure(FaultKind::Io), Trouble::Failure(FaultKind::NoSpace)];

/// Crashes, or fails, at step `at` of a cleaning and starts again; the number of steps that it takes when there is no trouble.
fn crash(seed: u64, at: Option<u64>, trouble: Trouble) -> u64 {
    let (disk, mut rng) = (disk(seed.wrapping_add(at.unwrap_or(0) << 8)), SimRng::new(seed));
    let log = Mutex::new(random_log(&disk, &mut rng));
    let before = seen(&log.lock());
    let (known, end, recovery_point, active) = {
        let log = log.lock();
        let active = log.segment_base_offsets().last().unwrap();
        (producers(&log), log.log_end_offset(), log.recovery_point(), active)
    };
    let last = Model::default().clean(&before, active, 0);
    let first = disk.steps();
    match trouble {
        Trouble::Failure(kind) => disk.fail_at(at.map(|step| (first + step, kind))),
        _ => disk.crash_at(at.map(|step| first + step)),
    }
    let cleaned = clean(&disk, &log, 0, 0);
    let steps = disk.steps() - first;
    disk.fail_at(None);
    match trouble {
        Trouble::Failure(_) => {
            let after = seen(&log.lock());
            assert!(after.iter().all(|record| before.contains(record)) && last.iter().all(|it| after.contains(it)));
            if !log.lock().is_poisoned() {
                clean(&disk, &log, 0, 0).unwrap();
                assert_eq!(seen(&log.lock()), last, "seed {seed}: the next cleaning does it");
            }
        }
        _ => assert_eq!(cleaned.is_err(), disk.has_crashed(), "{cleaned:?}"),
    }
    drop(log);
    disk.crash_at(None);
    if trouble == Trouble::PowerLoss {
        disk.restart()
    } else {
        disk.kill_process()
    }
    let (log, recovery) = open(&disk, &config(), false, recovery_point);
    assert_eq!((recovery.bytes_cut, log.log_end_offset()), (0, end), "{recovery:?}");
    assert_eq!(producers(&log), known);
    let left = names(&disk);
    let temporary = [".cleaned", ".swap", ".deleted"];
    assert!(!left.iter().any(|name| temporary.iter().any(|suffix| name.ends_with(suffix))), "{left:?}");
    verify(&disk, &log);
    let log = Mutex::new(log);
    let after = seen(&log.lock());
    assert!(after.iter().all(|record| before.contains(record)), "seed {seed}: nothing is there that was not there");
    assert!(last.iter().all(|record| after.contains(record)), "seed {seed}: the last of each key is there");
    clean(&disk, &log, 0, 0).unwrap();
    assert_eq!(seen(&log.lock()), last, "seed {seed}: what the crash interrupted is done again");
    let mut log = log.into_inner();
    log.close().unwrap();
    verify(&disk, &log);
    drop(log);
    disk.restart();
    let (log, _) = open(&disk, &config(), true, end);
    assert_eq!(seen(&log), last);
    steps
}

#[test]
fn whatever_step_a_crash_or_a_failure_comes_at_the_last_of_each_key_is_there_and_nothing_temporary_is_left() {
    if let Ok(one) = std::env::var("MILENA_SEED") {
        let (seed, step) = one.split_once(':').expect("MILENA_SEED is seed:step");
        let (seed, step) = (seed.parse().unwrap(), step.parse().ok());
        for trouble in TROUBLES {
            crash(seed, step, trouble);
        }
        return;
    }
    #[expect(clippy::disallowed_methods, reason = "a bound on how long the test searches")]
    let (begun, mut seed, mut crashes) = (Instant::now(), 0, 0);
    while crashes < 300 || (begun.elapsed() < budget() && seed < 100 * rounds()) {
        for at in 1..=crash(seed, None, Trouble::PowerLoss) {
            for trouble in TROUBLES {
                let caught = std::panic::catch_unwind(|| crash(seed, Some(at), trouble));
                caught.inspect_err(|_| eprintln!("MILENA_SEED={seed}:{at} repeats this failure")).unwrap();
                crashes += 1;
            }
        }
        seed += 1;
    }
    println!("{seed} seeds, {crashes} crashes");
}

#[test]
fn what_can_be_cleaned_ends_at_the_stable_offset_the_lag_and_the_last_segment() {
    let disk = disk(1);
    let (mut log, _) = open(&disk, &config(), false, 0);
    for timestamp in [100, 200, 300, 400] {
        let mut builder = BatchBuilder::new();
        builder.push(timestamp, Some(b"k"), Some(b"v"), &[]);
        let mut bytes = builder.build().unwrap();
        log.append(&mut [&mut bytes], &[], 0, 0).unwrap();
        log.roll(0).unwrap();
    }
    let size = log.size() / 4;
    let with = |change: &dyn Fn(&mut CleaningLimits), cleaned_to| {
        let mut limits = limits(1000);
        change(&mut limits);
        let found = log.cleanable(cleaned_to, &limits).unwrap();
        (found.first_dirty, found.end, found.clean_bytes / size, found.cleanable_bytes / size, found.delay_ms)
    };
    assert_eq!(with(&|_| (), None), (0, 4, 0, 4, 0));
    assert_eq!(with(&|_| (), Some(3)), (3, 4, 3, 1, 0));
    assert_eq!(with(&|_| (), Some(99)), (0, 4, 0, 4, 0));
    assert_eq!(with(&|it| it.last_stable_offset = 2, Some(1)), (1, 2, 1, 1, 0));
    assert_eq!(with(&|it| it.last_stable_offset = 0, None), (0, 0, 0, 0, 0));
    assert_eq!(with(&|it| it.min_lag_ms = 700, None), (0, 3, 0, 3, 0));
    assert_eq!(with(&|it| it.max_lag_ms = 650, Some(1)), (1, 4, 1, 3, 150));
    assert!(log.cleanable(Some(99), &limits(1000)).unwrap().reset);
    assert!(log.cleanable(Some(4), &limits(1000)).unwrap().ratio() == 0.0);
}

#[test]
fn what_compaction_has_left_is_no_hole_to_a_start_that_reads_it_under_another_policy() {
    let disk = disk(1);
    let config = LogConfig { segment_bytes: 160, ..config() };
    let (mut log, _) = open(&disk, &config, false, 0);
    for key in ["x", "a", "b", "a", "z"] {
        let mut builder = BatchBuilder::new();
        builder.push(100, Some(key.as_bytes()), Some(b"v"), &[]);
        log.append(&mut [&mut builder.build().unwrap()], &[], 0, 0).unwrap();
    }
    assert_eq!(log.segment_base_offsets().collect::<Vec<_>>(), [0, 2, 4]);
    let log = Mutex::new(log);
    clean(&disk, &log, 0, 0).unwrap();
    let log = log.into_inner();
    let left = read_from(&log, 0, 700);
    let offsets: Vec<_> = batches(&left).map(|batch| batch.unwrap().base_offset()).collect();
    assert_eq!(offsets, [0, 2, 3, 4], "the first segment has lost its end");
    drop(log);
    disk.kill_process();
    let plain = Arc::new(LogConfig { compact: false, ..config });
    let reopen = |cleaned_to| {
        let params = OpenParams { clean: false, recovery_point: 0, log_start_offset: 0, cleaned_to, now_ms: 0 };
        Log::open(Arc::new(disk.clone()), &dir(), Arc::clone(&plain), params).unwrap()
    };
    let (log, recovery) = reopen(4);
    assert_eq!((recovery.cut_at, log.log_end_offset()), (None, 5), "{recovery:?}");
    assert_eq!(read_from(&log, 0, 700), left);
    drop(log);
    disk.kill_process();
    // Nothing says that compaction has been there.
    assert_eq!(reopen(0).1.cut_at, Some(1));
}
