//! What a request costs in memory, counted and not timed: how often the broker allocates for a request that finds everything warm,
//! that records never pass through memory of their own, and that clients leave nothing behind. Whoever makes the path longer changes a number here.
#![allow(unreachable_pub, reason = "a test has no public surface; `pub` says what a module offers to the others")]

mod allocations {
    pub mod growth;
}
mod common;

use std::alloc::System;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use milena_testkit::batch::{Batch, Codec, Record};
use milena_testkit::wire;
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use common::Node;
use common::requests::create_topic;

#[global_allocator]
static MEMORY: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Turns before any that count.
const WARM_UP: usize = 50;
/// How often turns are counted, and how many at once. The least counts: threads in the background allocate now and then.
const ROUNDS: usize = 5;
const TURNS: usize = 100;
const ALL_TURNS: usize = WARM_UP + ROUNDS * TURNS;
/// Bytes of one allocation on average, at most.
const MOST_BYTES: usize = 600;
const TIME: i64 = 1_700_000_000_000;

/// What is counted is counted for the whole process, so one test counts at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Id and epoch of a fetch outside of a session.
const NO_SESSION: (i32, i32) = (0, -1);

/// A node, and one connection to it that allocates nothing itself.
struct Line {
    stream: TcpStream,
    reply: Vec<u8>,
    _node: Node,
    _alone: MutexGuard<'static, ()>,
}

impl Line {
    /// A line to a node with the topic `t` of ten partitions.
    fn new() -> Self {
        let alone = alone();
        let node = Node::start_with(&["num.network.threads=1"]);
        create_topic(&mut node.client(), "t", 10, &[]);
        let stream = TcpStream::connect(node.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, reply: vec![0; 4 << 20], _node: node, _alone: alone }
    }

    /// Sends all requests in one write and reads `answers` answers; the bytes of the last one.
    fn turn(&mut self, requests: &[u8], answers: usize) -> &[u8] {
        self.stream.write_all(requests).unwrap();
        let mut len = 0;
        for _ in 0..answers {
            let mut prefix = [0; 4];
            self.stream.read_exact(&mut prefix).unwrap();
            len = u32::from_be_bytes(prefix) as usize;
            self.stream.read_exact(&mut self.reply[..len]).unwrap();
        }
        &self.reply[..len]
    }

    /// Demands that a turn with `answers` answers costs no more than so many allocations, and no bytes to speak of.
    fn costs(&mut self, what: &str, requests: &[u8], answers: usize, most: usize) {
        self.series_costs(what, std::iter::repeat_n(requests, ALL_TURNS), answers, most);
    }

    /// As [`Self::costs`], where each turn has requests of its own.
    fn series_costs<'r>(
        &mut self,
        what: &str,
        mut requests: impl ExactSizeIterator<Item = &'r [u8]>,
        answers: usize,
        most: usize,
    ) {
        assert_eq!(requests.len(), ALL_TURNS);
        let mut turns = |count| requests.by_ref().take(count).for_each(|requests| _ = self.turn(requests, answers));
        turns(WARM_UP);
        let rounds = (0..ROUNDS).map(|_| {
            let region = Region::new(MEMORY);
            turns(TURNS);
            let used = region.change();
            (used.allocations + used.reallocations, used.bytes_allocated)
        });
        let (allocations, bytes) = rounds.min().unwrap();
        println!("{what}: {} allocations, {} bytes", allocations / TURNS, bytes / TURNS);
        assert!(allocations / TURNS <= most, "{what}: {} allocations a turn, not {most}", allocations / TURNS);
        assert!(bytes / TURNS <= MOST_BYTES * most, "{what}: {} bytes a turn", bytes / TURNS);
    }
}

fn request(api: &str, version: i16, body: &Value) -> Vec<u8> {
    wire::framed(&wire::request(api, version, 1, Some("c"), body).unwrap())
}

/// One Produce request with a batch for each of the first `partitions` partitions.
fn produce(partitions: i32, batch: &[u8]) -> Vec<u8> {
    let data: Vec<_> = (0..partitions).map(|index| json!({"index": index, "records": wire::base64(batch)})).collect();
    let topics = json!([{"name": "t", "partitionData": data}]);
    request("Produce", 9, &json!({"acks": -1, "timeoutMs": 30000, "topicData": topics}))
}

/// A Fetch request for the first `partitions` partitions, each from `offset` on, that does not wait. `session` is its id and epoch.
fn fetch(partitions: i32, offset: i64, (id, epoch): (i32, i32)) -> Vec<u8> {
    let wanted: Vec<_> = (0..partitions)
        .map(|index| json!({"partition": index, "fetchOffset": offset, "partitionMaxBytes": 1 << 20}))
        .collect();
    let topics = if wanted.is_empty() { json!([]) } else { json!([{"topic": "t", "partitions": wanted}]) };
    let limits = json!({"maxWaitMs": 0, "minBytes": 0, "maxBytes": 16 << 20, "sessionId": id, "sessionEpoch": epoch});
    let mut body = limits;
    body["topics"] = topics;
    request("Fetch", 12, &body)
}

fn batch(records: i64, value: usize, codec: Codec) -> Vec<u8> {
    let record = |at| Record { value: Some(vec![b'v'; value]), ..Record::text(at, 0, "k", "") };
    Batch::new(TIME, (0..records).map(record).collect()).with(codec).build()
}

#[test]
fn a_produce_request_allocates_a_few_times_and_never_for_its_records() {
    let mut line = Line::new();
    let small = batch(1, 100, Codec::None);
    line.costs("a small request", &produce(1, &small), 1, 4);
    line.costs("64 small requests at once", &produce(1, &small).repeat(64), 64, 271);
    line.costs("a request for 10 partitions", &produce(10, &small), 1, 8);
    for codec in Codec::ALL {
        let thousand = produce(1, &batch(1000, 100, codec));
        line.costs(&format!("a request with 1,000 records, {}", codec.name()), &thousand, 1, 4);
    }
    line.costs("a request of 900 kB", &produce(1, &batch(9, 100_000, Codec::None)), 1, 4);
}

#[test]
fn a_fetch_allocates_a_few_times_and_never_for_long_records() {
    let mut line = Line::new();
    line.turn(&produce(9, &batch(1, 100, Codec::None)), 1);
    line.costs("a small fetch", &fetch(1, 0, NO_SESSION), 1, 12);
    line.costs("a fetch of 9 partitions", &fetch(9, 0, NO_SESSION), 1, 30);
    for (what, offset, most) in [("nothing new", 1, 3), ("9 small batches", 0, 13)] {
        let began = wire::response("Fetch", 12, line.turn(&fetch(9, offset, (0, 0)), 1)).unwrap();
        let session = began.body["sessionId"].as_i64().unwrap() as i32;
        let polls: Vec<_> = (1..).map(|epoch| fetch(0, 0, (session, epoch))).take(ALL_TURNS).collect();
        let what = format!("a poll of a session of 9 partitions with {what}");
        line.series_costs(&what, polls.iter().map(Vec::as_slice), 1, most);
    }
    line.turn(&produce(1, &batch(9, 100_000, Codec::None)), 1);
    line.costs("a fetch of 900 kB", &fetch(1, 0, NO_SESSION), 1, 14);
}

#[test]
fn a_request_without_records_allocates_a_few_times() {
    let mut line = Line::new();
    line.costs("ApiVersions", &request("ApiVersions", 3, &json!({})), 1, 0);
    let body = json!({"topics": [{"name": "t"}], "allowAutoTopicCreation": false});
    line.costs("Metadata", &request("Metadata", 12, &body), 1, 6);
}
