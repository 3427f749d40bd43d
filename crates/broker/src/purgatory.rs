//! Requests that wait for a partition to change. A partition wakes only those who wait for it; what they then do is
//! theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use crate::partition::Partition;

/// A place among the waiters of several partitions; given up when dropped.
pub struct Waiting {
    notify: Arc<Notify>,
    places: Vec<(Arc<Partition>, u64)>,
}

impl Waiting {
    /// Waits for these. What has happened before is not told: look at them after this.
    pub fn join(partitions: impl Iterator<Item = Arc<Partition>>) -> Self {
        let notify = Arc::new(Notify::new());
        let join = |partition: Arc<Partition>| {
            let ticket = partition.waiters().join(&notify);
            (partition, ticket)
        };
        let places = partitions.map(join).collect();
        Self { notify, places }
    }

    /// Comes back when one of them may have changed.
    pub async fn changed(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        for (partition, ticket) in &self.places {
            partition.waiters().leave(*ticket);
        }
    }
}

/// Those who wait for one partition.
#[derive(Default)]
pub struct Waiters {
    waiting: Mutex<Tickets>,
    count: AtomicUsize,
}

#[derive(Default)]
struct Tickets {
    next: u64,
    by_ticket: FxHashMap<u64, Arc<Notify>>,
}

impl Waiters {
    /// Adds a waiter until the returned ticket is given back to [`Waiters::leave`].
    pub fn join(&self, notify: &Arc<Notify>) -> u64 {
        let mut waiting = self.waiting.lock();
        let ticket = waiting.next;
        waiting.next += 1;
        waiting.by_ticket.insert(ticket, Arc::clone(notify));
        self.count.store(waiting.by_ticket.len(), Ordering::Relaxed);
        drop(waiting);
        // Either the waiter sees what has changed, or who changed it sees the waiter.
        fence(Ordering::SeqCst);
        ticket
    }

    /// Removes a waiter.
    pub fn leave(&self, ticket: u64) {
        let mut waiting = self.waiting.lock();
        waiting.by_ticket.remove(&ticket);
        self.count.store(waiting.by_ticket.len(), Ordering::Relaxed);
    }

    /// Wakes everyone who waits. A fence and a load when nobody does.
    pub fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        for notify in self.waiting.lock().by_ticket.values() {
            notify.notify_one();
        }
    }
}
