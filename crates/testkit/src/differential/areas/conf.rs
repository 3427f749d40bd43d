//! DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::stored::records;
use crate::batch::{Batch, Record};
use crate::differential::context::{Context, number, version};

const TOPIC: i64 = 2;
const BROKER: i64 = 4;

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    match id {
        ["default", key @ ..] => {
            let topic = cx.create("t", 1, &[])?;
            let key = key.join(".");
            let mut all = describe(cx, 4, TOPIC, &topic, &json!([key]), &json!({"includeSynonyms": true}))?;
            Ok(Some(all["configs"].take()))
        }
        ["topic-keys"] => {
            let topic = cx.create("t", 1, &[])?;
            let all = describe(cx, 4, TOPIC, &topic, &Value::Null, &json!({}))?;
            Ok(Some(all["configs"].as_array().into_iter().flatten().map(|c| c["name"].clone()).collect()))
        }
        ["describe", what @ ..] => describe_case(cx, what),
        ["alter", what @ ..] => alter(cx, what),
        ["inc", what @ ..] => incremental(cx, what),
        ["list-resources", what] => list(cx, what),
        ["effect", "tombstone-dropped"] => tombstone(cx).map(Some),
        ["effect", "retention-ms"] => retention(cx).map(Some),
        _ => Ok(None),
    }
}

/// One resource of a DescribeConfigs answer, its configs sorted by name.
fn describe(cx: &mut Context<'_>, v: i16, kind: i64, name: &str, keys: &Value, more: &Value) -> Result<Value> {
    let mut body = json!({"resources": [{"resourceType": kind, "resourceName": name, "configurationKeys": keys}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    let mut result = cx.ask("DescribeConfigs", v, body)?["results"][0].take();
    if let Some(configs) = result["configs"].as_array_mut() {
        configs.sort_by_key(|c| c["name"].as_str().map(str::to_owned));
    }
    Ok(result)
}

/// The value and the source of a topic's key.
fn value(cx: &mut Context<'_>, topic: &str, key: &str) -> Result<Value> {
    // A broker may answer from the metadata of a moment ago.
    std::thread::sleep(Duration::from_millis(80));
    let all = describe(cx, 4, TOPIC, topic, &json!([key]), &json!({}))?;
    Ok(json!([all["configs"][0]["value"], all["configs"][0]["configSource"]]))
}

fn describe_case(cx: &mut Context<'_>, what: &[&str]) -> Result<Option<Value>> {
    let plain = json!({});
    Ok(Some(match what {
        ["one", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            let topic = cx.create("t", 1, &[("retention.ms", "777")])?;
            let resource = json!({"resourceType": TOPIC, "resourceName": topic, "configurationKeys": ["retention.ms"]});
            cx.ask("DescribeConfigs", v, json!({"resources": [resource]}))?
        }
        ["unknown", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            let name = cx.name("no");
            describe(cx, v, TOPIC, &name, &Value::Null, &plain)?
        }
        ["documentation", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            let topic = cx.create("t", 1, &[])?;
            let more = json!({"includeDocumentation": true});
            let mut reply = describe(cx, v, TOPIC, &topic, &json!(["retention.ms"]), &more)?;
            let text = &mut reply["configs"][0]["documentation"];
            if text.as_str().is_some_and(|t| !t.is_empty()) {
                *text = "some".into();
            }
            reply
        }
        [what] => return describe_single(cx, what),
        _ => return Ok(None),
    }))
}

fn describe_single(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let plain = json!({});
    if let Some(kind) = what.strip_prefix("type").and_then(number) {
        return describe(cx, 4, kind, "x", &Value::Null, &plain).map(Some);
    }
    let broker = cx.facts.node.to_string();
    Ok(Some(match what {
        "three-keys" | "no-keys" | "key-twice" => {
            let topic = cx.create("t", 1, &[])?;
            let keys = match what {
                "three-keys" => json!(["retention.ms", "cleanup.policy", "flush.ms"]),
                "no-keys" => json!([]),
                _ => json!(["flush.ms", "flush.ms"]),
            };
            describe(cx, 4, TOPIC, &topic, &keys, &plain)?
        }
        "bad-name" => describe(cx, 4, TOPIC, "a b", &Value::Null, &plain)?,
        "broker" => {
            let keys = json!([
                "auto.create.topics.enable",
                "compression.type",
                "log.retention.ms",
                "min.insync.replicas",
                "num.partitions"
            ]);
            describe(cx, 4, BROKER, &broker, &keys, &json!({"includeSynonyms": true}))?
        }
        "broker-default" => {
            let body = json!({"resources": [{"resourceType": BROKER, "resourceName": "", "configurationKeys": null}]});
            cx.call("DescribeConfigs", 4, body)?["results"][0]["errorCode"].take()
        }
        "broker-text" => describe(cx, 4, BROKER, "abc", &Value::Null, &plain)?,
        "broker-sensitive" => describe(cx, 4, BROKER, &broker, &json!(["ssl.key.password"]), &plain)?,
        "group" => {
            let name = cx.name("g");
            describe(cx, 4, 32, &name, &Value::Null, &plain)?
        }
        "client-metrics" => {
            let name = cx.name("m");
            describe(cx, 4, 16, &name, &Value::Null, &plain)?
        }
        _ => return Ok(None),
    }))
}

/// AlterConfigs of one topic.
fn alter_topic(cx: &mut Context<'_>, v: i16, topic: &str, configs: &Value) -> Result<Value> {
    let resource = json!({"resourceType": TOPIC, "resourceName": topic, "configs": configs});
    cx.ask("AlterConfigs", v, json!({"resources": [resource]}))
}

fn alter(cx: &mut Context<'_>, what: &[&str]) -> Result<Option<Value>> {
    Ok(Some(match what {
        ["resets", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            let topic = cx.create("t", 1, &[("retention.ms", "777")])?;
            let reply = alter_topic(cx, v, &topic, &json!([{"name": "flush.ms", "value": "999"}]))?;
            json!([reply, value(cx, &topic, "retention.ms")?, value(cx, &topic, "flush.ms")?])
        }
        [what @ ("unknown-key" | "bad-enum" | "null-value")] => {
            let (key, text) = match *what {
                "unknown-key" => ("no.such.key", json!("1")),
                "bad-enum" => ("cleanup.policy", json!("shred")),
                _ => ("retention.ms", Value::Null),
            };
            let topic = cx.create("t", 1, &[])?;
            let reply = alter_topic(cx, 2, &topic, &json!([{"name": key, "value": text}]))?;
            json!([reply, closed(cx)?])
        }
        ["unknown-topic"] => {
            let name = cx.name("no");
            alter_topic(cx, 2, &name, &json!([{"name": "flush.ms", "value": "999"}]))?
        }
        ["empty-resets-all"] => {
            let topic = cx.create("t", 1, &[("retention.ms", "777")])?;
            let reply = alter_topic(cx, 2, &topic, &json!([]))?;
            json!([reply, value(cx, &topic, "retention.ms")?])
        }
        ["resource-twice"] => {
            let topic = cx.create("t", 1, &[])?;
            let configs = json!([{"name": "flush.ms", "value": "999"}]);
            let resource = json!({"resourceType": TOPIC, "resourceName": topic, "configs": configs});
            cx.ask_or_silence("AlterConfigs", 2, json!({"resources": [resource, resource]}))?
        }
        _ => return Ok(None),
    }))
}

/// Whether the connection was closed meanwhile.
fn closed(cx: &mut Context<'_>) -> Result<bool> {
    Ok(cx.client()?.call("ApiVersions", 0, &json!({})).is_err())
}

/// A config of an IncrementalAlterConfigs request: 0 set, 1 delete, 2 append, 3 subtract.
fn op(key: &str, operation: i64, value: impl Into<Value>) -> Value {
    json!({"name": key, "configOperation": operation, "value": value.into()})
}

/// IncrementalAlterConfigs of one resource; its part of the answer.
fn change(cx: &mut Context<'_>, kind: i64, name: &str, configs: &Value, validate: bool) -> Result<Value> {
    let resource = json!({"resourceType": kind, "resourceName": name, "configs": configs});
    let body = json!({"resources": [resource], "validateOnly": validate});
    Ok(cx.ask("IncrementalAlterConfigs", 1, body)?["responses"][0].take())
}

fn incremental(cx: &mut Context<'_>, what: &[&str]) -> Result<Option<Value>> {
    if what[0].starts_with("broker") {
        return broker(cx, what[0]);
    }
    Ok(Some(match what {
        ["set", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            let topic = cx.create("t", 1, &[("retention.ms", "777")])?;
            let resource = json!({"resourceType": TOPIC, "resourceName": topic, "configs": [op("flush.ms", 0, "5")]});
            let reply = cx.ask("IncrementalAlterConfigs", v, json!({"resources": [resource]}))?;
            json!([reply, value(cx, &topic, "flush.ms")?, value(cx, &topic, "retention.ms")?])
        }
        [what @ ("unknown-key" | "bad-value" | "null-value" | "negative")] => {
            let config = match *what {
                "unknown-key" => op("no.such.key", 0, "1"),
                "bad-value" => op("retention.ms", 0, "abc"),
                "null-value" => op("retention.ms", 0, Value::Null),
                _ => op("max.message.bytes", 0, "-5"),
            };
            let topic = cx.create("t", 1, &[])?;
            let reply = change(cx, TOPIC, &topic, &json!([config]), false)?;
            json!([reply, closed(cx)?])
        }
        ["delete" | "delete-with-value"] => {
            let topic = cx.create("t", 1, &[("retention.ms", "777")])?;
            let text = if what[0] == "delete" { Value::Null } else { "5".into() };
            let reply = change(cx, TOPIC, &topic, &json!([op("retention.ms", 1, text)]), false)?;
            json!([reply, value(cx, &topic, "retention.ms")?])
        }
        ["subtract"] => {
            let topic = cx.create("t", 1, &[("cleanup.policy", "compact,delete")])?;
            let reply = change(cx, TOPIC, &topic, &json!([op("cleanup.policy", 3, "delete")]), false)?;
            json!([reply, value(cx, &topic, "cleanup.policy")?])
        }
        ["validate" | "one-good-one-bad"] => {
            let topic = cx.create("t", 1, &[])?;
            let mut configs = vec![op("flush.ms", 0, "5")];
            if what[0] != "validate" {
                configs.push(op("retention.ms", 0, "abc"));
            }
            let reply = change(cx, TOPIC, &topic, &configs.into(), what[0] == "validate")?;
            json!([reply, value(cx, &topic, "flush.ms")?])
        }
        ["key-twice" | "key-set-and-delete"] => {
            let topic = cx.create("t", 1, &[])?;
            let second = if what[0] == "key-twice" { op("flush.ms", 0, "6") } else { op("flush.ms", 1, Value::Null) };
            change(cx, TOPIC, &topic, &json!([op("flush.ms", 0, "5"), second]), false)?
        }
        ["unknown-topic"] => {
            let name = cx.name("no");
            change(cx, TOPIC, &name, &json!([op("flush.ms", 0, "5")]), false)?
        }
        ["group-empty-name"] => change(cx, 32, "", &json!([op("consumer.session.timeout.ms", 0, "50000")]), false)?,
        [what] => {
            let Some(operation) = what.strip_prefix("op").and_then(number) else { return Ok(None) };
            let topic = cx.create("t", 1, &[])?;
            change(cx, TOPIC, &topic, &json!([op("flush.ms", operation, "5")]), false)?
        }
        _ => return Ok(None),
    }))
}

fn broker(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let own = cx.facts.node.to_string();
    Ok(Some(match what {
        // The name of a read-only setting of former times, which is any unknown name now.
        "broker-readonly" => change(cx, BROKER, &own, &json!([op("zookeeper.connect", 0, "x")]), false)?,
        "broker-other" => change(cx, BROKER, "77", &json!([op("log.cleaner.threads", 0, "1")]), false)?,
        "broker-validate" => change(cx, BROKER, &own, &json!([op("log.retention.ms", 0, "1000000")]), true)?,
        _ => return Ok(None),
    }))
}

fn list(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    Ok(Some(match what {
        "v0" => {
            let reply = cx.ask("ListConfigResources", 0, json!({}))?;
            json!({"errorCode": reply["errorCode"], "list": "any"})
        }
        "topic" => {
            let topic = cx.create("t", 1, &[])?;
            let reply = cx.call("ListConfigResources", 1, json!({"resourceTypes": [TOPIC]}))?;
            let ours = reply["configResources"].as_array();
            let ours = ours.is_some_and(|r| r.iter().any(|r| r["resourceName"] == topic.as_str()));
            let reply = cx.names.normal(&reply);
            json!({"errorCode": reply["errorCode"], "ours": ours})
        }
        "bad-type" => cx.ask("ListConfigResources", 1, json!({"resourceTypes": [99]}))?,
        _ => return Ok(None),
    }))
}

/// Two records in old segments, and a third in the active one; the old ones are past their time.
fn retention(cx: &mut Context<'_>) -> Result<Value> {
    let topic = cx.create("t", 1, &[("retention.ms", "10000"), ("segment.bytes", "1048576")])?;
    let big = "x".repeat(900_000);
    let (old, now) = (cx.t0() - 10_000_000, cx.t0() + 60_000);
    for stamp in [old, old, now] {
        cx.produce_ok(&topic, 0, &Batch::new(stamp, vec![Record::text(0, 0, "k", &big)]))?;
    }
    let mut start = cx.list_offset(&topic, 0, -2)?["offset"].take();
    for _ in 0..30 {
        if start != 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(500));
        start = cx.list_offset(&topic, 0, -2)?["offset"].take();
    }
    Ok(json!({"start": start, "next": start}))
}

/// A record without value that is older than `delete.retention.ms`; then the topic is no longer compacted.
fn tombstone(cx: &mut Context<'_>) -> Result<Value> {
    let configs = [
        ("cleanup.policy", "compact"),
        ("delete.retention.ms", "100"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("segment.ms", "1000"),
    ];
    let topic = cx.create("t", 1, &configs)?;
    let mut gone = Record::text(0, 0, "gone", "");
    gone.value = None;
    for record in [gone, Record::text(0, 0, "other", "v")] {
        cx.produce_ok(&topic, 0, &Batch::new(cx.t0(), vec![record]))?;
    }
    let has = |found: &Value, key: &str| found.as_array().into_iter().flatten().any(|record| record["k"] == key);
    let mut found = records(cx)?;
    // Its first cleaning gives a tombstone its time, and a later one, of a log with something new, takes it.
    for number in 1..40 {
        if !has(&found, "gone") {
            break;
        }
        let later = Record::text(0, 0, "later", "v");
        cx.produce_ok(&topic, 0, &Batch::new(cx.t0() + number * 1500, vec![later]))?;
        std::thread::sleep(Duration::from_millis(500));
        found = records(cx)?;
    }
    let dropped = !has(&found, "gone");
    let config = json!({"name": "cleanup.policy", "configOperation": 0, "value": "delete"});
    let resource = json!({"resourceType": TOPIC, "resourceName": topic, "configs": [config]});
    cx.call("IncrementalAlterConfigs", 1, json!({"resources": [resource]}))?;
    Ok(json!({"dropped": dropped, "otherKept": has(&records(cx)?, "other")}))
}
