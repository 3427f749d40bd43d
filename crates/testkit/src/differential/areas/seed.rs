//! The examples of an article on the record batch and the way of a produced one, as requests.

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::stored::{answer, records, reply_and_batches, reply_batches_and_records};
use crate::batch::{Batch, Codec, Record, Stored, crc};
use crate::client::Event;
use crate::differential::context::{Context, SILENCE, fetch_body, produce_body};
use crate::differential::normalise::error;

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    let [what] = id else { return Ok(None) };
    let good = Batch::of(3, cx.t0());
    Ok(Some(match *what {
        "ex1-two-batches-by-flush" => two_batches(cx)?,
        "ex2-first-batch-bytes" => first_batch(cx)?,
        "ex3-base-offset" => reply_and_batches(cx, 9, &[], &Batch { base_offset: 5, ..good }.build())?,
        "ex3-two-batches" => reply_and_batches(cx, 9, &[], &[good.build(), good.build()].concat())?,
        "ex3-all-on-one-topic" => refused_and_silent(cx, &good)?,
        "ex4-crc-unchanged" => unchanged(cx, &good)?,
        "ex5-gzip-lz4" => {
            let sent = good.with(Codec::Gzip).build();
            reply_batches_and_records(cx, 9, &[("compression.type", "lz4")], &sent)?
        }
        "ex7-high-watermark" => high_watermark(cx, &good)?,
        "ex8-min-isr2-rf1" => {
            let topic = cx.create("t", 1, &[("min.insync.replicas", "2")])?;
            json!({"offset": answer(cx, 9, &topic, &good.build())?["baseOffset"]})
        }
        "size-varies-with-delta" => {
            let size = |delta: i64| {
                let records = vec![Record::text(0, 0, "k0", "v"), Record::text(1, delta, "k1", "v")];
                Batch::new(cx.t0(), records).build().len()
            };
            json!({"difference": size(108) - size(26)})
        }
        "no-hole-after-refusal" => {
            let topic = cx.create("t", 1, &[])?;
            let one = Batch::of(1, cx.t0());
            answer(cx, 9, &topic, &one.build())?;
            let refused = answer(cx, 9, &topic, &Batch { base_offset: 5, ..one.clone() }.build())?;
            let next = answer(cx, 9, &topic, &one.build())?;
            json!([error(refused["errorCode"].as_i64().unwrap_or(0)), next["baseOffset"]])
        }
        "gzip-level-not-recompressed" => {
            let sent = Batch::of(2, cx.t0()).with(Codec::Gzip).build();
            let configs = [("compression.type", "gzip"), ("compression.gzip.level", "9")];
            reply_batches_and_records(cx, 9, &configs, &sent)?
        }
        other => match other.strip_prefix("ex6-").and_then(Codec::parse) {
            Some(codec) => many_records(cx, codec)?,
            None => return Ok(None),
        },
    }))
}

/// `hello-0`, ... from `from` on; the very first has a header.
fn hello(from: i64, count: i64) -> Vec<Record> {
    let record = |i: i64| {
        let mut record = Record::text(i, i, &format!("k{}", from + i), &format!("hello-{}", from + i));
        if from + i == 0 {
            record.headers = vec![(b"trace".to_vec(), Some(b"abc".to_vec()))];
        }
        record
    };
    (0..count).map(record).collect()
}

/// A new producer id; a server that has just started may not have one yet.
pub(super) fn producer_id(cx: &mut Context<'_>) -> Result<i64> {
    let body = json!({"transactionalId": null, "transactionTimeoutMs": 60000, "producerId": -1, "producerEpoch": -1});
    for _ in 0..200 {
        let given = cx.call("InitProducerId", 4, body.clone())?;
        if given["errorCode"] == 0 {
            return given["producerId"].as_i64().context("no producer id");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    bail!("no producer id is given out")
}

/// Three records and two more of one idempotent producer.
fn two_batches(cx: &mut Context<'_>) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let producer_id = producer_id(cx)?;
    let mut acked = Vec::new();
    for (from, count) in [(0, 3), (3, 2)] {
        let batch = Batch::new(cx.t0() + from, hello(from, count));
        let sent = Batch { producer_id, producer_epoch: 0, base_sequence: from as i32, ..batch }.build();
        let base = answer(cx, 9, &topic, &sent)?["baseOffset"].as_i64().context("no offset")?;
        acked.extend(base..base + count);
    }
    let bytes = cx.stored(&topic, 0)?;
    let (mut stored, mut sizes) = (Vec::new(), Vec::new());
    for batch in Stored::split(&bytes)? {
        let mut fields = batch.fields(&[]);
        fields["crc"] = if fields["crc"] == "recomputed" { "valid".into() } else { fields["crc"].take() };
        if let Some(object) = fields.as_object_mut() {
            object.shift_remove("body");
        }
        stored.push(fields);
        sizes.push(batch.bytes().len());
    }
    let stored = cx.names.normal(&stored.into());
    Ok(json!({"acked": acked, "stored": stored, "sizes": sizes, "records": records(cx)?}))
}

/// Every field of the first batch, as it lies in the log.
fn first_batch(cx: &mut Context<'_>) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let mut all = hello(0, 3);
    for (record, delta) in all.iter_mut().zip([0, 26, 26]) {
        record.timestamp_delta = delta;
    }
    let sent = Batch::new(cx.t0(), all).build();
    answer(cx, 9, &topic, &sent)?;
    let bytes = cx.stored(&topic, 0)?;
    let hex =
        |at: std::ops::Range<usize>| bytes[at].iter().fold(String::new(), |out, byte| out + &format!("{byte:02x}"));
    Ok(json!({
        "size": bytes.len(), "baseOffset": hex(0..8), "batchLength": hex(8..12), "epoch": hex(12..16),
        "magic": hex(16..17), "attributes": hex(21..23), "lastOffsetDelta": hex(23..27), "pidEpochSeq": hex(43..57),
        "count": hex(57..61), "firstRecord": hex(61..87), "untouchedAfterEpoch": bytes[16..] == sent[16..],
    }))
}

/// Three requests that are refused and one without an answer.
fn refused_and_silent(cx: &mut Context<'_>, good: &Batch) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let one = Batch::of(1, cx.t0());
    let kept = Batch::new(cx.t0(), vec![Record::text(0, 0, "k0", "kept")]);
    let requests = [
        (2, good.build()),
        (-1, Batch { base_offset: 5, ..good.clone() }.build()),
        (-1, [one.build(), one.build()].concat()),
        (0, kept.build()),
    ];
    let mut replies = Vec::new();
    for (acks, sent) in requests {
        let mut client = cx.connect()?;
        let body = produce_body(&topic, 0, acks, &sent);
        if acks == 0 {
            client.send("Produce", 9, &body)?;
            replies.push(match client.next_event(SILENCE / 3)? {
                Event::Silent => "silent".to_owned(),
                _ => "an answer".to_owned(),
            });
        } else {
            let reply = client.call("Produce", 9, &body)?;
            let code = reply["responses"][0]["partitionResponses"][0]["errorCode"].as_i64();
            replies.push(error(code.unwrap_or(-1)));
        }
    }
    Ok(json!({"replies": replies, "records": records(cx)?}))
}

/// Two batches that keep checksum and size.
fn unchanged(cx: &mut Context<'_>, good: &Batch) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let sent = [good.build(), Batch::of(3, cx.t0() + 50).build()];
    let mut replies = Vec::new();
    for bytes in &sent {
        let reply = answer(cx, 9, &topic, bytes)?;
        replies.push(cx.names.normal(&reply));
    }
    let bytes = cx.stored(&topic, 0)?;
    let stored: Value = Stored::split(&bytes)?.iter().zip(&sent).map(|(batch, sent)| batch.fields(sent)).collect();
    Ok(json!({"replies": replies, "stored": cx.names.normal(&stored)}))
}

fn many_records(cx: &mut Context<'_>, codec: Codec) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let records = (0..2000).map(|i| Record::text(i, 0, &format!("k{i}"), "a value that repeats itself")).collect();
    answer(cx, 9, &topic, &Batch::new(cx.t0(), records).with(codec).build())?;
    let bytes = cx.stored(&topic, 0)?;
    let stored = Stored::split(&bytes)?;
    let first = stored.first().context("nothing is stored")?;
    Ok(json!({
        "batches": stored.len(), "codec": first.attribute_text(), "count": first.records()?.len(),
        "crcOk": crc(&first.bytes()[21..]) == first.crc(),
    }))
}

fn high_watermark(cx: &mut Context<'_>, good: &Batch) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let reply = answer(cx, 9, &topic, &good.build())?;
    let body = fetch_body(&json!({"topic": topic}), &json!([{"partition": 0, "partitionMaxBytes": 1 << 20}]));
    let mut fetched = cx.call("Fetch", 12, body)?;
    let partition = fetched["responses"][0]["partitions"][0].take();
    Ok(json!({
        "reply": cx.names.normal(&reply), "hw": partition["highWatermark"],
        "lso": partition["lastStableOffset"], "logStart": partition["logStartOffset"],
    }))
}
