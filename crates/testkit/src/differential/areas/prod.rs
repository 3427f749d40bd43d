//! Produce: versions, acks, topics and partitions. What is in a batch is the area `batch`.

use anyhow::{Context as _, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::prod_entries;
use crate::batch::{Batch, Record};
use crate::client::Event;
use crate::differential::context::{Context, SILENCE, number, one_partition, produce_body, version};
use crate::wire;

const UNKNOWN_ID: &str = "dGhpc2lzbm90YXRvcGljIQ";

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    match id {
        ["entries", rest @ ..] => prod_entries::run(cx, rest),
        ["ok", v, acks] => {
            let (Some(v), Some(acks)) = (version(v), acks_of(acks)) else { return Ok(None) };
            let batch = Batch::of(3, cx.t0()).build();
            reply_and_stored(cx, v, acks, &[], &batch).map(Some)
        }
        [what @ ("ok-whole" | "error-shape"), v] => {
            let Some(v) = version(v) else { return Ok(None) };
            whole(cx, v, *what == "error-shape").map(Some)
        }
        ["old", v, acks] => {
            let (Some(v), Some(acks)) = (version(v), acks_of(acks)) else { return Ok(None) };
            old(cx, v, acks).map(Some)
        }
        ["acks", what, v] => {
            let (Some(v), Some(acks)) = (version(v), what.strip_prefix("bad").and_then(number)) else {
                return Ok(None);
            };
            let batch = Batch::of(3, cx.t0()).build();
            reply_and_stored(cx, v, acks as i16, &[], &batch).map(Some)
        }
        ["acks", what] => bad_acks(cx, what),
        ["acks0", what] => silent(cx, what),
        [minisr, acks] if minisr.starts_with("minisr") => {
            let Some(acks) = acks_of(acks) else { return Ok(None) };
            let batch = Batch::of(3, cx.t0()).build();
            let least = &minisr["minisr".len()..];
            reply_and_stored(cx, 12, acks, &[("min.insync.replicas", least)], &batch).map(Some)
        }
        ["bad-name", what] => {
            let name = match *what {
                "dot" => ".".to_owned(),
                "dotdot" => "..".to_owned(),
                "aslashb" => "a/b".to_owned(),
                _ => "x".repeat(250),
            };
            partition_reply(cx, 9, &name, 0).map(Some)
        }
        ["internal", name] => {
            cx.internal(name)?;
            partition_reply(cx, 9, name, 0).map(Some)
        }
        ["beside", what] => beside(cx, what),
        [what, v] => {
            let Some(v) = version(v) else { return Ok(None) };
            versioned(cx, what, v)
        }
        [what] => single(cx, what),
        _ => Ok(None),
    }
}

fn acks_of(text: &str) -> Option<i16> {
    match text.strip_prefix("acks")? {
        "all" => Some(-1),
        other => other.parse().ok(),
    }
}

/// A Produce body for any version: by id from 13 on.
fn body(cx: &Context<'_>, v: i16, topic: &str, partition: i32, acks: i16, batch: &[u8]) -> Result<Value> {
    let mut body = produce_body(topic, partition, acks, batch);
    if v >= 13 {
        let entry = body["topicData"][0].as_object_mut().context("one topic")?;
        entry.shift_remove("name");
        entry.insert("topicId".to_owned(), cx.id(topic)?.into());
    }
    Ok(body)
}

/// Sends on a new connection: the partition's answer, or what came instead.
fn send(cx: &mut Context<'_>, v: i16, body: &Value) -> Result<Value> {
    let mut client = cx.connect()?;
    client.send("Produce", v, body)?;
    let wait = if body["acks"] == 0 { SILENCE / 3 } else { SILENCE * 4 };
    Ok(match client.next_event(wait)? {
        Event::Closed => "closed".into(),
        Event::Silent => "silent".into(),
        Event::Frame(frame) => {
            let reply = wire::response("Produce", v, &frame)?;
            let mut reply = cx.names.normal(&reply.body);
            one_partition(&mut reply["responses"][0]["partitionResponses"][0])
        }
    })
}

/// A new topic, one batch, the answer and what is stored then.
fn reply_and_stored(cx: &mut Context<'_>, v: i16, acks: i16, configs: &[(&str, &str)], batch: &[u8]) -> Result<Value> {
    let topic = cx.create("t", 1, configs)?;
    let body = body(cx, v, &topic, 0, acks, batch)?;
    let reply = send(cx, v, &body)?;
    Ok(json!({"reply": reply, "stored": cx.stored_fields(&topic, 0, batch)?}))
}

fn whole(cx: &mut Context<'_>, v: i16, refused: bool) -> Result<Value> {
    let configs: &[(&str, &str)] = if refused { &[("cleanup.policy", "compact")] } else { &[] };
    let topic = cx.create("t", 1, configs)?;
    let mut batch = Batch::of(3, cx.t0());
    if refused {
        batch.records[1].key = None;
    }
    let body = body(cx, v, &topic, 0, -1, &batch.build())?;
    cx.ask("Produce", v, body)
}

/// Versions that were removed; they are not in the schema.
fn old(cx: &mut Context<'_>, v: i16, acks: i16) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let batch = Batch::of(1, cx.t0()).build();
    let mut frame = vec![0, 0];
    frame.extend_from_slice(&v.to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0, 5, 0, 1, b'x']);
    frame.extend_from_slice(&acks.to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0x27, 0x10, 0, 0, 0, 1]);
    frame.extend_from_slice(&(topic.len() as i16).to_be_bytes());
    frame.extend_from_slice(topic.as_bytes());
    frame.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0]);
    frame.extend_from_slice(&(batch.len() as i32).to_be_bytes());
    frame.extend_from_slice(&batch);
    let mut out = cx.after(&wire::framed(&frame))?;
    out["end"] = cx.end(&topic, 0)?.into();
    Ok(out)
}

fn bad_acks(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let good = Batch::of(3, cx.t0());
    Ok(Some(match what {
        "bad2-unknown-topic" => {
            let body = produce_body(&cx.name("none"), 0, 2, &good.build());
            send(cx, 9, &body)?
        }
        "bad2-unknown-and-known" => {
            let known = cx.create("t", 1, &[])?;
            let mut body = produce_body(&cx.name("none"), 0, 2, &good.build());
            let second = produce_body(&known, 0, 2, &good.build())["topicData"][0].clone();
            if let Some(topics) = body["topicData"].as_array_mut() {
                topics.push(second);
            }
            let mut reply = cx.ask("Produce", 9, body)?;
            if let Some(topics) = reply["responses"].as_array_mut() {
                topics.sort_by_key(|t| t["name"].as_str().map(str::to_owned));
            }
            reply
        }
        "bad2-base5" => reply_and_stored(cx, 9, 2, &[], &Batch { base_offset: 5, ..good }.build())?,
        "bad2-badcrc" => reply_and_stored(cx, 9, 2, &[], &Batch { crc: Some(1), ..good }.build())?,
        _ => return Ok(None),
    }))
}

fn silent(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let good = Batch::of(3, cx.t0());
    Ok(Some(match what {
        "two-batches" => reply_and_stored(cx, 9, 0, &[], &[good.build(), good.build()].concat())?,
        "base5" => reply_and_stored(cx, 9, 0, &[], &Batch { base_offset: 5, ..good }.build())?,
        "unknown-topic" => {
            let body = produce_body(&cx.name("none"), 0, 0, &good.build());
            send(cx, 9, &body)?
        }
        "unknown-partition" => {
            let topic = cx.create("t", 1, &[])?;
            send(cx, 9, &produce_body(&topic, 9, 0, &good.build()))?
        }
        "empty" => send(cx, 9, &json!({"acks": 0, "timeoutMs": 1000, "topicData": []}))?,
        _ => return Ok(None),
    }))
}

fn partition_reply(cx: &mut Context<'_>, v: i16, topic: &str, partition: i32) -> Result<Value> {
    let batch = Batch::of(3, cx.t0()).build();
    let body = body(cx, v, topic, partition, -1, &batch)?;
    send(cx, v, &body)
}

fn versioned(cx: &mut Context<'_>, what: &str, v: i16) -> Result<Option<Value>> {
    if let Some(partition) = what.strip_prefix("unknown-partition").and_then(number) {
        let topic = cx.create("t", 1, &[])?;
        return partition_reply(cx, v, &topic, partition as i32).map(Some);
    }
    Ok(Some(match what {
        "unknown-topic" => {
            let name = cx.name("none");
            let reply = partition_reply(cx, v, &name, 0)?;
            json!([reply, cx.metadata(&name)?["errorCode"]])
        }
        "no-topics" => cx.ask("Produce", v, json!({"acks": 1, "timeoutMs": 1000, "topicData": []}))?,
        "empty-records" | "null-records" => {
            let topic = cx.create("t", 1, &[])?;
            let records = if what == "empty-records" { json!("") } else { Value::Null };
            let mut body = produce_body(&topic, 0, 1, &[]);
            body["topicData"][0]["partitionData"][0]["records"] = records;
            match cx.ask_or_silence("Produce", v, body)? {
                Value::String(text) => text.into(),
                mut reply => one_partition(&mut reply["responses"][0]["partitionResponses"][0]),
            }
        }
        _ => return Ok(None),
    }))
}

fn single(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let good = Batch::of(3, cx.t0());
    if let Some(timeout) = what.strip_prefix("timeout").and_then(number) {
        let topic = cx.create("t", 1, &[])?;
        let mut body = produce_body(&topic, 0, -1, &good.build());
        body["timeoutMs"] = timeout.into();
        return cx.ask("Produce", 12, body).map(Some);
    }
    Ok(Some(match what {
        "v14" => {
            let mut frame = vec![0, 0, 0, 14, 0, 0, 0, 5, 0, 1, b'x', 0, 0, 0, 1, 0, 0, 0, 100, 1, 0];
            frame.push(0);
            cx.after(&wire::framed(&frame))?
        }
        "v13-unknown-id" => {
            let body = by_id(&[UNKNOWN_ID], &good);
            cx.ask("Produce", 13, body)?
        }
        "v13-known-and-unknown-id" => {
            let topic = cx.create("t", 1, &[])?;
            let known = cx.id(&topic)?;
            cx.ask("Produce", 13, by_id(&[&known, UNKNOWN_ID], &good))?
        }
        "v13-old-id" => old_id(cx, &good)?,
        "cluster-metadata" => partition_reply(cx, 9, "__cluster_metadata", 0)?,
        "partition2-of-3" => {
            let topic = cx.create("t", 3, &[])?;
            let reply = partition_reply(cx, 9, &topic, 2)?;
            json!([reply, cx.end(&topic, 0)?, cx.end(&topic, 1)?, cx.end(&topic, 2)?])
        }
        "no-topics-acksall" => cx.ask("Produce", 9, json!({"acks": -1, "timeoutMs": 1000, "topicData": []}))?,
        "partition-twice" => partition_twice(cx)?,
        "two-topics" => two_topics(cx, &good)?,
        "good-and-bad" => good_and_bad(cx, &good)?,
        "null-records-acks0" => {
            let topic = cx.create("t", 1, &[])?;
            let mut body = produce_body(&topic, 0, 0, &[]);
            body["topicData"][0]["partitionData"][0]["records"] = Value::Null;
            cx.ask_or_silence("Produce", 9, body)?
        }
        "txn-id-plain-batch" => {
            let topic = cx.create("t", 1, &[])?;
            let mut body = produce_body(&topic, 0, -1, &good.build());
            body["transactionalId"] = cx.name("x").into();
            send(cx, 9, &body)?
        }
        "hundred-requests" => hundred(cx)?,
        _ => return Ok(None),
    }))
}

fn by_id(ids: &[&str], batch: &Batch) -> Value {
    let records = STANDARD.encode(batch.build());
    let topics: Vec<_> =
        ids.iter().map(|id| json!({"topicId": id, "partitionData": [{"index": 0, "records": records}]})).collect();
    json!({"acks": -1, "timeoutMs": 10000, "topicData": topics})
}

fn old_id(cx: &mut Context<'_>, good: &Batch) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let old = cx.id(&topic)?;
    cx.delete(&topic)?;
    cx.create("t", 1, &[])?;
    let new = cx.learn_id(&topic)?;
    let refused = send(cx, 13, &by_id(&[&old], good))?;
    let taken = send(cx, 13, &by_id(&[&new], good))?;
    Ok(json!([old == new, refused, taken, cx.end(&topic, 0)?]))
}

fn partition_twice(cx: &mut Context<'_>) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let batch = |value: &str| Batch::new(cx.t0(), vec![Record::text(0, 0, "k0", value)]).build();
    let (first, second) = (batch("a"), batch("b"));
    let mut body = produce_body(&topic, 0, -1, &first);
    let again = json!({"index": 0, "records": STANDARD.encode(second)});
    if let Some(partitions) = body["topicData"][0]["partitionData"].as_array_mut() {
        partitions.push(again);
    }
    let reply = cx.ask("Produce", 9, body)?;
    let bytes = cx.stored(&topic, 0)?;
    let mut records = Vec::new();
    for stored in crate::batch::Stored::split(&bytes)? {
        records.extend(stored.records()?);
    }
    let records = cx.names.normal(&records.into());
    Ok(json!([reply, records]))
}

fn two_topics(cx: &mut Context<'_>, good: &Batch) -> Result<Value> {
    let (a, b) = (cx.create("a", 1, &[])?, cx.create("b", 2, &[])?);
    let records = STANDARD.encode(good.build());
    let partition = |index: i32| json!({"index": index, "records": records});
    let body = json!({"acks": -1, "timeoutMs": 10000, "topicData": [
        {"name": a, "partitionData": [partition(0)]}, {"name": b, "partitionData": [partition(0), partition(1)]},
    ]});
    let reply = cx.ask("Produce", 9, body)?;
    let topics = reply["responses"].as_array().context("no responses")?;
    let mut all = Vec::new();
    for topic in topics {
        for answer in topic["partitionResponses"].as_array().into_iter().flatten() {
            let code = answer["errorCode"].as_str().unwrap_or_default();
            let name = format!("{}-{}", topic["name"].as_str().unwrap_or_default(), answer["index"]);
            all.push((name, format!("{code} {}", answer["baseOffset"]).into()));
        }
    }
    all.sort_by(|x: &(String, Value), y| x.0.cmp(&y.0));
    Ok(json!({"topics": topics.len(), "all": all.into_iter().collect::<Map<_, _>>()}))
}

fn good_and_bad(cx: &mut Context<'_>, good: &Batch) -> Result<Value> {
    let topic = cx.create("t", 2, &[])?;
    let bad = Batch { crc: Some(1), ..good.clone() };
    let partition = |index: i32, batch: &Batch| json!({"index": index, "records": STANDARD.encode(batch.build())});
    let body = json!({"acks": -1, "timeoutMs": 10000, "topicData": [
        {"name": topic, "partitionData": [partition(0, good), partition(1, &bad), partition(2, good)]},
    ]});
    let reply = cx.ask("Produce", 9, body)?;
    let mut all: Vec<_> = reply["responses"][0]["partitionResponses"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|answer| (answer["index"].to_string(), answer.clone()))
        .collect();
    all.sort_by(|x, y| x.0.cmp(&y.0));
    Ok(json!([all.into_iter().collect::<Map<_, _>>(), cx.end(&topic, 0)?, cx.end(&topic, 1)?]))
}

fn hundred(cx: &mut Context<'_>) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let body = produce_body(&topic, 0, -1, &Batch::of(1, cx.t0()).build());
    let mut consecutive = true;
    for expected in 0..100 {
        let reply = cx.call("Produce", 9, body.clone())?;
        consecutive &= reply["responses"][0]["partitionResponses"][0]["baseOffset"] == expected;
    }
    Ok(json!({"consecutive": consecutive, "end": cx.end(&topic, 0)?}))
}

fn beside(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let topic = cx.create("t", 2, &[])?;
    let good = Batch::of(3, cx.t0());
    let bad = match what {
        "magic3" => Batch { magic: 3, ..good.clone() },
        "magic1" => Batch { magic: 1, ..good.clone() },
        "length0" => Batch { length: Some(0), ..good.clone() },
        "crc" => Batch { crc: Some(1), ..good.clone() },
        _ => return Ok(None),
    };
    let mut body = produce_body(&topic, 0, -1, &good.build());
    let second = json!({"index": 1, "records": STANDARD.encode(bad.build())});
    if let Some(partitions) = body["topicData"][0]["partitionData"].as_array_mut() {
        partitions.push(second);
    }
    let reply = cx.ask("Produce", 12, body)?;
    Ok(Some(json!([sorted(reply), cx.end(&topic, 0)?, cx.end(&topic, 1)?])))
}

/// Sorts the partitions of a reply, whose order is not promised.
fn sorted(mut reply: Value) -> Value {
    if let Some(partitions) = reply["responses"][0]["partitionResponses"].as_array_mut() {
        partitions.sort_by_key(|p| p["index"].as_i64());
    }
    reply
}
