//! What the APIs of transactions are asked when there is a coordinator: each version has a producer of its own.

use milena_testkit::batch::Batch;
use milena_testkit::client::RawClient;
use serde_json::{Value, json};

use super::exchanges::{self, Exchange, GROUP};

/// The APIs that are asked more once there is a coordinator.
pub const APIS: [&str; 9] = [
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "WriteTxnMarkers",
    "TxnOffsetCommit",
    "DescribeProducers",
    "DescribeTransactions",
    "ListTransactions",
];

/// In a batch's attributes.
const TRANSACTIONAL: i16 = 0x10;

/// A version and its producer.
pub struct Stage<'a> {
    /// The version.
    pub version: i16,
    /// The id of the topic `t`.
    pub topic_id: &'a str,
    /// The transactional id.
    pub id: String,
    /// Id and epoch.
    pub producer: (i64, i16),
}

/// Makes the producer of a version, in its second epoch. Where it is to be ended or told of, it has a transaction over partition 1
/// of `t`.
pub fn producer(client: &mut RawClient, api: &str, version: i16) -> (String, (i64, i16)) {
    let id = format!("tx{version}");
    patiently(client, "FindCoordinator", 3, &json!({"key": id, "keyType": 1}));
    let body = json!({"transactionalId": id, "transactionTimeoutMs": 60000, "producerId": -1, "producerEpoch": -1});
    patiently(client, "InitProducerId", 4, &body);
    let given = patiently(client, "InitProducerId", 4, &body);
    let own = (given["producerId"].as_i64().unwrap(), given["producerEpoch"].as_i64().unwrap() as i16);
    assert_eq!(own.1, 1, "{given}");
    match api {
        "EndTxn" | "DescribeTransactions" | "ListTransactions" | "DescribeProducers" => {
            client.call("AddPartitionsToTxn", 3, &add(3, &id, own, "t", 1)).unwrap();
        }
        "TxnOffsetCommit" => {
            let offsets = json!({"transactionalId": id, "producerId": own.0, "producerEpoch": own.1, "groupId": GROUP});
            patiently(client, "AddOffsetsToTxn", 3, &offsets);
        }
        _ => {}
    }
    if api == "DescribeProducers" {
        let batch = Batch {
            producer_id: own.0,
            producer_epoch: own.1,
            base_sequence: 0,
            attributes: TRANSACTIONAL,
            ..Batch::of(2, exchanges::TIME)
        };
        let mut body = crate::common::requests::produce_request("t", 1, &batch.build());
        body["transactionalId"] = id.as_str().into();
        let answer = client.call("Produce", 9, &body).unwrap();
        assert_eq!(answer["responses"][0]["partitionResponses"][0]["errorCode"], 0, "{answer}");
    }
    (id, own)
}

/// Asks until the coordinator is there.
fn patiently(client: &mut RawClient, api: &str, version: i16, body: &Value) -> Value {
    loop {
        let answer = client.call(api, version, body).unwrap();
        // Loading, not available, not coordinator.
        if ![14, 15, 16].contains(&answer["errorCode"].as_i64().unwrap()) {
            assert_eq!(answer["errorCode"], 0, "{api}: {answer}");
            return answer;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// The requests of an API in one version, in order, each with what it shows.
pub fn of(api: &str, stage: &Stage<'_>) -> Vec<Exchange> {
    match api {
        "InitProducerId" => init(stage),
        "AddPartitionsToTxn" => add_partitions(stage),
        "AddOffsetsToTxn" => add_offsets(stage),
        "EndTxn" => end(stage),
        "WriteTxnMarkers" => markers(stage),
        "TxnOffsetCommit" => commit(stage),
        "DescribeProducers" => describe_producers(),
        "DescribeTransactions" => describe(stage),
        "ListTransactions" => list(stage),
        other => panic!("{other} has nothing to do with transactions"),
    }
}

/// The producer in the epoch before.
fn stale((id, epoch): (i64, i16)) -> (i64, i16) {
    (id, epoch - 1)
}

fn init(stage: &Stage<'_>) -> Vec<Exchange> {
    let ask = |(producer, epoch): (i64, i16), timeout: i32| {
        json!({
            "transactionalId": stage.id, "transactionTimeoutMs": timeout, "producerId": producer, "producerEpoch": epoch,
        })
    };
    let (id, epoch) = stage.producer;
    let mut all = vec![
        ("a producer of a transactional id", ask((-1, -1), 60000)),
        ("a timeout that is too long", ask((-1, -1), 900_001)),
    ];
    if stage.version >= 3 {
        all.push(("the producer itself", ask((id, epoch + 1), 60000)));
        all.push(("a producer that has a successor", ask((id, epoch), 60000)));
        all.push(("another producer", ask((id + 1000, 0), 60000)));
    }
    all
}

fn add(version: i16, id: &str, (producer, epoch): (i64, i16), topic: &str, partition: i32) -> Value {
    let topics = json!([{"name": topic, "partitions": [partition]}]);
    if version < 4 {
        return json!({
            "v3AndBelowTransactionalId": id, "v3AndBelowProducerId": producer, "v3AndBelowProducerEpoch": epoch,
            "v3AndBelowTopics": topics,
        });
    }
    let transaction = json!({
        "transactionalId": id, "producerId": producer, "producerEpoch": epoch, "verifyOnly": false, "topics": topics,
    });
    json!({"transactions": [transaction]})
}

fn add_partitions(stage: &Stage<'_>) -> Vec<Exchange> {
    let ask = |id: &str, own, topic: &str| add(stage.version, id, own, topic, 0);
    let mut all = vec![
        ("a partition", ask(&stage.id, stage.producer, "t")),
        ("a topic that does not exist", ask(&stage.id, stage.producer, "missing")),
        ("a producer that has a successor", ask(&stage.id, stale(stage.producer), "t")),
        ("another producer", ask(&stage.id, (1000, 0), "t")),
        ("a transactional id that does not exist", ask("missing", stage.producer, "t")),
    ];
    if stage.version >= 4 {
        for (title, partition) in [("verified only", 0), ("verified only, and not added", 1)] {
            let mut verify = add(stage.version, &stage.id, stage.producer, "t", partition);
            verify["transactions"][0]["verifyOnly"] = true.into();
            all.push((title, verify));
        }
    }
    all
}

fn add_offsets(stage: &Stage<'_>) -> Vec<Exchange> {
    let ask = |id: &str, (producer, epoch): (i64, i16)| json!({"transactionalId": id, "producerId": producer, "producerEpoch": epoch, "groupId": GROUP});
    vec![
        ("a group", ask(&stage.id, stage.producer)),
        ("a producer that has a successor", ask(&stage.id, stale(stage.producer))),
        ("another producer", ask(&stage.id, (1000, 0))),
        ("a transactional id that does not exist", ask("missing", stage.producer)),
    ]
}

fn end(stage: &Stage<'_>) -> Vec<Exchange> {
    let ask = |id: &str, (producer, epoch): (i64, i16), committed: bool| json!({"transactionalId": id, "producerId": producer, "producerEpoch": epoch, "committed": committed});
    vec![
        ("a producer that has a successor", ask(&stage.id, stale(stage.producer), true)),
        ("another producer", ask(&stage.id, (1000, 0), true)),
        ("a transactional id that does not exist", ask("missing", stage.producer, true)),
        ("an end", ask(&stage.id, stage.producer, stage.version % 2 == 0)),
    ]
}

fn markers(stage: &Stage<'_>) -> Vec<Exchange> {
    let ask = |(producer, epoch): (i64, i16), coordinator: i32, partitions: &[i32]| {
        let topics = json!([{"name": "t", "partitionIndexes": partitions}]);
        json!({"markers": [{
            "producerId": producer, "producerEpoch": epoch, "transactionResult": true, "coordinatorEpoch": coordinator,
            "transactionVersion": 2, "topics": topics,
        }]})
    };
    vec![
        ("a marker", ask(stage.producer, 1, &[0])),
        ("an older producer", ask(stale(stage.producer), 1, &[0])),
        ("an older coordinator", ask(stage.producer, 0, &[0])),
        ("a partition that does not exist", ask(stage.producer, 1, &[9])),
    ]
}

fn commit(stage: &Stage<'_>) -> Vec<Exchange> {
    let ask = |(producer, epoch): (i64, i16), partition: i32, generation: i32| {
        let mut body = exchanges::commit(GROUP, "t", stage.topic_id, partition, generation);
        body["transactionalId"] = stage.id.as_str().into();
        (body["producerId"], body["producerEpoch"]) = (producer.into(), epoch.into());
        body
    };
    let mut all = vec![
        ("an offset", ask(stage.producer, 0, -1)),
        ("a partition that does not exist", ask(stage.producer, 9, -1)),
        ("a producer that has a successor", ask(stale(stage.producer), 0, -1)),
    ];
    if stage.version >= 3 {
        all.push(("in a generation that does not exist", ask(stage.producer, 0, 3)));
    }
    all
}

fn describe_producers() -> Vec<Exchange> {
    let ask = |topic: &str, partition: i32| json!({"topics": [{"name": topic, "partitionIndexes": [partition]}]});
    vec![
        ("a partition with an open transaction", ask("t", 1)),
        ("a partition without producers", ask("t", 0)),
        ("a partition that does not exist", ask("t", 9)),
        ("a topic that does not exist", ask("missing", 0)),
    ]
}

fn describe(stage: &Stage<'_>) -> Vec<Exchange> {
    vec![
        ("an open transaction", json!({"transactionalIds": [stage.id]})),
        ("a transactional id that does not exist", json!({"transactionalIds": ["missing"]})),
        ("an empty transactional id", json!({"transactionalIds": [""]})),
    ]
}

fn list(stage: &Stage<'_>) -> Vec<Exchange> {
    let ask = |states: &[&str], producer: i64| json!({"stateFilters": states, "producerIdFilters": [producer]});
    let mut all = vec![
        ("of a producer", ask(&[], stage.producer.0)),
        ("of a producer, in a state", ask(&["Ongoing"], stage.producer.0)),
        ("of a producer, in another state", ask(&["Empty", "Nonsense"], stage.producer.0)),
    ];
    for (title, pattern) in [("by a pattern", "tx[0-9]"), ("by a pattern that is none", "[")] {
        if stage.version >= 2 {
            let mut body = ask(&[], stage.producer.0);
            (body["durationFilter"], body["transactionalIdPattern"]) = ((-1).into(), pattern.into());
            all.push((title, body));
        }
    }
    all
}
