//! Requests that wait for a partition to change. A partition wakes only those who wait for it; what they then do is
//! theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

/// Those who wait for one partition.
#[derive(Default)]
pub struct Waiters {
    waiting: Mutex<Waiting>,
    count: AtomicUsize,
}

#[derive(Default)]
struct Waiting {
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
        self.count.store(waiting.by_ticket.len(), Ordering::SeqCst);
        ticket
    }

    /// Removes a waiter.
    pub fn leave(&self, ticket: u64) {
        let mut waiting = self.waiting.lock();
        waiting.by_ticket.remove(&ticket);
        self.count.store(waiting.by_ticket.len(), Ordering::SeqCst);
    }

    /// Wakes everyone who waits. One atomic load when nobody does.
    pub fn wake(&self) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        for notify in self.waiting.lock().by_ticket.values() {
            notify.notify_one();
        }
    }
}
