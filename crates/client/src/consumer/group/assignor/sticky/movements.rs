//! Which partitions went from whom to whom while an assignment was balanced, so that no two partitions of a topic are
//! exchanged for each other.

use std::collections::BTreeMap;

use super::Input;
use crate::consumer::group::assignor::java_order;
use crate::consumer::group::assignor::partition_number;

/// From whom, and to whom.
type Pair = (usize, usize);

/// Partitions in the order in which Java's hash set has them.
#[derive(Debug, Default)]
struct HashSet {
    partitions: Vec<usize>,
    /// The most there ever were: Java's tables do not shrink.
    most: usize,
}

impl HashSet {
    fn insert(&mut self, partition: usize) {
        self.partitions.push(partition);
        self.most = self.most.max(self.partitions.len());
    }

    fn first(&self, input: &Input<'_>) -> Option<usize> {
        let capacity = java_order::capacity(self.most);
        let place = |partition: &usize| {
            let topic = input.topics[input.topic_of[*partition]].0;
            let hash = java_order::hash_partition(topic, partition_number(input.number(*partition)));
            java_order::place(hash, capacity)
        };
        self.partitions.iter().copied().min_by_key(place)
    }
}

#[derive(Debug, Default)]
pub(super) struct Movements {
    by_partition: BTreeMap<usize, Pair>,
    /// By topic and pair.
    by_pair: BTreeMap<(usize, Pair), HashSet>,
}

impl Movements {
    /// A partition goes from one member to another.
    pub(super) fn record(&mut self, topic: usize, partition: usize, from: usize, to: usize) {
        let mut pair = (from, to);
        if let Some(before) = self.by_partition.remove(&partition) {
            if let Some(set) = self.by_pair.get_mut(&(topic, before)) {
                set.partitions.retain(|other| *other != partition);
                if set.partitions.is_empty() {
                    self.by_pair.remove(&(topic, before));
                }
            }
            if before.0 == to {
                return;
            }
            pair = (before.0, to);
        }
        self.by_partition.insert(partition, pair);
        self.by_pair.entry((topic, pair)).or_default().insert(partition);
    }

    /// The partition of the same topic that should go instead: one that came the other way.
    pub(super) fn actual(&self, input: &Input<'_>, partition: usize, from: usize, to: usize) -> usize {
        let from = self.by_partition.get(&partition).map_or(from, |(source, _)| *source);
        let reverse = self.by_pair.get(&(input.topic_of[partition], (to, from)));
        reverse.and_then(|set| set.first(input)).unwrap_or(partition)
    }
}
