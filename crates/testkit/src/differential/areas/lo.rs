//! ListOffsets.

use anyhow::Result;
use serde_json::{Map, Value, json};

use crate::batch::{Batch, Codec, Record};
use crate::differential::context::{Context, number, version};

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    Ok(Some(match id {
        ["empty", timestamp] => {
            let Some(timestamp) = number(timestamp) else { return Ok(None) };
            let topic = cx.create("t", 1, &[])?;
            one(cx, 11, &topic, json!({"timestamp": timestamp}), -1, 0)?
        }
        ["by-time", "one-batch" | "four-batches", codec] => by_time(cx, id[1] == "one-batch", codec)?,
        ["descending", codec] => descending(cx, codec)?,
        ["by-time", "after-delete"] => {
            let topic = cx.create("t", 1, &[])?;
            stamped(cx, &topic, false, Codec::None, &[2, 4, 6, 8])?;
            cx.delete_records(&topic, 0, 2)?;
            at(cx, &topic, &[2, 6, 7])?
        }
        ["by-time", "inside-batch-after-delete"] => {
            let topic = cx.create("t", 1, &[])?;
            stamped(cx, &topic, true, Codec::None, &[2, 4, 6, 8])?;
            cx.delete_records(&topic, 0, 2)?;
            let earliest = list(cx, &topic, -2)?;
            let mut out = at(cx, &topic, &[2, 5])?;
            if let Some(out) = out.as_array_mut() {
                out.push(earliest);
            }
            out
        }
        ["by-time", "time-and-varlong"] => time_and_varlong(cx)?,
        ["by-time", "segments"] => segments(cx)?,
        ["unknown-topic", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            let name = cx.name("none");
            cx.ask("ListOffsets", v, body(&name, &json!([{"partitionIndex": 0, "timestamp": -1}]), -1, 0))?
        }
        ["unknown-partition"] => {
            let topic = cx.create("t", 1, &[])?;
            let question = json!([{"partitionIndex": 5, "timestamp": -1}]);
            let mut answers = Vec::new();
            for v in [1, 11] {
                let mut reply = cx.ask("ListOffsets", v, body(&topic, &question, -1, 0))?;
                answers.push(without_index(&mut reply["topics"][0]["partitions"][0]));
            }
            answers.into()
        }
        ["several"] => several(cx)?,
        [what] => return single(cx, what),
        [v, timestamp] => {
            let (Some(v), Some(timestamp)) = (version(v), number(timestamp)) else { return Ok(None) };
            let topic = cx.create("t", 1, &[])?;
            let batch = Batch::of(3, cx.t0());
            cx.produce_ok(&topic, 0, &batch)?;
            one(cx, v, &topic, json!({"timestamp": timestamp}), -1, 0)?
        }
        _ => return Ok(None),
    }))
}

/// The cases of one word: one question about a topic of six records.
fn single(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let parameter = |name: &str| what.strip_prefix(name).and_then(number);
    let (question, replica, isolation, whole) = if what == "large-ts" {
        (json!({"timestamp": cx.t0() + 1_000_000}), -1, 0, false)
    } else if what == "negative-unknown" {
        (json!({"timestamp": -100}), -1, 0, false)
    } else if let Some(epoch) = parameter("leader-epoch") {
        (json!({"timestamp": -1, "currentLeaderEpoch": epoch}), -1, 0, true)
    } else if let Some(replica) = parameter("replica") {
        (json!({"timestamp": -1}), replica, 0, true)
    } else if let Some(isolation) = parameter("isolation") {
        (json!({"timestamp": -1}), -1, isolation, false)
    } else {
        return Ok(None);
    };
    let topic = cx.create("t", 1, &[])?;
    cx.six(&topic, 0)?;
    if !whole {
        return one(cx, 11, &topic, question, replica, isolation).map(Some);
    }
    let mut question = question;
    question["partitionIndex"] = 0.into();
    let mut reply = cx.ask("ListOffsets", 11, body(&topic, &json!([question]), replica, isolation))?;
    Ok(Some(reply["topics"].take()))
}

fn body(topic: &str, partitions: &Value, replica: i64, isolation: i64) -> Value {
    let mut body = json!({"replicaId": replica, "topics": [{"name": topic, "partitions": partitions}]});
    if isolation != 0 {
        body["isolationLevel"] = isolation.into();
    }
    body
}

fn without_index(answer: &mut Value) -> Value {
    if let Some(object) = answer.as_object_mut() {
        object.shift_remove("partitionIndex");
    }
    answer.take()
}

/// One question about partition 0; the answer without its index.
fn one(cx: &mut Context<'_>, v: i16, topic: &str, question: Value, replica: i64, isolation: i64) -> Result<Value> {
    let mut question = question;
    question["partitionIndex"] = 0.into();
    let mut reply = cx.ask("ListOffsets", v, body(topic, &json!([question]), replica, isolation))?;
    Ok(without_index(&mut reply["topics"][0]["partitions"][0]))
}

fn list(cx: &mut Context<'_>, topic: &str, timestamp: i64) -> Result<Value> {
    one(cx, 7, topic, json!({"timestamp": timestamp}), -1, 0)
}

/// The answers for times after T0.
fn at(cx: &mut Context<'_>, topic: &str, stamps: &[i64]) -> Result<Value> {
    let t0 = cx.t0();
    stamps.iter().map(|s| list(cx, topic, t0 + s)).collect()
}

/// Records with these times after T0, in one batch or each in its own.
fn stamped(cx: &mut Context<'_>, topic: &str, one_batch: bool, codec: Codec, stamps: &[i64]) -> Result<()> {
    let t0 = cx.t0();
    let record = |i: i64, stamp: i64| Record::text(i, stamp, "k", "v");
    if one_batch {
        let records = stamps.iter().zip(0..).map(|(s, i)| record(i, *s)).collect();
        return cx.produce_ok(topic, 0, &Batch::new(t0, records).with(codec));
    }
    for stamp in stamps {
        cx.produce_ok(topic, 0, &Batch::new(t0, vec![record(0, *stamp)]).with(codec))?;
    }
    Ok(())
}

fn by_time(cx: &mut Context<'_>, one_batch: bool, codec: &str) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    stamped(cx, &topic, one_batch, Codec::parse(codec).unwrap_or(Codec::None), &[2, 4, 6, 8])?;
    let t0 = cx.t0();
    let mut out = Map::new();
    for stamp in 1..=9 {
        out.insert(stamp.to_string(), list(cx, &topic, t0 + stamp)?);
    }
    Ok(out.into())
}

fn descending(cx: &mut Context<'_>, codec: &str) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    stamped(cx, &topic, true, Codec::parse(codec).unwrap_or(Codec::None), &[9, 7, 5, 3])?;
    at(cx, &topic, &[4, 6, 8])
}

fn time_and_varlong(cx: &mut Context<'_>) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let t0 = cx.t0();
    let batch = Batch::new(0, vec![Record::text(0, 0, "k", "v"), Record::text(1, t0, "k", "v")]);
    cx.produce_ok(&topic, 0, &batch)?;
    [0, 1, t0].iter().map(|stamp| list(cx, &topic, *stamp)).collect()
}

fn several(cx: &mut Context<'_>) -> Result<Value> {
    let topic = cx.create("t", 3, &[])?;
    let batch = Batch::of(2, cx.t0());
    cx.produce_ok(&topic, 0, &batch)?;
    cx.produce_ok(&topic, 2, &batch)?;
    let late = cx.t0() + 1_000_000;
    let questions = json!([
        {"partitionIndex": 0, "timestamp": -2}, {"partitionIndex": 1, "timestamp": late}, {"partitionIndex": 2, "timestamp": -1},
    ]);
    cx.ask("ListOffsets", 11, body(&topic, &questions, -1, 0))
}

/// Six records, each in a segment of its own, and times up to past the last one.
fn segments(cx: &mut Context<'_>) -> Result<Value> {
    let topic = cx.create("t", 1, &[("segment.bytes", "1048576")])?;
    let t0 = cx.t0();
    let big = "x".repeat(600_000);
    for i in 0..6 {
        cx.produce_ok(&topic, 0, &Batch::new(t0 + i * 10, vec![Record::text(0, 0, "k", &big)]))?;
    }
    (0..7).map(|i| Ok(list(cx, &topic, t0 + i * 10)?["offset"].take())).collect()
}
