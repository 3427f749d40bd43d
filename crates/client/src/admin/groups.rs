//! Groups: which there are, who is in them, and their end.

use milena_protocol::messages::consumer_group_describe_response as described;
use milena_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use milena_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerProtocolAssignment, DeleteGroupsRequest, DescribeGroupsRequest,
    ListGroupsRequest,
};
use milena_protocol::{ErrorCode, Message, Reader};

use super::{Admin, Outcomes, TopicPartition};
use crate::call::Target;
use crate::coordinators::CoordinatorKind;
use crate::error::{Error, check};

/// The protocol type of groups of consumers.
const CONSUMER: &str = "consumer";

/// A group in a list. Kinds and states have Kafka's names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupListing {
    /// Its id.
    pub id: String,
    /// `consumer`, `connect`, …; empty for a group that only keeps offsets.
    pub protocol_type: String,
    /// Such as `Stable`; empty from servers that do not say.
    pub state: String,
    /// `classic`, `consumer`, `share`, `streams`; empty from servers that do not say.
    pub kind: String,
}

/// A group and its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupDescription {
    /// Its id.
    pub id: String,
    /// `classic` or `consumer`.
    pub kind: &'static str,
    /// `consumer`, `connect`, …; empty for a group that only keeps offsets.
    pub protocol_type: String,
    /// Such as `Stable`.
    pub state: String,
    /// Who decides which member has what.
    pub assignor: String,
    /// How often the group has changed; `None` for a classic group.
    pub epoch: Option<i32>,
    /// The change that the assignment is for; `None` for a classic group.
    pub assignment_epoch: Option<i32>,
    /// Its members.
    pub members: Vec<GroupMember>,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMember {
    /// Its id.
    pub id: String,
    /// The name that it keeps over restarts, if it has one.
    pub instance_id: Option<String>,
    /// Its client id.
    pub client_id: String,
    /// Where it connects from.
    pub host: String,
    /// The change of the group that it knows of; `None` in a classic group.
    pub epoch: Option<i32>,
    /// What it has.
    pub assignment: Vec<TopicPartition>,
    /// What it shall have; `None` in a classic group.
    pub target: Option<Vec<TopicPartition>>,
    /// Whether it speaks the group's own protocol; `None` where the server does not say.
    pub upgraded: Option<bool>,
}

impl Admin {
    /// The groups of all brokers, by id; with lists that are not empty only those of these states and kinds.
    ///
    /// # Errors
    /// When a broker does not answer.
    pub async fn list_groups(&self, states: &[String], kinds: &[String]) -> Result<Vec<GroupListing>, Error> {
        let request = ListGroupsRequest {
            states_filter: states.iter().map(|state| state.as_str().into()).collect(),
            types_filter: kinds.iter().map(|kind| kind.as_str().into()).collect(),
        };
        let mut groups: Vec<GroupListing> = Vec::new();
        for broker in self.brokers().await? {
            let read = self.client.call(Target::Broker(broker), &request).read(|response| {
                check(response.error_code, None)?;
                let listing = |group: &milena_protocol::messages::list_groups_response::ListedGroup<'_>| GroupListing {
                    id: group.group_id.to_string(),
                    protocol_type: group.protocol_type.to_string(),
                    state: group.group_state.to_string(),
                    kind: group.group_type.to_string(),
                };
                Ok(response.groups.iter().map(listing).collect::<Vec<_>>())
            });
            groups.extend(read.await?);
        }
        groups.sort_by(|one, other| one.id.cmp(&other.id));
        groups.dedup_by(|one, other| one.id == other.id);
        Ok(groups)
    }

    /// Describes groups of both protocols.
    ///
    /// # Errors
    /// Never as a whole; a group that does not exist is an error of its own.
    pub async fn describe_groups(&self, ids: &[String]) -> Result<Outcomes<String, GroupDescription>, Error> {
        let mut groups = Vec::new();
        for id in ids {
            let described = match self.describe_consumer_group(id).await {
                Err(error) if is_classic(&error) => self.describe_classic_group(id).await,
                other => other,
            };
            groups.push((id.clone(), described));
        }
        Ok(groups)
    }

    async fn describe_consumer_group(&self, id: &str) -> Result<GroupDescription, Error> {
        let request = ConsumerGroupDescribeRequest { group_ids: vec![id.into()], ..Default::default() };
        let read = self.client.call(Target::Coordinator(CoordinatorKind::Group, id), &request);
        read.read(|response| {
            let group = response.groups.first().ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)?;
            check(group.error_code, group.error_message.as_deref())?;
            Ok(GroupDescription {
                id: group.group_id.to_string(),
                kind: CONSUMER,
                protocol_type: CONSUMER.to_owned(),
                state: group.group_state.to_string(),
                assignor: group.assignor_name.to_string(),
                epoch: Some(group.group_epoch),
                assignment_epoch: Some(group.assignment_epoch),
                members: group.members.iter().map(member).collect(),
            })
        })
        .await
    }

    async fn describe_classic_group(&self, id: &str) -> Result<GroupDescription, Error> {
        let request = DescribeGroupsRequest { groups: vec![id.into()], ..Default::default() };
        let read = self.client.call(Target::Coordinator(CoordinatorKind::Group, id), &request);
        read.read(|response| {
            let group = response.groups.first().ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)?;
            check(group.error_code, group.error_message.as_deref())?;
            Ok(classic(group))
        })
        .await
    }

    /// Deletes groups with the offsets that they have committed. A group must be empty.
    ///
    /// # Errors
    /// Never as a whole.
    pub async fn delete_groups(&self, ids: &[String]) -> Result<Outcomes<String, ()>, Error> {
        let mut deleted = Vec::new();
        for id in ids {
            let request = DeleteGroupsRequest { groups_names: vec![id.as_str().into()] };
            let read = self.client.call(Target::Coordinator(CoordinatorKind::Group, id), &request).read(|response| {
                let outcome = response.results.first().ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)?;
                check(outcome.error_code, outcome.error_message.as_deref())
            });
            deleted.push((id.clone(), read.await));
        }
        Ok(deleted)
    }
}

/// Whether a group is to be asked for as a classic one.
fn is_classic(error: &Error) -> bool {
    let codes = [ErrorCode::GROUP_ID_NOT_FOUND, ErrorCode::UNSUPPORTED_VERSION];
    matches!(error, Error::UnsupportedVersion { .. }) || error.code().is_some_and(|code| codes.contains(&code))
}

fn member(member: &described::Member<'_>) -> GroupMember {
    let partitions = |assignment: &described::Assignment<'_>| {
        let all = assignment.topic_partitions.iter().flat_map(|topic| {
            topic.partitions.iter().map(|partition| TopicPartition::new(topic.topic_name.as_ref(), *partition))
        });
        all.collect::<Vec<_>>()
    };
    GroupMember {
        id: member.member_id.to_string(),
        instance_id: member.instance_id.as_deref().map(str::to_owned),
        client_id: member.client_id.to_string(),
        host: member.client_host.to_string(),
        epoch: Some(member.member_epoch),
        assignment: partitions(&member.assignment),
        target: Some(partitions(&member.target_assignment)),
        upgraded: (member.member_type >= 0).then_some(member.member_type == 1),
    }
}

fn classic(group: &DescribedGroup<'_>) -> GroupDescription {
    let of_consumers = group.protocol_type.is_empty() || group.protocol_type == CONSUMER;
    let member = |member: &DescribedGroupMember<'_>| GroupMember {
        id: member.member_id.to_string(),
        instance_id: member.group_instance_id.as_deref().map(str::to_owned),
        client_id: member.client_id.to_string(),
        host: member.client_host.to_string(),
        epoch: None,
        assignment: if of_consumers { assignment(&member.member_assignment) } else { Vec::new() },
        target: None,
        upgraded: None,
    };
    GroupDescription {
        id: group.group_id.to_string(),
        kind: "classic",
        protocol_type: group.protocol_type.to_string(),
        state: group.group_state.to_string(),
        assignor: group.protocol_data.to_string(),
        epoch: None,
        assignment_epoch: None,
        members: group.members.iter().map(member).collect(),
    }
}

/// What a consumer was assigned, in the form in which its leader wrote it; nothing if that makes no sense.
fn assignment(bytes: &[u8]) -> Vec<TopicPartition> {
    let mut reader = Reader::new(bytes);
    let version = reader.i16().unwrap_or(-1).min(ConsumerProtocolAssignment::MAX_VERSION);
    let Ok(assignment) = ConsumerProtocolAssignment::decode(&mut reader, version) else { return Vec::new() };
    let all = assignment.assigned_partitions.iter().flat_map(|topic| {
        topic.partitions.iter().map(|partition| TopicPartition::new(topic.topic.as_ref(), *partition))
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_classic_members_assignment_is_read_whatever_its_version() {
        // Version, one topic "ab" with partitions 1 and 7, no user data.
        let bytes = [0, 9, 0, 0, 0, 1, 0, 2, b'a', b'b', 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(assignment(&bytes), [TopicPartition::new("ab", 1), TopicPartition::new("ab", 7)]);
        for cut in 0..bytes.len() {
            assert_eq!(assignment(&bytes[..cut]), [], "{cut} bytes");
        }
    }
}
