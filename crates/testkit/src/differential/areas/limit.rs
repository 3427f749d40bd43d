//! How large a batch and a request may be.

use anyhow::Result;
use serde_json::{Value, json};

use super::stored::{answer, reply_and_batches};
use crate::batch::{Batch, Codec, Record};
use crate::differential::context::{Context, version};
use crate::differential::normalise::error;

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    let good = Batch::of(2, cx.t0());
    Ok(Some(match id {
        ["exact", codec, how] => {
            let Some(codec) = Codec::parse(codec) else { return Ok(None) };
            let sent = good.with(codec).build();
            let limit = sent.len() - usize::from(*how == "under");
            reply_and_batches(cx, 9, &[("max.message.bytes", &limit.to_string())], &sent)?
        }
        ["too-large", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            reply_and_batches(cx, v, &[("max.message.bytes", "50")], &good.build())?
        }
        ["too-large-and-badcrc"] => {
            let sent = Batch { crc: Some(1), ..good }.build();
            reply_and_batches(cx, 9, &[("max.message.bytes", "50")], &sent)?
        }
        ["too-large-and-base5"] => {
            let sent = Batch { base_offset: 5, ..good }.build();
            reply_and_batches(cx, 9, &[("max.message.bytes", "50")], &sent)?
        }
        ["max0"] => reply_and_batches(cx, 9, &[("max.message.bytes", "0")], &good.build())?,
        ["default-limit"] => {
            let topic = cx.create("t", 1, &[])?;
            let mut outcome = Vec::new();
            for size in [1_048_588, 1_048_589] {
                let code = answer(cx, 9, &topic, &of_size(cx.t0(), size))?["errorCode"].as_i64();
                outcome.push(json!({"size": size, "error": error(code.unwrap_or(-1))}));
            }
            outcome.into()
        }
        ["rebuilt-larger"] => rebuilt(cx, Codec::Gzip, "uncompressed")?,
        ["rebuilt-smaller"] => rebuilt(cx, Codec::None, "gzip")?,
        ["segment"] => {
            let topic = cx.create("t", 1, &[("segment.bytes", "1048576"), ("max.message.bytes", "4000000")])?;
            let reply = answer(cx, 9, &topic, &of_size(cx.t0(), 1_048_577))?;
            json!([cx.names.normal(&reply), cx.end(&topic, 0)?])
        }
        ["alter-limit-live"] => altered(cx, &good.build())?,
        ["request-max"] => {
            let size: i32 = 100 * 1024 * 1024 + 1;
            cx.after(&[&size.to_be_bytes()[..], &[0; 64]].concat())?
        }
        _ => return Ok(None),
    }))
}

/// A batch that is larger than the limit in one of its two forms only.
fn rebuilt(cx: &mut Context<'_>, codec: Codec, topic_codec: &str) -> Result<Value> {
    let sent = Batch::new(cx.t0(), vec![Record::text(0, 0, "k", &"v".repeat(5000))]).with(codec).build();
    reply_and_batches(cx, 9, &[("max.message.bytes", "1000"), ("compression.type", topic_codec)], &sent)
}

/// A batch of one record that has `size` bytes.
fn of_size(base_timestamp: i64, size: usize) -> Vec<u8> {
    let batch = |value: usize| Batch::new(base_timestamp, vec![Record::text(0, 0, "k", &"v".repeat(value))]).build();
    let overhead = batch(size - 100).len() - (size - 100);
    batch(size - overhead)
}

/// The limit is lowered below the batch after it has been stored once.
fn altered(cx: &mut Context<'_>, sent: &[u8]) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let code = |answer: &Value| error(answer["errorCode"].as_i64().unwrap_or(-1));
    let before = code(&answer(cx, 9, &topic, sent)?);
    let config = json!({"name": "max.message.bytes", "configOperation": 0, "value": "50"});
    let resource = json!({"resourceType": 2, "resourceName": topic, "configs": [config]});
    cx.call("IncrementalAlterConfigs", 1, json!({"resources": [resource], "validateOnly": false}))?;
    let mut after = before.clone();
    for _ in 0..200 {
        after = code(&answer(cx, 9, &topic, sent)?);
        if after != before {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Ok(json!([before, after]))
}
