//! ConsumerGroupDescribe, and what ListGroups shows.

use std::collections::BTreeMap;

use milena_protocol::messages::consumer_group_describe_response::{
    Assignment, DescribedGroup, Member as Described, TopicPartitions,
};
use milena_protocol::messages::list_groups_response::ListedGroup;
use milena_protocol::{ErrorCode, Uuid};

use super::heartbeat::clipped;
use super::member::Member;
use super::{ConsumerGroup, Metadata};
use crate::engine::Ticket;
use crate::group::api::Reply;
use crate::group::{GroupCx, Groups};

/// Type of consumer groups, and protocol type of their members.
pub(in crate::group) const CONSUMER: &str = "consumer";
/// A member that speaks the classic protocol, and one of the consumer protocol.
const CLASSIC_MEMBER: i8 = 0;
const CONSUMER_MEMBER: i8 = 1;

impl Groups {
    pub(in crate::group) fn describe_consumers(&self, ticket: Ticket, id: &str, cx: &mut GroupCx<'_, '_>) {
        let described = match self.consumers.get(id) {
            Some(group) => group.describe(id, &*cx.settings().metadata),
            None => DescribedGroup {
                error_code: ErrorCode::GROUP_ID_NOT_FOUND.0,
                error_message: Some(clipped(format!("Group {id} not found.")).into()),
                group_id: id.to_owned().into(),
                ..Default::default()
            },
        };
        cx.reply_when_committed(ticket, Reply::DescribeConsumers(described));
    }
}

impl ConsumerGroup {
    /// As ListGroups shows it.
    pub(in crate::group) fn listed(&self, id: &str) -> ListedGroup<'static> {
        ListedGroup {
            group_id: id.to_owned().into(),
            protocol_type: CONSUMER.into(),
            group_state: self.state().into(),
            group_type: CONSUMER.into(),
        }
    }

    fn describe(&self, id: &str, metadata: &dyn Metadata) -> DescribedGroup<'static> {
        DescribedGroup {
            group_id: id.to_owned().into(),
            group_state: self.state().into(),
            group_epoch: self.epoch,
            assignment_epoch: self.target_epoch,
            assignor_name: Self::assignor(self.members.values())
                .map_or_else(|| metadata.assignors().into_iter().next().unwrap_or_default(), str::to_owned)
                .into(),
            members: self.members.values().map(|member| self.described(member, metadata)).collect(),
            ..Default::default()
        }
    }

    fn described(&self, member: &Member, metadata: &dyn Metadata) -> Described<'static> {
        // What it is to give up is its own until it says that it has.
        let mut owned: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
        for (topic, partitions) in member.assigned.iter().chain(&member.revoking) {
            owned.entry(*topic).or_default().extend(partitions.keys());
        }
        let target = self.targets.get(&member.id).into_iter().flatten();
        Described {
            member_id: member.id.to_string().into(),
            instance_id: member.instance.clone().map(Into::into),
            rack_id: member.rack.clone().map(Into::into),
            member_epoch: member.epoch,
            client_id: member.client_id.clone().into(),
            client_host: member.client_host.clone().into(),
            subscribed_topic_names: member.names.iter().map(|name| name.clone().into()).collect(),
            subscribed_topic_regex: Some(member.regex.clone().into()),
            assignment: named(owned, metadata),
            target_assignment: named(target.map(|(id, all)| (*id, all.iter().copied().collect())), metadata),
            member_type: member.classic.as_ref().map_or(CONSUMER_MEMBER, |_| CLASSIC_MEMBER),
        }
    }
}

/// Partitions with the names of their topics, as far as these exist.
fn named(partitions: impl IntoIterator<Item = (Uuid, Vec<i32>)>, metadata: &dyn Metadata) -> Assignment<'static> {
    let topic = |(topic_id, partitions): (Uuid, Vec<i32>)| {
        Some(TopicPartitions { topic_id, topic_name: metadata.name(topic_id)?.into(), partitions: partitions.into() })
    };
    Assignment { topic_partitions: partitions.into_iter().filter_map(topic).collect() }
}
