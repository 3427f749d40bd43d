//! Makes a log directory whose metadata log and snapshots hold registrations, topics, configurations, producer ids and a
//! clean stop, for tools that read such directories: `metadata_directory DIR [static|standalone] [RELEASE]`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use milena_io::{Clock, Disk, RealClock, RealDisk, RealRng, Rng};
use milena_metadata::{Endpoint, MetadataVersion, VersionedRecord};
use milena_protocol::messages::{ConfigRecord, PartitionRecord, ProducerIdsRecord, RemoveTopicRecord, TopicRecord};
use milena_protocol::{MetadataRecord, Uuid};
use milena_quorum::{
    BrokerRegistration, ControllerRegistration, Directories, FormatOptions, MetadataLog, MetadataLogOptions,
    QuorumMode, TopicDefaults, format,
};
use milena_raft::VoterEndpoint;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const CONTROLLER_PORT: u16 = 29093;
const BROKER_PORT: u16 = 29092;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let dir = PathBuf::from(arguments.first().ok_or("usage: metadata_directory DIR [static|standalone] [RELEASE]")?);
    let host = "127.0.0.1".to_owned();
    let mode = match arguments.get(1).map(String::as_str) {
        Some("standalone") => QuorumMode::Standalone {
            endpoint: VoterEndpoint { name: "CONTROLLER".to_owned(), host, port: CONTROLLER_PORT },
        },
        _ => QuorumMode::StaticVoters,
    };
    let release = arguments.get(2).map(|name| MetadataVersion::from_name(name)).transpose()?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new());
    let options = FormatOptions {
        cluster_id: "MkU3OEVBNTcwNTJENDM2Qg".to_owned(),
        node_id: 1,
        dirs: vec![dir.clone()],
        metadata_dir: dir.clone(),
        is_controller: true,
        mode,
        release,
        features: Default::default(),
        ignore_formatted: true,
        scram: Vec::new(),
    };
    let formatted = format(&disk, &options, &mut RealRng, now())?;
    formatted.lines.iter().for_each(|line| println!("{line}"));
    let epoch = run(&disk, &dir, -1, "first")?;
    run(&disk, &dir, epoch, "second")?;
    Ok(())
}

fn now() -> i64 {
    RealClock::new().now_ms()
}

/// One run of a node: start, some records, two snapshots, clean stop. Returns the broker epoch.
fn run(disk: &Arc<dyn Disk>, dir: &Path, previous_epoch: i64, name: &str) -> Outcome<i64> {
    let mut rng = RealRng;
    let directories = Directories::load(disk, &[dir.to_owned()], dir, 1, &mut rng, now())?;
    let directory_id = directories.ids[0].1;
    let voters = MetadataLogOptions::static_voter_ids([1]);
    let options = MetadataLogOptions::new(dir.to_owned(), 1, directory_id, voters);
    let mut log = MetadataLog::open(disk.clone(), options, now())?;
    let listener =
        |name: &str, port| Endpoint { name: name.to_owned(), host: "127.0.0.1".to_owned(), port, security_protocol: 0 };
    let incarnation_id = Uuid::random(|bytes| rng.fill(bytes));
    let listeners = vec![listener("CONTROLLER", CONTROLLER_PORT)];
    log.register_controller(&ControllerRegistration { id: 1, incarnation_id, listeners }, now())?;
    let registration = BrokerRegistration {
        id: 1,
        incarnation_id,
        listeners: vec![listener("PLAINTEXT", BROKER_PORT)],
        rack: None,
        directories: vec![directory_id],
        previous_epoch,
    };
    let (epoch, _) = log.register_broker(&registration, TopicDefaults::default(), now())?;
    log.unfence_broker(1, &[], TopicDefaults::default(), now())?;
    let version = log.image().features().metadata_version();
    for (topic, partitions) in [("kept", 3), ("removed", 1)] {
        let id = Uuid::random(|bytes| rng.fill(bytes));
        let records = topic_records(&format!("{name}-{topic}"), id, partitions, directory_id);
        let records: Vec<_> = records.into_iter().map(|r| VersionedRecord::at(r, version)).collect();
        log.append(&records, now())?;
        if topic == "removed" {
            let record = MetadataRecord::RemoveTopic(RemoveTopicRecord { topic_id: id });
            log.append(&[VersionedRecord::at(record, version)], now())?;
        } else {
            log.snapshot(now())?;
        }
    }
    let next_producer_id = log.image().next_producer_id() + 1000;
    let record = ProducerIdsRecord { broker_id: 1, broker_epoch: epoch, next_producer_id };
    log.append(&[VersionedRecord::at(MetadataRecord::ProducerIds(record), version)], now())?;
    log.shut_down_broker(1, TopicDefaults::default(), now())?;
    log.snapshot(now())?;
    log.close()?;
    Ok(epoch)
}

fn topic_records(name: &str, id: Uuid, partitions: i32, directory_id: Uuid) -> Vec<MetadataRecord<'static>> {
    let name = name.to_owned();
    let config = ConfigRecord {
        resource_type: 2,
        resource_name: name.clone().into(),
        name: "retention.ms".into(),
        value: Some("3600000".into()),
    };
    let partition = |partition_id| {
        MetadataRecord::Partition(PartitionRecord {
            partition_id,
            topic_id: id,
            replicas: vec![1].into(),
            isr: vec![1].into(),
            leader: 1,
            leader_epoch: 0,
            partition_epoch: 0,
            directories: vec![directory_id].into(),
            ..PartitionRecord::default()
        })
    };
    let mut records =
        vec![MetadataRecord::Topic(TopicRecord { name: name.into(), topic_id: id }), MetadataRecord::Config(config)];
    records.extend((0..partitions).map(partition));
    records
}
