//! DeleteRecords.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::batch::{Batch, Record};
use crate::differential::context::{Context, number, version};
use crate::differential::normalise::error;

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    match id {
        ["backwards"] => backwards(cx).map(Some),
        ["unknown"] => unknown(cx).map(Some),
        ["policy", policy @ ("delete" | "compact-delete")] => by_policy(cx, &policy.replace('-', ",")).map(Some),
        ["policy", "compact"] => by_policy(cx, "compact").map(Some),
        ["policy-changed"] => policy_changed(cx).map(Some),
        ["empty", what] => {
            let Some(offset) = what.strip_prefix("to").and_then(number) else { return Ok(None) };
            let topic = cx.create("t", 1, &[])?;
            to(cx, &topic, offset).map(Some)
        }
        ["partition-twice", first, second] => {
            let (Some(first), Some(second)) = (number(first), number(second)) else { return Ok(None) };
            let topic = six(cx)?;
            let partitions = json!([{"partitionIndex": 0, "offset": first}, {"partitionIndex": 0, "offset": second}]);
            let answer = ask(cx, 2, &topic, &partitions, 10_000)?;
            Ok(Some(json!([answer, start(cx, &topic)?])))
        }
        ["no-partitions"] => {
            let topic = six(cx)?;
            ask(cx, 2, &topic, &json!([]), 10_000).map(Some)
        }
        ["produce-after"] => produce_after(cx).map(Some),
        ["two-partitions"] => two_partitions(cx).map(Some),
        ["timeout0"] => {
            let topic = six(cx)?;
            ask(cx, 2, &topic, &json!([{"partitionIndex": 0, "offset": 1}]), 0).map(Some)
        }
        [what] => match (version(what), what.strip_prefix("to").and_then(number)) {
            (Some(v), _) => in_version(cx, v).map(Some),
            (None, Some(offset)) => {
                let topic = six(cx)?;
                let answer = to(cx, &topic, offset)?;
                Ok(Some(json!([answer, start(cx, &topic)?])))
            }
            (None, None) => Ok(None),
        },
        _ => Ok(None),
    }
}

/// A topic with six records.
fn six(cx: &mut Context<'_>) -> Result<String> {
    let topic = cx.create("t", 1, &[])?;
    cx.six(&topic, 0)?;
    Ok(topic)
}

fn ask(cx: &mut Context<'_>, v: i16, topic: &str, partitions: &Value, timeout_ms: i32) -> Result<Value> {
    let topics = json!([{"name": topic, "partitions": partitions}]);
    cx.ask("DeleteRecords", v, json!({"topics": topics, "timeoutMs": timeout_ms}))
}

/// The answer's topics after a deletion up to `offset`.
fn to(cx: &mut Context<'_>, topic: &str, offset: i64) -> Result<Value> {
    Ok(ask(cx, 2, topic, &json!([{"partitionIndex": 0, "offset": offset}]), 10_000)?["topics"].take())
}

fn start(cx: &mut Context<'_>, topic: &str) -> Result<Value> {
    Ok(cx.list_offset(topic, 0, -2)?["offset"].take())
}

fn in_version(cx: &mut Context<'_>, v: i16) -> Result<Value> {
    let topic = six(cx)?;
    let answer = ask(cx, v, &topic, &json!([{"partitionIndex": 0, "offset": 4}]), 10_000)?;
    let mut offsets = Vec::new();
    for timestamp in [-2, -1] {
        let mut found = cx.list_offset(&topic, 0, timestamp)?;
        if let Some(found) = found.as_object_mut() {
            found.remove("partitionIndex");
        }
        offsets.push(cx.names.normal(&found));
    }
    Ok(json!([answer, offsets[0], offsets[1]]))
}

fn backwards(cx: &mut Context<'_>) -> Result<Value> {
    let topic = six(cx)?;
    let (first, second) = (to(cx, &topic, 4)?, to(cx, &topic, 2)?);
    Ok(json!([first, second, start(cx, &topic)?]))
}

fn unknown(cx: &mut Context<'_>) -> Result<Value> {
    let topic = six(cx)?;
    let none = cx.name("none");
    let of_topic = ask(cx, 2, &none, &json!([{"partitionIndex": 0, "offset": 1}]), 10_000)?;
    let of_partition = ask(cx, 2, &topic, &json!([{"partitionIndex": 3, "offset": 1}]), 10_000)?;
    Ok(json!([of_topic, of_partition]))
}

fn by_policy(cx: &mut Context<'_>, policy: &str) -> Result<Value> {
    let topic = cx.create("t", 1, &[("cleanup.policy", policy)])?;
    let records = (0..3).map(|delta| Record::text(delta, 0, &format!("k{delta}"), "v")).collect();
    cx.produce_ok(&topic, 0, &Batch::new(cx.t0(), records))?;
    to(cx, &topic, 2)
}

/// A topic that is no longer compacted, once its partitions know.
fn policy_changed(cx: &mut Context<'_>) -> Result<Value> {
    let before = by_policy(cx, "compact")?;
    let topic = cx.name("t");
    let config = json!({"name": "cleanup.policy", "configOperation": 0, "value": "delete"});
    let resource = json!({"resourceType": 2, "resourceName": topic, "configs": [config]});
    cx.call("IncrementalAlterConfigs", 1, json!({"resources": [resource]}))?;
    let is_done = |answer: &Value| answer[0]["partitions"][0]["errorCode"] == error(0);
    let after = cx.until(|cx| to(cx, &topic, 2), is_done)?;
    Ok(json!([before, after]))
}

fn produce_after(cx: &mut Context<'_>) -> Result<Value> {
    let topic = six(cx)?;
    cx.delete_records(&topic, 0, 4)?;
    let batch = Batch::of(1, cx.t0()).build();
    let mut answer = cx.produce(&topic, 0, &batch)?;
    if let Some(answer) = answer.as_object_mut() {
        answer.remove("index");
    }
    Ok(cx.names.normal(&answer))
}

fn two_partitions(cx: &mut Context<'_>) -> Result<Value> {
    let topic = cx.create("t", 2, &[])?;
    for partition in [0, 1] {
        cx.six(&topic, partition)?;
    }
    let partitions = json!([{"partitionIndex": 0, "offset": 1}, {"partitionIndex": 1, "offset": 99}]);
    let answer = ask(cx, 2, &topic, &partitions, 10_000)?;
    let answers = answer["topics"][0]["partitions"].as_array().with_context(|| format!("{answer}"))?;
    let by_index = answers.iter().map(|answer| (answer["partitionIndex"].to_string(), answer.clone()));
    Ok(Value::Object(by_index.collect()))
}
