//! Classic groups: one member at a time. What several members do to each other is in `grp_rebalance`.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::members::{CLIENT, Joining, Member, describe, fields, leave_body};
use super::{grp_rebalance, off};
use crate::client::Event;
use crate::differential::context::{Context, SILENCE, number, version};
use crate::wire;

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    let Some(v) = id.last().and_then(|last| version(last)) else { return without_version(cx, id) };
    Ok(Some(match &id[..id.len() - 1] {
        ["join", "first"] => {
            let mut member = Member::new(cx, Joining::consumer(v, 1))?;
            member.ask_to_join()?;
            let reply = member.joined()?;
            cx.names.normal(&reply)
        }
        ["join", "alone"] => {
            let reply = Member::new(cx, Joining::consumer(v, 1))?.join()?;
            cx.names.normal(&reply)
        }
        ["sync", which @ ("leader" | "again")] => {
            let mut member = Member::alone(cx, Joining::consumer(5, 1))?;
            let assignments = json!([{"memberId": member.id, "assignment": "YTE="}]);
            if *which == "again" {
                member.sync(v, &assignments)?;
            }
            let reply = member.sync(v, &assignments)?;
            cx.names.normal(&reply)
        }
        ["leave"] => {
            let mut member = Member::stable(cx, 5)?;
            let left = member.leave(v)?;
            let after = describe(cx, 0, &member.group)?;
            json!([cx.names.normal(&left), fields(cx, &after, &["errorCode", "groupState"])])
        }
        ["leave", which @ ("unknown" | "unknown-group")] => {
            let member = Member::stable(cx, 5)?;
            let group = if *which == "unknown" { member.group } else { cx.name("no") };
            cx.ask("LeaveGroup", v, leave_body(v, &group, &["nobody"]))?
        }
        ["hb", "ok"] => {
            let reply = Member::stable(cx, 5)?.heartbeat(v)?;
            cx.names.normal(&reply)
        }
        ["hb", "bad-gen"] => {
            let mut member = Member::stable(cx, 5)?;
            let mut replies = Vec::new();
            for delta in [1, -2] {
                member.generation += delta;
                replies.push(cx.names.normal(&member.heartbeat(v)?));
            }
            replies.into()
        }
        ["describe", "unknown"] => {
            cx.coordinated()?;
            let group = cx.name("no");
            cx.ask("DescribeGroups", v, json!({"groups": [group]}))?
        }
        ["describe", "stable"] => {
            let member = Member::stable(cx, 5)?;
            cx.ask("DescribeGroups", v, json!({"groups": [member.group]}))?
        }
        ["list"] => list(cx, v)?,
        ["delete", which @ ("empty" | "stable")] => delete(cx, v, *which == "empty")?,
        _ => return Ok(None),
    }))
}

fn list(cx: &mut Context<'_>, v: i16) -> Result<Value> {
    let member = Member::stable(cx, 5)?;
    let mut reply = cx.call("ListGroups", v, json!({}))?;
    let groups = reply["groups"].take();
    if let Some(reply) = reply.as_object_mut() {
        reply.remove("groups");
    }
    let ours = groups.as_array().and_then(|all| all.iter().find(|group| group["groupId"] == *member.group));
    Ok(json!([cx.names.normal(&reply), cx.names.normal(ours.context("the group is not listed")?)]))
}

fn listed(cx: &mut Context<'_>, filter: Value) -> Result<Value> {
    let member = Member::stable(cx, 5)?;
    let reply = cx.call("ListGroups", 5, filter)?;
    let mut groups = reply["groups"].as_array().into_iter().flatten();
    let ours = groups.any(|group| group["groupId"] == *member.group);
    let mut outcome = fields(cx, &reply, &["errorCode"]);
    outcome["ours"] = ours.into();
    Ok(outcome)
}

fn delete(cx: &mut Context<'_>, v: i16, empty: bool) -> Result<Value> {
    let mut member = Member::stable(cx, 5)?;
    if empty {
        member.leave(3)?;
    }
    let deleted = cx.ask("DeleteGroups", v, json!({"groupsNames": [member.group]}))?;
    if !empty {
        return Ok(deleted);
    }
    Ok(json!([deleted, describe(cx, 0, &member.group)?["groupState"]]))
}

fn without_version(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    match id {
        ["join", what] => join(cx, what),
        ["sync", what] => sync(cx, what),
        ["describe", what] => described(cx, what),
        ["list", "state", which] => {
            let states = match *which {
                "lower" => json!(["stable"]),
                "empty" => json!(["Empty"]),
                "two" => json!(["Empty", "Stable"]),
                _ => return Ok(None),
            };
            listed(cx, json!({"statesFilter": states})).map(Some)
        }
        ["list", "type", kind] => listed(cx, json!({"typesFilter": [kind]})).map(Some),
        ["hb", "after-join-before-sync"] => {
            let reply = Member::alone(cx, Joining::consumer(5, 1))?.heartbeat(3)?;
            Ok(Some(cx.names.normal(&reply)))
        }
        ["leave", "empty-list"] => {
            let member = Member::stable(cx, 5)?;
            cx.ask("LeaveGroup", 3, leave_body(3, &member.group, &[])).map(Some)
        }
        ["leave", "pending"] => {
            let mut member = Member::new(cx, Joining::consumer(5, 1))?;
            member.ask_to_join()?;
            member.joined()?;
            let reply = member.leave(3)?;
            Ok(Some(cx.names.normal(&reply)))
        }
        ["delete", "offsets-only"] => {
            let topic = off::committed(cx, 5)?;
            let group = cx.name("g");
            let deleted = cx.ask("DeleteGroups", 2, json!({"groupsNames": [group]}))?;
            Ok(Some(json!([deleted, off::offset(cx, &topic, 0)?])))
        }
        ["delete", "twice-in-request"] => {
            let mut member = Member::stable(cx, 5)?;
            member.leave(3)?;
            cx.ask("DeleteGroups", 2, json!({"groupsNames": [member.group, member.group]})).map(Some)
        }
        _ => grp_rebalance::run(cx, id),
    }
}

fn join(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let mut joining = Joining::consumer(5, 1);
    let mut shown = vec!["errorCode", "generationId"];
    match what {
        "member-id-form" | "member-id-form-null-client" => return member_id(cx, what == "member-id-form").map(Some),
        "protocol-twice" => return protocol_twice(cx).map(Some),
        "inconsistent-protocol" => return inconsistent(cx).map(Some),
        "bad-group-ids" => return bad_group_ids(cx).map(Some),
        "rebalance-zero" => joining.rebalance_ms = 0,
        "no-protocols" => joining.protocols.clear(),
        "other-type-name" => {
            joining.protocol_type = "connect";
            joining.protocols = vec![("default", wire::base64(&[0xff, 0, 0x80]))];
            shown.push("protocolName");
        }
        "skip-assignment-v9" => {
            joining.version = 9;
            shown.push("skipAssignment");
        }
        "reason" => {
            let body = joining.body(&cx.name("g"), "");
            cx.coordinated()?;
            let mut body = body;
            body["reason"] = "because".into();
            let reply = cx.call("JoinGroup", 8, body)?;
            return Ok(Some(fields(cx, &reply, &["errorCode"])));
        }
        _ => match what.strip_prefix("session").and_then(number) {
            Some(ms) => joining.session_ms = i32::try_from(ms)?,
            None => return Ok(None),
        },
    }
    let reply = Member::new(cx, joining)?.join()?;
    Ok(Some(fields(cx, &reply, &shown)))
}

/// Whether a member id is the client id and a UUID; with null as client id, the member id with the UUID taken out.
fn member_id(cx: &mut Context<'_>, with_client: bool) -> Result<Value> {
    let mut member = Member::new(cx, Joining::consumer(3, 1))?;
    let body = member.joining.body(&member.group, "");
    let client = with_client.then_some(CLIENT);
    member.client.send_frame(&wire::request("JoinGroup", 3, 1, client, &body)?)?;
    member.joined()?;
    let at = member.id.len().checked_sub(36).context("a short member id")?;
    let (prefix, uuid) = member.id.split_at(at);
    let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let dashes = [8, 13, 18, 23];
    let is_uuid = uuid.char_indices().all(|(i, c)| if dashes.contains(&i) { c == '-' } else { hex(c) });
    Ok(match with_client {
        true => (is_uuid && prefix == format!("{CLIENT}-")).into(),
        false => format!("{prefix}{}", if is_uuid { "UUID" } else { uuid }).into(),
    })
}

fn protocol_twice(cx: &mut Context<'_>) -> Result<Value> {
    let mut joining = Joining::consumer(3, 1);
    joining.protocols.push(joining.protocols[0].clone());
    let mut member = Member::new(cx, joining)?;
    member.ask_to_join()?;
    Ok(match member.client.next_event(SILENCE * 2)? {
        Event::Silent => "NO_REPLY".into(),
        Event::Closed => "CONNECTION_CLOSED".into(),
        Event::Frame(frame) => cx.names.normal(&wire::response("JoinGroup", 3, &frame)?.body),
    })
}

fn inconsistent(cx: &mut Context<'_>) -> Result<Value> {
    let _first = Member::stable(cx, 5)?;
    let mut joining = Joining::consumer(5, 2);
    joining.protocols[0].0 = "other";
    let reply = Member::new(cx, joining)?.join()?;
    Ok(fields(cx, &reply, &["errorCode"]))
}

fn bad_group_ids(cx: &mut Context<'_>) -> Result<Value> {
    cx.coordinated()?;
    let mut codes = Vec::new();
    for group in [String::new(), format!("{}{}", cx.name("g"), "x".repeat(1000))] {
        let reply = cx.ask("JoinGroup", 3, Joining::consumer(3, 1).body(&group, ""))?;
        codes.push(reply["errorCode"].clone());
    }
    Ok(codes.into())
}

fn sync(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let mut member = Member::alone(cx, Joining::consumer(5, 1))?;
    let outcome = match what {
        "bad-gen" => {
            member.generation += 1;
            member.assign(&["a1"])?
        }
        "foreign-assignment" => member.sync(3, &json!([{"memberId": "nobody", "assignment": "YTE="}]))?,
        "bad-protocol" => {
            let mut replies = Vec::new();
            for (kind, name) in
                [(json!("consumer"), json!("other")), (json!("other"), json!("range")), (Value::Null, Value::Null)]
            {
                let mut body = member.sync_body(5, &json!([]));
                (body["protocolType"], body["protocolName"]) = (kind, name);
                replies.push(member.client.call("SyncGroup", 5, &body)?);
            }
            replies.into()
        }
        _ => return Ok(None),
    };
    Ok(Some(cx.names.normal(&outcome)))
}

fn described(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let shown = ["groupState", "protocolData", "protocolType"];
    Ok(Some(match what {
        "states" => {
            let mut member = Member::alone(cx, Joining::consumer(5, 1))?;
            let mut states = Vec::new();
            for step in 0..3 {
                match step {
                    1 => drop(member.assign(&["a1"])?),
                    2 => drop(member.leave(3)?),
                    _ => {}
                }
                let group = describe(cx, 0, &member.group)?;
                states.push(fields(cx, &group, &shown));
            }
            states.into()
        }
        "authorized-ops" => {
            let member = Member::stable(cx, 5)?;
            let body = json!({"groups": [member.group], "includeAuthorizedOperations": true});
            cx.call("DescribeGroups", 3, body)?["groups"][0]["authorizedOperations"].take()
        }
        "two" => {
            cx.coordinated()?;
            let (a, b) = (cx.name("a"), cx.name("b"));
            cx.ask("DescribeGroups", 3, json!({"groups": [a, a, b]}))?
        }
        _ => return Ok(None),
    }))
}
