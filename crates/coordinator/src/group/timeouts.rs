//! What a member's silence means.

use milena_protocol::ErrorCode;

use super::classic::{ClassicGroup, State, refused_join, refused_sync};
use super::{After, GroupCx, Groups};
use crate::records::Records;

impl Groups {
    pub(super) fn session_timeout(&mut self, group: &str, member: &str, cx: &mut GroupCx<'_, '_>) {
        let emptied = self.group(group).and_then(|group| group.session_timeout(member, cx));
        write_emptied(emptied, cx);
    }

    pub(super) fn join_timeout(&mut self, group: &str, cx: &mut GroupCx<'_, '_>) {
        let emptied = self.group(group).and_then(|group| group.join_timeout(cx));
        write_emptied(emptied, cx);
    }

    pub(super) fn sync_timeout(&mut self, group: &str, cx: &mut GroupCx<'_, '_>) {
        let emptied = self.group(group).and_then(|group| group.sync_timeout(cx));
        write_emptied(emptied, cx);
    }
}

/// An empty generation holds nobody, so nothing is lost when its record can't be written.
pub(super) fn write_emptied(emptied: Option<Records>, cx: &mut GroupCx<'_, '_>) {
    if let Some(records) = emptied {
        cx.write_state(records, After::Nothing);
    }
}

impl ClassicGroup {
    fn session_timeout(&mut self, id: &str, cx: &mut GroupCx<'_, '_>) -> Option<Records> {
        if self.is_pending(id) {
            self.remove(id);
            return self.after_removal(cx);
        }
        if self.member(id)?.is_excused() {
            return None;
        }
        self.answer_join(id, refused_join("", ErrorCode::UNKNOWN_MEMBER_ID), cx);
        self.answer_sync(id, refused_sync(ErrorCode::UNKNOWN_MEMBER_ID), cx);
        self.remove(id);
        match self.state() {
            State::Stable | State::CompletingRebalance => self.rebalance(cx),
            State::PreparingRebalance => self.after_removal(cx),
            State::Empty => None,
        }
    }
}
