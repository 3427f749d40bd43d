//! A metadata log that Apache Kafka wrote is read, continued, and means what it means to Kafka.

mod common;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{NOW, broker, open, topics};
use milena_io::{Disk, FileExt, OpenMode, SimDisk};
use milena_log::{LogDirectory, MetaProperties};
use milena_metadata::{ConfigResource, Image, ImageBuilder, LeaderRecoveryState, Provenance};
use milena_quorum::{BrokerRegistration, TopicDefaults};

const DIR: &str = "/d";
const SNAPSHOT: &str = "00000000000000000169-0000000004.checkpoint";

/// Kafka's directory, without the files in `left_out`.
fn kafka_directory(left_out: &[&str]) -> Arc<dyn Disk> {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let dir = Path::new(DIR).join("__cluster_metadata-0");
    disk.create_dir_all(&dir).unwrap();
    let properties = MetaProperties {
        version: 1,
        cluster_id: Some(common::CLUSTER.to_owned()),
        node_id: Some(1),
        directory_id: Some("dO4j_3aVkxt7IutB5Y2_fw".to_owned()),
    };
    LogDirectory::unlocked(disk.clone(), Path::new(DIR)).write_meta_properties(&properties, NOW).unwrap();
    let source = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/kafka"));
    for entry in std::fs::read_dir(source).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let name = name.strip_suffix(".gz").unwrap();
        if left_out.contains(&name) {
            continue;
        }
        let mut bytes = Vec::new();
        let file = std::fs::File::open(entry.path()).unwrap();
        flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
        disk.open(&dir.join(name), OpenMode::Create).unwrap().write_at(&bytes, 0).unwrap();
    }
    disk
}

#[test]
fn everything_kafka_recorded_is_in_the_image() {
    let disk = kafka_directory(&[]);
    let log = open(&disk, Path::new(DIR)).unwrap();
    let image = log.image();
    let expected = [("t-after", 1), ("t-conf", 2), ("t-multi", 3)].map(|(name, count)| (name.to_owned(), count));
    assert_eq!(topics(&log), expected);
    let partition = image.topics().get("t-multi").unwrap().partition(2).unwrap();
    assert_eq!((partition.leader, partition.leader_epoch, partition.partition_epoch), (-1, 7, 9));
    assert_eq!((&partition.isr[..], &partition.eligible_leader_replicas[..]), (&[][..], &[1][..]));
    assert_eq!(partition.leader_recovery_state, LeaderRecoveryState::Recovering);
    let configs = image.configs();
    assert_eq!(configs.topic("t-conf").unwrap().get("retention.ms").map(String::as_str), Some("1000"));
    assert_eq!(configs.topic("t-multi").unwrap().get("cleanup.policy").map(String::as_str), Some("compact"));
    assert_eq!(configs.topic("t-gone"), None);
    assert_eq!(configs.value(&ConfigResource::default_broker(), "log.retention.ms"), Some("99999999"));
    assert_eq!(image.next_producer_id(), 1000);
    assert_eq!(image.client_quotas().iter().count(), 1);
    assert_eq!(image.acls().iter().map(|(_, acl)| &*acl.principal).collect::<Vec<_>>(), ["User:alice"]);
    let scram: Vec<_> = image.scram().iter().map(|(mechanism, user, _)| (mechanism, user)).collect();
    assert_eq!(scram, [(1, "alice"), (2, "carol")]);
    let registered = image.cluster().broker(1).unwrap();
    assert_eq!((registered.epoch, registered.fenced, registered.in_controlled_shutdown), (153, true, true));
    assert_eq!(image.features().iter().count(), 6);
    // One more epoch, and its leader change.
    assert_eq!((log.epoch(), log.end_offset()), (5, 181));
}

#[test]
fn kafkas_snapshot_says_what_kafkas_log_says() {
    let with = open(&kafka_directory(&[]), Path::new(DIR)).unwrap();
    let without = open(&kafka_directory(&[SNAPSHOT]), Path::new(DIR)).unwrap();
    assert_eq!(**with.image(), rebuilt(without.image(), with.image().provenance()));
}

/// An image made from an image's own records.
fn rebuilt(image: &Image, provenance: Provenance) -> Image {
    let mut builder = ImageBuilder::new(&Image::default());
    image.records().for_each(|r| builder.replay(&r.record).unwrap());
    builder.finish(provenance).unwrap().0
}

#[test]
fn partitions_come_online_after_kafkas_clean_stop() {
    let disk = kafka_directory(&[]);
    let mut log = open(&disk, Path::new(DIR)).unwrap();
    let directories = log.image().cluster().broker(1).unwrap().directories.clone();
    let registration = BrokerRegistration { directories, ..broker(153) };
    let (epoch, _) = log.register_broker(&registration, TopicDefaults::default(), NOW).unwrap();
    log.unfence_broker(1, &[], TopicDefaults::default(), NOW).unwrap();
    assert_eq!(epoch, 181);
    for topic in log.image().topics().iter() {
        for partition in &topic.partitions {
            assert_eq!((partition.leader, &partition.isr[..]), (1, &[1][..]));
            assert!(partition.eligible_leader_replicas.is_empty());
        }
    }
}

#[test]
fn a_lost_quorum_state_and_epoch_checkpoint_are_made_again() {
    let disk = kafka_directory(&["quorum-state", "leader-epoch-checkpoint", "partition.metadata"]);
    let log = open(&disk, Path::new(DIR)).unwrap();
    assert_eq!(log.epoch(), 5);
}

/// Whatever happens to the files, opening them ends: with a log, or with an error.
#[test]
fn damaged_files_never_panic() {
    let names = ["00000000000000000000.log", SNAPSHOT, "00000000000000000000-0000000000.checkpoint", "quorum-state"];
    let mut rng = milena_io::SimRng::new(42);
    for round in 0..400 {
        let disk = kafka_directory(&[]);
        let path = Path::new(DIR).join("__cluster_metadata-0").join(names[round % names.len()]);
        let file = disk.open(&path, OpenMode::Write).unwrap();
        let mut bytes = file.read_all(1 << 20).unwrap();
        for _ in 0..=milena_io::Rng::below(&mut rng, 4) {
            let at = milena_io::Rng::below(&mut rng, bytes.len() as u64) as usize;
            match milena_io::Rng::below(&mut rng, 4) {
                0 => bytes[at] ^= 1 << milena_io::Rng::below(&mut rng, 8),
                1 => bytes.truncate(at.max(1)),
                2 => bytes.extend_from_within(at..),
                _ => bytes[at] = 0xff,
            }
        }
        // Batches whose checksums agree with their damage reach the record decoders.
        if round % 3 == 0 {
            repair_checksums(&mut bytes);
        }
        file.truncate(0).unwrap();
        file.write_at(&bytes, 0).unwrap();
        let _ = open(&disk, Path::new(DIR));
    }
}

fn repair_checksums(mut bytes: &mut [u8]) {
    while let Ok((mut batch, rest)) = milena_records::BatchMut::split_first(bytes) {
        batch.update_crc();
        bytes = rest;
    }
}
