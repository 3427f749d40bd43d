use milena_io::{SimDisk, StepKind};
use milena_protocol::messages::list_offsets_request::ListOffsetsTopic;

use super::*;
use crate::test_partitions::{EPOCH, append, topic, topic_on};

fn asked(partition_index: i32, timestamp: i64) -> ListOffsetsPartition {
    ListOffsetsPartition { partition_index, timestamp, ..Default::default() }
}

fn request(partitions: Vec<ListOffsetsPartition>) -> ListOffsetsRequest<'static> {
    ListOffsetsRequest {
        replica_id: CONSUMER,
        topics: vec![ListOffsetsTopic { name: "t".into(), partitions }],
        ..Default::default()
    }
}

/// For each partition of the answer: index, error, timestamp, offset, leader epoch.
fn ask(request: &ListOffsetsRequest<'_>, version: i16, partitions: &[&[&[i64]]]) -> Vec<(i32, i16, i64, i64, i32)> {
    let replicas = topic(partitions);
    let topics = replicas.topics();
    let response = response(request, version, &topics);
    let told =
        |p: &ListOffsetsPartitionResponse| (p.partition_index, p.error_code, p.timestamp, p.offset, p.leader_epoch);
    response.topics.iter().flat_map(|topic| &topic.partitions).map(told).collect()
}

/// The answer to one question of version 11 about a partition.
fn one(timestamp: i64, batches: &[&[i64]]) -> (i16, i64, i64, i32) {
    let (_, error, timestamp, offset, epoch) = ask(&request(vec![asked(0, timestamp)]), 11, &[batches])[0];
    (error, timestamp, offset, epoch)
}

const NOTHING: (i16, i64, i64, i32) = (0, -1, -1, -1);

#[test]
fn each_negative_timestamp_has_its_first_version() {
    let first = |timestamp| (1..=11).find(|&version| is_served(timestamp, version));
    let firsts: Vec<_> = [0, -1, -2, -3, -4, -5, -6, -7, -100].into_iter().map(first).collect();
    assert_eq!(firsts, [Some(1), Some(1), Some(1), Some(7), Some(8), Some(9), Some(11), None, None]);
}

#[test]
fn the_ends_of_a_partition_have_no_timestamp() {
    let batches: &[&[i64]] = &[&[2, 4], &[6, 8]];
    assert_eq!(one(LATEST, batches), (0, -1, 4, EPOCH));
    assert_eq!(one(EARLIEST, batches), (0, -1, 0, EPOCH));
    assert_eq!(one(EARLIEST_LOCAL, batches), (0, -1, 0, EPOCH));
    assert_eq!(one(LATEST_TIERED, batches), NOTHING);
    assert_eq!(one(EARLIEST_PENDING_UPLOAD, batches), NOTHING);
}

#[test]
fn an_empty_partition_has_ends_and_no_records() {
    assert_eq!(one(LATEST, &[]), (0, -1, 0, EPOCH));
    assert_eq!(one(EARLIEST, &[]), (0, -1, 0, EPOCH));
    assert_eq!(one(MAX_TIMESTAMP, &[]), NOTHING);
    assert_eq!(one(0, &[]), NOTHING);
}

#[test]
fn a_timestamp_leads_to_the_first_record_at_or_after_it() {
    for batches in [&[&[2, 4, 6, 8][..]][..], &[&[2][..], &[4], &[6], &[8]]] {
        let found: Vec<_> = (1..=9).map(|timestamp| one(timestamp, batches)).collect();
        let record = |offset: i64| (0, 2 + 2 * offset, offset, EPOCH);
        let expected = [0, 0, 1, 1, 2, 2, 3, 3].map(record).into_iter().chain([NOTHING]);
        assert_eq!(found, expected.collect::<Vec<_>>());
    }
    assert_eq!(one(4, &[&[9, 7, 5, 3]]), (0, 9, 0, EPOCH));
    assert_eq!(one(MAX_TIMESTAMP, &[&[2, 9], &[5]]), (0, 9, 1, EPOCH));
}

#[test]
fn epochs_are_told_from_version_4_on() {
    assert_eq!(ask(&request(vec![asked(0, LATEST)]), 3, &[&[&[1]]]), [(0, 0, -1, 1, -1)]);
    assert_eq!(ask(&request(vec![asked(0, LATEST)]), 4, &[&[&[1]]]), [(0, 0, -1, 1, EPOCH)]);
}

#[test]
fn a_partition_named_twice_is_refused_and_the_others_are_answered() {
    let mut request = request(vec![asked(0, LATEST), asked(1, LATEST), asked(0, EARLIEST)]);
    request.topics.push(ListOffsetsTopic { name: "t".into(), partitions: vec![asked(2, LATEST)] });
    let answer = ask(&request, 7, &[&[], &[], &[]]);
    assert_eq!(answer, [(0, 42, -1, -1, -1), (1, 0, -1, 0, EPOCH), (2, 0, -1, 0, EPOCH)]);
}

#[test]
fn the_leader_epoch_of_the_client_must_be_the_current_one() {
    let error = |current_leader_epoch| {
        let asked = ListOffsetsPartition { current_leader_epoch, ..asked(0, LATEST) };
        ask(&request(vec![asked]), 5, &[&[]])[0].1
    };
    assert_eq!(error(NO_EPOCH), 0);
    assert_eq!(error(EPOCH), 0);
    assert_eq!(error(EPOCH + 1), ErrorCode::UNKNOWN_LEADER_EPOCH.0);
    assert_eq!(error(-3), ErrorCode::FENCED_LEADER_EPOCH.0);
}

#[test]
fn what_is_not_there_is_unknown_and_an_unknown_isolation_level_refuses_all() {
    assert_eq!(ask(&request(vec![asked(7, LATEST)]), 5, &[&[]]), [(7, 3, -1, -1, -1)]);
    let refused = ListOffsetsRequest { isolation_level: 9, ..request(vec![asked(0, LATEST), asked(0, LATEST)]) };
    assert_eq!(ask(&refused, 5, &[&[]]), [(0, -1, -1, -1, -1); 2]);
}

#[test]
fn only_what_is_in_the_records_is_looked_for_on_a_reader_thread() {
    let timestamps =
        [0, 1, LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD, -7];
    assert_eq!(timestamps.map(is_in_records), [true, true, false, false, true, false, false, false, false]);
}

#[test]
fn a_search_that_waits_for_the_disk_holds_no_append_up() {
    let disk = Arc::new(SimDisk::new(0));
    let replicas = topic_on(&disk, &[&[&[2, 4]]]);
    let topics = replicas.topics();
    let partition = topics.by_name("t").unwrap().partition(0).unwrap();
    disk.hold(StepKind::Read);
    let mut lookup = Lookup { version: 11, bound: Bound::HighWatermark, decompressor: Decompressor::new(1 << 20) };
    let found = std::thread::scope(|scope| {
        let search = scope.spawn(|| lookup.find_record(4, partition));
        while disk.held(StepKind::Read) == 0 {
            std::thread::yield_now();
        }
        append(partition, &[6]);
        disk.release(StepKind::Read);
        search.join().unwrap()
    });
    assert_eq!(found, Ok(Some(TimestampOffset { timestamp: 4, offset: 1, leader_epoch: EPOCH })));
    assert_eq!(partition.high_watermark(), 3);
}
