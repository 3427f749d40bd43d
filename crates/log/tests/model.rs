//! Random operations against a model, with a crash at every step of every run: a killed process or a power loss that loses, tears and
//! reorders what was not synced. What was flushed must be there byte for byte, the rest a prefix, indexes, epochs and producers as a scan
//! gives them, and the next append takes the next offset. The same with a disk that fails, or is full, at every step: the log goes on, or
//! refuses every change from then on, and the next start finds all that.

mod common;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{dir, disk, index_entries, read_from, time_entries};
use milena_io::{Disk, FaultKind, Rng, SimDisk, SimRng};
use milena_log::{
    Checkpoint, DirKind, Log, LogConfig, LogDirectory, LogError, Offsets, OpenParams, Recovery, Unwritten,
};
use milena_records::{Batch, BatchBuilder, Compression, Compressor, Decompressor, add_sequence, batches};
use milena_testkit::rounds;

const INTERVAL: u64 = 200;
/// How long new seeds are begun.
fn budget() -> Duration {
    Duration::from_secs(10).saturating_mul(rounds() as u32)
}

fn config(preallocate: bool) -> LogConfig {
    LogConfig { segment_bytes: 1500, index_interval_bytes: INTERVAL, preallocate, ..LogConfig::default() }
}

#[derive(Debug, Clone)]
enum Operation {
    /// Batches, each with a random number that chooses its producer and sequence.
    Append(Vec<(Vec<u8>, u64)>, i32),
    Roll,
    Flush,
    FlushFinished,
    Checkpoint,
    /// Closes everything in order and starts again.
    Restart,
    Truncate(u64),
    DeleteRecords(u64),
    RemoveSegments(u64),
    Delete(u128),
}

fn operations(rng: &mut SimRng) -> Vec<Operation> {
    let mut clock = 1000;
    let mut epoch = 0;
    let count = 6 + rng.below(14);
    (0..count)
        .map(|number| match rng.below(26) {
            0..=9 => {
                epoch += i32::from(rng.below(6) == 0);
                let batches = (0..1 + rng.below(3)).map(|_| (random_batch(rng, &mut clock), rng.next_u64())).collect();
                Operation::Append(batches, epoch)
            }
            10 => Operation::Roll,
            11..=13 => Operation::Flush,
            14 | 15 => Operation::Checkpoint,
            16 | 17 => Operation::Restart,
            18 => Operation::Truncate(rng.next_u64()),
            19 | 20 => Operation::DeleteRecords(rng.next_u64()),
            21 | 22 => Operation::RemoveSegments(rng.next_u64()),
            23 | 24 => Operation::FlushFinished,
            _ => Operation::Delete(u128::from(number)),
        })
        .collect()
}

fn random_batch(rng: &mut SimRng, clock: &mut i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new().compression(Compression::None, 0);
    for _ in 0..1 + rng.below(3) {
        *clock += rng.below(20) as i64 - 5;
        let mut value = vec![0; rng.below(150) as usize];
        rng.fill(&mut value);
        builder.push(*clock, None, Some(&value), &[]);
    }
    let mut bytes = Vec::new();
    builder.finish(&mut Compressor::new(), &mut bytes).unwrap();
    bytes
}

/// What the log may hold.
#[derive(Debug, Clone, Default)]
struct History {
    /// Batches with their offsets, acknowledged; those below the log start offset too.
    batches: Vec<Vec<u8>>,
    /// Everything below was flushed.
    durable: i64,
    /// Log start offset.
    start: i64,
    /// Log start offset that was checkpointed.
    durable_start: i64,
}

impl History {
    /// The bytes that a reader gets from `start` on.
    fn bytes_from(&self, start: i64) -> Vec<u8> {
        let after = self.batches.iter().filter(|bytes| Batch::parse(bytes).unwrap().last_offset() >= start);
        after.cloned().collect::<Vec<_>>().concat()
    }

    fn end(&self) -> i64 {
        self.batches.last().map_or(0, |bytes| Batch::parse(bytes).unwrap().next_offset())
    }
}

/// Makes `bytes` a batch of a producer that has written some of `log`, or of none. Second is what becomes of it.
fn choose_producer(log: &[Vec<u8>], bytes: Vec<u8>, random: u64) -> (Vec<u8>, Result<(), Unwritten>) {
    let producer_id = (random >> 8 & 3) as i64;
    let last = log.iter().map(|bytes| Batch::parse(bytes).unwrap()).rfind(|batch| batch.producer_id() == producer_id);
    let follow = last.as_ref().map(|last| (last.producer_epoch(), add_sequence(last.last_sequence(), 1)));
    match (random & 15, last, follow) {
        (0..=3, ..) => (bytes, Ok(())),
        (4, Some(last), _) => {
            let again = Unwritten::Duplicate { first_offset: last.base_offset(), timestamp: last.max_timestamp() };
            (last.bytes().to_vec(), Err(again))
        }
        (5, _, Some((epoch, _))) => (common::sent_by(producer_id, epoch + 1, 0, bytes), Ok(())),
        (6, _, Some((epoch, sequence))) => {
            let gap = common::sent_by(producer_id, epoch, add_sequence(sequence, 3), bytes);
            (gap, Err(Unwritten::OutOfOrderSequence))
        }
        (7, _, Some((epoch @ 1.., sequence))) => {
            (common::sent_by(producer_id, epoch - 1, sequence, bytes), Err(Unwritten::InvalidProducerEpoch))
        }
        (_, _, Some((epoch, sequence))) => (common::sent_by(producer_id, epoch, sequence, bytes), Ok(())),
        (_, _, None) => {
            let first = i32::MAX - (random >> 16 & 7) as i32;
            (common::sent_by(producer_id, 0, first, bytes), Ok(()))
        }
    }
}

struct World {
    disk: SimDisk,
    /// Close the log by itself, not as one of many.
    alone: bool,
    preallocate: bool,
    directory: LogDirectory,
    log: Log,
    history: History,
    /// Batches of the append under way.
    attempted: Vec<Vec<u8>>,
    /// Least offset that is durable if the operation under way does not come back.
    durable_at_least: i64,
    /// Least offset that a killed process leaves if the operation under way does not come back.
    written_at_least: i64,
    /// Log start offset of the operation under way.
    attempted_start: i64,
    /// The log that was deleted last, while its rename may still be lost.
    ghost: Option<History>,
    /// Files of removed segments.
    deleted: Vec<PathBuf>,
}

fn data() -> &'static Path {
    Path::new("/data")
}

/// Takes marker and checkpoint as a start does; true when the last stop was clean.
fn start(disk: &SimDisk, preallocate: bool) -> Result<(LogDirectory, Log, Recovery, bool), LogError> {
    let directory = LogDirectory::open(Arc::new(disk.clone()), data())?;
    let clean = directory.take_clean_marker()?.is_some();
    for found in directory.partitions()? {
        if found.name.kind == DirKind::Delete {
            disk.remove_dir_all(&found.path).map_err(|source| LogError::Io {
                operation: "removing",
                path: found.path,
                source,
            })?;
        }
    }
    let found = disk.metadata(&dir()).is_ok_and(|found| found.is_some());
    let checkpointed =
        |which| directory.read_checkpoint(which).map(|offsets| offsets.get("t", 0).filter(|_| found).unwrap_or(0));
    let recovery_point = checkpointed(Checkpoint::RecoveryPoint)?;
    let log_start_offset = checkpointed(Checkpoint::LogStart)?;
    let params = OpenParams { clean, recovery_point, log_start_offset, cleaned_to: 0, now_ms: 0 };
    let (log, recovery) = Log::open(Arc::new(disk.clone()), &dir(), Arc::new(config(preallocate)), params)?;
    Ok((directory, log, recovery, clean))
}

impl World {
    fn new(seed: u64) -> Self {
        let (disk, preallocate) = (disk(seed), seed.is_multiple_of(3));
        let (directory, log, ..) = start(&disk, preallocate).unwrap();
        Self {
            disk,
            alone: seed.is_multiple_of(2),
            preallocate,
            directory,
            log,
            history: History::default(),
            attempted: Vec::new(),
            durable_at_least: 0,
            written_at_least: 0,
            attempted_start: 0,
            ghost: None,
            deleted: Vec::new(),
        }
    }

    /// Writes both checkpoints, and removes the files whose time has come.
    fn checkpoint(&mut self) -> Result<(), LogError> {
        let mut offsets = Offsets::default();
        offsets.insert("t", 0, self.log.recovery_point());
        self.directory.write_checkpoint(Checkpoint::RecoveryPoint, &offsets)?;
        let mut offsets = Offsets::default();
        if self.log.log_start_needs_checkpoint() {
            offsets.insert("t", 0, self.log.log_start_offset());
        }
        self.directory.write_checkpoint(Checkpoint::LogStart, &offsets)?;
        self.history.durable_start = self.history.start;
        for path in self.deleted.drain(..) {
            self.disk.remove_file(&path).map_err(|source| LogError::Io { operation: "removing", path, source })?;
        }
        Ok(())
    }

    /// Raises the log start offset and takes `count` segments away.
    fn remove(&mut self, offset: i64, count: usize) -> Result<(), LogError> {
        self.log.set_log_start_offset(offset)?;
        let removal = self.log.begin_removal(count)?;
        removal.sync()?;
        self.finished_flushed();
        let removed = self.log.remove_segments(removal, &mut self.deleted);
        self.history.start = self.log.log_start_offset();
        removed
    }

    fn flushed(&mut self) {
        self.flushed_below(self.history.end());
    }

    fn finished_flushed(&mut self) {
        let last = self.log.segment_base_offsets().last().expect("a log has a segment");
        self.flushed_below(self.history.durable.max(last));
    }

    fn flushed_below(&mut self, end: i64) {
        self.history.durable = end;
        self.durable_at_least = self.history.durable;
        self.ghost = None;
    }

    fn run(&mut self, operation: &Operation) -> Result<(), LogError> {
        self.durable_at_least = self.history.durable;
        self.written_at_least = self.history.end();
        self.attempted_start = self.history.start;
        match operation {
            Operation::Append(given, epoch) => self.append(given, *epoch)?,
            Operation::Roll => self.log.roll(0)?,
            Operation::Flush => {
                self.log.flush()?;
                self.flushed();
            }
            Operation::FlushFinished => {
                if let Some(flush) = self.log.begin_flush_of_finished()? {
                    flush.sync()?;
                    assert!(self.log.flushed(flush));
                }
                self.finished_flushed();
            }
            Operation::Checkpoint => self.checkpoint()?,
            Operation::Restart => {
                match self.alone {
                    true => self.log.close()?,
                    false => self.directory.close_logs([&mut self.log])?,
                }
                self.flushed();
                self.checkpoint()?;
                self.directory.write_clean_marker(1)?;
                self.disk.kill_process();
                let (directory, log, recovery, clean) = start(&self.disk, self.preallocate)?;
                assert!(clean && recovery == Recovery::default(), "a clean start scans nothing: {recovery:?}");
                (self.directory, self.log) = (directory, log);
                assert_eq!(self.log.log_start_offset(), self.history.start);
                verify(&self.log, &self.history.batches.concat(), 0);
            }
            Operation::Truncate(random) => {
                let offset = (*random % (self.history.end() as u64 + 1)) as i64;
                let mut kept = self.history.clone();
                kept.batches.retain(|bytes| Batch::parse(bytes).unwrap().last_offset() < offset);
                if kept.end() < kept.start {
                    return Ok(());
                }
                kept.durable = kept.durable.min(kept.end());
                self.durable_at_least = kept.durable;
                self.written_at_least = kept.end();
                self.log.truncate_to(offset)?;
                self.history = kept;
                self.checkpoint()?;
            }
            Operation::DeleteRecords(random) => {
                let (start, end) = (self.history.start, self.history.end());
                self.attempted_start = start + (*random % (end - start + 1) as u64) as i64;
                self.remove(self.attempted_start, 0)?;
            }
            Operation::RemoveSegments(random) => {
                if random.is_multiple_of(4) {
                    self.log.roll(0)?;
                }
                let bases: Vec<i64> = self.log.segment_base_offsets().collect();
                let count = (*random / 4) as usize % bases.len();
                self.attempted_start = self.history.start.max(bases[count]);
                self.remove(self.history.start, count)?;
            }
            Operation::Delete(unique) => {
                self.ghost = Some(self.history.clone());
                self.log.rename_for_deletion(*unique)?;
                self.history = History::default();
                self.durable_at_least = 0;
                self.written_at_least = 0;
                self.attempted_start = 0;
                self.deleted.clear();
                self.directory.write_checkpoint(Checkpoint::RecoveryPoint, &Offsets::default())?;
                self.directory.write_checkpoint(Checkpoint::LogStart, &Offsets::default())?;
                let params =
                    OpenParams { clean: false, recovery_point: 0, log_start_offset: 0, cleaned_to: 0, now_ms: 0 };
                let opened =
                    Log::open(Arc::new(self.disk.clone()), &dir(), Arc::new(config(self.preallocate)), params)?.0;
                std::mem::replace(&mut self.log, opened).delete()?;
            }
        }
        Ok(())
    }

    fn append(&mut self, given: &[(Vec<u8>, u64)], epoch: i32) -> Result<(), LogError> {
        let mut next = self.history.end();
        let (mut all, mut buffers, mut unwritten) = (self.history.batches.clone(), Vec::new(), Vec::new());
        for (at, (bytes, random)) in given.iter().enumerate() {
            let (bytes, outcome) = choose_producer(&all, bytes.clone(), *random);
            if let Err(why) = outcome {
                unwritten.push((at, why));
            } else {
                all.push(common::placed(next, epoch, bytes.clone()));
                next = Batch::parse(&all[all.len() - 1]).unwrap().next_offset();
            }
            buffers.push(bytes);
        }
        self.attempted = all.split_off(self.history.batches.len());
        let mut slices: Vec<&mut [u8]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
        let appended = self.log.append(&mut slices, &[], epoch, 0)?;
        assert_eq!((appended.first_offset, appended.last_offset), (self.history.end(), next - 1));
        assert_eq!(appended.unwritten, unwritten);
        let left_out = |at: &usize| unwritten.iter().any(|(place, _)| place == at);
        let written = buffers.into_iter().enumerate().filter(|(at, _)| !left_out(at)).map(|(_, bytes)| bytes);
        assert_eq!(written.collect::<Vec<_>>(), self.attempted);
        self.history.batches.append(&mut self.attempted);
        Ok(())
    }

    /// After a step of `operation` has failed: all that was acknowledged is read, and the log goes on unless it refuses every change.
    fn go_on(&mut self, operation: &Operation, error: &LogError, power_loss: bool) {
        let start = self.log.log_start_offset();
        if matches!(operation, Operation::Truncate(_) | Operation::Restart | Operation::Delete(_)) {
            return;
        }
        self.history.start = start;
        let lost = self.log.log_end_offset() < start;
        assert!(!lost, "{operation:?}: {error}");
        assert_eq!(read_from(&self.log, start, 333), self.history.bytes_from(start), "{operation:?}: {error}");
        if self.log.is_poisoned() {
            let refused = self.log.append(&mut [&mut random_batch(&mut SimRng::new(3), &mut 4000)], &[], 98, 0);
            assert!(matches!(refused, Err(LogError::Poisoned { .. })), "{operation:?}: {error}");
            return;
        }
        if power_loss {
            // What was cut off again may be there instead of what would come now: neither was flushed.
            return;
        }
        self.attempted.clear();
        let more = vec![(random_batch(&mut SimRng::new(3), &mut 4000), 0)];
        let again = self.append(&more, 98);
        again.unwrap_or_else(|again| panic!("{operation:?} failed with {error}, the append behind it with {again}"));
        self.written_at_least = self.history.end();
    }

    /// After a crash: power comes back, the log is opened, checked, appended to, closed and checked again.
    fn recover(mut self, power_loss: bool) {
        if power_loss {
            self.disk.restart()
        } else {
            self.disk.kill_process()
        }
        let (directory, log, recovery, clean) = start(&self.disk, self.preallocate).unwrap();
        let written = History {
            batches: [self.history.batches.clone(), self.attempted.clone()].concat(),
            ..self.history.clone()
        };
        let own = survived(&log, &recovery, &written).filter(|_| log.log_end_offset() >= self.durable_at_least);
        let ghostly = self.ghost.as_ref().and_then(|ghost| survived(&log, &recovery, ghost));
        assert!(
            own.is_some() || ghostly.is_some(),
            "{} to {} is no history: durable below {}",
            log.log_start_offset(),
            log.log_end_offset(),
            self.durable_at_least
        );
        if ghostly.is_none() {
            let starts = self.history.durable_start..=self.attempted_start.max(self.history.start);
            assert!(starts.contains(&log.log_start_offset()), "{} is not in {starts:?}", log.log_start_offset());
            if clean || !power_loss {
                assert!(log.log_end_offset() >= self.written_at_least, "records end at {}", log.log_end_offset());
            }
        }
        let deleted =
            [Some(&self.history), self.ghost.as_ref()].into_iter().flatten().map(|history| history.start).max();
        let deleted = self.attempted_start.max(deleted.unwrap_or(0));
        let mut batches = own.or(ghostly).expect("one of both was checked");
        verify(&log, &batches.concat(), deleted);
        (self.directory, self.log) = (directory, log);
        let next = self.log.log_end_offset();
        let mut rng = SimRng::new(7);
        let mut last = random_batch(&mut rng, &mut 5000);
        assert_eq!(self.log.append(&mut [&mut last], &[], 99, 0).unwrap().first_offset, next);
        batches.push(last);
        let all = batches.concat();
        self.log.close().unwrap();
        verify(&self.log, &all, deleted);
        verify_indexes(&self.disk, &self.log, &all);
        self.deleted.clear();
        self.checkpoint().unwrap();
        self.directory.write_clean_marker(1).unwrap();
        self.disk.restart();
        let (_, log, recovery, clean) = start(&self.disk, self.preallocate).unwrap();
        assert!(clean && recovery == Recovery::default());
        assert_eq!(log.log_start_offset(), self.log.log_start_offset());
        verify(&log, &all, deleted);
    }
}

/// The batches of `history` up to the log's end, if the log holds just those from its start on. A log that lost what was above its start
/// begins there without any.
fn survived(log: &Log, recovery: &Recovery, history: &History) -> Option<Vec<Vec<u8>>> {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    if start == end && recovery.reason.as_ref().is_some_and(|reason| reason.contains("below its start offset")) {
        return Some(Vec::new());
    }
    let mut kept = history.clone();
    kept.batches.retain(|bytes| Batch::parse(bytes).unwrap().next_offset() <= end);
    (kept.end() == end && kept.bytes_from(start) == read_from(log, start, 700)).then_some(kept.batches)
}

/// Reading, timestamps and epochs answer as a walk over `bytes` does, those below the log start offset included. Epochs below `deleted`
/// may be forgotten.
fn verify(log: &Log, bytes: &[u8], deleted: i64) {
    let (start, first) = (log.log_start_offset(), log.segment_base_offsets().next().unwrap());
    let after = batches(bytes).map(Result::unwrap).filter(|batch| batch.last_offset() >= start);
    let after: Vec<u8> = after.flat_map(|batch| batch.bytes().to_vec()).collect();
    assert_eq!(read_from(log, start, 333), after);
    let (mut positions, mut records, mut epochs) = (Vec::new(), Vec::new(), BTreeSet::new());
    for batch in batches(bytes) {
        let batch = batch.unwrap();
        if batch.last_offset() >= deleted.max(start) {
            assert_eq!(log.epoch_for_offset(batch.last_offset()), Some(batch.partition_leader_epoch()));
            epochs.insert(batch.partition_leader_epoch());
        }
        if batch.base_offset() < first {
            continue;
        }
        let segment = log.segment_base_offsets().filter(|base| *base <= batch.base_offset()).max().unwrap();
        positions.push((batch.base_offset()..batch.next_offset(), segment, batch.size()));
        for record in batch.plain_records().unwrap() {
            let record = record.unwrap();
            records.push((record.timestamp(&batch), record.offset(&batch)));
        }
    }
    let end = positions.last().map_or(0, |(offsets, ..)| offsets.end);
    assert_eq!(log.log_end_offset(), end.max(start));
    let (mut at, mut segment) = (0, 0);
    for (offsets, base, size) in positions {
        if base != segment {
            (at, segment) = (0, base);
        }
        for offset in offsets.filter(|offset| *offset >= start) {
            let slice = log.read(offset, 1, end, true).unwrap().unwrap();
            assert_eq!((slice.segment, slice.position, slice.len), (base, at, size), "offset {offset}");
        }
        at += size as u64;
    }
    let mut decompressor = Decompressor::new(1 << 20);
    let mut stamps: Vec<i64> = records.iter().map(|(stamp, _)| *stamp).collect();
    stamps.extend([-1, i64::MAX]);
    for stamp in stamps {
        let expected = records.iter().find(|record| record.0 >= stamp && record.1 >= start).copied();
        let found = log.offset_for_timestamp(stamp, &mut decompressor).unwrap();
        assert_eq!(found.map(|found| (found.timestamp, found.offset)), expected, "timestamp {stamp}");
    }
    let largest = records.iter().map(|(stamp, _)| *stamp).max();
    let found = log.max_timestamp_offset(&mut decompressor).unwrap();
    assert_eq!(found.map(|found| found.timestamp), largest);
    let known = log.leader_epochs().iter().filter(|entry| entry.start_offset < log.log_end_offset());
    assert!(known.clone().all(|entry| entry.start_offset >= start), "{:?}", log.leader_epochs());
    let known = known.filter(|entry| entry.start_offset >= deleted);
    assert!(known.count() <= epochs.len(), "{:?} of {epochs:?}", log.leader_epochs());
    assert_eq!(log.producers().collect::<Vec<_>>(), common::producers_of(bytes));
}

/// The index files of a closed log are what its batches demand.
fn verify_indexes(disk: &SimDisk, log: &Log, bytes: &[u8]) {
    for base in log.segment_base_offsets() {
        let end = log.segment_base_offsets().find(|next| *next > base).unwrap_or(i64::MAX);
        let (mut at, mut last_entry, mut expected, mut newest) = (0u64, 0u64, Vec::new(), vec![]);
        for batch in batches(bytes) {
            let batch = batch.unwrap();
            if batch.base_offset() < base || batch.base_offset() >= end {
                continue;
            }
            if at - last_entry > INTERVAL {
                expected.push((batch.last_offset(), at));
                last_entry = at;
            }
            if newest.last().is_none_or(|last: &(i64, i64)| batch.max_timestamp() > last.0) {
                newest.push((batch.max_timestamp(), batch.last_offset()));
            }
            at += batch.size() as u64;
        }
        assert_eq!(index_entries(disk, base), expected, "segment {base}");
        let times = time_entries(disk, base);
        assert!(times.iter().all(|entry| newest.contains(entry)), "segment {base}: {times:?} of {newest:?}");
        assert!(times.is_sorted() && times.last() == newest.last(), "segment {base}: {times:?} of {newest:?}");
    }
}

/// Runs a seed's operations until step number `at` fails, goes on, and starts again. Returns whether there was such a step.
fn fail(seed: u64, at: u64, kind: FaultKind) -> bool {
    let operations = operations(&mut SimRng::new(seed));
    let mut world = World::new(seed.wrapping_mul(31).wrapping_add(at));
    let (failing, power_loss) = (world.disk.steps() + at, at.is_multiple_of(2));
    world.disk.fail_at(Some((failing, kind)));
    for operation in &operations {
        let done = world.run(operation);
        if let Err(error) = done {
            assert!(world.disk.steps() >= failing, "{operation:?}: {error}");
            world.disk.fail_at(None);
            world.go_on(operation, &error, power_loss);
            break;
        }
    }
    let was_there = world.disk.steps() >= failing;
    world.disk.fail_at(None);
    world.recover(power_loss);
    was_there
}

#[test]
fn whatever_step_fails_what_was_acknowledged_is_read_and_the_next_start_finds_it() {
    if let Ok(one) = std::env::var("MILENA_SEED") {
        let fields: Vec<u64> = one.split(':').map(|field| field.parse().expect("seed:step:0 or 1")).collect();
        fail(fields[0], fields[1], if fields[2] == 0 { FaultKind::Io } else { FaultKind::NoSpace });
        return;
    }
    // A cut at a roll fails, and the roll is tried again.
    fail(126, 105, FaultKind::Io);
    #[expect(clippy::disallowed_methods, reason = "a bound on how long the test searches")]
    let (begun, mut seed, mut runs) = (Instant::now(), 0, 0);
    while begun.elapsed() < budget() && seed < 400 * rounds() {
        for kind in [FaultKind::Io, FaultKind::NoSpace] {
            let mut at = 1;
            let mut caught = std::panic::catch_unwind(|| fail(seed, at, kind));
            while let Ok(true) = caught {
                runs += 1;
                at += 1;
                caught = std::panic::catch_unwind(|| fail(seed, at, kind));
            }
            if let Err(panic) = caught {
                let kind = u8::from(kind == FaultKind::NoSpace);
                eprintln!("MILENA_SEED={seed}:{at}:{kind} repeats this failure");
                std::panic::resume_unwind(panic);
            }
        }
        seed += 1;
    }
    assert!(runs > 500, "only {runs} failures were tried");
    println!("{seed} seeds, {runs} failures");
}

/// Runs a seed's operations until `crash_at`, recovers and checks. Returns the number of steps that the run took.
fn run(seed: u64, crash_at: Option<u64>) -> u64 {
    let operations = operations(&mut SimRng::new(seed));
    let mut world = World::new(seed.wrapping_mul(31).wrapping_add(crash_at.unwrap_or(0)));
    let first = world.disk.steps();
    world.disk.crash_at(crash_at.map(|step| first + step));
    for operation in &operations {
        if let Err(error) = world.run(operation) {
            assert!(world.disk.has_crashed(), "{operation:?}: {error}");
            break;
        }
    }
    let steps = world.disk.steps() - first;
    world.recover(seed % 4 != 3);
    steps
}

#[test]
fn whatever_step_a_crash_comes_at_nothing_flushed_is_lost_and_the_rest_is_a_prefix() {
    if let Ok(one) = std::env::var("MILENA_SEED") {
        let (seed, step) = one.split_once(':').expect("MILENA_SEED is seed:step");
        run(seed.parse().unwrap(), step.parse().ok());
        return;
    }
    #[expect(clippy::disallowed_methods, reason = "a bound on how long the test searches")]
    let (begun, mut seed, mut runs) = (Instant::now(), 0, 0);
    while begun.elapsed() < budget() && seed < 400 * rounds() {
        let mut step = None;
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let steps = run(seed, None);
            for at in 1..=steps {
                step = Some(at);
                run(seed, step);
                runs += 1;
            }
        }));
        if let Err(panic) = caught {
            let mut name = String::new();
            let _ = write!(name, "MILENA_SEED={seed}:{}", step.map_or("none".to_owned(), |step| step.to_string()));
            eprintln!("{name} repeats this failure");
            std::panic::resume_unwind(panic);
        }
        seed += 1;
    }
    assert!(runs > 500, "only {runs} crashes were tried");
    println!("{seed} seeds, {runs} crashes");
}
