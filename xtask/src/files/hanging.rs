//! Transactions for Kafka's tool that looks for those that hang: one that is open, and one that no coordinator knows of, as a
//! batch that came late left them behind before partitions were verified.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};
use milena_testkit::batch::Batch;
use milena_testkit::client::RawClient;
use milena_testkit::server::Server;
use milena_testkit::wire;
use serde_json::{Value, json};

const TOPIC: &str = "hung";
/// In a batch's attributes.
const TRANSACTIONAL: i16 = 0x10;
/// So old are the batches: transactions are over by then.
const AGE_MS: i64 = 3_600_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// Leaves the transactions behind: the open one in partition 0, of the transactional id `open`, the hanging one in partition 1, of
/// `hanging`.
pub(super) fn leave(server: &Server) -> Result<()> {
    let mut client = server.client()?;
    let topic = json!({"name": TOPIC, "numPartitions": 2, "replicationFactor": 1});
    client.call("CreateTopics", 7, &json!({"topics": [topic], "timeoutMs": 30000}))?;
    let open = producer(&mut client, "open")?;
    let topics = json!([{"name": TOPIC, "partitions": [0]}]);
    let add = json!({
        "v3AndBelowTransactionalId": "open", "v3AndBelowProducerId": open.0, "v3AndBelowProducerEpoch": open.1,
        "v3AndBelowTopics": topics,
    });
    client.call("AddPartitionsToTxn", 3, &add)?;
    send(&mut client, "open", open, 0)?;
    let hanging = producer(&mut client, "hanging")?;
    verify(&mut client, "false")?;
    send(&mut client, "hanging", hanging, 1)?;
    verify(&mut client, "true")
}

/// Asks until `done` likes the answer.
fn until(
    client: &mut RawClient,
    api: &str,
    version: i16,
    body: &Value,
    done: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = client.call(api, version, body)?;
        if done(&answer) {
            return Ok(answer);
        }
        if Instant::now() > end {
            bail!("{api}: {answer}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn producer(client: &mut RawClient, id: &str) -> Result<(i64, i16)> {
    let fine = |answer: &Value| answer["errorCode"] == 0;
    until(client, "FindCoordinator", 3, &json!({"key": id, "keyType": 1}), fine)?;
    let body = json!({"transactionalId": id, "transactionTimeoutMs": 900_000, "producerId": -1, "producerEpoch": -1});
    let answer = until(client, "InitProducerId", 4, &body, fine)?;
    Ok((answer["producerId"].as_i64().unwrap_or(-1), i16::try_from(answer["producerEpoch"].as_i64().unwrap_or(-1))?))
}

fn send(client: &mut RawClient, id: &str, (producer, epoch): (i64, i16), partition: i32) -> Result<()> {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    let batch = Batch {
        producer_id: producer,
        producer_epoch: epoch,
        base_sequence: 0,
        attributes: TRANSACTIONAL,
        ..Batch::of(3, now - AGE_MS)
    };
    let partition = json!({"index": partition, "records": wire::base64(&batch.build())});
    let topic = json!({"name": TOPIC, "partitionData": [partition]});
    let body = json!({"transactionalId": id, "acks": -1, "timeoutMs": 10000, "topicData": [topic]});
    let fine = |answer: &Value| answer["responses"][0]["partitionResponses"][0]["errorCode"] == 0;
    until(client, "Produce", 9, &body, fine).map(drop)
}

/// Sets whether partitions are verified, and waits until the broker does so.
fn verify(client: &mut RawClient, value: &str) -> Result<()> {
    let name = "transaction.partition.verification.enable";
    let config = json!({"name": name, "configOperation": 0, "value": value});
    let resource = json!({"resourceType": 4, "resourceName": "", "configs": [config]});
    let answer = client.call("IncrementalAlterConfigs", 1, &json!({"resources": [resource]}))?;
    ensure!(answer["responses"][0]["errorCode"] == 0, "{answer}");
    let resource = json!({"resourceType": 4, "resourceName": "1", "configurationKeys": [name]});
    let is_set = |answer: &Value| answer["results"][0]["configs"][0]["value"] == value;
    until(client, "DescribeConfigs", 4, &json!({"resources": [resource]}), is_set).map(drop)
}
