//! Whole transactions, and what a log shows of them.

use anyhow::{Context as _, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::client::{self, Producer, Protocol};
use super::{named, readers};
use crate::batch::{Batch, Stored};
use crate::differential::context::{Context, fetch_body};

pub(super) fn run(cx: &mut Context<'_>, protocol: &Protocol, what: &str) -> Result<Option<Value>> {
    let partitions = if what == "two-partitions" { 2 } else { 1 };
    let topic = cx.create("t", partitions, &[])?;
    let t = topic.as_str();
    Ok(Some(match what {
        "commit" => commit(cx, protocol, t)?,
        "abort" => readers::abort(cx, protocol, t)?,
        "interleaved" => readers::interleaved(cx, t)?,
        "open" => open(cx, protocol, t)?,
        "one-marker" => one_marker(cx, protocol, t)?,
        "two-partitions" => {
            let producer = Producer::new(cx)?;
            for partition in [0, 1] {
                producer.send(cx, protocol, t, partition, &["a"])?;
            }
            producer.finish(cx, protocol, true)?;
            json!(["NONE(0)", cx.end(t, 0)?, cx.end(t, 1)?])
        }
        "end-without-data" => {
            let producer = Producer::new(cx)?;
            let answer = end(cx, protocol, producer, true)?;
            json!([answer, client::describe(cx)?["transactionState"]])
        }
        "abort-without-data" => {
            let producer = Producer::new(cx)?;
            let answer = end(cx, protocol, producer, false)?;
            let state = client::wait_complete(cx)?["transactionState"].clone();
            json!([answer, answer["producerEpoch"], state])
        }
        "end-twice" => {
            let producer = Producer::new(cx)?;
            producer.send(cx, protocol, t, 0, &["a"])?;
            producer.finish(cx, protocol, true)?;
            let again = end(cx, protocol, producer, true)?;
            json!([again, again, cx.end(t, 0)?])
        }
        "commit-then-abort" => {
            let producer = Producer::new(cx)?;
            producer.send(cx, protocol, t, 0, &["a"])?;
            producer.finish(cx, protocol, true)?;
            end(cx, protocol, producer, false)?
        }
        "new-init-aborts-old" => successor(cx, protocol, t)?,
        "timeout" => timeout(cx, protocol, t)?,
        _ => return Ok(None),
    }))
}

fn end(cx: &mut Context<'_>, protocol: &Protocol, producer: Producer, committed: bool) -> Result<Value> {
    let x = cx.name("x");
    client::end(cx, protocol.end, &x, (producer.id, producer.epoch), committed)
}

fn commit(cx: &mut Context<'_>, protocol: &Protocol, t: &str) -> Result<Value> {
    let producer = Producer::new(cx)?;
    producer.send(cx, protocol, t, 0, &["a", "b"])?;
    producer.finish(cx, protocol, true)?;
    Ok(json!({
        "headers": headers(cx, t)?, "records": records(cx, t)?,
        "committed": view(cx, t, 1, 0)?, "uncommitted": view(cx, t, 0, 0)?,
    }))
}

fn open(cx: &mut Context<'_>, protocol: &Protocol, t: &str) -> Result<Value> {
    let plain = Batch::of(1, cx.t0());
    cx.produce_ok(t, 0, &plain)?;
    let producer = Producer::new(cx)?;
    let batch = producer.batch(cx, 0, &["a", "b"]);
    let answer = producer.send_batch(cx, protocol, t, 0, &batch)?;
    cx.produce_ok(t, 0, &plain)?;
    let produced = cx.names.normal(&answer);
    let (committed, uncommitted) = (view(cx, t, 1, 0)?, view(cx, t, 0, 0)?);
    Ok(json!({
        "produce": produced, "committed": committed, "uncommitted": uncommitted,
        "listCommitted": latest(cx, t, 1)?, "listUncommitted": latest(cx, t, 0)?, "at-lso": view(cx, t, 1, 1)?,
    }))
}

fn one_marker(cx: &mut Context<'_>, protocol: &Protocol, t: &str) -> Result<Value> {
    let producer = Producer::new(cx)?;
    producer.send(cx, protocol, t, 0, &["a"])?;
    let producer = producer.finish(cx, protocol, true)?;
    let first = cx.end(t, 0)?;
    let sequence = if protocol.adds { 1 } else { 0 };
    let batch = producer.batch(cx, sequence, &["b", "c"]);
    producer.send_batch(cx, protocol, t, 0, &batch)?;
    producer.finish(cx, protocol, false)?;
    let second = cx.end(t, 0)?;
    Ok(json!([first, second, second]))
}

fn successor(cx: &mut Context<'_>, protocol: &Protocol, t: &str) -> Result<Value> {
    let old = Producer::new(cx)?;
    old.send(cx, protocol, t, 0, &["a"])?;
    let new = Producer::new(cx)?;
    let batch = old.batch(cx, 1, &["b"]);
    let produced = client::produce(cx, protocol.produce, t, 0, &batch)?;
    Ok(json!({
        "samePid": old.id == new.id, "epochUp": new.epoch - old.epoch, "view": view(cx, t, 1, 0)?,
        "oldProduce": {"errorCode": named(&produced)}, "oldEnd": end(cx, protocol, old, true)?,
    }))
}

fn timeout(cx: &mut Context<'_>, protocol: &Protocol, t: &str) -> Result<Value> {
    let producer = Producer::with_timeout(cx, 1000)?;
    producer.send(cx, protocol, t, 0, &["a"])?;
    let state = client::wait_complete(cx)?["transactionState"].clone();
    let seen = view(cx, t, 1, 0)?;
    let batch = producer.batch(cx, 1, &["b"]);
    let committed = end(cx, protocol, producer, true)?;
    let produced = client::produce(cx, protocol.produce, t, 0, &batch)?;
    Ok(json!({
        "aborted": state == "CompleteAbort", "view": seen, "state": state,
        "thenCommit": committed, "thenProduce": {"errorCode": named(&produced)},
    }))
}

/// What a Fetch with an isolation level shows.
pub(super) fn view(cx: &mut Context<'_>, t: &str, isolation: i8, offset: i64) -> Result<Value> {
    let partition = json!([{"partition": 0, "fetchOffset": offset, "partitionMaxBytes": 1 << 20}]);
    let mut body = fetch_body(&json!({"topic": t}), &partition);
    body["isolationLevel"] = isolation.into();
    let mut answer = cx.call("Fetch", 12, body)?;
    let partition = answer["responses"][0]["partitions"][0].take();
    let bytes = STANDARD.decode(partition["records"].as_str().unwrap_or_default())?;
    // As many bytes as there are on the level of what is shown.
    let batches: Vec<_> = Stored::split(&bytes)?.iter().map(Stored::brief).collect();
    let aborted = cx.names.normal(&partition["abortedTransactions"]);
    Ok(json!({
        "errorCode": named(&partition), "highWatermark": partition["highWatermark"],
        "lastStableOffset": partition["lastStableOffset"], "aborted": aborted, "batches": batches,
    }))
}

fn latest(cx: &mut Context<'_>, t: &str, isolation: i8) -> Result<Value> {
    let topics = json!([{"name": t, "partitions": [{"partitionIndex": 0, "timestamp": -1}]}]);
    let body = json!({"replicaId": -1, "isolationLevel": isolation, "topics": topics});
    let mut answer = cx.ask("ListOffsets", 7, body)?;
    let mut partition = answer["topics"][0]["partitions"][0].take();
    partition.as_object_mut().context("no answer")?.shift_remove("partitionIndex");
    Ok(partition)
}

/// Headers of the stored batches; times that are not those of the case are `<now>`.
pub(super) fn headers(cx: &mut Context<'_>, t: &str) -> Result<Value> {
    let bytes = cx.stored(t, 0)?;
    let mut all: Vec<Value> = Stored::split(&bytes)?.iter().map(|batch| batch.fields(&[])).collect();
    for header in &mut all {
        let fields = header.as_object_mut().context("a header")?;
        fields.shift_remove("body");
        if fields["crc"] == "recomputed" {
            fields["crc"] = "valid".into();
        }
    }
    Ok(normal(cx, all.into()))
}

/// The stored records; those of markers with what they say.
pub(super) fn records(cx: &mut Context<'_>, t: &str) -> Result<Value> {
    let bytes = cx.stored(t, 0)?;
    let mut all = Vec::new();
    for batch in Stored::split(&bytes)? {
        for mut record in batch.records()? {
            if batch.attributes() & 0x20 != 0 {
                let kind = if record["k"] == "hex:00000001" { "COMMIT" } else { "ABORT" };
                let value = record["v"].as_str().unwrap_or_default().trim_start_matches("hex:").to_owned();
                record = json!({"o": record["o"], "ts": record["ts"], "control": kind, "controlValue": value});
            }
            all.push(record);
        }
    }
    Ok(normal(cx, all.into()))
}

/// The normal form, with times after the case's own as `<now>`.
pub(super) fn normal(cx: &mut Context<'_>, mut value: Value) -> Value {
    const TIMES: [&str; 5] = ["ts", "baseTs", "maxTs", "lastTimestamp", "transactionStartTimeMs"];
    fn walk(value: &mut Value, since: i64) {
        match value {
            Value::Object(object) => {
                for (key, value) in object.iter_mut() {
                    match value.as_i64().filter(|time| TIMES.contains(&key.as_str()) && *time >= since) {
                        Some(_) => *value = "<now>".into(),
                        None => walk(value, since),
                    }
                }
            }
            Value::Array(all) => all.iter_mut().for_each(|value| walk(value, since)),
            _ => {}
        }
    }
    walk(&mut value, cx.t0() + 30_000);
    cx.names.normal(&value)
}
