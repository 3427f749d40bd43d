//! Which partition a record goes to: by the hash of its key, or, without one, to one partition for about a batch's bytes and
//! then to another, less often to those that are behind (KIP-794). Or as a [`Partitioner`] says.

use std::fmt::Debug;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::metadata::Topic;

/// Chooses the partitions of records that name none. It is asked while the producer's batches are locked: it must not wait.
///
/// ```
/// use milena_client::{Partitioner, Topic, partition_of_key};
///
/// /// Records of great customers have a partition of their own.
/// #[derive(Debug)]
/// struct GreatOnesFirst;
///
/// impl Partitioner for GreatOnesFirst {
///     fn partition(&self, topic: &Topic, key: Option<&[u8]>, _: Option<&[u8]>) -> Option<i32> {
///         let key = key?;
///         let others = topic.partitions.len() - 1;
///         Some(if key.starts_with(b"great-") || others == 0 { 0 } else { 1 + partition_of_key(key, others) })
///     }
/// }
/// ```
pub trait Partitioner: Debug + Send + Sync {
    /// The partition of a record with this key and value, of those that the topic has; it has at least one. `None` leaves it to
    /// the producer, as for a record without a key.
    fn partition(&self, topic: &Topic, key: Option<&[u8]>, value: Option<&[u8]>) -> Option<i32>;
}

/// Each record goes to the next partition of its topic that has a leader, whatever its key: Kafka's `RoundRobinPartitioner`.
#[derive(Debug, Default)]
pub struct RoundRobin {
    /// Records so far, by topic.
    counts: Mutex<FxHashMap<String, usize>>,
}

impl Partitioner for RoundRobin {
    fn partition(&self, topic: &Topic, _: Option<&[u8]>, _: Option<&[u8]>) -> Option<i32> {
        let mut counts = self.counts.lock();
        let count = match counts.get_mut(&*topic.name) {
            Some(count) => count,
            None => counts.entry(topic.name.to_string()).or_default(),
        };
        let turn = *count;
        *count = turn.wrapping_add(1);
        let led = || topic.partitions.iter().filter(|partition| partition.leader.is_some());
        match led().count() {
            0 => Some((turn % topic.partitions.len()) as i32),
            with_leader => led().nth(turn % with_leader).map(|partition| partition.index),
        }
    }
}

/// Kafka's hash of keys: murmur2 with its own seed.
pub(crate) fn murmur2(key: &[u8]) -> i32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    let mut hash = SEED ^ key.len() as u32;
    let (words, rest) = key.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> R;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, byte| tail << 8 | u32::from(*byte));
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    (hash ^ hash >> 15).cast_signed()
}

/// The partition that Kafka's clients, and this one, choose for a key among so many, of which there is at least one.
pub fn partition_of_key(key: &[u8], partitions: usize) -> i32 {
    (murmur2(key) & i32::MAX) % partitions as i32
}

/// The partition that records without a key go to at the moment.
#[derive(Debug, Default)]
pub(super) struct Sticky {
    current: Option<i32>,
    /// Bytes since it became so.
    bytes: usize,
}

impl Sticky {
    /// The partition for the next record; a new one is chosen by `choose` where there is none.
    pub(super) fn current(&mut self, choose: impl FnOnce() -> i32) -> i32 {
        *self.current.get_or_insert_with(choose)
    }

    /// A record of so many bytes went there. After a batch's worth of bytes another partition's turn comes, but not in the
    /// middle of a batch, unless it is long overdue.
    pub(super) fn added(&mut self, bytes: usize, batch_size: usize, batch_is_full: bool) {
        self.bytes += bytes;
        if self.bytes >= batch_size && batch_is_full || self.bytes >= 2 * batch_size {
            *self = Self::default();
        }
    }
}

/// A partition by chance, from those given with the number of batches that wait for each: the shorter the queue, the more
/// likely. `random` gives a number below its argument. `None` when there are none.
pub(super) fn weighted(
    queues: impl Iterator<Item = (i32, usize)> + Clone,
    random: impl FnOnce(usize) -> usize,
) -> Option<i32> {
    let longest = queues.clone().map(|(_, waiting)| waiting).max()?;
    let weight = |waiting: usize| longest + 1 - waiting;
    let total = queues.clone().map(|(_, waiting)| weight(waiting)).sum();
    let mut left = random(total);
    for (partition, waiting) in queues {
        match left.checked_sub(weight(waiting)) {
            Some(rest) => left = rest,
            None => return Some(partition),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_kafkas_hashes() {
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()), hash, "{key}");
        }
    }

    #[test]
    fn a_partition_is_kept_for_a_batch_and_not_left_in_the_middle_of_one() {
        let mut sticky = Sticky::default();
        assert_eq!(sticky.current(|| 4), 4);
        sticky.added(100, 100, false);
        assert_eq!(sticky.current(|| 5), 4);
        sticky.added(50, 100, true);
        assert_eq!(sticky.current(|| 5), 5);
        sticky.added(200, 100, false);
        assert_eq!(sticky.current(|| 6), 6);
    }

    #[test]
    fn short_queues_are_more_likely() {
        let queues = [(0, 3), (1, 0), (2, 1)];
        let chosen = |at: usize| {
            weighted(queues.into_iter(), |total| {
                assert_eq!(total, 1 + 4 + 3);
                at
            })
        };
        assert_eq!((0..8).map(|at| chosen(at).unwrap()).collect::<Vec<_>>(), [0, 1, 1, 1, 1, 2, 2, 2]);
        assert_eq!(weighted(std::iter::empty(), |_| 0), None);
    }
}
