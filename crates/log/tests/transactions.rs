//! Transactions across appends, rolls, truncations and starts: the last stable offset, the transaction index, and what readers of committed
//! records are told.

mod common;

use common::*;
use milena_io::{Disk, FileExt, SimDisk};
use milena_log::{AbortedTxn, Log, LogConfig, Marker, OpenParams, Unwritten, VerificationStart};
use milena_records::{Batch, EndTransaction, batches};

/// Segments of about ten batches; transactions begin without verification.
fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 1600,
        index_interval_bytes: 200,
        transaction_verification: false,
        ..LogConfig::default()
    }
}

fn opened(disk: &SimDisk, clean: bool, recovery_point: i64) -> Log {
    open(disk, &config(), clean, recovery_point).0
}

/// A batch of one record in a transaction of producer `id`.
fn in_transaction(id: i64, epoch: i16, sequence: i32) -> Vec<u8> {
    transactional(sent_by(id, epoch, sequence, batch(1, 80, 1000)))
}

fn marker(id: i64, epoch: i16, committed: bool) -> Marker {
    Marker {
        producer_id: id,
        producer_epoch: epoch,
        end: EndTransaction { committed, coordinator_epoch: 3 },
        transaction_version: 2,
        log_append_time: false,
    }
}

fn end(log: &mut Log, id: i64, epoch: i16, committed: bool) -> i64 {
    log.append_marker(&marker(id, epoch, committed), 0, 2000).unwrap().unwrap()
}

fn stable(log: &mut Log) -> i64 {
    let end = log.log_end_offset();
    log.last_stable_offset(end)
}

/// Producer 1 stays open from 0 on; producer 2 aborts at 3 and 6, 3 aborts at 7 what it began at 4. In one segment.
fn three_aborted(disk: &SimDisk) -> Log {
    let mut log = opened(disk, true, 0);
    append(&mut log, in_transaction(1, 0, 0));
    append(&mut log, in_transaction(2, 0, 0));
    append(&mut log, in_transaction(2, 0, 1));
    end(&mut log, 2, 1, false);
    append(&mut log, in_transaction(3, 0, 0));
    append(&mut log, in_transaction(2, 1, 0));
    end(&mut log, 2, 2, false);
    end(&mut log, 3, 1, false);
    log
}

fn three_entries() -> [AbortedTxn; 3] {
    let entry = |producer_id, first_offset, last_offset| AbortedTxn {
        producer_id,
        first_offset,
        last_offset,
        last_stable_offset: 0,
    };
    [entry(2, 1, 3), entry(2, 5, 6), entry(3, 4, 7)]
}

/// What a reader from `offset` on is told, with `len` bytes at most and up to the log end.
fn told(log: &Log, offset: i64, len: usize) -> Vec<AbortedTxn> {
    let end = log.log_end_offset();
    let slice = log.read(offset, len, end, true).unwrap().unwrap();
    log.aborted_transactions(offset, &slice, end).unwrap()
}

fn txn_index(base: i64) -> String {
    format!("{base:020}.txnindex")
}

fn has_txn_index(disk: &SimDisk) -> bool {
    names(disk).iter().any(|name| name.ends_with(".txnindex"))
}

#[test]
fn the_last_stable_offset_is_where_the_first_open_transaction_began() {
    let disk = disk(1);
    let mut log = three_aborted(&disk);
    assert_eq!((stable(&mut log), log.first_unstable_offset()), (0, Some(0)));
    log.set_log_start_offset(2).unwrap();
    assert_eq!(stable(&mut log), 2, "not below the log start");
    assert_eq!(end(&mut log, 1, 1, true), 8);
    assert_eq!(log.last_stable_offset(8), 2, "the marker is not replicated");
    assert_eq!((stable(&mut log), log.first_unstable_offset()), (9, None));
    append(&mut log, in_transaction(1, 1, 0));
    assert_eq!(stable(&mut log), 9);
}

#[test]
fn a_marker_is_one_batch_of_one_record_and_ends_the_transaction() {
    let disk = disk(1);
    let mut log = opened(&disk, true, 0);
    append(&mut log, in_transaction(7, 3, 0));
    append(&mut log, in_transaction(7, 3, 1));
    assert_eq!(end(&mut log, 7, 4, true), 2);
    let bytes = read_from(&log, 2, 1000);
    let written = Batch::parse(&bytes).unwrap();
    assert_eq!(written.verify_crc(), Ok(()));
    assert_eq!((written.size(), written.attributes(), written.max_timestamp()), (78, 0x30, 2000));
    assert_eq!(EndTransaction::of(&written), Some(EndTransaction { committed: true, coordinator_epoch: 3 }));
    let state = log.producers().next().unwrap();
    assert_eq!((state.epoch, state.last_sequence, state.timestamp), (4, -1, 2000));
    assert_eq!((state.coordinator_epoch, state.current_txn_first_offset), (3, -1));
    assert_eq!(opened(&disk, false, 0).producers().next(), Some(state), "the batches say the same after a crash");
    let stamped = Marker { log_append_time: true, ..marker(7, 5, true) };
    log.append_marker(&stamped, 0, 3000).unwrap().unwrap();
    assert_eq!(Batch::parse(&read_from(&log, 3, 1000)).unwrap().attributes(), 0x38);
}

#[test]
fn a_refused_marker_writes_nothing() {
    let disk = disk(1);
    let mut log = three_aborted(&disk);
    let before = disk.steps();
    assert_eq!(log.append_marker(&marker(1, 0, true), 0, 0).unwrap(), Err(Unwritten::InvalidProducerEpoch));
    let mut late = marker(2, 3, true);
    late.end.coordinator_epoch = 2;
    assert_eq!(log.append_marker(&late, 0, 0).unwrap(), Err(Unwritten::CoordinatorFenced));
    assert_eq!((disk.steps(), log.log_end_offset()), (before, 8));
}

#[test]
fn a_transaction_needs_its_guard_when_verification_is_on() {
    let disk = disk(1);
    let on = LogConfig { transaction_verification: true, ..config() };
    let (mut log, _) = open(&disk, &on, true, 0);
    let (mut first, mut second) = (in_transaction(7, 0, 0), in_transaction(7, 0, 1));
    let unverified = log.append(&mut [&mut first], &[], 0, 0).unwrap().unwritten;
    assert_eq!(unverified, [(0, Unwritten::InvalidTransactionState)]);
    let start = VerificationStart { producer_id: 7, epoch: 0, base_sequence: 0, epoch_bumps: true, now_ms: 0 };
    let guard = log.begin_verification(&start).unwrap();
    let appended = log.append(&mut [&mut first, &mut second], &[guard], 0, 0).unwrap();
    assert_eq!((appended.unwritten.len(), appended.last_offset), (0, 1), "the second follows the first");
    assert_eq!((log.begin_verification(&start), log.has_open_transaction(7, 0)), (Ok(None), true));
}

#[test]
fn readers_are_told_of_the_aborted_transactions_that_overlap_what_they_read() {
    let disk = disk(1);
    let log = three_aborted(&disk);
    let [two, again, three] = three_entries();
    assert_eq!(told(&log, 0, 10_000), [two, again, three]);
    assert_eq!(told(&log, 4, 10_000), [again, three]);
    assert_eq!(told(&log, 7, 10_000), [three]);
    let slice = log.read(0, 10_000, 3, true).unwrap().unwrap();
    assert_eq!(log.aborted_transactions(0, &slice, 3).unwrap(), [two], "what begins behind the end does not matter");
}

#[test]
fn a_transaction_over_several_segments_is_told_of_in_each() {
    let disk = disk(1);
    let mut log = opened(&disk, true, 0);
    append(&mut log, in_transaction(7, 0, 0));
    while log.segment_base_offsets().count() < 4 {
        append(&mut log, batch(1, 80, 1000));
    }
    let marker = end(&mut log, 7, 1, false);
    append(&mut log, in_transaction(8, 0, 0));
    let entry = AbortedTxn { producer_id: 7, first_offset: 0, last_offset: marker, last_stable_offset: marker + 1 };
    for base in log.segment_base_offsets() {
        assert_eq!(told(&log, base, 100), [entry]);
    }
    assert_eq!(told(&log, marker + 1, 100), []);
    log.close().unwrap();
    assert_eq!(names(&disk).iter().filter(|name| name.ends_with(".txnindex")).count(), 1);
}

#[test]
fn a_short_read_in_a_large_segment_is_told_of_little() {
    let disk = disk(1);
    let large = LogConfig { segment_bytes: 1 << 20, ..config() };
    let (mut log, _) = open(&disk, &large, true, 0);
    for number in 0..1000i16 {
        append(&mut log, in_transaction(7, number, 0));
        end(&mut log, 7, number + 1, false);
    }
    assert_eq!(told(&log, 0, 1 << 20).len(), 1000);
    let few = told(&log, 1000, 300);
    assert_eq!(few[0].first_offset, 1000);
    assert!(few.len() < 6, "{}", few.len());
    write_file(&disk, &format!("{:020}.index", 0), &[0; 800]);
    log.close().unwrap();
    let (log, _) = open(&disk, &large, true, 2000);
    assert!(told(&log, 1000, 300).len() >= 3, "an index that can't be believed hides nothing");
}

#[test]
fn the_index_file_is_made_only_when_a_transaction_was_aborted_and_is_kafkas() {
    let disk = disk(1);
    let mut log = opened(&disk, true, 0);
    append(&mut log, in_transaction(7, 0, 0));
    end(&mut log, 7, 1, true);
    end(&mut log, 7, 2, false);
    log.roll(0).unwrap();
    assert!(!has_txn_index(&disk), "nothing was aborted");
    append(&mut log, in_transaction(7, 2, 0));
    end(&mut log, 7, 3, false);
    assert!(!has_txn_index(&disk), "an append writes to one file");
    log.close().unwrap();
    let expected = [&[0, 0][..], &7i64.to_be_bytes(), &3i64.to_be_bytes(), &4i64.to_be_bytes(), &5i64.to_be_bytes()];
    assert_eq!(file(&disk, &txn_index(3)), expected.concat());
    assert_eq!(told(&opened(&disk, true, 5), 0, 10_000), []);
    assert_eq!(told(&opened(&disk, true, 5), 3, 10_000).len(), 1);
}

#[test]
fn open_transactions_and_the_index_survive_a_clean_stop() {
    let disk = disk(1);
    three_aborted(&disk).close().unwrap();
    let mut log = opened(&disk, true, 8);
    assert_eq!((stable(&mut log), told(&log, 0, 10_000)), (0, three_entries().to_vec()));
    assert_eq!(log.append_marker(&marker(1, 0, true), 0, 0).unwrap(), Err(Unwritten::InvalidProducerEpoch));
    end(&mut log, 1, 1, false);
    assert_eq!(told(&log, 0, 10_000).len(), 4);
    log.close().unwrap();
    assert_eq!(file(&disk, &txn_index(0)).len(), 4 * 34);
}

#[test]
fn after_a_crash_the_index_is_what_the_batches_say_whatever_became_of_it() {
    let damages: [fn(&SimDisk); 5] = [
        |_| {},
        |disk| disk.remove_file(&dir().join(txn_index(0))).unwrap(),
        |disk| write_file(disk, &txn_index(0), &[0; 102]),
        |disk| write_file(disk, &txn_index(0), b"garbage"),
        |disk| write_file(disk, &txn_index(0), &[7; 340]),
    ];
    for damage in damages {
        let disk = disk(1);
        three_aborted(&disk).close().unwrap();
        damage(&disk);
        let mut log = opened(&disk, false, 5);
        assert_eq!((stable(&mut log), told(&log, 0, 10_000)), (0, three_entries().to_vec()));
        log.close().unwrap();
        assert_eq!(file(&disk, &txn_index(0)).len(), 102);
    }
}

#[test]
fn an_index_that_can_not_be_true_is_replaced_after_a_clean_stop_too() {
    for content in [&[0; 102][..], b"garbage", &[7; 340], &[0; 40]] {
        let disk = disk(1);
        let mut log = three_aborted(&disk);
        log.roll(0).unwrap();
        append(&mut log, in_transaction(1, 0, 1));
        log.close().unwrap();
        write_file(&disk, &txn_index(0), content);
        let (log, recovery) = open(&disk, &config(), true, 9);
        assert_eq!((told(&log, 0, 10_000), recovery.segments_scanned), (three_entries().to_vec(), 1));
        disk.restart();
        assert_eq!(told(&opened(&disk, true, 9), 0, 10_000), three_entries(), "and that is durable");
    }
}

#[test]
fn segments_before_the_recovery_point_keep_their_index_and_get_the_state_from_their_snapshots() {
    let disk = disk(1);
    let mut log = three_aborted(&disk);
    log.roll(0).unwrap();
    append(&mut log, in_transaction(1, 0, 1));
    end(&mut log, 1, 1, false);
    log.close().unwrap();
    write_file(&disk, &txn_index(0), b"garbage");
    let (log, recovery) = open(&disk, &config(), false, 9);
    assert_eq!(recovery.segments_scanned, 2, "the last one, and the one with the damaged index");
    let one = AbortedTxn { producer_id: 1, first_offset: 0, last_offset: 9, last_stable_offset: 10 };
    assert_eq!(told(&log, 0, 10_000), [&three_entries()[..], &[one]].concat());
    assert_eq!(told(&log, 8, 10_000), [one]);
}

#[test]
fn a_torn_batch_is_no_part_of_the_state_that_a_recovery_begins_with() {
    let disk = disk(1);
    let mut log = three_aborted(&disk);
    log.roll(0).unwrap();
    append(&mut log, in_transaction(9, 0, 0));
    log.close().unwrap();
    write_file(&disk, &format!("{:020}.snapshot", 8), b"torn");
    let mut bytes = file(&disk, &format!("{:020}.log", 8));
    bytes[70] ^= 1;
    write_file(&disk, &format!("{:020}.log", 8), &bytes);
    let log = opened(&disk, false, 8);
    assert_eq!((log.log_end_offset(), log.has_open_transaction(9, 0)), (8, false));
    assert_eq!(log.producers().count(), 3);
}

#[test]
fn a_truncation_takes_back_markers_and_opens_their_transactions_again() {
    let disk = disk(1);
    let mut log = three_aborted(&disk);
    log.roll(0).unwrap();
    assert_eq!(end(&mut log, 1, 1, false), 8);
    log.truncate_to(7).unwrap();
    assert_eq!(told(&log, 0, 10_000), three_entries()[..2]);
    assert_eq!((log.has_open_transaction(3, 0), log.has_open_transaction(1, 0)), (true, true));
    log.truncate_to(3).unwrap();
    assert_eq!((told(&log, 0, 10_000), stable(&mut log)), (vec![], 0));
    assert!(!has_txn_index(&disk), "without an entry there is no file");
    log.truncate_to(0).unwrap();
    assert_eq!((stable(&mut log), log.producers().count()), (0, 0));
}

#[test]
fn a_segments_index_goes_with_it() {
    let disk = disk(1);
    let mut log = three_aborted(&disk);
    log.roll(0).unwrap();
    log.truncate_fully_and_start_at(100).unwrap();
    assert!(!has_txn_index(&disk));
    assert_eq!(stable(&mut log), 100);
}

#[test]
fn a_roll_behind_a_flush_leaves_an_index_that_a_power_loss_does_not_take() {
    for seed in 0..30 * milena_testkit::rounds() {
        let disk = disk(seed);
        let mut log = three_aborted(&disk);
        log.flush().unwrap();
        let point = log.recovery_point();
        log.roll(0).unwrap();
        assert!(point < log.log_end_offset(), "a start reads the segment again");
        drop(log);
        disk.restart();
        let log = opened(&disk, false, point);
        assert_eq!(told(&log, 0, 10_000), three_entries(), "seed {seed}");
    }
}

#[test]
fn a_producer_with_an_open_transaction_is_not_forgotten() {
    let disk = disk(1);
    let mut log = three_aborted(&disk);
    log.expire_producers(i64::MAX);
    assert_eq!(log.producers().map(|state| state.producer_id).collect::<Vec<_>>(), [1]);
    log.close().unwrap();
    let params = OpenParams { clean: true, recovery_point: 8, log_start_offset: 0, cleaned_to: 0, now_ms: i64::MAX };
    let log = Log::open(std::sync::Arc::new(disk), &dir(), config().into(), params).unwrap().0;
    assert_eq!(log.first_unstable_offset(), Some(0));
}

#[test]
fn a_marker_counts_as_a_sign_of_life_of_its_producer() {
    let disk = disk(1);
    let mut log = opened(&disk, true, 0);
    // Written at 1000, ended at 2000.
    append(&mut log, in_transaction(1, 0, 0));
    end(&mut log, 1, 1, true);
    let expiration = LogConfig::default().producer_id_expiration_ms;
    log.expire_producers(1999 + expiration);
    assert_eq!(log.producers().count(), 1);
    log.expire_producers(2000 + expiration);
    assert_eq!(log.producers().count(), 0);
}

#[test]
fn a_follower_takes_markers_from_its_leader_as_they_are() {
    let (source, copy) = (disk(1), disk(2));
    let log = three_aborted(&source);
    let bytes = read_from(&log, 0, 10_000);
    let mut follower = opened(&copy, true, 0);
    for batch in batches(&bytes) {
        follower.append_as_follower(batch.unwrap().bytes(), 0).unwrap();
    }
    assert_eq!(told(&follower, 0, 10_000), three_entries());
    assert_eq!(follower.producers().collect::<Vec<_>>(), log.producers().collect::<Vec<_>>());
    let many = copy.open(&dir().join(format!("{:020}.log", 0)), milena_io::OpenMode::Read).unwrap();
    assert_eq!(many.read_all(1 << 20).unwrap(), bytes);
}

#[test]
fn batches_of_a_coordinator_follow_each_other_without_sequences() {
    let disk = disk(1);
    let verifying = LogConfig { transaction_verification: true, ..config() };
    let mut log = open(&disk, &verifying, true, 0).0;
    let start = VerificationStart { producer_id: 7, epoch: 0, base_sequence: -1, epoch_bumps: true, now_ms: 1000 };
    let guard = log.begin_verification(&start).unwrap();
    let unverified = log.append_as_coordinator(&mut in_transaction(7, 0, 0), None, 0, 1000).unwrap();
    assert_eq!(unverified.unwritten, [(0, Unwritten::InvalidTransactionState)]);
    for guard in [guard, None] {
        let appended = log.append_as_coordinator(&mut in_transaction(7, 0, 0), guard, 0, 1000).unwrap();
        assert!(appended.unwritten.is_empty(), "{appended:?}");
    }
    assert_eq!((log.log_end_offset(), stable(&mut log)), (2, 0));
}
