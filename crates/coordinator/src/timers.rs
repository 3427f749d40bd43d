//! Deadlines by name. Moving a deadline into the future costs one lookup: the queue keeps its old place until that time
//! comes, and only then the new one counts.

use std::collections::{BTreeMap, BTreeSet};

/// Named deadlines in milliseconds of a clock that never goes back.
#[derive(Debug)]
pub struct Timers<K> {
    deadlines: BTreeMap<K, Deadline>,
    queue: BTreeSet<(i64, K)>,
}

#[derive(Debug, Clone, Copy)]
struct Deadline {
    at: i64,
    /// Its place in the queue, not after `at`.
    queued: i64,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self { deadlines: BTreeMap::new(), queue: BTreeSet::new() }
    }
}

impl<K: Ord + Clone> Timers<K> {
    /// Sets the deadline of `key`, in place of the one it has.
    pub fn set(&mut self, key: K, at: i64) {
        if let Some(deadline) = self.deadlines.get_mut(&key) {
            if deadline.queued <= at {
                deadline.at = at;
                return;
            }
            self.queue.remove(&(deadline.queued, key.clone()));
        }
        self.deadlines.insert(key.clone(), Deadline { at, queued: at });
        self.queue.insert((at, key));
    }

    /// Whether `key` has a deadline.
    pub fn contains(&self, key: &K) -> bool {
        self.deadlines.contains_key(key)
    }

    /// Takes the deadline of `key` away.
    pub fn cancel(&mut self, key: &K) {
        if let Some((key, deadline)) = self.deadlines.remove_entry(key) {
            self.queue.remove(&(deadline.queued, key));
        }
    }

    /// When to look again: no deadline is before that.
    pub fn next(&self) -> Option<i64> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Takes the first deadline that is not after `now`.
    pub fn pop(&mut self, now: i64) -> Option<K> {
        while self.queue.first().is_some_and(|(at, _)| *at <= now) {
            let (_, key) = self.queue.pop_first()?;
            let deadline = self.deadlines.get_mut(&key)?;
            if deadline.at <= now {
                self.deadlines.remove(&key);
                return Some(key);
            }
            deadline.queued = deadline.at;
            self.queue.insert((deadline.at, key));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::Timers;

    #[test]
    fn deadlines_come_in_their_order_and_once() {
        let mut timers = Timers::default();
        timers.set("b", 20);
        timers.set("a", 10);
        timers.set("c", 30);
        assert_eq!((timers.next(), timers.pop(9)), (Some(10), None));
        assert_eq!([timers.pop(20), timers.pop(20), timers.pop(20)], [Some("a"), Some("b"), None]);
        timers.cancel(&"c");
        assert_eq!((timers.next(), timers.pop(99)), (None, None));
    }

    #[test]
    fn a_deadline_moves_both_ways() {
        let mut timers = Timers::default();
        timers.set("a", 10);
        timers.set("a", 50);
        assert_eq!((timers.pop(49), timers.next()), (None, Some(50)));
        timers.set("a", 30);
        assert_eq!((timers.next(), timers.pop(30), timers.pop(99)), (Some(30), Some("a"), None));
    }
}
