//! Clients that hold what others need: memory for received bytes, and the turns of what the server does on the side.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{LARGEST_FRAME, create, wait_led, within_bounds};
use crate::client::{Event, RawClient};
use crate::server::Server;
use crate::{batch, wire};

/// Connections that begin a frame of the largest length, and bytes of it that each sends at once.
const TRICKLING: usize = 64;
const BEGUN: usize = 512 << 10;
/// Pause between two bytes of a trickle.
const TRICKLE: Duration = Duration::from_millis(250);
/// How long a good client waits at most.
const PATIENCE: Duration = Duration::from_secs(60);
/// Requests of a good client meanwhile.
const GOOD: usize = 20;

/// Many connections begin a large frame, which takes all memory for received bytes, and send a byte now and then. A client that comes
/// later is served all the same, and so is one that was there.
pub(super) fn trickle(server: &Server) -> Result<()> {
    let frame = [&LARGEST_FRAME.to_be_bytes()[..], &vec![0; BEGUN]].concat();
    let begun: Result<Vec<RawClient>> = (0..TRICKLING)
        .map(|_| {
            let mut client = server.client()?;
            client.patience = TRICKLE;
            Ok(client)
        })
        .collect();
    let served = AtomicBool::new(false);
    let mut there = server.client()?;
    there.patience = PATIENCE;
    within_bounds(server, || {
        std::thread::scope(|scope| {
            let tricklers: Vec<_> =
                begun?.into_iter().map(|client| scope.spawn(|| hold(client, &frame, &served))).collect();
            let good = be_good(server, &mut there);
            served.store(true, Ordering::Release);
            let ended =
                tricklers.into_iter().map(|thread| thread.join().unwrap_or(false)).filter(|ended| *ended).count();
            good.context("while frames trickle")?;
            ensure!(ended > 0, "no connection was ended that held memory: nothing was short");
            Ok(())
        })
    })
}

/// Sends the beginning of a frame, then byte for byte until the others were served; whether the server has ended the connection.
fn hold(mut client: RawClient, frame: &[u8], served: &AtomicBool) -> bool {
    // What the server does not read fills the socket; that is a trickle too.
    let _ = client.send_bytes(frame);
    while !served.load(Ordering::Acquire) {
        match client.next_event(TRICKLE) {
            Ok(Event::Silent) => drop(client.send_bytes(&[0])),
            _ => return true,
        }
    }
    false
}

fn be_good(server: &Server, there: &mut RawClient) -> Result<()> {
    for number in 0..GOOD {
        there.call("Metadata", 1, &json!({"topics": []})).with_context(|| format!("request {number}"))?;
        let mut new = server.client()?;
        new.patience = PATIENCE;
        new.call("ApiVersions", 3, &json!({})).with_context(|| format!("new connection {number}"))?;
    }
    Ok(())
}

/// DeleteRecords, each of which wakes the thread that looks after files, one after the other without a pause: it does its other work
/// all the same, and deletes the files of a topic that is gone.
pub(super) fn busy_maintenance(server: &Server) -> Result<()> {
    let mut client = server.client()?;
    client.patience = PATIENCE;
    create(&mut client, "shrinking", 1)?;
    wait_led(&mut client, "shrinking", 0)?;
    let records =
        wire::base64(&batch::Batch::new(1_700_000_000_000, vec![batch::Record::text(0, 0, "k", "v")]).build());
    let topic = json!({"name": "shrinking", "partitionData": [{"index": 0, "records": records}]});
    client.call("Produce", 9, &json!({"acks": -1, "timeoutMs": 30000, "topicData": [topic]}))?;
    let mut vanishing = json!({"name": "vanishing", "numPartitions": 1, "replicationFactor": 1});
    vanishing["configs"] = json!([{"name": "file.delete.delay.ms", "value": "0"}]);
    let created = client.call("CreateTopics", 7, &json!({"topics": [vanishing], "timeoutMs": 60000}))?;
    ensure!(created["topics"][0]["errorCode"] == 0, "{created}");
    wait_led(&mut client, "vanishing", 0)?;
    within_bounds(server, || {
        client.call("DeleteTopics", 4, &json!({"topicNames": ["vanishing"], "timeoutMs": 60000}))?;
        let partitions = json!([{"partitionIndex": 0, "offset": 1}]);
        let body = json!({"topics": [{"name": "shrinking", "partitions": partitions}], "timeoutMs": 60000});
        let deadline = std::time::Instant::now() + PATIENCE;
        while has_files_of(server, "vanishing-")? {
            ensure!(std::time::Instant::now() < deadline, "the files of a deleted topic stay");
            client.call("DeleteRecords", 2, &body)?;
        }
        Ok(())
    })
}

fn has_files_of(server: &Server, start: &str) -> Result<bool> {
    let entries = std::fs::read_dir(server.data_dir())?.collect::<Result<Vec<_>, _>>()?;
    Ok(entries.iter().any(|entry| entry.file_name().to_string_lossy().starts_with(start)))
}
