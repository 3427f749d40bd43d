//! What a log does when nothing goes wrong.

mod common;

use common::*;
use milena_io::{Disk, SimDisk};
use milena_log::{EpochEnd, Log, LogConfig, LogError};

#[test]
fn offsets_are_consecutive_and_stand_in_the_buffers_with_the_epoch() {
    let disk = disk(1);
    let (mut log, _) = open(&disk, &LogConfig::default(), true, 0);
    let (mut a, mut b) = (batch(3, 10, 5), batch(2, 20, 6));
    let appended = log.append(&mut [&mut a, &mut b], &[], 7, 0).unwrap();
    assert_eq!((appended.first_offset, appended.last_offset, log.log_end_offset()), (0, 4, 5));
    let expected = [placed(0, 7, batch(3, 10, 5)), placed(3, 7, batch(2, 20, 6))].concat();
    assert_eq!([a, b].concat(), expected);
    assert_eq!(read_from(&log, 0, 1 << 20), expected);
    assert_eq!((log.latest_epoch(), log.size()), (Some(7), expected.len() as u64));
}

#[test]
fn an_append_is_one_step_on_the_disk() {
    let disk = disk(1);
    let (mut log, _) = open(&disk, &LogConfig::default(), true, 0);
    append(&mut log, batch(1, 1000, 1));
    let before = disk.steps();
    for at in 0..20 {
        append(&mut log, batch(1, 1000, at));
    }
    assert_eq!(disk.steps() - before, 20);
}

#[test]
fn reading_begins_with_the_batch_of_the_offset_and_stops_at_the_end_offset() {
    let disk = disk(1);
    let (mut log, _) = open(&disk, &small(), true, 0);
    for at in 0..40 {
        append(&mut log, batch(2, 100, at));
    }
    let slice = |offset, max, end, whole| {
        log.read(offset, max, end, whole).unwrap().map(|slice| (slice.segment, slice.position, slice.len))
    };
    assert_eq!(slice(0, 400, i64::MAX, true), Some((0, 0, 400)));
    assert_eq!(slice(5, 400, i64::MAX, true), Some((0, 2 * 161, 400)));
    assert_eq!(slice(5, 400, 8, true), Some((0, 2 * 161, 2 * 161)));
    assert_eq!(slice(5, 400, 7, true), Some((0, 2 * 161, 161)));
    assert_eq!(slice(5, 10, i64::MAX, true), Some((0, 2 * 161, 161)));
    assert_eq!(slice(5, 10, i64::MAX, false), None);
    assert_eq!(slice(8, 400, 8, true), None);
    assert_eq!(slice(80, 400, i64::MAX, true), None);
    assert_eq!(log.segment_base_offsets().collect::<Vec<_>>(), [0, 50]);
    assert_eq!(slice(48, 400, i64::MAX, true), Some((0, 24 * 161, 161)), "never over the end of a segment");
    for offset in [-1, 81] {
        assert!(matches!(log.read(offset, 1, 90, true), Err(LogError::OffsetOutOfRange { start: 0, end: 80, .. })));
    }
}

#[test]
fn every_offset_is_found_with_indexes_in_memory_and_on_disk() {
    let disk = disk(1);
    let config = LogConfig { segment_bytes: 1 << 20, index_interval_bytes: 0, ..LogConfig::default() };
    let (mut log, _) = open(&disk, &config, true, 0);
    for at in 0..1500 {
        append(&mut log, batch(3, 20, at));
    }
    let check = |log: &Log| {
        for offset in (0..4500).rev() {
            let slice = log.read(offset, 1, i64::MAX, true).unwrap().unwrap();
            assert_eq!(slice.position, offset as u64 / 3 * 81, "offset {offset}");
        }
    };
    check(&log);
    log.close().unwrap();
    drop(log);
    let (log, _) = open(&disk, &config, true, 4500);
    check(&log);
}

#[test]
fn index_entries_follow_the_interval_and_name_the_batchs_last_offset_and_start() {
    let disk = disk(1);
    let (mut log, _) = open(&disk, &small(), true, 0);
    for timestamp in [10, 30, 20, 40, 40, 40, 50] {
        append(&mut log, batch(2, 100, timestamp));
    }
    log.close().unwrap();
    assert_eq!(index_entries(&disk, 0), [(5, 322), (9, 644), (13, 966)]);
    assert_eq!(time_entries(&disk, 0), [(30, 3), (40, 7), (50, 13)]);
}

#[test]
fn a_segment_is_rolled_by_size_age_full_index_and_distance() {
    let roll_after = |config: LogConfig, batches: Vec<Vec<u8>>| {
        let disk = disk(1);
        let (mut log, _) = open(&disk, &config, true, 0);
        for bytes in batches {
            append(&mut log, bytes);
        }
        log.segment_base_offsets().collect::<Vec<_>>()
    };
    let default = LogConfig::default;
    let by_size = LogConfig { segment_bytes: 322, ..default() };
    assert_eq!(roll_after(by_size, (0..5).map(|_| batch(1, 100, 0)).collect()), [0, 2, 4]);
    let by_age = LogConfig { segment_ms: 100, ..default() };
    assert_eq!(roll_after(by_age, [5, 105, 106, 50].map(|at| batch(1, 1, at)).into()), [0, 2]);
    let by_index = LogConfig { segment_index_bytes: 16, index_interval_bytes: 0, ..default() };
    assert_eq!(roll_after(by_index, (0..4).map(|_| batch(1, 1, -1)).collect()), [0, 1, 2, 3]);
    let far = vec![batch(i32::MAX, 1, 0), batch(1, 1, 0), batch(1, 1, 0)];
    assert_eq!(roll_after(default(), far), [0, 1 << 31]);
}

#[test]
fn jitter_lets_each_segment_roll_earlier_than_its_age_by_another_time() {
    let config = LogConfig { segment_ms: 1000, segment_jitter_ms: 400, ..LogConfig::default() };
    let (mut log, _) = open(&disk(1), &config, true, 0);
    let (mut began, mut ages) = (0, Vec::new());
    for timestamp in 0..20_000 {
        let segments = log.segment_base_offsets().count();
        append(&mut log, batch(1, 1, timestamp));
        if log.segment_base_offsets().count() > segments {
            ages.push(timestamp - began);
            began = timestamp;
        }
    }
    assert!(ages.iter().all(|age| (602..=1001).contains(age)), "{ages:?}");
    ages.sort_unstable();
    ages.dedup();
    assert!(ages.len() > 15, "{ages:?}");
}

#[test]
fn settings_that_change_in_use_count_from_the_next_append_on() {
    let disk = disk(1);
    let (mut log, _) = open(&disk, &LogConfig::default(), true, 0);
    let set = |log: &mut Log, config: LogConfig| {
        log.set_config(std::sync::Arc::new(config));
        append(log, batch(1, 100, 0));
        log.segment_base_offsets().count()
    };
    for expected in [1, 1] {
        assert_eq!(set(&mut log, LogConfig::default()), expected);
    }
    assert_eq!(set(&mut log, LogConfig { segment_bytes: 400, ..LogConfig::default() }), 2);
    assert_eq!(set(&mut log, LogConfig { segment_bytes: 483, ..LogConfig::default() }), 2);
    let dense = LogConfig { index_interval_bytes: 0, ..LogConfig::default() };
    assert_eq!([set(&mut log, dense.clone()), set(&mut log, dense.clone())], [2, 2]);
    assert_eq!(set(&mut log, LogConfig { segment_index_bytes: 16, ..dense }), 3);
    log.close().unwrap();
    assert_eq!(index_entries(&disk, 2), [(4, 322), (5, 483)]);
}

#[test]
fn a_preallocated_segment_has_its_length_until_it_is_finished() {
    let disk = disk(1);
    let config = LogConfig { preallocate: true, ..small() };
    let (mut log, _) = open(&disk, &config, true, 0);
    let length = |name: &str| file(&disk, name).len();
    assert_eq!((length("00000000000000000000.log"), log.size()), (4096, 0));
    for at in 0..3 {
        append(&mut log, batch(1, 100, at));
    }
    assert_eq!((length("00000000000000000000.log"), log.size()), (4096, 483));
    assert_eq!(read_from(&log, 0, 1 << 20).len(), 483);
    log.roll(0).unwrap();
    assert_eq!((length("00000000000000000000.log"), length("00000000000000000003.log")), (483, 4096));
    append(&mut log, batch(1, 100, 3));
    log.flush().unwrap();
    disk.kill_process();
    let (mut log, recovery) = open(&disk, &config, false, 4);
    assert_eq!((recovery.cut_at, recovery.bytes_cut), (Some(4), 4096 - 161));
    assert_eq!(length("00000000000000000003.log"), 161);
    append(&mut log, batch(1, 100, 4));
    log.roll(0).unwrap();
    log.close().unwrap();
    assert_eq!((length("00000000000000000003.log"), length("00000000000000000005.log")), (322, 0));
    let (log, _) = open(&disk, &config, true, 5);
    assert_eq!(read_from(&log, 0, 1 << 20).len(), 5 * 161);
}

#[test]
fn a_batch_that_no_segment_holds_is_refused_and_leaves_nothing() {
    let disk = disk(1);
    let (mut log, _) = open(&disk, &small(), true, 0);
    let mut large = batch(1, 5000, 0);
    assert!(matches!(
        log.append(&mut [&mut large], &[], 0, 0),
        Err(LogError::BatchTooLarge { segment_bytes: 4096, .. })
    ));
    assert_eq!((log.log_end_offset(), append(&mut log, batch(1, 1, 0))), (0, 0));
    let mut twice = [batch(1, 1, 0), batch(1, 1, 0)].concat();
    assert!(matches!(log.append(&mut [&mut twice], &[], 0, 0), Err(LogError::Malformed(_))));
}

#[test]
fn a_follower_keeps_offsets_and_epochs_and_may_skip_but_not_go_back() {
    let disk = disk(1);
    let (mut log, _) = open(&disk, &LogConfig::default(), true, 0);
    let bytes = [placed(0, 1, batch(2, 5, 0)), placed(2, 3, batch(2, 5, 0)), placed(9, 3, batch(1, 5, 0))].concat();
    let appended = log.append_as_follower(&bytes, 0).unwrap();
    assert_eq!((appended.first_offset, appended.last_offset), (0, 9));
    assert_eq!(read_from(&log, 0, 1 << 20), bytes);
    assert_eq!(log.end_offset_for_epoch(1), EpochEnd { epoch: 1, end_offset: 2 });
    assert_eq!(log.end_offset_for_epoch(3), EpochEnd { epoch: 3, end_offset: 10 });
    let back = placed(9, 3, batch(1, 5, 0));
    assert!(matches!(log.append_as_follower(&back, 0), Err(LogError::OutOfOrder { log_end_offset: 10, .. })));
}

#[test]
fn a_clean_stop_leaves_kafkas_files_and_a_clean_start_reads_the_snapshot_only() {
    let disk = disk(1);
    let (mut log, _) = open(&disk, &small(), true, 0);
    for at in 0..40 {
        append(&mut log, batch(2, 100, at));
    }
    let bytes = read_from(&log, 0, 1 << 20);
    log.close().unwrap();
    assert_eq!(log.recovery_point(), 80);
    assert!(matches!(log.append(&mut [], &[], 0, 0), Err(LogError::Poisoned { .. })));
    drop(log);
    assert_eq!(
        names(&disk),
        [
            "00000000000000000000.index",
            "00000000000000000000.log",
            "00000000000000000000.timeindex",
            "00000000000000000050.index",
            "00000000000000000050.log",
            "00000000000000000050.snapshot",
            "00000000000000000050.timeindex",
            "00000000000000000080.snapshot",
            "leader-epoch-checkpoint",
        ]
    );
    assert_eq!(file(&disk, "leader-epoch-checkpoint"), b"0\n1\n0 0\n");
    assert_eq!(file(&disk, "00000000000000000080.snapshot"), [0, 1, 0x48, 0x67, 0x4b, 0xc7, 0, 0, 0, 0]);
    for unread in [".log", ".index", ".timeindex", "0050"] {
        disk.fail(milena_io::Fault {
            kind: milena_io::FaultKind::Io,
            on: milena_io::StepKind::Read,
            path_contains: unread.to_owned(),
            times: u64::MAX,
        });
    }
    let before = disk.steps();
    let (mut log, recovery) = open(&disk, &small(), true, 80);
    assert_eq!((log.log_end_offset(), log.recovery_point(), recovery), (80, 80, milena_log::Recovery::default()));
    log.close().unwrap();
    assert_eq!(disk.steps(), before, "nothing was changed, so nothing is written");
    let (mut log, _) = open(&disk, &small(), true, 80);
    log.assign_epoch(3, 80).unwrap();
    log.close().unwrap();
    assert_eq!(disk.steps(), before, "nor for a leader that wrote nothing");
    disk.clear_faults();
    let (mut log, _) = open(&disk, &small(), true, 80);
    assert_eq!((read_from(&log, 0, 300), append(&mut log, batch(1, 1, 0))), (bytes, 80));
}

#[test]
fn without_a_confirmed_recovery_point_the_last_headers_tell_the_log_end() {
    let disk = disk(1);
    let (mut log, _) = open(&disk, &small(), true, 0);
    for at in 0..20 {
        append(&mut log, batch(2, 100, at));
    }
    log.close().unwrap();
    let (log, recovery) = open(&disk, &small(), true, 17);
    assert_eq!((log.log_end_offset(), recovery.segments_scanned), (40, 0));
}

#[test]
fn truncation_removes_records_epochs_and_index_entries_and_the_next_append_goes_there() {
    let disk = disk(1);
    let (mut log, _) = open(&disk, &small(), true, 0);
    let mut kept = Vec::new();
    for at in 0..60 {
        let bytes = batch(2, 100, 1000 + at);
        if at < 20 {
            kept.extend(placed(2 * at, 0, bytes.clone()));
        }
        let mut bytes = bytes;
        log.append(&mut [&mut bytes], &[], at as i32 / 30, 0).unwrap();
    }
    log.flush().unwrap();
    assert!(log.truncate_to(41).unwrap());
    assert_eq!((log.log_end_offset(), log.flushed_to(), log.latest_epoch()), (40, 40, Some(0)));
    assert_eq!(read_from(&log, 0, 1 << 20), kept);
    assert!(!log.truncate_to(40).unwrap());
    assert_eq!(append(&mut log, batch(1, 100, 5)), 40);
    log.close().unwrap();
    assert_eq!(time_entries(&disk, 0).last(), Some(&(1019, 39)));
    log.truncate_to(0).unwrap_err();
    let (mut log, _) = open(&disk, &small(), true, 41);
    log.truncate_fully_and_start_at(1000).unwrap();
    assert_eq!((log.log_start_offset(), log.log_end_offset(), log.size()), (1000, 1000, 0));
    assert_eq!(append(&mut log, batch(1, 100, 5)), 1000);
}

#[test]
fn a_deleted_log_leaves_its_name_at_once_and_its_directory_later() {
    let disk = disk(1);
    let (mut log, _) = open(&disk, &small(), true, 0);
    append(&mut log, batch(1, 100, 5));
    log.rename_for_deletion(0xab).unwrap();
    let list = |disk: &SimDisk| -> Vec<String> {
        disk.list("/data".as_ref()).unwrap().into_iter().map(|entry| entry.name).collect()
    };
    assert_eq!(list(&disk), ["t-0.000000000000000000000000000000ab-delete"]);
    assert_eq!(read_from(&log, 0, 1000).len(), 161);
    let (mut again, _) = open(&disk, &small(), true, 0);
    assert_eq!(append(&mut again, batch(1, 100, 5)), 0);
    log.delete().unwrap();
    assert_eq!(list(&disk), ["t-0"]);
}

#[test]
fn a_log_that_was_only_led_since_its_clean_start_needs_no_close() {
    let disk = disk(1);
    let (mut log, _) = open(&disk, &small(), true, 0);
    log.assign_epoch(1, 0).unwrap();
    log.close().unwrap();
    let before = disk.steps();
    for epoch in 2..5 {
        let (mut log, _) = open(&disk, &small(), true, 0);
        log.assign_epoch(epoch, 0).unwrap();
        assert_eq!(log.end_offset_for_epoch(epoch), EpochEnd { epoch, end_offset: 0 });
        log.close().unwrap();
        assert_eq!(disk.steps(), before);
    }
    let (mut log, _) = open(&disk, &small(), true, 0);
    log.assign_epoch(5, 0).unwrap();
    log.append(&mut [&mut batch(1, 1, 0)], &[], 5, 0).unwrap();
    log.assign_epoch(6, 1).unwrap();
    log.close().unwrap();
    assert_eq!(file(&disk, "leader-epoch-checkpoint"), b"0\n2\n5 0\n6 1\n");
}

#[test]
fn a_log_that_was_only_led_before_and_after_a_kill_keeps_its_files_as_they_are() {
    let disk = disk(1);
    let (mut log, _) = open(&disk, &small(), true, 0);
    for at in 0..40 {
        append(&mut log, batch(2, 100, at));
    }
    log.assign_epoch(1, 80).unwrap();
    log.close().unwrap();
    assert_eq!(file(&disk, "leader-epoch-checkpoint"), b"0\n2\n0 0\n1 80\n");
    let (left, before) = (names(&disk), disk.trace().len());
    let (log, _) = open(&disk, &small(), true, 80);
    drop(log);
    disk.kill_process();
    let (mut log, recovery) = open(&disk, &small(), false, 0);
    assert_eq!(recovery.segments_scanned, 2);
    log.assign_epoch(2, 80).unwrap();
    log.assign_epoch(3, 80).unwrap();
    log.close().unwrap();
    let mut changes = disk.trace().split_off(before);
    // There are none to remove.
    changes.retain(|step| !step.ends_with(".txnindex"));
    let unwanted = ["Create", "Rename", "Remove", "Truncate"];
    assert!(changes.iter().all(|step| unwanted.iter().all(|kind| !step.contains(kind))), "{changes:?}");
    assert!(changes.iter().any(|step| step.contains("Sync ") && step.ends_with("80.snapshot")), "{changes:?}");
    assert_eq!(names(&disk), left);
    disk.restart();
    let (mut log, recovery) = open(&disk, &small(), true, 80);
    assert_eq!((recovery, log.log_end_offset()), (milena_log::Recovery::default(), 80));
    assert_eq!(append(&mut log, batch(1, 100, 50)), 80);
}

/// The steps of the disk from number `from` on, without their numbers.
fn steps_since(disk: &SimDisk, from: usize) -> Vec<String> {
    let steps = disk.trace().split_off(from);
    steps
        .iter()
        .map(|step| {
            step.split_whitespace().collect::<Vec<_>>().join(" ").split_once(' ').unwrap().1.replace("/data/t-0/", "")
        })
        .collect()
}

/// A log with a segment that has space reserved behind its end.
fn with_reserved_space(disk: &SimDisk) -> Log {
    let (mut log, _) = open(disk, &LogConfig::default(), true, 0);
    for at in 0..10 {
        append(&mut log, batch(1, 9000, at));
    }
    assert!(steps_since(disk, 0).contains(&format!("Allocate {:020}.log", 0)));
    log
}

#[test]
fn a_roll_only_writes_and_makes_small_files_and_its_flush_frees_the_reserved_space() {
    let disk = disk(1);
    let mut log = with_reserved_space(&disk);
    let before = disk.trace().len();
    log.roll(0).unwrap();
    let old = |suffix: &str| format!("{:020}.{suffix}", 0);
    let new = |suffix: &str| format!("{:020}.{suffix}", 10);
    let rolled = [
        format!("Write {}", old("index")),
        format!("Write {}", old("timeindex")),
        format!("Create {}", new("snapshot")),
        format!("Write {}", new("snapshot")),
        format!("Create {}", new("log")),
        format!("Create {}", new("index")),
        format!("Create {}", new("timeindex")),
    ];
    assert_eq!(steps_since(&disk, before), rolled);
    let before = disk.trace().len();
    let flush = log.begin_flush_of_finished().unwrap().unwrap();
    assert_eq!(disk.trace().len(), before, "nothing is done while the log is held");
    flush.sync().unwrap();
    let flushed = steps_since(&disk, before);
    assert_eq!(flushed[..2], [format!("Truncate {}", old("log")), format!("Sync {}", old("log"))]);
    assert!(log.flushed(flush));
    let before = disk.trace().len();
    append(&mut log, batch(1, 10, 10));
    log.roll(0).unwrap();
    log.flush().unwrap();
    assert!(!steps_since(&disk, before).iter().any(|step| step.starts_with("Truncate")), "given back once");
}

#[test]
fn reserved_space_is_given_back_at_a_close_and_after_a_kill_too() {
    let cut = format!("Truncate {:020}.log", 0);
    for close in [true, false] {
        let disk = disk(1);
        let mut log = with_reserved_space(&disk);
        log.roll(0).unwrap();
        append(&mut log, batch(1, 10, 10));
        let before = disk.trace().len();
        if close {
            log.close().unwrap();
        } else {
            disk.kill_process();
            assert_eq!(open(&disk, &LogConfig::default(), false, log.recovery_point()).0.log_end_offset(), 11);
        }
        assert!(steps_since(&disk, before).contains(&cut), "closed: {close}");
    }
}

#[test]
fn a_flush_that_a_truncation_overtakes_cuts_nothing_that_was_appended_since() {
    let disk = disk(1);
    let mut log = with_reserved_space(&disk);
    log.roll(0).unwrap();
    let flush = log.begin_flush_of_finished().unwrap().unwrap();
    log.truncate_to(9).unwrap();
    for at in 9..20 {
        append(&mut log, batch(1, 9000, at));
    }
    let before = read_from(&log, 0, 1 << 20);
    flush.sync().unwrap();
    assert!(!log.flushed(flush));
    assert_eq!(read_from(&log, 0, 1 << 20), before);
}
