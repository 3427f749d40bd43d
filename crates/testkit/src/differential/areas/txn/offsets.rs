//! Offsets that are committed in a transaction.

use anyhow::Result;
use serde_json::{Value, json};

use super::client::{self, NEW, OLD, Producer, code};
use super::named;
use crate::differential::areas::members::Member;
use crate::differential::context::{Context, version};

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    match id {
        [what, v] => version(v).map_or(Ok(None), |v| versioned(cx, what, v)),
        [what] => single(cx, what),
        _ => Ok(None),
    }
}

fn versioned(cx: &mut Context<'_>, what: &str, v: i16) -> Result<Option<Value>> {
    let topic = cx.create("t", 2, &[])?;
    group_is_ready(cx)?;
    let producer = Producer::new(cx)?;
    let x = cx.name("x");
    Ok(Some(match what {
        "commit" => commit(cx, &topic, producer, v)?,
        "add" => {
            let answer = add(cx, v, &x, producer)?;
            json!([answer, client::describe(cx)?["transactionState"]])
        }
        "add-bad-epoch" => add(cx, v, &x, Producer { epoch: producer.epoch + 1, ..producer })?,
        "require-stable" => stable(cx, &topic, producer, v)?,
        _ => return Ok(None),
    }))
}

fn single(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let topic = cx.create("t", 2, &[])?;
    group_is_ready(cx)?;
    let producer = Producer::new(cx)?;
    Ok(Some(match what {
        "add-unknown-id" => {
            let no = cx.name("no");
            add(cx, 3, &no, producer)?
        }
        "without-add-v4" => txn_commit(cx, 4, &topic, producer, json!({}))?,
        "bad-epoch" => {
            let other = |epoch| Producer { epoch, ..producer };
            let older = txn_commit(cx, 5, &topic, other(producer.epoch - 1), json!({}))?;
            json!([older, txn_commit(cx, 5, &topic, other(producer.epoch + 1), json!({}))?])
        }
        "member-ok" => by_members(cx, &topic, producer)?,
        "abort" => {
            plain_commit(cx, &topic, 0, 3)?;
            txn_commit(cx, 5, &topic, producer, json!({}))?;
            producer.finish(cx, &NEW, false)?;
            fetch(cx, 8, &[0], false)?
        }
        "unknown-topic" => {
            let unknown = cx.name("no");
            let by_name = txn_commit(cx, 5, &unknown, producer, json!({}))?;
            let mut body = body(cx, 6, &topic, producer)?;
            body["topics"][0]["topicId"] = "dW5rbm93biB0b3BpYyBpZA".into();
            json!([by_name, cx.ask("TxnOffsetCommit", 6, body)?])
        }
        _ => return Ok(None),
    }))
}

/// Waits until the group's coordinator answers.
fn group_is_ready(cx: &mut Context<'_>) -> Result<()> {
    cx.call("FindCoordinator", 3, json!({"key": cx.name("g"), "keyType": 0}))?;
    for _ in 0..500 {
        let answer = fetch(cx, 8, &[0], false)?;
        if answer["groups"][0]["errorCode"] == "NONE(0)" {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    anyhow::bail!("the group has no coordinator")
}

/// AddOffsetsToTxn, in normal form.
fn add(cx: &mut Context<'_>, v: i16, id: &str, producer: Producer) -> Result<Value> {
    let body = json!({
        "transactionalId": id, "producerId": producer.id, "producerEpoch": producer.epoch, "groupId": cx.name("g"),
    });
    cx.ask("AddOffsetsToTxn", v, body)
}

fn body(cx: &Context<'_>, v: i16, topic: &str, producer: Producer) -> Result<Value> {
    let partitions = json!([{"partitionIndex": 0, "committedOffset": 9, "committedMetadata": "m"}]);
    let topics = if v >= 6 {
        json!({"topicId": cx.id(topic)?, "partitions": partitions})
    } else {
        json!({"name": topic, "partitions": partitions})
    };
    let mut body = json!({
        "transactionalId": cx.name("x"), "groupId": cx.name("g"), "producerId": producer.id,
        "producerEpoch": producer.epoch, "topics": [topics],
    });
    if v >= 3 {
        (body["memberId"], body["generationIdOrMemberEpoch"]) = ("".into(), (-1).into());
    }
    Ok(body)
}

/// TxnOffsetCommit of offset 9, in normal form.
fn txn_commit(cx: &mut Context<'_>, v: i16, topic: &str, producer: Producer, more: Value) -> Result<Value> {
    let mut body = body(cx, v, topic, producer)?;
    for (key, value) in more.as_object().into_iter().flatten() {
        body[key.as_str()] = value.clone();
    }
    cx.ask("TxnOffsetCommit", v, body)
}

/// A member, in its generation and in another one, and a stranger.
fn by_members(cx: &mut Context<'_>, topic: &str, producer: Producer) -> Result<Value> {
    let member = Member::stable(cx, 5)?;
    let x = cx.name("x");
    add(cx, 3, &x, producer)?;
    let mut by = |id: &str, generation: i64| {
        txn_commit(cx, 3, topic, producer, json!({"memberId": id, "generationIdOrMemberEpoch": generation}))
    };
    let (right, wrong) = (by(&member.id, member.generation)?, by(&member.id, member.generation + 5)?);
    Ok(json!([right, wrong, by("stranger", member.generation)?]))
}

fn plain_commit(cx: &mut Context<'_>, topic: &str, partition: i32, offset: i64) -> Result<()> {
    let partitions = json!([{"partitionIndex": partition, "committedOffset": offset, "committedMetadata": "md"}]);
    let body = json!({"groupId": cx.name("g"), "generationIdOrMemberEpoch": -1, "memberId": "",
        "topics": [{"name": topic, "partitions": partitions}]});
    let answer = cx.call("OffsetCommit", 8, body)?;
    let code = code(&answer["topics"][0]["partitions"][0]);
    if code == 0 { Ok(()) } else { anyhow::bail!("OffsetCommit: {answer}") }
}

/// OffsetFetch, in normal form.
fn fetch(cx: &mut Context<'_>, v: i16, partitions: &[i32], stable: bool) -> Result<Value> {
    let topics = json!([{"name": cx.name("t"), "partitionIndexes": partitions}]);
    let group = json!({"groupId": cx.name("g"), "topics": topics});
    cx.ask("OffsetFetch", v, json!({"groups": [group], "requireStable": stable}))
}

fn committed(cx: &mut Context<'_>) -> Result<Value> {
    Ok(fetch(cx, 8, &[0], false)?["groups"][0]["topics"][0]["partitions"][0]["committedOffset"].clone())
}

fn commit(cx: &mut Context<'_>, topic: &str, producer: Producer, v: i16) -> Result<Value> {
    let (protocol, x) = (if v >= 5 { &NEW } else { &OLD }, cx.name("x"));
    let added = if v >= 5 { "-".into() } else { add(cx, 3, &x, producer)?["errorCode"].clone() };
    let reply = txn_commit(cx, v, topic, producer, json!({}))?;
    let pending = committed(cx)?;
    let ended = client::end_body(&x, (producer.id, producer.epoch), true);
    let ended = cx.call("EndTxn", protocol.end, ended)?;
    client::wait_complete(cx)?;
    let after = committed(cx)?;
    Ok(json!({"add": added, "reply": reply, "pending": pending, "end": named(&ended), "after": after}))
}

fn stable(cx: &mut Context<'_>, topic: &str, producer: Producer, v: i16) -> Result<Value> {
    plain_commit(cx, topic, 0, 3)?;
    plain_commit(cx, topic, 1, 4)?;
    txn_commit(cx, 5, topic, producer, json!({}))?;
    let open = [fetch(cx, v, &[0, 1], true)?, fetch(cx, v, &[0, 1], false)?];
    producer.finish(cx, &NEW, true)?;
    let [stable, unstable] = open;
    Ok(json!([stable, unstable, fetch(cx, v, &[0, 1], true)?]))
}
