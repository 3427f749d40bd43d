//! Transactions of a whole broker: what readers see, and what a kill leaves.

use milena_testkit::batch::Batch;
use milena_testkit::client::RawClient;
use milena_testkit::wire;
use serde_json::{Value, json};

use crate::common::child::Process;
use crate::common::requests::{create_topic, fetch_request};
use crate::common::{Node, TempDir, format_directory};

const TRANSACTIONAL: i16 = 0x10;
const TIME: i64 = 1_700_000_000_000;

/// Id and epoch.
type Producer = (i64, i64);

/// Asks until the coordinator is there and not busy with the transactional id.
fn patiently(client: &mut RawClient, api: &str, version: i16, body: &Value) -> Value {
    loop {
        let answer = client.call(api, version, body).unwrap();
        // Loading, not available, not coordinator, concurrent transactions.
        if ![14, 15, 16, 51].contains(&answer["errorCode"].as_i64().unwrap()) {
            return answer;
        }
        std::thread::yield_now();
    }
}

fn init(client: &mut RawClient) -> Producer {
    patiently(client, "FindCoordinator", 3, &json!({"key": "x", "keyType": 1}));
    let body = json!({"transactionalId": "x", "transactionTimeoutMs": 60000, "producerId": -1, "producerEpoch": -1});
    producer(&patiently(client, "InitProducerId", 4, &body))
}

fn producer(answer: &Value) -> Producer {
    assert_eq!(answer["errorCode"], 0, "{answer}");
    (answer["producerId"].as_i64().unwrap(), answer["producerEpoch"].as_i64().unwrap())
}

/// Produces one batch of one record in the transaction; the error code.
fn send(client: &mut RawClient, version: i16, (id, epoch): Producer, sequence: i32, partition: i32) -> i64 {
    let batch = Batch {
        producer_id: id,
        producer_epoch: epoch as i16,
        base_sequence: sequence,
        attributes: TRANSACTIONAL,
        ..Batch::of(1, TIME)
    };
    let partition = json!({"index": partition, "records": wire::base64(&batch.build())});
    let topic = json!({"name": "t", "partitionData": [partition]});
    let body = json!({"transactionalId": "x", "acks": -1, "timeoutMs": 10000, "topicData": [topic]});
    let answer = client.call("Produce", version, &body).unwrap();
    answer["responses"][0]["partitionResponses"][0]["errorCode"].as_i64().unwrap()
}

fn end(client: &mut RawClient, (id, epoch): Producer, committed: bool) -> Value {
    let body = json!({"transactionalId": "x", "producerId": id, "producerEpoch": epoch, "committed": committed});
    client.call("EndTxn", 5, &body).unwrap()
}

/// High watermark, last stable offset, first offsets of aborted transactions, and whether there are records, for a reader of
/// committed records from `offset` on.
fn view(client: &mut RawClient, partition: i32, offset: i64) -> (i64, i64, Vec<i64>, bool) {
    let mut body = fetch_request("t", "", partition, offset);
    body["isolationLevel"] = 1.into();
    body["maxWaitMs"] = 0.into();
    let answer = client.call("Fetch", 12, &body).unwrap();
    let partition = &answer["responses"][0]["partitions"][0];
    assert_eq!(partition["errorCode"], 0, "{answer}");
    let aborted = partition["abortedTransactions"].as_array().unwrap().iter();
    (
        partition["highWatermark"].as_i64().unwrap(),
        partition["lastStableOffset"].as_i64().unwrap(),
        aborted.map(|aborted| aborted["firstOffset"].as_i64().unwrap()).collect(),
        !partition["records"].as_str().unwrap_or_default().is_empty(),
    )
}

fn state(client: &mut RawClient) -> String {
    let answer = client.call("DescribeTransactions", 0, &json!({"transactionalIds": ["x"]})).unwrap();
    answer["transactionStates"][0]["transactionState"].as_str().unwrap().to_owned()
}

#[test]
fn readers_of_committed_records_wait_for_the_end_and_learn_what_was_aborted() {
    let node = Node::start();
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[]);
    let first = init(&mut client);
    assert_eq!(send(&mut client, 12, first, 0, 0), 0);
    assert_eq!(view(&mut client, 0, 0), (1, 0, vec![], false));
    let second = producer(&end(&mut client, first, false));
    assert_eq!(view(&mut client, 0, 0), (2, 2, vec![0], true));
    assert_eq!(send(&mut client, 12, second, 0, 0), 0);
    producer(&end(&mut client, second, true));
    assert_eq!(view(&mut client, 0, 2), (4, 4, vec![], true));
    assert_eq!(send(&mut client, 12, first, 1, 0), 47, "its epoch is over");
}

#[test]
fn older_clients_add_partitions_themselves() {
    let node = Node::start();
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[]);
    let producer = init(&mut client);
    assert_eq!([9, 11].map(|version| send(&mut client, version, producer, 0, 0)), [48, 120]);
    let topics = json!([{"name": "t", "partitions": [0]}]);
    let body = json!({
        "v3AndBelowTransactionalId": "x", "v3AndBelowProducerId": producer.0,
        "v3AndBelowProducerEpoch": producer.1, "v3AndBelowTopics": topics,
    });
    client.call("AddPartitionsToTxn", 3, &body).unwrap();
    assert_eq!(send(&mut client, 9, producer, 0, 0), 0);
}

#[test]
fn a_transaction_goes_on_after_a_kill_and_its_decision_is_carried_out() {
    let dir = TempDir::with_prefix("milena-transactions-").unwrap();
    let data = dir.path().join("data");
    format_directory(&data);
    let process = Process::start(&data);
    let mut client = process.client();
    create_topic(&mut client, "t", 2, &[]);
    let first = init(&mut client);
    assert_eq!(send(&mut client, 12, first, 0, 0), 0);
    process.kill();
    let process = Process::start(&data);
    let mut client = process.client();
    init_is_loaded(&mut client);
    assert_eq!((state(&mut client).as_str(), view(&mut client, 0, 0).1), ("Ongoing", 0));
    assert_eq!(send(&mut client, 12, first, 0, 1), 0);
    let second = producer(&end(&mut client, first, true));
    process.kill();
    let node = Node::on(dir);
    let mut client = node.client();
    init_is_loaded(&mut client);
    assert_eq!(state(&mut client), "CompleteCommit");
    assert_eq!([0, 1].map(|partition| view(&mut client, partition, 0)), [(2, 2, vec![], true), (2, 2, vec![], true)]);
    assert_eq!(producer(&end(&mut client, first, true)), second, "the same end again");
}

/// Waits until the coordinator has read its log.
fn init_is_loaded(client: &mut RawClient) {
    loop {
        let answer = client.call("DescribeTransactions", 0, &json!({"transactionalIds": ["x"]})).unwrap();
        if answer["transactionStates"][0]["errorCode"] == 0 {
            return;
        }
        std::thread::yield_now();
    }
}

#[test]
fn where_every_record_is_flushed_a_transaction_is_complete_when_its_markers_are() {
    let node = Node::start_with(&["log.flush.interval.messages=1"]);
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[]);
    let first = init(&mut client);
    // The coordinator's own record waits for a flush.
    while send(&mut client, 12, first, 0, 0) == 51 {}
    producer(&end(&mut client, first, true));
    while state(&mut client) != "CompleteCommit" {}
    assert_eq!(view(&mut client, 0, 0), (2, 2, vec![], true));
}

/// Waits until the transaction is complete.
fn wait_complete(client: &mut RawClient) -> String {
    loop {
        let state = state(client);
        if state.starts_with("Complete") {
            return state;
        }
        std::thread::yield_now();
    }
}

/// An old client's AddPartitionsToTxn of a partition of a topic; the error code.
fn add(client: &mut RawClient, (id, epoch): Producer, topic: &str, partition: i32) -> i64 {
    let body = json!({
        "v3AndBelowTransactionalId": "x", "v3AndBelowProducerId": id, "v3AndBelowProducerEpoch": epoch,
        "v3AndBelowTopics": [{"name": topic, "partitions": [partition]}],
    });
    let answer = client.call("AddPartitionsToTxn", 3, &body).unwrap();
    answer["resultsByTopicV3AndBelow"][0]["resultsByPartition"][0]["partitionErrorCode"].as_i64().unwrap()
}

#[test]
fn a_topic_that_is_deleted_holds_up_no_transaction_also_when_there_is_a_new_one_of_its_name() {
    for is_made_again in [false, true] {
        let node = Node::start();
        let mut client = node.client();
        create_topic(&mut client, "t", 1, &[]);
        create_topic(&mut client, "gone", 1, &[]);
        let producer = init(&mut client);
        assert_eq!([add(&mut client, producer, "gone", 0), send(&mut client, 12, producer, 0, 0)], [0, 0]);
        client.call("DeleteTopics", 5, &json!({"topicNames": ["gone"], "timeoutMs": 30000})).unwrap();
        if is_made_again {
            create_topic(&mut client, "gone", 1, &[]);
        }
        assert_eq!(end(&mut client, producer, true)["errorCode"], 0);
        assert_eq!(wait_complete(&mut client), "CompleteCommit");
        assert_eq!(view(&mut client, 0, 0), (2, 2, vec![], true));
    }
}

#[test]
fn a_transaction_that_takes_too_long_is_aborted_at_the_next_look_and_its_producer_fenced() {
    let node = Node::start_with(&["transaction.abort.timed.out.transaction.cleanup.interval.ms=20"]);
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[]);
    init(&mut client);
    let body = json!({"transactionalId": "x", "transactionTimeoutMs": 500, "producerId": -1, "producerEpoch": -1});
    let producer = producer(&patiently(&mut client, "InitProducerId", 4, &body));
    assert_eq!(send(&mut client, 12, producer, 0, 0), 0);
    assert_eq!(wait_complete(&mut client), "CompleteAbort");
    assert_eq!(view(&mut client, 0, 0), (2, 2, vec![0], true));
    assert_eq!(
        [end(&mut client, producer, true)["errorCode"].as_i64(), Some(send(&mut client, 12, producer, 1, 0))],
        [Some(48), Some(47)]
    );
}

#[test]
fn a_transactional_id_that_rests_for_too_long_is_forgotten() {
    let settings =
        ["transactional.id.expiration.ms=1", "transaction.remove.expired.transaction.cleanup.interval.ms=20"];
    let node = Node::start_with(&settings);
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[]);
    let first = init(&mut client);
    let error = |client: &mut RawClient| {
        let answer = client.call("DescribeTransactions", 0, &json!({"transactionalIds": ["x"]})).unwrap();
        answer["transactionStates"][0]["errorCode"].as_i64().unwrap()
    };
    while error(&mut client) != 105 {}
    assert_eq!([add(&mut client, first, "t", 0), send(&mut client, 12, first, 0, 0)], [49, 49]);
    let second = init(&mut client);
    assert!(second.0 > first.0 && second.1 == 0, "{second:?} after {first:?}");
}

#[test]
fn without_verification_older_clients_may_write_what_they_did_not_add() {
    let node = Node::start_with(&["transaction.partition.verification.enable=false"]);
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[]);
    let producer = init(&mut client);
    assert_eq!(send(&mut client, 9, producer, 0, 0), 0);
    // Nobody knows of that transaction: it hangs until somebody writes its marker.
    assert_eq!((state(&mut client).as_str(), view(&mut client, 0, 0).1), ("Empty", 0));
    let marker = json!({
        "producerId": producer.0, "producerEpoch": producer.1, "transactionResult": false, "coordinatorEpoch": 0,
        "topics": [{"name": "t", "partitionIndexes": [0]}],
    });
    let answer = client.call("WriteTxnMarkers", 1, &json!({"markers": [marker]})).unwrap();
    assert_eq!(answer["markers"][0]["topics"][0]["partitions"][0]["errorCode"], 0, "{answer}");
    assert_eq!(view(&mut client, 0, 0), (2, 2, vec![0], true));
}

#[test]
fn versions_that_are_not_final_are_served_where_they_are_asked_for() {
    let body = |two_phases: bool, keep: bool| {
        json!({
            "transactionalId": "x", "transactionTimeoutMs": 60000, "producerId": -1, "producerEpoch": -1,
            "enable2Pc": two_phases, "keepPreparedTxn": keep,
        })
    };
    let node = Node::start();
    init(&mut node.client());
    assert!(node.client().call("InitProducerId", 6, &body(false, false)).is_err(), "the connection is closed");
    let settings = ["unstable.api.versions.enable=true", "transaction.two.phase.commit.enable=true"];
    for (settings, expected) in [(&settings[..1], [0, 53, 35]), (&settings[..], [0, 0, 35])] {
        let node = Node::start_with(settings);
        let mut client = node.client();
        init(&mut client);
        let apis =
            client.call("ApiVersions", 3, &json!({"clientSoftwareName": "c", "clientSoftwareVersion": "1"})).unwrap();
        let newest =
            apis["apiKeys"].as_array().unwrap().iter().find(|api| api["apiKey"] == 22).unwrap()["maxVersion"].clone();
        assert_eq!(newest, 6);
        let mut ask = |two_phases, keep| {
            let answer = client.call("InitProducerId", 6, &body(two_phases, keep)).unwrap();
            assert_eq!((&answer["ongoingTxnProducerId"], &answer["ongoingTxnProducerEpoch"]), (&json!(-1), &json!(-1)));
            answer["errorCode"].as_i64().unwrap()
        };
        assert_eq!([ask(false, false), ask(true, false), ask(false, true)], expected);
    }
}

#[test]
fn a_partition_that_is_named_again_gets_a_marker_once() {
    let node = Node::start();
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[]);
    let topic = json!({"name": "t", "partitionIndexes": [0, 0, 0]});
    let marker = json!({
        "producerId": 77, "producerEpoch": 0, "transactionResult": true, "coordinatorEpoch": 0, "topics": [topic, topic],
    });
    let answer = client.call("WriteTxnMarkers", 1, &json!({"markers": [marker]})).unwrap();
    let partitions = json!([{"partitionIndex": 0, "errorCode": 0}]);
    assert_eq!(answer["markers"][0]["topics"], json!([{"name": "t", "partitions": partitions}]));
    let partitions = json!([{"partitionIndex": 0, "timestamp": -1}]);
    let body = json!({"replicaId": -1, "topics": [{"name": "t", "partitions": partitions}]});
    let answer = client.call("ListOffsets", 2, &body).unwrap();
    assert_eq!(answer["topics"][0]["partitions"][0]["offset"], 1, "{answer}");
}
