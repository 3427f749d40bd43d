//! What a produced batch may hold: the batch as a whole and its header. Its records are in [`super::batch_records`].

use anyhow::Result;
use serde_json::{Value, json};

use super::batch_records;
use crate::batch::{Batch, Codec, HEADER, Stored};
use crate::differential::context::{Context, number, one_partition, produce_body};

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    if let ["legacy-magic0" | "legacy-magic1", v] = id {
        let version = if *v == "v3" { 3 } else { 12 };
        let set = legacy(u8::from(id[0] == "legacy-magic1"), cx.t0());
        let mut out = produced(cx, version, &set)?;
        if let Some(object) = out.as_object_mut() {
            object.shift_remove("records");
        }
        return Ok(Some(out));
    }
    let codec = id.get(1).and_then(|c| Codec::parse(c)).unwrap_or(Codec::None);
    let good = Batch::of(3, cx.t0()).with(codec);
    let sent = whole(id[0], &good)
        .or_else(|| header(id[0], &good).map(|b| b.build()))
        .or_else(|| batch_records::run(id[0], &good).map(|b| b.build()));
    sent.map(|sent| produced(cx, 9, &sent)).transpose()
}

/// Produces to a new topic: the answer, the stored batches and their records.
fn produced(cx: &mut Context<'_>, version: i16, sent: &[u8]) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let mut reply = cx.ask("Produce", version, produce_body(&topic, 0, -1, sent))?;
    let reply = one_partition(&mut reply["responses"][0]["partitionResponses"][0]);
    let stored = cx.stored_fields(&topic, 0, sent)?;
    let bytes = cx.stored(&topic, 0)?;
    let mut outcome = json!({"reply": reply, "stored": stored});
    let mut records = Vec::new();
    for batch in Stored::split(&bytes)? {
        // What a reader makes of records whose lengths are wrong is its own affair.
        let Ok(read) = batch.records() else { return Ok(outcome) };
        records.extend(read);
    }
    outcome["records"] = cx.names.normal(&records.into());
    Ok(outcome)
}

/// More, or less, than one batch.
fn whole(what: &str, good: &Batch) -> Option<Vec<u8>> {
    let bytes = good.build();
    let count = |name: &str| what.strip_prefix(name).and_then(number).and_then(|n| usize::try_from(n).ok());
    if let Some(zeros) = count("trailing") {
        return Some([bytes, vec![0; zeros]].concat());
    }
    if let Some(cut) = count("cut") {
        return Some(bytes[..bytes.len() - cut].to_vec());
    }
    if let Some(kept) = count("only") {
        return Some(bytes[..kept].to_vec());
    }
    match what {
        "two" => Some([bytes.clone(), bytes].concat()),
        "two-second-magic1" => Some([bytes, legacy(1, good.base_timestamp)].concat()),
        "two-second-corrupt" => Some([bytes, Batch { crc: Some(7), ..good.clone() }.build()].concat()),
        "trailing-half-batch" => Some([&bytes[..], &bytes[..bytes.len() / 2]].concat()),
        "length-plus1" => {
            let length = (bytes.len() - 12 + 1) as i32;
            Some(Batch { length: Some(length), ..good.clone() }.build())
        }
        _ => None,
    }
}

/// A field of the header that is wrong, or odd.
fn header(what: &str, good: &Batch) -> Option<Batch> {
    let b = good.clone();
    if let Some(length) = what.strip_prefix("length").and_then(number) {
        return Some(Batch { length: Some(length as i32), ..b });
    }
    if let Some(magic) = what.strip_prefix("magic").and_then(number) {
        return Some(Batch { magic: magic as u8, ..b });
    }
    if let Some(epoch) = what.strip_prefix("leader-epoch").and_then(number) {
        return Some(Batch { leader_epoch: epoch as i32, ..b });
    }
    let max = b.base_timestamp + 2;
    Some(match what {
        "base5" => Batch { base_offset: 5, ..b },
        "base-max" => Batch { base_offset: i64::MAX, ..b },
        "crc-bad" => {
            let bytes = b.build();
            let right = u32::from_be_bytes(*bytes[17..].first_chunk()?);
            Batch { crc: Some(right ^ 1), ..b }
        }
        "crc-zero" => Batch { crc: Some(0), ..b },
        "attr-bit7" => Batch { attributes: 0x80, ..b },
        "attr-delete-horizon" => Batch { attributes: 0x40, ..b },
        "attr-log-append" => Batch { attributes: 8, ..b },
        "codec5" => Batch { attributes: 5, ..b },
        "codec7" => Batch { attributes: 7, ..b },
        "txn-no-pid" => Batch { attributes: 0x10, ..b },
        "lod-plus1" => Batch { last_offset_delta: Some(3), ..b },
        "lod-minus1" => Batch { last_offset_delta: Some(1), ..b },
        "lod-zero" => Batch { last_offset_delta: Some(0), ..b },
        "lod-neg" => Batch { last_offset_delta: Some(-1), ..b },
        "count-plus1" => Batch { count: Some(4), ..b },
        "count-minus1" => Batch { count: Some(2), ..b },
        "count-neg" => Batch { count: Some(-1), ..b },
        "count-max" => Batch { count: Some(i32::MAX), ..b },
        "count-lod-plus1" => Batch { count: Some(4), last_offset_delta: Some(3), ..b },
        "count-lod-minus1" => Batch { count: Some(2), last_offset_delta: Some(1), ..b },
        "count-lod-max" => Batch { count: Some(i32::MAX), last_offset_delta: Some(i32::MAX - 1), ..b },
        "pid-no-epoch" => Batch { producer_id: 4_000_000, producer_epoch: -1, base_sequence: -1, ..b },
        "seq-no-pid" => Batch { base_sequence: 3, ..b },
        "pid-seq-neg" => Batch { producer_id: 4_000_001, producer_epoch: 0, base_sequence: -1, ..b },
        "pid-seq-neg5" => Batch { producer_id: 4_000_002, producer_epoch: 0, base_sequence: -5, ..b },
        "pid-epoch-neg" => Batch { producer_id: 4_000_003, producer_epoch: -1, base_sequence: 0, ..b },
        "basets-earlier" => rebased(b, -1000, max),
        "basets-later" => rebased(b, 1000, max),
        "basets-unset" => {
            let shift = -1 - b.base_timestamp;
            rebased(b, shift, max)
        }
        _ => return None,
    })
}

/// Moves the base timestamp, so that the records keep theirs.
fn rebased(mut batch: Batch, by: i64, max: i64) -> Batch {
    batch.base_timestamp += by;
    batch.max_timestamp = Some(max);
    for record in &mut batch.records {
        record.timestamp_delta -= by;
    }
    batch
}

/// A message set of one message in the old format: magic 0 without, magic 1 with a timestamp.
fn legacy(magic: u8, timestamp: i64) -> Vec<u8> {
    let mut message = vec![magic, 0];
    if magic == 1 {
        message.extend_from_slice(&timestamp.to_be_bytes());
    }
    for field in [b"k0", b"v0"] {
        message.extend_from_slice(&2i32.to_be_bytes());
        message.extend_from_slice(field);
    }
    let mut crc = flate2::Crc::new();
    crc.update(&message);
    let mut out = 0i64.to_be_bytes().to_vec();
    out.extend_from_slice(&(message.len() as i32 + 4).to_be_bytes());
    out.extend_from_slice(&crc.sum().to_be_bytes());
    out.extend_from_slice(&message);
    debug_assert!(out.len() < HEADER);
    out
}
