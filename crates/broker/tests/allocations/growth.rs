//! What clients leave behind when they are gone: nothing. Bytes that live are counted, so an hour of load is as good as a minute.

use milena_testkit::batch::{Batch, Codec};
use milena_testkit::client::RawClient;
use milena_testkit::wire;
use serde_json::{Value, json};
use stats_alloc::Region;

use crate::common::Node;
use crate::common::requests::{create_topic, delete_topic};
use crate::{MEMORY, TIME, alone};

/// Lives before any that count, and those that count at once.
const WARM_UP: usize = 60;
const LIVES: usize = 60;
/// Bytes that a life may leave on average, at most: each one adds records to internal topics, which have index entries.
const MOST_BYTES: isize = 256;

/// Loading, not available, not coordinator, concurrent transactions: what passes.
const PASSING: [i64; 4] = [14, 15, 16, 51];

/// Asks until the answer is no error that passes, and demands that it is none at all.
fn ask(client: &mut RawClient, api: &str, version: i16, body: &Value) -> Value {
    loop {
        let answer = client.call(api, version, body).unwrap();
        match answer["errorCode"].as_i64().unwrap_or(0) {
            0 => return answer,
            error => assert!(PASSING.contains(&error), "{api}: {answer}"),
        }
        std::thread::yield_now();
    }
}

/// A producer with a transactional id fills a partition of the topic in one transaction.
fn produce(client: &mut RawClient, topic: &str) {
    ask(client, "FindCoordinator", 3, &json!({"key": topic, "keyType": 1}));
    let body = json!({"transactionalId": "x", "transactionTimeoutMs": 60000, "producerId": -1, "producerEpoch": -1});
    let producer = ask(client, "InitProducerId", 4, &body);
    let (id, epoch) = (producer["producerId"].as_i64().unwrap(), producer["producerEpoch"].as_i64().unwrap());
    for sequence in (0..).step_by(10).take(20) {
        let batch = Batch {
            producer_id: id,
            producer_epoch: epoch as i16,
            base_sequence: sequence,
            attributes: 0x10,
            ..Batch::of(10, TIME).with(Codec::Lz4)
        };
        let partition = json!({"index": 0, "records": wire::base64(&batch.build())});
        let topics = json!([{"name": topic, "partitionData": [partition]}]);
        let body = json!({"transactionalId": "x", "acks": -1, "timeoutMs": 10000, "topicData": topics});
        let answer = client.call("Produce", 12, &body).unwrap();
        assert_eq!(answer["responses"][0]["partitionResponses"][0]["errorCode"], 0, "{answer}");
    }
    let end = json!({"transactionalId": "x", "producerId": id, "producerEpoch": epoch, "committed": true});
    ask(client, "EndTxn", 5, &end);
}

/// A member of a group of its own reads the topic in a fetch session, commits, and leaves; its group is deleted.
fn consume(client: &mut RawClient, topic: &str, session_is_closed: bool) {
    ask(client, "FindCoordinator", 3, &json!({"key": topic, "keyType": 0}));
    let mut join = json!({
        "groupId": topic, "sessionTimeoutMs": 30_000, "rebalanceTimeoutMs": 30_000, "memberId": "",
        "protocolType": "consumer", "protocols": [{"name": "range", "metadata": ""}],
    });
    let member = client.call("JoinGroup", 5, &join).unwrap()["memberId"].take();
    join["memberId"] = member.clone();
    let generation = ask(client, "JoinGroup", 5, &join)["generationId"].take();
    let sync = json!({"groupId": topic, "generationId": generation, "memberId": member, "assignments": [{"memberId": member, "assignment": ""}]});
    ask(client, "SyncGroup", 3, &sync);
    ask(client, "Heartbeat", 3, &json!({"groupId": topic, "generationId": generation, "memberId": member}));
    let partitions: Vec<_> = (0..3).map(|index| json!({"partition": index, "partitionMaxBytes": 1 << 20})).collect();
    let mut fetch = json!({"maxWaitMs": 0, "minBytes": 0, "maxBytes": 1 << 20, "isolationLevel": 1, "sessionId": 0, "sessionEpoch": 0});
    fetch["topics"] = json!([{"topic": topic, "partitions": partitions}]);
    let session = ask(client, "Fetch", 12, &fetch)["sessionId"].take();
    if session_is_closed {
        fetch = json!({"maxWaitMs": 0, "minBytes": 0, "maxBytes": 1 << 20, "sessionId": session, "sessionEpoch": -1, "topics": []});
        ask(client, "Fetch", 12, &fetch);
    }
    let committed = json!([{"partitionIndex": 0, "committedOffset": 201, "committedMetadata": "done"}]);
    let commit = json!({"groupId": topic, "generationIdOrMemberEpoch": generation, "memberId": member, "topics": [{"name": topic, "partitions": committed}]});
    ask(client, "OffsetCommit", 8, &commit);
    ask(client, "LeaveGroup", 3, &json!({"groupId": topic, "members": [{"memberId": member}]}));
    let deleted = client.call("DeleteGroups", 2, &json!({"groupsNames": [topic]})).unwrap();
    assert_eq!(deleted["results"][0]["errorCode"], 0, "{deleted}");
}

/// The whole life of an application: its topic, its records, its group, and their end.
fn live(node: &Node, number: usize) {
    let mut client = node.client();
    ask(&mut client, "ApiVersions", 3, &json!({"clientSoftwareName": "c", "clientSoftwareVersion": "1"}));
    let topic = format!("topic-{number}");
    create_topic(&mut client, &topic, 3, &[]);
    ask(&mut client, "Metadata", 12, &json!({"topics": [{"name": topic}]}));
    produce(&mut client, &topic);
    consume(&mut node.client(), &topic, number.is_multiple_of(2));
    delete_topic(&mut client, &topic);
}

#[test]
fn applications_that_come_and_go_leave_nothing_in_memory() {
    let _alone = alone();
    let node = Node::start_with(&[
        "log.segment.delete.delay.ms=0",
        "max.incremental.fetch.session.cache.slots=10",
        "min.incremental.fetch.session.eviction.ms=0",
        "offsets.topic.num.partitions=2",
        "transaction.state.log.num.partitions=2",
        "group.initial.rebalance.delay.ms=0",
    ]);
    let mut number = 0;
    let mut lives = |count| {
        for _ in 0..count {
            live(&node, number);
            number += 1;
        }
    };
    lives(WARM_UP);
    let region = Region::new(MEMORY);
    lives(LIVES);
    let change = region.change();
    let grown = change.bytes_allocated as isize - change.bytes_deallocated as isize;
    let objects = change.allocations as isize - change.deallocations as isize;
    println!("{grown} bytes in {objects} objects after {LIVES} lives");
    assert!(grown < MOST_BYTES * LIVES as isize, "{grown} bytes in {objects} objects after {LIVES} lives");
}
