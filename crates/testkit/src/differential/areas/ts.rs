//! The stamps of records: the producer's within a window, or the broker's.

use anyhow::Result;
use serde_json::{Value, json};

use super::seed::producer_id;
use super::stored::{answer, reply_and_batches, reply_batches_and_records};
use crate::batch::{Batch, Codec, Record, Stored};
use crate::differential::context::{Context, version};

const MINUTE: i64 = 60_000;

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    match id {
        ["lat", "idempotent-dup"] => duplicate(cx).map(Some),
        ["lat", what] => append_time(cx, what),
        ["create", what, codec] => {
            let Some(codec) = Codec::parse(codec) else { return Ok(None) };
            created(cx, what, codec, &[])
        }
        ["rebuilt", what] => created(cx, what, Codec::None, &[("compression.type", "lz4")]),
        ["invalid-shape", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            let topic = cx.create("t", 1, &[])?;
            let sent = one(now(cx) + 61 * MINUTE, Codec::None).build();
            let answer = answer(cx, v, &topic, &sent)?;
            Ok(Some(cx.names.normal(&answer)))
        }
        [what, codec] => {
            let Some(codec) = Codec::parse(codec) else { return Ok(None) };
            window(cx, what, codec)
        }
        _ => Ok(None),
    }
}

fn now(cx: &Context<'_>) -> i64 {
    cx.t0() + MINUTE
}

fn one(timestamp: i64, codec: Codec) -> Batch {
    Batch::new(timestamp, vec![Record::text(0, 0, "k0", "v0")]).with(codec)
}

/// Records `a=a`, `b=b`, ... of these stamps; the first is the base.
fn of(stamps: &[i64], codec: Codec) -> Batch {
    let records = stamps.iter().zip(["a", "b", "c"]).enumerate();
    let records = records.map(|(at, (stamp, name))| Record::text(at as i64, stamp - stamps[0], name, name));
    Batch::new(stamps[0], records.collect()).with(codec)
}

/// A topic with the broker's time.
fn append_time(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let mut configs = vec![("message.timestamp.type", "LogAppendTime")];
    let (mut v, t0) = (9, cx.t0());
    let batch = match what {
        "recompressed" => {
            configs.push(("compression.type", "lz4"));
            Batch::of(2, t0).with(Codec::Gzip)
        }
        "client-bit" => Batch { attributes: 8, ..Batch::of(2, t0) },
        "future" => one(4_000_000_000_000, Codec::None),
        "negative" => one(-1, Codec::None),
        _ => match (Codec::parse(what), version(what)) {
            (Some(codec), _) => Batch::of(3, t0).with(codec),
            (None, Some(asked)) => {
                v = asked;
                Batch::of(2, t0)
            }
            _ => return Ok(None),
        },
    };
    let topic = cx.create("t", 1, &configs)?;
    let sent = batch.build();
    let mut reply = answer(cx, v, &topic, &sent)?;
    let time = reply["logAppendTimeMs"].as_i64().unwrap_or(-1);
    if let Some(object) = reply.as_object_mut() {
        object.shift_remove("logAppendTimeMs");
    }
    let is_now = (now(cx) - time).abs() < 10 * MINUTE;
    let mut outcome = json!({"reply": cx.names.normal(&reply), "timeIsBrokerNow": is_now});
    let bytes = cx.stored(&topic, 0)?;
    if let Some(batch) = Stored::split(&bytes)?.first() {
        let mut fields = batch.fields(&sent);
        let newest = fields["maxTs"].as_i64();
        if let Some(object) = fields.as_object_mut() {
            object.shift_remove("maxTs");
        }
        outcome["maxEqualsReply"] = (newest == Some(time)).into();
        outcome["everyRecordHasIt"] = (newest == Some(time) && batch.attributes() & 8 != 0).into();
        outcome["stored"] = cx.names.normal(&fields);
    }
    Ok(Some(outcome))
}

/// A duplicate where the broker's time counts.
fn duplicate(cx: &mut Context<'_>) -> Result<Value> {
    let topic = cx.create("t", 1, &[("message.timestamp.type", "LogAppendTime")])?;
    let batch = Batch { producer_id: producer_id(cx)?, producer_epoch: 0, base_sequence: 0, ..Batch::of(2, cx.t0()) };
    let sent = batch.build();
    let (mut outcome, mut times) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let mut reply = answer(cx, 9, &topic, &sent)?;
        let time = reply["logAppendTimeMs"].as_i64().unwrap_or(-1);
        if (now(cx) - time).abs() < 10 * MINUTE {
            reply["logAppendTimeMs"] = "<now>".into();
        }
        outcome.push(cx.names.normal(&reply));
        times.push(time);
    }
    outcome.push(json!({"sameTime": times[0] == times[1]}));
    Ok(outcome.into())
}

/// A topic with the producer's time.
fn created(cx: &mut Context<'_>, what: &str, codec: Codec, configs: &[(&str, &str)]) -> Result<Option<Value>> {
    let timestamp = match what {
        "future-61min" => now(cx) + 61 * MINUTE,
        "future-59min" => now(cx) + 59 * MINUTE,
        "zero" => 0,
        "absent" => -1,
        "neg-big" => -1_000_000,
        "long-max" => i64::MAX,
        _ => return Ok(None),
    };
    let sent = one(timestamp, codec).build();
    let mut outcome = reply_and_batches(cx, 9, configs, &sent)?;
    if what == "future-59min" {
        for field in ["baseTs", "maxTs"] {
            if outcome["stored"][0][field] == cx.names.time(timestamp) {
                outcome["stored"][0][field] = "ahead".into();
            }
        }
    }
    Ok(Some(outcome))
}

/// Several stamps, and topics with a window of their own.
fn window(cx: &mut Context<'_>, what: &str, codec: Codec) -> Result<Option<Value>> {
    let (t0, now) = (cx.t0(), now(cx));
    let ahead = now + 61 * MINUTE;
    Ok(Some(match what {
        "two-bad-of-three" => reply_and_batches(cx, 9, &[], &of(&[ahead, t0, ahead], codec).build())?,
        "before-max" => {
            let configs = [("message.timestamp.before.max.ms", "1000")];
            let old = now - 60 * MINUTE;
            reply_and_batches(cx, 9, &configs, &of(&[old, old], codec).build())?
        }
        "before-max-absent" => {
            let configs = [("message.timestamp.before.max.ms", "1000")];
            reply_and_batches(cx, 9, &configs, &one(-1, codec).build())?
        }
        "after-max" => {
            let configs = [("message.timestamp.after.max.ms", "1000")];
            reply_and_batches(cx, 9, &configs, &one(now + MINUTE, codec).build())?
        }
        "delta-long" => reply_batches_and_records(cx, 9, &[], &of(&[0, t0], codec).build())?,
        "descending" => reply_batches_and_records(cx, 9, &[], &of(&[t0 + 9, t0 + 5, t0], codec).build())?,
        _ => return Ok(None),
    }))
}
