//! Fetch sessions.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::batch::Batch;
use crate::differential::context::{Context, version};

/// The sides of a session that a case steps through.
struct Session {
    version: i16,
    id: i64,
    epoch: i32,
    wait_ms: i32,
}

impl Session {
    fn new(version: i16) -> Self {
        Self { version, id: 0, epoch: 0, wait_ms: 0 }
    }

    /// One fetch; the session goes on.
    fn fetch(&mut self, cx: &mut Context<'_>, topics: Value, forgotten: Value) -> Result<Value> {
        let body = json!({
            "maxWaitMs": self.wait_ms, "minBytes": i32::from(self.wait_ms > 0), "maxBytes": 1 << 20,
            "sessionId": self.id, "sessionEpoch": self.epoch, "topics": topics, "forgottenTopicsData": forgotten,
        });
        let reply = cx.call("Fetch", self.version, body)?;
        self.id = reply["sessionId"].as_i64().unwrap_or(0);
        self.epoch += 1;
        Ok(cx.names.normal(&reply))
    }

    /// An incremental fetch without changes.
    fn go_on(&mut self, cx: &mut Context<'_>) -> Result<Value> {
        self.fetch(cx, json!([]), json!([]))
    }
}

/// The topic of a fetch, by name or id as the version wants it.
fn topic(cx: &Context<'_>, version: i16, name: &str, partitions: &[(i32, i64)]) -> Result<Value> {
    let partitions: Vec<_> = partitions
        .iter()
        .map(|(p, offset)| json!({"partition": p, "fetchOffset": offset, "partitionMaxBytes": 1 << 20}))
        .collect();
    Ok(match version {
        ..13 => json!([{"topic": name, "partitions": partitions}]),
        _ => json!([{"topicId": cx.id(name)?, "partitions": partitions}]),
    })
}

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    Ok(Some(match id {
        [what, v] => {
            let Some(v) = version(v) else { return Ok(None) };
            match *what {
                "full-then-empty" => full_then_empty(cx, v)?,
                "incremental-data" => incremental_data(cx, v)?,
                "wrong-epoch" => wrong_epoch(cx, v)?,
                "unknown-id" => {
                    let mut session = Session { version: v, id: 123_456_789, epoch: 3, wait_ms: 0 };
                    session.go_on(cx)?
                }
                _ => return Ok(None),
            }
        }
        ["id-nonzero-epoch0"] => id_with_epoch_zero(cx)?,
        ["full-empty"] => Session::new(12).go_on(cx)?,
        ["incremental-no-session"] => Session { version: 12, id: 0, epoch: 1, wait_ms: 0 }.go_on(cx)?,
        ["forget" | "forget-unknown" | "forget-all" | "forget-named" | "add-partition"] => membership(cx, id[0])?,
        ["id-to-name"] => {
            let name = cx.create("t", 1, &[])?;
            let mut session = Session::new(13);
            session.fetch(cx, topic(cx, 13, &name, &[(0, 0)])?, json!([]))?;
            session.version = 12;
            session.go_on(cx)?
        }
        ["empty-waits"] => {
            let (_, mut session) = open(cx, 1)?;
            session.wait_ms = 700;
            let started = Instant::now();
            let reply = session.go_on(cx)?;
            json!({"reply": reply, "waited": started.elapsed() >= Duration::from_millis(600)})
        }
        ["error-repeated"] => {
            let name = cx.create("t", 1, &[])?;
            let mut session = Session::new(12);
            let first = session.fetch(cx, topic(cx, 12, &name, &[(9, 0)])?, json!([]))?;
            json!([first, session.go_on(cx)?])
        }
        ["hw-change-only"] => {
            let name = cx.create("t", 1, &[])?;
            cx.six(&name, 0)?;
            let mut session = Session::new(12);
            session.fetch(cx, topic(cx, 12, &name, &[(0, 6)])?, json!([]))?;
            cx.delete_records(&name, 0, 2)?;
            json!([session.go_on(cx)?, session.go_on(cx)?])
        }
        ["deleted-topic-id"] => {
            let (name, mut session) = open(cx, 1)?;
            cx.delete(&name)?;
            session.go_on(cx)?
        }
        ["recreated-topic-id"] => {
            let (name, mut session) = open(cx, 1)?;
            cx.delete(&name)?;
            cx.create("t", 1, &[])?;
            session.go_on(cx)?
        }
        ["another-connection"] => {
            let (_, mut session) = open(cx, 1)?;
            cx.reconnect();
            session.go_on(cx)?
        }
        _ => return Ok(None),
    }))
}

/// An empty topic and a session on its partitions: by id for the cases about ids, which is version 13 and later.
fn open(cx: &mut Context<'_>, partitions: i32) -> Result<(String, Session)> {
    let name = cx.create("t", partitions, &[])?;
    let mut session = Session::new(13);
    let asked: Vec<_> = (0..partitions).map(|p| (p, 0)).collect();
    let reply = session.fetch(cx, topic(cx, 13, &name, &asked)?, json!([]))?;
    if session.id == 0 {
        bail!("no session: {reply}");
    }
    Ok((name, session))
}

fn full_then_empty(cx: &mut Context<'_>, v: i16) -> Result<Value> {
    let name = cx.create("t", 1, &[])?;
    cx.six(&name, 0)?;
    let mut session = Session::new(v);
    let full = session.fetch(cx, topic(cx, v, &name, &[(0, 0)])?, json!([]))?;
    // The consumer has the six records and asks for the next one from now on.
    let moved = session.fetch(cx, topic(cx, v, &name, &[(0, 6)])?, json!([]))?;
    Ok(json!([full, moved, session.go_on(cx)?]))
}

fn incremental_data(cx: &mut Context<'_>, v: i16) -> Result<Value> {
    let name = cx.create("t", 2, &[])?;
    let mut session = Session::new(v);
    let full = session.fetch(cx, topic(cx, v, &name, &[(0, 0), (1, 0)])?, json!([]))?;
    let batch = Batch::of(1, cx.t0());
    cx.produce_ok(&name, 1, &batch)?;
    let changed = session.go_on(cx)?;
    let after = session.fetch(cx, topic(cx, v, &name, &[(1, 1)])?, json!([]))?;
    Ok(json!([full, changed, after]))
}

fn wrong_epoch(cx: &mut Context<'_>, v: i16) -> Result<Value> {
    let name = cx.create("t", 1, &[])?;
    cx.six(&name, 0)?;
    let mut session = Session::new(v);
    session.fetch(cx, topic(cx, v, &name, &[(0, 0)])?, json!([]))?;
    let id = session.id;
    session.epoch = 7;
    let wrong = session.go_on(cx)?;
    (session.id, session.epoch) = (id, 1);
    Ok(json!([wrong, session.go_on(cx)?]))
}

fn id_with_epoch_zero(cx: &mut Context<'_>) -> Result<Value> {
    let (name, mut session) = open(cx, 1)?;
    let old = session.id;
    session.epoch = 0;
    session.fetch(cx, topic(cx, 13, &name, &[(0, 0)])?, json!([]))?;
    let new = session.id;
    let mut again = Session { version: 13, id: old, epoch: 1, wait_ms: 0 };
    Ok(json!({"newId": new != old && new != 0, "old": again.go_on(cx)?}))
}

fn membership(cx: &mut Context<'_>, what: &str) -> Result<Value> {
    let name = cx.create("t", 2, &[])?;
    let batch = Batch::of(1, cx.t0());
    let mut session = Session::new(12);
    let forgotten = |partition: i32| json!([{"topic": name, "partitions": [partition]}]);
    let both = topic(cx, 12, &name, &[(0, 0), (1, 0)])?;
    match what {
        "forget" => {
            session.fetch(cx, both, json!([]))?;
            let first = session.fetch(cx, json!([]), forgotten(0))?;
            cx.produce_ok(&name, 0, &batch)?;
            cx.produce_ok(&name, 1, &batch)?;
            Ok(json!([first, session.go_on(cx)?]))
        }
        "forget-unknown" => {
            session.fetch(cx, both, json!([]))?;
            session.fetch(cx, json!([]), forgotten(7))
        }
        "forget-all" | "forget-named" => {
            let first = topic(cx, 12, &name, &[(0, 0)])?;
            session.fetch(cx, first.clone(), json!([]))?;
            let id = session.id;
            let named = if what == "forget-named" { first } else { json!([]) };
            let emptied = session.fetch(cx, named, forgotten(0))?;
            session.id = id;
            Ok(json!([emptied, session.go_on(cx)?]))
        }
        _ => {
            session.fetch(cx, topic(cx, 12, &name, &[(0, 0)])?, json!([]))?;
            cx.produce_ok(&name, 1, &batch)?;
            let added = session.fetch(cx, topic(cx, 12, &name, &[(1, 0)])?, json!([]))?;
            Ok(json!([added, session.go_on(cx)?]))
        }
    }
}
