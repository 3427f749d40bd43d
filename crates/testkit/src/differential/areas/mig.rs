//! Groups with members of both protocols, and groups that go from one protocol to the other while members live.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::cgrp::Consumer;
use super::members::{Joining, Member, describe, fields, leave_body};
use super::off;
use crate::differential::context::Context;
use crate::wire;

/// Longer than the interval between two assignments.
const INTERVAL: Duration = Duration::from_millis(1100);

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    match id {
        ["upgrade", what] => upgrade(cx, what),
        ["join", what] => join(cx, what),
        ["sync", what] => sync(cx, what),
        ["hb", what] => heartbeat(cx, what),
        ["leave", what] => leave(cx, what),
        ["commit", what] => commit(cx, what),
        ["downgrade", what] => downgrade(cx, what),
        ["describe", what] => described(cx, what),
        ["drop-topic"] => drop_topic(cx).map(Some),
        _ => Ok(None),
    }
}

/// What consumers of the classic protocol say of themselves: version 1.
fn subscription(topics: &[&str], owned: &[(&str, &[i32])]) -> Vec<u8> {
    let mut bytes = vec![0, 1];
    bytes.extend((topics.len() as i32).to_be_bytes());
    topics.iter().for_each(|topic| put_text(&mut bytes, topic));
    bytes.extend((-1_i32).to_be_bytes());
    put_partitions(&mut bytes, owned);
    bytes
}

/// What they are assigned, with data of the assignor's own or without.
fn assignment(partitions: &[(&str, &[i32])], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 1];
    put_partitions(&mut bytes, partitions);
    bytes.extend(if data.is_empty() { -1_i32 } else { data.len() as i32 }.to_be_bytes());
    bytes.extend(data);
    bytes
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as i16).to_be_bytes());
    bytes.extend(text.as_bytes());
}

fn put_partitions(bytes: &mut Vec<u8>, topics: &[(&str, &[i32])]) {
    bytes.extend((topics.len() as i32).to_be_bytes());
    for (topic, partitions) in topics {
        put_text(bytes, topic);
        bytes.extend((partitions.len() as i32).to_be_bytes());
        partitions.iter().for_each(|partition| bytes.extend(partition.to_be_bytes()));
    }
}

/// A consumer that knows `range` and reads these topics.
fn reading(version: i16, topics: &[&str]) -> Joining {
    let mut joining = Joining::consumer(version, 1);
    joining.protocols = vec![("range", wire::base64(&subscription(topics, &[])))];
    joining
}

/// A stable classic group of one consumer, which has all partitions of `t`.
fn classic(cx: &mut Context<'_>, partitions: i32) -> Result<Member> {
    cx.coordinated()?;
    let topic = cx.create("t", partitions, &[])?;
    let mut member = Member::alone(cx, reading(5, &[&topic]))?;
    let all: Vec<i32> = (0..partitions).collect();
    let own = wire::base64(&assignment(&[(&topic, &all)], &[]));
    member.sync(3, &json!([{"memberId": member.id, "assignment": own}]))?;
    Ok(member)
}

/// A consumer that has not joined the case's group, of which there is a topic `t` already.
fn consumer(cx: &mut Context<'_>) -> Result<Consumer> {
    let topic = cx.name("t");
    Consumer::of(cx, topic)
}

/// A consumer group with a member of each protocol, the one of the consumer protocol first.
fn mixed(cx: &mut Context<'_>) -> Result<(Consumer, Member)> {
    let mut consumer = Consumer::joined(cx, 2)?;
    let topic = consumer.topic.clone();
    std::thread::sleep(INTERVAL);
    let mut member = Member::alone(cx, reading(5, &[&topic]))?;
    consumer.body = json!({"topicPartitions": [{"topicId": cx.id(&topic)?, "partitions": [0]}]});
    consumer.beat()?;
    consumer.beat()?;
    consumer.body = json!({});
    for _ in 0..3 {
        member.join()?;
        if member.sync(3, &json!([]))?["errorCode"] == 0 && member.heartbeat(3)?["errorCode"] == 0 {
            break;
        }
    }
    Ok((consumer, member))
}

/// The partitions of an assignment, behind its version; null when it is none.
fn partitions_of(reply: &Value) -> Result<Value> {
    let Some(text) = reply["assignment"].as_str().filter(|text| !text.is_empty()) else { return Ok(Value::Null) };
    let bytes = wire::from_base64(text)?;
    let int = |at: usize| bytes.get(at..at + 4).map(|four| i32::from_be_bytes([four[0], four[1], four[2], four[3]]));
    let version = i32::from(bytes[0]) << 8 | i32::from(bytes[1]);
    let (topics, mut at, mut all) = (int(2).context("cut")?, 6, Vec::new());
    for _ in 0..topics {
        at += 2 + (usize::from(bytes[at]) << 8 | usize::from(bytes[at + 1]));
        let count = int(at).context("cut")?;
        for _ in 0..count {
            at += 4;
            all.push(int(at).context("cut")?);
        }
        at += 4;
    }
    all.sort_unstable();
    Ok(json!({"version": version, "partitions": all}))
}

fn shown(cx: &mut Context<'_>, group: &str) -> Result<Value> {
    let reply = cx.call("ConsumerGroupDescribe", 1, json!({"groupIds": [group]}))?;
    let group = &reply["groups"][0];
    let mut shown = fields(cx, group, &["errorCode", "groupState", "groupEpoch", "assignmentEpoch", "assignorName"]);
    let mut members: Vec<Value> = Vec::new();
    for member in group["members"].as_array().into_iter().flatten() {
        let names = ["memberType", "memberEpoch", "subscribedTopicNames", "subscribedTopicRegex", "instanceId"];
        members.push(fields(cx, member, &names));
    }
    members.sort_by_key(|member| member["memberType"].as_i64());
    shown["members"] = members.into();
    Ok(shown)
}

fn code(cx: &mut Context<'_>, reply: &Value) -> Value {
    cx.names.normal(reply)["errorCode"].take()
}

/// Waits until a rebalance waits for members to join again.
fn awaits_members(cx: &mut Context<'_>, group: &str) -> Result<()> {
    cx.until(|cx| describe(cx, 0, group), |shown| shown["groupState"] == "PreparingRebalance").map(drop)
}

fn upgrade(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let outcome = match what {
        "stable" => {
            let mut member = classic(cx, 2)?;
            let joined = consumer(cx)?.beat()?;
            let shown = shown(cx, &member.group)?;
            let beat = member.heartbeat(3)?;
            let again = member.join()?;
            let synced = member.sync(3, &json!([]))?;
            let steps = [code(cx, &beat), code(cx, &again), again["generationId"].clone(), code(cx, &synced)];
            json!([fields(cx, &joined, &["errorCode", "memberEpoch"]), shown, steps])
        }
        "malformed" => {
            let member = Member::stable(cx, 5)?;
            cx.create("t", 1, &[])?;
            let refused = consumer(cx)?.beat()?;
            json!([cx.names.normal(&refused), describe(cx, 0, &member.group)?["groupState"]])
        }
        "not-synced" => {
            cx.coordinated()?;
            let topic = cx.create("t", 1, &[])?;
            let member = Member::alone(cx, reading(5, &[&topic]))?;
            let joined = consumer(cx)?.beat()?;
            json!([fields(cx, &joined, &["errorCode", "memberEpoch"]), shown(cx, &member.group)?])
        }
        "joining-waits" => {
            cx.coordinated()?;
            let topic = cx.create("t", 1, &[])?;
            let mut member = Member::alone(cx, reading(5, &[&topic]))?;
            let mut second = Member::new(cx, reading(5, &[&topic]))?;
            second.ask_with_id()?;
            awaits_members(cx, &member.group)?;
            let joined = consumer(cx)?.beat()?;
            let told = second.joined()?;
            let beat = member.heartbeat(3)?;
            json!([fields(cx, &joined, &["errorCode"]), code(cx, &told), told["generationId"], code(cx, &beat)])
        }
        "data-of-the-assignor" => {
            cx.coordinated()?;
            let topic = cx.create("t", 1, &[])?;
            let mut member = Member::alone(cx, reading(5, &[&topic]))?;
            let own = wire::base64(&assignment(&[(&topic, &[0])], b"mine"));
            member.sync(3, &json!([{"memberId": member.id, "assignment": own}]))?;
            let refused = consumer(cx)?.beat()?;
            cx.names.normal(&refused)
        }
        "other-type" => {
            cx.create("t", 1, &[])?;
            let joining = Joining { protocol_type: "connect", ..Joining::consumer(5, 1) };
            let _member = Member::alone(cx, joining)?;
            let refused = consumer(cx)?.beat()?;
            cx.names.normal(&refused)
        }
        "owned-twice" => {
            cx.coordinated()?;
            let topic = cx.create("t", 1, &[])?;
            let mut first = Member::alone(cx, reading(5, &[&topic]))?;
            let mut second = Member::new(cx, reading(5, &[&topic]))?;
            second.ask_with_id()?;
            awaits_members(cx, &first.group)?;
            first.join()?;
            second.joined()?;
            let own = wire::base64(&assignment(&[(&topic, &[0])], &[]));
            let both = [&first.id, &second.id].map(|id| json!({"memberId": id, "assignment": own}));
            first.sync(3, &json!(both))?;
            let joined = consumer(cx)?.beat()?;
            cx.names.normal(&joined)["errorCode"].take()
        }
        "not-joining" => {
            let _member = classic(cx, 1)?;
            let mut consumer = consumer(cx)?;
            let replies = [consumer.beat_in(3)?, consumer.beat_in(-1)?];
            replies.iter().map(|reply| code(cx, reply)).collect()
        }
        _ => return Ok(None),
    };
    Ok(Some(outcome))
}

fn join(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let consumer = Consumer::joined(cx, 2)?;
    let topic = consumer.topic.clone();
    let mut member = Member::new(cx, reading(5, &[&topic]))?;
    match what {
        "ok" | "unknown-id" => {}
        "v3" => member.joining.version = 3,
        "v9" => member.joining.version = 9,
        "malformed" => member.joining.protocols[0].1 = wire::base64(b"m1"),
        "empty-metadata" => member.joining.protocols[0].1 = String::new(),
        "version-negative" => member.joining.protocols[0].1 = wire::base64(&[0xff, 0xff, 0, 0, 0, 0]),
        "version-high" => {
            let mut bytes = subscription(&[&topic], &[]);
            // Fields of versions 2 and 3: a generation and a rack.
            bytes.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
            bytes[1] = 9;
            member.joining.protocols[0].1 = wire::base64(&bytes);
        }
        "no-protocols" => member.joining.protocols.clear(),
        "other-type" => member.joining.protocol_type = "connect",
        "protocol-of-another" => {
            let _first = Member::alone(cx, reading(5, &[&topic]))?;
            member.joining.protocols[0].0 = "other";
        }
        "topic-that-is-not-there" => {
            let gone = cx.name("gone");
            member.joining.protocols[0].1 = wire::base64(&subscription(&[&gone], &[]));
        }
        _ => return Ok(None),
    }
    if what == "unknown-id" {
        "nobody".clone_into(&mut member.id);
    }
    member.ask_to_join()?;
    let first = member.joined()?;
    let second = match first["errorCode"] == 79 {
        true => member.join()?,
        false => Value::Null,
    };
    Ok(Some(json!([cx.names.normal(&first), cx.names.normal(&second)])))
}

/// The consumer wants to read another topic: within the interval between two assignments, before it is over, or with the
/// assignment that follows.
fn begin_epoch(cx: &mut Context<'_>, consumer: &mut Consumer, what: &str) -> Result<()> {
    consumer.body = json!({"subscribedTopicNames": [consumer.topic, cx.create("u", 1, &[])?]});
    consumer.beat()?;
    if what != "rebalance" {
        std::thread::sleep(INTERVAL);
    }
    if what == "rebalance-assigned" {
        consumer.body = json!({});
        consumer.beat()?;
    }
    Ok(())
}

fn sync(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let (mut consumer, mut member) = mixed(cx)?;
    let reply = match what {
        "ok" => member.sync(3, &json!([]))?,
        "v5" => member.sync(5, &json!([]))?,
        "bad-generation" => {
            member.generation += 1;
            member.sync(3, &json!([]))?
        }
        "unknown-member" => {
            "nobody".clone_into(&mut member.id);
            member.sync(3, &json!([]))?
        }
        "consumer-member" => {
            (member.id, member.generation) = (consumer.id.clone(), consumer.epoch);
            member.sync(3, &json!([]))?
        }
        "other-protocol" => {
            let mut replies = Vec::new();
            for (kind, name) in [("consumer", "other"), ("other", "range")] {
                let mut body = member.sync_body(5, &json!([]));
                (body["protocolType"], body["protocolName"]) = (kind.into(), name.into());
                let reply = member.client.call("SyncGroup", 5, &body)?;
                replies.push(code(cx, &reply));
            }
            return Ok(Some(replies.into()));
        }
        "rebalance" | "rebalance-due" | "rebalance-assigned" => {
            begin_epoch(cx, &mut consumer, what)?;
            member.sync(3, &json!([]))?
        }
        _ => return Ok(None),
    };
    let partitions = partitions_of(&reply)?;
    let shown = fields(cx, &reply, &["errorCode", "protocolType", "protocolName"]);
    Ok(Some(json!([shown, partitions])))
}

fn heartbeat(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let (mut consumer, mut member) = mixed(cx)?;
    match what {
        "ok" => {}
        "bad-generation" => member.generation -= 1,
        "consumer-member" => (member.id, member.generation) = (consumer.id.clone(), consumer.epoch),
        "rebalance" | "rebalance-due" | "rebalance-assigned" => begin_epoch(cx, &mut consumer, what)?,
        _ => return Ok(None),
    }
    let reply = member.heartbeat(3)?;
    Ok(Some(code(cx, &reply)))
}

fn leave(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let (consumer, mut member) = mixed(cx)?;
    let group = member.group.clone();
    let left = match what {
        "classic-member" => member.leave(3)?,
        "consumer-member" => cx.call("LeaveGroup", 3, leave_body(3, &group, &[&consumer.id]))?,
        "both" => cx.call("LeaveGroup", 3, leave_body(3, &group, &[&consumer.id, "nobody", &member.id, &member.id]))?,
        "instance-that-is-not-there" => {
            let members = json!([{"memberId": "", "groupInstanceId": "i"}, {"memberId": ""}]);
            cx.call("LeaveGroup", 3, json!({"groupId": group, "members": members}))?
        }
        _ => return Ok(None),
    };
    let state = describe(cx, 5, &group)?;
    Ok(Some(json!([cx.names.normal(&left), shown(cx, &group)?, fields(cx, &state, &["groupState", "protocolType"])])))
}

fn commit(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let (consumer, member) = mixed(cx)?;
    let (generation, version) = match what {
        "ok" => (member.generation, 9),
        "v5" => (member.generation, 5),
        "older-generation" => (member.generation - 1, 9),
        "newer-generation" => (member.generation + 1, 9),
        _ => return Ok(None),
    };
    let body = wire::fit("OffsetCommitRequest", version, &consumer.commit(cx, generation, &member.id)?)?;
    let reply = cx.call("OffsetCommit", version, body)?;
    let mut codes = vec![code(cx, &reply["topics"][0]["partitions"][0])];
    let topics = json!([{"name": consumer.topic, "partitionIndexes": [0]}]);
    let group = json!({"groupId": member.group, "memberId": member.id, "memberEpoch": generation, "topics": topics});
    let fetched = cx.call("OffsetFetch", 9, json!({"groups": [group]}))?;
    codes.push(code(cx, &fetched["groups"][0]));
    codes.push(off::offset(cx, &consumer.topic, 0)?);
    Ok(Some(codes.into()))
}

fn downgrade(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let (mut consumer, mut member) = mixed(cx)?;
    let group = member.group.clone();
    match what {
        "consumer-leaves" => drop(consumer.beat_in(-1)?),
        "classic-leaves" => drop(member.leave(3)?),
        _ => return Ok(None),
    }
    let state = describe(cx, 5, &group)?;
    let state = fields(cx, &state, &["errorCode", "groupState", "protocolType"]);
    let beat = member.heartbeat(3)?;
    consumer.body =
        json!({"rebalanceTimeoutMs": 60_000, "subscribedTopicNames": [consumer.topic], "topicPartitions": []});
    let consumers = consumer.beat_in(0)?;
    Ok(Some(json!([state, code(cx, &beat), shown(cx, &group)?["members"], code(cx, &consumers)])))
}

fn described(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let (_consumer, member) = mixed(cx)?;
    Ok(Some(match what {
        "mixed" => shown(cx, &member.group)?,
        "as-classic-v5" => cx.ask("DescribeGroups", 5, json!({"groups": [member.group]}))?,
        "as-classic-v6" => cx.ask("DescribeGroups", 6, json!({"groups": [member.group]}))?,
        _ => return Ok(None),
    }))
}

/// A member that reads a topic no longer gives its partitions up before there is another assignment.
fn drop_topic(cx: &mut Context<'_>) -> Result<Value> {
    let mut consumer = Consumer::new(cx, 1)?;
    let (topic, other) = (consumer.topic.clone(), cx.create("u", 1, &[])?);
    consumer.body["subscribedTopicNames"] = json!([topic, other]);
    assign_seldom(cx)?;
    consumer.beat()?;
    // Within the interval between two assignments.
    consumer.body = json!({"subscribedTopicNames": [topic]});
    let dropped = consumer.beat()?;
    Ok(cx.names.normal(&dropped))
}

/// Makes the interval between two assignments of the case's group so long that no server is too slow for it.
fn assign_seldom(cx: &mut Context<'_>) -> Result<()> {
    let (group, name, longest) = (cx.name("g"), "consumer.assignment.interval.ms", "15000");
    let config = json!({"name": name, "configOperation": 0, "value": longest});
    let resource = json!({"resourceType": 32, "resourceName": group, "configs": [config]});
    cx.call("IncrementalAlterConfigs", 1, json!({"resources": [resource]}))?;
    let asked = json!({"resources": [{"resourceType": 32, "resourceName": group, "configurationKeys": [name]}]});
    let is_set = |told: &Value| told["results"][0]["configs"][0]["value"] == longest;
    cx.until(|cx| cx.call("DescribeConfigs", 4, asked.clone()), is_set).map(drop)
}
