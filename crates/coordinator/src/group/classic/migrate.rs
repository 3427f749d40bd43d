//! A classic group that becomes a consumer group, and one that was one.

use std::sync::Arc;

use milena_protocol::ErrorCode;

use super::{CONSUMER, ClassicGroup, Member, State, refused_join, refused_sync};
use crate::engine::Now;
use crate::group::{GroupCx, stamp};

impl ClassicGroup {
    /// A stable group of consumers, in a generation that others have brought about. There is a member.
    pub(in crate::group) fn stable(id: Arc<str>, generation: i32, members: Vec<Member>, now: Now) -> Self {
        let mut group = Self::new(id, stamp(now));
        members.into_iter().for_each(|member| group.add(member));
        (group.generation, group.protocol_type) = (generation, Some(CONSUMER.to_owned()));
        group.protocol_name = group.select_protocol();
        group.subscribed = group.read_subscriptions();
        group.state = State::Stable;
        group
    }

    /// All members.
    pub(in crate::group) fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// What a member has said of itself in this generation's protocol; in its own first one, while there is none.
    pub(in crate::group) fn subscription(&self, member: &str) -> Option<&[u8]> {
        let protocols = &self.member(member)?.protocols;
        let agreed = self.protocol_name().and_then(|name| protocols.metadata(name));
        agreed.or_else(|| protocols.iter().next().map(|(_, metadata)| metadata))
    }

    /// Whoever waits is told why it waits no longer.
    pub(in crate::group) fn refuse_waiting(&mut self, error: ErrorCode, cx: &mut GroupCx<'_, '_>) {
        for id in self.member_ids() {
            self.answer_join(&id, refused_join(&id, error), cx);
            self.answer_sync(&id, refused_sync(error), cx);
        }
    }
}
