//! Classic groups of two members, and members that are late or silent.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::members::{Joining, Member, describe};
use crate::differential::context::Context;
use crate::differential::normalise::error;
use crate::wire;

const REBALANCE_IN_PROGRESS: i64 = 27;

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    match id {
        ["two-members", "rebalance"] => rebalance(cx),
        ["two-members", "common-protocol"] => common_protocol(cx),
        ["rebalance-timeout", "evicts"] => evicts(cx),
        ["session-expiry"] => session_expiry(cx),
        ["waiting-in-join-not-expired"] => waiting_in_join(cx),
        ["waiting-in-sync-not-expired"] => waiting_in_sync(cx),
        _ => return Ok(None),
    }
    .map(Some)
}

/// A second member of the group that asks to join; the first one hears of it.
fn second(cx: &mut Context<'_>, first: &mut Member, joining: Joining) -> Result<(Member, Value)> {
    let mut second = Member::new(cx, joining)?;
    second.ask_with_id()?;
    for _ in 0..500 {
        let heard = first.heartbeat(3)?;
        if heard["errorCode"] == REBALANCE_IN_PROGRESS {
            return Ok((second, heard));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    bail!("the first member is not told to join again")
}

/// Two members that have joined, and what they were told.
fn two(cx: &mut Context<'_>, first: &mut Member, joining: Joining) -> Result<(Member, [Value; 3])> {
    let (mut second, heard) = second(cx, first, joining)?;
    first.ask_to_join()?;
    let joined = first.joined()?;
    let other = second.joined()?;
    Ok((second, [heard, joined, other]))
}

fn members(joined: &Value) -> usize {
    joined["members"].as_array().map_or(0, Vec::len)
}

fn both(first: &Member, second: &Member) -> Value {
    json!([
        {"memberId": first.id, "assignment": wire::base64(b"a1")},
        {"memberId": second.id, "assignment": wire::base64(b"a2")},
    ])
}

fn code(reply: &Value) -> String {
    error(reply["errorCode"].as_i64().unwrap_or(-1))
}

fn rebalance(cx: &mut Context<'_>) -> Result<Value> {
    let mut first = Member::stable(cx, 5)?;
    let before = first.generation;
    let (mut second, [heard, joined, other]) = two(cx, &mut first, Joining::consumer(5, 2))?;
    let sync1 = first.sync(3, &both(&first, &second))?;
    let sync2 = second.sync(3, &json!([]))?;
    let group = describe(cx, 0, &first.group)?;
    Ok(json!({
        "heartbeat": code(&heard), "gen": first.generation - before, "leaderIsFirst": joined["leader"] == *first.id,
        "firstSeesMembers": members(&joined), "secondSeesMembers": members(&other),
        "protocol": [joined["protocolName"], other["protocolName"]],
        "sync1": cx.names.normal(&sync1), "sync2": cx.names.normal(&sync2),
        "state": group["groupState"], "count": members(&group),
    }))
}

fn common_protocol(cx: &mut Context<'_>) -> Result<Value> {
    let mut joining = Joining::consumer(5, 1);
    joining.protocols.insert(0, ("sticky", wire::base64(b"s1")));
    let mut first = Member::new(cx, joining)?;
    let alone = first.join()?;
    first.assign(&["a1"])?;
    let (_, [_, joined, other]) = two(cx, &mut first, Joining::consumer(5, 2))?;
    Ok(json!([alone["protocolName"], joined["protocolName"], other["protocolName"]]))
}

fn evicts(cx: &mut Context<'_>) -> Result<Value> {
    let hasty = |number| Joining { rebalance_ms: 2000, ..Joining::consumer(5, number) };
    let mut first = Member::alone(cx, hasty(1))?;
    first.assign(&["a1"])?;
    let (mut second, _) = second(cx, &mut first, hasty(2))?;
    let since = Instant::now();
    let joined = second.joined()?;
    let waited = since.elapsed().as_millis();
    let old = first.heartbeat(3)?;
    Ok(json!({
        "error": code(&joined), "members": members(&joined), "leaderIsSelf": joined["leader"] == *second.id,
        "between1500and6000": (1500..6000).contains(&waited), "oldMember": cx.names.normal(&old),
    }))
}

fn session_expiry(cx: &mut Context<'_>) -> Result<Value> {
    let mut member = Member::alone(cx, Joining { session_ms: 6000, ..Joining::consumer(5, 1) })?;
    member.assign(&["a1"])?;
    let since = Instant::now();
    let mut state = Value::Null;
    while state != "Empty" && since.elapsed() < Duration::from_secs(12) {
        std::thread::sleep(Duration::from_millis(50));
        state = describe(cx, 0, &member.group)?["groupState"].take();
    }
    let waited = since.elapsed().as_millis();
    let after = member.heartbeat(3)?;
    Ok(json!({
        "state": state, "between5and9s": (5000..9000).contains(&waited), "thenHeartbeat": cx.names.normal(&after),
    }))
}

/// The first member lives on but does not join again within the 8 s that it has.
fn waiting_in_join(cx: &mut Context<'_>) -> Result<Value> {
    let short = |number| Joining { session_ms: 6000, rebalance_ms: 8000, ..Joining::consumer(5, number) };
    let mut first = Member::alone(cx, short(1))?;
    first.assign(&["a1"])?;
    let (mut second, _) = second(cx, &mut first, short(2))?;
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(7000) {
        first.heartbeat(3)?;
        std::thread::sleep(Duration::from_millis(500));
    }
    let joined = second.joined()?;
    Ok(json!({"error": code(&joined), "members": members(&joined)}))
}

fn waiting_in_sync(cx: &mut Context<'_>) -> Result<Value> {
    let short = |number| Joining { session_ms: 6000, ..Joining::consumer(5, number) };
    let mut first = Member::alone(cx, short(1))?;
    first.assign(&["a1"])?;
    let (mut second, _) = two(cx, &mut first, short(2))?;
    let body = second.sync_body(3, &json!([]));
    let waiting = second.client.send("SyncGroup", 3, &body)?;
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(7000) {
        first.heartbeat(3)?;
        std::thread::sleep(Duration::from_millis(500));
    }
    first.sync(3, &both(&first, &second))?;
    let synced = second.client.receive("SyncGroup", 3, waiting)?;
    Ok(cx.names.normal(&synced))
}
