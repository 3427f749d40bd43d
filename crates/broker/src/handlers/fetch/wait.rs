//! A Fetch that waits until its partitions have enough for it, or its time is up.

use std::sync::Arc;

use milena_net::{Outgoing, Reply};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::context::Fetch;
use super::{read, reply};
use crate::partition::Partition;
use crate::ports::Ports;

/// Answers when enough has come, at the latest after the fetch's longest wait.
pub(super) async fn answer_later(fetch: Fetch, ports: Arc<Ports>) -> Reply {
    let deadline = Instant::now() + fetch.max_wait;
    let waiting = Waiting::join(&fetch);
    let mut read = loop {
        let read = read::read(&fetch);
        if read.answers(&fetch) || timeout_at(deadline, waiting.notify.notified()).await.is_err() {
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

/// A place among the waiters of every partition; given up when dropped.
struct Waiting {
    notify: Arc<Notify>,
    places: Vec<(Arc<Partition>, u64)>,
}

impl Waiting {
    fn join(fetch: &Fetch) -> Self {
        let notify = Arc::new(Notify::new());
        let mut partitions = fetch.partitions.lock();
        let known = partitions.slots().iter().filter_map(|slot| slot.place.as_ref().ok());
        let places = known.map(|partition| (Arc::clone(partition), partition.waiters().join(&notify))).collect();
        Self { notify, places }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        for (partition, ticket) in &self.places {
            partition.waiters().leave(*ticket);
        }
    }
}
