//! Idempotent producers: their ids, sequences, epochs and duplicates.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::seed::producer_id;
use super::stored::{answer, records};
use crate::batch::{Batch, Codec, Record};
use crate::client::Event;
use crate::differential::context::{Context, SILENCE, number, produce_body, version};
use crate::differential::normalise::error;

/// An id that no broker of a test has given out.
const NEVER_GIVEN: i64 = 4_000_000_007;
const TIMEOUT: i64 = 60_000;

/// Epoch, first sequence and number of records of a batch.
type Sent = (i16, i32, usize);

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    match id {
        ["init", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            producer_id(cx)?;
            let given = [init(cx, v, None, TIMEOUT, None)?, init(cx, v, None, TIMEOUT, None)?];
            Ok(Some(json!(given)))
        }
        ["init-empty-txid", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            init(cx, v, Some(""), TIMEOUT, None).map(Some)
        }
        [what] => match sequences(what) {
            Some(sent) => replies_and_end(cx, &sent).map(Some),
            None => single(cx, what),
        },
        _ => Ok(None),
    }
}

fn init(
    cx: &mut Context<'_>,
    v: i16,
    transactional_id: Option<&str>,
    timeout: i64,
    producer: Option<(i64, i16)>,
) -> Result<Value> {
    let mut body = json!({"transactionalId": transactional_id, "transactionTimeoutMs": timeout});
    if v >= 3 {
        let (id, epoch) = producer.unwrap_or((-1, -1));
        (body["producerId"], body["producerEpoch"]) = (id.into(), epoch.into());
    }
    cx.ask("InitProducerId", v, body)
}

/// What one producer sends in the cases that ask for nothing but the replies and the log end.
fn sequences(what: &str) -> Option<Vec<Sent>> {
    let one = |sequence| (0, sequence, 1);
    Some(match what {
        "in-order" => vec![one(0), (0, 1, 2), one(3)],
        "first-not-zero" => vec![one(5), one(6), one(8)],
        "dup-last" => vec![(0, 0, 2), (0, 0, 2), one(2)],
        "dup-fifth" => (0..6).chain([1]).map(one).collect(),
        "dup-part" => vec![(0, 0, 4), (0, 1, 2), (0, 0, 2), (0, 2, 2)],
        // Behind the largest sequence comes 0.
        "wrap" => vec![(0, i32::MAX - 1, 1), (0, i32::MAX, 1), (0, 0, 1), (0, i32::MAX, 1), (0, 1, 1)],
        "wrap-in-a-batch" => vec![(0, i32::MAX - 1, 3), (0, i32::MAX - 1, 3), (0, 1, 1), (0, 3, 1)],
        "epoch-max" => vec![(i16::MAX, 0, 1), (i16::MAX, 1, 1), (0, 0, 1)],
        "dup-sixth" => (0..6).chain([0]).map(one).collect(),
        "dup-much-older" => {
            let tens = (0..6).map(|n| (0, 1 + n * 10, 10));
            [one(0)].into_iter().chain(tens).chain([one(0), (0, 1, 10)]).collect()
        }
        "same-first-longer" => vec![(0, 0, 2), (0, 0, 3)],
        "same-first-shorter" => vec![(0, 0, 3), (0, 0, 2)],
        "epoch-up-zero" => vec![(0, 0, 1), (1, 0, 1), (1, 1, 1)],
        "epoch-up-nonzero" => vec![(0, 0, 1), (1, 5, 1)],
        "epoch-down" => vec![(1, 0, 1), (0, 1, 1), (0, 0, 1), (1, 1, 1)],
        "epoch-down-dup" => vec![(0, 0, 1), (1, 0, 1), (0, 0, 1)],
        "after-gap-continue" => vec![one(0), one(2), one(1)],
        _ => return None,
    })
}

fn batch(cx: &Context<'_>, producer_id: i64, (epoch, base_sequence, count): Sent) -> Batch {
    Batch { producer_id, producer_epoch: epoch, base_sequence, ..Batch::of(count, cx.t0()) }
}

/// Sends to the topic `t`; the reply in short.
fn send(cx: &mut Context<'_>, batch: &Batch) -> Result<String> {
    let topic = cx.name("t");
    let reply = answer(cx, 9, &topic, &batch.build())?;
    Ok(format!("{} @{}", error(reply["errorCode"].as_i64().unwrap_or(-1)), reply["baseOffset"]))
}

fn send_all(cx: &mut Context<'_>, producer: i64, sent: &[Sent]) -> Result<Vec<String>> {
    sent.iter().map(|&sent| send(cx, &batch(cx, producer, sent))).collect()
}

fn replies_and_end(cx: &mut Context<'_>, sent: &[Sent]) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let producer = producer_id(cx)?;
    let replies = send_all(cx, producer, sent)?;
    Ok(json!({"replies": replies, "end": cx.end(&topic, 0)?}))
}

fn single(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    if let Some(timeout) = what.strip_prefix("init-txn-timeout").and_then(number) {
        let id = cx.name("x");
        return init(cx, 4, Some(&id), timeout, None).map(Some);
    }
    if let Some(timeout) = what.strip_prefix("init-timeout").and_then(number) {
        producer_id(cx)?;
        return init(cx, 4, None, timeout, None).map(Some);
    }
    Ok(Some(match what {
        "init-with-pid" => {
            let known = producer_id(cx)?;
            init(cx, 4, None, TIMEOUT, Some((known, 0)))?
        }
        "init-with-epoch-no-pid" => init(cx, 4, None, TIMEOUT, Some((-1, 3)))?,
        "describe-producers-empty" => {
            let topic = cx.create("t", 1, &[])?;
            let topics = json!([{"name": topic, "partitionIndexes": [0]}]);
            cx.ask("DescribeProducers", 0, json!({"topics": topics}))?
        }
        "describe-producers-unknown" => {
            let (known, unknown) = (cx.create("t", 1, &[])?, cx.name("none"));
            let topics = json!([{"name": unknown, "partitionIndexes": [0]}, {"name": known, "partitionIndexes": [7]}]);
            cx.ask("DescribeProducers", 0, json!({"topics": topics}))?
        }
        _ => {
            let topic = cx.create("t", 1, &[])?;
            let producer = producer_id(cx)?;
            return on_topic(cx, what, &topic, producer);
        }
    }))
}

/// The cases with a topic and a producer.
fn on_topic(cx: &mut Context<'_>, what: &str, topic: &str, producer: i64) -> Result<Option<Value>> {
    Ok(Some(match what {
        "two-producers" => {
            let other = producer_id(cx)?;
            let first = [send_all(cx, producer, &[(0, 0, 1)])?, send_all(cx, other, &[(0, 0, 1)])?];
            let second = [send_all(cx, producer, &[(0, 1, 1), (0, 0, 1)])?, send_all(cx, other, &[(0, 0, 1)])?];
            json!([first, second].concat())
        }
        "unallocated-pid" => json!(send_all(cx, NEVER_GIVEN, &[(0, 0, 1), (0, 0, 1), (0, 1, 1)])?),
        "pid-pid-mix-nonidempotent" => {
            let first = send(cx, &batch(cx, producer, (0, 0, 1)))?;
            send(cx, &Batch::of(1, cx.t0()))?;
            json!([first, send(cx, &batch(cx, producer, (0, 1, 1)))?])
        }
        "dup-reply-whole" => {
            send(cx, &Batch::of(1, cx.t0()))?;
            let sent = batch(cx, producer, (0, 0, 2)).build();
            json!([whole(cx, topic, &sent)?, whole(cx, topic, &sent)?])
        }
        "gap-reply-whole" => {
            send(cx, &batch(cx, producer, (0, 0, 1)))?;
            let sent = batch(cx, producer, (0, 5, 1)).build();
            whole(cx, topic, &sent)?
        }
        "epoch-down-reply-whole" => {
            send_all(cx, producer, &[(3, 0, 1)])?;
            let sent = batch(cx, producer, (2, 1, 1)).build();
            whole(cx, topic, &sent)?
        }
        "two-partitions" => {
            let topic = cx.create("u", 2, &[])?;
            let mut codes = Vec::new();
            for (partition, sequence) in [(0, 0), (1, 0), (0, 1), (1, 2), (1, 1)] {
                let sent = batch(cx, producer, (0, sequence, 1)).build();
                codes.push(error(cx.produce(&topic, partition, &sent)?["errorCode"].as_i64().unwrap_or(-1)));
            }
            json!(codes)
        }
        "gap-acks0" => {
            send(cx, &batch(cx, producer, (0, 0, 1)))?;
            let body = produce_body(topic, 0, 0, &batch(cx, producer, (0, 5, 1)).build());
            let mut client = cx.connect()?;
            client.send("Produce", 9, &body)?;
            match client.next_event(SILENCE)? {
                Event::Closed => "closed".into(),
                Event::Silent => "silent".into(),
                Event::Frame(_) => "reply".into(),
            }
        }
        "dup-compressed" => {
            let packed = batch(cx, producer, (0, 0, 2)).with(Codec::Gzip);
            let all = [packed.clone(), packed, batch(cx, producer, (0, 2, 1))];
            all.iter()
                .map(|sent| Ok(answer(cx, 9, topic, &sent.build())?["baseOffset"].take()))
                .collect::<Result<_>>()?
        }
        "dup-other-content" => {
            let of = |cx: &Context<'_>, value: &str| Batch {
                records: vec![Record::text(0, 0, "k0", value)],
                ..batch(cx, producer, (0, 0, 1))
            };
            let first = answer(cx, 9, topic, &of(cx, "a").build())?["baseOffset"].take();
            let second = answer(cx, 9, topic, &of(cx, "b").build())?["baseOffset"].take();
            json!([first, second, records(cx)?])
        }
        "dup-after-delete-records" => {
            let first = send(cx, &batch(cx, producer, (0, 0, 2)))?;
            cx.delete_records(topic, 0, 2)?;
            let sent = batch(cx, producer, (0, 0, 2)).build();
            let mut again = whole(cx, topic, &sent)?;
            if let Some(fields) = again.as_object_mut() {
                fields.retain(|name, _| ["errorCode", "baseOffset", "logStartOffset"].contains(&name.as_str()));
            }
            json!([first, again, send(cx, &batch(cx, producer, (0, 2, 1)))?])
        }
        "expired-state" => {
            let set = set_expiration(cx, Some("1000"))?;
            let mut replies = send_all(cx, producer, &[(0, 0, 1)])?;
            std::thread::sleep(Duration::from_millis(2500));
            replies.extend(send_all(cx, producer, &[(0, 7, 1), (0, 1, 1)])?);
            json!({"set": set, "unset": set_expiration(cx, None)?, "replies": replies})
        }
        _ => return Ok(None),
    }))
}

/// The partition's answer with all its fields.
fn whole(cx: &mut Context<'_>, topic: &str, sent: &[u8]) -> Result<Value> {
    let reply = answer(cx, 9, topic, sent)?;
    Ok(cx.names.normal(&reply))
}

/// Sets `producer.id.expiration.ms` for all brokers, or takes it back; the error code.
fn set_expiration(cx: &mut Context<'_>, value: Option<&str>) -> Result<Value> {
    let operation = i32::from(value.is_none());
    let configs = json!([{"name": "producer.id.expiration.ms", "configOperation": operation, "value": value}]);
    let resources = json!([{"resourceType": 4, "resourceName": "", "configs": configs}]);
    let mut reply = cx.call("IncrementalAlterConfigs", 1, json!({"resources": resources, "validateOnly": false}))?;
    Ok(reply["responses"][0]["errorCode"].take())
}
