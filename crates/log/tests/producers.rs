//! Idempotent producers across appends, rolls, truncations and starts, and the snapshots that keep them.

mod common;

use common::*;
use milena_io::{Disk, Fault, FaultKind, SimDisk, StepKind};
use milena_log::{Log, LogConfig, OpenParams, Unwritten};
use milena_records::crc32c;

/// The batch of two records that producer `id` writes as its `number`th.
fn nth(id: i64, number: i32) -> Vec<u8> {
    sent_by(id, 0, number * 2, batch(2, 100, 1000 + i64::from(number)))
}

/// Appends batches `numbers` of producer 7.
fn write(log: &mut Log, numbers: std::ops::Range<i32>) {
    numbers.for_each(|number| assert_eq!(append(log, nth(7, number)), i64::from(number) * 2));
}

/// Forty batches of producer 7 in two segments, which begin at 0 and 50.
fn forty(disk: &SimDisk) -> Log {
    let (mut log, _) = open(disk, &small(), true, 0);
    write(&mut log, 0..40);
    log
}

fn last_sequence(log: &Log) -> Option<i32> {
    log.producers().find(|state| state.producer_id == 7).map(|state| state.last_sequence)
}

fn unwritten(log: &mut Log, given: &[Vec<u8>]) -> Vec<(usize, Unwritten)> {
    let mut given = given.to_vec();
    let mut slices: Vec<&mut [u8]> = given.iter_mut().map(Vec::as_mut_slice).collect();
    log.append(&mut slices, &[], 0, 0).unwrap().unwritten
}

fn snapshot(base: i64) -> String {
    format!("{base:020}.snapshot")
}

fn snapshots(disk: &SimDisk) -> Vec<String> {
    names(disk).into_iter().filter(|name| name.ends_with(".snapshot")).collect()
}

#[test]
fn batches_of_one_append_are_judged_in_order_and_those_left_out_take_no_offsets() {
    let disk = disk(1);
    let (mut log, _) = open(&disk, &small(), true, 0);
    let given = [nth(7, 0), nth(7, 0), nth(7, 2), batch(2, 100, 5), nth(7, 1), nth(8, 9), nth(7, 1)];
    let again = |number: i64, first_offset| Unwritten::Duplicate { first_offset, timestamp: 1000 + number };
    assert_eq!(unwritten(&mut log, &given), [(1, again(0, 0)), (2, Unwritten::OutOfOrderSequence), (6, again(1, 4))]);
    let stored =
        [placed(0, 0, nth(7, 0)), placed(2, 0, batch(2, 100, 5)), placed(4, 0, nth(7, 1)), placed(6, 0, nth(8, 9))];
    assert_eq!(read_from(&log, 0, 1 << 20), stored.concat());
    assert_eq!(unwritten(&mut log, &[nth(7, 0)]), [(0, again(0, 0))]);
    assert_eq!(log.log_end_offset(), 8);
}

#[test]
fn an_append_of_refused_batches_only_writes_nothing() {
    let disk = disk(1);
    let mut log = forty(&disk);
    let before = disk.steps();
    let mut batches = [nth(7, 41), nth(7, 39)];
    let [gap, again] = &mut batches;
    let appended = log.append(&mut [gap, again], &[], 5, 0).unwrap();
    assert_eq!((appended.first_offset, appended.last_offset, appended.unwritten.len()), (80, 79, 2));
    assert_eq!((disk.steps(), log.latest_epoch()), (before, Some(0)));
}

#[test]
fn a_start_after_a_kill_knows_the_last_five_batches_that_it_has_read_also_before_a_roll() {
    let disk = disk(1);
    let mut log = forty(&disk);
    log.roll(0).unwrap();
    write(&mut log, 40..41);
    disk.kill_process();
    let (mut log, _) = open(&disk, &small(), false, 0);
    let again = |number: i32| {
        let (first_offset, timestamp) = (i64::from(number) * 2, 1000 + i64::from(number));
        Unwritten::Duplicate { first_offset, timestamp }
    };
    for number in 36..41 {
        assert_eq!(unwritten(&mut log, &[nth(7, number)]), [(0, again(number))]);
    }
    assert_eq!(unwritten(&mut log, &[nth(7, 35)]), [(0, Unwritten::OutOfOrderSequence)]);
}

#[test]
fn a_snapshot_stands_at_each_roll_and_at_the_end_of_a_clean_stop() {
    let disk = disk(1);
    let mut log = forty(&disk);
    assert_eq!(snapshots(&disk), [snapshot(50)]);
    log.close().unwrap();
    assert_eq!(snapshots(&disk), [snapshot(50), snapshot(80)]);
    let mut entry = Vec::new();
    entry.extend_from_slice(&1i32.to_be_bytes());
    entry.extend_from_slice(&7i64.to_be_bytes());
    entry.extend_from_slice(&0i16.to_be_bytes());
    entry.extend_from_slice(&79i32.to_be_bytes());
    entry.extend_from_slice(&79i64.to_be_bytes());
    entry.extend_from_slice(&1i32.to_be_bytes());
    entry.extend_from_slice(&1039i64.to_be_bytes());
    entry.extend_from_slice(&(-1i32).to_be_bytes());
    entry.extend_from_slice(&(-1i64).to_be_bytes());
    let expected = [&1i16.to_be_bytes()[..], &crc32c(&entry).to_be_bytes(), &entry].concat();
    assert_eq!(file(&disk, &snapshot(80)), expected);
    let (log, _) = open(&disk, &small(), true, 80);
    assert_eq!(last_sequence(&log), Some(79));
}

#[test]
fn a_clean_stop_makes_the_snapshot_of_a_roll_at_its_end_durable_even_after_a_crash() {
    for seed in 0..50 * milena_testkit::rounds() {
        for crash in [false, true] {
            let disk = disk(seed);
            let mut log = forty(&disk);
            log.roll(0).unwrap();
            if crash {
                disk.kill_process();
                log = open(&disk, &small(), false, 0).0;
            }
            log.close().unwrap();
            // As the clean marker's writer does.
            disk.sync_dir(dir().parent().unwrap()).unwrap();
            disk.restart();
            let (log, _) = open(&disk, &small(), true, 80);
            assert_eq!((last_sequence(&log), log.log_end_offset()), (Some(79), 80));
            assert!(snapshots(&disk).contains(&snapshot(80)), "seed {seed}");
        }
    }
}

#[test]
fn a_damaged_snapshot_is_removed_and_an_older_one_or_the_log_stands_in() {
    for clean in [true, false] {
        for damaged in [&[80][..], &[80, 50]] {
            let disk = disk(1);
            forty(&disk).close().unwrap();
            for &offset in damaged {
                let mut content = file(&disk, &snapshot(offset));
                content[20] ^= 1;
                write_file(&disk, &snapshot(offset), &content);
            }
            let (mut log, _) = open(&disk, &small(), clean, 80);
            assert_eq!((last_sequence(&log), snapshots(&disk).len()), (Some(79), 2 - damaged.len()));
            log.close().unwrap();
            assert!(snapshots(&disk).contains(&snapshot(80)), "written again");
        }
    }
}

#[test]
fn without_any_snapshot_a_clean_stop_means_no_producers_and_a_crash_means_the_whole_log() {
    for (clean, expected) in [(true, None), (false, Some(79))] {
        let disk = disk(1);
        forty(&disk).close().unwrap();
        for name in snapshots(&disk) {
            disk.remove_file(&dir().join(name)).unwrap();
        }
        let (log, _) = open(&disk, &small(), clean, 80);
        assert_eq!(last_sequence(&log), expected);
    }
}

#[test]
fn a_snapshot_beyond_the_end_is_removed_for_good() {
    let disk = disk(1);
    forty(&disk).close().unwrap();
    let mut bytes = file(&disk, "00000000000000000050.log");
    bytes.truncate(161 * 5 + 3);
    write_file(&disk, "00000000000000000050.log", &bytes);
    let (mut log, _) = open(&disk, &small(), false, 50);
    assert_eq!((log.log_end_offset(), last_sequence(&log), snapshots(&disk)), (60, Some(59), vec![snapshot(50)]));
    (0..10).for_each(|_| assert!(append(&mut log, batch(2, 100, 5)) >= 60));
    log.flush().unwrap();
    disk.restart();
    let (log, _) = open(&disk, &small(), false, 50);
    assert_eq!((log.log_end_offset(), last_sequence(&log)), (80, Some(59)));
}

#[test]
fn snapshots_that_belong_to_no_segment_are_removed() {
    let disk = disk(1);
    forty(&disk).close().unwrap();
    let content = file(&disk, &snapshot(50));
    for stray in [10, 49, 60, 81] {
        write_file(&disk, &snapshot(stray), &content);
    }
    let (log, _) = open(&disk, &small(), true, 80);
    assert_eq!((last_sequence(&log), snapshots(&disk)), (Some(79), vec![snapshot(50), snapshot(80)]));
}

#[test]
fn truncation_takes_the_producers_back_too() {
    let disk = disk(1);
    let mut log = forty(&disk);
    for (offset, expected) in [(70, Some(69)), (50, Some(49)), (21, Some(19))] {
        log.truncate_to(offset).unwrap();
        assert_eq!(last_sequence(&log), expected, "cut at {offset}");
    }
    assert!(snapshots(&disk).is_empty());
    write(&mut log, 10..40);
    assert_eq!(last_sequence(&log), Some(79));
    log.truncate_fully_and_start_at(100).unwrap();
    assert_eq!((log.producers().count(), snapshots(&disk).len()), (0, 0));
}

#[test]
fn a_failed_append_takes_the_producers_back_even_behind_a_roll() {
    for roll in [false, true] {
        let disk = disk(1);
        let (mut log, _) = open(&disk, &small(), true, 0);
        write(&mut log, 0..24);
        let path_contains = if roll { "00000000000000000050.log" } else { "00000000000000000000.log" }.to_owned();
        disk.fail(Fault { kind: FaultKind::NoSpace, on: StepKind::Write, path_contains, times: 1 });
        let mut given = [nth(7, 24), nth(7, 25)];
        let [first, second] = &mut given;
        assert!(log.append(&mut [first, second], &[], 0, 0).is_err());
        assert_eq!((log.log_end_offset(), last_sequence(&log)), (48, Some(47)), "{roll}");
        disk.clear_faults();
        write(&mut log, 24..40);
        log.close().unwrap();
        let (log, _) = open(&disk, &small(), true, 80);
        assert_eq!(last_sequence(&log), Some(79));
    }
}

#[test]
fn deleting_records_forgets_no_producer() {
    for clean in [true, false] {
        let disk = disk(1);
        let mut log = forty(&disk);
        log.set_log_start_offset(80).unwrap();
        assert!(matches!(unwritten(&mut log, &[nth(7, 39)])[..], [(0, Unwritten::Duplicate { first_offset: 78, .. })]));
        if clean {
            log.close().unwrap();
        }
        drop(log);
        let params = OpenParams { clean, recovery_point: 80, log_start_offset: 80, cleaned_to: 0, now_ms: 0 };
        let opened = Log::open(std::sync::Arc::new(disk.clone()), &dir(), small().into(), params);
        let mut log = opened.unwrap().0;
        assert!(matches!(unwritten(&mut log, &[nth(7, 39)])[..], [(0, Unwritten::Duplicate { first_offset: 78, .. })]));
        assert_eq!(unwritten(&mut log, &[nth(7, 40)]), []);
    }
}

#[test]
fn what_a_follower_copies_is_not_judged_but_remembered() {
    let disk = disk(1);
    let (mut log, _) = open(&disk, &small(), true, 0);
    let copied = [placed(0, 0, nth(7, 5)), placed(2, 0, nth(7, 1))].concat();
    log.append_as_follower(&copied, 0).unwrap();
    assert_eq!(log.producers().collect::<Vec<_>>(), producers_of(&copied));
    assert_eq!(last_sequence(&log), Some(3));
}

#[test]
fn silent_producers_are_forgotten_by_time_and_not_taken_from_a_snapshot() {
    let disk = disk(1);
    let config = LogConfig { producer_id_expiration_ms: 100, ..small() };
    let (mut log, _) = open(&disk, &config, true, 0);
    append(&mut log, nth(7, 0));
    append(&mut log, sent_by(8, 0, 0, batch(1, 1, 2000)));
    log.expire_producers(1099);
    assert_eq!(log.producers().count(), 2);
    log.close().unwrap();
    let params = OpenParams { clean: true, recovery_point: 3, log_start_offset: 0, cleaned_to: 0, now_ms: 1100 };
    let mut log = Log::open(std::sync::Arc::new(disk), &dir(), config.into(), params).unwrap().0;
    let ids = |log: &Log| log.producers().map(|state| state.producer_id).collect::<Vec<_>>();
    assert_eq!(ids(&log), [8]);
    append(&mut log, nth(7, 30));
    log.expire_producers(2100);
    assert_eq!(ids(&log), [0i64; 0]);
}
