//! What the check of a partition's files finds, and what is made anew.

mod common;

use std::sync::Arc;

use common::*;
use milena_io::{Disk, SimDisk};
use milena_log::{
    Condition, Finding, LogConfig, Marker, RebuildReport, RebuiltIndex, Report, Unreadable, rebuild_indexes,
    verify_partition,
};
use milena_records::EndTransaction;

#[derive(Default)]
struct Heard {
    problems: Vec<String>,
    notes: Vec<String>,
    bytes: u64,
    changed: Vec<String>,
}

impl Report for Heard {
    fn found(&mut self, Finding { path, position, is_problem, what }: Finding) {
        let at = position.map_or(String::new(), |position| format!("@{position}"));
        let text = format!("{}{at}: {what}", path.file_name().unwrap().display());
        (if is_problem { &mut self.problems } else { &mut self.notes }).push(text);
    }

    fn progress(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
}

impl RebuildReport for Heard {
    fn rebuilt(&mut self, index: RebuiltIndex) {
        if index.changed {
            self.changed.push(index.path.file_name().unwrap().display().to_string());
        }
    }

    fn unreadable(&mut self, place: Unreadable) {
        self.problems.push(format!("@{}: {}", place.position, place.reason));
    }

    fn progress(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
}

/// Forty batches of two records in two segments, closed in order.
fn closed() -> SimDisk {
    let disk = disk(1);
    let (mut log, _) = open(&disk, &small(), true, 0);
    for at in 0..40 {
        append(&mut log, batch(2, 100, 1000 + at));
    }
    log.close().unwrap();
    disk
}

const FIRST: &str = "00000000000000000000";
const SECOND: &str = "00000000000000000050";

fn checked(disk: &SimDisk, condition: Condition) -> Heard {
    let mut heard = Heard::default();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    verify_partition(&disk, &dir(), condition, None, &mut heard).unwrap();
    heard
}

fn rebuilt(disk: &SimDisk) -> Heard {
    let mut heard = Heard::default();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    rebuild_indexes(&disk, &dir(), 256, &mut heard).unwrap();
    heard
}

fn with_byte(disk: &SimDisk, name: &str, at: usize) {
    let mut bytes = file(disk, name);
    bytes[at] ^= 0x40;
    write_file(disk, name, &bytes);
}

#[test]
fn a_log_that_was_closed_has_no_problem_and_is_read_whole() {
    let heard = checked(&closed(), Condition::Stopped);
    assert_eq!((heard.problems, heard.notes, heard.bytes), (vec![], vec![], 40 * 161));
}

#[test]
fn a_flipped_bit_is_found_at_its_batch_and_the_batches_behind_are_checked_too() {
    let disk = closed();
    with_byte(&disk, &format!("{FIRST}.log"), 161 * 3 + 100);
    with_byte(&disk, &format!("{FIRST}.log"), 161 * 7 + 100);
    let problems = checked(&disk, Condition::Running).problems;
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].starts_with(&format!("{FIRST}.log@483: CRC is ")), "{problems:?}");
    assert!(problems[1].starts_with(&format!("{FIRST}.log@1127: CRC is ")), "{problems:?}");
}

#[test]
fn a_base_offset_that_is_overwritten_is_one_finding_whatever_stands_there() {
    for at in (0..8).flat_map(|first| (first + 1..8).map(move |second| [first, second])) {
        for condition in [Condition::Stopped, Condition::Crashed] {
            for (segment, batch) in [(FIRST, 3), (FIRST, 24), (SECOND, 5)] {
                let disk = closed();
                at.iter().for_each(|at| with_byte(&disk, &format!("{segment}.log"), 161 * batch + at));
                let heard = checked(&disk, condition);
                let place = format!("{segment}.log@{}: ", 161 * batch);
                let found = (heard.problems, heard.notes);
                assert!(found.0.len() == 1 && found.0[0].starts_with(&place), "{at:?} {batch}: {found:?}");
                let mended = segment == SECOND && condition == Condition::Crashed;
                let start = if mended { "files that end with .cut" } else { "a start leaves it as it is" };
                assert!(found.0[0].ends_with(start), "{found:?}");
            }
        }
    }
}

#[test]
fn a_torn_end_is_a_problem_only_where_the_broker_stopped_in_order() {
    for (condition, problems) in [(Condition::Stopped, 1), (Condition::Crashed, 0), (Condition::Running, 0)] {
        let disk = closed();
        let name = format!("{SECOND}.log");
        let mut bytes = file(&disk, &name);
        bytes.extend_from_slice(&placed(80, 0, batch(2, 100, 2000))[..90]);
        write_file(&disk, &name, &bytes);
        let heard = checked(&disk, condition);
        assert_eq!((heard.problems.len(), heard.notes.len()), (problems, 1 - problems), "{condition:?}");
        // In a segment that is not written to nothing may be torn.
        let bytes = file(&disk, &format!("{FIRST}.log"));
        write_file(&disk, &format!("{FIRST}.log"), &bytes[..bytes.len() - 1]);
        assert_eq!(checked(&disk, condition).problems.len(), problems + 1, "{condition:?}");
    }
}

#[test]
fn every_entry_of_an_index_that_is_not_true_is_found_at_its_byte() {
    for (kind, entry, at) in [("index", 8, 7), ("index", 8, 3), ("timeindex", 12, 7), ("timeindex", 12, 11)] {
        let disk = closed();
        let name = format!("{FIRST}.{kind}");
        with_byte(&disk, &name, 2 * entry + at);
        let problems = checked(&disk, Condition::Running).problems;
        assert!(problems.iter().any(|problem| problem.starts_with(&format!("{name}@"))), "{kind} {at}: {problems:?}");
    }
}

#[test]
fn missing_files_cut_files_and_those_of_another_partition_are_found() {
    let damages: [fn(&SimDisk); 7] = [
        |disk| disk.remove_file(&dir().join(format!("{FIRST}.index"))).unwrap(),
        |disk| disk.remove_file(&dir().join(format!("{FIRST}.timeindex"))).unwrap(),
        |disk| write_file(disk, &format!("{FIRST}.timeindex"), &[]),
        |disk| write_file(disk, &format!("{FIRST}.index"), &file(disk, &format!("{FIRST}.index"))[..9]),
        |disk| write_file(disk, "leader-epoch-checkpoint", b"0\n1\nx y\n"),
        |disk| write_file(disk, "leader-epoch-checkpoint", b"0\n1\n3 0\n"),
        |disk| write_file(disk, &format!("{SECOND}.snapshot"), &[1; 40]),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let disk = closed();
        damage(&disk);
        assert!(!checked(&disk, Condition::Stopped).problems.is_empty(), "damage {number}");
    }
}

#[test]
fn nothing_is_changed_by_a_check() {
    let disk = closed();
    with_byte(&disk, &format!("{FIRST}.log"), 500);
    write_file(&disk, &format!("{FIRST}.index"), &[7; 30]);
    let before: Vec<_> = names(&disk).into_iter().map(|name| (file(&disk, &name), name)).collect();
    checked(&disk, Condition::Crashed);
    assert_eq!(before, names(&disk).into_iter().map(|name| (file(&disk, &name), name)).collect::<Vec<_>>());
}

#[test]
fn indexes_that_are_made_anew_are_those_that_the_broker_wrote() {
    let disk = closed();
    let contents =
        |disk: &SimDisk| -> Vec<_> { names(disk).into_iter().map(|name| (file(disk, &name), name)).collect() };
    let before = contents(&disk);
    assert!(rebuilt(&disk).changed.is_empty(), "sound files are left alone");
    disk.remove_file(&dir().join(format!("{FIRST}.index"))).unwrap();
    write_file(&disk, &format!("{SECOND}.index"), &[9; 77]);
    write_file(&disk, &format!("{SECOND}.timeindex"), &[]);
    let heard = rebuilt(&disk);
    assert_eq!(heard.changed, [format!("{FIRST}.index"), format!("{SECOND}.index"), format!("{SECOND}.timeindex")]);
    assert_eq!(contents(&disk), before);
}

#[test]
fn a_crash_while_an_index_is_replaced_leaves_the_old_one_or_the_new() {
    let name = format!("{FIRST}.index");
    let new = file(&closed(), &name);
    let old = vec![5; 16];
    for step in 0.. {
        let disk = closed();
        write_file(&disk, &name, &old);
        disk.sync_file_system(&dir()).unwrap();
        disk.crash_at(Some(disk.steps() + 1 + step));
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let ended = rebuild_indexes(&shared, &dir(), 256, &mut Heard::default());
        let crashed = disk.has_crashed();
        disk.restart();
        let found = file(&disk, &name);
        assert!(found == new || (crashed && found == old), "step {step}: {ended:?}");
        rebuilt(&disk);
        assert_eq!(file(&disk, &name), new, "step {step}");
        if !crashed {
            assert!(step > 3, "{step} steps");
            break;
        }
    }
}

/// Two transactions in two segments: the first was aborted in the second segment, the other committed there.
fn with_transactions() -> SimDisk {
    let disk = disk(1);
    let config = LogConfig { transaction_verification: false, ..small() };
    let (mut log, _) = open(&disk, &config, true, 0);
    for (id, count) in [(7, 20), (8, 10)] {
        for sequence in 0..count {
            append(&mut log, transactional(sent_by(id, 0, sequence, batch(1, 100, 1000 + i64::from(sequence)))));
        }
    }
    for (producer_id, committed) in [(7, false), (8, true)] {
        let end = EndTransaction { committed, coordinator_epoch: 1 };
        let (producer_epoch, transaction_version, log_append_time) = (1, 2, false);
        let marker = Marker { producer_id, producer_epoch, end, transaction_version, log_append_time };
        log.append_marker(&marker, 0, 2000).unwrap().unwrap();
    }
    log.close().unwrap();
    disk
}

const TXN_INDEX: &str = "00000000000000000025.txnindex";

#[test]
fn aborted_transactions_that_are_none_are_found_and_made_anew() {
    let sound = with_transactions();
    let bytes = file(&sound, TXN_INDEX);
    assert_eq!(bytes.len(), 34);
    assert!(checked(&sound, Condition::Stopped).problems.is_empty());
    assert!(rebuilt(&sound).changed.is_empty());
    // Version, producer, first offset, last offset, last stable offset; a cut; an entry too many.
    let flipped = [1, 9, 17, 25, 26].map(|at| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x40;
        bytes
    });
    for damaged in flipped.into_iter().chain([bytes[..33].to_vec(), [&bytes[..], &bytes].concat()]) {
        let disk = with_transactions();
        write_file(&disk, TXN_INDEX, &damaged);
        let problems = checked(&disk, Condition::Running).problems;
        assert!(problems.iter().any(|problem| problem.starts_with(TXN_INDEX)), "{damaged:?}: {problems:?}");
        assert_eq!(rebuilt(&disk).changed, [TXN_INDEX], "{damaged:?}");
        assert_eq!(file(&disk, TXN_INDEX), bytes, "{damaged:?}");
    }
    let disk = with_transactions();
    disk.remove_file(&dir().join(TXN_INDEX)).unwrap();
    rebuilt(&disk);
    assert_eq!(file(&disk, TXN_INDEX), bytes);
}

#[test]
fn behind_what_cannot_be_read_the_aborted_transactions_stay_as_they_are() {
    let disk = with_transactions();
    with_byte(&disk, &format!("{FIRST}.log"), 161 * 3 + 100);
    assert_eq!(rebuilt(&disk).problems.len(), 1);
    assert_eq!(file(&disk, TXN_INDEX), file(&with_transactions(), TXN_INDEX));
}
