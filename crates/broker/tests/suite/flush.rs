//! Topics with `flush.messages`, as clients see them.

use std::time::Duration;

use milena_testkit::batch::Batch;
use milena_testkit::client::{Event, RawClient};
use milena_testkit::wire;
use serde_json::json;

use crate::common::Node;
use crate::common::child::Process;
use crate::common::requests::{create_topic, fetch_all, produce};
use crate::common::{TempDir, format_directory};

const TIME: i64 = 1_700_000_000_000;

fn produce_frame(correlation: i32, topic: &str, acks: i16) -> Vec<u8> {
    let partition = json!({"index": 0, "records": wire::base64(&Batch::of(1, TIME).build())});
    let body = json!({"acks": acks, "timeoutMs": 10000, "topicData": [{"name": topic, "partitionData": [partition]}]});
    let header = wire::header("Produce", 9, correlation, Some("pipelined")).unwrap();
    wire::framed(&[header, wire::encode_body("ProduceRequest", 9, &body).unwrap()].concat())
}

/// Correlation id and base offset of the next answer.
fn answer(client: &mut RawClient) -> (i32, i64) {
    let Event::Frame(bytes) = client.next_event(Duration::from_secs(10)).unwrap() else { panic!("no answer") };
    let answer = wire::response("Produce", 9, &bytes).unwrap();
    let partition = &answer.body["responses"][0]["partitionResponses"][0];
    assert_eq!(partition["errorCode"], 0, "{partition}");
    (answer.correlation, partition["baseOffset"].as_i64().unwrap())
}

#[test]
fn answers_that_wait_for_a_flush_leave_in_the_order_of_their_requests() {
    let node = Node::start();
    let mut client = node.client();
    create_topic(&mut client, "flushed", 1, &[("flush.messages", "1")]);
    create_topic(&mut client, "plain", 1, &[]);
    let sent: Vec<_> = (0..60).map(|at| (at, ["flushed", "plain"][at % 2], [1, -1, 0][at % 3])).collect();
    let frames: Vec<u8> = sent.iter().flat_map(|&(at, topic, acks)| produce_frame(at as i32, topic, acks)).collect();
    client.send_bytes(&frames).unwrap();
    let expected = sent.iter().filter(|(_, _, acks)| *acks != 0).map(|&(at, ..)| (at as i32, at as i64 / 2));
    let got: Vec<_> = expected.clone().map(|_| answer(&mut client)).collect();
    assert_eq!(got, expected.collect::<Vec<_>>());
    for topic in ["flushed", "plain"] {
        let all = fetch_all(&mut client, topic, 0);
        assert_eq!(all.len(), 30 * Batch::of(1, TIME).build().len());
    }
}

#[test]
fn many_connections_share_a_flushed_partition() {
    let node = Node::start();
    create_topic(&mut node.client(), "t", 1, &[("flush.messages", "1")]);
    let write = || {
        let mut client = node.client();
        (0..20)
            .map(|_| produce(&mut client, "t", 0, &Batch::of(1, TIME).build())["baseOffset"].as_i64().unwrap())
            .collect()
    };
    let mut offsets: Vec<i64> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8).map(|_| scope.spawn(write)).collect();
        writers.into_iter().flat_map(|writer| -> Vec<i64> { writer.join().unwrap() }).collect()
    });
    offsets.sort_unstable();
    assert_eq!(offsets, (0..160).collect::<Vec<_>>());
}

#[test]
fn what_was_acknowledged_after_a_flush_is_there_after_a_kill() {
    let dir = TempDir::with_prefix("milena-flush-").unwrap();
    let data = dir.path().join("data");
    format_directory(&data);
    let process = Process::start(&data);
    let mut client = process.client();
    create_topic(&mut client, "t", 1, &[("flush.messages", "1")]);
    let batch = Batch::of(3, TIME).build();
    assert_eq!(produce(&mut client, "t", 0, &batch)["baseOffset"], 0);
    process.kill();
    let node = Node::on(dir);
    assert_eq!(fetch_all(&mut node.client(), "t", 0).len(), batch.len());
}
