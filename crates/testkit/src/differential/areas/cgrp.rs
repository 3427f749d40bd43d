//! Groups of the consumer protocol.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::members::{CLIENT, Joining, Member, leave_body};
use super::off;
use crate::client::RawClient;
use crate::differential::context::{Context, version};
use crate::differential::normalise::error;
use crate::wire;

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    match (id, id.last().and_then(|last| version(last))) {
        (["join", _], Some(v)) => join(cx, v).map(Some),
        (["describe", "unknown", _], Some(v)) => {
            cx.coordinated()?;
            let none = cx.name("no");
            cx.ask("ConsumerGroupDescribe", v, json!({"groupIds": ["", none]})).map(Some)
        }
        (["describe", _], Some(v)) => {
            let consumer = Consumer::joined(cx, 2)?;
            cx.ask("ConsumerGroupDescribe", v, json!({"groupIds": [consumer.group]})).map(Some)
        }
        (["commit", "stale-epoch", _], Some(v)) => stale(cx, v).map(Some),
        (["partial", what], _) => partial(cx, what),
        (["regex", what], _) => regex(cx, what),
        (["assignor", name], _) => {
            let mut consumer = Consumer::new(cx, 1)?;
            consumer.body["serverAssignor"] = (*name).into();
            Ok(Some(consumer.beat()?["errorCode"].take()))
        }
        ([what], _) => epochs(cx, what),
        (["describe", "classic"], _) => {
            let member = Member::stable(cx, 5)?;
            cx.ask("ConsumerGroupDescribe", 0, json!({"groupIds": [member.group]})).map(Some)
        }
        (["commit", "ok"], _) => {
            let consumer = Consumer::joined(cx, 1)?;
            let body = consumer.commit(cx, consumer.epoch, &consumer.id)?;
            let committed = off::ask_commit(cx, 9, &body)?;
            Ok(Some(json!([committed, off::fetch(cx, 9, &consumer.topic)?])))
        }
        (["delete", "live"], _) => {
            let consumer = Consumer::joined(cx, 1)?;
            cx.ask("DeleteGroups", 2, json!({"groupsNames": [consumer.group]})).map(Some)
        }
        (["offset-delete", "subscribed"], _) => {
            let consumer = Consumer::joined(cx, 1)?;
            off::ask_delete(cx, &consumer.group, &consumer.topic).map(Some)
        }
        _ => Ok(None),
    }
}

/// A member of the case's group on a connection of its own.
pub(super) struct Consumer {
    client: RawClient,
    version: i16,
    group: String,
    pub(super) topic: String,
    pub(super) id: String,
    pub(super) epoch: i64,
    /// What its heartbeats say beside group, member and epoch.
    pub(super) body: Value,
}

impl Consumer {
    /// Somebody who has not joined, and a topic of this many partitions.
    pub(super) fn new(cx: &mut Context<'_>, partitions: i32) -> Result<Self> {
        cx.coordinated()?;
        let topic = cx.create("t", partitions, &[])?;
        // The coordinator hears of a topic a moment after those who lead it: another group gets its partitions first.
        let mut before = Self::of(cx, topic.clone())?;
        before.group = cx.name("before");
        before.assigned()?;
        before.beat_in(-1)?;
        Self::of(cx, topic)
    }

    /// Somebody who has not joined, and wants to read a topic.
    pub(super) fn of(cx: &mut Context<'_>, topic: String) -> Result<Self> {
        let body = json!({"rebalanceTimeoutMs": 60_000, "subscribedTopicNames": [topic], "topicPartitions": []});
        let (client, group) = (cx.connect()?, cx.name("g"));
        let id = "AAAAAAAAAAAAAAAAAAAAAQ".to_owned();
        Ok(Self { client, version: 1, group, topic, id, epoch: 0, body })
    }

    /// A member that has joined.
    pub(super) fn joined(cx: &mut Context<'_>, partitions: i32) -> Result<Self> {
        let mut consumer = Self::new(cx, partitions)?;
        consumer.beat()?;
        consumer.body = json!({});
        Ok(consumer)
    }

    pub(super) fn beat(&mut self) -> Result<Value> {
        let mut body = self.body.clone();
        body["groupId"] = self.group.as_str().into();
        body["memberId"] = self.id.as_str().into();
        body["memberEpoch"] = self.epoch.into();
        let request = wire::request("ConsumerGroupHeartbeat", self.version, 1, Some(CLIENT), &body)?;
        self.client.send_frame(&request)?;
        let reply = wire::response("ConsumerGroupHeartbeat", self.version, &self.client.next_frame()?)?.body;
        if reply["errorCode"] == 0 && self.epoch >= 0 {
            self.epoch = reply["memberEpoch"].as_i64().context("no epoch")?;
        }
        Ok(reply)
    }

    /// A heartbeat in another epoch.
    pub(super) fn beat_in(&mut self, epoch: i64) -> Result<Value> {
        let own = std::mem::replace(&mut self.epoch, epoch);
        let reply = self.beat();
        self.epoch = own;
        reply
    }

    /// The first assignment that is not empty.
    fn assigned(&mut self) -> Result<Value> {
        for _ in 0..200 {
            let reply = self.beat()?;
            if reply["assignment"]["topicPartitions"].as_array().is_some_and(|all| !all.is_empty()) {
                return Ok(reply["assignment"].clone());
            }
            self.body = json!({});
            std::thread::sleep(Duration::from_millis(50));
        }
        anyhow::bail!("no assignment comes")
    }

    pub(super) fn commit(&self, cx: &Context<'_>, epoch: i64, id: &str) -> Result<Value> {
        let mut body = off::commit_body(cx, &self.topic, &[(0, 5)]);
        (body["memberId"], body["generationIdOrMemberEpoch"]) = (id.into(), epoch.into());
        Ok(body)
    }
}

fn join(cx: &mut Context<'_>, v: i16) -> Result<Value> {
    let mut consumer = Consumer::new(cx, 2)?;
    consumer.version = v;
    if v == 0 {
        consumer.id.clear();
    }
    let reply = consumer.beat()?;
    let given = reply["memberId"].as_str().is_some_and(|id| !id.is_empty());
    Ok(json!({"first": cx.names.normal(&reply), "memberIdGiven": given}))
}

fn partial(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let mut consumer = Consumer::new(cx, 1)?;
    match what {
        "no-timeout" => consumer.body["rebalanceTimeoutMs"] = (-1).into(),
        "no-topics" => consumer.body["subscribedTopicNames"] = Value::Null,
        "owned-not-empty" => {
            consumer.body["topicPartitions"] = json!([{"topicId": cx.id(&consumer.topic)?, "partitions": [0]}]);
        }
        _ => return Ok(None),
    }
    let reply = consumer.beat()?;
    Ok(Some(cx.names.normal(&reply)))
}

fn regex(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let mut consumer = Consumer::new(cx, 1)?;
    let expression = match what {
        "join" => format!("{}.*", cx.create("rx", 1, &[])?),
        "lookahead" => "(?=a)a".to_owned(),
        "empty" => String::new(),
        _ => return Ok(None),
    };
    consumer.body["subscribedTopicNames"] = Value::Null;
    consumer.body["subscribedTopicRegex"] = expression.into();
    let outcome = if what == "join" { consumer.assigned()? } else { consumer.beat()? };
    Ok(Some(cx.names.normal(&outcome)))
}

fn epochs(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let mut consumer = match what {
        "v1-empty-member"
        | "v0-empty-member-nonzero"
        | "rejoin-epoch0"
        | "subscribe-unknown-topic"
        | "consumer-joins-empty-classic" => Consumer::new(cx, 1)?,
        "epoch-previous" => Consumer::joined(cx, 2)?,
        _ => Consumer::joined(cx, 1)?,
    };
    let outcome = match what {
        "v1-empty-member" => {
            consumer.id.clear();
            consumer.beat()?
        }
        "v0-empty-member-nonzero" => {
            (consumer.version, consumer.epoch) = (0, 3);
            consumer.id.clear();
            consumer.beat()?
        }
        "unknown-member" => {
            "nobody".clone_into(&mut consumer.id);
            consumer.beat_in(5)?
        }
        "epoch-too-high" => consumer.beat_in(consumer.epoch + 1)?,
        "epoch-previous" => return previous(cx, &mut consumer).map(Some),
        "leave" => {
            let left = consumer.beat_in(-1)?;
            let described = cx.call("ConsumerGroupDescribe", 0, json!({"groupIds": [consumer.group]}))?;
            json!([left, described, consumer.beat()?])
        }
        "rejoin-epoch0" => json!([consumer.beat()?, consumer.beat_in(0)?]),
        "subscribe-unknown-topic" => {
            consumer.body["subscribedTopicNames"] = json!([cx.name("later")]);
            let first = consumer.beat()?;
            cx.create("later", 1, &[])?;
            consumer.body = json!({});
            json!([first["assignment"], consumer.assigned()?])
        }
        "consumer-joins-empty-classic" => {
            off::put(cx, &consumer.topic, &[(0, 7)])?;
            json!([consumer.beat()?["errorCode"].take(), off::offset(cx, &consumer.topic, 0)?])
        }
        "list" => {
            let listed = cx.call("ListGroups", 5, json!({}))?;
            let mut groups = listed["groups"].as_array().into_iter().flatten();
            groups.find(|group| group["groupId"] == *consumer.group).cloned().unwrap_or_default()
        }
        "heartbeat-interval" => consumer.beat()?["heartbeatIntervalMs"].take(),
        _ => return among_classic(cx, what, &consumer),
    };
    Ok(Some(cx.names.normal(&outcome)))
}

/// The member comes with the epoch before its own, as if the last answer had been lost.
fn previous(cx: &mut Context<'_>, consumer: &mut Consumer) -> Result<Value> {
    let before = consumer.epoch;
    let (owned, other) = (cx.id(&consumer.topic)?, cx.create("u", 1, &[])?);
    // Past the interval between two assignments.
    std::thread::sleep(Duration::from_millis(1100));
    consumer.body = json!({"subscribedTopicNames": [consumer.topic, other]});
    consumer.beat()?;
    let bumped = consumer.epoch - before;
    consumer.body = json!({"topicPartitions": [{"topicId": owned, "partitions": [0, 1]}]});
    let old = consumer.beat_in(before)?;
    consumer.body = json!({"topicPartitions": []});
    let empty = consumer.beat_in(before)?;
    Ok(json!({"bumped": bumped, "old": cx.names.normal(&old), "oldEmpty": cx.names.normal(&empty)}))
}

/// Members of classic groups and a consumer group.
fn among_classic(cx: &mut Context<'_>, what: &str, consumer: &Consumer) -> Result<Option<Value>> {
    Ok(Some(match what {
        "classic-joins-consumer-group" => {
            let reply = cx.ask("JoinGroup", 5, Joining::consumer(5, 1).body(&consumer.group, ""))?;
            json!({"errorCode": reply["errorCode"]})
        }
        "classic-calls-on-consumer-group" => {
            let own = json!({"groupId": consumer.group, "generationId": 1, "memberId": "nobody"});
            json!([
                cx.ask("Heartbeat", 3, own.clone())?,
                cx.ask("SyncGroup", 3, own)?,
                cx.ask("LeaveGroup", 3, leave_body(3, &consumer.group, &["nobody"]))?,
            ])
        }
        _ => return Ok(None),
    }))
}

fn stale(cx: &mut Context<'_>, v: i16) -> Result<Value> {
    let consumer = Consumer::joined(cx, 1)?;
    let epoch = consumer.epoch;
    let mut codes = Vec::new();
    for (id, epoch) in [(&*consumer.id, epoch + 1), (&*consumer.id, epoch - 1), ("nobody", epoch), ("", -1)] {
        let body = wire::fit("OffsetCommitRequest", v, &consumer.commit(cx, epoch, id)?)?;
        let reply = cx.call("OffsetCommit", v, body)?;
        codes.push(error(reply["topics"][0]["partitions"][0]["errorCode"].as_i64().context("no code")?));
    }
    Ok(codes.into())
}
