//! What consumers make of transactions that were aborted.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::client::{self, NEW, Producer, Protocol, code};
use super::flow::{records, view};
use crate::batch::Stored;
use crate::differential::context::{Context, fetch_body};

const CONTROL: i16 = 0x20;
/// Key of the marker of an aborted transaction.
const ABORT: &str = "hex:00000000";

pub(super) fn abort(cx: &mut Context<'_>, protocol: &Protocol, t: &str) -> Result<Value> {
    let producer = Producer::new(cx)?;
    producer.send(cx, protocol, t, 0, &["a", "b"])?;
    producer.finish(cx, protocol, false)?;
    Ok(json!({
        "records": records(cx, t)?, "committed": view(cx, t, 1, 0)?, "uncommitted": view(cx, t, 0, 0)?,
        "javaCommitted": seen(cx, t, 1)?, "javaUncommitted": seen(cx, t, 0)?,
    }))
}

/// One producer aborts while another one's transaction, which is committed later, is open.
pub(super) fn interleaved(cx: &mut Context<'_>, t: &str) -> Result<Value> {
    let (first, other) = (Producer::new(cx)?, cx.name("y"));
    let init = json!({"transactionalId": other, "transactionTimeoutMs": 60_000, "producerId": -1, "producerEpoch": -1});
    let second = cx.until(|cx| cx.call("InitProducerId", 4, init.clone()), |answer| code(answer) == 0)?;
    let second = Producer::from(&second)?;
    first.send(cx, &NEW, t, 0, &["x1"])?;
    let batch = second.batch(cx, 0, &["y1"]);
    let answer = client::produce_as(cx, NEW.produce, Some(&other), t, 0, &batch)?;
    ensure!(code(&answer) == 0, "{answer}");
    let batch = first.batch(cx, 1, &["x2"]);
    let answer = client::produce(cx, NEW.produce, t, 0, &batch)?;
    ensure!(code(&answer) == 0, "{answer}");
    first.finish(cx, &NEW, false)?;
    let mid = view(cx, t, 1, 0)?;
    cx.call("EndTxn", NEW.end, client::end_body(&other, (second.id, second.epoch), true))?;
    let end = cx.until(|cx| view(cx, t, 1, 0), |view| view["lastStableOffset"] == 5)?;
    Ok(json!({"mid": mid, "end": end, "java": seen(cx, t, 1)?}))
}

/// The records that a consumer gives out, with their offsets: it leaves out markers, and what was aborted.
fn seen(cx: &mut Context<'_>, t: &str, isolation: i8) -> Result<Value> {
    let partition = json!([{"partition": 0, "partitionMaxBytes": 1 << 20}]);
    let mut body = fetch_body(&json!({"topic": t}), &partition);
    body["isolationLevel"] = isolation.into();
    let mut answer = cx.call("Fetch", 12, body)?;
    let partition = answer["responses"][0]["partitions"][0].take();
    let bytes = STANDARD.decode(partition["records"].as_str().unwrap_or_default())?;
    let aborted = partition["abortedTransactions"].as_array().cloned().unwrap_or_default();
    // Producers whose aborted transaction has ended.
    let (mut ended, mut seen) = (BTreeSet::new(), Vec::new());
    for batch in Stored::split(&bytes)? {
        let last_offset = batch.base_offset() + i64::from(batch.last_offset_delta());
        let mut begun =
            aborted.iter().filter(|one| one["firstOffset"].as_i64().is_some_and(|first| first <= last_offset));
        let producer = batch.fields(&[])["producerId"].as_i64();
        let is_aborted = begun.any(|one| one["producerId"].as_i64() == producer) && !ended.contains(&producer);
        let records = batch.records()?;
        if batch.attributes() & CONTROL != 0 {
            if records.iter().any(|record| record["k"] == ABORT) {
                ended.insert(producer);
            }
        } else if !is_aborted {
            let text = |record: &Value| format!("{}:{}", record["o"], record["v"].as_str().unwrap_or_default());
            seen.extend(records.iter().map(text));
        }
    }
    Ok(seen.into())
}
