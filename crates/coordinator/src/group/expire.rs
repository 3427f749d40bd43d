//! Offsets that are no longer kept: because of their age, or because their topic is gone. A group without offsets and
//! members goes with them.

use std::collections::BTreeSet;

use milena_protocol::messages::{GroupMetadataKey, OffsetCommitKey};

use super::api::{DeletedTopics, Reply};
use super::classic::ClassicGroup;
use super::consumer::{ConsumerGroup, Writing};
use super::{After, GroupCx, Groups, Timer};
use crate::engine::Ticket;
use crate::records::Records;

impl Groups {
    pub(super) fn schedule_expiry(&self, cx: &mut GroupCx<'_, '_>) {
        let interval = cx.settings().offsets_retention_check_interval_ms;
        cx.set_timer(Timer::Expiry, interval);
    }

    pub(super) fn expire(&self, cx: &mut GroupCx<'_, '_>) {
        let (now_ms, retention_ms) = (cx.now().wall_ms, cx.settings().offsets_retention_ms);
        let mut records = cx.records().splittable();
        for id in self.groups.keys().chain(self.consumers.keys()) {
            if self.expire_group(id, now_ms, retention_ms, &mut records) && self.is_group_empty(id) == Some(true) {
                self.remove_group(id, &mut records);
            }
        }
        if !records.is_empty() {
            cx.write(records, After::Nothing);
        }
        self.schedule_expiry(cx);
    }

    /// Adds tombstones for a group's old offsets; true when none is left.
    fn expire_group(&self, id: &str, now_ms: i64, retention_ms: i64, records: &mut Records) -> bool {
        let Some(topics) = self.offsets.of_group(id) else { return !self.offsets.has_open_transaction(id) };
        // Those of a consumer group age from their commit on, unless it reads their topic.
        let kept_since = self.groups.get(id).map_or(Some(None), ClassicGroup::offsets_kept_since);
        let Some(kept_since) = kept_since else { return false };
        let mut all = true;
        for (topic, partitions) in topics {
            let subscribed = self.is_subscribed(id, topic);
            for (partition, committed) in partitions {
                let since = kept_since.unwrap_or(committed.commit_timestamp);
                let expired = !subscribed
                    && committed.is_expired(now_ms, since, retention_ms)
                    && !self.offsets.is_pending(id, topic, *partition);
                if expired {
                    records.remove(&offset_key(id, topic, *partition));
                }
                all &= expired;
            }
        }
        all && !self.offsets.has_open_transaction(id)
    }

    /// Whether a group has no members; `None` when it does not exist.
    pub(super) fn is_group_empty(&self, id: &str) -> Option<bool> {
        let classic = self.groups.get(id).map(ClassicGroup::is_empty);
        classic.or_else(|| self.consumers.get(id).map(ConsumerGroup::is_empty))
    }

    /// Whether a group reads a topic.
    pub(super) fn is_subscribed(&self, id: &str, topic: &str) -> bool {
        self.groups.get(id).is_some_and(|group| group.is_subscribed_to(topic))
            || self.consumers.get(id).is_some_and(|group| group.is_subscribed_to(topic))
    }

    /// Adds the tombstones of a group without members.
    pub(super) fn remove_group(&self, id: &str, records: &mut Records) {
        match self.consumers.get(id) {
            Some(group) => Writing { group: id, records }.remove_group(group, std::iter::empty()),
            None => records.remove(&group_key(id)),
        }
    }

    pub(super) fn topics_deleted(&self, ticket: Ticket, topics: DeletedTopics<'_>, cx: &mut GroupCx<'_, '_>) {
        let mut records = cx.records().splittable();
        let deleted: BTreeSet<&str> = topics.iter().map(String::as_str).collect();
        for group in self.offsets.groups() {
            for (topic, partition) in self.offsets.keys_of_group(group) {
                if deleted.contains(topic) {
                    records.remove(&offset_key(group, topic, partition));
                }
            }
        }
        cx.write(records, After::Deleted(ticket, Reply::TopicsDeleted));
    }
}

pub(super) fn offset_key<'k>(group: &'k str, topic: &'k str, partition: i32) -> OffsetCommitKey<'k> {
    OffsetCommitKey { group: group.into(), topic: topic.into(), partition }
}

pub(super) fn group_key(group: &str) -> GroupMetadataKey<'_> {
    GroupMetadataKey { group: group.into() }
}
