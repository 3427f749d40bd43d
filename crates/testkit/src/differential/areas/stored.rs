//! One batch to a new topic, and what is stored then: the steps that several areas share.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::batch::Stored;
use crate::differential::context::{Context, one_partition, produce_body};

/// Produces to partition 0 of `topic`, by id from version 13 on: the partition's answer as it came, without its index.
pub(super) fn answer(cx: &mut Context<'_>, version: i16, topic: &str, sent: &[u8]) -> Result<Value> {
    let mut body = produce_body(topic, 0, -1, sent);
    if version >= 13 {
        let id = cx.id(topic)?;
        let entry = body["topicData"][0].as_object_mut().context("one topic")?;
        entry.shift_remove("name");
        entry.insert("topicId".to_owned(), id.into());
    }
    let mut reply = cx.call("Produce", version, body)?;
    Ok(one_partition(&mut reply["responses"][0]["partitionResponses"][0]))
}

/// Makes the topic `t` with `configs` and produces one batch: the answer and the stored batches.
pub(super) fn reply_and_batches(
    cx: &mut Context<'_>,
    version: i16,
    configs: &[(&str, &str)],
    sent: &[u8],
) -> Result<Value> {
    let topic = cx.create("t", 1, configs)?;
    let reply = answer(cx, version, &topic, sent)?;
    let reply = cx.names.normal(&reply);
    Ok(json!({"reply": reply, "stored": cx.stored_fields(&topic, 0, sent)?}))
}

/// As [`reply_and_batches`], and the records of all stored batches.
pub(super) fn reply_batches_and_records(
    cx: &mut Context<'_>,
    version: i16,
    configs: &[(&str, &str)],
    sent: &[u8],
) -> Result<Value> {
    let mut outcome = reply_and_batches(cx, version, configs, sent)?;
    outcome["records"] = records(cx)?;
    Ok(outcome)
}

/// The records that are stored in the topic `t`.
pub(super) fn records(cx: &mut Context<'_>) -> Result<Value> {
    let topic = cx.name("t");
    let bytes = cx.stored(&topic, 0)?;
    let mut records = Vec::new();
    for batch in Stored::split(&bytes)? {
        records.extend(batch.records()?);
    }
    Ok(cx.names.normal(&records.into()))
}
