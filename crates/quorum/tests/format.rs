//! Formatting: the bytes, the lines, the refusals, and a crash at every step.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{CLUSTER, NOW, endpoint, options, uuid};
use milena_io::{Disk, FileExt, OpenMode, SimDisk, SimRng};
use milena_quorum::{Directories, DirectoryError, InitialController, QuorumMode, format, info};
use milena_records::batches;

/// What Kafka wrote for static voters, as hex.
const KAFKA_STATIC: &str = "\
0000000000000000000000470000000002aa4379bc002000000000000001a22e3ef1d1000001a22e3ef1d1ffffffffffffffffffffffffffff000000012a0000\
000800000003160000000001a22e3ef1aa00000000000000000001000000f10000000002efebf551000000000005000001a22e3ef1e6000001a22e3ef1e6ffff\
ffffffffffffffffffffffff000000063a000000012e010c00116d657461646174612e76657273696f6e002100005a000002014e010c0021656c696769626c65\
2e6c65616465722e7265706c696361732e76657273696f6e00010000340000040128010c000e67726f75702e76657273696f6e00010000340000060128010c00\
0e73686172652e76657273696f6e0002000038000008012c010c001073747265616d732e76657273696f6e000100004000000a0134010c00147472616e736163\
74696f6e2e76657273696f6e0002000000000000000000070000003f0000000002b267a5b4002000000000000001a22e3ef1e9000001a22e3ef1e9ffffffffff\
ffffffffffffffffff000000011a00000008000000040600000000";

fn read(disk: &Arc<dyn Disk>, path: &str) -> Vec<u8> {
    disk.open(Path::new(path), OpenMode::Read).unwrap().read_all(1 << 20).unwrap()
}

fn sim() -> (SimDisk, Arc<dyn Disk>) {
    let disk = SimDisk::new(3);
    (disk.clone(), Arc::new(disk))
}

const CHECKPOINT: &str = "/d/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint";

fn checkpoint(mode: QuorumMode) -> Vec<u8> {
    let (_, disk) = sim();
    format(&disk, &options(&[Path::new("/d")], mode), &mut SimRng::new(1), NOW).unwrap();
    read(&disk, CHECKPOINT)
}

/// The bytes with every batch's checksum and timestamps, and the header's own timestamp, set to zero.
fn without_times(mut bytes: Vec<u8>) -> Vec<u8> {
    let sizes: Vec<usize> = batches(&bytes).map(|b| b.unwrap().size()).collect();
    let mut at = 0;
    for (index, size) in sizes.into_iter().enumerate() {
        bytes[at + 17..at + 21].fill(0);
        bytes[at + 27..at + 43].fill(0);
        if index == 0 {
            bytes[at + 73..at + 81].fill(0);
        }
        at += size;
    }
    bytes
}

#[test]
fn the_snapshot_for_static_voters_is_kafkas_byte_for_byte() {
    let kafka: Vec<u8> =
        (0..KAFKA_STATIC.len()).step_by(2).map(|i| u8::from_str_radix(&KAFKA_STATIC[i..i + 2], 16).unwrap()).collect();
    let ours = checkpoint(QuorumMode::StaticVoters);
    assert_eq!(ours.len(), 411);
    assert_eq!(without_times(ours), without_times(kafka));
}

#[test]
fn the_snapshots_of_the_other_modes_have_kafkas_sizes() {
    assert_eq!(checkpoint(QuorumMode::Standalone { endpoint: endpoint() }).len(), 494);
    assert_eq!(checkpoint(QuorumMode::NoInitialControllers).len(), 427);
    let voter = InitialController { id: 1, directory_id: uuid(5), endpoint: endpoint() };
    assert_eq!(checkpoint(QuorumMode::InitialControllers(vec![voter])).len(), 494);
}

#[test]
fn the_lines_are_kafkas() {
    let (_, disk) = sim();
    let dirs = [Path::new("/d"), Path::new("/e")];
    let mut format_options = options(&dirs, QuorumMode::StaticVoters);
    let done = format(&disk, &format_options, &mut SimRng::new(1), NOW).unwrap();
    assert!(done.lines[0].starts_with(
        "Bootstrap metadata: BootstrapMetadata(records=[ApiMessageAndVersion(FeatureLevelRecord(\
         name='metadata.version', featureLevel=33) at version 0), ApiMessageAndVersion(FeatureLevelRecord("
    ));
    assert!(done.lines[0].ends_with("at version 0)], metadataVersionLevel=33, source=format command)"));
    assert_eq!(
        done.lines[1..],
        [
            "Formatting metadata directory /d with metadata.version 4.4-IV2.",
            "Formatting data directory /e with metadata.version 4.4-IV2.",
        ]
    );
    let again = format(&disk, &format_options, &mut SimRng::new(1), NOW).unwrap_err();
    assert_eq!(
        again.to_string(),
        "Log directory /d is already formatted. Use --ignore-formatted to ignore this directory and format the others."
    );
    format_options.ignore_formatted = true;
    let again = format(&disk, &format_options, &mut SimRng::new(1), NOW).unwrap();
    assert_eq!(again.lines, ["All of the log directories are already formatted."]);
}

#[test]
fn a_broker_gets_no_snapshot() {
    let (_, disk) = sim();
    let mut broker = options(&[Path::new("/d")], QuorumMode::NoInitialControllers);
    broker.is_controller = false;
    format(&disk, &broker, &mut SimRng::new(1), NOW).unwrap();
    let names: Vec<String> = disk.list(Path::new("/d")).unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["meta.properties"]);
}

#[test]
fn a_listed_controller_takes_the_directory_id_of_the_list() {
    let (_, disk) = sim();
    let voter = InitialController { id: 1, directory_id: uuid(5), endpoint: endpoint() };
    let dirs = [Path::new("/d"), Path::new("/e")];
    format(&disk, &options(&dirs, QuorumMode::InitialControllers(vec![voter])), &mut SimRng::new(1), NOW).unwrap();
    let loaded = load(&disk, &["/d", "/e"], 1).unwrap();
    assert_eq!(loaded.id(dirs[0]), Some(uuid(5)));
    assert_ne!(loaded.id(dirs[1]), Some(uuid(5)));
}

fn load(disk: &Arc<dyn Disk>, dirs: &[&str], node_id: i32) -> Result<Directories, DirectoryError> {
    let dirs: Vec<std::path::PathBuf> = dirs.iter().map(Into::into).collect();
    Directories::load(disk, &dirs, &dirs[0], node_id, &mut SimRng::new(9), NOW)
}

#[test]
fn directories_that_do_not_belong_together_are_refused_with_kafkas_messages() {
    let (_, disk) = sim();
    let refused = |dirs: &[&str], node_id| load(&disk, dirs, node_id).unwrap_err().to_string();
    assert_eq!(
        refused(&["/d"], 1),
        "No readable meta.properties files found in /d (have you run `milena storage format` to format the directory?)"
    );
    format(&disk, &options(&[Path::new("/d")], QuorumMode::StaticVoters), &mut SimRng::new(1), NOW).unwrap();
    assert!(refused(&["/d", "/e"], 1).starts_with("No `meta.properties` found in /e (have you run `"));
    assert!(
        refused(&["/d"], 7).starts_with("Stored node id 1 doesn't match previous node id 7 in /d/meta.properties.")
    );
    let mut other = options(&[Path::new("/e")], QuorumMode::StaticVoters);
    other.cluster_id = "other".to_owned();
    format(&disk, &other, &mut SimRng::new(2), NOW).unwrap();
    assert_eq!(
        refused(&["/d", "/e"], 1),
        format!("Invalid cluster.id in: /e/meta.properties. Expected {CLUSTER}, but read other")
    );
    format(&disk, &options(&[Path::new("/f")], QuorumMode::StaticVoters), &mut SimRng::new(1), NOW).unwrap();
    assert!(refused(&["/d", "/f"], 1).starts_with("Found duplicate directory.id"));
    assert_eq!(refused(&["/d", "/d"], 1), "/d is named more than once in the configuration");
    let reserved = InitialController { id: 1, directory_id: milena_protocol::Uuid::ONE, endpoint: endpoint() };
    let mode = QuorumMode::InitialControllers(vec![reserved]);
    format(&disk, &options(&[Path::new("/g")], mode), &mut SimRng::new(1), NOW).unwrap();
    assert_eq!(refused(&["/g"], 1), "Invalid reserved directory ID AAAAAAAAAAAAAAAAAAAAAQ found in /g");
}

#[test]
fn a_damaged_meta_properties_is_refused_and_left_as_it_is() {
    let (_, disk) = sim();
    format(&disk, &options(&[Path::new("/d")], QuorumMode::StaticVoters), &mut SimRng::new(1), NOW).unwrap();
    let file = disk.open(Path::new("/d/meta.properties"), OpenMode::Write).unwrap();
    for left in [vec![], b"#".to_vec(), b"node.id=1\n".to_vec()] {
        file.truncate(0).unwrap();
        file.write_at(&left, 0).unwrap();
        let refused = load(&disk, &["/d"], 1).unwrap_err();
        assert!(matches!(refused, DirectoryError::NotKRaft { .. }), "{refused}");
        assert_eq!(read(&disk, "/d/meta.properties"), left);
    }
}

#[test]
fn a_directory_whose_file_can_not_be_understood_is_left_out_unless_it_is_that_of_the_metadata() {
    let (_, disk) = sim();
    let dirs = [Path::new("/d"), Path::new("/e")];
    format(&disk, &options(&dirs, QuorumMode::StaticVoters), &mut SimRng::new(1), NOW).unwrap();
    let file = disk.open(Path::new("/e/meta.properties"), OpenMode::Write).unwrap();
    file.truncate(0).unwrap();
    file.write_at(b"version=zzz\n", 0).unwrap();
    let loaded = load(&disk, &["/d", "/e"], 1).unwrap();
    assert_eq!((loaded.ids.len(), &*loaded.failed[0].0), (1, dirs[1]));
    assert!(matches!(load(&disk, &["/e", "/d"], 1), Err(DirectoryError::Unusable(_))));
}

#[test]
fn info_tells_what_kafka_tells() {
    let (_, disk) = sim();
    format(&disk, &options(&[Path::new("/d")], QuorumMode::StaticVoters), &mut SimRng::new(1), NOW).unwrap();
    disk.create_dir_all(Path::new("/e")).unwrap();
    let id = load(&disk, &["/d"], 1).unwrap().ids[0].1;
    let metadata = format!("Found metadata: {{cluster.id={CLUSTER}, directory.id={id}, node.id=1, version=1}}\n\n");
    let one = info(&disk, &["/d".into()]).to_string();
    assert_eq!(one, format!("Found log directory:\n  /d\n\n{metadata}"));
    let three = info(&disk, &["/x".into(), "/e".into(), "/d".into()]);
    assert_eq!(
        three.to_string(),
        format!(
            "Found log directories:\n  /d\n  /e\n\n{metadata}Found problems:\n  /e is not formatted.\n  /x does not exist\n\n"
        )
    );
}

/// Every crash leaves a directory that is formatted completely or can be formatted again.
#[test]
fn formatting_can_be_repeated_after_a_crash_at_every_step() {
    let dirs = [Path::new("/d"), Path::new("/e")];
    for step in 1.. {
        let sim = SimDisk::new(step);
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        sim.crash_at(Some(step));
        let mut again = options(&dirs, QuorumMode::Standalone { endpoint: endpoint() });
        let first = format(&disk, &again, &mut SimRng::new(1), NOW);
        if !sim.has_crashed() {
            first.unwrap();
            assert!(step > 15, "a crash was tried at {step} steps only");
            break;
        }
        sim.crash_at(None);
        sim.restart();
        again.ignore_formatted = true;
        format(&disk, &again, &mut SimRng::new(2), NOW).unwrap();
        let loaded = load(&disk, &["/d", "/e"], 1).unwrap();
        assert_eq!(loaded.cluster_id, CLUSTER, "crash at step {step}");
        assert_eq!(read(&disk, CHECKPOINT).len(), 494, "crash at step {step}");
        let log = common::open(&disk, dirs[0]).unwrap();
        assert_eq!(log.image().features().metadata_version().level(), 33);
    }
}
