//! What only the simulated disk does: losing power, failing, filling up.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use milena_io::{Disk, Fault, FaultKind, FileExt, OpenMode, SimDisk, StepKind};

fn content(disk: &SimDisk, path: &str) -> Option<Vec<u8>> {
    disk.open(Path::new(path), OpenMode::Read).ok().map(|file| file.read_all(1 << 20).unwrap())
}

#[test]
fn what_was_synced_survives_and_the_rest_is_kept_lost_torn_or_reordered() {
    let (old, new) = (vec![1u8; 2048], vec![2u8; 2048]);
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let file = disk.open(Path::new("/f"), OpenMode::Create).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        file.write_at(&old, 0).unwrap();
        file.sync_data().unwrap();
        file.write_at(&new, 0).unwrap();
        file.write_at(&new, 2048).unwrap();
        disk.restart();
        assert!(file.read_at(&mut [0], 0).is_err(), "handles from before are dead");
        let after = content(&disk, "/f").expect("the name was synced");
        let sectors: Vec<u8> = after.chunks(512).map(|sector| sector[0]).collect();
        assert!(
            after.len() >= 2048 && sectors[..4].iter().all(|byte| [1, 2].contains(byte)),
            "seed {seed}: {sectors:?}"
        );
        seen.insert(sectors);
    }
    let has = |sectors: &[u8]| seen.contains(sectors);
    assert!(has(&[1; 4]) && has(&[2; 8]) && has(&[1, 1, 1, 1, 2, 2, 2, 2]) && has(&[2; 4]));
    assert!(seen.len() > 10, "{seen:?}");
}

#[test]
fn unsynced_names_survive_as_a_prefix_of_their_changes() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        disk.open(Path::new("/a"), OpenMode::Create).unwrap();
        disk.rename(Path::new("/a"), Path::new("/b")).unwrap();
        disk.open(Path::new("/c"), OpenMode::Create).unwrap();
        disk.restart();
        let names: String = disk.list(Path::new("/")).unwrap().into_iter().map(|entry| entry.name).collect();
        seen.insert(names);
    }
    assert_eq!(seen, ["", "a", "b", "bc"].map(str::to_owned).into());
}

#[test]
fn power_fails_in_the_middle_of_the_chosen_step_and_the_same_seed_repeats_it() {
    let run = |seed| {
        let disk = SimDisk::new(seed);
        disk.crash_at(Some(3));
        let file = disk.open(Path::new("/f"), OpenMode::Create).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        assert!(file.write_at(&[7; 5000], 0).is_err());
        assert!(disk.has_crashed() && disk.list(Path::new("/")).is_err());
        disk.restart();
        content(&disk, "/f").unwrap()
    };
    let lengths: BTreeSet<usize> = (0..50).map(|seed| run(seed).len()).collect();
    assert!(lengths.len() > 5, "{lengths:?}");
    assert_eq!(run(11), run(11));
}

#[test]
fn a_killed_process_loses_nothing_that_was_written() {
    let disk = SimDisk::new(1);
    disk.open(Path::new("/f"), OpenMode::Create).unwrap().write_at(b"abc", 0).unwrap();
    let lock = disk.lock(Path::new("/l")).unwrap();
    disk.kill_process();
    assert_eq!(content(&disk, "/f").unwrap(), b"abc");
    assert!(disk.lock(Path::new("/l")).unwrap().is_some());
    drop(lock);
}

#[test]
fn faults_hit_the_calls_and_paths_they_name() {
    let disk = SimDisk::new(1);
    let file = disk.open(Path::new("/x.log"), OpenMode::Create).unwrap();
    let fault = |kind, on, times| Fault { kind, on, path_contains: ".log".to_owned(), times };
    disk.fail(fault(FaultKind::NoSpace, StepKind::Write, 2));
    assert_eq!(file.write_at(b"abc", 0).unwrap_err().kind(), ErrorKind::StorageFull);
    disk.open(Path::new("/other"), OpenMode::Create).unwrap().write_at(b"abc", 0).unwrap();
    assert!(file.write_at(b"abc", 0).is_err());
    file.write_at(b"abc", 0).unwrap();
    disk.fail(fault(FaultKind::Io, StepKind::Sync, u64::MAX));
    assert!(file.sync_data().is_err() && file.sync_data().is_err());
    disk.fail(fault(FaultKind::Io, StepKind::Read, u64::MAX));
    assert!(file.read_at(&mut [0], 0).is_err());
    disk.clear_faults();
    file.sync_data().unwrap();
    disk.flip_bit(Path::new("/x.log"), 1, 0);
    assert_eq!(content(&disk, "/x.log").unwrap(), b"acc");
}

#[test]
fn a_sync_of_the_file_system_covers_every_name_and_byte() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        disk.create_dir(Path::new("/d")).unwrap();
        disk.open(Path::new("/d/f"), OpenMode::Create).unwrap().write_at(b"abc", 0).unwrap();
        disk.sync_file_system(Path::new("/")).unwrap();
        disk.restart();
        assert_eq!(content(&disk, "/d/f").unwrap(), b"abc");
    }
}
