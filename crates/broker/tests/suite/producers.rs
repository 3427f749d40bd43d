//! Idempotent producers of a whole broker: requests that are taken together, and what is known after a start.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use milena_testkit::batch::{Batch, Stored};
use milena_testkit::client::{Event, RawClient};
use milena_testkit::wire;
use serde_json::{Value, json};

use crate::common::child::Process;
use crate::common::requests::{create_topic, fetch_all, produce};
use crate::common::{Node, TempDir, format_directory};

/// Not long ago: who has sent nothing for a day is forgotten at a start.
static TIME: LazyLock<i64> = LazyLock::new(|| {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_millis() as i64 - 60_000
});
const VERSION: i16 = 9;

/// The batch of two records that a producer sends as its `number`th.
fn nth(producer_id: i64, number: i32) -> Vec<u8> {
    let batch = Batch::of(2, *TIME + i64::from(number));
    Batch { producer_id, producer_epoch: 0, base_sequence: number * 2, ..batch }.build()
}

/// Error code, base offset and log append time of an answer.
fn brief(answer: &Value) -> [i64; 3] {
    ["errorCode", "baseOffset", "logAppendTimeMs"].map(|field| answer[field].as_i64().unwrap())
}

fn frame(correlation: i32, batch: &[u8]) -> Vec<u8> {
    let partition = json!({"index": 0, "records": wire::base64(batch)});
    let body = json!({"acks": -1, "timeoutMs": 10000, "topicData": [{"name": "t", "partitionData": [partition]}]});
    let header = wire::header("Produce", VERSION, correlation, Some("pipelined")).unwrap();
    wire::framed(&[header, wire::encode_body("ProduceRequest", VERSION, &body).unwrap()].concat())
}

/// Sends all batches in one write, a request for each; the answers in their order.
fn pipelined(client: &mut RawClient, batches: &[Vec<u8>]) -> Vec<[i64; 3]> {
    let frames = batches.iter().zip(0..).map(|(batch, correlation)| frame(correlation, batch));
    client.send_bytes(&frames.collect::<Vec<_>>().concat()).unwrap();
    let answers = (0..batches.len()).map(|at| {
        let Event::Frame(bytes) = client.next_event(Duration::from_secs(10)).unwrap() else { panic!("answer {at}") };
        let answer = wire::response("Produce", VERSION, &bytes).unwrap();
        assert_eq!(answer.correlation, at as i32);
        brief(&answer.body["responses"][0]["partitionResponses"][0])
    });
    answers.collect()
}

fn offsets(client: &mut RawClient) -> Vec<i64> {
    let bytes = fetch_all(client, "t", 0);
    Stored::split(&bytes).unwrap().iter().map(Stored::base_offset).collect()
}

#[test]
fn requests_taken_together_are_judged_in_their_order() {
    let node = Node::start();
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[]);
    let plain = Batch::of(1, *TIME).build();
    let sent = [nth(7, 0), nth(7, 1), nth(7, 0), nth(7, 3), plain, nth(8, 4), nth(7, 2), nth(7, 1)];
    let expected = [
        [0, 0, -1],
        [0, 2, -1],
        [0, 0, *TIME + 1],
        [45, -1, -1],
        [0, 4, -1],
        [0, 5, -1],
        [0, 7, -1],
        [0, 2, *TIME + 2],
    ];
    assert_eq!(pipelined(&mut client, &sent), expected);
    assert_eq!(offsets(&mut client), [0, 2, 4, 5, 7]);
}

#[test]
fn a_whole_flight_sent_again_is_answered_as_the_first_time_and_stored_once() {
    let node = Node::start();
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[]);
    let flight: Vec<_> = (0..5).map(|number| nth(7, number)).collect();
    let first = pipelined(&mut client, &flight);
    let again = pipelined(&mut node.client(), &flight);
    let placed = |answers: &[[i64; 3]]| answers.iter().map(|answer| [answer[0], answer[1]]).collect::<Vec<_>>();
    assert_eq!(placed(&again), placed(&first));
    assert_eq!(offsets(&mut client), [0, 2, 4, 6, 8]);
}

/// The last batch again, one too far ahead, and the next.
fn goes_on(client: &mut RawClient, last: i32) {
    let answers = [last, last + 2, last + 1].map(|number| brief(&produce(client, "t", 0, &nth(7, number))));
    let (offset, time) = (i64::from(last) * 2, *TIME + i64::from(last) + 1);
    assert_eq!(answers, [[0, offset, time], [45, -1, -1], [0, offset + 2, -1]]);
}

#[test]
fn producers_are_known_after_a_stop_and_after_a_kill() {
    let dir = TempDir::with_prefix("milena-producers-").unwrap();
    let data = dir.path().join("data");
    format_directory(&data);
    let process = Process::start(&data);
    let mut client = process.client();
    create_topic(&mut client, "t", 1, &[]);
    (0..3).for_each(|number| assert_eq!(produce(&mut client, "t", 0, &nth(7, number))["errorCode"], 0));
    process.kill();
    let mut node = Node::on(dir);
    goes_on(&mut node.client(), 2);
    node.stop();
    let snapshot = std::fs::read(node.data_dir().join("t-0/00000000000000000008.snapshot")).unwrap();
    assert_eq!(snapshot.len(), 10 + 46);
    node.start_again();
    assert!(node.broker().report().clean);
    goes_on(&mut node.client(), 3);
}
