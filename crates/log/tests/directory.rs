//! The files beside the partitions' directories.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::*;
use milena_io::{Disk, FileExt, OpenMode, RealDisk};
use milena_log::{
    Checkpoint, CleanMarker, DirKind, LogDirectory, LogError, MetaProperties, Offsets, read_topic_id, write_topic_id,
};

fn directory() -> LogDirectory {
    LogDirectory::open(Arc::new(disk(1)), Path::new("/data")).unwrap()
}

fn content(directory: &LogDirectory, name: &str) -> String {
    let file = directory.disk().open(&directory.path().join(name), OpenMode::Read).unwrap();
    String::from_utf8(file.read_all(1 << 20).unwrap()).unwrap()
}

#[test]
fn checkpoints_are_kafkas_text_and_survive_a_power_loss() {
    let disk = disk(1);
    let directory = LogDirectory::open(Arc::new(disk.clone()), Path::new("/data")).unwrap();
    assert_eq!(directory.read_checkpoint(Checkpoint::LogStart).unwrap(), Offsets::default());
    let mut offsets = Offsets::default();
    offsets.insert("b", 0, 7);
    offsets.insert("a", 12, 1 << 40);
    directory.write_checkpoint(Checkpoint::RecoveryPoint, &offsets).unwrap();
    disk.restart();
    let directory = LogDirectory::open(Arc::new(disk), Path::new("/data")).unwrap();
    assert_eq!(content(&directory, "recovery-point-offset-checkpoint"), "0\n2\na 12 1099511627776\nb 0 7\n");
    let read = directory.read_checkpoint(Checkpoint::RecoveryPoint).unwrap();
    assert_eq!((&read, read.get("a", 12), read.get("a", 0)), (&offsets, Some(1 << 40), None));
    directory.create_checkpoints(&Checkpoint::ALL).unwrap();
    assert_eq!(directory.read_checkpoint(Checkpoint::Cleaner).unwrap(), Offsets::default());
    directory.write_checkpoint(Checkpoint::RecoveryPoint, &Offsets::default()).unwrap();
    assert_eq!(content(&directory, "recovery-point-offset-checkpoint"), "0\n0\n");
}

#[test]
fn the_clean_marker_is_taken_once() {
    let directory = directory();
    assert_eq!(directory.take_clean_marker().unwrap(), None);
    directory.write_clean_marker(14).unwrap();
    assert_eq!(content(&directory, ".kafka_cleanshutdown"), "{\"version\":0,\"brokerEpoch\":14}");
    assert_eq!(directory.take_clean_marker().unwrap(), Some(CleanMarker { broker_epoch: 14 }));
    assert_eq!(directory.take_clean_marker().unwrap(), None);
    directory.disk().open(&directory.path().join(".kafka_cleanshutdown"), OpenMode::Create).unwrap();
    assert_eq!(directory.take_clean_marker().unwrap(), Some(CleanMarker { broker_epoch: -1 }));
}

#[test]
fn a_locked_directory_is_refused_until_it_is_unlocked() {
    for disk in [Arc::new(disk(1)) as Arc<dyn Disk>, Arc::new(RealDisk::new())] {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("data");
        let directory = LogDirectory::open(Arc::clone(&disk), &path).unwrap();
        assert!(matches!(LogDirectory::open(Arc::clone(&disk), &path), Err(LogError::Locked { .. })));
        directory.unlock().unwrap();
        assert_eq!(disk.metadata(&path.join(".lock")).unwrap(), None);
        LogDirectory::open(disk, &path).unwrap();
    }
}

#[test]
fn partitions_are_listed_and_other_directories_refused() {
    let directory = directory();
    for name in ["t-1", "__cluster_metadata-0", "remote-log-index-cache", "u-0.00ff-delete"] {
        directory.disk().create_dir(&directory.path().join(name)).unwrap();
    }
    let partitions = directory.partitions().unwrap();
    let found: Vec<_> =
        partitions.iter().map(|dir| (dir.name.topic.as_str(), dir.name.partition, dir.name.kind)).collect();
    assert_eq!(found, [("t", 1, DirKind::Current), ("u", 0, DirKind::Delete)]);
    directory.disk().create_dir(&directory.path().join("lost+found")).unwrap();
    assert!(matches!(directory.partitions(), Err(LogError::BadFile { .. })));
}

#[test]
fn meta_properties_are_written_and_read() {
    let directory = directory();
    assert_eq!(directory.meta_properties().unwrap(), None);
    let meta = MetaProperties {
        version: 1,
        cluster_id: Some("MkU3OEVBNTcwNTJENDM2Qg".to_owned()),
        node_id: Some(1),
        directory_id: Some("VUK78uoJyllVz-GqkcCBCA".to_owned()),
    };
    directory.write_meta_properties(&meta, 0).unwrap();
    assert_eq!(directory.meta_properties().unwrap(), Some(meta));
}

#[test]
fn the_topic_id_is_kept_beside_the_log() {
    let disk = disk(1);
    let dir = Path::new("/data");
    assert_eq!(read_topic_id(&disk, dir).unwrap(), None);
    write_topic_id(&disk, dir, "AAAAAAAAAAAAAAAAAAAAAQ").unwrap();
    let text = disk.open(&dir.join("partition.metadata"), OpenMode::Read).unwrap().read_all(100).unwrap();
    assert_eq!(text, b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ");
    assert_eq!(read_topic_id(&disk, dir).unwrap().as_deref(), Some("AAAAAAAAAAAAAAAAAAAAAQ"));
    for id in ["", "AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAA=="] {
        assert!(write_topic_id(&disk, dir, id).is_err(), "{id}");
    }
}
