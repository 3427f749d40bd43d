//! Clients that mean harm or ask for much: a server keeps its memory flat, its connections apart and its temper.

mod hold;
mod storm;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use crate::client::{Event, RawClient};
use crate::server::Server;
use crate::{batch, wire};

/// What the server may grow by while it is harmed, in MiB. Buffers that it keeps for reuse are in it.
const GROWTH_MIB: u64 = 64;

/// What the server is started with: the memory for received bytes is that of one frame of the largest length, and can be held.
pub const LIMITS: [(&str, &str); 2] =
    [("socket.request.max.bytes", "33554432"), ("queued.max.request.bytes", "33554432")];
const LARGEST_FRAME: i32 = 33_554_432;

/// A check by its name.
pub type Check = (&'static str, fn(&Server) -> Result<()>);

/// All checks.
pub const CHECKS: [Check; 7] = [
    ("a storm of senseless requests", storm::storm),
    ("large lengths without bytes", large_lengths),
    ("two thousand stalled connections", stalled),
    ("frames that trickle in and hold the memory of all", hold::trickle),
    ("a client that keeps waking what looks after files", hold::busy_maintenance),
    ("a fetch of thousands of partitions", wide_fetch),
    ("metadata of four thousand partitions", wide_metadata),
];

/// The process's resident memory in MiB.
///
/// # Errors
/// When it is gone.
pub fn resident_mib(server: &Server) -> Result<u64> {
    let pid = server.pid().context("the server is not running")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024)
}

/// Runs `harm` and checks that another client is served before and after, and that memory stays flat.
fn within_bounds(server: &Server, harm: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut bystander = server.client()?;
    bystander.call("Metadata", 1, &json!({"topics": []}))?;
    let before = resident_mib(server)?;
    harm()?;
    bystander.call("Metadata", 1, &json!({"topics": []})).context("another connection was harmed")?;
    let after = resident_mib(server)?;
    ensure!(after <= before + GROWTH_MIB, "resident memory went from {before} to {after} MiB");
    Ok(())
}

/// The largest length that is allowed, and no more than a few bytes: nothing may be allocated for it.
fn large_lengths(server: &Server) -> Result<()> {
    let mut held = Vec::new();
    within_bounds(server, || {
        for _ in 0..200 {
            let mut client = server.client()?;
            client.send_bytes(&LARGEST_FRAME.to_be_bytes())?;
            client.send_bytes(&[0, 0, 0, 9, 0, 0])?;
            held.push(client);
        }
        std::thread::sleep(Duration::from_millis(300));
        Ok(())
    })
}

/// Connections that stop in the middle of a frame.
fn stalled(server: &Server) -> Result<()> {
    let frame = wire::framed(&wire::request("Metadata", 1, 1, Some("x"), &json!({"topics": []}))?);
    let mut held = Vec::new();
    within_bounds(server, || {
        for _ in 0..2000 {
            let mut client = server.client()?;
            client.send_bytes(&frame[..frame.len() - 3])?;
            held.push(client);
        }
        Ok(())
    })?;
    // They were slow, not wrong: the rest of the frame is answered.
    let last = held.last_mut().context("connections were made")?;
    last.send_bytes(&frame[frame.len() - 3..])?;
    last.next_frame().map(drop)
}

fn create(client: &mut RawClient, name: &str, partitions: i32) -> Result<()> {
    let topic = json!({"name": name, "numPartitions": partitions, "replicationFactor": 1});
    let reply = client.call("CreateTopics", 7, &json!({"topics": [topic], "timeoutMs": 60000}))?;
    ensure!(reply["topics"][0]["errorCode"] == 0, "{name}: {}", reply["topics"][0]["errorCode"]);
    Ok(())
}

/// Waits until the broker leads a partition.
fn wait_led(client: &mut RawClient, topic: &str, partition: i32) -> Result<()> {
    let partitions = json!([{"partitionIndex": partition, "timestamp": -1}]);
    let body = json!({"replicaId": -1, "topics": [{"name": topic, "partitions": partitions}]});
    for _ in 0..2000 {
        if client.call("ListOffsets", 7, &body)?["topics"][0]["partitions"][0]["errorCode"] == 0 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("{topic}-{partition} is never led")
}

/// A fetch of many partitions, each with a limit that together are gigabytes: the reply keeps to the request's own limit.
fn wide_fetch(server: &Server) -> Result<()> {
    let mut client = server.client()?;
    client.patience = Duration::from_secs(120);
    create(&mut client, "wide", 2000)?;
    wait_led(&mut client, "wide", 1999)?;
    for partition in 0..20 {
        let record = batch::Record::text(0, 0, "k", &"x".repeat(900_000));
        let records = wire::base64(&batch::Batch::new(1_700_000_000_000, vec![record]).build());
        let topic = json!({"name": "wide", "partitionData": [{"index": partition, "records": records}]});
        let body = json!({"acks": -1, "timeoutMs": 30000, "topicData": [topic]});
        let reply = client.call("Produce", 9, &body)?;
        let code = &reply["responses"][0]["partitionResponses"][0]["errorCode"];
        ensure!(*code == 0, "produce: {code}");
    }
    let partitions: Vec<_> =
        (0..2000).map(|p| json!({"partition": p, "fetchOffset": 0, "partitionMaxBytes": 1 << 20})).collect();
    let topics = json!([{"topic": "wide", "partitions": partitions}]);
    let body = json!({"maxWaitMs": 0, "minBytes": 0, "maxBytes": 4 << 20, "topics": topics});
    within_bounds(server, || {
        let reply = client.call("Fetch", 12, &body)?;
        let answered = reply["responses"][0]["partitions"].as_array().map_or(0, Vec::len);
        ensure!(answered == 2000, "{answered} partitions were answered");
        let all = reply["responses"][0]["partitions"].as_array().into_iter().flatten();
        let bytes: usize = all.filter_map(|p| p["records"].as_str()).map(|r| r.len() * 3 / 4).sum();
        ensure!(bytes <= 6 << 20, "{bytes} bytes were sent for a limit of 4 MiB");
        Ok(())
    })
}

/// While one connection has asked for a large cluster's metadata and does not read it, another one is answered.
fn wide_metadata(server: &Server) -> Result<()> {
    let mut client = server.client()?;
    client.patience = Duration::from_secs(120);
    for number in 0..4 {
        let name = format!("many-{number}");
        create(&mut client, &name, 1000)?;
        wait_led(&mut client, &name, 999)?;
    }
    let request = wire::framed(&wire::request("Metadata", 9, 1, None, &json!({"topics": null}))?);
    let mut asking = server.client()?;
    let mut other = server.client()?;
    for _ in 0..10 {
        asking.send_bytes(&request)?;
        other.call("ApiVersions", 3, &json!({}))?;
        match asking.next_event(Duration::from_secs(60))? {
            Event::Frame(_) => {}
            other => bail!("metadata: {other:?}"),
        }
    }
    Ok(())
}
