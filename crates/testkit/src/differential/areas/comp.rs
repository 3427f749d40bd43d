//! Codecs of batches and of topics. What is wrong or odd inside a compressed payload is in [`super::comp_payload`].

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::comp_payload;
use super::stored::{answer, records, reply_and_batches, reply_batches_and_records};
use crate::batch::{Batch, Codec, Record, Stored};
use crate::differential::context::{Context, fetch_body, produce_body, version};

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    match id {
        ["matrix", pair] => {
            let Some((from, to)) = pair.split_once("-to-") else { return Ok(None) };
            let Some(codec) = Codec::parse(from) else { return Ok(None) };
            let sent = Batch::of(3, cx.t0()).with(codec).build();
            reply_batches_and_records(cx, 9, &[("compression.type", to)], &sent).map(Some)
        }
        ["header-kept", to] => {
            let good = Batch::of(2, cx.t0()).with(Codec::Gzip);
            let sent = Batch { producer_id: 5_000_000, producer_epoch: 0, base_sequence: 0, ..good }.build();
            reply_and_batches(cx, 9, &[("compression.type", to)], &sent).map(Some)
        }
        ["attributes", to] => {
            let sent = Batch { attributes: 0xc0, ..Batch::of(2, cx.t0()).with(Codec::Gzip) }.build();
            reply_and_batches(cx, 9, &[("compression.type", to)], &sent).map(Some)
        }
        ["big", codec] => {
            let Some(codec) = Codec::parse(codec) else { return Ok(None) };
            big(cx, codec).map(Some)
        }
        ["big-recompressed", codec] => {
            let Some(codec) = Codec::parse(codec) else { return Ok(None) };
            big_recompressed(cx, codec).map(Some)
        }
        ["bomb", "header-count"] => bomb(cx).map(Some),
        ["zstd", "v6-two-partitions"] => two_partitions(cx).map(Some),
        [what @ ("zstd" | "zstd-topic"), v] => zstd(cx, *what == "zstd-topic", v),
        [codec, what] => {
            let Some(codec) = Codec::parse(codec) else { return Ok(None) };
            payload(cx, codec, what)
        }
        _ => Ok(None),
    }
}

/// A payload that is not what the codec's usual library writes.
fn payload(cx: &mut Context<'_>, codec: Codec, what: &str) -> Result<Option<Value>> {
    let good = Batch::of(3, cx.t0()).with(codec);
    if what == "over-32k-real-to-producer" {
        return large_value(cx, codec).map(Some);
    }
    let other = if codec == Codec::Gzip { "lz4" } else { "gzip" };
    let (what, to) = match what.rsplit_once("-to-") {
        Some(split) => split,
        None => what.strip_suffix("-recompressed").map_or((what, "producer"), |what| (what, other)),
    };
    let Some(payload) = comp_payload::odd(codec, what, &good.plain())? else { return Ok(None) };
    let sent = Batch { payload: Some(payload), ..good }.build();
    reply_batches_and_records(cx, 9, &[("compression.type", to)], &sent).map(Some)
}

fn big(cx: &mut Context<'_>, codec: Codec) -> Result<Value> {
    let value = "0123456789abcdef".repeat(64);
    let records = (0..200).map(|i| Record::text(i, i, &format!("k{i}"), &value)).collect();
    let topic = cx.create("t", 1, &[])?;
    let reply = answer(cx, 9, &topic, &Batch::new(cx.t0(), records).with(codec).build())?;
    let bytes = cx.stored(&topic, 0)?;
    let stored = Stored::split(&bytes)?;
    let mut count = 0;
    for batch in &stored {
        count += batch.records()?.len();
    }
    let crcs_fit = stored.iter().all(|batch| crate::batch::crc(&batch.bytes()[21..]) == batch.crc());
    let codec = stored.first().map(Stored::attribute_text);
    let reply = cx.names.normal(&reply);
    Ok(json!({"reply": reply, "batches": stored.len(), "records": count, "codec": codec, "crcOk": crcs_fit}))
}

/// 300 KB of records that are stored with another codec and read back.
fn big_recompressed(cx: &mut Context<'_>, codec: Codec) -> Result<Value> {
    let other = if codec == Codec::Lz4 { "gzip" } else { "lz4" };
    let topic = cx.create("t", 1, &[("compression.type", other)])?;
    let value = |i: i64| format!("{i}-").repeat(250);
    let batch = Batch::new(cx.t0(), (0..300).map(|i| Record::text(i, 0, &format!("k{i}"), &value(i))).collect());
    let reply = answer(cx, 9, &topic, &batch.with(codec).build())?;
    let read = records(cx)?;
    let read = read.as_array().map_or(&[][..], Vec::as_slice);
    let same = (0..).zip(read).all(|(i, record)| record["v"] == value(i));
    Ok(json!({"error": reply["errorCode"], "read": read.len(), "same": same}))
}

fn large_value(cx: &mut Context<'_>, codec: Codec) -> Result<Value> {
    let value = "abcdefghij".repeat(10_240);
    let sent = Batch::new(cx.t0(), vec![Record::text(0, 0, "k", &value)]).with(codec).build();
    let mut outcome = reply_batches_and_records(cx, 9, &[], &sent)?;
    if outcome["records"][0]["v"] == value {
        outcome["records"][0]["v"] = format!("{}...({}b)", &value[..20], value.len()).into();
    }
    if let Some(object) = outcome.as_object_mut() {
        object.shift_remove("stored");
    }
    Ok(outcome)
}

fn bomb(cx: &mut Context<'_>) -> Result<Value> {
    let mut batch = Batch::of(1, cx.t0()).with(Codec::Gzip);
    let mut body = batch.records[0].body();
    body.pop();
    crate::batch::varint(i64::from(i32::MAX), &mut body);
    let mut plain = Vec::new();
    crate::batch::varint(body.len() as i64, &mut plain);
    plain.extend(body);
    batch.plain = Some(plain);
    let topic = cx.create("t", 1, &[])?;
    let reply = answer(cx, 9, &topic, &batch.build())?;
    Ok(json!({"reply": cx.names.normal(&reply), "alive": cx.alive()}))
}

/// zstd in batches or as the topic's codec, with old and new versions.
fn zstd(cx: &mut Context<'_>, topic_codec: bool, what: &str) -> Result<Option<Value>> {
    let codec = if topic_codec { Codec::None } else { Codec::Zstd };
    let configs: &[_] = if topic_codec { &[("compression.type", "zstd")] } else { &[] };
    if let Some(v) = version(what) {
        let sent = Batch::of(2, cx.t0()).with(codec).build();
        return reply_and_batches(cx, v, configs, &sent).map(Some);
    }
    let Some(v) = what.strip_prefix("fetch-").and_then(version) else { return payload(cx, Codec::Zstd, what) };
    let topic = cx.create("t", 1, configs)?;
    if !topic_codec {
        answer(cx, 9, &topic, &Batch::of(1, cx.t0()).build())?;
    }
    answer(cx, 9, &topic, &Batch::of(1, cx.t0()).with(codec).build())?;
    let body = fetch_body(&json!({"topic": topic}), &json!([{"partition": 0, "partitionMaxBytes": 1 << 20}]));
    cx.ask("Fetch", v, body).map(Some)
}

fn two_partitions(cx: &mut Context<'_>) -> Result<Value> {
    let topic = cx.create("t", 2, &[])?;
    let good = Batch::of(1, cx.t0());
    let mut body = produce_body(&topic, 0, -1, &good.clone().with(Codec::Zstd).build());
    if let Some(partitions) = body["topicData"][0]["partitionData"].as_array_mut() {
        partitions.push(json!({"index": 1, "records": STANDARD.encode(good.build())}));
    }
    let mut reply = cx.ask("Produce", 6, body)?;
    if let Some(partitions) = reply["responses"][0]["partitionResponses"].as_array_mut() {
        partitions.sort_by_key(|p| p["index"].as_i64());
    }
    Ok(json!([reply, cx.end(&topic, 0)?, cx.end(&topic, 1)?]))
}
