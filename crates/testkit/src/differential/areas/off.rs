//! OffsetCommit, OffsetFetch, OffsetDelete.

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::members::{Joining, Member};
use crate::differential::context::{Context, version};
use crate::differential::normalise::error;
use crate::wire;

/// An id that no topic has.
const NO_ID: &str = "dGhpc2lzbm90YXRvcGljIQ";

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    cx.coordinated()?;
    match (id, id.last().and_then(|last| version(last))) {
        (["commit", what, _], Some(v)) => commit_in(cx, what, v),
        (["fetch", what, _], Some(v)) => fetch_in(cx, what, v),
        (["commit", what], _) => commit_once(cx, what),
        (["fetch", what], _) => fetch_once(cx, what),
        (["stable", "none-open"], _) => {
            let topic = committed(cx, 5)?;
            let mut replies = Vec::new();
            for v in [7, 8, 9] {
                let mut body = fetch_body(cx, &topic, Some(&[0]));
                body["requireStable"] = true.into();
                replies.push(ask_fetch(cx, v, &body)?);
            }
            Ok(Some(replies.into()))
        }
        (["delete", what], _) => delete(cx, what),
        _ => Ok(None),
    }
}

/// A commit of `md` beside each of the offsets, without a member.
pub(super) fn commit_body(cx: &Context<'_>, topic: &str, offsets: &[(i32, i64)]) -> Value {
    let partition = |(partition, offset): &(i32, i64)| json!({"partitionIndex": partition, "committedOffset": offset, "committedLeaderEpoch": -1, "committedMetadata": "md"});
    let partitions: Vec<_> = offsets.iter().map(partition).collect();
    let id = cx.id(topic).unwrap_or_else(|_| NO_ID.to_owned());
    let topic = json!({"name": topic, "topicId": id, "partitions": partitions});
    json!({"groupId": cx.name("g"), "generationIdOrMemberEpoch": -1, "memberId": "", "topics": [topic]})
}

pub(super) fn ask_commit(cx: &mut Context<'_>, v: i16, body: &Value) -> Result<Value> {
    let body = wire::fit("OffsetCommitRequest", v, body)?;
    cx.ask("OffsetCommit", v, body)
}

/// A topic of three partitions, of which partition 0 has a committed offset.
pub(super) fn committed(cx: &mut Context<'_>, offset: i64) -> Result<String> {
    cx.coordinated()?;
    let topic = cx.create("t", 3, &[])?;
    put(cx, &topic, &[(0, offset)])?;
    Ok(topic)
}

pub(super) fn put(cx: &mut Context<'_>, topic: &str, offsets: &[(i32, i64)]) -> Result<()> {
    let body = commit_body(cx, topic, offsets);
    let reply = ask_commit(cx, 8, &body)?;
    if !reply["topics"][0]["partitions"][0]["errorCode"].as_str().is_some_and(|code| code.starts_with("NONE")) {
        bail!("not committed: {reply}");
    }
    Ok(())
}

/// The offset that the case's group has committed.
pub(super) fn offset(cx: &mut Context<'_>, topic: &str, partition: i32) -> Result<Value> {
    Ok(fetched(cx, topic, partition)?["committedOffset"].take())
}

fn fetched(cx: &mut Context<'_>, topic: &str, partition: i32) -> Result<Value> {
    let body = fetch_body(cx, topic, Some(&[partition]));
    Ok(ask_fetch(cx, 8, &body)?["groups"][0]["topics"][0]["partitions"][0].take())
}

/// What the case's group has committed for partition 0.
pub(super) fn fetch(cx: &mut Context<'_>, v: i16, topic: &str) -> Result<Value> {
    let body = fetch_body(cx, topic, Some(&[0]));
    ask_fetch(cx, v, &body)
}

/// A fetch of some partitions of a topic, or of everything, in the forms of all versions.
fn fetch_body(cx: &Context<'_>, topic: &str, partitions: Option<&[i32]>) -> Value {
    let id = cx.id(topic).unwrap_or_else(|_| NO_ID.to_owned());
    let topics = partitions.map(|p| json!([{"name": topic, "topicId": id, "partitionIndexes": p}]));
    group_body(&cx.name("g"), &topics.unwrap_or_default())
}

fn group_body(group: &str, topics: &Value) -> Value {
    // Topics have no ids where there is one group.
    let mut named = topics.clone();
    for topic in named.as_array_mut().into_iter().flatten() {
        if let Some(topic) = topic.as_object_mut() {
            topic.remove("topicId");
        }
    }
    let group = json!({"groupId": group, "memberId": null, "memberEpoch": -1, "topics": topics});
    json!({"groupId": group["groupId"], "topics": named, "groups": [group]})
}

fn ask_fetch(cx: &mut Context<'_>, v: i16, body: &Value) -> Result<Value> {
    let body = wire::fit("OffsetFetchRequest", v, body)?;
    cx.ask("OffsetFetch", v, body)
}

fn commit_in(cx: &mut Context<'_>, what: &str, v: i16) -> Result<Option<Value>> {
    match what {
        "simple" => {
            let topic = cx.create("t", 1, &[])?;
            let body = commit_body(cx, &topic, &[(0, 5)]);
            ask_commit(cx, v, &body).map(Some)
        }
        "unknown-topic" => {
            let topic = cx.name("no");
            let body = commit_body(cx, &topic, &[(0, 5)]);
            ask_commit(cx, v, &body).map(Some)
        }
        "member-ok" | "member-bad-gen" => {
            let topic = cx.create("t", 3, &[])?;
            let member = Member::stable(cx, 5)?;
            by_member(cx, &topic, &member, v, what == "member-ok").map(Some)
        }
        _ => Ok(None),
    }
}

fn by_member(cx: &mut Context<'_>, topic: &str, member: &Member, v: i16, good: bool) -> Result<Value> {
    let generation = member.generation;
    let tries: &[(&str, i64)] = match good {
        true => &[(&member.id, generation)],
        false => &[(&member.id, generation + 1), ("nobody", generation), ("", -1), (&member.id, -1)],
    };
    let mut codes = Vec::new();
    for (id, generation) in tries {
        let mut body = commit_body(cx, topic, &[(0, 5)]);
        (body["memberId"], body["generationIdOrMemberEpoch"]) = ((*id).into(), (*generation).into());
        let reply = cx.call("OffsetCommit", v, wire::fit("OffsetCommitRequest", v, &body)?)?;
        codes.push(reply["topics"][0]["partitions"][0]["errorCode"].as_i64().context("no code")?);
    }
    if good {
        return Ok(json!([codes[0], offset(cx, topic, 0)?]));
    }
    Ok(codes.into_iter().map(error).collect())
}

fn fetch_in(cx: &mut Context<'_>, what: &str, v: i16) -> Result<Option<Value>> {
    if what == "all" {
        let topic = cx.create("t", 3, &[])?;
        put(cx, &topic, &[(0, 6), (2, 5)])?;
        let other = cx.create("u", 1, &[])?;
        put(cx, &other, &[(0, 7)])?;
        let body = fetch_body(cx, &topic, None);
        return ask_fetch(cx, v, &body).map(Some);
    }
    let topic = committed(cx, 5)?;
    let asked = fetch_body(cx, &topic, Some(&[0, 1]));
    let one = |cx: &Context<'_>, topic: &str, partition| fetch_body(cx, topic, Some(&[partition]));
    Ok(Some(match what {
        "one" => ask_fetch(cx, v, &asked)?,
        "unknown-group" => {
            let topics = one(cx, &topic, 0)["groups"][0]["topics"].take();
            let body = group_body(&cx.name("no"), &topics);
            ask_fetch(cx, v, &body)?
        }
        "unknown-topic" => {
            let of_topic = one(cx, &cx.name("no"), 0);
            let of_partition = one(cx, &topic, 9);
            json!([ask_fetch(cx, v, &of_topic)?, ask_fetch(cx, v, &of_partition)?])
        }
        "empty-list" => ask_fetch(cx, v, &group_body(&cx.name("g"), &json!([])))?,
        _ => return Ok(None),
    }))
}

fn commit_once(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let topic = cx.create("t", 3, &[])?;
    let mut body = commit_body(cx, &topic, &[(0, 5)]);
    Ok(Some(match what {
        "negative-offset" => {
            let mut all = then_fetched(cx, &topic, -1)?;
            all.extend(then_fetched(cx, &topic, -5)?);
            all.into()
        }
        "beyond-end" => then_fetched(cx, &topic, 1_000_000)?.into(),
        "metadata4096" | "metadata4097" => {
            let length: usize = what["metadata".len()..].parse()?;
            body["topics"][0]["partitions"][0]["committedMetadata"] = "m".repeat(length).into();
            let reply = ask_commit(cx, 8, &body)?;
            let kept = fetched(cx, &topic, 0)?["metadata"].as_str().map_or(0, str::len);
            json!([reply, kept])
        }
        "partition-twice" => {
            let body = commit_body(cx, &topic, &[(0, 1), (0, 2)]);
            json!([ask_commit(cx, 8, &body)?, offset(cx, &topic, 0)?])
        }
        "good-and-bad" => {
            let bad = commit_body(cx, &cx.name("no"), &[(0, 5)])["topics"][0].take();
            body["topics"].as_array_mut().context("topics")?.push(bad);
            ask_commit(cx, 8, &body)?
        }
        "internal-topic" => {
            let body = commit_body(cx, "__consumer_offsets", &[(0, 5)]);
            ask_commit(cx, 8, &body)?
        }
        "generation-empty-group" => {
            put(cx, &topic, &[(0, 5)])?;
            (body["memberId"], body["generationIdOrMemberEpoch"]) = ("nobody".into(), 1.into());
            ask_commit(cx, 8, &body)?["topics"][0]["partitions"][0]["errorCode"].take()
        }
        "v10-old-id" => {
            cx.delete(&topic)?;
            cx.create("t", 1, &[])?;
            ask_commit(cx, 10, &body)?
        }
        _ => return Ok(None),
    }))
}

/// The answer to a commit, and what is fetched then.
fn then_fetched(cx: &mut Context<'_>, topic: &str, offset: i64) -> Result<Vec<Value>> {
    let body = commit_body(cx, topic, &[(0, offset)]);
    let committed = ask_commit(cx, 8, &body)?;
    let body = fetch_body(cx, topic, Some(&[0]));
    Ok(vec![committed, ask_fetch(cx, 8, &body)?])
}

fn fetch_once(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    Ok(Some(match what {
        "duplicates" => {
            let topic = committed(cx, 5)?;
            let body = fetch_body(cx, &topic, Some(&[0, 0]));
            ask_fetch(cx, 7, &body)?
        }
        "no-groups" => cx.ask("OffsetFetch", 8, json!({"groups": []}))?,
        "empty-group-id" => {
            let topic = cx.create("t", 1, &[])?;
            let topics = fetch_body(cx, &topic, Some(&[0]))["groups"][0]["topics"].take();
            let mut replies = Vec::new();
            for v in [1, 7, 8] {
                replies.push(ask_fetch(cx, v, &group_body("", &topics))?);
            }
            replies.into()
        }
        "v9-member-epoch-classic" => {
            let topic = cx.create("t", 1, &[])?;
            let member = Member::stable(cx, 5)?;
            let mut replies = Vec::new();
            for (id, epoch) in [(&*member.id, member.generation), ("nobody", 5)] {
                let mut body = fetch_body(cx, &topic, Some(&[0]));
                (body["groups"][0]["memberId"], body["groups"][0]["memberEpoch"]) = (id.into(), epoch.into());
                replies.push(ask_fetch(cx, 9, &body)?);
            }
            replies.into()
        }
        _ => return Ok(None),
    }))
}

fn delete(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let topic = committed(cx, 3)?;
    let group = cx.name("g");
    Ok(Some(match what {
        "unknown-group" => ask_delete(cx, &cx.name("no"), &topic)?,
        "unknown-topic" => ask_delete(cx, &group, &cx.name("no"))?,
        "subscribed" | "not-subscribed" => {
            let other = cx.create("u", 1, &[])?;
            put(cx, &other, &[(0, 3)])?;
            let mut joining = Joining::consumer(5, 1);
            joining.protocols[0].1 = subscription(&topic);
            Member::alone(cx, joining)?.assign(&["a1"])?;
            let deleted = if what == "subscribed" { topic } else { other };
            json!([ask_delete(cx, &group, &deleted)?, offset(cx, &deleted, 0)?])
        }
        _ => return Ok(None),
    }))
}

pub(super) fn ask_delete(cx: &mut Context<'_>, group: &str, topic: &str) -> Result<Value> {
    let topics = json!([{"name": topic, "partitions": [{"partitionIndex": 0}]}]);
    cx.ask("OffsetDelete", 0, json!({"groupId": group, "topics": topics}))
}

/// A consumer's subscription, version 0: one topic and no user data.
fn subscription(topic: &str) -> String {
    let length = i16::try_from(topic.len()).unwrap_or(i16::MAX).to_be_bytes();
    let bytes = [&[0, 0, 0, 0, 0, 1], &length[..], topic.as_bytes(), &[0xff; 4]].concat();
    wire::base64(&bytes)
}
