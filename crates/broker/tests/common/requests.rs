//! The requests that many tests need, each with its answer.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use milena_testkit::batch::Stored;
use milena_testkit::client::RawClient;
use serde_json::{Value, json};

/// Creates a topic and gives its id.
pub fn create_topic(client: &mut RawClient, name: &str, partitions: i32, configs: &[(&str, &str)]) -> String {
    let configs: Vec<_> = configs.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    let topic = json!({"name": name, "numPartitions": partitions, "replicationFactor": 1, "configs": configs});
    let answer = client.call("CreateTopics", 7, &json!({"topics": [topic]})).unwrap();
    assert_eq!(answer["topics"][0]["errorCode"], 0, "{answer}");
    answer["topics"][0]["topicId"].as_str().unwrap().to_owned()
}

/// Deletes a topic.
pub fn delete_topic(client: &mut RawClient, name: &str) {
    let answer = client.call("DeleteTopics", 5, &json!({"topicNames": [name], "timeoutMs": 30000})).unwrap();
    assert_eq!(answer["responses"][0]["errorCode"], 0, "{answer}");
}

/// A topic's entry in the metadata.
pub fn metadata(client: &mut RawClient, name: &str) -> Value {
    let body = json!({"topics": [{"name": name}], "allowAutoTopicCreation": false});
    client.call("Metadata", 12, &body).unwrap()["topics"][0].take()
}

/// A Produce request of one batch with acks=all.
pub fn produce_request(topic: &str, partition: i32, batch: &[u8]) -> Value {
    let data = json!({"index": partition, "records": STANDARD.encode(batch)});
    json!({"acks": -1, "timeoutMs": 30000, "topicData": [{"name": topic, "partitionData": [data]}]})
}

/// Produces with acks=all; the partition's answer.
pub fn produce(client: &mut RawClient, topic: &str, partition: i32, batch: &[u8]) -> Value {
    let mut answer = client.call("Produce", 9, &produce_request(topic, partition, batch)).unwrap();
    answer["responses"][0]["partitionResponses"][0].take()
}

/// A Fetch request of one partition, outside a session, that does not wait. It has the topic's name and its id; each
/// version takes what it knows.
pub fn fetch_request(topic: &str, topic_id: &str, partition: i32, offset: i64) -> Value {
    let partition = json!({"partition": partition, "fetchOffset": offset, "partitionMaxBytes": 1 << 20});
    let topic = json!({"topic": topic, "topicId": topic_id, "partitions": [partition]});
    json!({"maxWaitMs": 0, "minBytes": 0, "maxBytes": 1 << 20, "topics": [topic]})
}

/// A fetch by name; the partition's answer.
pub fn fetch(client: &mut RawClient, topic: &str, partition: i32, offset: i64) -> Value {
    let mut body = fetch_request(topic, "", partition, offset);
    body["topics"][0].as_object_mut().unwrap().remove("topicId");
    client.call("Fetch", 12, &body).unwrap()["responses"][0]["partitions"][0].take()
}

/// The batches of a partition from its first offset to its high watermark.
pub fn fetch_all(client: &mut RawClient, topic: &str, partition: i32) -> Vec<u8> {
    let (mut all, mut next) = (Vec::new(), 0);
    loop {
        let answer = fetch(client, topic, partition, next);
        assert_eq!(answer["errorCode"], 0, "{topic}-{partition} from {next}: {answer}");
        let bytes = STANDARD.decode(answer["records"].as_str().unwrap_or_default()).unwrap();
        // The last batch may be cut off.
        let batches = Stored::split(&bytes).unwrap();
        let Some(last) = batches.last() else {
            assert_eq!(answer["highWatermark"], next, "{topic}-{partition}");
            return all;
        };
        next = next_offset(last);
        batches.iter().for_each(|batch| all.extend_from_slice(batch.bytes()));
    }
}

/// The offset after a batch.
fn next_offset(batch: &Stored<'_>) -> i64 {
    batch.base_offset() + i64::from(batch.last_offset_delta()) + 1
}
