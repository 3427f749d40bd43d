//! Consumer groups in their records: one for the group's epoch, one for the assignment's, and three for each member.

use std::borrow::Cow;
use std::sync::Arc;

use milena_protocol::messages::consumer_group_current_member_assignment_value::TopicPartitions;
use milena_protocol::messages::consumer_group_member_metadata_value::{ClassicMemberMetadata, ClassicProtocol};
use milena_protocol::messages::consumer_group_target_assignment_member_value::TopicPartition;
use milena_protocol::messages::{
    ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey, ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue,
};
use milena_protocol::{DecodeError, Message, Str};

use super::assign::Partitions;
use super::member::{ClassicSide, Member, MemberState, Owned};
use super::{ConsumerGroup, Resolved};
use crate::engine::Replayed;
use crate::group::classic::Protocols;
use crate::group::{Groups, decode, versioned};
use crate::records::Records;

/// Version of all values.
const VERSION: i16 = 0;

/// Types of the records.
const GROUP: i16 = 3;
const MEMBER: i16 = 5;
const TARGET_EPOCH: i16 = 6;
const TARGET: i16 = 7;
const CURRENT: i16 = 8;
const REGEX: i16 = 16;

/// Writes the records of one group.
pub(in crate::group) struct Writing<'w> {
    pub(in crate::group) group: &'w str,
    pub(in crate::group) records: &'w mut Records,
}

impl Writing<'_> {
    pub(super) fn epoch(&mut self, epoch: i32, metadata_hash: i64) {
        let key = ConsumerGroupMetadataKey { group_id: self.group.into() };
        self.records.put(&key, &ConsumerGroupMetadataValue { epoch, metadata_hash }, VERSION);
    }

    pub(super) fn target_epoch(&mut self, assignment_epoch: i32, assignment_timestamp: i64) {
        let key = ConsumerGroupTargetAssignmentMetadataKey { group_id: self.group.into() };
        let value = ConsumerGroupTargetAssignmentMetadataValue { assignment_epoch, assignment_timestamp };
        self.records.put(&key, &value, VERSION);
    }

    pub(super) fn target(&mut self, member: &str, partitions: &Partitions) {
        let key = ConsumerGroupTargetAssignmentMemberKey { group_id: self.group.into(), member_id: member.into() };
        let topic = |(topic_id, partitions): (&_, &std::collections::BTreeSet<i32>)| TopicPartition {
            topic_id: *topic_id,
            partitions: partitions.iter().copied().collect::<Vec<_>>().into(),
        };
        let value =
            ConsumerGroupTargetAssignmentMemberValue { topic_partitions: partitions.iter().map(topic).collect() };
        self.records.put(&key, &value, VERSION);
    }

    /// What the member asks for.
    pub(super) fn member(&mut self, member: &Member) {
        let key = ConsumerGroupMemberMetadataKey { group_id: self.group.into(), member_id: member.id.as_ref().into() };
        let value = ConsumerGroupMemberMetadataValue {
            instance_id: member.instance.as_deref().map(Into::into),
            rack_id: member.rack.as_deref().map(Into::into),
            client_id: member.client_id.as_str().into(),
            client_host: member.client_host.as_str().into(),
            subscribed_topic_names: member.names.iter().map(|name| name.as_str().into()).collect(),
            subscribed_topic_regex: Some(member.regex.as_str().into()),
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            server_assignor: member.assignor.as_deref().map(Into::into),
            classic_member_metadata: member.classic.as_ref().map(recorded_classic),
        };
        self.records.put(&key, &value, VERSION);
    }

    /// What the member owns.
    pub(super) fn current(&mut self, member: &Member) {
        let key = ConsumerGroupCurrentMemberAssignmentKey {
            group_id: self.group.into(),
            member_id: member.id.as_ref().into(),
        };
        let value = ConsumerGroupCurrentMemberAssignmentValue {
            member_epoch: member.epoch,
            previous_member_epoch: member.previous_epoch,
            state: member.state.number(),
            assigned_partitions: recorded(&member.assigned),
            partitions_pending_revocation: recorded(&member.revoking),
        };
        self.records.put(&key, &value, VERSION);
    }

    pub(super) fn remove_member(&mut self, member: &str) {
        self.remove_current(member);
        self.remove_target(member);
        self.remove_subscription(member);
    }

    fn remove_current(&mut self, member: &str) {
        self.records
            .remove(&ConsumerGroupCurrentMemberAssignmentKey { group_id: self.group.into(), member_id: member.into() });
    }

    fn remove_target(&mut self, member: &str) {
        self.records
            .remove(&ConsumerGroupTargetAssignmentMemberKey { group_id: self.group.into(), member_id: member.into() });
    }

    fn remove_subscription(&mut self, member: &str) {
        self.records.remove(&ConsumerGroupMemberMetadataKey { group_id: self.group.into(), member_id: member.into() });
    }

    pub(super) fn regex(&mut self, regex: &str, resolved: &Resolved) {
        let key = ConsumerGroupRegularExpressionKey { group_id: self.group.into(), regular_expression: regex.into() };
        let value = ConsumerGroupRegularExpressionValue {
            topics: resolved.topics.iter().map(|topic| topic.as_str().into()).collect(),
            version: resolved.version,
            timestamp: resolved.timestamp,
        };
        self.records.put(&key, &value, VERSION);
    }

    pub(super) fn remove_regex(&mut self, regex: &str) {
        self.records.remove(&ConsumerGroupRegularExpressionKey {
            group_id: self.group.into(),
            regular_expression: regex.into(),
        });
    }

    /// Everything of a group that has members of these ids.
    pub(in crate::group) fn remove_group<'m>(
        &mut self,
        group: &ConsumerGroup,
        members: impl Iterator<Item = &'m str> + Clone,
    ) {
        members.clone().for_each(|member| self.remove_current(member));
        members.clone().for_each(|member| self.remove_target(member));
        self.records.remove(&ConsumerGroupTargetAssignmentMetadataKey { group_id: self.group.into() });
        members.for_each(|member| self.remove_subscription(member));
        // Releases before 4.1 have kept the topics' metadata in a record of its own.
        self.records.remove(&ConsumerGroupPartitionMetadataKey { group_id: self.group.into() });
        for regex in group.regexes.keys() {
            self.remove_regex(regex);
        }
        self.records.remove(&ConsumerGroupMetadataKey { group_id: self.group.into() });
    }
}

fn recorded_classic(classic: &ClassicSide) -> ClassicMemberMetadata<'_> {
    let protocol = |(name, metadata)| ClassicProtocol { name: Str::from(name), metadata: Cow::from(metadata) };
    ClassicMemberMetadata {
        session_timeout_ms: classic.session_timeout_ms,
        supported_protocols: classic.protocols.iter().map(protocol).collect(),
    }
}

fn classic_side(recorded: &ClassicMemberMetadata<'_>) -> ClassicSide {
    let protocols = recorded.supported_protocols.iter();
    ClassicSide {
        session_timeout_ms: recorded.session_timeout_ms,
        protocols: Protocols::pairs(protocols.map(|known| (known.name.to_string(), known.metadata.to_vec()))),
    }
}

fn recorded(owned: &Owned) -> Vec<TopicPartitions<'static>> {
    let topic = |(topic_id, partitions): (&_, &std::collections::BTreeMap<i32, i32>)| TopicPartitions {
        topic_id: *topic_id,
        partitions: partitions.keys().copied().collect::<Vec<_>>().into(),
        assignment_epochs: Some(partitions.values().copied().collect::<Vec<_>>().into()),
    };
    owned.iter().map(topic).collect()
}

fn owned(recorded: &[TopicPartitions<'_>], epoch: i32) -> Owned {
    let topic = |topic: &TopicPartitions<'_>| {
        let epochs: Vec<i32> = topic.assignment_epochs.iter().flat_map(|epochs| epochs.iter().copied()).collect();
        let partitions = topic.partitions.iter().copied().enumerate();
        (
            topic.topic_id,
            partitions.map(|(at, partition)| (partition, epochs.get(at).copied().unwrap_or(epoch))).collect(),
        )
    };
    recorded.iter().map(topic).collect()
}

impl Groups {
    /// Takes a record of a consumer group; false when it is none.
    pub(in crate::group) fn replay_consumers(&mut self, record: &Replayed<'_>) -> Result<bool, DecodeError> {
        match record.kind {
            GROUP => {
                let key: ConsumerGroupMetadataKey<'_> = decode(record.key, 0)?;
                match value::<ConsumerGroupMetadataValue>(record)? {
                    Some(value) => {
                        let group = self.consumer_group(&key.group_id);
                        (group.epoch, group.metadata_hash) = (value.epoch, value.metadata_hash);
                    }
                    None => drop(self.consumers.remove(&*key.group_id)),
                }
            }
            MEMBER => {
                let key: ConsumerGroupMemberMetadataKey<'_> = decode(record.key, 0)?;
                match value::<ConsumerGroupMemberMetadataValue<'_>>(record)? {
                    Some(value) => self.consumer_group(&key.group_id).subscribed(&key.member_id, &value),
                    None => self.known(&key.group_id, |group| group.forget(&key.member_id)),
                }
            }
            TARGET_EPOCH => {
                let key: ConsumerGroupTargetAssignmentMetadataKey<'_> = decode(record.key, 0)?;
                if let Some(value) = value::<ConsumerGroupTargetAssignmentMetadataValue>(record)? {
                    let group = self.consumer_group(&key.group_id);
                    (group.target_epoch, group.target_timestamp) = (value.assignment_epoch, value.assignment_timestamp);
                }
            }
            TARGET => self.replay_target(record)?,
            CURRENT => {
                let key: ConsumerGroupCurrentMemberAssignmentKey<'_> = decode(record.key, 0)?;
                match value::<ConsumerGroupCurrentMemberAssignmentValue<'_>>(record)? {
                    Some(value) => self.consumer_group(&key.group_id).owns(&key.member_id, &value),
                    None => self.known(&key.group_id, |group| group.owns(&key.member_id, &Default::default())),
                }
            }
            REGEX => self.replay_regex(record)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn replay_target(&mut self, record: &Replayed<'_>) -> Result<(), DecodeError> {
        let key: ConsumerGroupTargetAssignmentMemberKey<'_> = decode(record.key, 0)?;
        match value::<ConsumerGroupTargetAssignmentMemberValue<'_>>(record)? {
            Some(value) => {
                let topics = value.topic_partitions.iter();
                let target = topics.map(|topic| (topic.topic_id, topic.partitions.iter().copied().collect())).collect();
                self.consumer_group(&key.group_id).targets.insert(Arc::from(&*key.member_id), target);
            }
            None => self.known(&key.group_id, |group| drop(group.targets.remove(&*key.member_id))),
        }
        Ok(())
    }

    fn replay_regex(&mut self, record: &Replayed<'_>) -> Result<(), DecodeError> {
        let key: ConsumerGroupRegularExpressionKey<'_> = decode(record.key, 0)?;
        match value::<ConsumerGroupRegularExpressionValue<'_>>(record)? {
            Some(value) => {
                let topics = value.topics.iter().map(ToString::to_string).collect();
                let resolved = Resolved { topics, version: value.version, timestamp: value.timestamp };
                let group = self.consumer_group(&key.group_id);
                group.regexes.insert(key.regular_expression.to_string(), resolved);
            }
            None => self.known(&key.group_id, |group| drop(group.regexes.remove(&*key.regular_expression))),
        }
        Ok(())
    }

    /// The group, which comes into being with its first record. One that only kept offsets becomes it.
    fn consumer_group(&mut self, id: &str) -> &mut ConsumerGroup {
        self.groups.remove(id);
        if !self.consumers.contains_key(id) {
            self.consumers.insert(id.into(), ConsumerGroup::new());
        }
        self.consumers.get_mut(id).expect("it was just inserted")
    }

    /// A tombstone of a group that is not there means nothing.
    fn known(&mut self, id: &str, change: impl FnOnce(&mut ConsumerGroup)) {
        if let Some(group) = self.consumers.get_mut(id) {
            change(group);
        }
    }
}

fn value<'a, M: Message<'a>>(record: &Replayed<'a>) -> Result<Option<M>, DecodeError> {
    versioned(record.value)?.map(|(version, value)| decode(value, version)).transpose()
}

impl ConsumerGroup {
    fn subscribed(&mut self, id: &str, value: &ConsumerGroupMemberMetadataValue<'_>) {
        let text = |text: &Option<Str<'_>>| text.as_deref().map(str::to_owned);
        let (instance, rack, assignor) = (text(&value.instance_id), text(&value.rack_id), text(&value.server_assignor));
        let names = value.subscribed_topic_names.iter().map(ToString::to_string).collect();
        let regex = text(&value.subscribed_topic_regex).unwrap_or_default();
        let id = Arc::clone(&self.member_or_new(id).id);
        if let Some(instance) = &instance {
            self.static_members.insert(instance.clone(), id.clone());
        }
        let member = self.member_or_new(&id);
        (member.instance, member.rack, member.assignor) = (instance, rack, assignor);
        (member.names, member.regex) = (names, regex);
        (member.client_id, member.client_host) = (value.client_id.to_string(), value.client_host.to_string());
        member.rebalance_timeout_ms = value.rebalance_timeout_ms;
        member.classic = value.classic_member_metadata.as_ref().map(classic_side);
    }

    fn owns(&mut self, id: &str, value: &ConsumerGroupCurrentMemberAssignmentValue<'_>) {
        self.release(id);
        let member = self.member_or_new(id);
        (member.epoch, member.previous_epoch) = (value.member_epoch, value.previous_member_epoch);
        member.state = MemberState::of(value.state);
        member.assigned = owned(&value.assigned_partitions, value.member_epoch);
        member.revoking = owned(&value.partitions_pending_revocation, value.member_epoch);
        self.claim(id);
    }

    fn forget(&mut self, id: &str) {
        self.release(id);
        if let Some(member) = self.members.remove(id)
            && let Some(instance) = &member.instance
            && self.static_members.get(instance) == Some(&member.id)
        {
            self.static_members.remove(instance);
        }
    }
}
