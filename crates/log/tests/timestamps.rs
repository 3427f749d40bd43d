//! Finding records by timestamp, through compressed batches too.

mod common;

use std::sync::Arc;

use common::*;
use milena_io::{Fault, FaultKind, SimDisk, StepKind};
use milena_log::{Log, LogConfig, LogError, LogView, TimestampOffset};
use milena_records::{BatchBuilder, Compression, Compressor, Decompressor};

fn records(codec: Compression, stamps: &[i64], append_time: Option<i64>) -> Vec<u8> {
    let mut builder = BatchBuilder::new().compression(codec, codec.default_level());
    if let Some(now) = append_time {
        builder = builder.log_append_time(now);
    }
    for stamp in stamps {
        builder.push(*stamp, Some(b"key"), Some(&[7; 100]), &[]);
    }
    let mut bytes = Vec::new();
    builder.finish(&mut Compressor::new(), &mut bytes).unwrap();
    bytes
}

fn by_time(log: &Log, timestamp: i64) -> Option<(i64, i64)> {
    let found = log.offset_for_timestamp(timestamp, &mut Decompressor::new(1 << 20)).unwrap();
    found.map(|found| (found.timestamp, found.offset))
}

#[test]
fn the_first_record_at_or_after_a_timestamp_is_found_in_every_codec_and_segment() {
    let disk = disk(1);
    let config = LogConfig { segment_bytes: 600, index_interval_bytes: 100, ..small() };
    let (mut log, _) = open(&disk, &config, true, 0);
    for (at, codec) in Compression::ALL.into_iter().enumerate() {
        let base = 100 * at as i64;
        append(&mut log, records(codec, &[base + 30, base + 10, base + 50], None));
    }
    assert!(log.segment_base_offsets().count() > 1);
    let check = |log: &Log| {
        assert_eq!([0, 30, 31].map(|at| by_time(log, at)), [Some((30, 0)), Some((30, 0)), Some((50, 2))]);
        assert_eq!([51, 245, 450].map(|at| by_time(log, at)), [Some((130, 3)), Some((250, 8)), Some((450, 14))]);
        assert_eq!(by_time(log, 451), None);
        let largest = log.max_timestamp_offset(&mut Decompressor::new(1 << 20)).unwrap();
        assert_eq!(largest, Some(TimestampOffset { timestamp: 450, offset: 14, leader_epoch: 0 }));
    };
    check(&log);
    log.close().unwrap();
    let (mut log, _) = open(&disk, &config, true, 15);
    check(&log);
    log.set_log_start_offset(4).unwrap();
    assert_eq!([0, 120].map(|at| by_time(&log, at)), [Some((110, 4)), Some((150, 5))]);
}

#[test]
fn with_append_times_the_largest_timestamp_is_that_of_the_first_record_of_its_batch() {
    let disk = disk(1);
    let (mut log, _) = open(&disk, &small(), true, 0);
    append(&mut log, records(Compression::None, &[1, 2, 3], Some(900)));
    append(&mut log, records(Compression::Lz4, &[5, 6], Some(900)));
    let largest = log.max_timestamp_offset(&mut Decompressor::new(1 << 20)).unwrap();
    assert_eq!(largest.map(|found| (found.timestamp, found.offset)), Some((900, 0)));
    assert_eq!([4, 900, 901].map(|at| by_time(&log, at)), [Some((900, 0)), Some((900, 0)), None]);
}

#[test]
fn where_no_record_has_a_timestamp_the_first_one_stands_for_the_largest() {
    let disk = disk(1);
    let (mut log, _) = open(&disk, &small(), true, 0);
    append(&mut log, records(Compression::None, &[-1, -1], None));
    append(&mut log, records(Compression::Lz4, &[-1], None));
    let largest = |log: &Log| log.max_timestamp_offset(&mut Decompressor::new(1 << 20)).unwrap();
    let first = TimestampOffset { timestamp: -1, offset: 0, leader_epoch: 0 };
    assert_eq!(largest(&log), Some(first));
    log.set_log_start_offset(2).unwrap();
    assert_eq!(largest(&log), Some(first));
    append(&mut log, records(Compression::None, &[0], None));
    assert_eq!(largest(&log).map(|found| (found.timestamp, found.offset)), Some((0, 3)));
}

#[test]
fn an_empty_log_has_no_timestamps() {
    let disk = disk(1);
    let (log, _) = open(&disk, &small(), true, 0);
    assert_eq!((by_time(&log, 0), log.max_timestamp_offset(&mut Decompressor::new(1)).unwrap()), (None, None));
}

/// Four segments with the offsets 0 to 3, opened again so that nothing of them is in memory.
fn four_segments(disk: &SimDisk) -> Log {
    let config = LogConfig { segment_bytes: 200, ..small() };
    let (mut log, _) = open(disk, &config, true, 0);
    for stamp in [10, 20, 30, 40] {
        append(&mut log, records(Compression::None, &[stamp], None));
    }
    log.close().unwrap();
    let (log, _) = open(disk, &config, true, 4);
    assert_eq!(log.segment_base_offsets().collect::<Vec<_>>(), [0, 1, 2, 3]);
    log
}

fn searched(search: &LogView, timestamp: i64) -> milena_log::Result<Option<i64>> {
    Ok(search.offset_for_timestamp(timestamp, &mut Decompressor::new(1 << 20))?.map(|found| found.offset))
}

#[test]
fn a_search_sees_the_log_as_it_was_when_it_began() {
    let disk = disk(1);
    let mut log = four_segments(&disk);
    log.set_config(Arc::new(small()));
    let search = log.view_since(Some(35));
    append(&mut log, records(Compression::None, &[50], None));
    assert_eq!([35, 41].map(|at| searched(&search, at).unwrap()), [Some(3), None]);
    assert!(log.is_intact(&search));
    assert_eq!(by_time(&log, 41), Some((50, 4)));
}

#[test]
fn what_a_search_has_learned_of_finished_segments_is_not_read_again() {
    let disk = disk(1);
    let log = four_segments(&disk);
    let search = log.view_since(Some(35));
    assert_eq!(searched(&search, 35).unwrap(), Some(3));
    assert!(log.is_intact(&search));
    for finished in ["00.", "01.", "02."] {
        let path_contains = format!("{finished}timeindex");
        disk.fail(Fault { kind: FaultKind::Io, on: StepKind::Read, path_contains, times: u64::MAX });
    }
    assert_eq!(by_time(&log, 35), Some((40, 3)));
}

#[test]
fn a_search_that_deletion_overtakes_is_known_to_be_of_no_use_and_leaves_no_file() {
    let disk = disk(1);
    let mut log = four_segments(&disk);
    let search = log.view_since(Some(35));
    let removal = log.begin_removal(2).unwrap();
    removal.sync().unwrap();
    log.remove_segments(removal, &mut Vec::new()).unwrap();
    let before = names(&disk);
    // Whatever it finds.
    let _ = searched(&search, 15);
    assert!(!log.is_intact(&search));
    assert_eq!(names(&disk), before);
    let search = log.view_since(Some(35));
    assert_eq!((searched(&search, 35).unwrap(), log.is_intact(&search)), (Some(3), true));
}

#[test]
fn a_search_that_truncation_overtakes_is_known_to_be_of_no_use() {
    let disk = disk(1);
    let mut log = four_segments(&disk);
    let search = log.view_since(Some(35));
    log.truncate_to(3).unwrap();
    append(&mut log, records(Compression::None, &[5], None));
    assert!(!log.is_intact(&search));
    assert_eq!(by_time(&log, 35), None);
}

#[test]
fn a_view_reads_what_the_log_reads_and_the_log_keeps_what_it_learned() {
    let disk = disk(1);
    let mut log = four_segments(&disk);
    for offset in 0..4 {
        let view = log.view_from(offset);
        let slice = view.read(offset, 1, i64::MAX, true).unwrap().unwrap();
        let same = log.read(offset, 1, i64::MAX, true).unwrap().unwrap();
        assert_eq!((slice.segment, slice.position, slice.len), (same.segment, same.position, same.len));
        assert_eq!((slice.cold, same.cold, log.is_intact(&view)), (true, false, true));
    }
    assert!(log.view_from(0).read(0, 1, i64::MAX, false).unwrap().is_none(), "the batch is longer");
    assert!(log.view_from(3).read(3, 1, 3, true).unwrap().is_none(), "beyond the high watermark");
    disk.fail(Fault { kind: FaultKind::Io, on: StepKind::Read, path_contains: "index".into(), times: u64::MAX });
    let view = log.view_from(1);
    assert!(view.read(1, 1, i64::MAX, true).unwrap().is_some(), "its indexes are known");
    disk.clear_faults();
    append(&mut log, records(Compression::None, &[50], None));
    assert!(!log.is_intact(&view), "the log was rolled");
    log.set_log_start_offset(2).unwrap();
    let out_of_range = log.view_from(1).read(1, 1, i64::MAX, true);
    assert!(matches!(out_of_range, Err(LogError::OffsetOutOfRange { offset: 1, start: 2, end: 5 })));
}
