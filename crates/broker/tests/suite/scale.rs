//! Many partitions: one client's large answers do not take the broker's memory.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use milena_testkit::batch::{Batch, Record, Stored};
use serde_json::json;

use crate::common::child::Process;
use crate::common::requests::create_topic;
use crate::common::{TempDir, format_directory};

const PARTITIONS: i32 = 1_000;
const VALUE: usize = 100_000;

#[test]
fn a_fetch_of_a_thousand_partitions_takes_little_memory() {
    let dir = TempDir::with_prefix("milena-scale-").unwrap();
    let data = dir.path().join("data");
    format_directory(&data);
    let process = Process::start(&data);
    let mut client = process.client();
    create_topic(&mut client, "t", PARTITIONS, &[]);
    let record = Record { value: Some(vec![b'v'; VALUE]), ..Record::text(0, 0, "k", "") };
    let batch = STANDARD.encode(Batch::new(1_700_000_000_000, vec![record]).build());
    for chunk in (0..PARTITIONS).collect::<Vec<_>>().chunks(100) {
        let partitions: Vec<_> = chunk.iter().map(|index| json!({"index": index, "records": batch})).collect();
        let topics = json!([{"name": "t", "partitionData": partitions}]);
        client.call("Produce", 9, &json!({"acks": -1, "timeoutMs": 30000, "topicData": topics})).unwrap();
    }
    let before = process.memory("VmHWM");
    let partitions: Vec<_> =
        (0..PARTITIONS).map(|index| json!({"partition": index, "partitionMaxBytes": 1 << 20})).collect();
    let topics = json!([{"topic": "t", "partitions": partitions}]);
    let body = json!({"maxWaitMs": 0, "minBytes": 0, "maxBytes": i32::MAX, "topics": topics});
    let answer = client.call("Fetch", 12, &body).unwrap();
    let answers = answer["responses"][0]["partitions"].as_array().unwrap();
    let bytes = |text: &str| STANDARD.decode(text).unwrap();
    let full = answers.iter().filter(|a| !Stored::split(&bytes(a["records"].as_str().unwrap())).unwrap().is_empty());
    let full = full.count();
    assert!(answers.len() == PARTITIONS as usize && full > 500, "{} answers, {full} with records", answers.len());
    let after = process.memory("VmHWM");
    println!("{full} full, {before} before, {after} after");
    assert!(after < before + (16 << 20), "{before} bytes before, {after} after");
}
