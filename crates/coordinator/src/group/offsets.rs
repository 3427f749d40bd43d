//! Committed offsets, and those that open transactions would commit.

use std::collections::{BTreeMap, BTreeSet};

use milena_protocol::Uuid;
use milena_protocol::messages::OffsetCommitValue;

/// A committed offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommittedOffset {
    pub(super) offset: i64,
    /// Epoch of the last consumed record's leader, or -1.
    pub(super) leader_epoch: i32,
    pub(super) metadata: Box<str>,
    /// When it was committed, ms since 1970.
    pub(super) commit_timestamp: i64,
    /// When it ends, if its client said so, ms since 1970.
    pub(super) expire_timestamp: Option<i64>,
    /// The topic, or zero where that is not known.
    pub(super) topic_id: Uuid,
    /// Offset of the commit itself.
    pub(super) record_offset: i64,
}

impl CommittedOffset {
    pub(super) fn from_record(value: &OffsetCommitValue<'_>, record_offset: i64) -> Self {
        Self {
            offset: value.offset,
            leader_epoch: value.leader_epoch,
            metadata: value.metadata.as_ref().into(),
            commit_timestamp: value.commit_timestamp,
            expire_timestamp: (value.expire_timestamp != -1).then_some(value.expire_timestamp),
            topic_id: value.topic_id,
            record_offset,
        }
    }

    /// Whether it is no longer kept. Without an end of its own, `retention_ms` after `since`.
    pub(super) fn is_expired(&self, now_ms: i64, since: i64, retention_ms: i64) -> bool {
        match self.expire_timestamp {
            Some(end) => now_ms >= end,
            None => now_ms.saturating_sub(since) >= retention_ms,
        }
    }
}

/// The offsets of one group, by topic and partition.
pub(super) type GroupOffsets = BTreeMap<Box<str>, BTreeMap<i32, CommittedOffset>>;

#[derive(Debug, Default)]
struct ByGroup(BTreeMap<Box<str>, GroupOffsets>);

impl ByGroup {
    fn get(&self, group: &str, topic: &str, partition: i32) -> Option<&CommittedOffset> {
        self.0.get(group)?.get(topic)?.get(&partition)
    }

    fn put(&mut self, group: &str, topic: &str, partition: i32, committed: CommittedOffset) -> Option<CommittedOffset> {
        let topics = entry(&mut self.0, group);
        entry(topics, topic).insert(partition, committed)
    }

    fn remove(&mut self, group: &str, topic: &str, partition: i32) -> Option<CommittedOffset> {
        let topics = self.0.get_mut(group)?;
        let partitions = topics.get_mut(topic)?;
        let removed = partitions.remove(&partition);
        if partitions.is_empty() {
            topics.remove(topic);
        }
        if topics.is_empty() {
            self.0.remove(group);
        }
        removed
    }
}

/// The value of a name, which is only copied when it is new.
fn entry<'m, V: Default>(map: &'m mut BTreeMap<Box<str>, V>, name: &str) -> &'m mut V {
    if !map.contains_key(name) {
        map.insert(name.into(), V::default());
    }
    map.get_mut(name).expect("it was just inserted")
}

/// The offsets of all groups.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    committed: ByGroup,
    len: usize,
    /// By producer.
    pending: BTreeMap<i64, ByGroup>,
    /// The producers whose open transactions have offsets of a group.
    open: BTreeMap<Box<str>, BTreeSet<i64>>,
}

impl Offsets {
    /// How many are committed.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, group: &str, topic: &str, partition: i32) -> Option<&CommittedOffset> {
        self.committed.get(group, topic, partition)
    }

    pub(super) fn of_group(&self, group: &str) -> Option<&GroupOffsets> {
        self.committed.0.get(group)
    }

    pub(super) fn put(&mut self, group: &str, topic: &str, partition: i32, committed: CommittedOffset) {
        self.len += usize::from(self.committed.put(group, topic, partition, committed).is_none());
    }

    pub(super) fn put_pending(
        &mut self,
        producer: i64,
        group: &str,
        topic: &str,
        partition: i32,
        committed: CommittedOffset,
    ) {
        self.pending.entry(producer).or_default().put(group, topic, partition, committed);
        entry(&mut self.open, group).insert(producer);
    }

    /// A tombstone: also for what transactions would commit.
    pub(super) fn remove(&mut self, group: &str, topic: &str, partition: i32) {
        self.len -= usize::from(self.committed.remove(group, topic, partition).is_some());
        let Some(producers) = self.open.get_mut(group) else { return };
        producers.retain(|producer| {
            let Some(pending) = self.pending.get_mut(producer) else { return false };
            pending.remove(group, topic, partition);
            pending.0.contains_key(group)
        });
        if producers.is_empty() {
            self.open.remove(group);
        }
    }

    pub(super) fn end_transaction(&mut self, producer: i64, committed: bool) {
        let Some(pending) = self.pending.remove(&producer) else { return };
        for group in pending.0.keys() {
            if let Some(producers) = self.open.get_mut(group) {
                producers.remove(&producer);
                if producers.is_empty() {
                    self.open.remove(group);
                }
            }
        }
        if !committed {
            return;
        }
        for (group, topics) in pending.0 {
            for (topic, partitions) in topics {
                for (partition, offset) in partitions {
                    // The newest commit stays, also where compaction has taken those between away.
                    let existing = self.get(&group, &topic, partition);
                    if existing.is_none_or(|existing| offset.record_offset > existing.record_offset) {
                        self.put(&group, &topic, partition, offset);
                    }
                }
            }
        }
    }

    /// Whether an open transaction has offsets of a group.
    pub(super) fn has_open_transaction(&self, group: &str) -> bool {
        self.open.contains_key(group)
    }

    /// Whether an open transaction is about to change an offset.
    pub(super) fn is_pending(&self, group: &str, topic: &str, partition: i32) -> bool {
        let producers = self.open.get(group).into_iter().flatten();
        let mut pending = producers.filter_map(|producer| self.pending.get(producer));
        pending.any(|offsets| offsets.get(group, topic, partition).is_some())
    }

    /// All partitions that a group has committed or is about to, each once.
    pub(super) fn keys_of_group(&self, group: &str) -> BTreeSet<(&str, i32)> {
        let producers = self.open.get(group).into_iter().flatten();
        let pending = producers.filter_map(|producer| self.pending.get(producer)?.0.get(group));
        let all = self.of_group(group).into_iter().chain(pending);
        all.flat_map(|topics| topics.iter())
            .flat_map(|(topic, partitions)| partitions.keys().map(move |partition| (&**topic, *partition)))
            .collect()
    }

    /// The groups that have offsets, committed or about to be.
    pub(super) fn groups(&self) -> BTreeSet<&str> {
        self.committed.0.keys().chain(self.open.keys()).map(|group| &**group).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_open_in_a_group_as_long_as_it_has_offsets_there() {
        let committed = CommittedOffset::from_record(&OffsetCommitValue::default(), 7);
        let mut offsets = Offsets::default();
        let open = |offsets: &Offsets| ["g", "h"].map(|group| offsets.has_open_transaction(group));
        offsets.put_pending(1, "g", "t", 0, committed.clone());
        offsets.put_pending(1, "h", "t", 0, committed.clone());
        offsets.put_pending(2, "h", "t", 0, committed);
        assert_eq!(open(&offsets), [true, true]);
        offsets.remove("g", "t", 0);
        assert_eq!(open(&offsets), [false, true]);
        offsets.end_transaction(1, true);
        assert_eq!((open(&offsets), offsets.len()), ([false, true], 1));
        offsets.end_transaction(2, false);
        assert_eq!((open(&offsets), offsets.len()), ([false, false], 1));
    }
}
