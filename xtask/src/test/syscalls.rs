//! What a request costs in system calls, counted with strace and not timed: reading, writing the log, answering, waiting, and nothing
//! else. A client that waits for each answer makes the number the same on every machine.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use milena_testkit::batch::{Batch, Codec, Record};
use milena_testkit::server::{Options, Server};
use milena_testkit::wire;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::Outcome;

/// Turns that count, after some that do not.
const TURNS: u64 = 400;
const WARM_UP: u64 = 50;
const PARTITIONS: i32 = 10;
const TIME: i64 = 1_700_000_000_000;

/// Requests that are sent in one write, and what they may cost.
struct Cell {
    name: &'static str,
    requests: Vec<u8>,
    answers: usize,
    /// System calls of a turn.
    most: u64,
}

fn cells() -> Result<Vec<Cell>> {
    let small = batch(1, 100);
    let cell = |name, requests, answers, most| Cell { name, requests, answers, most };
    Ok(vec![
        // Wait, receive, answer.
        cell("ApiVersions", request("ApiVersions", 3, &json!({}))?, 1, 3),
        // And one write for each partition.
        cell("a small Produce request", produce(1, &small)?, 1, 4),
        cell("64 small Produce requests at once", produce(1, &small)?.repeat(64), 64, 4),
        cell("a Produce request for 10 partitions", produce(PARTITIONS, &small)?, 1, 3 + 10),
        cell("a Produce request with 100 records", produce(1, &batch(100, 100))?, 1, 4),
        // Small records are read and sent with the answer; long ones go from the file, between what stands before and after them.
        cell("a fetch of small records", fetch(1)?, 1, 4),
        cell("a fetch of 100 kB", fetch(2)?, 1, 5),
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

/// Counts the calls of every cell.
pub(super) fn check(options: Options) -> Result<Outcome> {
    let quiet = options.set("num.network.threads", "1").set("log.initial.task.delay.ms", "3600000");
    let server = quiet.start()?;
    let mut client = server.client()?;
    for (name, partitions) in [("t", PARTITIONS), ("1", 1), ("2", 1)] {
        let topic = json!({"name": name, "numPartitions": partitions, "replicationFactor": 1});
        client.call("CreateTopics", 7, &json!({"topics": [topic]}))?;
    }
    for (name, value) in [("1", 100), ("2", 100_000)] {
        let data = json!({"index": 0, "records": wire::base64(&batch(1, value))});
        let topics = json!([{"name": name, "partitionData": [data]}]);
        client.call("Produce", 9, &json!({"acks": -1, "timeoutMs": 30000, "topicData": topics}))?;
    }
    let mut outcome = Outcome::default();
    for cell in cells()? {
        let calls = count(&server, &cell)?;
        // Each name is rounded: what threads in the background call now and then is no part of a turn.
        let each: u64 = calls.values().map(|calls| (calls + TURNS / 2) / TURNS).sum();
        println!("          {}: {each}", cell.name);
        if each <= cell.most {
            outcome.passed += 1;
        } else {
            let Cell { name, most, .. } = cell;
            outcome
                .failures
                .push(format!("{name}: {each} system calls a turn, not {most}; in {TURNS} turns {calls:?}"));
        }
    }
    Ok(outcome)
}

/// All calls of the server during the turns of a cell, by name.
fn count(server: &Server, cell: &Cell) -> Result<BTreeMap<String, u64>> {
    let mut stream = TcpStream::connect(server.addr())?;
    stream.set_nodelay(true)?;
    (0..WARM_UP).try_for_each(|_| turn(&mut stream, cell))?;
    let table = server.dir().join("strace.txt");
    let pid = server.pid().context("the server runs")?.to_string();
    let mut command = Command::new("strace");
    command.args(["-f", "-c", "-o"]).arg(&table).args(["-p", &pid]);
    let mut strace = command.stderr(Stdio::piped()).spawn().context("strace")?;
    let mut said = BufReader::new(strace.stderr.take().context("it is piped")?);
    let mut line = String::new();
    said.read_line(&mut line)?;
    let attached = line.contains("attached");
    let turned = if attached { (0..TURNS).try_for_each(|_| turn(&mut stream, cell)) } else { Ok(()) };
    let _ = kill_process(Pid::from_child(&strace), Signal::INT);
    strace.wait()?;
    ensure!(attached, "strace: {}", line.trim());
    turned?;
    calls(&table)
}

/// Sends the requests, and reads the answers.
fn turn(stream: &mut TcpStream, cell: &Cell) -> Result<()> {
    stream.write_all(&cell.requests)?;
    for _ in 0..cell.answers {
        let mut prefix = [0; 4];
        stream.read_exact(&mut prefix)?;
        stream.read_exact(&mut vec![0; u32::from_be_bytes(prefix) as usize])?;
    }
    Ok(())
}

/// The calls in strace's table: the fourth column is their number, the last one their name.
fn calls(table: &Path) -> Result<BTreeMap<String, u64>> {
    let text = std::fs::read_to_string(table)?;
    let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let counted = rows.filter_map(|row| Some((row.last()?.to_string(), row.get(3)?.parse().ok()?)));
    let calls: BTreeMap<_, _> = counted.filter(|(name, _)| name != "total").collect();
    if calls.is_empty() {
        bail!("strace has counted nothing:\n{text}");
    }
    Ok(calls)
}
