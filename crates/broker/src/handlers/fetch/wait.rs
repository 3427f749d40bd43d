//! A Fetch that waits until its partitions have enough for it, or its time is up.

use std::sync::Arc;

use milena_net::{Outgoing, Reply};
use tokio::time::{Instant, timeout_at};

use super::context::Fetch;
use super::{read, reply};
use crate::ports::Ports;
use crate::purgatory::Waiting;

/// Answers when enough has come, at the latest after the fetch's longest wait.
pub(super) async fn answer_later(fetch: Fetch, ports: Arc<Ports>) -> Reply {
    let deadline = Instant::now() + fetch.max_wait;
    let waiting = {
        let mut partitions = fetch.partitions.lock();
        Waiting::join(partitions.slots().iter().filter_map(|slot| slot.place.as_ref().ok()).cloned())
    };
    let mut read = loop {
        let read = read::read(&fetch);
        if read.answers(&fetch) || timeout_at(deadline, waiting.changed()).await.is_err() {
            break read;
        }
    };
    drop(waiting);
    let mut out = Outgoing::new();
    match reply::answer(&fetch, &mut read, &ports.fetch_sessions, &mut out) {
        Ok(()) => Reply::frame(out),
        Err(refusal) => Reply::close(refusal.to_string()),
    }
}
