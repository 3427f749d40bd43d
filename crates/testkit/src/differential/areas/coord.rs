//! FindCoordinator.

use anyhow::Result;
use serde_json::{Value, json};

use crate::differential::context::{Context, number, version};

const GROUP: i64 = 0;
const SHARE: i64 = 2;

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    Ok(Some(match id {
        ["group", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            let key = cx.name("g");
            find(cx, v, GROUP, &[&key])?
        }
        ["share", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            let topic = cx.create("t", 1, &[])?;
            let topic_id = cx.id(&topic)?;
            let found = find(cx, v, SHARE, &[&format!("g:{topic_id}:0")])?;
            serde_json::from_str(&found.to_string().replace(&topic_id, "<id:R-t>"))?
        }
        ["two-keys"] => find(cx, 4, GROUP, &["a", "b"])?,
        ["no-keys"] => find(cx, 4, GROUP, &[])?,
        ["empty-key", "group"] => json!([find(cx, 3, GROUP, &[""])?, find(cx, 4, GROUP, &[""])?]),
        ["share-key", key] => find(cx, 6, SHARE, &[&key.replace('_', ":")])?,
        [kind, v] => match (kind.strip_prefix("type").and_then(number), version(v)) {
            (Some(kind), Some(v)) => find(cx, v, kind, &["k"])?,
            _ => return Ok(None),
        },
        _ => return Ok(None),
    }))
}

/// The answer once the coordinators are there: the first question may have made their topic.
fn find(cx: &mut Context<'_>, v: i16, kind: i64, keys: &[&str]) -> Result<Value> {
    let body = match v {
        0 => json!({"key": keys[0]}),
        1..=3 => json!({"key": keys[0], "keyType": kind}),
        _ => json!({"keyType": kind, "coordinatorKeys": keys}),
    };
    cx.until(
        |cx| cx.ask("FindCoordinator", v, body.clone()),
        |found| !found.to_string().contains("COORDINATOR_NOT_AVAILABLE"),
    )
}
