//! What the leader of a classic group does: it knows the topics of all members, divides their partitions, and has the group
//! divided anew when there are others.

use std::collections::BTreeSet;

use milena_protocol::messages::JoinGroupResponse;
use milena_protocol::messages::sync_group_request::SyncGroupRequestAssignment;

use crate::consumer::group::assignor::{self, Assignor, Participant, Topics};
use crate::consumer::group::wire;
use crate::error::Error;

/// What a leader keeps from one generation to the next; of who does not lead, all of it is empty.
#[derive(Debug, Default)]
pub(super) struct Lead {
    /// What the members are subscribed to.
    topics: BTreeSet<String>,
    /// What is known of it; nothing when it was not looked at since the generation has begun.
    known: Option<Topics>,
    /// What the assignment was made of.
    assigned: Option<Topics>,
}

/// The members as they have described themselves. Who can't be understood is subscribed to nothing.
pub(super) fn participants(response: &JoinGroupResponse<'_>) -> Vec<Participant> {
    let participant =
        |member: &milena_protocol::messages::join_group_response::JoinGroupResponseMember<'_>| Participant {
            id: member.member_id.to_string(),
            instance: member.group_instance_id.as_deref().map(str::to_owned),
            subscription: wire::read_subscription(&member.metadata).unwrap_or_default(),
        };
    response.members.iter().map(participant).collect()
}

impl Lead {
    pub(super) fn begin(&mut self, members: &[Participant]) {
        self.topics = members.iter().flat_map(|member| member.subscription.topics.iter().cloned()).collect();
        (self.known, self.assigned) = (self.topics.is_empty().then(Topics::new), None);
    }

    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    pub(super) fn topics(&self) -> &BTreeSet<String> {
        &self.topics
    }

    pub(super) fn knows_topics(&self) -> bool {
        self.known.is_some()
    }

    /// Takes what is known of topics; whether the assignment is out of date by that.
    pub(super) fn learn(&mut self, topics: &Topics) -> bool {
        let of_group = topics.iter().filter(|(name, _)| self.topics.contains(*name));
        let known: Topics = of_group.map(|(name, racks)| (name.clone(), racks.clone())).collect();
        let changed = self.assigned.as_ref().is_some_and(|assigned| *assigned != known);
        self.known = Some(known);
        changed
    }

    pub(super) fn assign(
        &mut self,
        assignor: Assignor,
        members: &[Participant],
    ) -> Result<Vec<SyncGroupRequestAssignment<'static>>, Error> {
        let known = self.known.clone().unwrap_or_default();
        let assignment = assignor::assign(assignor, &known, members);
        self.assigned = Some(known);
        let of_member = |(member, partitions): (String, Vec<_>)| {
            let assignment = wire::write_assignment(&partitions)?.into();
            Ok(SyncGroupRequestAssignment { member_id: member.into(), assignment })
        };
        assignment.into_iter().map(of_member).collect()
    }
}
