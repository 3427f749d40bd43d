//! Administration of the broker itself: its log directories.

use anyhow::Result;
use serde_json::{Value, json};

use crate::batch::{Batch, Record};
use crate::differential::context::{Context, version};

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    match id {
        ["logdirs", what, v] => {
            let Some(v) = version(v) else { return Ok(None) };
            match *what {
                "own" => own(cx, v).map(Some),
                "unknown" => unknown(cx, v).map(Some),
                _ => Ok(None),
            }
        }
        ["alter-logdirs", "unknown-dir"] => alter(cx, "/no/such/directory").map(Some),
        ["alter-logdirs", "relative"] => alter(cx, "relative/path").map(Some),
        _ => Ok(None),
    }
}

/// The topic `t` with a record in its second partition.
fn topic(cx: &mut Context<'_>) -> Result<String> {
    let topic = cx.create("t", 2, &[])?;
    cx.produce_ok(&topic, 1, &Batch::new(cx.t0(), vec![Record::text(0, 0, "k0", "v")]))?;
    Ok(topic)
}

fn own(cx: &mut Context<'_>, v: i16) -> Result<Value> {
    let topic = topic(cx)?;
    let mut all = cx.ask("DescribeLogDirs", v, json!({"topics": [{"topic": topic, "partitions": [0, 1]}]}))?;
    for dir in all["results"].as_array_mut().into_iter().flatten() {
        dir["logDir"] = "<dir>".into();
        for field in ["totalBytes", "usableBytes"] {
            if let Some(bytes) = dir[field].as_i64() {
                dir[field] = (bytes > 0).into();
            }
        }
        for topic in dir["topics"].as_array_mut().into_iter().flatten() {
            if let Some(partitions) = topic["partitions"].as_array_mut() {
                partitions.sort_by_key(|partition| partition["partitionIndex"].as_i64());
            }
        }
    }
    Ok(all)
}

fn unknown(cx: &mut Context<'_>, v: i16) -> Result<Value> {
    let topics = json!([{"topic": cx.name("no"), "partitions": [0]}]);
    let all = cx.ask("DescribeLogDirs", v, json!({"topics": topics}))?;
    let dirs = all["results"].as_array().map_or(&[][..], Vec::as_slice);
    let topics: Vec<_> = dirs.iter().filter_map(|dir| dir["topics"].as_array()).flatten().collect();
    let error = all.get("errorCode").cloned().unwrap_or_else(|| "<missing>".into());
    Ok(json!({"errorCode": error, "dirs": dirs.len(), "topics": topics}))
}

fn alter(cx: &mut Context<'_>, path: &str) -> Result<Value> {
    let topic = topic(cx)?;
    let dirs = json!([{"path": path, "topics": [{"name": topic, "partitions": [0]}]}]);
    cx.ask("AlterReplicaLogDirs", 2, json!({"dirs": dirs}))
}
