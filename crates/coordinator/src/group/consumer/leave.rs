//! Members that leave, and those that are not heard of in time.

use std::sync::Arc;

use milena_protocol::ErrorCode;
use milena_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};

use super::heartbeat::{LEAVE_FOR_NOW, Refusal, is_static_member};
use super::member::{Member, MemberState, Owned};
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
    ) -> Result<(ConsumerGroupHeartbeatResponse<'static>, Option<Arc<str>>), Refusal> {
        let (id, member_id) = (&*request.group_id, &*request.member_id);
        let not_found = || (ErrorCode::GROUP_ID_NOT_FOUND, format!("Group {id} not found."));
        let group = self.consumers.get(id).ok_or_else(not_found)?;
        let member = match request.instance_id.as_deref() {
            Some(instance) => {
                let named = group.static_members.get(instance).and_then(|id| group.members.get(id));
                is_static_member(named, member_id, instance)?
            }
            None => {
                let unknown = || format!("Member {member_id} is not a member of group {id}.");
                group.members.get(member_id).ok_or_else(|| (ErrorCode::UNKNOWN_MEMBER_ID, unknown()))?
            }
        };
        if request.member_epoch == LEAVE_FOR_NOW {
            let left = Member { epoch: LEAVE_FOR_NOW, revoking: Owned::new(), ..member.clone() };
            Writing { group: id, records }.current(&left);
        } else {
            group.drop_member(id, member, records, cx);
        }
        let response = ConsumerGroupHeartbeatResponse {
            member_id: Some(member.id.to_string().into()),
            member_epoch: request.member_epoch,
            ..Default::default()
        };
        Ok((response, None))
    }

    /// A member was not heard of for too long.
    pub(in crate::group) fn consumer_session_timeout(&self, id: &str, member: &str, cx: &mut GroupCx<'_, '_>) {
        self.drop_late(id, member, |_| true, cx);
    }

    /// A member has not given up in time what it was told to.
    pub(in crate::group) fn revocation_timeout(&self, id: &str, member: &str, cx: &mut GroupCx<'_, '_>) {
        self.drop_late(id, member, |member| member.state == MemberState::UnrevokedPartitions, cx);
    }

    fn drop_late(&self, id: &str, member: &str, is_late: impl Fn(&Member) -> bool, cx: &mut GroupCx<'_, '_>) {
        let Some(group) = self.consumers.get(id) else { return };
        if let Some(member) = group.members.get(member).filter(|member| is_late(member)) {
            let mut records = cx.records();
            group.drop_member(id, member, &mut records, cx);
            cx.write(records, After::Nothing);
        }
    }
}

impl ConsumerGroup {
    /// Writes a group without the member.
    fn drop_member(&self, id: &str, member: &Member, records: &mut Records, cx: &mut GroupCx<'_, '_>) {
        let gone = [Arc::clone(&member.id)];
        let mut writing = Writing { group: id, records };
        writing.remove_member(&member.id);
        let used = |regex: &str| self.members_with(None, &gone).any(|member| member.regex == regex);
        for regex in self.regexes.keys().filter(|regex| !used(regex)) {
            writing.remove_regex(regex);
        }
        let hash = self.hash_of(self.members_with(None, &gone), &*cx.settings().metadata);
        writing.epoch(self.epoch + 1, hash);
        if self.members.len() == 1 {
            writing.target_epoch(self.epoch + 1, 0);
        }
        let (group, member) = (Arc::from(id), Arc::clone(&member.id));
        cx.cancel_timer(&Timer::ConsumerSession { group: Arc::clone(&group), member: Arc::clone(&member) });
        cx.cancel_timer(&Timer::Revocation { group, member });
    }
}
