//! A classic group in its record, and in DescribeGroups.

use std::sync::Arc;

use milena_protocol::messages::GroupMetadataValue;
use milena_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use milena_protocol::messages::group_metadata_value::MemberMetadata;

use super::{ClassicGroup, Member, Protocols, State};
use crate::group::expire::group_key;
use crate::records::Records;

/// Version of a group's record.
const GROUP_METADATA_VERSION: i16 = 3;

impl ClassicGroup {
    /// The group as a record has it. Its members are those of a generation that is complete.
    pub(in crate::group) fn from_record(id: Arc<str>, value: &GroupMetadataValue<'_>) -> Self {
        let mut group = Self::new(id, (value.current_state_timestamp != -1).then_some(value.current_state_timestamp));
        group.generation = value.generation;
        group.protocol_name = value.protocol.as_deref().map(str::to_owned);
        group.leader = value.leader.as_deref().map(Arc::from);
        for member in &value.members {
            group.add(recorded_member(value, member));
        }
        group.protocol_type = Some(&*value.protocol_type).filter(|name| !name.is_empty()).map(str::to_owned);
        group.state = if group.members.is_empty() { State::Empty } else { State::Stable };
        group.subscribed = group.read_subscriptions();
        group
    }

    /// Adds the group's record, with the assignment that `assignment` gives for each member.
    pub(in crate::group) fn put<'g>(&'g self, assignment: impl Fn(&'g Member) -> &'g [u8], records: &mut Records) {
        let protocol = self.protocol_name().unwrap_or_default();
        let member = |member: &'g Member| MemberMetadata {
            member_id: member.id.as_ref().into(),
            group_instance_id: member.instance.as_deref().map(Into::into),
            client_id: member.client_id.as_str().into(),
            client_host: member.client_host.as_str().into(),
            rebalance_timeout: member.rebalance_timeout_ms,
            session_timeout: member.session_timeout_ms,
            subscription: member.protocols.metadata(protocol).unwrap_or_default().into(),
            assignment: assignment(member).into(),
        };
        let value = GroupMetadataValue {
            protocol_type: self.protocol_type().unwrap_or_default().into(),
            generation: self.generation,
            protocol: self.protocol_name().map(Into::into),
            leader: self.leader().map(|leader| leader.as_ref().into()),
            current_state_timestamp: self.state_since.unwrap_or(-1),
            members: self.members.values().map(member).collect(),
        };
        records.put(&group_key(&self.id), &value, GROUP_METADATA_VERSION);
    }

    /// The group as DescribeGroups shows it; the protocol and its metadata only when the members have agreed.
    pub(in crate::group) fn describe(&self) -> DescribedGroup<'static> {
        let protocol = self.protocol_name().filter(|_| self.state == State::Stable).unwrap_or_default();
        let member = |member: &Member| DescribedGroupMember {
            member_id: member.id.to_string().into(),
            group_instance_id: member.instance.clone().map(Into::into),
            client_id: member.client_id.clone().into(),
            client_host: member.client_host.clone().into(),
            member_metadata: member.protocols.metadata(protocol).unwrap_or_default().to_vec().into(),
            member_assignment: member.assignment.clone().into(),
        };
        DescribedGroup {
            group_id: self.id.to_string().into(),
            group_state: self.state.name().into(),
            protocol_type: self.protocol_type().unwrap_or_default().to_owned().into(),
            protocol_data: protocol.to_owned().into(),
            members: self.members.values().map(member).collect(),
            ..Default::default()
        }
    }
}

fn recorded_member(group: &GroupMetadataValue<'_>, member: &MemberMetadata<'_>) -> Member {
    let rebalance_timeout_ms = match member.rebalance_timeout {
        -1 => member.session_timeout,
        timeout => timeout,
    };
    Member {
        id: Arc::from(&*member.member_id),
        instance: member.group_instance_id.as_deref().map(str::to_owned),
        client_id: member.client_id.to_string(),
        client_host: member.client_host.to_string(),
        rebalance_timeout_ms,
        session_timeout_ms: member.session_timeout,
        protocol_type: group.protocol_type.to_string(),
        protocols: Protocols::only(group.protocol.as_deref().unwrap_or_default(), &member.subscription),
        assignment: member.assignment.to_vec(),
        join: None,
        sync: None,
        is_new: false,
    }
}
