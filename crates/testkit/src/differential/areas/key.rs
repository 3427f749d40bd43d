//! Records without keys on topics that are compacted, or not.

use anyhow::Result;
use serde_json::{Value, json};

use super::stored::{records, reply_and_batches, reply_batches_and_records};
use crate::batch::{Batch, Codec, Record, varint};
use crate::differential::context::{Context, number, version};

/// Twice as far ahead as a stamp may be.
const FAR: i64 = 2 * 3_600_000;

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    let compact = [("cleanup.policy", "compact")];
    let keyless = |count: usize, of: &[usize]| {
        let mut batch = Batch::of(count, cx.t0());
        of.iter().for_each(|&at| batch.records[at].key = None);
        batch
    };
    let batch = match id {
        ["null-key", policy, codec] => {
            let Some(codec) = Codec::parse(codec) else { return Ok(None) };
            let policy = policy.replace('-', ",");
            let sent = keyless(1, &[0]).with(codec).build();
            return reply_and_batches(cx, 9, &[("cleanup.policy", &policy)], &sent).map(Some);
        }
        ["third-null", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            let sent = keyless(3, &[2]).build();
            return reply_and_batches(cx, v, &compact, &sent).map(Some);
        }
        ["tombstone"] => {
            let mut batch = Batch::of(1, cx.t0());
            (batch.records[0].key, batch.records[0].value) = (Some(b"a".to_vec()), None);
            return reply_batches_and_records(cx, 9, &compact, &batch.build()).map(Some);
        }
        ["null-key-rebuilt"] => {
            let configs = [compact[0], ("compression.type", "lz4")];
            return reply_and_batches(cx, 9, &configs, &keyless(3, &[1]).build()).map(Some);
        }
        ["null-key-append-time"] => {
            let configs = [compact[0], ("message.timestamp.type", "LogAppendTime")];
            return reply_and_batches(cx, 9, &configs, &keyless(3, &[1]).build()).map(Some);
        }
        ["null-key-of-length", length] => {
            // attributes, stamp and offset of the only record; its key; its value; no headers
            let Some(length) = number(length) else { return Ok(None) };
            let mut fields = vec![0, 0, 0];
            varint(length, &mut fields);
            fields.extend([2, b'v', 0]);
            let mut plain = Vec::new();
            varint(fields.len() as i64, &mut plain);
            plain.extend(fields);
            Batch { plain: Some(plain), ..keyless(1, &[0]) }
        }
        ["compaction", "keeps-last"] => return compacted(cx).map(Some),
        ["five-null"] => keyless(5, &[0, 1, 2, 3, 4]),
        ["null-key-and-bad-ts"] => {
            let mut batch = keyless(1, &[0]);
            batch.records[0].timestamp_delta = FAR;
            batch
        }
        ["null-key-then-bad-ts"] => {
            let mut batch = keyless(2, &[0]);
            batch.records[1].timestamp_delta = FAR;
            batch
        }
        ["null-key-and-count"] => Batch { count: Some(2), ..keyless(1, &[0]) },
        ["null-key-base5"] => Batch { base_offset: 5, ..keyless(1, &[0]) },
        _ => return Ok(None),
    };
    reply_and_batches(cx, 9, &compact, &batch.build()).map(Some)
}

/// A topic of several segments, once nothing but the last records of the keys is left below the last segment.
fn compacted(cx: &mut Context<'_>) -> Result<Value> {
    let configs = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.01"), ("segment.ms", "1000")];
    let topic = cx.create("t", 1, &configs)?;
    for (key, value) in [("a", "1"), ("b", "1"), ("c", "1"), ("a", "2"), ("b", "2"), ("a", "3"), ("d", "1"), ("c", "")]
    {
        let mut record = Record::text(0, 0, key, value);
        if key == "d" {
            record.headers = vec![(b"z".to_vec(), Some(b"1".to_vec())), (b"a".to_vec(), Some(b"2".to_vec()))];
        }
        record.value = record.value.filter(|value| !value.is_empty());
        cx.produce_ok(&topic, 0, &Batch::new(cx.t0(), vec![record]))?;
    }
    // A record of a later time begins a new segment, and what is in the last one is not cleaned.
    cx.produce_ok(&topic, 0, &Batch::new(cx.t0() + 30_000, vec![Record::text(0, 0, "last", "1")]))?;
    let below = |found: &Value| -> Vec<Value> {
        found.as_array().into_iter().flatten().filter(|record| record["k"] != "last").cloned().collect()
    };
    let found = cx.until(|cx| records(cx), |found| below(found).len() == 4)?;
    let left = below(&found);
    Ok(json!({"settled": left.len() == 4, "records": left}))
}
