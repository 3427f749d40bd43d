//! Metadata, DescribeTopicPartitions, DescribeCluster.

use anyhow::Result;
use serde_json::{Value, json};

use crate::batch::Batch;
use crate::differential::context::{Context, version};

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    match id {
        ["known", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            let topic = cx.create("t", 2, &[])?;
            cx.ask("Metadata", v, json!({"topics": [{"name": topic}]})).map(sorted).map(Some)
        }
        ["all", list, v] => {
            let Some(v) = version(v) else { return Ok(None) };
            let topic = cx.create("t", 1, &[])?;
            let topics = if *list == "null" { Value::Null } else { json!([]) };
            let reply = cx.call("Metadata", v, json!({"topics": topics}))?;
            let own = reply["topics"].as_array().is_some_and(|t| t.iter().any(|t| t["name"] == topic.as_str()));
            Ok(Some(json!({"hasOwnTopic": own})))
        }
        ["none", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            Ok(Some(cx.ask("Metadata", v, json!({"topics": []}))?["topics"].take()))
        }
        ["unknown", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            let name = cx.name("none");
            topics(cx, v, json!([{"name": name}])).map(Some)
        }
        ["auto-create", "fifty-then-produce"] => fifty(cx).map(Some),
        ["auto-create", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            auto_create(cx, v).map(Some)
        }
        ["bad-name", what, v] => {
            let (Some(v), Some(name)) = (version(v), bad_name(what)) else { return Ok(None) };
            topics(cx, v, json!([{"name": name}])).map(Some)
        }
        ["topic-ops" | "cluster-ops", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            operations(cx, id[0] == "topic-ops", v).map(Some)
        }
        ["dtp", what] => describe_partitions(cx, what),
        ["cluster", what] => cluster(cx, what),
        [what] => single(cx, what),
        _ => Ok(None),
    }
}

/// Partitions come in no promised order.
fn sorted(mut reply: Value) -> Value {
    let topics = if reply.is_array() { reply.as_array_mut() } else { reply["topics"].as_array_mut() };
    for topic in topics.into_iter().flatten() {
        if let Some(partitions) = topic["partitions"].as_array_mut() {
            partitions.sort_by_key(|p| p["partitionIndex"].as_i64());
        }
    }
    reply
}

/// The topics of a reply, without auto-creation where it can be refused, by name.
fn topics(cx: &mut Context<'_>, v: i16, topics: Value) -> Result<Value> {
    let mut body = json!({"topics": topics});
    if v >= 4 {
        body["allowAutoTopicCreation"] = false.into();
    }
    let mut reply = cx.ask("Metadata", v, body)?["topics"].take();
    if let Some(topics) = reply.as_array_mut() {
        topics.sort_by_key(|t| t["name"].as_str().map(str::to_owned));
    }
    Ok(sorted(reply))
}

fn auto_create(cx: &mut Context<'_>, v: i16) -> Result<Value> {
    let name = cx.name("auto");
    let mut body = json!({"topics": [{"name": name}]});
    if v >= 4 {
        body["allowAutoTopicCreation"] = true.into();
    }
    let first = cx.ask("Metadata", v, body.clone())?["topics"].take();
    cx.learn_id(&name)?;
    let mut then = cx.ask("Metadata", v, body)?["topics"][0].take();
    if let Some(topic) = then.as_object_mut() {
        topic.shift_remove("topicId");
    }
    Ok(json!([first, then]))
}

/// The names that are refused, by the word for them.
pub(super) fn bad_name(what: &str) -> Option<String> {
    Some(match what {
        "empty" => String::new(),
        "dot" => ".".to_owned(),
        "dotdot" => "..".to_owned(),
        "space" => "a b".to_owned(),
        "slash" => "a/b".to_owned(),
        "comma" => "a,b".to_owned(),
        "colon" => "a:b".to_owned(),
        "star" => "a*".to_owned(),
        "nul" => "a\0b".to_owned(),
        "unicode" => "토픽".to_owned(),
        "long250" => "x".repeat(250),
        _ => return None,
    })
}

/// A name of the case's own, of this length.
pub(super) fn long_name(cx: &Context<'_>, length: usize) -> String {
    let prefix = &cx.names.prefix;
    format!("{prefix}{}", "x".repeat(length - prefix.len()))
}

/// Topics that are made by asking for them, and how many of them take a record soon.
fn fifty(cx: &mut Context<'_>) -> Result<Value> {
    let mut taken = 0;
    for number in 0..50 {
        let name = cx.name(&format!("auto-{number}"));
        let body = json!({"topics": [{"name": name}], "allowAutoTopicCreation": true});
        cx.until(|cx| cx.call("Metadata", 12, body.clone()), |found| found["topics"][0]["errorCode"] == 0)?;
        let batch = Batch::of(1, cx.t0()).build();
        let answer = cx.until(|cx| cx.produce(&name, 0, &batch), |answer| answer["errorCode"] == 0)?;
        taken += i32::from(answer["errorCode"] == 0);
    }
    Ok(taken.into())
}

fn operations(cx: &mut Context<'_>, topic: bool, v: i16) -> Result<Value> {
    let name = cx.create("t", 1, &[])?;
    let mut ask = |field: &str| {
        let mut body = json!({"topics": [{"name": name}]});
        body[field] = true.into();
        cx.call("Metadata", v, body)
    };
    if !topic {
        return Ok(ask("includeClusterAuthorizedOperations")?["clusterAuthorizedOperations"].take());
    }
    let asked = ask("includeTopicAuthorizedOperations")?["topics"][0]["topicAuthorizedOperations"].take();
    let not = ask("allowAutoTopicCreation")?["topics"][0]["topicAuthorizedOperations"].take();
    Ok(json!([asked, not]))
}

fn describe_partitions(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    Ok(Some(match what {
        "unknown" => {
            let name = cx.name("no");
            cx.ask("DescribeTopicPartitions", 0, json!({"topics": [{"name": name}]}))?
        }
        "bad-name" => cx.ask("DescribeTopicPartitions", 0, json!({"topics": [{"name": "a b"}]}))?,
        "limit2" => {
            let topic = cx.create("t", 3, &[])?;
            let mut body = json!({"topics": [{"name": topic}], "responsePartitionLimit": 2});
            let raw = cx.call("DescribeTopicPartitions", 0, body.clone())?;
            body["cursor"] = raw["nextCursor"].clone();
            let first = cx.names.normal(&raw);
            json!([first, cx.ask("DescribeTopicPartitions", 0, body)?])
        }
        "cursor-unknown" => {
            let name = cx.name("t");
            let cursor = json!({"topicName": name, "partitionIndex": -1});
            cx.ask("DescribeTopicPartitions", 0, json!({"topics": [{"name": name}], "cursor": cursor}))?
        }
        _ => return Ok(None),
    }))
}

fn cluster(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let with = json!({"includeClusterAuthorizedOperations": true});
    Ok(Some(match what {
        "v0" => cx.ask("DescribeCluster", 0, with)?,
        "v1" => cx.ask("DescribeCluster", 1, with)?,
        "controllers" => cx.ask("DescribeCluster", 1, json!({"endpointType": 2}))?,
        "endpoint3" => cx.ask("DescribeCluster", 1, json!({"endpointType": 3}))?,
        _ => return Ok(None),
    }))
}

fn single(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    Ok(Some(match what {
        "name-249" => {
            let name = long_name(cx, 249);
            topics(cx, 12, json!([{"name": name}]))?
        }
        "unknown-twice" => {
            let name = cx.name("no");
            topics(cx, 12, json!([{"name": name}, {"name": name}]))?
        }
        "known-and-unknown" => {
            let (known, unknown) = (cx.create("t", 1, &[])?, cx.name("no"));
            topics(cx, 12, json!([{"name": known}, {"name": unknown}]))?
        }
        "internal-txn" => {
            cx.internal("__transaction_state")?;
            let topic = cx.metadata("__transaction_state")?;
            let partitions = topic["partitions"].as_array().map_or(0, Vec::len);
            let topic = cx.names.normal(&topic);
            json!({"errorCode": topic["errorCode"], "isInternal": topic["isInternal"], "partitions": partitions})
        }
        "cluster-metadata-topic" => topics(cx, 12, json!([{"name": "__cluster_metadata"}]))?,
        "deleted-then-unknown" => {
            let topic = cx.create("t", 1, &[])?;
            cx.delete(&topic)?;
            topics(cx, 12, json!([{"name": topic}]))?
        }
        "recreated-new-id" => {
            let topic = cx.create("t", 1, &[])?;
            let old = cx.id(&topic)?;
            cx.delete(&topic)?;
            cx.create("t", 1, &[])?;
            json!({"same": cx.learn_id(&topic)? == old})
        }
        _ => return Ok(None),
    }))
}
