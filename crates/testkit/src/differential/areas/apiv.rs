//! ApiVersions, also in versions that nobody knows.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::frame::header;
use crate::differential::context::{Context, version};
use crate::differential::normalise::error;
use crate::wire;

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    Ok(Some(match id {
        ["list", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            let reply = cx.call("ApiVersions", v, body(v))?;
            let mut out =
                json!({"errorCode": error(reply["errorCode"].as_i64().unwrap_or(-1)), "keys": ranges(&reply)});
            if v >= 1 {
                out["throttleTimeMs"] = reply["throttleTimeMs"].clone();
            }
            out
        }
        ["features", "v4"] => features(&cx.call("ApiVersions", 4, body(4))?),
        ["unsupported", "twice"] => {
            let mut client = cx.connect()?;
            let mut codes = Vec::new();
            for (v, schema) in [(127, 0), (127, 0), (3, 3)] {
                client.send_frame(&foreign(v))?;
                codes.push(wire::response("ApiVersions", schema, &client.next_frame()?)?.body["errorCode"].clone());
            }
            codes.into()
        }
        ["unsupported", "empty-body"] => {
            let mut client = cx.connect()?;
            let mut cut = 18i16.to_be_bytes().to_vec();
            cut.extend_from_slice(&[0, 127, 0, 0, 0, 41, 0, 1, b'x']);
            client.send_frame(&cut)?;
            match client.next_event(crate::differential::context::SILENCE)? {
                crate::client::Event::Closed => "CONNECTION_CLOSED".into(),
                other => format!("{other:?}").into(),
            }
        }
        ["unsupported", v] => {
            let Some(v) = version(v) else { return Ok(None) };
            unsupported(cx, v)?
        }
        ["v0-trailing"] => {
            let frame = [header(18, 0), vec![0; 10]].concat();
            cx.after(&wire::framed(&frame))?
        }
        ["header-v0"] => {
            let mut client = cx.connect()?;
            client.send_frame(&wire::request("ApiVersions", 3, 5, None, &body(3))?)?;
            let frame = client.next_frame()?;
            let bytes: String = frame[4..6].iter().map(|b| format!("{b:02x}")).collect();
            json!({"bytes4to6": bytes})
        }
        ["mid-stream"] => {
            cx.call("Metadata", 1, json!({"topics": []}))?;
            cx.call("ApiVersions", 3, body(3))?["errorCode"].clone()
        }
        ["every-version-one-connection"] => {
            let all = (0..5).map(|v| Ok(cx.call("ApiVersions", v, body(v))?["errorCode"].clone()));
            all.collect::<Result<Vec<_>>>()?.into()
        }
        ["coherent"] => {
            let reply = cx.call("ApiVersions", 0, body(0))?;
            let range = |key| {
                let found = reply["apiKeys"].as_array().and_then(|k| k.iter().find(|k| k["apiKey"] == key));
                found.map(|k| json!({"min": k["minVersion"], "max": k["maxVersion"]}))
            };
            json!({"metadata": range(3), "fetch": range(1)})
        }
        ["v5-cluster-mismatch"] => fifth(cx, "someothercluster", -1)?,
        ["v5-match"] => {
            let cluster = cx.facts.cluster.clone();
            fifth(cx, &cluster, cx.facts.node)?
        }
        _ => return Ok(None),
    }))
}

fn body(version: i16) -> Value {
    if version < 3 { json!({}) } else { json!({"clientSoftwareName": "test", "clientSoftwareVersion": "1"}) }
}

fn ranges(reply: &Value) -> Map<String, Value> {
    let mut keys: Vec<_> = reply["apiKeys"].as_array().into_iter().flatten().collect();
    keys.sort_by_key(|k| k["apiKey"].as_i64());
    let range = |k: &&Value| {
        let key = format!("{:03}", k["apiKey"].as_i64().unwrap_or(-1));
        (key, Value::from(format!("{}-{}", k["minVersion"], k["maxVersion"])))
    };
    keys.iter().map(range).collect()
}

fn features(reply: &Value) -> Value {
    let list = |field: &str, low: &str, high: &str| -> Map<String, Value> {
        let all = reply[field].as_array().into_iter().flatten();
        let mut pairs: Vec<_> = all
            .map(|f| {
                let range = format!("{}-{}", f[low], f[high]);
                (f["name"].as_str().unwrap_or_default().to_owned(), Value::from(range))
            })
            .collect();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.into_iter().collect()
    };
    json!({
        "supported": list("supportedFeatures", "minVersion", "maxVersion"),
        "finalized": list("finalizedFeatures", "minVersionLevel", "maxVersionLevel"),
        "epochSet": reply["finalizedFeaturesEpoch"].as_i64().is_some_and(|e| e >= 0),
    })
}

/// An ApiVersions request of any version in the form of version 3.
fn foreign(version: i16) -> Vec<u8> {
    let mut out = 18i16.to_be_bytes().to_vec();
    out.extend_from_slice(&version.to_be_bytes());
    out.extend_from_slice(&[0, 0, 0, 41, 0, 1, b'x', 0, 5, b't', b'e', b's', b't', 2, b'1', 0]);
    out
}

fn unsupported(cx: &Context<'_>, version: i16) -> Result<Value> {
    let mut client = cx.connect()?;
    client.send_frame(&foreign(version))?;
    let reply = wire::response("ApiVersions", 0, &client.next_frame()?)?;
    let then = client.call("ApiVersions", 0, &json!({}))?;
    let keys = reply.body["apiKeys"].as_array().map_or(&[][..], Vec::as_slice);
    Ok(json!({
        "corr": reply.correlation, "errorCode": error(reply.body["errorCode"].as_i64().unwrap_or(-1)),
        "keyCount": keys.len(), "first": keys.first(), "trailing": reply.trailing, "thenV0": then["errorCode"],
    }))
}

fn fifth(cx: &mut Context<'_>, cluster: &str, node: i64) -> Result<Value> {
    let mut request = body(5);
    request["clusterId"] = cluster.into();
    request["nodeId"] = node.into();
    let reply = cx.call("ApiVersions", 5, request)?;
    let keys = reply["apiKeys"].as_array().is_some_and(|k| !k.is_empty());
    Ok(json!({"errorCode": error(reply["errorCode"].as_i64().unwrap_or(-1)), "keys": keys}))
}
