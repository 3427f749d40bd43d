//! What administrators ask of groups.

use std::collections::BTreeSet;

use milena_protocol::ErrorCode;
use milena_protocol::messages::delete_groups_response::DeletableGroupResult;
use milena_protocol::messages::describe_groups_response::DescribedGroup;
use milena_protocol::messages::list_groups_response::ListedGroup;
use milena_protocol::messages::offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use milena_protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse};

use super::api::{ListFilter, Reply};
use super::consumer::CONSUMER;
use super::expire::offset_key;
use super::{After, GroupCx, Groups};
use crate::engine::Ticket;

/// State of a group that does not exist.
const DEAD: &str = "Dead";
/// Type of classic groups.
const CLASSIC: &str = "classic";

impl Groups {
    pub(super) fn list(&self, ticket: Ticket, filter: &ListFilter<'_>, cx: &mut GroupCx<'_, '_>) {
        let admits =
            |wanted: &BTreeSet<String>, found: &str| wanted.is_empty() || wanted.contains(&found.to_ascii_lowercase());
        let groups = self
            .groups
            .iter()
            .filter(|(_, group)| admits(filter.states, group.state().name()) && admits(filter.types, CLASSIC));
        let listed = groups.map(|(id, group)| ListedGroup {
            group_id: id.to_string().into(),
            protocol_type: group.protocol_type().unwrap_or_default().to_owned().into(),
            group_state: group.state().name().into(),
            group_type: CLASSIC.into(),
        });
        let consumers = self
            .consumers
            .iter()
            .filter(|(_, group)| admits(filter.states, group.state()) && admits(filter.types, CONSUMER));
        let listed = listed.chain(consumers.map(|(id, group)| group.listed(id))).collect();
        cx.reply_when_committed(ticket, Reply::List(listed));
    }

    pub(super) fn describe(&self, ticket: Ticket, id: &str, cx: &mut GroupCx<'_, '_>) {
        let described = match self.groups.get(id) {
            Some(group) => group.describe(),
            None => DescribedGroup { group_id: id.to_owned().into(), group_state: DEAD.into(), ..Default::default() },
        };
        cx.reply_when_committed(ticket, Reply::Describe(described));
    }

    pub(super) fn delete(&self, ticket: Ticket, id: &str, cx: &mut GroupCx<'_, '_>) {
        let mut records = cx.records();
        let error = match self.is_group_empty(id) {
            None => ErrorCode::GROUP_ID_NOT_FOUND,
            Some(false) => ErrorCode::NON_EMPTY_GROUP,
            Some(true) => {
                for (topic, partition) in self.offsets.keys_of_group(id) {
                    records.remove(&offset_key(id, topic, partition));
                }
                self.remove_group(id, &mut records);
                ErrorCode::NONE
            }
        };
        let group_id = id.to_owned().into();
        let deleted = DeletableGroupResult { group_id, error_code: error.0, ..Default::default() };
        cx.write(records, After::Deleted(ticket, Reply::Delete(deleted)));
    }

    pub(super) fn delete_offsets(&self, ticket: Ticket, request: &OffsetDeleteRequest<'_>, cx: &mut GroupCx<'_, '_>) {
        let id = &*request.group_id;
        let refused = match self.groups.get(id) {
            Some(group) => (!group.may_delete_offsets()).then_some(ErrorCode::NON_EMPTY_GROUP),
            None => (!self.consumers.contains_key(id)).then_some(ErrorCode::GROUP_ID_NOT_FOUND),
        };
        if let Some(error) = refused {
            let response = OffsetDeleteResponse { error_code: error.0, ..Default::default() };
            return cx.reply(ticket, Reply::DeleteOffsets(response));
        }
        let mut records = cx.records();
        let mut topics = Vec::with_capacity(request.topics.len());
        for topic in &request.topics {
            let subscribed = self.is_subscribed(id, &topic.name);
            let error = if subscribed { ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC } else { ErrorCode::NONE };
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for asked in &topic.partitions {
                let (topic, partition) = (&*topic.name, asked.partition_index);
                let known =
                    self.offsets.get(id, topic, partition).is_some() || self.offsets.is_pending(id, topic, partition);
                if !subscribed && known {
                    records.remove(&offset_key(id, topic, partition));
                }
                partitions.push(OffsetDeleteResponsePartition { partition_index: partition, error_code: error.0 });
            }
            topics.push(OffsetDeleteResponseTopic { name: topic.name.to_string().into(), partitions });
        }
        let response = OffsetDeleteResponse { topics, ..Default::default() };
        cx.write(records, After::Deleted(ticket, Reply::DeleteOffsets(response)));
    }
}
