//! The requests whose cost is counted: a client that waits for each answer makes the numbers the same on every machine.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::Result;
use milena_testkit::batch::{Batch, Codec, Record};
use milena_testkit::server::{Options, Server};
use milena_testkit::wire;
use serde_json::{Value, json};

const WARM_UP: u64 = 50;
const PARTITIONS: i32 = 10;
const TIME: i64 = 1_700_000_000_000;
/// Bytes of a long value.
pub(super) const LONG: usize = 100_000;

/// Requests that are sent in one write.
pub(super) struct Turn {
    pub(super) name: &'static str,
    requests: Vec<u8>,
    answers: usize,
}

impl Turn {
    /// Sends the requests and reads the answers, so many times.
    pub(super) fn repeat(&self, stream: &mut TcpStream, times: u64) -> Result<()> {
        for _ in 0..times {
            stream.write_all(&self.requests)?;
            for _ in 0..self.answers {
                let mut prefix = [0; 4];
                stream.read_exact(&mut prefix)?;
                stream.read_exact(&mut vec![0; u32::from_be_bytes(prefix) as usize])?;
            }
        }
        Ok(())
    }

    /// A connection on which some turns are over.
    pub(super) fn warmed_up(&self, server: &Server) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(server.addr())?;
        stream.set_nodelay(true)?;
        self.repeat(&mut stream, WARM_UP)?;
        Ok(stream)
    }
}

/// All of them.
pub(super) fn all() -> Result<Vec<Turn>> {
    let (small, long) = (batch(1, 100), batch(1, LONG));
    let turn = |name, requests, answers| Turn { name, requests, answers };
    Ok(vec![
        turn("ApiVersions", request("ApiVersions", 3, &json!({}))?, 1),
        turn("a small Produce request", produce(1, &small)?, 1),
        turn("64 small Produce requests at once", produce(1, &small)?.repeat(64), 64),
        turn("a Produce request for 10 partitions", produce(PARTITIONS, &small)?, 1),
        turn("a Produce request with 100 records", produce(1, &batch(100, 100))?, 1),
        turn("a Produce request with 100 kB", produce(1, &long)?, 1),
        turn("a fetch of small records", fetch(1)?, 1),
        turn("a fetch of 100 kB", fetch(2)?, 1),
    ])
}

fn request(api: &str, version: i16, body: &Value) -> Result<Vec<u8>> {
    Ok(wire::framed(&wire::request(api, version, 1, Some("c"), body)?))
}

/// A Produce request with a batch for each of the first `partitions` partitions of the topic `t`.
fn produce(partitions: i32, batch: &[u8]) -> Result<Vec<u8>> {
    let data = |index| json!({"index": index, "records": wire::base64(batch)});
    let topics = json!([{"name": "t", "partitionData": (0..partitions).map(data).collect::<Vec<_>>()}]);
    request("Produce", 9, &json!({"acks": -1, "timeoutMs": 30000, "topicData": topics}))
}

/// A fetch of the first batch of a topic of one partition: `1` has small batches, `2` long ones.
fn fetch(topic: u8) -> Result<Vec<u8>> {
    let partitions = json!([{"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1}]);
    let topics = json!([{"topic": topic.to_string(), "partitions": partitions}]);
    request("Fetch", 12, &json!({"maxWaitMs": 0, "minBytes": 0, "maxBytes": 1, "sessionEpoch": -1, "topics": topics}))
}

fn batch(records: i64, value: usize) -> Vec<u8> {
    let record = |at| Record { value: Some(vec![b'v'; value]), ..Record::text(at, 0, "k", "") };
    Batch::new(TIME, (0..records).map(record).collect()).with(Codec::None).build()
}

/// A server of one reactor with the topics that the requests are about, in which nothing happens by itself.
pub(super) fn server(options: Options) -> Result<Server> {
    let quiet = options.set("num.network.threads", "1").set("log.initial.task.delay.ms", "3600000");
    let server = quiet.start()?;
    let mut client = server.client()?;
    for (name, partitions) in [("t", PARTITIONS), ("1", 1), ("2", 1)] {
        let topic = json!({"name": name, "numPartitions": partitions, "replicationFactor": 1});
        client.call("CreateTopics", 7, &json!({"topics": [topic]}))?;
    }
    for (name, value) in [("1", 100), ("2", LONG)] {
        let data = json!({"index": 0, "records": wire::base64(&batch(1, value))});
        let topics = json!([{"name": name, "partitionData": [data]}]);
        client.call("Produce", 9, &json!({"acks": -1, "timeoutMs": 30000, "topicData": topics}))?;
    }
    Ok(server)
}
