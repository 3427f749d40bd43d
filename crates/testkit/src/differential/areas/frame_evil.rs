//! Bodies that a decoder may stumble over.

use std::time::Instant;

use anyhow::Result;
use serde_json::Value;

use super::frame::header;
use crate::differential::context::Context;
use crate::wire;

/// A huge count in the body must not slow the server down either, so that these outcomes say how long it took.
pub(super) fn run(cx: &Context<'_>, what: &str) -> Result<Option<Value>> {
    let Some((key, version, body)) = request(what) else { return Ok(None) };
    let mut frame = header(key, version);
    frame.extend_from_slice(&body);
    let started = Instant::now();
    let mut outcome = cx.after(&wire::framed(&frame))?;
    outcome["quick"] = (started.elapsed().as_millis() < 1000).into();
    Ok(Some(outcome))
}

fn request(what: &str) -> Option<(i16, i16, Vec<u8>)> {
    Some(match what {
        "metadata-array-neg2" => (3, 1, (-2i32).to_be_bytes().to_vec()),
        "metadata-v0-null-array" => (3, 0, (-1i32).to_be_bytes().to_vec()),
        "metadata-string-null" => (3, 1, vec![0, 0, 0, 1, 0xff, 0xff]),
        "metadata-string-neg" => (3, 1, vec![0, 0, 0, 1, 0xff, 0xfb]),
        "metadata-trailing" => (3, 1, vec![0; 9]),
        "metadata-badutf8" => (3, 1, vec![0, 0, 0, 1, 0, 3, 0xc3, 0x28, 0xff]),
        "produce-empty-body" => (0, 3, Vec::new()),
        "fetch-topics-null" => {
            // Replica, wait, least and most bytes, isolation level, then the null array.
            let mut body = vec![0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0];
            body.extend_from_slice(&[0xff; 4]);
            (1, 4, body)
        }
        "join-metadata-null" => {
            // Group, timeouts, member, protocol type, one protocol "r" with null metadata.
            let mut body = vec![0, 1, b'g', 0, 0, 0x75, 0x30, 0, 0, 0x75, 0x30, 0, 0, 0, 1, b'c'];
            body.extend_from_slice(&[0, 0, 0, 1, 0, 1, b'r', 0xff, 0xff, 0xff, 0xff]);
            (11, 2, body)
        }
        "join-group-null" => {
            let mut body = vec![0xff, 0xff, 0, 0, 0x75, 0x30, 0, 0, 0x75, 0x30, 0, 0, 0, 1, b'c'];
            body.extend_from_slice(&[0, 0, 0, 1, 0, 1, b'r', 0, 0, 0, 0]);
            (11, 2, body)
        }
        "heartbeat-cut" => (12, 0, vec![0, 1, b'g', 0, 0, 0, 1, 0, 9, b'm']),
        "metadata-bool-2" => (3, 4, vec![0, 0, 0, 0, 2]),
        "nested-tags" => {
            // The header is flexible: its own tags, then one boolean and a thousand empty tags.
            let mut body = vec![0, 0, 0xe8, 0x07];
            for tag in 100..1100u32 {
                body.extend_from_slice(&[(tag & 0x7f) as u8 | 0x80, (tag >> 7) as u8, 0]);
            }
            (60, 0, body)
        }
        _ => return None,
    })
}
