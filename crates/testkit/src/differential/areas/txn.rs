//! Transactions: producers, partitions, ends, what a log shows of them, and what administrators see.

mod admin;
mod client;
mod flow;
mod offsets;
mod produce;
mod readers;

use anyhow::Result;
use serde_json::{Value, json};

use crate::differential::context::{Context, version};
use crate::differential::normalise::error;
use client::{NEW, OLD, Producer, code};

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    match id {
        ["new", what] => flow::run(cx, &NEW, what),
        ["old", what] => flow::run(cx, &OLD, what),
        ["init", "concurrent"] => concurrent(cx).map(Some),
        ["init", what, v] => version(v).map_or(Ok(None), |v| init(cx, what, v)),
        ["add", what, v] => version(v).map_or(Ok(None), |v| add(cx, what, v)),
        ["add", what] => add_single(cx, what),
        ["end", what, v] => version(v).map_or(Ok(None), |v| end(cx, what, v)),
        ["offsets", rest @ ..] => offsets::run(cx, rest),
        ["produce", rest @ ..] => produce::run(cx, rest),
        ["marker" | "markers" | "describe" | "describe-producers" | "list", ..] => admin::run(cx, id),
        _ => Ok(None),
    }
}

fn init(cx: &mut Context<'_>, what: &str, v: i16) -> Result<Option<Value>> {
    match what {
        "first" => {
            client::ready(cx)?;
            Ok(Some(json!([client::init(cx, v, None)?, client::init(cx, v, None)?])))
        }
        "with-own-epoch" => {
            let Producer { id, epoch } = Producer::new(cx)?;
            let asked = [(id, epoch), (id, epoch), (id, epoch + 5), (id + 1000, epoch)];
            let given: Result<Vec<_>> = asked.into_iter().map(|own| client::init(cx, v, Some(own))).collect();
            Ok(Some(json!(given?)))
        }
        _ => Ok(None),
    }
}

fn concurrent(cx: &mut Context<'_>) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let producer = Producer::new(cx)?;
    producer.send(cx, &OLD, &topic, 0, &["a"])?;
    let first = client::init(cx, 4, None)?;
    producer_again(cx)?;
    Ok(json!([first["errorCode"], "NONE(0)"]))
}

/// The next producer of the case's transactional id, once the one before is gone.
fn producer_again(cx: &mut Context<'_>) -> Result<Producer> {
    Producer::new(cx)
}

fn add(cx: &mut Context<'_>, what: &str, v: i16) -> Result<Option<Value>> {
    let topic = cx.create("t", 2, &[])?;
    let Producer { id, epoch } = Producer::new(cx)?;
    let (own, x) = ((id, epoch), cx.name("x"));
    Ok(Some(match what {
        "ok" => {
            let answer = client::add(cx, v, &x, own, &[(&topic, &[0, 1])])?;
            json!([answer, client::describe(cx)?["transactionState"]])
        }
        "bad-epoch" => {
            let other = |epoch| (id, epoch);
            let older = client::add(cx, v, &x, other(epoch - 1), &[(&topic, &[0])])?;
            json!([older, client::add(cx, v, &x, other(epoch + 1), &[(&topic, &[0])])?])
        }
        "bad-pid" => client::add(cx, v, &x, (id + 1000, epoch), &[(&topic, &[0])])?,
        "unknown-id" => {
            let no = cx.name("no");
            client::add(cx, v, &no, own, &[(&topic, &[0])])?
        }
        "unknown-topic" => {
            let unknown = cx.name("zz");
            client::add(cx, v, &x, own, &[(&topic, &[0]), (&unknown, &[0])])?
        }
        "fenced-code" => {
            Producer::new(cx)?;
            let answer = client::add(cx, v, &x, own, &[(&topic, &[0])])?;
            answer["resultsByTopicV3AndBelow"][0]["resultsByPartition"][0]["partitionErrorCode"].clone()
        }
        _ => return Ok(None),
    }))
}

fn add_single(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let topic = cx.create("t", 2, &[])?;
    if what == "expired" {
        return expired(cx, &topic).map(Some);
    }
    let Producer { id, epoch } = Producer::new(cx)?;
    let (own, x) = ((id, epoch), cx.name("x"));
    Ok(Some(match what {
        "unknown-partition" => client::add(cx, 3, &x, own, &[(&topic, &[9])])?,
        "empty-id" => client::add(cx, 3, "", own, &[(&topic, &[0])])?,
        "internal-topic" => {
            cx.internal("__consumer_offsets")?;
            client::add(cx, 3, &x, own, &[("__consumer_offsets", &[0])])?
        }
        "verify-only" => {
            let before = client::verify(cx, &x, own, &topic)?;
            client::add(cx, 3, &x, own, &[(&topic, &[0])])?;
            json!([before, client::verify(cx, &x, own, &topic)?])
        }
        _ => return Ok(None),
    }))
}

/// A transaction that is aborted at its timeout.
fn expired(cx: &mut Context<'_>, topic: &str) -> Result<Value> {
    let producer = Producer::with_timeout(cx, 1000)?;
    producer.send(cx, &OLD, topic, 0, &["a"])?;
    let described = client::wait_complete(cx)?;
    let x = cx.name("x");
    let answer = client::add(cx, 3, &x, (producer.id, producer.epoch), &[(topic, &[0])])?;
    let code = &answer["resultsByTopicV3AndBelow"][0]["resultsByPartition"][0]["partitionErrorCode"];
    let epochs = described["producerEpoch"].as_i64().unwrap_or(-1) - i64::from(producer.epoch);
    Ok(json!([described["transactionState"], code, epochs]))
}

fn end(cx: &mut Context<'_>, what: &str, v: i16) -> Result<Option<Value>> {
    let topic = cx.create("t", 1, &[])?;
    let Producer { id, epoch } = Producer::new(cx)?;
    let x = cx.name("x");
    Ok(Some(match what {
        "unknown-id" => {
            let no = cx.name("no");
            client::end(cx, v, &no, (id, epoch), true)?
        }
        "bad-pid" => client::end(cx, v, &x, (id + 1000, epoch), true)?,
        "bad-epoch" => {
            client::add(cx, 3, &x, (id, epoch), &[(&topic, &[0])])?;
            let older = client::end(cx, v, &x, (id, epoch - 1), true)?;
            json!([older, client::end(cx, v, &x, (id, epoch + 1), true)?])
        }
        "empty-state" => {
            let commit = client::end(cx, v, &x, (id, epoch), true)?;
            json!([commit, client::end(cx, v, &x, (id, epoch), false)?])
        }
        _ => return Ok(None),
    }))
}

/// An error's name.
fn named(answer: &Value) -> String {
    error(code(answer))
}
