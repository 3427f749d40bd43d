//! What a running server makes of a partition, in a line.

use anyhow::{Context, Result};
use milena_testkit::batch::Stored;
use milena_testkit::client::RawClient;
use milena_testkit::wire;
use serde_json::{Value, json};

/// Records of a batch.
pub(super) const RECORDS: i64 = 3;
/// Reads of one partition at most.
const READS: usize = 60;

/// A partition as it was before the damage.
pub(super) struct Sound {
    pub(super) topic: String,
    /// Base offset, number of offsets, and bytes of each batch.
    pub(super) batches: Vec<(i64, i64, Vec<u8>)>,
    /// The last batch of an idempotent producer, as it was sent.
    pub(super) last: Vec<u8>,
    /// A batch of now.
    pub(super) new: Vec<u8>,
}

/// The line: from where to where the log says to go, what is read and what is refused, which offset the last batch has when it is sent
/// again, and which one a new one gets.
pub(super) fn at(client: &mut RawClient, sound: &Sound) -> Result<String> {
    let topic = &sound.topic;
    led(client, topic)?;
    let (start, end) = (offset(client, topic, -2)?, offset(client, topic, -1)?);
    let read = read(client, sound)?;
    let again = produce(client, topic, &sound.last)?;
    let new = produce(client, topic, &sound.new)?;
    Ok(format!("{start} to {end}, reads {read}, again {again}, new {new}"))
}

/// Waits until the broker leads the partition, if it ever does: it answers a moment before.
fn led(client: &mut RawClient, topic: &str) -> Result<()> {
    for _ in 0..1000 {
        if offset(client, topic, -1)? != "error 6" {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Ok(())
}

/// An offset or an error.
fn offset(client: &mut RawClient, topic: &str, timestamp: i64) -> Result<String> {
    let partitions = json!([{"partitionIndex": 0, "timestamp": timestamp}]);
    let body = json!({"replicaId": -1, "topics": [{"name": topic, "partitions": partitions}]});
    let reply = client.call("ListOffsets", 7, &body)?;
    Ok(or_error(&reply["topics"][0]["partitions"][0], "offset"))
}

fn or_error(answer: &Value, field: &str) -> String {
    match answer["errorCode"].as_i64() {
        Some(0) => answer[field].to_string(),
        Some(code) => format!("error {code}"),
        None => answer.to_string(),
    }
}

fn produce(client: &mut RawClient, topic: &str, batch: &[u8]) -> Result<String> {
    let partition = json!([{"index": 0, "records": wire::base64(batch)}]);
    let body = json!({"acks": -1, "timeoutMs": 10000, "topicData": [{"name": topic, "partitionData": partition}]});
    let reply = client.call("Produce", 9, &body)?;
    Ok(or_error(&reply["responses"][0]["partitionResponses"][0], "baseOffset"))
}

pub(super) fn fetch(client: &mut RawClient, topic: &str, offset: i64) -> Result<Value> {
    let partition = json!([{"partition": 0, "fetchOffset": offset, "partitionMaxBytes": 1 << 20}]);
    let topics = json!([{"topic": topic, "partitions": partition}]);
    let body = json!({"maxWaitMs": 0, "minBytes": 0, "maxBytes": 1 << 20, "isolationLevel": 1, "topics": topics});
    Ok(client.call("Fetch", 12, &body)?["responses"][0]["partitions"][0].take())
}

/// Base offset, number of offsets, and bytes of each batch of a sound partition.
pub(super) fn all(client: &mut RawClient, topic: &str) -> Result<Vec<(i64, i64, Vec<u8>)>> {
    let (mut batches, mut next) = (Vec::new(), 0);
    loop {
        let answer = fetch(client, topic, next)?;
        let bytes = wire::from_base64(answer["records"].as_str().unwrap_or_default())?;
        let read = Stored::split(&bytes)?;
        if read.is_empty() {
            return Ok(batches);
        }
        for batch in read {
            let count = i64::from(batch.last_offset_delta()) + 1;
            next = batch.base_offset() + count;
            batches.push((batch.base_offset(), count, batch.bytes().to_vec()));
        }
    }
}

/// Reads from the beginning to the end, past what can't be read.
fn read(client: &mut RawClient, sound: &Sound) -> Result<String> {
    let (mut seen, mut next, mut aborted) = (Vec::new(), 0, 0);
    let end = sound.batches.last().map_or(0, |(base, count, _)| base + count);
    for _ in 0..READS {
        if next >= end {
            break;
        }
        let answer = fetch(client, &sound.topic, next)?;
        aborted = aborted.max(answer["abortedTransactions"].as_array().map_or(0, Vec::len));
        let bytes = wire::from_base64(answer["records"].as_str().unwrap_or_default())?;
        let code = answer["errorCode"].as_i64().context("a code")?;
        let from = next;
        next = match (code, bytes.is_empty()) {
            (1, _) => break,
            (0, false) => sorted_out(&bytes, sound, next, &mut seen),
            _ => next + RECORDS,
        };
        if code != 0 || bytes.is_empty() {
            let what = if code == 0 { "nothing".to_owned() } else { format!("error {code}") };
            seen.push((from, next, what));
        }
    }
    let told = merged(seen);
    Ok(if aborted > 0 { format!("{told}; {aborted} aborted") } else { told })
}

/// Compares what was read with what should be there; gives the offset to go on with.
fn sorted_out(bytes: &[u8], sound: &Sound, from: i64, seen: &mut Vec<(i64, i64, String)>) -> i64 {
    let (mut rest, mut next) = (bytes, from);
    while let Some((head, _)) = rest.split_first_chunk::<12>() {
        let [mut base, mut length] = [[0; 8]; 2];
        base.copy_from_slice(&head[..8]);
        length[4..].copy_from_slice(&head[8..]);
        let (base, length) = (i64::from_be_bytes(base), i64::from_be_bytes(length) as usize + 12);
        let expected = sound.batches.iter().find(|(at, ..)| *at == base);
        match (expected, rest.get(..length)) {
            (Some((at, count, batch)), Some(piece)) => {
                let what = if batch == piece { "" } else { "altered" };
                seen.push((*at, at + count, what.to_owned()));
                next = at + count;
                rest = &rest[length..];
            }
            _ => {
                seen.push((next, next + RECORDS, "garbage".to_owned()));
                return next + RECORDS;
            }
        }
    }
    next
}

/// `0-8 27-35, error 2 at 9-26`: neighbours in one.
fn merged(seen: Vec<(i64, i64, String)>) -> String {
    let mut all: Vec<(i64, i64, String)> = Vec::new();
    for (from, to, what) in seen {
        match all.last_mut() {
            Some(last) if last.1 == from && last.2 == what => last.1 = to,
            _ => all.push((from, to, what)),
        }
    }
    let piece = |(from, to, what): &(i64, i64, String)| {
        let range = format!("{from}-{}", to - 1);
        if what.is_empty() { range } else { format!("({what} {range})") }
    };
    all.iter().map(piece).collect::<Vec<_>>().join(" ")
}
