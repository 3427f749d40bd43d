//! What connections of all reactors share: how many there may be, and how much memory frames and long replies may take.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::sync::Notify;

use crate::ConnectionLimits;

/// How many connections there are, and from where.
#[derive(Debug)]
pub struct Connections {
    counts: Mutex<Counts>,
    room: Notify,
}

#[derive(Debug)]
struct Counts {
    limits: ConnectionLimits,
    total: usize,
    per_ip: HashMap<IpAddr, usize>,
}

/// The right to be a connection; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    connections: Arc<Connections>,
    ip: IpAddr,
}

/// Nothing that can panic runs under these locks, so a poisoned one is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits) -> Self {
        let counts = Counts { limits, total: 0, per_ip: HashMap::new() };
        Self { counts: Mutex::new(counts), room: Notify::new() }
    }

    /// From now on these limits hold. Connections that are there stay.
    pub fn limit(&self, limits: ConnectionLimits) {
        lock(&self.counts).limits = limits;
        self.room.notify_waiters();
    }

    fn is_full(&self) -> bool {
        let counts = lock(&self.counts);
        counts.total >= counts.limits.max
    }

    /// Connections now.
    pub(crate) fn total(&self) -> usize {
        lock(&self.counts).total
    }

    /// Waits until there may be one more.
    pub(crate) async fn room(&self) {
        loop {
            let mut freed = std::pin::pin!(self.room.notified());
            freed.as_mut().enable();
            if !self.is_full() {
                return;
            }
            freed.await;
        }
    }

    /// Admits one more from `ip`, unless there are too many from there; then the limit.
    pub(crate) fn admit(self: &Arc<Self>, ip: IpAddr) -> Result<Permit, usize> {
        let mut counts = lock(&self.counts);
        let max = counts.limits.per_ip_overrides.get(&ip).copied().unwrap_or(counts.limits.max_per_ip);
        let from_there = counts.per_ip.entry(ip).or_default();
        if *from_there >= max {
            if *from_there == 0 {
                counts.per_ip.remove(&ip);
            }
            return Err(max);
        }
        *from_there += 1;
        counts.total += 1;
        Ok(Permit { connections: Arc::clone(self), ip })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = lock(&self.connections.counts);
        counts.total -= 1;
        if let Some(from_there) = counts.per_ip.get_mut(&self.ip) {
            *from_there -= 1;
            if *from_there == 0 {
                counts.per_ip.remove(&self.ip);
            }
        }
        drop(counts);
        self.connections.room.notify_waiters();
    }
}

/// Memory for bytes received whose requests are not done, and for long replies that are not sent. Once claims reach the limit,
/// connections that would need more memory are not read; those that have what their frame needs are. The last claim may exceed
/// the limit.
#[derive(Debug)]
pub(crate) struct ReceiveMemory {
    limit: u64,
    claimed: AtomicU64,
    /// Connections that wait, by number, each with the bytes that it has claimed itself.
    waiting: Mutex<HashMap<u64, (Waker, u64)>>,
}

impl ReceiveMemory {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, claimed: AtomicU64::new(0), waiting: Mutex::default() }
    }

    /// Whether those that need more must wait.
    pub(crate) fn is_short(&self) -> bool {
        self.claimed.load(Ordering::SeqCst) >= self.limit
    }

    /// Whether somebody waits.
    pub(crate) fn is_wanted(&self) -> bool {
        !lock(&self.waiting).is_empty()
    }

    /// Whether most of it is held by those who wait, so that waiting alone gets nobody on.
    pub(crate) fn is_held_by_waiting(&self) -> bool {
        let held: u64 = lock(&self.waiting).values().map(|(_, held)| held).sum();
        held >= self.claimed.load(Ordering::SeqCst) / 2
    }

    /// Changes a claim from `old` to `new` bytes.
    pub(crate) fn change(&self, old: u64, new: u64) {
        if new > old {
            self.claimed.fetch_add(new - old, Ordering::SeqCst);
        } else if new < old {
            let before = self.claimed.fetch_sub(old - new, Ordering::SeqCst);
            if before >= self.limit && before - (old - new) < self.limit {
                let waiting = std::mem::take(&mut *lock(&self.waiting));
                waiting.into_values().for_each(|(waker, _)| waker.wake());
            }
        }
    }

    /// Wakes connection `id`, which has claimed `held` bytes, when memory is no longer short; `false` when it is not short any more.
    pub(crate) fn wait(&self, id: u64, held: u64, waker: &Waker) -> bool {
        lock(&self.waiting).insert(id, (waker.clone(), held));
        // Freed before the waker was there: nobody may come to wake it.
        if self.is_short() {
            return true;
        }
        self.forget(id);
        false
    }

    /// Connection `id` does not wait any more.
    pub(crate) fn forget(&self, id: u64) {
        lock(&self.waiting).remove(&id);
    }
}

/// Memory that a request takes while it waits for its answer, among what received bytes may take together. It is given
/// back when this is dropped, whether or not the connection is still there.
#[derive(Debug)]
pub struct Claim {
    memory: Arc<ReceiveMemory>,
    bytes: AtomicU64,
}

impl Claim {
    pub(crate) fn new(memory: &Arc<ReceiveMemory>, bytes: u64) -> Self {
        let claim = Self { memory: Arc::clone(memory), bytes: AtomicU64::new(0) };
        claim.add(bytes);
        claim
    }

    /// The request takes so many bytes more.
    pub fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.memory.change(0, bytes);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.memory.change(*self.bytes.get_mut(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_own_limit() {
        let [near, far] = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([10, 0, 0, 1])];
        let limits =
            |max_per_ip| ConnectionLimits { max: 100, max_per_ip, per_ip_overrides: HashMap::from([(far, 0)]) };
        let connections = Arc::new(Connections::new(limits(2)));
        let held = [connections.admit(near).unwrap(), connections.admit(near).unwrap()];
        assert_eq!(connections.admit(near).unwrap_err(), 2);
        assert_eq!(connections.admit(far).unwrap_err(), 0);
        connections.limit(limits(3));
        assert!(connections.admit(near).is_ok());
        drop(held);
        assert_eq!(connections.total(), 0);
        connections.limit(limits(0));
        assert_eq!(connections.admit(near).unwrap_err(), 0);
        assert!(lock(&connections.counts).per_ip.is_empty());
    }

    #[test]
    fn what_a_request_takes_counts_until_it_is_dropped() {
        let memory = Arc::new(ReceiveMemory::new(100));
        let claims = [Claim::new(&memory, 60), Claim::new(&memory, 60)];
        assert!(memory.is_short() && memory.wait(1, 0, Waker::noop()));
        drop(claims);
        assert!(!memory.is_short() && !memory.is_wanted());
        assert_eq!(memory.claimed.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn memory_is_short_until_claims_fall_below_the_limit() {
        let memory = ReceiveMemory::new(100);
        memory.change(0, 99);
        assert!(!memory.is_short());
        memory.change(0, 50);
        assert!(memory.is_short() && memory.wait(1, 0, Waker::noop()) && memory.is_wanted());
        memory.change(99, 60);
        assert!(memory.is_short() && memory.is_wanted());
        memory.change(60, 0);
        assert!(!memory.is_short() && !memory.is_wanted());
    }
}
