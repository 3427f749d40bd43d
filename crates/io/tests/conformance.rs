//! The contract of `Disk` and `File`, tried on the real disk and on the simulated one.

use std::io::{ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use milena_io::{Disk, FileExt, Metadata, OpenMode, RealDisk, SimDisk};

/// Runs a check on both disks, each with an empty directory.
fn on_both(check: impl Fn(&dyn Disk, &Path)) {
    let temp = tempfile::tempdir().unwrap();
    check(&RealDisk::new(), temp.path());
    let sim = SimDisk::new(1);
    sim.create_dir(Path::new("/base")).unwrap();
    check(&sim, Path::new("/base"));
}

fn kind<T>(result: std::io::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn the_open_modes_find_make_and_refuse() {
    on_both(|disk, base| {
        let path = base.join("f");
        for mode in [OpenMode::Read, OpenMode::Write] {
            assert_eq!(kind(disk.open(&path, mode)), Some(ErrorKind::NotFound));
        }
        disk.open(&path, OpenMode::Create).unwrap().write_at(b"abc", 0).unwrap();
        assert_eq!(kind(disk.open(&path, OpenMode::CreateNew)), Some(ErrorKind::AlreadyExists));
        for mode in [OpenMode::Read, OpenMode::Write, OpenMode::Create] {
            assert_eq!(disk.open(&path, mode).unwrap().read_all(3).unwrap(), b"abc", "{mode:?}");
        }
        assert!(disk.open(&path, OpenMode::Read).unwrap().write_at(b"x", 0).is_err());
        assert_eq!(kind(disk.open(&base.join("no/f"), OpenMode::Create)), Some(ErrorKind::NotFound));
        disk.open(&base.join("g"), OpenMode::CreateNew).unwrap();
    });
}

#[test]
fn writes_land_whole_and_reads_are_short_only_at_the_end() {
    on_both(|disk, base| {
        let file = disk.open(&base.join("f"), OpenMode::Create).unwrap();
        let parts: Vec<Vec<u8>> = (0..2500u32).map(|at| at.to_be_bytes().to_vec()).collect();
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        file.write_vectored_at(&slices, 5).unwrap();
        let expected: Vec<u8> = [vec![0; 5], parts.concat()].concat();
        assert_eq!(file.len().unwrap(), expected.len() as u64);
        assert_eq!(file.read_all(1 << 20).unwrap(), expected);
        let mut buf = [0; 8];
        assert_eq!(file.read_at(&mut buf, expected.len() as u64 - 3).unwrap(), 3);
        assert_eq!(file.read_at(&mut buf, expected.len() as u64 + 3).unwrap(), 0);
        assert_eq!(kind(file.read_exact_at(&mut buf, 9999)), Some(ErrorKind::UnexpectedEof));
        assert_eq!(kind(file.read_all(10)), Some(ErrorKind::FileTooLarge));
    });
}

#[test]
fn truncating_cuts_and_grows_with_zeros_and_reserving_changes_no_length() {
    on_both(|disk, base| {
        let file = disk.open(&base.join("f"), OpenMode::Create).unwrap();
        file.write_at(b"abcdef", 0).unwrap();
        file.truncate(2).unwrap();
        file.truncate(4).unwrap();
        match file.allocate(4, 1 << 20) {
            Ok(()) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported),
        }
        assert_eq!(file.read_all(100).unwrap(), b"ab\0\0");
        file.sync_data().unwrap();
        file.sync_all().unwrap();
    });
}

#[test]
fn a_hole_is_skipped_no_further_than_to_the_next_byte_that_is_not_zero() {
    on_both(|disk, base| {
        let file = disk.open(&base.join("f"), OpenMode::Create).unwrap();
        assert_eq!(file.skip_hole(0).unwrap(), None);
        file.truncate(1 << 20).unwrap();
        file.write_at(b"x", 700_000).unwrap();
        for position in [0, 5, 699_999, 700_000] {
            let next = file.skip_hole(position).unwrap().unwrap();
            assert!((position..=700_000).contains(&next), "{position}: {next}");
        }
        assert!(file.skip_hole(700_001).unwrap().is_none_or(|next| next > 700_000));
        assert_eq!(file.skip_hole(1 << 20).unwrap(), None);
    });
}

#[test]
fn names_are_made_listed_renamed_and_removed() {
    on_both(|disk, base| {
        disk.create_dir_all(&base.join("a/b")).unwrap();
        disk.create_dir_all(&base.join("a/b")).unwrap();
        assert_eq!(kind(disk.create_dir(&base.join("a"))), Some(ErrorKind::AlreadyExists));
        for name in ["z", "m"] {
            disk.open(&base.join("a").join(name), OpenMode::Create).unwrap().write_at(name.as_bytes(), 0).unwrap();
        }
        let list = |dir: PathBuf| -> Vec<(String, bool)> {
            disk.list(&dir).unwrap().into_iter().map(|entry| (entry.name, entry.is_dir)).collect()
        };
        assert_eq!(list(base.join("a")), [("b".into(), true), ("m".into(), false), ("z".into(), false)]);
        assert_eq!(disk.metadata(&base.join("a/m")).unwrap(), Some(Metadata { is_dir: false, len: 1 }));
        assert_eq!(disk.metadata(&base.join("a")).unwrap(), Some(Metadata { is_dir: true, len: 0 }));
        assert_eq!(disk.metadata(&base.join("x/y")).unwrap(), None);
        disk.rename(&base.join("a/z"), &base.join("a/m")).unwrap();
        assert_eq!(disk.open(&base.join("a/m"), OpenMode::Read).unwrap().read_all(9).unwrap(), b"z");
        disk.rename(&base.join("a"), &base.join("c")).unwrap();
        assert_eq!(list(base.join("c")), [("b".into(), true), ("m".into(), false)]);
        disk.sync_dir(&base.join("c")).unwrap();
        disk.sync_file_system(base).unwrap();
        assert_eq!(kind(disk.rename(&base.join("no"), &base.join("c/d"))), Some(ErrorKind::NotFound));
        disk.remove_file(&base.join("c/m")).unwrap();
        assert_eq!(kind(disk.remove_file(&base.join("c/m"))), Some(ErrorKind::NotFound));
        disk.open(&base.join("c/b/f"), OpenMode::Create).unwrap();
        disk.remove_dir_all(&base.join("c")).unwrap();
        assert_eq!(list(base.to_owned()), []);
        assert_eq!(kind(disk.list(&base.join("c"))), Some(ErrorKind::NotFound));
    });
}

#[test]
fn a_file_knows_when_its_content_was_changed_also_under_another_name() {
    on_both(|disk, base| {
        let file = disk.open(&base.join("f"), OpenMode::Create).unwrap();
        file.write_at(b"abc", 0).unwrap();
        let before = disk.modified_ms(&base.join("f")).unwrap();
        disk.rename(&base.join("f"), &base.join("g")).unwrap();
        assert_eq!(disk.modified_ms(&base.join("g")).unwrap(), before);
        assert_eq!(kind(disk.modified_ms(&base.join("f"))), Some(ErrorKind::NotFound));
    });
}

#[test]
fn a_handle_works_on_after_its_name_is_gone() {
    on_both(|disk, base| {
        let file = disk.open(&base.join("f"), OpenMode::Create).unwrap();
        file.write_at(b"abc", 0).unwrap();
        disk.remove_file(&base.join("f")).unwrap();
        disk.open(&base.join("f"), OpenMode::CreateNew).unwrap().write_at(b"new", 0).unwrap();
        assert_eq!(file.read_all(9).unwrap(), b"abc");
    });
}

#[test]
fn a_lock_excludes_a_second_one_until_it_is_dropped_or_released() {
    on_both(|disk, base| {
        let path = base.join(".lock");
        let lock = disk.lock(&path).unwrap().unwrap();
        assert!(disk.lock(&path).unwrap().is_none());
        drop(lock);
        let lock = disk.lock(&path).unwrap().unwrap();
        lock.release().unwrap();
        assert_eq!(disk.metadata(&path).unwrap(), None);
        assert!(disk.lock(&path).unwrap().is_some());
        assert_eq!(kind(disk.lock(&base.join("no/.lock"))), Some(ErrorKind::NotFound));
    });
}

#[test]
fn a_real_lock_excludes_another_process() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join(".lock");
    let lock = RealDisk::new().lock(&path).unwrap().unwrap();
    let script = "import fcntl,sys\nf=open(sys.argv[1],'r+')\ntry: fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB)\nexcept OSError: sys.exit(7)";
    let locked = || {
        let python = std::process::Command::new("python3").args(["-c", script]).arg(&path).status();
        python.ok().and_then(|status| status.code())
    };
    match locked() {
        None => {}
        Some(code) => {
            assert_eq!(code, 7);
            drop(lock);
            assert_eq!(locked(), Some(0));
        }
    }
}

#[test]
fn only_the_real_disk_has_files_for_sendfile() {
    on_both(|disk, base| {
        let file = disk.open(&base.join("f"), OpenMode::Create).unwrap();
        assert_eq!(file.os_file().is_some(), !base.starts_with("/base"));
        let shared: Arc<dyn milena_io::File> = file;
        assert_eq!(shared.len().unwrap(), 0);
    });
}
