//! Produce requests of several entries: topics and partitions that come twice, and entries that decide over others.

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::stored::records;
use crate::batch::{Batch, Record};
use crate::client::Event;
use crate::differential::context::{Context, SILENCE, version};
use crate::differential::normalise::error;
use crate::wire;

/// Attributes of a batch of a transaction.
const TRANSACTIONAL: i16 = 0x10;

/// A group whose offsets are in the first partition, whatever their number.
const GROUP_OF_PARTITION_0: &str = "polygenelubricants";

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    match id {
        ["no-partitions", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            let topic = cx.create("t", 1, &[])?;
            let topics = [entry(cx, v, &topic, &[])?];
            cx.ask("Produce", v, body(-1, &topics)).map(Some)
        }
        ["internal-as-admin-client", name] => internal(cx, name).map(Some),
        ["topic-twice", what, v] => {
            let Some(v) = version(v) else { return Ok(None) };
            topic_twice(cx, what, v)
        }
        ["twice", what] => twice(cx, what),
        ["heads", what] => heads(cx, what),
        ["acks0", what] => silent(cx, what),
        ["refused-after-delete", what] => refused_after_delete(cx, what),
        _ => Ok(None),
    }
}

fn body(acks: i16, topics: &[Value]) -> Value {
    json!({"acks": acks, "timeoutMs": 10000, "topicData": topics})
}

/// A topic's entry, by id from version 13 on.
fn entry(cx: &Context<'_>, v: i16, topic: &str, partitions: &[(i32, Vec<u8>)]) -> Result<Value> {
    let data: Vec<_> =
        partitions.iter().map(|(index, batch)| json!({"index": index, "records": STANDARD.encode(batch)})).collect();
    Ok(if v >= 13 {
        json!({"topicId": cx.id(topic)?, "partitionData": data})
    } else {
        json!({"name": topic, "partitionData": data})
    })
}

/// A batch of one record that can be told from others.
fn named(cx: &Context<'_>, value: &str) -> Batch {
    Batch::new(cx.t0(), vec![Record::text(0, 0, "k0", value)])
}

fn corrupt(cx: &Context<'_>) -> Vec<u8> {
    Batch { crc: Some(1), ..named(cx, "bad") }.build()
}

/// The answer, its lists in one order.
fn ask(cx: &mut Context<'_>, v: i16, body: Value) -> Result<Value> {
    let mut answer = cx.ask("Produce", v, body)?;
    for topic in answer["responses"].as_array_mut().into_iter().flatten() {
        if let Some(partitions) = topic["partitionResponses"].as_array_mut() {
            partitions.sort_by_key(|partition| partition["index"].as_i64());
        }
    }
    Ok(answer)
}

/// An internal topic is written to by a client with the name of Kafka's own admin client.
fn internal(cx: &mut Context<'_>, name: &str) -> Result<Value> {
    cx.internal(name)?;
    cx.wait_led(name, 1)?;
    let topics = [entry(cx, 9, name, &[(0, named(cx, "v").build())])?];
    let mut client = cx.connect()?;
    client.send_frame(&wire::request("Produce", 9, 1, Some("__admin_client"), &body(-1, &topics))?)?;
    let reply = wire::response("Produce", 9, &client.next_frame()?)?;
    reload_coordinator(cx)?;
    let answer = &reply.body["responses"][0]["partitionResponses"][0];
    Ok(json!({"error": error(answer["errorCode"].as_i64().unwrap_or(-1))}))
}

/// Apache Kafka's coordinator of a partition that others have written to finds its offsets shifted at its next write: it
/// refuses that, drops everything and loads the partition again. That is to happen here, not in the middle of another case
/// whose group has the same partition.
fn reload_coordinator(cx: &mut Context<'_>) -> Result<()> {
    let topic = cx.create("t", 1, &[])?;
    let partition = json!({"partitionIndex": 0, "committedOffset": 0, "committedMetadata": ""});
    let topics = json!([{"name": topic, "partitions": [partition]}]);
    let commit = json!({
        "groupId": GROUP_OF_PARTITION_0, "generationIdOrMemberEpoch": -1, "memberId": "", "topics": topics,
    });
    let committed = |answer: &Value| answer["topics"][0]["partitions"][0]["errorCode"] == 0;
    cx.until(|cx| cx.call("OffsetCommit", 8, commit.clone()), committed).map(drop)
}

/// Two entries of one topic.
fn topic_twice(cx: &mut Context<'_>, what: &str, v: i16) -> Result<Option<Value>> {
    let topic = cx.create("t", 2, &[])?;
    let second = match what {
        "two-partitions" => 1,
        "one-partition" => 0,
        _ => return Ok(None),
    };
    let batches = [(0, named(cx, "a").build()), (second, named(cx, "b").build())];
    let topics = [entry(cx, v, &topic, &batches[..1])?, entry(cx, v, &topic, &batches[1..])?];
    let answer = ask(cx, v, body(-1, &topics))?;
    Ok(Some(json!([answer, records(cx)?, cx.end(&topic, 1)?])))
}

/// Two entries of one partition.
fn twice(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let topic = cx.create("t", 1, &[])?;
    let good = named(cx, "good").build();
    let entries = match what {
        "first-corrupt" => [(0, corrupt(cx)), (0, good)],
        "second-corrupt" => [(0, good), (0, corrupt(cx))],
        "unknown-partition" => [(7, good.clone()), (7, good)],
        _ => return Ok(None),
    };
    let topics = [entry(cx, 9, &topic, &entries)?];
    let answer = ask(cx, 9, body(-1, &topics))?;
    Ok(Some(json!([answer, records(cx)?])))
}

/// Batch headers that are looked at before anything else.
fn heads(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let topic = cx.create("t", 2, &[])?;
    let good = named(cx, "good");
    let transactional = Batch {
        attributes: TRANSACTIONAL,
        producer_id: 4_000_000_100,
        producer_epoch: 0,
        base_sequence: 0,
        ..good.clone()
    }
    .build();
    let future = Batch { magic: 3, ..good.clone() }.build();
    let control = Batch { attributes: 0x20, ..good.clone() }.build();
    let good = good.build();
    let (acks, entries) = match what {
        "txn-then-magic3" => (-1, vec![(0, transactional), (1, future)]),
        "magic3-then-txn" => (-1, vec![(0, future), (1, transactional)]),
        "magic3-unknown-partition" => (-1, vec![(0, good), (7, future)]),
        "txn-unknown-partition" => (-1, vec![(0, good), (7, transactional)]),
        "bad-acks-magic3" => (2, vec![(0, future)]),
        "bad-acks-two-batches" => (2, vec![(0, [&good[..], &good[..]].concat()), (1, good)]),
        "control" => (-1, vec![(0, control)]),
        _ => return Ok(None),
    };
    let topics = [entry(cx, 12, &topic, &entries)?];
    let answer = ask(cx, 12, body(acks, &topics))?;
    Ok(Some(json!([answer, cx.end(&topic, 0)?, cx.end(&topic, 1)?])))
}

/// What follows a request that wants no answer.
fn silent(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let topic = cx.create("t", 2, &[])?;
    let good = named(cx, "good").build();
    let entries = match what {
        "then-next" => vec![(0, good)],
        "good-and-corrupt" => vec![(0, good), (1, corrupt(cx))],
        "corrupt-then-good-of-one-partition" => vec![(0, corrupt(cx)), (0, good)],
        _ => return Ok(None),
    };
    let topics = [entry(cx, 9, &topic, &entries)?];
    let mut client = cx.connect()?;
    client.send("Produce", 9, &body(0, &topics))?;
    let correlation = client.send("ApiVersions", 0, &json!({}))?;
    let next = match client.next_event(SILENCE)? {
        Event::Frame(frame) => {
            json!({"answersTheSecond": wire::response("ApiVersions", 0, &frame)?.correlation == correlation})
        }
        Event::Closed => "closed".into(),
        Event::Silent => "silent".into(),
    };
    Ok(Some(json!([next, records(cx)?])))
}

/// A refusal tells where a log starts whose first records were deleted.
fn refused_after_delete(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let topic = cx.create("t", 1, &[])?;
    cx.six(&topic, 0)?;
    cx.delete_records(&topic, 0, 4)?;
    let good = named(cx, "good");
    let sent = match what {
        "corrupt" => corrupt(cx),
        "base5" => Batch { base_offset: 5, ..good }.build(),
        "far-ahead" => Batch::new(4_000_000_000_000, good.records).build(),
        "gap" => {
            let of =
                |base_sequence| Batch { producer_id: 4_000_000_101, producer_epoch: 0, base_sequence, ..good.clone() };
            cx.produce_ok(&topic, 0, &of(0))?;
            of(5).build()
        }
        "duplicate" => {
            let batch = Batch { producer_id: 4_000_000_102, producer_epoch: 0, base_sequence: 0, ..good };
            cx.produce_ok(&topic, 0, &batch)?;
            cx.delete_records(&topic, 0, 7)?;
            batch.build()
        }
        _ => return Ok(None),
    };
    let answer = cx.produce(&topic, 0, &sent)?;
    Ok(Some(cx.names.normal(&answer)))
}
