//! Fetch outside sessions.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use crate::batch::Batch;
use crate::differential::context::{Context, fetch_body, number, version};
use crate::wire;

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    match id {
        [what @ ("whole" | "empty" | "two-topics" | "as-replica"), v] => {
            let Some(v) = version(v) else { return Ok(None) };
            versioned(cx, what, v).map(Some)
        }
        [what, v] => {
            let (Some(v), Some(epoch)) = (version(v), what.strip_prefix("leader-epoch").and_then(number)) else {
                return Ok(None);
            };
            let topic = six(cx)?;
            ask(cx, v, &topic, json!([{"partition": 0, "currentLeaderEpoch": epoch}]), json!({})).map(Some)
        }
        [what] => match what.strip_prefix("last-fetched-epoch").and_then(number) {
            Some(epoch) => {
                let topic = six(cx)?;
                let partition = json!([{"partition": 0, "fetchOffset": 3, "lastFetchedEpoch": epoch}]);
                ask(cx, 12, &topic, partition, json!({})).map(Some)
            }
            None => single(cx, what),
        },
        _ => Ok(None),
    }
}

fn six(cx: &mut Context<'_>) -> Result<String> {
    let topic = cx.create("t", 1, &[])?;
    cx.six(&topic, 0)?;
    Ok(topic)
}

/// A topic in a Fetch request: by id from version 13 on.
fn entry(cx: &Context<'_>, v: i16, topic: &str) -> Result<Value> {
    Ok(if v < 13 { json!({"topic": topic}) } else { json!({"topicId": cx.id(topic)?}) })
}

/// Gives partitions without a limit a large one.
fn limited(partitions: Value) -> Value {
    let mut partitions = partitions;
    for partition in partitions.as_array_mut().into_iter().flatten() {
        if partition["partitionMaxBytes"].is_null() {
            partition["partitionMaxBytes"] = (1 << 20).into();
        }
    }
    partitions
}

fn request(entry: &Value, partitions: Value, more: Value) -> Value {
    let mut body = fetch_body(entry, &limited(partitions));
    for (key, value) in more.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    body
}

fn ask(cx: &mut Context<'_>, v: i16, topic: &str, partitions: Value, more: Value) -> Result<Value> {
    let entry = entry(cx, v, topic)?;
    cx.ask("Fetch", v, request(&entry, partitions, more))
}

fn versioned(cx: &mut Context<'_>, what: &str, v: i16) -> Result<Value> {
    match what {
        "whole" => {
            let topic = six(cx)?;
            ask(cx, v, &topic, json!([{"partition": 0}]), json!({}))
        }
        "empty" => {
            let topic = cx.create("t", 1, &[])?;
            ask(cx, v, &topic, json!([{"partition": 0}]), json!({}))
        }
        "two-topics" => two_topics(cx, v),
        _ => {
            let topic = six(cx)?;
            let replica = if v < 15 { json!({"replicaId": 5}) } else { json!({"replicaState": {"replicaId": 5}}) };
            ask(cx, v, &topic, json!([{"partition": 0}]), replica)
        }
    }
}

fn two_topics(cx: &mut Context<'_>, v: i16) -> Result<Value> {
    let (a, b) = (cx.create("a", 2, &[])?, cx.create("b", 3, &[])?);
    let batch = Batch::of(1, cx.t0());
    cx.produce_ok(&a, 1, &batch)?;
    cx.produce_ok(&b, 2, &batch)?;
    let mut body = request(&entry(cx, v, &a)?, json!([{"partition": 1}]), json!({}));
    let mut second = entry(cx, v, &b)?;
    second["partitions"] = limited(json!([{"partition": 0}, {"partition": 2}]));
    if let Some(topics) = body["topics"].as_array_mut() {
        topics.push(second);
    }
    cx.ask("Fetch", v, body)
}

fn single(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    Ok(Some(match what {
        "unknown-partition" => {
            let topic = cx.create("t", 1, &[])?;
            let mut out = Vec::new();
            for (v, partition) in [(12, 5), (13, 5), (12, -1)] {
                out.push(ask(cx, v, &topic, json!([{"partition": partition}]), json!({}))?);
            }
            out.into()
        }
        "known-and-unknown-partition" => {
            let topic = six(cx)?;
            ask(cx, 12, &topic, json!([{"partition": 0}, {"partition": 9}]), json!({}))?
        }
        "old-id" => old_id(cx)?,
        "known-and-unknown-id" => {
            let topic = six(cx)?;
            let mut body = request(&entry(cx, 13, &topic)?, json!([{"partition": 0}]), json!({}));
            let unknown =
                json!({"topicId": "dGhpc2lzbm90YXRvcGljIQ", "partitions": limited(json!([{"partition": 0}]))});
            if let Some(topics) = body["topics"].as_array_mut() {
                topics.push(unknown);
            }
            cx.ask("Fetch", 13, body)?
        }
        "topic-twice" => {
            let topic = cx.create("t", 2, &[])?;
            let batch = Batch::of(1, cx.t0());
            cx.produce_ok(&topic, 0, &batch)?;
            cx.produce_ok(&topic, 1, &batch)?;
            let entry = |p: i32| json!({"topic": topic, "partitions": limited(json!([{"partition": p}]))});
            let body = json!({"maxWaitMs": 0, "minBytes": 0, "maxBytes": 1 << 20, "topics": [entry(0), entry(1)]});
            cx.ask("Fetch", 12, body)?
        }
        "no-topics" => cx.ask("Fetch", 12, json!({"maxWaitMs": 0, "minBytes": 0, "topics": []}))?,
        "maxbytes-neg" => with(cx, json!([{"partition": 0}]), json!({"maxBytes": -1}))?,
        "partmax-neg" => with(cx, json!([{"partition": 0, "partitionMaxBytes": -1}]), json!({}))?,
        "isolation1" => with(cx, json!([{"partition": 0}]), json!({"isolationLevel": 1}))?,
        "isolation2" => with(cx, json!([{"partition": 0}]), json!({"isolationLevel": 2}))?,
        "rack" => with(cx, json!([{"partition": 0}]), json!({"rackId": "somewhere"}))?,
        "minbytes0" | "waits" | "not-woken-below-min" | "error-answers-at-once" => waiting(cx, what)?,
        "hw-after-each" => watermarks(cx)?,
        "byte-for-byte" => same_bytes(cx)?,
        "internal" => {
            cx.internal("__consumer_offsets")?;
            let body = request(&json!({"topic": "__consumer_offsets"}), json!([{"partition": 0}]), json!({}));
            cx.call("Fetch", 12, body)?["responses"][0]["partitions"][0]["errorCode"].take()
        }
        "metadata-topic" => {
            let body = request(&json!({"topic": "__cluster_metadata"}), json!([{"partition": 0}]), json!({}));
            cx.ask("Fetch", 12, body)?
        }
        _ => return Ok(None),
    }))
}

fn with(cx: &mut Context<'_>, partitions: Value, more: Value) -> Result<Value> {
    let topic = six(cx)?;
    ask(cx, 12, &topic, partitions, more)
}

fn old_id(cx: &mut Context<'_>) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let old = cx.id(&topic)?;
    cx.delete(&topic)?;
    let new = cx.create("t", 1, &[])?;
    let batch = Batch::of(1, cx.t0());
    cx.produce_ok(&new, 0, &batch)?;
    let current = cx.learn_id(&new)?;
    let by_id = |id: &str| request(&json!({"topicId": id}), json!([{"partition": 0}]), json!({}));
    let first = cx.ask("Fetch", 13, by_id(&old))?;
    let second = cx.ask("Fetch", 13, by_id(&current))?;
    let third = cx.ask("Fetch", 12, request(&json!({"topic": new}), json!([{"partition": 0}]), json!({})))?;
    Ok(json!([first, second, third]))
}

fn waiting(cx: &mut Context<'_>, what: &str) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let started = Instant::now();
    let waited = |limit: u64| started.elapsed() >= Duration::from_millis(limit);
    match what {
        "minbytes0" => {
            let mut reply = ask(cx, 12, &topic, json!([{"partition": 0}]), json!({"maxWaitMs": 2000, "minBytes": 0}))?;
            Ok(json!({"reply": reply["responses"].take(), "quick": !waited(1000)}))
        }
        "waits" => {
            let mut reply = ask(cx, 12, &topic, json!([{"partition": 0}]), json!({"maxWaitMs": 700, "minBytes": 1}))?;
            Ok(json!({"reply": reply["responses"].take(), "waited": waited(600)}))
        }
        "error-answers-at-once" => {
            let both = json!([{"partition": 0}, {"partition": 7}]);
            let mut reply = ask(cx, 12, &topic, both, json!({"maxWaitMs": 1500, "minBytes": 1}))?;
            Ok(json!({"reply": reply["responses"].take(), "quick": !waited(1000)}))
        }
        _ => {
            let body = request(
                &json!({"topic": topic}),
                json!([{"partition": 0}]),
                json!({"maxWaitMs": 1000, "minBytes": 100_000}),
            );
            let mut reader = cx.connect()?;
            let correlation = reader.send("Fetch", 12, &body)?;
            let batch = Batch::of(1, cx.t0());
            cx.produce_ok(&topic, 0, &batch)?;
            let reply = reader.receive("Fetch", 12, correlation)?;
            Ok(json!({"reply": cx.names.normal(&reply), "waited": waited(900)}))
        }
    }
}

fn watermarks(cx: &mut Context<'_>) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let batch = Batch::of(1, cx.t0());
    let mut out = Vec::new();
    for _ in 0..3 {
        cx.produce_ok(&topic, 0, &batch)?;
        let reply = ask(cx, 12, &topic, json!([{"partition": 0}]), json!({}))?;
        let partition = &reply["responses"][0]["partitions"][0];
        out.push(json!({
            "highWatermark": partition["highWatermark"], "lastStableOffset": partition["lastStableOffset"],
            "logStartOffset": partition["logStartOffset"],
        }));
    }
    Ok(out.into())
}

fn same_bytes(cx: &mut Context<'_>) -> Result<Value> {
    let topic = six(cx)?;
    let body = request(&json!({"topic": topic}), json!([{"partition": 0}]), json!({}));
    let mut frames = Vec::new();
    for _ in 0..2 {
        let mut client = cx.connect()?;
        client.send_frame(&wire::request("Fetch", 12, 1, None, &body)?)?;
        frames.push(client.next_frame()?);
    }
    let size = cx.stored(&topic, 0)?.len();
    Ok(json!({"same": frames[0] == frames[1], "size": size}))
}
