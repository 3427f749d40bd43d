//! Which segments go, and what their removal leaves.

mod common;

use std::path::PathBuf;

use common::*;
use milena_io::{Disk, FileExt, SimDisk};
use milena_log::{Due, Log, LogConfig, LogError};

/// Segments of two batches with one record each; their timestamps are 10, 11, 12, …
fn ten_batches(disk: &SimDisk, config: LogConfig) -> Log {
    let (mut log, _) = open(disk, &LogConfig { segment_bytes: 322, ..config }, true, 0);
    for timestamp in 10..20 {
        append(&mut log, batch(1, 100, timestamp));
    }
    assert_eq!(log.segment_base_offsets().collect::<Vec<_>>(), [0, 2, 4, 6, 8]);
    log
}

fn unlimited() -> LogConfig {
    LogConfig { retention_ms: -1, retention_bytes: -1, ..LogConfig::default() }
}

fn due(log: &mut Log, high_watermark: i64, now_ms: i64) -> [usize; 3] {
    let Due { below_start, by_size, by_age } = log.due_segments(high_watermark, now_ms).unwrap();
    [below_start, by_size, by_age]
}

fn remove(log: &mut Log, count: usize) -> Vec<PathBuf> {
    let mut deleted = Vec::new();
    let removal = log.begin_removal(count).unwrap();
    removal.sync().unwrap();
    log.remove_segments(removal, &mut deleted).unwrap();
    deleted
}

#[test]
fn segments_go_by_age_when_their_largest_timestamp_is_older_than_the_limit() {
    let mut log = ten_batches(&disk(1), LogConfig { retention_ms: 100, ..unlimited() });
    assert_eq!(due(&mut log, 10, 111), [0, 0, 0], "exactly the limit is not older");
    assert_eq!(due(&mut log, 10, 112), [0, 0, 1]);
    assert_eq!(due(&mut log, 10, 119), [0, 0, 4]);
    assert_eq!(due(&mut log, 10, 120), [0, 0, 5], "the last one too");
    assert_eq!(due(&mut log, 9, 120), [0, 0, 4], "none that reaches beyond the high watermark");
    assert_eq!(due(&mut log, 1, 120), [0, 0, 0]);
}

#[test]
fn segments_go_by_size_while_the_rest_has_the_limit() {
    let size = |limit| {
        let mut log = ten_batches(&disk(1), LogConfig { retention_bytes: limit, ..unlimited() });
        due(&mut log, 10, 0)
    };
    assert_eq!([size(-1), size(1610), size(1289)], [[0, 0, 0]; 3]);
    assert_eq!([size(1288), size(1), size(0)], [[0, 1, 0], [0, 4, 0], [0, 5, 0]]);
}

#[test]
fn each_reason_looks_at_what_the_one_before_leaves() {
    let limits = LogConfig { retention_bytes: 644, retention_ms: 100, ..LogConfig::default() };
    let mut log = ten_batches(&disk(1), limits.clone());
    log.set_log_start_offset(3).unwrap();
    assert_eq!(due(&mut log, 10, 118), [1, 2, 1]);
    for compact in [false, true] {
        let mut log = ten_batches(&disk(1), LogConfig { delete: false, compact, ..limits.clone() });
        log.set_log_start_offset(3).unwrap();
        assert_eq!(due(&mut log, 10, 118), [1, 0, 0], "without `delete` only the log start offset counts");
    }
}

#[test]
fn an_empty_last_segment_stays_and_one_below_the_log_start_offset_only_with_its_successor() {
    let mut log = ten_batches(&disk(1), LogConfig { retention_ms: 0, ..unlimited() });
    log.set_log_start_offset(10).unwrap();
    assert_eq!(due(&mut log, 10, 19), [4, 0, 0]);
    log.roll(0).unwrap();
    assert_eq!(due(&mut log, 10, 1000), [5, 0, 0]);
    assert_eq!(remove(&mut log, 5).len(), 3 * 5 + 4);
    assert_eq!(due(&mut log, 10, i64::MAX), [0, 0, 0]);
}

#[test]
fn without_timestamps_a_segment_is_as_old_as_its_files_last_change() {
    let disk = disk(1);
    disk.set_now_ms(1000);
    let (mut log, _) = open(&disk, &LogConfig { retention_ms: 100, ..unlimited() }, true, 0);
    append(&mut log, batch(1, 100, -1));
    assert_eq!(due(&mut log, 1, 1100), [0, 0, 0]);
    assert_eq!(due(&mut log, 1, 1101), [0, 0, 1]);
}

#[test]
fn nothing_is_deleted_because_an_index_is_damaged() {
    let disk = disk(1);
    disk.set_now_ms(1000);
    let mut log = ten_batches(&disk, LogConfig { retention_ms: 100, ..unlimited() });
    log.close().unwrap();
    let mut bytes = file(&disk, "00000000000000000000.timeindex");
    let last = bytes.len() - 12;
    bytes[last..last + 8].copy_from_slice(&3i64.to_be_bytes());
    write_file(&disk, "00000000000000000000.timeindex", &bytes);
    let config = LogConfig { retention_ms: 100, ..unlimited() };
    let (mut log, _) = open(&disk, &config, true, 10);
    assert_eq!(due(&mut log, 10, 1100), [0, 0, 0], "the file was changed later than the entry says");
    assert_eq!(due(&mut log, 10, 1101), [0, 0, 5]);
}

#[test]
fn removed_segments_are_renamed_with_their_snapshots_and_stay_readable_for_who_reads_them() {
    let disk = disk(1);
    let mut log = ten_batches(&disk, unlimited());
    let held = log.read(0, 1 << 20, 10, true).unwrap().unwrap();
    let before = read_from(&log, 4, 1 << 20);
    let deleted = remove(&mut log, 2);
    assert_eq!((log.log_start_offset(), log.segment_base_offsets().next()), (4, Some(4)));
    assert_eq!(read_from(&log, 4, 1 << 20), before);
    assert!(matches!(log.read(3, 1, 10, true), Err(LogError::OffsetOutOfRange { offset: 3, start: 4, end: 10 })));
    let expected = ["0.log", "0.index", "0.timeindex", "2.log", "2.index", "2.timeindex", "2.snapshot"];
    let expected = expected.map(|name| dir().join(format!("{:0>1$}.deleted", name, 20 + name.len() - 1)));
    assert_eq!(deleted, expected);
    assert!(
        names(&disk)
            .iter()
            .filter(|name| name.ends_with(".snapshot"))
            .all(|name| !name.starts_with("00000000000000000002"))
    );
    let mut bytes = vec![0; held.len];
    held.file.read_exact_at(&mut bytes, held.position).unwrap();
    disk.remove_file(&deleted[0]).unwrap();
    held.file.read_exact_at(&mut bytes, held.position).unwrap();
    drop(log);
    let (log, recovery) = open(&disk, &unlimited(), false, 0);
    assert_eq!((log.log_start_offset(), log.log_end_offset(), recovery.cut_at), (4, 10, None));
    assert!(names(&disk).iter().all(|name| !name.ends_with(".deleted")), "a start removes them at once");
}

#[test]
fn nothing_goes_when_no_segment_begins_where_the_doomed_ones_end_any_more() {
    let disk = disk(1);
    let mut log = ten_batches(&disk, unlimited());
    let removal = log.begin_removal(3).unwrap();
    removal.sync().unwrap();
    log.truncate_to(5).unwrap();
    append(&mut log, batch(4, 200, 20));
    let mut deleted = Vec::new();
    log.remove_segments(removal, &mut deleted).unwrap();
    assert_eq!((deleted.len(), log.log_start_offset()), (0, 0));
    let other = log.begin_removal(1).unwrap();
    let (mut log, _) = open(&self::disk(2), &LogConfig { segment_bytes: 322, ..unlimited() }, true, 0);
    for timestamp in 10..20 {
        append(&mut log, batch(1, 100, timestamp));
    }
    log.remove_segments(other, &mut deleted).unwrap();
    assert_eq!((deleted.len(), log.log_start_offset()), (0, 0));
}

#[test]
fn a_disk_that_fails_while_segments_go_leaves_the_others() {
    let disk = disk(1);
    let mut log = ten_batches(&disk, unlimited());
    let removal = log.begin_removal(3).unwrap();
    removal.sync().unwrap();
    let (kind, on) = (milena_io::FaultKind::Io, milena_io::StepKind::Rename);
    disk.fail(milena_io::Fault { kind, on, path_contains: "02.index".into(), times: 1 });
    let mut deleted = Vec::new();
    assert!(matches!(log.remove_segments(removal, &mut deleted), Err(LogError::Io { .. })));
    assert_eq!((log.segment_base_offsets().next(), log.log_start_offset()), (Some(4), 6));
    assert_eq!(deleted.len(), 4);
    assert_eq!(read_from(&log, 6, 1 << 20).len(), 4 * 161);
    assert_eq!(due(&mut log, 10, 0), [1, 0, 0], "the next look finds the rest");
}
