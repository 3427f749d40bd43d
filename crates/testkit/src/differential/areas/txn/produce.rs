//! Produce of transactional batches.

use anyhow::Result;
use serde_json::{Value, json};

use super::client::{self, NEW, OLD, Producer};
use super::{flow, named};
use crate::batch::{Batch, Codec};
use crate::differential::context::{Context, version};

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    match id {
        ["not-added", v] => version(v).map_or(Ok(None), |v| not_added(cx, v).map(Some)),
        ["not-added-corrupt", v] => version(v).map_or(Ok(None), |v| {
            let topic = cx.create("t", 1, &[])?;
            let producer = Producer::new(cx)?;
            let batch = Batch { crc: Some(1), ..producer.batch(cx, 0, &["a"]) };
            let answer = client::produce(cx, v, &topic, 0, &batch)?;
            Ok(Some(cx.names.normal(&answer)))
        }),
        ["recompressed"] => recompressed(cx).map(Some),
        [what] => single(cx, what),
        _ => Ok(None),
    }
}

fn not_added(cx: &mut Context<'_>, v: i16) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let producer = Producer::new(cx)?;
    let batch = producer.batch(cx, 0, &["a"]);
    let answer = client::produce(cx, v, &topic, 0, &batch)?;
    let answer = cx.names.normal(&answer);
    let end = cx.end(&topic, 0)?;
    Ok(json!([answer, end, client::describe(cx)?["transactionState"]]))
}

fn recompressed(cx: &mut Context<'_>) -> Result<Value> {
    let topic = cx.create("t", 1, &[("compression.type", "gzip")])?;
    let producer = Producer::new(cx)?;
    let batch = producer.batch(cx, 0, &["a", "b"]);
    let sent = batch.build();
    producer.send_batch(cx, &NEW, &topic, 0, &batch)?;
    producer.finish(cx, &NEW, true)?;
    let bytes = cx.stored(&topic, 0)?;
    let stored = crate::batch::Stored::split(&bytes)?;
    let mut all: Vec<Value> = stored.iter().map(|batch| batch.fields(&sent)).collect();
    if let Some(marker) = all.get_mut(1).and_then(Value::as_object_mut) {
        marker.shift_remove("body");
        marker["crc"] = "valid".into();
    }
    Ok(flow::normal(cx, all.into()))
}

fn single(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let topic = cx.create("t", 1, &[])?;
    let t = topic.as_str();
    let producer = Producer::new(cx)?;
    let batch = producer.batch(cx, 0, &["a", "b"]);
    let answer = match what {
        "no-txn-id" => {
            let old = client::produce_as(cx, 9, None, t, 0, &batch)?;
            let new = client::produce_as(cx, 12, None, t, 0, &batch)?;
            json!([old, new])
        }
        "other-txn-id" => {
            let other = cx.name("other");
            client::produce_as(cx, 12, Some(&other), t, 0, &batch)?
        }
        "plain-while-open" => {
            producer.send_batch(cx, &NEW, t, 0, &batch)?;
            let plain = Batch { attributes: 0, ..producer.batch(cx, 2, &["c"]) };
            client::produce_as(cx, 12, None, t, 0, &plain)?
        }
        "old-epoch" => {
            producer.send_batch(cx, &OLD, t, 0, &batch)?;
            Producer::new(cx)?;
            let late = producer.batch(cx, 2, &["c"]);
            let codes: Result<Vec<_>> = [3, 11, 12]
                .into_iter()
                .map(|v| Ok(json!({"errorCode": named(&client::produce(cx, v, t, 0, &late)?)})))
                .collect();
            return Ok(Some(json!(codes?)));
        }
        "gap" => {
            producer.send_batch(cx, &NEW, t, 0, &batch)?;
            let gap = producer.batch(cx, 5, &["c"]);
            client::produce(cx, 12, t, 0, &gap)?
        }
        "first-seq-5" => {
            let late = producer.batch(cx, 5, &["a"]);
            client::produce(cx, 12, t, 0, &late)?
        }
        "compressed" => {
            let batch = batch.with(Codec::Zstd);
            let sent = batch.build();
            let reply = producer.send_batch(cx, &NEW, t, 0, &batch)?;
            let stored = cx.stored_fields(t, 0, &sent)?;
            json!({"reply": cx.names.normal(&reply), "stored": stored})
        }
        _ => return Ok(None),
    };
    Ok(Some(cx.names.normal(&answer)))
}
