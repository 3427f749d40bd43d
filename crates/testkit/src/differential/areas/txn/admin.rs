//! Markers by hand, and what administrators see of transactions.

use anyhow::Result;
use serde_json::{Value, json};

use super::client::{self, NEW, OLD, Producer};
use super::flow;
use crate::batch::Stored;
use crate::differential::context::{Context, version};

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    match id {
        ["marker", what] => marker(cx, what),
        ["markers", what, v] => version(v).map_or(Ok(None), |v| markers(cx, what, v)),
        ["describe", what] => describe(cx, what),
        ["describe-producers", "closed", which] => {
            let protocol = if *which == "new" { &NEW } else { &OLD };
            let topic = cx.create("t", 1, &[])?;
            let producer = Producer::new(cx)?;
            producer.send(cx, protocol, &topic, 0, &["a"])?;
            producer.finish(cx, protocol, true)?;
            let body = json!({"topics": [{"name": topic, "partitionIndexes": [0]}]});
            let mut answer = cx.call("DescribeProducers", 0, body)?;
            let partition = answer["topics"][0]["partitions"][0].take();
            Ok(Some(flow::normal(cx, partition)))
        }
        ["list", "state", state] => list_state(cx, state).map(Some),
        ["list", "by-pid"] => {
            let producer = Producer::new(cx)?;
            let body = json!({"stateFilters": [], "producerIdFilters": [producer.id]});
            cx.ask("ListTransactions", 1, body).map(Some)
        }
        ["list", "pattern", which] => list_pattern(cx, which),
        _ => Ok(None),
    }
}

fn marker(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let configs: &[(&str, &str)] = match what {
        "time-and-log-append" => &[("message.timestamp.type", "LogAppendTime")],
        "on-compacted" => &[("cleanup.policy", "compact")],
        _ => return Ok(None),
    };
    let topic = cx.create("t", 1, configs)?;
    let producer = Producer::new(cx)?;
    producer.send(cx, &NEW, &topic, 0, &["a"])?;
    producer.finish(cx, &NEW, true)?;
    if what == "on-compacted" {
        return flow::records(cx, &topic).map(Some);
    }
    let bytes = cx.stored(&topic, 0)?;
    let attributes: Vec<_> = Stored::split(&bytes)?.iter().map(Stored::attribute_text).collect();
    Ok(Some(json!(attributes)))
}

/// WriteTxnMarkers that commits, in normal form.
fn write(cx: &mut Context<'_>, v: i16, topic: &str, (id, epoch): (i64, i16)) -> Result<Value> {
    let mut marker = json!({
        "producerId": id, "producerEpoch": epoch, "transactionResult": true, "coordinatorEpoch": 0,
        "topics": [{"name": topic, "partitionIndexes": [0]}],
    });
    if v >= 2 {
        marker["transactionVersion"] = 2.into();
    }
    cx.ask("WriteTxnMarkers", v, json!({"markers": [marker]}))
}

fn markers(cx: &mut Context<'_>, what: &str, v: i16) -> Result<Option<Value>> {
    let topic = cx.create("t", 1, &[])?;
    let mut producer = Producer::new(cx)?;
    if what == "old-epoch" {
        // The first epoch has none before it.
        producer = Producer::new(cx)?;
    }
    let at = |epoch| (producer.id, epoch);
    let asked: &[i16] = match what {
        "no-open" => &[1],
        "same-epoch" => &[0, 1],
        "repeat" => &[1, 1],
        "old-epoch" => &[-1],
        _ => return Ok(None),
    };
    if what != "no-open" {
        producer.send(cx, &OLD, &topic, 0, &["a"])?;
    }
    let mut outcome = Vec::new();
    for raised in asked {
        outcome.push(write(cx, v, &topic, at(producer.epoch + raised))?);
    }
    outcome.push(cx.end(&topic, 0)?.into());
    Ok(Some(outcome.into()))
}

fn describe(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let topic = cx.create("t", 1, &[])?;
    if what == "empty-id" {
        let mut answer = cx.call("DescribeTransactions", 0, json!({"transactionalIds": [""]}))?;
        let described = answer["transactionStates"][0].take();
        return Ok(Some(flow::normal(cx, described)));
    }
    let producer = Producer::new(cx)?;
    match what {
        "empty" => {}
        "ongoing" => producer.send(cx, &NEW, &topic, 0, &["a"])?,
        "aborted" => {
            producer.send(cx, &NEW, &topic, 0, &["a"])?;
            producer.finish(cx, &NEW, false)?;
        }
        _ => return Ok(None),
    }
    let described = client::describe(cx)?;
    Ok(Some(flow::normal(cx, described)))
}

fn list_state(cx: &mut Context<'_>, state: &str) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let producer = Producer::new(cx)?;
    producer.send(cx, &NEW, &topic, 0, &["a"])?;
    let answer = cx.ask("ListTransactions", 1, json!({"stateFilters": [state], "producerIdFilters": []}))?;
    let listed = answer["transactionStates"].as_array().cloned().unwrap_or_default();
    let ours = listed.iter().any(|one| one["transactionalId"] == "R-x");
    Ok(json!({"errorCode": answer["errorCode"], "unknown": answer["unknownStateFilters"], "ours": ours}))
}

fn list_pattern(cx: &mut Context<'_>, which: &str) -> Result<Option<Value>> {
    let producer = Producer::new(cx)?;
    let pattern = match which {
        "match" => format!("{}-.*", cx.names.prefix),
        "other" => "zzz.*".to_owned(),
        "empty" => String::new(),
        _ => return Ok(None),
    };
    let body = json!({"stateFilters": [], "producerIdFilters": [producer.id], "transactionalIdPattern": pattern});
    cx.ask("ListTransactions", 2, body).map(Some)
}
