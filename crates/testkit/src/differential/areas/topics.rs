//! CreateTopics, DeleteTopics, CreatePartitions.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::meta::{bad_name, long_name};
use super::off;
use crate::batch::Batch;
use crate::differential::context::{Context, number, version};

const UNKNOWN_ID: &str = "dGhpc2lzbm90YXRvcGljIQ";

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    match id {
        ["create", "reply-configs"] => reply_configs(cx).map(Some),
        ["create", "config", what] => config(cx, what),
        ["create", "assign", what] => assigned(cx, what),
        ["create", "name", what] => named(cx, what),
        ["create", parts, rf] if parts.starts_with("parts") => {
            let (Some(parts), Some(rf)) = (signed(parts, "parts"), signed(rf, "rf")) else { return Ok(None) };
            let name = cx.name("t");
            create(cx, 7, json!([topic(&name, parts, rf)]), false).map(Some)
        }
        ["create", what, v] => {
            let Some(v) = version(v) else { return Ok(None) };
            versioned(cx, what, v)
        }
        ["create", what] => create_single(cx, what),
        ["delete", what, v] => {
            let Some(v) = version(v) else { return Ok(None) };
            delete_versioned(cx, what, v)
        }
        ["delete", what] => delete_single(cx, what),
        ["parts", what @ ..] => partitions(cx, what),
        _ => Ok(None),
    }
}

fn signed(text: &str, name: &str) -> Option<i64> {
    text.strip_prefix(name)?.parse().ok()
}

fn topic(name: &str, partitions: i64, replication: i64) -> Value {
    json!({"name": name, "numPartitions": partitions, "replicationFactor": replication})
}

/// A CreateTopics request and the topics of its answer; configs are told as `some` or `none`.
fn create(cx: &mut Context<'_>, v: i16, topics: Value, validate: bool) -> Result<Value> {
    let body = json!({"topics": topics, "timeoutMs": 30000, "validateOnly": validate});
    let mut reply = cx.call("CreateTopics", v, body)?["topics"].take();
    let mut listed = Vec::new();
    for answer in reply.as_array_mut().into_iter().flatten() {
        let name = answer["name"].as_str().unwrap_or_default().to_owned();
        if answer["errorCode"] == 0
            && let Some(id) = answer["topicId"].as_str()
        {
            cx.names.topics.insert(id.to_owned(), name);
        }
        if let Some(object) = answer.as_object_mut() {
            // A tag that is there only if the configs could not be read.
            object.shift_remove("topicConfigErrorCode");
            if let Some(configs) = object.get_mut("configs") {
                let some = configs.as_array().is_some_and(|c| !c.is_empty());
                *configs = if some { "some" } else { "none" }.into();
            }
        }
        listed.push(cx.names.normal(answer));
    }
    listed.sort_by_key(|t| t["name"].as_str().map(str::to_owned));
    Ok(listed.into())
}

fn versioned(cx: &mut Context<'_>, what: &str, v: i16) -> Result<Option<Value>> {
    let name = cx.name("t");
    Ok(Some(match what {
        "ok" => {
            let reply = create(cx, v, json!([topic(&name, 3, 1)]), false)?;
            cx.learn_id(&name)?;
            let partitions = cx.metadata(&name)?["partitions"].as_array().map_or(0, Vec::len);
            json!([reply, partitions])
        }
        "defaults" => create(cx, v, json!([topic(&name, -1, -1)]), false)?,
        "validate" => {
            let reply = create(cx, v, json!([topic(&name, 2, 1)]), true)?;
            json!([reply, cx.metadata(&name)?["errorCode"]])
        }
        "exists" => {
            cx.create("t", 1, &[])?;
            create(cx, v, json!([topic(&name, 1, 1)]), false)?
        }
        _ => return Ok(None),
    }))
}

fn create_single(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let name = cx.name("t");
    if let Some(timeout) = what.strip_prefix("timeout").and_then(number) {
        let body = json!({"topics": [topic(&name, 1, 1)], "timeoutMs": timeout});
        let mut reply = cx.ask("CreateTopics", 5, body)?["topics"][0].take();
        remove(&mut reply, &["configs", "topicConfigErrorCode"]);
        return Ok(Some(reply));
    }
    Ok(Some(match what {
        "twice-in-request" => create(cx, 7, json!([topic(&name, 1, 1), topic(&name, 1, 1)]), false)?,
        "two" => {
            let other = cx.name("u");
            create(cx, 7, json!([topic(&name, 1, 1), topic(&other, 0, 1)]), false)?
        }
        "even-rf" => {
            let mut reply = create(cx, 7, json!([topic(&name, 1, 2)]), false)?[0].take();
            remove(&mut reply, &["configs"]);
            reply
        }
        _ => return Ok(None),
    }))
}

fn remove(object: &mut Value, keys: &[&str]) {
    for key in keys {
        if let Some(object) = object.as_object_mut() {
            object.shift_remove(*key);
        }
    }
}

fn reply_configs(cx: &mut Context<'_>) -> Result<Value> {
    let name = cx.name("t");
    let mut topic = topic(&name, 1, 1);
    topic["configs"] = json!([{"name": "retention.ms", "value": "12345"}]);
    let mut reply = cx.call("CreateTopics", 7, json!({"topics": [topic], "timeoutMs": 30000}))?;
    let configs = reply["topics"][0]["configs"].take();
    let mut all: Vec<_> = configs
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| {
            let fields = json!([c["value"], c["configSource"], c["readOnly"], c["isSensitive"]]);
            (c["name"].as_str().unwrap_or_default().to_owned(), fields)
        })
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(all.into_iter().collect::<Map<_, _>>().into())
}

fn config(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let configs: &[(&str, &str)] = match what {
        "ok" => &[("retention.ms", "1000")],
        "bad-number" => &[("retention.ms", "abc")],
        "bad-enum" => &[("cleanup.policy", "shred")],
        "empty-value" => &[("retention.ms", "")],
        "retention-neg2" => &[("retention.ms", "-2")],
        "minisr0" => &[("min.insync.replicas", "0")],
        "minisr5" => &[("min.insync.replicas", "5")],
        "compression-bad" => &[("compression.type", "brotli")],
        "compression-none" => &[("compression.type", "none")],
        "segment-1mb" => &[("segment.bytes", "1048576")],
        "tstype-bad" => &[("message.timestamp.type", "Never")],
        "policy-empty" => &[("cleanup.policy", "")],
        "policy-spaces" => &[("cleanup.policy", "compact, delete")],
        "bool-upper" => &[("preallocate", "TRUE")],
        "double-bad" => &[("min.cleanable.dirty.ratio", "1.5")],
        "message-format" => &[("message.format.version", "3.0")],
        "difference-max" => &[("message.timestamp.difference.max.ms", "1000")],
        "remote-storage" => &[("remote.storage.enable", "true")],
        "delete-on-disable" => &[("remote.log.delete.on.disable", "true")],
        "zstd-level" => &[("compression.zstd.level", "22")],
        "lz4-level-0" => &[("compression.lz4.level", "0")],
        "local-retention" => &[("local.retention.ms", "2000"), ("retention.ms", "1000")],
        _ => return Ok(None),
    };
    let mut topic = topic(&cx.name("t"), 1, 1);
    topic["configs"] = configs.iter().map(|(k, v)| json!({"name": k, "value": v})).collect();
    create(cx, 7, json!([topic]), false).map(Some)
}

fn assigned(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let node = cx.facts.node;
    let partition = |index: i64, brokers: &[i64]| json!({"partitionIndex": index, "brokerIds": brokers});
    let (assignments, partitions, replication) = match what {
        "gap" => (vec![partition(0, &[node]), partition(2, &[node])], -1, -1),
        "not-from-0" => (vec![partition(1, &[node])], -1, -1),
        "duplicate-broker" => (vec![partition(0, &[node, node])], -1, -1),
        "empty-replicas" => (vec![partition(0, &[])], -1, -1),
        "uneven" => (vec![partition(0, &[node]), partition(1, &[node, node + 1])], -1, -1),
        "partition-twice" => (vec![partition(0, &[node]), partition(0, &[node])], -1, -1),
        "and-rf" => (vec![partition(0, &[node])], -1, 1),
        _ => return Ok(None),
    };
    let mut topic = topic(&cx.name("t"), partitions, replication);
    topic["assignments"] = assignments.into();
    create(cx, 7, json!([topic]), false).map(Some)
}

fn named(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let name = match what {
        "249" | "250" => long_name(cx, what.parse()?),
        "underscore" => format!("_{}", cx.names.prefix),
        "dash" => format!("-{}", cx.names.prefix),
        "internal" => {
            cx.internal("__consumer_offsets")?;
            "__consumer_offsets".to_owned()
        }
        _ => match bad_name(what) {
            Some(name) => name,
            None => return Ok(None),
        },
    };
    create(cx, 7, json!([topic(&name, 1, 1)]), false).map(Some)
}

fn delete_versioned(cx: &mut Context<'_>, what: &str, v: i16) -> Result<Option<Value>> {
    let body = |name: &str| match v {
        ..6 => json!({"topicNames": [name], "timeoutMs": 30000}),
        _ => json!({"topics": [{"name": name}], "timeoutMs": 30000}),
    };
    Ok(Some(match what {
        "ok" => {
            let topic = cx.create("t", 1, &[])?;
            let reply = cx.ask("DeleteTopics", v, body(&topic))?;
            json!([reply, gone(cx, &topic)?])
        }
        "unknown" => {
            let name = cx.name("no");
            cx.ask("DeleteTopics", v, body(&name))?
        }
        _ => return Ok(None),
    }))
}

fn gone(cx: &mut Context<'_>, topic: &str) -> Result<&'static str> {
    cx.wait_gone(topic).map(|()| "gone")
}

fn delete_single(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let by = |topics: Value| json!({"topics": topics, "timeoutMs": 30000});
    Ok(Some(match what {
        "id" => {
            let topic = cx.create("t", 1, &[])?;
            let id = cx.id(&topic)?;
            let reply = cx.ask("DeleteTopics", 6, by(json!([{"topicId": id}])))?;
            json!([reply, gone(cx, &topic)?])
        }
        "id-unknown" => cx.ask("DeleteTopics", 6, by(json!([{"topicId": UNKNOWN_ID}])))?,
        "neither" => cx.ask("DeleteTopics", 6, by(json!([{}])))?,
        "twice-in-request" => {
            let topic = cx.create("t", 1, &[])?;
            cx.ask("DeleteTopics", 6, by(json!([{"name": topic}, {"name": topic}])))?
        }
        "twice" => {
            let topic = cx.create("t", 1, &[])?;
            cx.delete(&topic)?;
            cx.ask("DeleteTopics", 5, json!({"topicNames": [topic], "timeoutMs": 30000}))?
        }
        "bad-name" => {
            let mut reply = cx.ask("DeleteTopics", 5, json!({"topicNames": ["", "a b"], "timeoutMs": 30000}))?;
            if let Some(all) = reply["responses"].as_array_mut() {
                all.sort_by_key(|t| t["name"].as_str().map(str::to_owned));
            }
            reply
        }
        "recreate-offsets-gone" => {
            let topic = off::committed(cx, 5)?;
            let before = off::offset(cx, &topic, 0)?;
            cx.delete(&topic)?;
            cx.create("t", 3, &[])?;
            json!([before, off::offset(cx, &topic, 0)?])
        }
        "recreate-empty" => {
            let topic = cx.create("t", 1, &[])?;
            cx.six(&topic, 0)?;
            cx.delete(&topic)?;
            cx.create("t", 1, &[])?;
            let end = cx.end(&topic, 0)?;
            let batch = Batch::of(1, cx.t0());
            let first = cx.produce(&topic, 0, &batch.build())?;
            json!([end, first["baseOffset"]])
        }
        _ => return Ok(None),
    }))
}

fn partitions(cx: &mut Context<'_>, what: &[&str]) -> Result<Option<Value>> {
    let ask = |cx: &mut Context<'_>, v: i16, topics: Value| {
        cx.ask("CreatePartitions", v, json!({"topics": topics, "timeoutMs": 30000}))
    };
    Ok(Some(match what {
        ["ok", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            let topic = cx.create("t", 1, &[])?;
            ask(cx, v, json!([{"name": topic, "count": 3, "assignments": null}]))?
        }
        ["unknown"] => {
            let name = cx.name("no");
            ask(cx, 3, json!([{"name": name, "count": 3, "assignments": null}]))?
        }
        ["twice"] => {
            let topic = cx.create("t", 1, &[])?;
            let one = json!({"name": topic, "count": 3, "assignments": null});
            ask(cx, 3, json!([one, one]))?
        }
        ["assign", what] => {
            let node = cx.facts.node;
            let brokers: Vec<Vec<i64>> = match *what {
                "too-few" => vec![vec![node]],
                "too-many" => vec![vec![node]; 3],
                "wrong-rf" => vec![vec![node], vec![node, node + 1]],
                "empty" => vec![vec![node], vec![]],
                _ => return Ok(None),
            };
            let topic = cx.create("t", 1, &[])?;
            let assignments: Vec<_> = brokers.iter().map(|b| json!({"brokerIds": b})).collect();
            ask(cx, 3, json!([{"name": topic, "count": 3, "assignments": assignments}]))?
        }
        [to] => {
            let Some(count) = to.strip_prefix("to").and_then(number) else { return Ok(None) };
            let topic = cx.create("t", 2, &[])?;
            ask_and_delete(cx, &topic, count)?
        }
        _ => return Ok(None),
    }))
}

/// From two to `count` partitions; ten thousand of them are deleted again, so that the other cases stay quick.
fn ask_and_delete(cx: &mut Context<'_>, topic: &str, count: i64) -> Result<Value> {
    let topics = json!([{"name": topic, "count": count, "assignments": null}]);
    let validate = count > 1000;
    let body = json!({"topics": topics, "timeoutMs": 30000, "validateOnly": validate});
    cx.ask("CreatePartitions", 3, body)
}
