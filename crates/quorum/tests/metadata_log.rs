//! The metadata log over a simulated disk: what a fresh one holds, what survives a restart and a crash at every step.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{
    NOW, broker, controller, endpoint, formatted, log_options, open, producer_ids, remove_topic, topic, topics, uuid,
};
use milena_io::{Disk, Fault, FaultKind, FileExt, OpenMode, SimDisk, SimRng, StepKind};
use milena_metadata::{ConfigResource, MetadataVersion, VersionedRecord};
use milena_protocol::MetadataRecord;
use milena_protocol::messages::BeginTransactionRecord;
use milena_quorum::{MetadataLog, QuorumError, QuorumMode, TopicDefaults, format};
use milena_records::{BatchBuilder, batches};

const DIR: &str = "/d";

fn sim(mode: QuorumMode) -> (SimDisk, Arc<dyn Disk>) {
    let sim = SimDisk::new(11);
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    formatted(&disk, Path::new(DIR), mode);
    (sim, disk)
}

fn reopen(disk: &Arc<dyn Disk>) -> MetadataLog {
    open(disk, Path::new(DIR)).unwrap()
}

fn file(disk: &Arc<dyn Disk>, name: &str) -> Vec<u8> {
    let path = Path::new(DIR).join("__cluster_metadata-0").join(name);
    disk.open(&path, OpenMode::Read).unwrap().read_all(1 << 30).unwrap()
}

/// Base offset, number of records, epoch and control flag of every batch of the log.
fn log_batches(disk: &Arc<dyn Disk>) -> Vec<(i64, i32, i32, bool)> {
    let bytes = file(disk, "00000000000000000000.log");
    let batch = |b: milena_records::Batch<'_>| (b.base_offset(), b.count(), b.partition_leader_epoch(), b.is_control());
    batches(&bytes).map(|b| batch(b.unwrap())).collect()
}

#[test]
fn a_fresh_static_quorum_holds_what_kafka_writes_first() {
    let (_, disk) = sim(QuorumMode::StaticVoters);
    let log = reopen(&disk);
    assert_eq!(log_batches(&disk), [(0, 1, 1, true), (1, 9, 1, false)]);
    assert_eq!((log.end_offset(), log.high_watermark(), log.epoch(), log.kraft_version()), (10, 10, 1, 0));
    assert_eq!(log.image().features().metadata_version().level(), 33);
    assert_eq!(log.image().configs().value(&ConfigResource::default_broker(), "min.insync.replicas"), Some("1"));
    assert_eq!(
        String::from_utf8(file(&disk, "quorum-state")).unwrap(),
        r#"{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}"#
    );
    assert_eq!(file(&disk, "leader-epoch-checkpoint"), b"0\n1\n1 0\n");
    assert_eq!(file(&disk, "partition.metadata"), b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ");
    // The first batch is 91 bytes in Kafka.
    assert_eq!(batches(&file(&disk, "00000000000000000000.log")).next().unwrap().unwrap().size(), 91);
}

#[test]
fn a_fresh_dynamic_quorum_logs_its_version_and_voters_after_the_leader() {
    let (_, disk) = sim(QuorumMode::Standalone { endpoint: endpoint() });
    let log = reopen(&disk);
    assert_eq!(log_batches(&disk), [(0, 3, 1, true), (3, 9, 1, false)]);
    assert_eq!((log.kraft_version(), log.voters().len()), (1, 1));
    assert!(
        String::from_utf8(file(&disk, "quorum-state"))
            .unwrap()
            .ends_with(r#""leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}"#)
    );
    log.close().unwrap();
    // The second leader repeats neither the voters nor the first records.
    let log = reopen(&disk);
    assert_eq!(log_batches(&disk)[2..], [(12, 1, 2, true)]);
    assert_eq!((log.kraft_version(), log.epoch()), (1, 2));
}

#[test]
fn a_static_quorum_that_is_raised_names_its_voter_from_then_on() {
    let (_, disk) = sim(QuorumMode::StaticVoters);
    let mut log = reopen(&disk);
    log.raise_kraft_version(1, vec![endpoint()], NOW).unwrap();
    assert_eq!(log_batches(&disk)[2..], [(10, 2, 1, true)]);
    let key = log_options(&disk, Path::new(DIR)).directory_id;
    let voter =
        |log: &MetadataLog| log.voters().iter().map(|v| (v.key.directory_id, v.endpoints.clone())).collect::<Vec<_>>();
    assert_eq!((log.kraft_version(), voter(&log)), (1, vec![(key, vec![endpoint()])]));
    log.snapshot(NOW).unwrap();
    log.close().unwrap();
    let mut options = log_options(&disk, Path::new(DIR));
    options.static_voters = Default::default();
    let log = MetadataLog::open(disk, options, NOW).unwrap();
    assert_eq!((log.kraft_version(), voter(&log)), (1, vec![(key, vec![endpoint()])]));
}

#[test]
fn a_node_outside_the_voters_cannot_lead() {
    let (_, disk) = sim(QuorumMode::NoInitialControllers);
    let mut options = log_options(&disk, Path::new(DIR));
    options.static_voters = Default::default();
    let error = MetadataLog::open(disk.clone(), options.clone(), NOW).unwrap_err();
    assert!(matches!(error, QuorumError::NotTheOnlyVoter { node_id: 1, .. }), "{error}");
    options.static_voters = milena_quorum::MetadataLogOptions::static_voter_ids([1, 2, 3]);
    let error = MetadataLog::open(disk, options, NOW).unwrap_err();
    assert!(error.to_string().contains("(voters: [1, 2, 3])"), "{error}");
}

/// Every file below a directory with its content.
fn files(disk: &Arc<dyn Disk>, dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in disk.list(dir).unwrap() {
        let path = dir.join(&entry.name);
        if entry.is_dir {
            all.extend(files(disk, &path));
        } else {
            let content = disk.open(&path, OpenMode::Read).unwrap().read_all(1 << 30).unwrap();
            all.insert(path, content);
        }
    }
    all
}

/// A log as a killed Apache Kafka leaves it: its last batch is torn, an index has its full length, a snapshot is half
/// written and another one half deleted.
fn left_by_a_kill(mode: QuorumMode) -> Arc<dyn Disk> {
    let (_, disk) = sim(mode);
    let mut log = reopen(&disk);
    log.append(&topic("a", uuid(1), 3), NOW).unwrap();
    drop(log);
    let dir = Path::new(DIR).join("__cluster_metadata-0");
    let write = |name: &str, bytes: &[u8]| {
        let file = disk.open(&dir.join(name), OpenMode::Create).unwrap();
        file.write_at(bytes, file.len().unwrap()).unwrap();
    };
    let batch = file(&disk, "00000000000000000000.log")[..91].to_vec();
    write("00000000000000000000.log", &batch[..50]);
    write("00000000000000000000.timeindex", &[0; 4096]);
    write("00000000000000000012-0000000001.checkpoint.part", b"half");
    write("00000000000000000011-0000000001.checkpoint.deleted", b"half");
    disk
}

#[test]
fn a_start_that_fails_leaves_every_file_as_it_was() {
    for mode in [QuorumMode::StaticVoters, QuorumMode::Standalone { endpoint: endpoint() }] {
        let disk = left_by_a_kill(mode.clone());
        let before = files(&disk, Path::new(DIR));
        assert!(!milena_quorum::holds_no_metadata(&*disk, Path::new(DIR)).unwrap());
        let mut options = log_options(&disk, Path::new(DIR));
        match mode {
            QuorumMode::StaticVoters => {
                options.static_voters = milena_quorum::MetadataLogOptions::static_voter_ids([1, 2, 3]);
            }
            // Another directory than the one that votes.
            _ => options.directory_id = uuid(99),
        }
        let error = MetadataLog::open(disk.clone(), options, NOW).unwrap_err();
        assert!(matches!(error, QuorumError::NotTheOnlyVoter { node_id: 1, .. }), "{error}");
        assert!(files(&disk, Path::new(DIR)) == before, "a file was changed");
        // The right node starts, and cuts and clears away what a kill has left.
        assert_eq!(topics(&reopen(&disk)), [("a".to_owned(), 3)]);
        let names = files(&disk, Path::new(DIR)).into_keys().map(|path| path.display().to_string());
        assert_eq!(names.filter(|name| name.ends_with(".part") || name.ends_with(".deleted")).count(), 0);
    }
}

#[test]
fn a_start_that_can_not_read_what_there_is_leaves_every_file_as_it_was() {
    fn spoil_election(disk: &Arc<dyn Disk>, dir: &Path) {
        let state = disk.open(&dir.join("quorum-state"), OpenMode::Write).unwrap();
        state.write_at(b"nonsense", 0).unwrap();
    }
    fn add_nonsense(disk: &Arc<dyn Disk>, dir: &Path) {
        let log = disk.open(&dir.join("00000000000000000000.log"), OpenMode::Write).unwrap();
        let whole = log.len().unwrap() - 50;
        let mut batch = BatchBuilder::new();
        batch.push(0, None, Some(b"nonsense"), &[]);
        let mut bytes = batch.build().unwrap();
        bytes[..8].copy_from_slice(&15_i64.to_be_bytes());
        log.truncate(whole).unwrap();
        log.write_at(&[&bytes[..], &bytes[..50]].concat(), whole).unwrap();
    }
    type Spoil = fn(&Arc<dyn Disk>, &Path);
    for spoil in [spoil_election as Spoil, add_nonsense] {
        let disk = left_by_a_kill(QuorumMode::StaticVoters);
        spoil(&disk, &Path::new(DIR).join("__cluster_metadata-0"));
        let before = files(&disk, Path::new(DIR));
        let error = open(&disk, Path::new(DIR)).unwrap_err();
        assert!(matches!(error, QuorumError::QuorumState { .. } | QuorumError::Batch { .. }), "{error}");
        assert!(files(&disk, Path::new(DIR)) == before, "a file was changed: {error}");
    }
}

#[test]
fn a_start_without_a_log_that_fails_makes_none() {
    let (_, disk) = sim(QuorumMode::StaticVoters);
    disk.remove_dir_all(&Path::new(DIR).join("__cluster_metadata-0")).unwrap();
    let before = files(&disk, Path::new(DIR));
    let mut options = log_options(&disk, Path::new(DIR));
    options.static_voters = Default::default();
    assert!(MetadataLog::open(disk.clone(), options, NOW).is_err());
    assert!(files(&disk, Path::new(DIR)) == before);
    assert!(disk.metadata(&Path::new(DIR).join("__cluster_metadata-0")).unwrap().is_none());
}

#[test]
fn the_layout_of_older_releases_is_read() {
    let (_, disk) = sim(QuorumMode::StaticVoters);
    let log_dir = Path::new(DIR).join("__cluster_metadata-0");
    // They put the first records beside the log's directory, which they made at the first start.
    disk.rename(
        &log_dir.join("00000000000000000000-0000000000.checkpoint"),
        &Path::new(DIR).join("bootstrap.checkpoint"),
    )
    .unwrap();
    disk.remove_dir_all(&log_dir).unwrap();
    let log = reopen(&disk);
    assert_eq!(log.image().features().iter().count(), 6);
    assert_eq!(log_batches(&disk), [(0, 1, 1, true), (1, 9, 1, false)]);
}

#[test]
fn without_any_first_records_the_newest_metadata_version_is_written() {
    let (_, disk) = sim(QuorumMode::StaticVoters);
    disk.remove_dir_all(&Path::new(DIR).join("__cluster_metadata-0")).unwrap();
    let features: Vec<(String, i16)> =
        reopen(&disk).image().features().iter().map(|(name, level)| (name.to_owned(), level)).collect();
    assert_eq!(features, [("metadata.version".to_owned(), 33)]);
}

#[test]
fn a_metadata_version_without_transactions_starts_without_one() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let mut old = common::options(&[Path::new(DIR)], QuorumMode::StaticVoters);
    old.release = Some(MetadataVersion::from_name("3.5").unwrap());
    format(&disk, &old, &mut SimRng::new(1), NOW).unwrap();
    let mut log = reopen(&disk);
    assert_eq!(log_batches(&disk), [(0, 1, 1, true), (1, 1, 1, false)]);
    assert!(log.register_controller(&controller(), NOW).unwrap().is_empty(), "it knows no controller registrations");
}

#[test]
fn a_transaction_that_a_crash_left_open_is_aborted() {
    let (_, disk) = sim(QuorumMode::StaticVoters);
    let mut log = reopen(&disk);
    let begin = MetadataRecord::BeginTransaction(BeginTransactionRecord { name: None });
    log.append(&[VersionedRecord::new(begin, 0)], NOW).unwrap();
    let appended = log.append(&topic("a", uuid(1), 1), NOW).unwrap();
    assert!(appended.loaded.is_empty());
    assert_eq!(topics(&log), []);
    drop(log);
    let log = reopen(&disk);
    assert_eq!(topics(&log), []);
    assert_eq!(log_batches(&disk).len(), 6, "the leader change and the abort");
    drop(log);
    assert_eq!(topics(&reopen(&disk)), []);
}

#[test]
fn what_is_appended_is_there_after_a_restart() {
    let (_, disk) = sim(QuorumMode::StaticVoters);
    let mut log = reopen(&disk);
    let appended = log.append(&topic("a", uuid(1), 3), NOW).unwrap();
    assert_eq!((appended.base_offset, appended.last_offset), (10, 14));
    assert_eq!(appended.loaded[0].delta.topics.created.len(), 1);
    log.append(&topic("b", uuid(2), 1), NOW).unwrap();
    log.append(&[remove_topic(uuid(2)), producer_ids(5, 1000)], NOW).unwrap();
    let image = log.image().clone();
    drop(log);
    let log = reopen(&disk);
    assert_eq!(topics(&log), [("a".to_owned(), 3)]);
    assert_eq!(log.image().topics(), image.topics());
    assert_eq!(log.image().next_producer_id(), 1000);
    assert_eq!(log.image().configs().topic("b"), None);
}

#[test]
fn a_snapshot_stands_for_the_log_before_it() {
    let (_, disk) = sim(QuorumMode::Standalone { endpoint: endpoint() });
    let mut log = reopen(&disk);
    log.append(&topic("a", uuid(1), 3), NOW).unwrap();
    let id = log.snapshot(NOW).unwrap();
    assert_eq!((id.end_offset, id.epoch), (17, 1));
    log.append(&topic("b", uuid(2), 1), NOW).unwrap();
    let image = log.image().clone();
    log.close().unwrap();
    assert!(!file(&disk, "00000000000000000017-0000000001.checkpoint").is_empty());
    let log = reopen(&disk);
    assert_eq!(log.image().topics(), image.topics());
    assert_eq!(log.image().features(), image.features());
    assert_eq!(log.image().configs(), image.configs());
}

#[test]
fn snapshots_come_by_size_and_by_age() {
    let (_, disk) = sim(QuorumMode::StaticVoters);
    let mut options = log_options(&disk, Path::new(DIR));
    options.snapshot_max_bytes = 2000;
    let mut log = MetadataLog::open(disk, options, NOW).unwrap();
    assert_eq!(log.maybe_snapshot(NOW).unwrap(), None);
    log.append(&topic("a", uuid(1), 20), NOW).unwrap();
    assert!(log.maybe_snapshot(NOW).unwrap().is_some());
    assert_eq!(log.maybe_snapshot(NOW + 10_000_000).unwrap(), None, "nothing was appended since");
    log.append(&topic("b", uuid(2), 1), NOW).unwrap();
    assert_eq!(log.maybe_snapshot(NOW + 3_599_999).unwrap(), None);
    assert!(log.maybe_snapshot(NOW + 3_600_000).unwrap().is_some());
}

/// End offsets of the snapshots in the directory, that of formatting left out.
fn snapshots(disk: &Arc<dyn Disk>) -> Vec<i64> {
    let entries = disk.list(&Path::new(DIR).join("__cluster_metadata-0")).unwrap();
    let end = |name: &str| name.strip_suffix(".checkpoint").map(|name| name[..20].parse().unwrap());
    entries.iter().filter_map(|e| end(&e.name)).filter(|end| *end > 0).collect()
}

#[test]
fn old_snapshots_go_by_age_and_by_size_but_the_newest_stays() {
    let (_, disk) = sim(QuorumMode::StaticVoters);
    let mut options = log_options(&disk, Path::new(DIR));
    options.retention_ms = 1000;
    let mut log = MetadataLog::open(disk.clone(), options.clone(), NOW).unwrap();
    for n in 0..3 {
        log.append(&[producer_ids(1, 1000 * (n + 1))], NOW + 600 * n).unwrap();
        log.snapshot(NOW + 600 * n).unwrap();
    }
    assert_eq!(snapshots(&disk), [12, 13], "the first one is 1200 ms old");
    log.append(&[producer_ids(1, 5000)], NOW).unwrap();
    log.snapshot(NOW + 1_000_000).unwrap();
    assert_eq!(snapshots(&disk), [14]);
    drop(log);
    options.retention_bytes = 0;
    options.retention_ms = -1;
    let mut log = MetadataLog::open(disk.clone(), options, NOW).unwrap();
    log.snapshot(NOW).unwrap();
    assert_eq!(snapshots(&disk), [15]);
    assert_eq!(log.image().next_producer_id(), 5000);
}

#[test]
fn a_broken_snapshot_gives_way_to_an_older_one_and_the_log() {
    let (sim, disk) = sim(QuorumMode::StaticVoters);
    let mut log = reopen(&disk);
    log.append(&topic("a", uuid(1), 3), NOW).unwrap();
    log.snapshot(NOW).unwrap();
    log.append(&topic("b", uuid(2), 1), NOW).unwrap();
    let newest = log.snapshot(NOW).unwrap();
    drop(log);
    let name = format!("{DIR}/__cluster_metadata-0/{:020}-{:010}.checkpoint", newest.end_offset, newest.epoch);
    sim.flip_bit(Path::new(&name), 120, 3);
    assert_eq!(topics(&reopen(&disk)).len(), 2);
}

#[test]
fn a_broken_snapshot_without_the_log_before_it_is_an_error_that_names_the_file() {
    let (sim, disk) = sim(QuorumMode::StaticVoters);
    let mut log = reopen(&disk);
    log.append(&topic("a", uuid(1), 3), NOW).unwrap();
    log.snapshot(NOW).unwrap();
    drop(log);
    let dir = Path::new(DIR).join("__cluster_metadata-0");
    for name in ["00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.timeindex"] {
        disk.remove_file(&dir.join(name)).unwrap();
    }
    sim.flip_bit(&dir.join("00000000000000000015-0000000001.checkpoint"), 120, 3);
    let error = open(&disk, Path::new(DIR)).unwrap_err().to_string();
    assert!(error.contains("00000000000000000015-0000000001.checkpoint"), "{error}");
}

#[test]
fn a_log_behind_its_snapshot_starts_anew_at_the_snapshots_end() {
    let (_, disk) = sim(QuorumMode::StaticVoters);
    let mut log = reopen(&disk);
    log.append(&topic("a", uuid(1), 3), NOW).unwrap();
    log.snapshot(NOW).unwrap();
    drop(log);
    let dir = Path::new(DIR).join("__cluster_metadata-0");
    disk.remove_file(&dir.join("00000000000000000000.log")).unwrap();
    let log = reopen(&disk);
    assert_eq!((log.log_start_offset(), log.end_offset(), log.epoch()), (15, 16, 2));
    assert_eq!(topics(&log), [("a".to_owned(), 3)]);
    drop(log);
    assert_eq!(topics(&reopen(&disk)), [("a".to_owned(), 3)]);
}

#[test]
fn a_record_that_contradicts_the_image_is_final_and_never_on_disk() {
    let (_, disk) = sim(QuorumMode::StaticVoters);
    let mut log = reopen(&disk);
    let end = log.end_offset();
    assert!(matches!(log.append(&[remove_topic(uuid(1))], NOW), Err(QuorumError::Replay { .. })));
    assert!(matches!(log.append(&topic("a", uuid(1), 1), NOW), Err(QuorumError::Failed { .. })));
    drop(log);
    assert_eq!(reopen(&disk).end_offset(), end + 1);
}

#[test]
fn a_failed_fsync_is_final() {
    let (sim, disk) = sim(QuorumMode::StaticVoters);
    let mut log = reopen(&disk);
    sim.fail(Fault { kind: FaultKind::Io, on: StepKind::Sync, path_contains: ".log".to_owned(), times: 1 });
    assert!(matches!(log.append(&topic("a", uuid(1), 1), NOW), Err(QuorumError::Log(_))));
    assert_eq!(topics(&log), []);
    assert!(matches!(log.append(&topic("b", uuid(2), 1), NOW), Err(QuorumError::Failed { .. })));
}

#[test]
fn a_full_disk_refuses_records_until_there_is_space() {
    let (sim, disk) = sim(QuorumMode::StaticVoters);
    let mut log = reopen(&disk);
    sim.fail(Fault { kind: FaultKind::NoSpace, on: StepKind::Write, path_contains: ".log".to_owned(), times: 1 });
    assert!(matches!(log.append(&topic("a", uuid(1), 1), NOW), Err(QuorumError::Log(e)) if e.is_disk_full()));
    assert_eq!(topics(&log), []);
    log.append(&topic("b", uuid(2), 1), NOW).unwrap();
    drop(log);
    assert_eq!(topics(&reopen(&disk)), [("b".to_owned(), 1)]);
}

#[test]
fn what_another_process_has_appended_is_not_written_over() {
    let (_, disk) = sim(QuorumMode::StaticVoters);
    let mut log = reopen(&disk);
    log.append(&topic("first", uuid(1), 1), NOW).unwrap();
    let path = Path::new(DIR).join("__cluster_metadata-0/00000000000000000000.log");
    let foreign = disk.open(&path, OpenMode::Write).unwrap();
    foreign.write_vectored_at(&[std::io::IoSlice::new(b"foreign")], foreign.len().unwrap()).unwrap();
    let before = file(&disk, "00000000000000000000.log");
    assert!(log.append(&topic("second", uuid(2), 1), NOW).is_err());
    assert!(matches!(log.append(&topic("third", uuid(3), 1), NOW), Err(QuorumError::Failed { .. })));
    assert_eq!(file(&disk, "00000000000000000000.log"), before);
    assert_eq!(topics(&log), [("first".to_owned(), 1)]);
}

#[test]
fn a_flipped_bit_in_the_middle_stops_the_start_and_changes_nothing() {
    let (sim, disk) = sim(QuorumMode::StaticVoters);
    let mut log = reopen(&disk);
    log.append(&topic("a", uuid(1), 3), NOW).unwrap();
    log.append(&topic("b", uuid(2), 3), NOW).unwrap();
    drop(log);
    let before = file(&disk, "00000000000000000000.log");
    let sizes: Vec<u64> = batches(&before).map(|b| b.unwrap().size() as u64).collect();
    let path = Path::new(DIR).join("__cluster_metadata-0/00000000000000000000.log");
    let third = sizes[0] + sizes[1];
    // A record's byte, the length, the base offset: each makes another kind of bad batch.
    for byte in [70, 11, 1] {
        sim.flip_bit(&path, third + byte, 4);
        let damaged = file(&disk, "00000000000000000000.log");
        match open(&disk, Path::new(DIR)).unwrap_err() {
            QuorumError::Damaged { position, offset, .. } => assert_eq!((position, offset), (third, 10)),
            error => panic!("{error}"),
        }
        assert_eq!(file(&disk, "00000000000000000000.log"), damaged);
        sim.flip_bit(&path, third + byte, 4);
    }
    // In the last batch it cannot be told from an interrupted write.
    sim.flip_bit(&path, third + sizes[2] + 70, 4);
    assert_eq!(topics(&reopen(&disk)), [("a".to_owned(), 3)]);
}

#[test]
fn thousands_of_records_are_split_into_batches() {
    let (_, disk) = sim(QuorumMode::StaticVoters);
    let mut log = reopen(&disk);
    let records = topic("a", uuid(1), 25_000);
    assert!(matches!(log.append(&records, NOW), Err(QuorumError::TooLarge { records: 25_002, .. })));
    let appended = log.append_split(&records, NOW).unwrap();
    assert_eq!(appended.last_offset - appended.base_offset, 25_001);
    assert_eq!(log_batches(&disk)[2..].iter().map(|b| b.1).collect::<Vec<_>>(), [10_000, 10_000, 5002]);
    log.snapshot(NOW).unwrap();
    drop(log);
    assert_eq!(topics(&reopen(&disk)), [("a".to_owned(), 25_000)]);
}

/// One run: open, make topics, snapshot, stop. Returns how many topics were acknowledged.
fn run(disk: &Arc<dyn Disk>, acknowledged: &mut usize) -> Result<(), QuorumError> {
    let mut log = open(disk, Path::new(DIR))?;
    log.register_controller(&controller(), NOW)?;
    log.register_broker(&broker(-1), TopicDefaults::default(), NOW)?;
    log.unfence_broker(1, &[], TopicDefaults::default(), NOW)?;
    for round in 0..3_u64 {
        let n = *acknowledged as u64;
        log.append(&topic(&format!("t{n}"), uuid(n), 2), NOW)?;
        *acknowledged += 1;
        if round == 1 {
            log.snapshot(NOW)?;
        }
    }
    log.shut_down_broker(1, TopicDefaults::default(), NOW)?;
    log.close()
}

/// Whatever step the power fails at, the log opens again and has every acknowledged topic, whole.
#[test]
fn nothing_acknowledged_is_lost_by_a_crash_at_any_step() {
    for step in 1.. {
        let sim = SimDisk::new(step);
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        formatted(&disk, Path::new(DIR), QuorumMode::StaticVoters);
        let mut acknowledged = 0;
        // The second run begins on what the first one left.
        sim.crash_at(Some(sim.steps() + step));
        let mut finished = run(&disk, &mut acknowledged).is_ok();
        if !sim.has_crashed() {
            finished = run(&disk, &mut acknowledged).is_ok();
        }
        if !sim.has_crashed() {
            assert!(finished && step > 100, "{step} crash points");
            break;
        }
        sim.crash_at(None);
        sim.restart();
        let log = open(&disk, Path::new(DIR)).unwrap_or_else(|e| panic!("crash at step {step}: {e}"));
        let found = topics(&log);
        assert!(found.len() >= acknowledged, "crash at step {step}: {found:?}, acknowledged {acknowledged}");
        assert!(found.iter().all(|(_, partitions)| *partitions == 2), "crash at step {step}: {found:?}");
        drop(log);
        assert_eq!(topics(&reopen(&disk)), found, "crash at step {step}");
    }
}
