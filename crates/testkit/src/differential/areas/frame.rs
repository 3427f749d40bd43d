//! Frames and headers: lengths, foreign bytes, unknown keys and versions, client ids, tags, pipelining.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::frame_evil;
use crate::batch::Batch;
use crate::client::Event;
use crate::differential::context::{Context, fetch_body, number, produce_body};
use crate::wire;

pub(super) fn run(cx: &mut Context<'_>, id: &[&str]) -> Result<Option<Value>> {
    match id {
        ["len", what] => length(cx, what),
        ["bytes", what] => foreign(cx, what),
        ["api", what] => {
            let Some(key) = what.strip_prefix("unknown").and_then(number) else { return Ok(None) };
            cx.after(&wire::framed(&header(key as i16, 0))).map(Some)
        }
        ["ver", what] => {
            let Some(version) = what.strip_prefix("metadata").and_then(number) else { return Ok(None) };
            let mut frame = header(3, version as i16);
            frame.extend_from_slice(&[0; 8]);
            cx.after(&wire::framed(&frame)).map(Some)
        }
        ["client", what] => client_id(cx, what),
        ["corr", what] => {
            let Some(correlation) = number(what) else { return Ok(None) };
            let mut client = cx.connect()?;
            client.send_frame(&wire::request("Metadata", 1, correlation as i32, None, &json!({"topics": []}))?)?;
            let reply = wire::response("Metadata", 1, &client.next_frame()?)?;
            Ok(Some(json!({"echoed": i64::from(reply.correlation) == correlation})))
        }
        ["tags", what] => tags(cx, what),
        ["split", "bytewise"] => {
            let mut client = cx.connect()?;
            for byte in wire::framed(&wire::request("Metadata", 9, 77, Some("x"), &json!({"topics": []}))?) {
                client.send_bytes(&[byte])?;
            }
            let reply = wire::response("Metadata", 9, &client.next_frame()?)?;
            Ok(Some(json!({"corr": reply.correlation})))
        }
        ["evil", what] => frame_evil::run(cx, what),
        ["pipe", what] => pipelined(cx, what),
        _ => Ok(None),
    }
}

/// A request header with a client id, and nothing after it; version 1 of the header.
pub(super) fn header(key: i16, version: i16) -> Vec<u8> {
    let mut out = key.to_be_bytes().to_vec();
    out.extend_from_slice(&version.to_be_bytes());
    out.extend_from_slice(&[0, 0, 0, 5, 0, 1, b'x']);
    out
}

fn length(cx: &Context<'_>, what: &str) -> Result<Option<Value>> {
    let whole = wire::request("Metadata", 1, 5, Some("test"), &json!({"topics": []}))?;
    let bytes = match what {
        "max-allowed-stall" => [&104_857_600i32.to_be_bytes()[..], &[0, 3, 0]].concat(),
        "zero" => vec![0; 4],
        "stall-in-frame" => wire::framed(&whole)[..whole.len() / 2].to_vec(),
        _ => match (what.strip_prefix("short").and_then(number), number(what)) {
            (Some(short), _) => wire::framed(&whole[..short as usize]),
            (None, Some(length)) => (length as i32).to_be_bytes().to_vec(),
            (None, None) => return Ok(None),
        },
    };
    cx.after(&bytes).map(Some)
}

fn foreign(cx: &Context<'_>, what: &str) -> Result<Option<Value>> {
    let noise = |seed: u32| -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        wire::framed(&std::iter::repeat_with(&mut next).take(100).collect::<Vec<_>>())
    };
    let bytes = match what {
        "http" => b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        "tls" => vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 1, 2, 3, 4, 5],
        "ssh" => b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
        "garbage-frame" => noise(1),
        "garbage-frame2" => noise(2),
        _ => return Ok(None),
    };
    cx.after(&bytes).map(Some)
}

/// A Metadata v1 frame without topics and with these client id bytes.
fn with_client_id(length: i16, id: &[u8]) -> Vec<u8> {
    let mut frame = vec![0, 3, 0, 1, 0, 0, 0, 5];
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(id);
    frame.extend_from_slice(&[0; 4]);
    frame
}

fn client_id(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let frame = match what {
        "long" => with_client_id(32767, &[b'c'; 32767]),
        "badlen" => return cx.after(&wire::framed(&with_client_id(-2, &[]))).map(Some),
        "badutf8" => with_client_id(3, &[0xc3, 0x28, 0xff]),
        "unicode" => with_client_id(12, "클라이언".as_bytes()),
        _ => return Ok(None),
    };
    answered(cx, &frame, 1).map(Some)
}

/// The answer to a Metadata frame, in brief.
fn answered(cx: &mut Context<'_>, frame: &[u8], version: i16) -> Result<Value> {
    let mut client = cx.connect()?;
    client.send_frame(frame)?;
    let reply = wire::response("Metadata", version, &client.next_frame()?)?;
    Ok(json!({"corr": reply.correlation, "topics": reply.body["topics"], "trailing": reply.trailing}))
}

fn tags(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    // Header v2: after the client id, the count of tags. Body of Metadata v9: no topics, three booleans, tags.
    let header = [0, 3, 0, 9, 0, 0, 0, 5, 0, 1, b'x'];
    let body = [1, 0, 0, 0];
    let unknown = [1, 99, 2, 1, 2];
    let frame = match what {
        "unknown-header" => [&header[..], &unknown, &body, &[0]].concat(),
        "unknown-body" => [&header[..], &[0], &body, &unknown].concat(),
        "duplicate" => {
            let twice = [&header[..], &[0], &body, &[2, 99, 1, 1, 99, 1, 2]].concat();
            return cx.after(&wire::framed(&twice)).map(Some);
        }
        _ => return Ok(None),
    };
    answered(cx, &frame, 9).map(Some)
}

fn pipelined(cx: &mut Context<'_>, what: &str) -> Result<Option<Value>> {
    let metadata = |correlation| wire::request("Metadata", 1, correlation, Some("t"), &json!({"topics": []}));
    Ok(Some(match what {
        "two" => {
            let mut client = cx.connect()?;
            client.send_bytes(&[wire::framed(&metadata(11)?), wire::framed(&metadata(12)?)].concat())?;
            json!([correlation(&client.next_frame()?), correlation(&client.next_frame()?)])
        }
        "behind-slow-fetch" => behind_slow_fetch(cx)?,
        "acks0-then-other" => acks0_then_other(cx)?,
        "two-produces-order" => two_produces(cx)?,
        "bad-second" => {
            let mut client = cx.connect()?;
            client.send_bytes(&[wire::framed(&metadata(1)?), wire::framed(&header(-1, 0))].concat())?;
            let mut seen = Vec::new();
            for _ in 0..2 {
                seen.push(match client.next_event(Duration::from_secs(5))? {
                    Event::Frame(_) => "reply",
                    Event::Closed => "closed",
                    Event::Silent => "silent",
                });
            }
            json!(seen)
        }
        "fifty-connections" => {
            let mut clients = (0..50).map(|_| cx.connect()).collect::<Result<Vec<_>>>()?;
            for client in &mut clients {
                client.send_frame(&metadata(3)?)?;
            }
            clients.iter_mut().filter_map(|c| c.next_frame().ok()).count().into()
        }
        "slowloris" => {
            let half = wire::framed(&metadata(1)?);
            let mut clients = (0..20).map(|_| cx.connect()).collect::<Result<Vec<_>>>()?;
            for client in &mut clients {
                client.send_bytes(&half[..half.len() / 2])?;
            }
            json!({"alive": cx.alive()})
        }
        _ => return Ok(None),
    }))
}

fn correlation(frame: &[u8]) -> Option<i32> {
    frame.first_chunk::<4>().map(|c| i32::from_be_bytes(*c))
}

fn behind_slow_fetch(cx: &mut Context<'_>) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let mut fetch = fetch_body(&json!({"topic": topic}), &json!([{"partition": 0, "partitionMaxBytes": 1000}]));
    fetch["maxWaitMs"] = 700.into();
    fetch["minBytes"] = 1.into();
    let mut client = cx.connect()?;
    let started = Instant::now();
    let slow = wire::framed(&wire::request("Fetch", 12, 1, None, &fetch)?);
    let quick = wire::framed(&wire::request("Metadata", 1, 2, None, &json!({"topics": []}))?);
    client.send_bytes(&[slow, quick].concat())?;
    let order = [correlation(&client.next_frame()?), correlation(&client.next_frame()?)];
    Ok(json!({"order": order, "waited": started.elapsed() >= Duration::from_millis(600)}))
}

fn acks0_then_other(cx: &mut Context<'_>) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let silent = produce_body(&topic, 0, 0, &Batch::of(1, cx.t0()).build());
    let mut client = cx.connect()?;
    let first = wire::framed(&wire::request("Produce", 9, 1, None, &silent)?);
    let second = wire::framed(&wire::request("Metadata", 1, 2, None, &json!({"topics": []}))?);
    client.send_bytes(&[first, second].concat())?;
    let next = if correlation(&client.next_frame()?) == Some(2) { "second" } else { "first" };
    Ok(json!({"next": next, "end": cx.end(&topic, 0)?}))
}

fn two_produces(cx: &mut Context<'_>) -> Result<Value> {
    let topic = cx.create("t", 1, &[])?;
    let body = produce_body(&topic, 0, -1, &Batch::of(2, cx.t0()).build());
    let mut client = cx.connect()?;
    let frames = [1, 2].map(|c| wire::request("Produce", 9, c, None, &body).map(|r| wire::framed(&r)));
    let [first, second] = frames;
    client.send_bytes(&[first?, second?].concat())?;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let reply = wire::response("Produce", 9, &client.next_frame()?)?;
        let offset = reply.body["responses"][0]["partitionResponses"][0]["baseOffset"].as_i64().context("no offset")?;
        seen.push(json!([reply.correlation, offset]));
    }
    Ok(seen.into())
}
