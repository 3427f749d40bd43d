//! Version ranges, and what the versions beside them get.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::frame::header;
use crate::differential::context::{Context, NotServed, number};
use crate::wire;

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    match id {
        ["range", api] => range(cx, api).map(Some),
        ["foreign", api] => {
            let schema = wire::schema(&format!("{api}Request"))?;
            let version = *schema.versions().end();
            let frame = wire::request(api, version, 5, Some("x"), &json!({}))?;
            cx.after(&wire::framed(&frame)).map(Some)
        }
        ["removed", api] => {
            let Some(key) = api.strip_prefix("api").and_then(number) else { return Ok(None) };
            cx.after(&wire::framed(&header(key as i16, 0))).map(Some)
        }
        _ => Ok(None),
    }
}

fn range(cx: &mut Context<'_>, api: &str) -> Result<Value> {
    let key = wire::schema(&format!("{api}Request"))?.api_key.context("not an API")?;
    let reply = cx.call("ApiVersions", 0, json!({}))?;
    let listed = reply["apiKeys"].as_array().and_then(|k| k.iter().find(|k| k["apiKey"] == key)).cloned();
    let listed = listed.ok_or_else(|| NotServed(api.to_owned()))?;
    let (min, max) = (listed["minVersion"].as_i64().unwrap_or(0), listed["maxVersion"].as_i64().unwrap_or(0));
    let mut out = json!({"range": format!("{min}-{max}"), "above": beside(cx, key, max + 1)?});
    // Produce is advertised from 0 though it is served from 3 on only.
    let served_from = if api == "Produce" { 3 } else { min };
    if served_from > 0 {
        out["below"] = beside(cx, key, served_from - 1)?;
    }
    Ok(out)
}

/// What a version gets that is not served.
fn beside(cx: &Context<'_>, key: i16, version: i64) -> Result<Value> {
    let mut frame = header(key, version as i16);
    frame.extend_from_slice(&[0; 32]);
    Ok(cx.after(&wire::framed(&frame))?["after"].take())
}
