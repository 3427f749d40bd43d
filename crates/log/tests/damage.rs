//! What a log makes of files that a crash, a bad disk or another program left.

mod common;

use common::*;
use milena_io::{Disk, Fault, FaultKind, FileExt, OpenMode, Rng, SimDisk, SimRng, StepKind};
use milena_log::{Log, LogConfig, LogError, Recovery};

/// Forty batches of two records in two segments, closed in order. Returns their bytes.
fn closed(disk: &SimDisk) -> Vec<u8> {
    let (mut log, _) = open(disk, &small(), true, 0);
    for at in 0..40 {
        append(&mut log, batch(2, 100, 1000 + at));
    }
    let bytes = read_from(&log, 0, 1 << 20);
    log.close().unwrap();
    bytes
}

fn all_is_found(log: &Log) {
    for offset in 0..80 {
        let slice = log.read(offset, 1, i64::MAX, true).unwrap().unwrap();
        let at = offset as u64 / 2 * 161;
        assert_eq!(slice.segment as u64 / 2 * 161 + slice.position, at, "offset {offset}");
    }
}

fn index_names() -> [String; 4] {
    [0, 50]
        .map(|base: i64| [".index", ".timeindex"].map(|kind| format!("{base:020}{kind}")))
        .concat()
        .try_into()
        .unwrap()
}

#[test]
fn missing_indexes_are_rebuilt_after_a_clean_stop_too() {
    for clean in [true, false] {
        for missing in index_names() {
            let disk = disk(1);
            let bytes = closed(&disk);
            let before: Vec<_> = index_names().iter().map(|name| file(&disk, name)).collect();
            disk.remove_file(&dir().join(&missing)).unwrap();
            let (mut log, recovery) = open(&disk, &small(), clean, 80);
            let expected = if clean || missing.contains("50") { 1 } else { 2 };
            assert_eq!((recovery.segments_scanned, recovery.cut_at), (expected, None), "{missing} {clean}");
            all_is_found(&log);
            assert_eq!(read_from(&log, 0, 500), bytes);
            log.close().unwrap();
            assert_eq!(index_names().map(|name| file(&disk, &name)).to_vec(), before, "{missing}");
        }
    }
}

#[test]
fn zeroed_cut_and_garbage_indexes_are_rebuilt_after_a_crash_and_not_believed_after_a_clean_stop() {
    let mut rng = SimRng::new(5);
    for damage in 0..4 {
        for clean in [true, false] {
            let disk = disk(1);
            let bytes = closed(&disk);
            for name in index_names() {
                let mut content = file(&disk, &name);
                match damage {
                    0 => content.fill(0),
                    1 => content.truncate(content.len() / 2 + 1),
                    2 => rng.fill(&mut content),
                    _ => content.resize(10 << 10, 0),
                }
                write_file(&disk, &name, &content);
            }
            let (log, recovery) = open(&disk, &small(), clean, if clean { 80 } else { 0 });
            assert_eq!((recovery.segments_scanned, log.log_end_offset()), (if clean { 0 } else { 2 }, 80));
            all_is_found(&log);
            assert_eq!(read_from(&log, 0, 500), bytes, "{damage} {clean}");
        }
    }
}

#[test]
fn kafkas_zero_padding_behind_the_entries_is_no_entry_and_goes_at_the_close() {
    let disk = disk(1);
    closed(&disk);
    let before: Vec<_> = index_names().iter().map(|name| file(&disk, name)).collect();
    for name in index_names() {
        let mut content = file(&disk, &name);
        content.resize(if name.ends_with(".index") { 10_485_760 } else { 10_485_756 }, 0);
        write_file(&disk, &name, &content);
    }
    let (mut log, _) = open(&disk, &small(), true, 80);
    all_is_found(&log);
    append(&mut log, batch(2, 100, 2000));
    log.close().unwrap();
    let after: Vec<_> = index_names()[2..].iter().map(|name| file(&disk, name)).collect();
    assert_eq!(after[0], before[2], "no entry was due");
    assert_eq!(after[1].len(), before[3].len() + 12, "the final time entry");
}

#[test]
fn a_torn_tail_is_cut_and_the_next_append_takes_its_offset() {
    let whole = file_after_close();
    let tails: [(&str, Vec<u8>); 6] = [
        ("zeros: reserved space", vec![0; 4000]),
        ("less than a batch header", vec![7; 60]),
        ("bytes where", placed(80, 0, batch(2, 100, 5))[..160].to_vec()),
        ("CRC", {
            let mut bytes = placed(80, 0, batch(2, 100, 5));
            bytes[120] ^= 1;
            bytes
        }),
        ("base offset 79", placed(79, 0, batch(2, 100, 5))),
        ("magic 1", {
            let mut bytes = placed(80, 0, batch(2, 100, 5));
            bytes[16] = 1;
            bytes
        }),
    ];
    for (reason, tail) in tails {
        let disk = disk(1);
        let bytes = closed(&disk);
        write_file(&disk, "00000000000000000050.log", &[whole.clone(), tail.clone()].concat());
        let (mut log, recovery) = open(&disk, &small(), false, 60);
        assert_eq!(recovery.reason.clone().filter(|told| told.contains(reason)), recovery.reason, "{reason}");
        assert_eq!((recovery.segments_scanned, recovery.bytes_cut), (1, tail.len() as u64), "{reason}");
        assert_eq!((recovery.cut_at, log.log_end_offset(), log.recovery_point()), (Some(80), 80, 60), "{reason}");
        assert_eq!(append(&mut log, batch(1, 5, 5)), 80);
        assert_eq!(read_from(&log, 0, 500), [bytes, placed(80, 0, batch(1, 5, 5))].concat());
    }
}

fn file_after_close() -> Vec<u8> {
    let disk = disk(1);
    closed(&disk);
    file(&disk, "00000000000000000050.log")
}

#[test]
fn a_bad_batch_in_an_earlier_segment_drops_everything_behind_it() {
    let disk = disk(1);
    let bytes = closed(&disk);
    disk.flip_bit(&dir().join("00000000000000000000.log"), 161 * 10 + 100, 3);
    let (log, recovery) = open(&disk, &small(), false, 0);
    assert_eq!((recovery.cut_at, recovery.bytes_cut), (Some(20), 161 * 30));
    assert_eq!((log.log_end_offset(), log.size()), (20, 1610));
    assert_eq!(read_from(&log, 0, 500), bytes[..1610]);
    // Sound batches may be behind it: they are kept beside the log.
    let kept = ["00000000000000000020.log.1.cut", "00000000000000000050.log.1.cut"];
    assert_eq!(recovery.kept, kept.map(|name| dir().join(name)));
    let mut damaged = bytes;
    damaged[161 * 10 + 100] ^= 1 << 3;
    assert!(kept.map(|name| file(&disk, name)).concat() == damaged[1610..]);
    assert!(!names(&disk).iter().any(|name| name.starts_with("00000000000000000050") && !name.ends_with(".cut")));
    disk.kill_process();
    let (log, recovery) = open(&disk, &small(), false, 0);
    assert_eq!((log.log_end_offset(), recovery.cut_at), (20, None));
    assert_eq!(names(&disk).iter().filter(|name| name.ends_with(".cut")).count(), 2);
}

#[test]
fn what_is_cut_is_kept_under_a_name_of_its_own_where_a_sound_batch_is_behind_the_damage() {
    let disk = disk(1);
    let bytes = closed(&disk);
    let name = "00000000000000000050.log";
    for (number, damage) in [(1, 3), (2, 16), (3, 8)] {
        let mut content = bytes[25 * 161..].to_vec();
        // A record, the magic, the length of the second batch.
        content[161 + if number == 1 { 100 } else { damage }] ^= 1 << 3;
        write_file(&disk, name, &content);
        let (_, recovery) = open(&disk, &small(), false, 60);
        assert_eq!((recovery.cut_at, &recovery.place), (Some(52), &Some((dir().join(name), 161))));
        assert_eq!(recovery.kept, [dir().join(format!("00000000000000000052.log.{number}.cut"))]);
        assert!(file(&disk, &format!("00000000000000000052.log.{number}.cut")) == content[161..]);
        disk.kill_process();
    }
    // Only the last batch is damaged: nothing is behind it.
    let mut content = bytes[25 * 161..].to_vec();
    content[14 * 161 + 100] ^= 1;
    write_file(&disk, name, &content);
    let (_, recovery) = open(&disk, &small(), false, 60);
    assert_eq!((recovery.cut_at, recovery.kept), (Some(78), vec![]));
}

#[test]
fn what_looks_like_headers_of_batches_all_over_is_kept_without_summing_it_again_and_again() {
    let disk = disk(1);
    let sound = file_after_close();
    // Each header claims all that is behind it, and none is right.
    let count = 5000;
    let mut tail = Vec::new();
    for number in 0..count {
        let mut bytes = placed(100 + number, 0, batch(2, 0, 5))[..61].to_vec();
        let behind = (count - number) as i32 * 61 - 12;
        bytes[8..12].copy_from_slice(&behind.to_be_bytes());
        tail.extend(bytes);
    }
    tail[16] = 9;
    closed(&disk);
    write_file(&disk, "00000000000000000050.log", &[sound, tail.clone()].concat());
    let (_, recovery) = open(&disk, &small(), false, 60);
    assert_eq!((recovery.cut_at, recovery.bytes_cut), (Some(80), tail.len() as u64));
    assert_eq!(recovery.kept, [dir().join("00000000000000000080.log.1.cut")]);
}

#[test]
fn a_read_tells_of_records_that_are_missing_unless_compaction_took_them() {
    for compact in [false, true] {
        let disk = disk(1);
        let bytes = closed(&disk);
        write_file(&disk, "00000000000000000000.log", &bytes[..24 * 161]);
        let (log, _) = open(&disk, &LogConfig { compact, ..small() }, true, 80);
        let slice = log.read(48, 1000, i64::MAX, true).unwrap().unwrap();
        let told = slice.missing.map(|missing| (missing.from, missing.to, missing.size));
        assert_eq!((slice.segment, told), (50, (!compact).then_some((48, 50, 24 * 161))));
        write_file(&disk, "00000000000000000050.log", &[]);
        let (log, _) = open(&disk, &LogConfig { compact, ..small() }, true, 80);
        let Err(LogError::Corrupt { position: 0, reason, .. }) = log.read(60, 1000, i64::MAX, true) else { panic!() };
        assert!(log.log_end_offset() == 80 && reason.contains("from offset 60 to 80"), "{reason}");
    }
}

#[test]
fn offsets_missing_between_segments_end_the_log_unless_compaction_made_them() {
    for (compact, gap_inside, expected) in [(false, false, 48), (true, false, 80), (false, true, 80)] {
        let disk = disk(1);
        closed(&disk);
        let mut first = file(&disk, "00000000000000000000.log");
        first.truncate(24 * 161);
        if gap_inside {
            first.drain(..161);
        }
        write_file(&disk, "00000000000000000000.log", &first);
        let (log, recovery) = open(&disk, &LogConfig { compact, ..small() }, false, 0);
        assert_eq!((log.log_end_offset(), recovery.cut_at.is_some()), (expected, expected == 48));
    }
}

#[test]
fn offsets_that_compaction_has_left_out_further_on_say_that_none_is_lost_before() {
    let ends_with = |files: &[(&str, Vec<u8>)]| {
        let disk = disk(1);
        open(&disk, &small(), false, 0).0.close().unwrap();
        for (name, content) in files {
            write_file(&disk, name, content);
        }
        let (log, recovery) = open(&disk, &small(), false, 0);
        (log.log_end_offset(), recovery.cut_at)
    };
    let first = ("00000000000000000000.log", Vec::new());
    let second = |base| ("00000000000000000005.log", placed(base, 0, batch(2, 100, 5)));
    let third = ("00000000000000000020.log", placed(20, 0, batch(1, 100, 5)));
    assert_eq!(ends_with(&[first.clone(), second(7), third.clone()]), (21, None));
    assert_eq!(ends_with(&[first, second(5), third]), (0, Some(0)), "an end was lost");
}

#[test]
fn flipped_bits_anywhere_never_panic_and_only_shorten_what_is_read() {
    let mut rng = SimRng::new(9);
    for round in 0..300 {
        let disk = disk(round);
        let bytes = closed(&disk);
        let all = names(&disk);
        for _ in 0..1 + rng.below(3) {
            let name = &all[rng.below(all.len() as u64) as usize];
            let len = file(&disk, name).len() as u64;
            if len > 0 {
                disk.flip_bit(&dir().join(name), rng.below(len), rng.below(8) as u8);
            }
        }
        let (log, _) = open(&disk, &small(), false, 0);
        let got = read_from(&log, 0, 700);
        // Base offset and epoch of the batch headers are outside of the checksum.
        assert!(got.len() <= bytes.len(), "round {round}");
        let (log, _) = open(&disk, &small(), true, log.log_end_offset());
        for offset in 0..log.log_end_offset().min(100) {
            let _ = log.read(offset, 100, i64::MAX, true);
        }
    }
}

#[test]
fn an_epoch_file_that_is_damaged_or_lost_is_made_anew_from_the_batches() {
    for (clean, lost) in [(true, true), (true, false), (false, true), (false, false)] {
        let disk = disk(1);
        let (mut log, _) = open(&disk, &small(), true, 0);
        for epoch in [2, 2, 5] {
            log.append(&mut [&mut batch(3, 10, 0)], &[], epoch, 0).unwrap();
            log.roll(0).unwrap();
        }
        log.append(&mut [&mut batch(3, 10, 0)], &[], 6, 0).unwrap();
        log.close().unwrap();
        match lost {
            true => disk.remove_file(&dir().join("leader-epoch-checkpoint")).unwrap(),
            false => write_file(&disk, "leader-epoch-checkpoint", b"0\n2\n2 \xff\n"),
        }
        // A start behind a crash reads the last segment only.
        let (mut log, _) = open(&disk, &small(), clean, if clean { 12 } else { 11 });
        let epochs: Vec<_> = log.leader_epochs().iter().map(|entry| (entry.epoch, entry.start_offset)).collect();
        assert_eq!(epochs, [(2, 0), (5, 6), (6, 9)], "{clean} {lost}");
        log.close().unwrap();
        assert_eq!(file(&disk, "leader-epoch-checkpoint"), b"0\n3\n2 0\n5 6\n6 9\n", "{clean} {lost}");
    }
}

#[test]
fn leftovers_of_deletion_and_compaction_are_removed_or_completed() {
    let disk = disk(1);
    let bytes = closed(&disk);
    let swapped = file(&disk, "00000000000000000000.log");
    for (name, content) in [
        ("00000000000000000007.log.deleted", &b"x"[..]),
        ("00000000000000000000.index.swap", &[]),
        ("00000000000000000000.timeindex.swap", &[]),
        ("00000000000000000000.log.swap", &swapped),
        ("00000000000000000060.log.cleaned", &[]),
        ("00000000000000000060.log.swap", &[]),
        ("00000000000000000033.index", &[]),
    ] {
        write_file(&disk, name, content);
    }
    let (log, recovery) = open(&disk, &small(), true, 80);
    assert_eq!((log.log_end_offset(), recovery), (80, Recovery::default()));
    assert_eq!(read_from(&log, 0, 500), bytes);
    assert_eq!(names(&disk).len(), 9, "{:?}", names(&disk));
}

#[test]
fn a_log_that_ends_below_its_start_offset_begins_anew_there() {
    let disk = disk(1);
    closed(&disk);
    let params =
        milena_log::OpenParams { clean: false, recovery_point: 0, log_start_offset: 200, cleaned_to: 0, now_ms: 0 };
    let open = || Log::open(std::sync::Arc::new(disk.clone()), &dir(), std::sync::Arc::new(small()), params).unwrap();
    let (mut log, recovery) = open();
    assert_eq!((log.log_start_offset(), log.log_end_offset(), recovery.cut_at), (200, 200, Some(200)));
    assert_eq!((append(&mut log, batch(1, 1, 1)), log.segment_base_offsets().collect::<Vec<_>>()), (200, vec![200]));
}

fn fault(kind: FaultKind, on: StepKind, path_contains: &str, times: u64) -> Fault {
    Fault { kind, on, path_contains: path_contains.to_owned(), times }
}

#[test]
fn a_full_disk_refuses_appends_serves_reads_and_recovers_without_a_hole() {
    let disk = disk(3);
    let (mut log, _) = open(&disk, &small(), true, 0);
    append(&mut log, batch(2, 100, 1));
    for on in [StepKind::Write, StepKind::Create] {
        let end = log.log_end_offset();
        let bytes = read_from(&log, 0, 1 << 20);
        disk.fail(fault(FaultKind::NoSpace, on, ".log", u64::MAX));
        let mut many: Vec<Vec<u8>> = (0..40).map(|at| batch(2, 100, at)).collect();
        let mut slices: Vec<&mut [u8]> = many.iter_mut().map(Vec::as_mut_slice).collect();
        assert!(log.append(&mut slices, &[], 0, 0).unwrap_err().is_disk_full());
        assert_eq!((log.log_end_offset(), log.size(), log.is_poisoned()), (end, bytes.len() as u64, false));
        assert_eq!(read_from(&log, 0, 1 << 20), bytes);
        disk.clear_faults();
        assert_eq!(log.append(&mut slices, &[], 0, 0).unwrap().first_offset, end);
    }
    let bytes = read_from(&log, 0, 1 << 20);
    disk.kill_process();
    let (log, recovery) = open(&disk, &small(), false, 0);
    assert_eq!((read_from(&log, 0, 1 << 20), recovery.cut_at), (bytes, None));
}

#[test]
fn a_write_that_can_not_be_cut_again_ends_the_logs_life() {
    let disk = disk(3);
    let (mut log, _) = open(&disk, &small(), true, 0);
    append(&mut log, batch(2, 100, 1));
    disk.fail(fault(FaultKind::Io, StepKind::Write, ".log", 1));
    disk.fail(fault(FaultKind::Io, StepKind::Truncate, ".log", 1));
    let mut bytes = batch(1, 1, 1);
    assert!(matches!(log.append(&mut [&mut bytes], &[], 0, 0), Err(LogError::Io { .. })));
    assert!(matches!(log.append(&mut [&mut bytes], &[], 0, 0), Err(LogError::Poisoned { .. })));
    assert_eq!((log.log_end_offset(), read_from(&log, 0, 1000).len()), (2, 161));
}

#[test]
fn a_failed_sync_is_final() {
    let disk = disk(3);
    let (mut log, _) = open(&disk, &small(), true, 0);
    append(&mut log, batch(2, 100, 1));
    let flush = log.begin_flush().unwrap().unwrap();
    disk.fail(fault(FaultKind::Io, StepKind::Sync, ".log", 1));
    assert!(flush.sync().is_err());
    assert!(matches!(flush.sync(), Err(LogError::Poisoned { .. })));
    assert!(log.is_poisoned() && log.flush().is_err() && log.close().is_err());
    assert_eq!(log.recovery_point(), 0);
}

#[test]
fn a_flush_under_way_counts_for_what_it_began_with_and_not_after_a_truncation() {
    let disk = disk(3);
    let (mut log, _) = open(&disk, &small(), true, 0);
    append(&mut log, batch(2, 100, 1));
    let flush = log.begin_flush().unwrap().unwrap();
    append(&mut log, batch(2, 100, 1));
    flush.sync().unwrap();
    log.flushed(flush);
    assert_eq!(log.recovery_point(), 2);
    let flush = log.begin_flush().unwrap().unwrap();
    flush.sync().unwrap();
    log.truncate_to(2).unwrap();
    append(&mut log, batch(9, 100, 1));
    log.flushed(flush);
    assert_eq!(log.recovery_point(), 2);
    log.flush().unwrap();
    assert_eq!((log.flushed_to(), log.begin_flush().unwrap().is_none()), (11, true));
}

#[test]
fn the_recovery_point_passes_no_segment_whose_indexes_are_not_synced() {
    let disk = disk(3);
    let (mut log, _) = open(&disk, &small(), true, 0);
    append(&mut log, batch(2, 100, 1));
    let flush = log.begin_flush().unwrap().unwrap();
    log.roll(0).unwrap();
    flush.sync().unwrap();
    log.flushed(flush);
    assert_eq!(log.recovery_point(), 0, "an unclean start has to make the first segment's indexes");
    append(&mut log, batch(2, 100, 1));
    let flush = log.begin_flush_of_finished().unwrap().unwrap();
    flush.sync().unwrap();
    log.flushed(flush);
    assert_eq!((log.recovery_point(), log.flushed_to()), (2, 2), "the last segment is left alone");
    log.flush().unwrap();
    assert_eq!((log.recovery_point(), log.flushed_to()), (3, 4), "the next roll may come before the next checkpoint");
    log.roll(0).unwrap();
    assert_eq!(log.recovery_point(), 2);
}

#[test]
fn a_roll_syncs_nothing_and_a_power_loss_behind_it_costs_nothing() {
    for seed in 0..60 * milena_testkit::rounds() {
        let disk = disk(seed);
        let config = LogConfig { preallocate: seed % 2 == 0, ..small() };
        let (mut log, _) = open(&disk, &config, true, 0);
        for at in 0..8 {
            append(&mut log, batch(2, 100, at));
        }
        log.flush().unwrap();
        let (point, bytes, begun) = (log.recovery_point(), read_from(&log, 0, 1 << 20), disk.trace().len());
        log.roll(0).unwrap();
        let steps = disk.trace().split_off(begun);
        assert!(steps.iter().all(|step| !step.contains("Sync")), "{steps:?}");
        drop(log);
        disk.restart();
        let (mut log, recovery) = open(&disk, &config, false, point);
        assert_eq!((log.log_end_offset(), recovery.segments_scanned > 0), (16, true), "seed {seed}");
        assert_eq!(read_from(&log, 0, 1 << 20), bytes);
        log.close().unwrap();
        assert_eq!(index_entries(&disk, 0), [(5, 322), (9, 644), (13, 966)], "seed {seed}");
        assert_eq!(time_entries(&disk, 0).last(), Some(&(7, 15)), "seed {seed}");
    }
}

#[test]
fn a_read_of_a_damaged_header_is_told_as_corruption() {
    let disk = disk(3);
    let (log, _) = {
        closed(&disk);
        disk.flip_bit(&dir().join("00000000000000000000.log"), 161 + 8, 7);
        open(&disk, &small(), true, 80)
    };
    assert!(matches!(log.read(3, 100, 80, true), Err(LogError::Corrupt { position: 161, .. })));
    let file = disk.open(&dir().join("00000000000000000000.log"), OpenMode::Read).unwrap();
    assert_eq!(file.read_all(1 << 20).unwrap().len(), 25 * 161);
}
