//! Heartbeat and LeaveGroup.

use std::sync::Arc;

use milena_protocol::ErrorCode;
use milena_protocol::messages::leave_group_request::MemberIdentity;
use milena_protocol::messages::leave_group_response::MemberResponse;
use milena_protocol::messages::{HeartbeatRequest, HeartbeatResponse, LeaveGroupRequest, LeaveGroupResponse};

use super::api::Reply;
use super::classic::{ClassicGroup, State, refused_join, refused_sync};
use super::{After, GroupCx, Groups, identity};
use crate::engine::Ticket;

/// The answer that members leave with.
#[derive(Debug)]
pub struct Response(Vec<MemberResponse<'static>>);

impl Response {
    pub(super) fn new(members: Vec<MemberResponse<'static>>) -> Self {
        Self(members)
    }

    /// The same, or the failure of the write.
    pub(super) fn or_failed(self, outcome: Result<(), ErrorCode>) -> LeaveGroupResponse<'static> {
        match outcome {
            Ok(()) => LeaveGroupResponse { members: self.0, ..Default::default() },
            Err(error) => LeaveGroupResponse { error_code: error.0, ..Default::default() },
        }
    }
}

impl Groups {
    pub(super) fn heartbeat(&mut self, ticket: Ticket, request: &HeartbeatRequest<'_>, cx: &mut GroupCx<'_, '_>) {
        let outcome = match self.groups.get(&*request.group_id) {
            Some(group) => group.heard_of(request, cx),
            None => self.classic_beats(request, cx),
        };
        let error_code = outcome.err().unwrap_or(ErrorCode::NONE).0;
        cx.reply(ticket, Reply::Heartbeat(HeartbeatResponse { error_code, ..Default::default() }));
    }

    pub(super) fn leave(&mut self, ticket: Ticket, request: &LeaveGroupRequest<'_>, cx: &mut GroupCx<'_, '_>) {
        if self.consumers.contains_key(&*request.group_id) {
            return self.classic_leaves(ticket, request, cx);
        }
        let Some(group) = self.group(&request.group_id) else {
            let unknown = request.members.iter().map(|member| answer(member, ErrorCode::UNKNOWN_MEMBER_ID)).collect();
            return cx.reply(ticket, Reply::Leave(Response(unknown).or_failed(Ok(()))));
        };
        let mut left = Vec::with_capacity(request.members.len());
        for member in &request.members {
            let outcome = group.let_go(member, cx);
            left.push(answer(member, outcome.err().unwrap_or(ErrorCode::NONE)));
        }
        let has_left = left.iter().any(|member| member.error_code == 0);
        let emptied = match group.state() {
            State::Stable | State::CompletingRebalance | State::PreparingRebalance if has_left => group.rebalance(cx),
            _ => None,
        };
        let response = Response(left);
        match emptied {
            Some(records) => cx.write_state(records, After::Left(ticket, response)),
            None => cx.reply_when_committed(ticket, Reply::Leave(response.or_failed(Ok(())))),
        }
    }
}

impl ClassicGroup {
    fn heard_of(&self, request: &HeartbeatRequest<'_>, cx: &mut GroupCx<'_, '_>) -> Result<(), ErrorCode> {
        self.check_member(identity(&request.member_id, request.group_instance_id.as_deref()))?;
        if request.generation_id != self.generation() {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        match self.state() {
            State::Empty => Err(ErrorCode::UNKNOWN_MEMBER_ID),
            State::PreparingRebalance => {
                self.renew_session(&request.member_id, cx);
                Err(ErrorCode::REBALANCE_IN_PROGRESS)
            }
            State::CompletingRebalance | State::Stable => {
                self.renew_session(&request.member_id, cx);
                Ok(())
            }
        }
    }

    /// Takes a member out that leaves, or that an administrator names.
    fn let_go(&mut self, member: &MemberIdentity<'_>, cx: &mut GroupCx<'_, '_>) -> Result<(), ErrorCode> {
        let instance = member.group_instance_id.as_deref();
        let id: Arc<str> = if member.member_id.is_empty() {
            let known = instance.and_then(|instance| self.static_member(instance)).cloned();
            known.ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?
        } else {
            if !self.is_pending(&member.member_id) {
                self.check_member(identity(&member.member_id, instance))?;
            }
            Arc::from(&*member.member_id)
        };
        self.end_session(&id, cx);
        self.answer_join(&id, refused_join("", ErrorCode::UNKNOWN_MEMBER_ID), cx);
        self.answer_sync(&id, refused_sync(ErrorCode::UNKNOWN_MEMBER_ID), cx);
        self.remove(&id);
        Ok(())
    }
}

pub(super) fn answer(member: &MemberIdentity<'_>, error: ErrorCode) -> MemberResponse<'static> {
    MemberResponse {
        member_id: member.member_id.to_string().into(),
        group_instance_id: member.group_instance_id.as_deref().map(|instance| instance.to_owned().into()),
        error_code: error.0,
    }
}
