use milena_protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use milena_protocol::messages::{OffsetCommitKey, OffsetCommitValue, OffsetDeleteRequest};
use milena_protocol::{Message, Reader};
use milena_records::{Batch, BatchBuilder, ControlType, end_transaction_marker};

use super::*;
use crate::records::Records;
use crate::transaction::Producer;

fn simple(offset: i64) -> OffsetCommitRequest<'static> {
    commit_request("", -1, "t", &[(0, offset, "md")])
}

#[test]
fn a_commit_is_one_batch_with_a_record_for_each_partition() {
    let mut bench = bench();
    let request = commit_request("", -1, "t", &[(0, 5, "md"), (2, 6, "too long for it"), (3, 7, "")]);
    let errors = commit(&mut bench, request, 8);
    assert_eq!(errors, [ErrorCode::NONE, ErrorCode::OFFSET_METADATA_TOO_LARGE, ErrorCode::NONE]);
    let batch = Batch::parse(&bench.log.batches[0]).unwrap();
    assert_eq!((bench.log.batches.len(), batch.count()), (1, 2));
    let record = batch.plain_records().unwrap().next().unwrap().unwrap();
    let key = OffsetCommitKey { group: "g".into(), topic: "t".into(), partition: 0 };
    assert_eq!(OffsetCommitKey::decode(&mut Reader::new(&record.key.unwrap()[2..]), 0), Ok(key));
    let value = OffsetCommitValue {
        offset: 5,
        leader_epoch: -1,
        metadata: "md".into(),
        commit_timestamp: 1_000_000,
        expire_timestamp: -1,
        topic_id: Uuid::ONE,
    };
    assert_eq!(record.value.unwrap()[..2], [0, 4]);
    assert_eq!(OffsetCommitValue::decode(&mut Reader::new(&record.value.unwrap()[2..]), 4), Ok(value));
    assert_eq!([0, 2, 3].map(|partition| fetch(&mut bench, partition)), [5, -1, 7]);
}

/// The end that is recorded of an offset whose client wants it kept for so long.
fn expire_timestamp(retention_time_ms: i64) -> i64 {
    let mut bench = bench();
    let request = OffsetCommitRequest { retention_time_ms, ..simple(5) };
    assert_eq!(commit(&mut bench, request, 2), [ErrorCode::NONE]);
    let batch = Batch::parse(&bench.log.batches[0]).unwrap();
    let record = batch.plain_records().unwrap().next().unwrap().unwrap();
    OffsetCommitValue::decode(&mut Reader::new(&record.value.unwrap()[2..]), 1).unwrap().expire_timestamp
}

#[test]
fn a_retention_beyond_all_times_ends_in_the_past_as_in_kafka() {
    assert_eq!(expire_timestamp(5000), 1_005_000);
    assert_eq!(expire_timestamp(i64::MAX), i64::MIN + 999_999);
    assert_eq!(expire_timestamp(i64::MIN), i64::MIN + 1_000_000);
}

#[test]
fn no_more_offsets_are_told_than_fit() {
    let mut bench = bench();
    assert_eq!(commit(&mut bench, commit_request("", -1, "t", &[(0, 5, "metadata")]), 8), [ErrorCode::NONE]);
    let mut ask = |times: usize, most_bytes: usize| {
        let topic = OffsetFetchRequestTopics {
            name: "t".into(),
            partition_indexes: vec![0; times].into(),
            ..Default::default()
        };
        let group = OffsetFetchRequestGroup { group_id: "g".into(), topics: Some(vec![topic]), ..Default::default() };
        match bench.ask(Request::Fetch { group, require_stable: false, most_bytes }) {
            Reply::Fetch(fetched) => (fetched.error, fetched.bytes()),
            other => panic!("{other:?}"),
        }
    };
    let (_, each) = ask(1, usize::MAX);
    assert!(each > 8);
    assert_eq!(ask(1000, 1000 * each), (ErrorCode::NONE, 1000 * each));
    assert_eq!(ask(1000, 1000 * each - 1), (ErrorCode::INVALID_REQUEST, 0));
}

#[test]
fn offsets_are_there_after_a_restart_and_the_last_commit_counts() {
    let mut bench = bench();
    for offset in [5, 9, 7] {
        assert_eq!(commit(&mut bench, simple(offset), 2), [ErrorCode::NONE]);
    }
    let mut bench = bench.restart();
    assert_eq!((fetch(&mut bench, 0), fetch_all(&mut bench, true)[0].1[0].metadata.as_str()), (7, "md"));
    let groups = bench.runtime.engine();
    assert_eq!((groups.replayed_commits(), groups.committed_keys(), groups.len()), (3, 1, 1));
}

#[test]
fn an_unknown_group_takes_offsets_only_of_those_who_are_no_members() {
    let mut bench = bench();
    let request = || commit_request("m", 1, "t", &[(0, 5, "")]);
    assert_eq!(commit(&mut bench, request(), 8), [ErrorCode::ILLEGAL_GENERATION]);
    assert_eq!(commit(&mut bench, request(), 9), [ErrorCode::GROUP_ID_NOT_FOUND]);
    assert_eq!(commit(&mut bench, simple(5), 9), [ErrorCode::NONE]);
    assert_eq!(state(&mut bench), "Empty");
    assert_eq!(commit(&mut bench, request(), 9), [ErrorCode::UNKNOWN_MEMBER_ID]);
}

#[test]
fn members_commit_in_their_generation_and_others_do_not() {
    let mut bench = bench();
    let member = stable(&mut bench);
    let mut by =
        |member: &str, generation| commit(&mut bench, commit_request(member, generation, "t", &[(0, 1, "")]), 8);
    assert_eq!(by(&member, 1), [ErrorCode::NONE]);
    assert_eq!(by(&member, 2), [ErrorCode::ILLEGAL_GENERATION]);
    assert_eq!(by("other", 1), [ErrorCode::UNKNOWN_MEMBER_ID]);
    assert_eq!(by("", -1), [ErrorCode::UNKNOWN_MEMBER_ID]);
}

#[test]
fn a_commit_that_can_not_be_written_is_refused_and_forgotten() {
    let mut bench = bench();
    bench.log.failure = Some(ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!(commit(&mut bench, simple(5), 8), [ErrorCode::NOT_COORDINATOR]);
    bench.log.failure = None;
    assert_eq!((fetch(&mut bench, 0), state(&mut bench).as_str()), (-1, "Dead"));
}

#[test]
fn offsets_of_a_simple_group_expire_after_their_commit() {
    let mut bench = bench();
    commit(&mut bench, simple(5), 8);
    bench.advance(600_000);
    assert_eq!(fetch(&mut bench, 0), 5);
    bench.advance(600_000);
    assert_eq!((fetch(&mut bench, 0), state(&mut bench).as_str()), (-1, "Dead"));
    let mut bench = bench.restart();
    assert_eq!((fetch(&mut bench, 0), bench.runtime.engine().len()), (-1, 0));
}

#[test]
fn a_retention_of_its_own_is_stored_and_obeyed() {
    let mut bench = bench();
    let request = OffsetCommitRequest { retention_time_ms: 10, ..simple(5) };
    commit(&mut bench, request, 4);
    let batch = Batch::parse(&bench.log.batches[0]).unwrap();
    assert_eq!(batch.plain_records().unwrap().next().unwrap().unwrap().value.unwrap()[..2], [0, 1]);
    let mut bench = bench.restart();
    assert_eq!(fetch(&mut bench, 0), 5);
    bench.advance(600_000);
    assert_eq!(fetch(&mut bench, 0), -1);
}

#[test]
fn offsets_of_a_group_with_members_stay_until_it_was_empty_for_long_enough() {
    let mut bench = bench();
    let member = stable(&mut bench);
    commit(&mut bench, commit_request(&member, 1, "t", &[(0, 5, "")]), 8);
    for _ in 0..400 {
        bench.advance(5_000);
        assert_eq!(heartbeat(&mut bench, &member, 1), ErrorCode::NONE);
    }
    assert_eq!(fetch(&mut bench, 0), 5);
    bench.advance(1_000_000);
    assert_eq!((fetch(&mut bench, 0), state(&mut bench).as_str()), (5, "Empty"));
    bench.advance(1_000_000);
    assert_eq!((fetch(&mut bench, 0), state(&mut bench).as_str()), (-1, "Dead"));
}

#[test]
fn the_offsets_of_a_deleted_topic_go() {
    let mut bench = bench();
    commit(&mut bench, simple(5), 8);
    commit(&mut bench, commit_request("", -1, "u", &[(0, 6, "")]), 8);
    assert_eq!(bench.ask(Request::TopicsDeleted(&["t".to_owned(), "v".to_owned()])), Reply::TopicsDeleted);
    let left = |bench: &mut Group| fetch_all(bench, false).into_iter().map(|(topic, _)| topic).collect::<Vec<_>>();
    assert_eq!(left(&mut bench), ["u"]);
    assert_eq!(left(&mut bench.restart()), ["u"]);
}

/// A batch of one offset as a transaction's.
fn pending(log: &TestLog, offset: i64) -> Vec<u8> {
    let mut records = Records::new(0, 1000).transactional(9, 0);
    let key = OffsetCommitKey { group: "g".into(), topic: "t".into(), partition: 0 };
    records.put(&key, &OffsetCommitValue { offset, ..Default::default() }, 4);
    let mut batch = records.finish().unwrap().remove(0);
    milena_records::BatchMut::parse(&mut batch).unwrap().set_base_offset(log.end_offset());
    batch
}

fn marker(log: &TestLog, kind: ControlType) -> Vec<u8> {
    let mut marker = BatchBuilder::new().producer(9, 0, -1).transactional(true).control(true);
    marker.push_control(0, kind, &end_transaction_marker(0));
    marker.base_offset(log.end_offset()).build().unwrap()
}

#[test]
fn offsets_of_a_transaction_count_from_its_commit_on() {
    for (kind, after) in [(ControlType::Commit, 8), (ControlType::Abort, 5)] {
        let mut bench = bench();
        commit(&mut bench, simple(5), 8);
        let batch = pending(&bench.log, 8);
        bench.log.batches.push(batch);
        let mut bench = bench.restart();
        assert_eq!(fetch(&mut bench, 0), 5);
        assert_eq!(fetch_all(&mut bench, true)[0].1[0].error, ErrorCode::UNSTABLE_OFFSET_COMMIT);
        let batch = marker(&bench.log, kind);
        bench.log.batches.push(batch);
        let mut bench = bench.restart();
        assert_eq!((fetch(&mut bench, 0), fetch_all(&mut bench, true)[0].1[0].error), (after, ErrorCode::NONE));
    }
}

fn commit_in_transaction(bench: &mut Group, request: OffsetCommitRequest<'_>) -> Vec<ErrorCode> {
    let producer = Producer { id: 9, epoch: 0 };
    match bench.ask(Request::CommitInTransaction { request, version: 5, producer }) {
        Reply::Commit(topics) => {
            topics.iter().flat_map(|topic| &topic.partitions).map(|partition| ErrorCode(partition.error_code)).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_commit_in_a_transaction_is_the_producers_batch_and_waits_for_its_marker() {
    for (committed, after) in [(true, 8), (false, 5)] {
        let mut bench = bench();
        commit(&mut bench, simple(5), 8);
        assert_eq!(commit_in_transaction(&mut bench, simple(8)), [ErrorCode::NONE]);
        let batch = Batch::parse(bench.log.batches.last().unwrap()).unwrap();
        let header = (batch.is_transactional(), batch.producer_id(), batch.producer_epoch(), batch.base_sequence());
        assert_eq!(header, (true, 9, 0, 0));
        assert_eq!(fetch(&mut bench, 0), 5);
        assert_eq!(fetch_all(&mut bench, true)[0].1[0].error, ErrorCode::UNSTABLE_OFFSET_COMMIT);
        let end = bench.log.end_offset() + 1;
        bench.runtime.transaction_ended(9, committed, end);
        let batch = marker(&bench.log, if committed { ControlType::Commit } else { ControlType::Abort });
        bench.log.batches.push(batch);
        bench.drive();
        assert_eq!((fetch(&mut bench, 0), fetch_all(&mut bench, true)[0].1[0].error), (after, ErrorCode::NONE));
    }
}

#[test]
fn who_commits_in_a_transaction_is_a_member_or_names_none() {
    let mut bench = bench();
    let member = stable(&mut bench);
    let mut ask = |member: &str, generation| {
        commit_in_transaction(&mut bench, commit_request(member, generation, "t", &[(0, 1, "")]))[0]
    };
    assert_eq!(ask("", -1), ErrorCode::NONE);
    assert_eq!(ask(&member, 1), ErrorCode::NONE);
    assert_eq!(ask(&member, 2), ErrorCode::ILLEGAL_GENERATION);
    assert_eq!(ask("stranger", 1), ErrorCode::UNKNOWN_MEMBER_ID);
    let mut other = super::bench();
    assert_eq!(
        commit_in_transaction(&mut other, commit_request("m", 3, "t", &[(0, 1, "")])),
        [ErrorCode::ILLEGAL_GENERATION]
    );
}

#[test]
fn an_older_offset_of_a_transaction_does_not_replace_a_newer_commit() {
    let mut bench = bench();
    let batch = pending(&bench.log, 8);
    bench.log.batches.push(batch);
    let mut bench = bench.restart();
    commit(&mut bench, simple(20), 8);
    let batch = marker(&bench.log, ControlType::Commit);
    bench.log.batches.push(batch);
    assert_eq!(fetch(&mut bench.restart(), 0), 20);
}

fn delete_offsets(bench: &mut Group, topic: &str) -> (ErrorCode, Vec<i16>) {
    let request = OffsetDeleteRequest {
        group_id: "g".into(),
        topics: vec![OffsetDeleteRequestTopic {
            name: topic.into(),
            partitions: vec![OffsetDeleteRequestPartition { partition_index: 0 }],
        }],
    };
    match bench.ask(Request::DeleteOffsets(request)) {
        Reply::DeleteOffsets(response) => {
            let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
            (ErrorCode(response.error_code), partitions.map(|partition| partition.error_code).collect())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn offsets_are_deleted_of_topics_that_nobody_reads() {
    let mut bench = bench();
    assert_eq!(delete_offsets(&mut bench, "t"), (ErrorCode::GROUP_ID_NOT_FOUND, vec![]));
    commit(&mut bench, simple(5), 8);
    assert_eq!(delete_offsets(&mut bench, "t"), (ErrorCode::NONE, vec![0]));
    assert_eq!(fetch(&mut bench, 0), -1);
    // The metadata of this member is no subscription, so it may read anything.
    stable(&mut bench);
    assert_eq!(delete_offsets(&mut bench, "t"), (ErrorCode::NONE, vec![ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC.0]));
}

#[test]
fn a_group_is_deleted_with_its_offsets_unless_it_has_members() {
    let mut bench = bench();
    let delete = |bench: &mut Group, id| match bench.ask(Request::Delete(id)) {
        Reply::Delete(deleted) => ErrorCode(deleted.error_code),
        other => panic!("{other:?}"),
    };
    let member = stable(&mut bench);
    commit(&mut bench, commit_request(&member, 1, "t", &[(0, 5, "")]), 8);
    assert_eq!(delete(&mut bench, "g"), ErrorCode::NON_EMPTY_GROUP);
    assert_eq!(delete(&mut bench, "h"), ErrorCode::GROUP_ID_NOT_FOUND);
    bench.advance(10_000);
    assert_eq!(delete(&mut bench, "g"), ErrorCode::NONE);
    assert_eq!(delete(&mut bench, "g"), ErrorCode::GROUP_ID_NOT_FOUND);
    let mut bench = bench.restart();
    assert_eq!((fetch(&mut bench, 0), state(&mut bench).as_str()), (-1, "Dead"));
}
