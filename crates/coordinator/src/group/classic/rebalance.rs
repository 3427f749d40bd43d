//! From one generation of a classic group to the next: members join, the leader assigns, members fetch their assignment.

use std::sync::Arc;

use milena_protocol::ErrorCode;
use milena_protocol::messages::{JoinGroupResponse, SyncGroupResponse};

use super::{ClassicGroup, InitialRebalance, Member, State};
use crate::engine::Ticket;
use crate::group::api::Reply;
use crate::group::{GroupCx, Timer, stamp};
use crate::records::Records;

impl ClassicGroup {
    /// The group was read from the log: its members must be heard of. One with too many members is rebalanced, so that they
    /// may commit before some are turned away.
    pub(in crate::group) fn loaded(&mut self, cx: &mut GroupCx<'_, '_>) {
        for member in self.members.keys() {
            self.renew_session(member, cx);
        }
        if self.members.len() > cx.settings().max_size {
            // Nobody has joined, so nothing completes at once.
            self.prepare_rebalance(cx);
        }
    }

    fn enter(&mut self, state: State, cx: &GroupCx<'_, '_>) {
        self.state = state;
        self.state_since = stamp(cx.now());
    }

    fn join_timer(&self) -> Timer {
        Timer::Join(Arc::clone(&self.id))
    }

    fn sync_timer(&self) -> Timer {
        Timer::Sync(Arc::clone(&self.id))
    }

    /// The longest time that a member takes to join again, ms.
    fn rebalance_timeout_ms(&self) -> i32 {
        self.members.values().map(|member| member.rebalance_timeout_ms).max().unwrap_or(0).max(0)
    }

    fn all_have_joined(&self) -> bool {
        self.members.len() == self.awaiting_joins && self.pending_joins.is_empty()
    }

    /// Something that the assignment depends on has changed. The record of an empty group comes back, if it became one.
    pub(in crate::group) fn rebalance(&mut self, cx: &mut GroupCx<'_, '_>) -> Option<Records> {
        match self.state {
            State::PreparingRebalance => self.maybe_complete_join(cx),
            State::Empty | State::CompletingRebalance | State::Stable => self.prepare_rebalance(cx),
        }
    }

    /// Begins to wait for members to join.
    pub(in crate::group) fn prepare_rebalance(&mut self, cx: &mut GroupCx<'_, '_>) -> Option<Records> {
        if self.state == State::CompletingRebalance {
            self.refuse_assignment(ErrorCode::REBALANCE_IN_PROGRESS, cx);
        }
        self.pending_syncs.clear();
        cx.cancel_timer(&self.sync_timer());
        let was_empty = self.state == State::Empty;
        self.enter(State::PreparingRebalance, cx);
        if was_empty {
            let delay_ms = cx.settings().initial_rebalance_delay_ms;
            let remaining_ms = (self.rebalance_timeout_ms() - delay_ms).max(0);
            self.initial = Some(InitialRebalance { delay_ms, remaining_ms, member_added: false });
            cx.set_timer(self.join_timer(), delay_ms.into());
            return None;
        }
        if self.all_have_joined() {
            return self.complete_join(cx);
        }
        cx.set_timer(self.join_timer(), self.rebalance_timeout_ms().into());
        None
    }

    /// Goes on when everybody has joined; the first rebalance of an empty group takes its time.
    pub(in crate::group) fn maybe_complete_join(&mut self, cx: &mut GroupCx<'_, '_>) -> Option<Records> {
        let complete = self.state == State::PreparingRebalance && self.initial.is_none() && self.all_have_joined();
        if complete { self.complete_join(cx) } else { None }
    }

    /// A member is gone that others may have waited for. An initial rebalance whose members all wait is complete too then.
    pub(in crate::group) fn after_removal(&mut self, cx: &mut GroupCx<'_, '_>) -> Option<Records> {
        let complete = self.state == State::PreparingRebalance && self.all_have_joined();
        if complete { self.complete_join(cx) } else { None }
    }

    /// The time to join is up.
    pub(in crate::group) fn join_timeout(&mut self, cx: &mut GroupCx<'_, '_>) -> Option<Records> {
        if self.state != State::PreparingRebalance {
            return None;
        }
        let longest = cx.settings().initial_rebalance_delay_ms;
        let timer = self.join_timer();
        if let Some(initial) = self.initial.as_mut().filter(|initial| initial.member_added && initial.remaining_ms != 0)
        {
            let delay_ms = longest.min(initial.remaining_ms);
            let remaining_ms = (initial.remaining_ms - initial.delay_ms).max(0);
            *initial = InitialRebalance { delay_ms, remaining_ms, member_added: false };
            cx.set_timer(timer, delay_ms.into());
            return None;
        }
        self.complete_join(cx)
    }

    /// Begins the next generation with the members that have joined. Static members stay even when they have not.
    fn complete_join(&mut self, cx: &mut GroupCx<'_, '_>) -> Option<Records> {
        cx.cancel_timer(&self.join_timer());
        self.initial = None;
        let late = self.members.values().filter(|member| member.join.is_none() && member.instance.is_none());
        let late: Vec<_> = late.map(|member| Arc::clone(&member.id)).collect();
        for member in late {
            self.remove(&member);
            self.end_session(&member, cx);
        }
        if !self.elect_joined_leader() && !self.members.is_empty() {
            // Nobody has joined; those that don't answer are dropped when their sessions end.
            cx.set_timer(self.join_timer(), self.rebalance_timeout_ms().into());
            return None;
        }
        self.generation = self.generation.wrapping_add(1);
        self.protocol_name = self.select_protocol();
        self.subscribed = self.read_subscriptions();
        self.pending_syncs.clear();
        if self.members.is_empty() {
            self.enter(State::Empty, cx);
            let mut records = cx.records();
            self.put(|_| &[], &mut records);
            return Some(records);
        }
        self.enter(State::CompletingRebalance, cx);
        self.answer_joins(cx);
        cx.set_timer(self.sync_timer(), self.rebalance_timeout_ms().into());
        None
    }

    /// Makes sure that the leader is one of those that have joined; false when nobody has.
    fn elect_joined_leader(&mut self) -> bool {
        let has_joined = |member: &Member| member.join.is_some();
        let Some(leader) = &self.leader else { return false };
        if self.members.get(leader).is_some_and(has_joined) {
            return true;
        }
        let joined = self.members.values().find(|member| has_joined(member)).map(|member| Arc::clone(&member.id));
        let elected = joined.is_some();
        self.leader = joined.or_else(|| self.leader.take());
        elected
    }

    fn answer_joins(&mut self, cx: &mut GroupCx<'_, '_>) {
        for id in self.member_ids() {
            let response = self.joined(&id);
            self.answer_join(&id, response, cx);
            self.renew_session(&id, cx);
            if let Some(member) = self.members.get_mut(&id) {
                member.is_new = false;
            }
            self.pending_syncs.insert(id);
        }
    }

    /// What a member of this generation is told.
    pub(in crate::group) fn joined(&self, member: &str) -> JoinGroupResponse<'static> {
        JoinGroupResponse {
            generation_id: self.generation,
            protocol_type: self.protocol_type().map(|name| name.to_owned().into()),
            protocol_name: self.protocol_name().map(|name| name.to_owned().into()),
            leader: self.leader().map(|leader| leader.to_string()).unwrap_or_default().into(),
            member_id: member.to_owned().into(),
            members: if self.is_leader(member) { self.members_for_leader() } else { Vec::new() },
            ..Default::default()
        }
    }

    /// Lets a member wait in JoinGroup. Where it waits already, on another connection, that one is told to come again.
    pub(in crate::group) fn await_join(&mut self, member: &str, ticket: Ticket, cx: &mut GroupCx<'_, '_>) {
        self.answer_join(member, refused_join(member, ErrorCode::REBALANCE_IN_PROGRESS), cx);
        if let Some(member) = self.members.get_mut(member) {
            member.join = Some(ticket);
            self.awaiting_joins += 1;
        }
    }

    /// Answers a member's JoinGroup, if it waits.
    pub(in crate::group) fn answer_join(
        &mut self,
        member: &str,
        response: JoinGroupResponse<'static>,
        cx: &mut GroupCx<'_, '_>,
    ) {
        if let Some(ticket) = self.members.get_mut(member).and_then(|member| member.join.take()) {
            self.awaiting_joins -= 1;
            cx.reply(ticket, Reply::Join(response));
        }
    }

    /// Lets a member wait in SyncGroup. Where it waits already, on another connection, that one is told to come again.
    pub(in crate::group) fn await_sync(&mut self, member: &str, ticket: Ticket, cx: &mut GroupCx<'_, '_>) {
        if let Some(before) = self.members.get_mut(member).and_then(|member| member.sync.replace(ticket)) {
            cx.reply(before, Reply::Sync(refused_sync(ErrorCode::REBALANCE_IN_PROGRESS)));
        }
    }

    /// Answers a member's SyncGroup, if it waits.
    pub(in crate::group) fn answer_sync(
        &mut self,
        member: &str,
        response: SyncGroupResponse<'static>,
        cx: &mut GroupCx<'_, '_>,
    ) -> bool {
        let ticket = self.members.get_mut(member).and_then(|member| member.sync.take());
        ticket.map(|ticket| cx.reply(ticket, Reply::Sync(response))).is_some()
    }

    /// A member has asked for its assignment.
    pub(in crate::group) fn has_synced(&mut self, member: &str, cx: &mut GroupCx<'_, '_>) {
        self.pending_syncs.remove(member);
        if self.pending_syncs.is_empty() {
            cx.cancel_timer(&self.sync_timer());
        }
    }

    /// The time to ask for the assignment is up: who has not is dropped.
    pub(in crate::group) fn sync_timeout(&mut self, cx: &mut GroupCx<'_, '_>) -> Option<Records> {
        let late = std::mem::take(&mut self.pending_syncs);
        if late.is_empty() || !matches!(self.state, State::CompletingRebalance | State::Stable) {
            return None;
        }
        for member in late {
            self.remove(&member);
            self.end_session(&member, cx);
        }
        self.prepare_rebalance(cx)
    }

    /// The assignment stands: every member that waits for it gets its own.
    pub(in crate::group) fn complete_assignment(
        &mut self,
        mut assignment: impl FnMut(&str) -> Vec<u8>,
        cx: &mut GroupCx<'_, '_>,
    ) {
        for id in self.member_ids() {
            if let Some(member) = self.members.get_mut(&id) {
                member.assignment = assignment(&id);
            }
            let response = self.assigned_to(&id);
            if self.answer_sync(&id, response, cx) {
                self.renew_session(&id, cx);
            }
        }
        self.enter(State::Stable, cx);
    }

    /// There is no assignment: every member that waits for it is told why.
    pub(in crate::group) fn refuse_assignment(&mut self, error: ErrorCode, cx: &mut GroupCx<'_, '_>) {
        for id in self.member_ids() {
            if let Some(member) = self.members.get_mut(&id) {
                member.assignment.clear();
            }
            if self.answer_sync(&id, refused_sync(error), cx) {
                self.renew_session(&id, cx);
            }
        }
    }

    /// What a member is told of its assignment.
    pub(in crate::group) fn assigned_to(&self, member: &str) -> SyncGroupResponse<'static> {
        SyncGroupResponse {
            protocol_type: self.protocol_type().map(|name| name.to_owned().into()),
            protocol_name: self.protocol_name().map(|name| name.to_owned().into()),
            assignment: self.member(member).map(|member| member.assignment.clone()).unwrap_or_default().into(),
            ..Default::default()
        }
    }
}

/// The answer to a JoinGroup that is refused.
pub(in crate::group) fn refused_join(member: &str, error: ErrorCode) -> JoinGroupResponse<'static> {
    JoinGroupResponse {
        error_code: error.0,
        generation_id: -1,
        member_id: member.to_owned().into(),
        protocol_type: None,
        protocol_name: None,
        ..Default::default()
    }
}

/// The answer to a SyncGroup that is refused.
pub(in crate::group) fn refused_sync(error: ErrorCode) -> SyncGroupResponse<'static> {
    SyncGroupResponse { error_code: error.0, protocol_type: None, protocol_name: None, ..Default::default() }
}
