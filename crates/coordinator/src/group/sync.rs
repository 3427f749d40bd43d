//! SyncGroup: the leader brings the assignment, the others fetch theirs.

use std::collections::BTreeMap;
use std::sync::Arc;

use milena_protocol::ErrorCode;
use milena_protocol::messages::SyncGroupRequest;

use super::api::Reply;
use super::classic::{ClassicGroup, State, refused_sync};
use super::{After, GroupCx, Groups, identity};
use crate::engine::Ticket;

/// The leader's assignment, on its way into the log.
#[derive(Debug)]
pub struct Assigned {
    group: Arc<str>,
    generation: i32,
    assignment: BTreeMap<String, Vec<u8>>,
}

impl Groups {
    pub(super) fn sync(&mut self, ticket: Ticket, request: &SyncGroupRequest<'_>, cx: &mut GroupCx<'_, '_>) {
        if self.consumers.contains_key(&*request.group_id) {
            return self.classic_syncs(ticket, request, cx);
        }
        let checked = match self.group(&request.group_id) {
            Some(group) if !group.is_empty() => group.check_sync(request).map(|()| group),
            _ => Err(ErrorCode::UNKNOWN_MEMBER_ID),
        };
        let group = match checked {
            Ok(group) => group,
            Err(error) => return cx.reply(ticket, Reply::Sync(refused_sync(error))),
        };
        let member = &*request.member_id;
        match group.state() {
            State::CompletingRebalance => {
                group.await_sync(member, ticket, cx);
                group.has_synced(member, cx);
                if group.is_leader(member) {
                    group.store_assignment(request, cx);
                }
            }
            State::Stable => {
                group.has_synced(member, cx);
                let response = group.assigned_to(member);
                cx.reply(ticket, Reply::Sync(response));
            }
            State::PreparingRebalance | State::Empty => {
                cx.reply(ticket, Reply::Sync(refused_sync(ErrorCode::REBALANCE_IN_PROGRESS)));
            }
        }
    }

    /// The assignment is committed, or can't be. What has changed meanwhile has made it worthless.
    pub(super) fn assigned(&mut self, assigned: Assigned, outcome: Result<(), ErrorCode>, cx: &mut GroupCx<'_, '_>) {
        let Some(group) = self.group(&assigned.group) else { return };
        if group.state() != State::CompletingRebalance || group.generation() != assigned.generation {
            return;
        }
        match outcome {
            Ok(()) => {
                let mut assignment = assigned.assignment;
                group.complete_assignment(|member| assignment.remove(member).unwrap_or_default(), cx);
            }
            Err(error) => {
                group.refuse_assignment(error, cx);
                let emptied = group.rebalance(cx);
                debug_assert!(emptied.is_none(), "a group with members is not empty");
            }
        }
    }
}

impl ClassicGroup {
    fn check_sync(&self, request: &SyncGroupRequest<'_>) -> Result<(), ErrorCode> {
        self.check_member(identity(&request.member_id, request.group_instance_id.as_deref()))?;
        if request.generation_id != self.generation() {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        let differs =
            |asked: Option<&str>, known: Option<&str>| asked.zip(known).is_some_and(|(asked, known)| asked != known);
        if differs(request.protocol_type.as_deref(), self.protocol_type())
            || differs(request.protocol_name.as_deref(), self.protocol_name())
        {
            return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        }
        Ok(())
    }

    fn store_assignment(&self, request: &SyncGroupRequest<'_>, cx: &mut GroupCx<'_, '_>) {
        let assignment = request.assignments.iter();
        let assignment: BTreeMap<String, Vec<u8>> =
            assignment.map(|given| (given.member_id.to_string(), given.assignment.to_vec())).collect();
        let mut records = cx.records();
        self.put(|member| assignment.get(&*member.id).map(Vec::as_slice).unwrap_or_default(), &mut records);
        let assigned = Assigned { group: Arc::clone(self.id()), generation: self.generation(), assignment };
        cx.write_state(records, After::Assigned(assigned));
    }
}
