//! Records without keys on topics that are compacted, or not.

use anyhow::Result;
use serde_json::Value;

use super::stored::{reply_and_batches, reply_batches_and_records};
use crate::batch::{Batch, Codec};
use crate::differential::context::{Context, version};

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
