//! Members that leave, and those that are not heard of in time.

use std::sync::Arc;

use milena_protocol::ErrorCode;
use milena_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};

use super::heartbeat::{LEAVE_FOR_NOW, Outcome, Refusal, is_static_member};
use super::member::{Member, MemberState, Owned};
use super::migrate::{Downgraded, write};
use super::{ConsumerGroup, Writing};
use crate::group::{After, GroupCx, Groups, Timer};
use crate::records::Records;

impl Groups {
    /// A member leaves; a static one may leave for a while and keeps what it owns until its session ends.
    pub(super) fn consumer_leaves(
        &self,
        request: &ConsumerGroupHeartbeatRequest<'_>,
        records: &mut Records,
        cx: &mut GroupCx<'_, '_>,
    ) -> Result<Outcome, Refusal> {
        let (id, member_id) = (&*request.group_id, &*request.member_id);
        let not_found = || (ErrorCode::GROUP_ID_NOT_FOUND, format!("Group {id} not found."));
        let (id, group) = self.consumers.get_key_value(id).ok_or_else(not_found)?;
        let member = match request.instance_id.as_deref() {
            Some(instance) => is_static_member(group.static_member(instance), member_id, instance)?,
            None => {
                let unknown = || format!("Member {member_id} is not a member of group {id}.");
                group.members.get(member_id).ok_or_else(|| (ErrorCode::UNKNOWN_MEMBER_ID, unknown()))?
            }
        };
        let downgraded = if request.member_epoch == LEAVE_FOR_NOW {
            let left = Member { epoch: LEAVE_FOR_NOW, revoking: Owned::new(), ..member.clone() };
            Writing { group: id, records }.current(&left);
            None
        } else {
            group.drop_members(id, &[Arc::clone(&member.id)], records, cx)
        };
        let response = ConsumerGroupHeartbeatResponse {
            member_id: Some(member.id.to_string().into()),
            member_epoch: request.member_epoch,
            ..Default::default()
        };
        Ok(Outcome { response, resolve: None, downgraded })
    }

    /// A member was not heard of for too long.
    pub(in crate::group) fn consumer_session_timeout(&self, id: &str, member: &str, cx: &mut GroupCx<'_, '_>) {
        self.drop_late(id, member, |_| true, cx);
    }

    /// A member has not given up in time what it was told to.
    pub(in crate::group) fn revocation_timeout(&self, id: &str, member: &str, cx: &mut GroupCx<'_, '_>) {
        let is_late = |member: &Member| member.state == MemberState::UnrevokedPartitions && member.classic.is_none();
        self.drop_late(id, member, is_late, cx);
    }

    /// A member of the classic protocol has not joined, or synced, in time.
    pub(in crate::group) fn classic_timeout(&self, id: &str, member: &str, cx: &mut GroupCx<'_, '_>) {
        self.drop_late(id, member, |member| member.classic.is_some(), cx);
    }

    fn drop_late(&self, id: &str, member: &str, is_late: impl Fn(&Member) -> bool, cx: &mut GroupCx<'_, '_>) {
        let Some((id, group)) = self.consumers.get_key_value(id) else { return };
        if let Some(member) = group.members.get(member).filter(|member| is_late(member)) {
            let mut records = cx.records();
            let downgraded = group.drop_members(id, &[Arc::clone(&member.id)], &mut records, cx);
            write(records, downgraded, After::Nothing, cx);
        }
    }
}

impl ConsumerGroup {
    /// Writes a group without these members; a classic one, when only members of that protocol stay.
    pub(super) fn drop_members(
        &self,
        id: &Arc<str>,
        gone: &[Arc<str>],
        records: &mut Records,
        cx: &mut GroupCx<'_, '_>,
    ) -> Option<Downgraded> {
        let mut writing = Writing { group: id, records };
        if self.may_downgrade_without(gone, cx.settings()) {
            return Some(self.downgrade_without(id, gone, &mut writing, cx));
        }
        for member in gone {
            writing.remove_member(member);
            cancel_timers(id, member, cx);
        }
        let used = |regex: &str| self.members_with(None, gone).any(|member| member.regex == regex);
        for regex in self.regexes.keys().filter(|regex| !used(regex)) {
            writing.remove_regex(regex);
        }
        let hash = self.hash_of(self.members_with(None, gone), &*cx.settings().metadata);
        writing.epoch(self.epoch + 1, hash);
        if self.members.len() == gone.len() {
            writing.target_epoch(self.epoch + 1, 0);
        }
        None
    }
}

/// A member that is gone can't be late.
pub(super) fn cancel_timers(group: &Arc<str>, member: &Arc<str>, cx: &mut GroupCx<'_, '_>) {
    let (group, member) = (|| Arc::clone(group), || Arc::clone(member));
    cx.cancel_timer(&Timer::ConsumerSession { group: group(), member: member() });
    cx.cancel_timer(&Timer::Revocation { group: group(), member: member() });
    cx.cancel_timer(&Timer::ClassicJoin { group: group(), member: member() });
    cx.cancel_timer(&Timer::ClassicSync { group: group(), member: member() });
}
