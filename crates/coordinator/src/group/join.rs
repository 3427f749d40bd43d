//! JoinGroup: who becomes a member, and when that means a rebalance.

use std::sync::Arc;

use milena_protocol::ErrorCode;
use milena_protocol::messages::JoinGroupRequest;

use super::api::{GroupSettings, Join, Reply};
use super::classic::{ClassicGroup, Member, Protocols, State, refused_join, refused_sync};
use super::consumer::ConsumerGroup;
use super::{After, GroupCx, Groups, Timer, identity, stamp};
use crate::engine::Ticket;

/// How long a new member may wait in JoinGroup: it can't be heard of otherwise, since it does not know its id, ms.
const NEW_MEMBER_JOIN_TIMEOUT_MS: i32 = 5 * 60 * 1000;

/// Longest name of a member, bytes: with a random id behind it, it is still a string of the protocol.
const MOST_NAME_BYTES: usize = i16::MAX as usize - "-00000000-0000-0000-0000-000000000000".len();

/// What a static member's predecessor was, in case that it can't be replaced.
#[derive(Debug)]
pub struct Replaced {
    group: Arc<str>,
    instance: String,
    old: Arc<str>,
    new: Arc<str>,
    protocols: Protocols,
    timeouts: (i32, i32),
    skips_assignment: bool,
    leader_before: Option<Arc<str>>,
}

/// Checks what a JoinGroup says about itself.
///
/// # Errors
/// INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT; INVALID_REQUEST when no answer could hold the member's id.
pub fn check_join(request: &JoinGroupRequest<'_>, client_id: &str, settings: &GroupSettings) -> Result<(), ErrorCode> {
    if request.group_id.is_empty() {
        return Err(ErrorCode::INVALID_GROUP_ID);
    }
    if client_id.len().max(request.group_instance_id.as_deref().unwrap_or_default().len()) > MOST_NAME_BYTES {
        return Err(ErrorCode::INVALID_REQUEST);
    }
    let allowed = settings.min_session_timeout_ms..=settings.max_session_timeout_ms;
    if allowed.contains(&request.session_timeout_ms) { Ok(()) } else { Err(ErrorCode::INVALID_SESSION_TIMEOUT) }
}

impl Groups {
    pub(super) fn join(&mut self, ticket: Ticket, join: &Join<'_>, cx: &mut GroupCx<'_, '_>) {
        let member = &*join.request.member_id;
        if let Some(group) = self.groups.get_mut(&*join.request.group_id) {
            group.handle_join(ticket, join, cx);
            return;
        }
        if self.consumers.get(&*join.request.group_id).is_some_and(|group| !group.is_empty()) {
            return self.classic_joins(ticket, join, cx);
        }
        if !member.is_empty() {
            return cx.reply(ticket, Reply::Join(refused_join(member, ErrorCode::UNKNOWN_MEMBER_ID)));
        }
        let id: Arc<str> = Arc::from(&*join.request.group_id);
        let mut group = ClassicGroup::new(Arc::clone(&id), stamp(cx.now()));
        let mut records = cx.records();
        if self.consumers.get(&id).is_some_and(ConsumerGroup::is_empty) {
            self.remove_group(&id, &mut records);
            self.consumers.remove(&id);
        }
        // The record is of the group as it comes into being, before anybody has joined.
        group.put(|_| &[], &mut records);
        group.handle_join(ticket, join, cx);
        self.groups.insert(Arc::clone(&id), group);
        cx.write_state(records, After::Created(id));
    }

    /// A new group's record could not be written: it is as if it had never been.
    pub(super) fn not_created(&mut self, id: &str, error: ErrorCode, cx: &mut GroupCx<'_, '_>) {
        let Some(mut group) = self.groups.remove(id) else { return };
        for member in group.member_ids() {
            group.answer_join(&member, refused_join("", error), cx);
            group.end_session(&member, cx);
        }
        cx.cancel_timer(&Timer::Join(Arc::clone(group.id())));
    }

    /// The record with a static member's new id is committed, or is not: then the member is again who it was.
    pub(super) fn replaced(&mut self, replaced: Replaced, outcome: Result<(), ErrorCode>, cx: &mut GroupCx<'_, '_>) {
        let Some(group) = self.group(&replaced.group) else { return };
        let leader_before = replaced.leader_before.as_deref().unwrap_or_default().to_owned();
        let mut response = group.joined(&replaced.new);
        match outcome {
            Ok(()) if replaced.skips_assignment => response.skip_assignment = group.is_leader(&replaced.new),
            // It is told that somebody else leads, so that it does not assign anew.
            Ok(()) => {
                response.leader = leader_before.into();
                response.members = Vec::new();
            }
            Err(error) => {
                (response.error_code, response.leader) = (error.0, leader_before.into());
                (response.member_id, response.members) = ("".into(), Vec::new());
            }
        }
        group.answer_join(&replaced.new, response, cx);
        if outcome.is_err() {
            group.set_protocols(&replaced.new, replaced.protocols);
            if let Some(member) = group.member_mut(&replaced.new) {
                (member.rebalance_timeout_ms, member.session_timeout_ms) = replaced.timeouts;
            }
            group.replace_static(&replaced.instance, &replaced.new, Arc::clone(&replaced.old), cx);
            group.renew_session(&replaced.old, cx);
        }
    }
}

impl ClassicGroup {
    fn handle_join(&mut self, ticket: Ticket, join: &Join<'_>, cx: &mut GroupCx<'_, '_>) {
        let request = &join.request;
        let member = &*request.member_id;
        let refused = if !self.accepts(member, cx.settings().max_size) {
            self.remove(member);
            Some(refused_join("", ErrorCode::GROUP_MAX_SIZE_REACHED))
        } else if !self.supports(&request.protocol_type, &request.protocols) {
            Some(refused_join(member, ErrorCode::INCONSISTENT_GROUP_PROTOCOL))
        } else if member.is_empty() {
            return self.join_new(ticket, join, cx);
        } else if self.is_pending(member) {
            if request.group_instance_id.is_none() {
                return self.add_joining(ticket, Arc::from(member), join, cx);
            }
            // An id is given out to those that are not static.
            Some(refused_join("", ErrorCode::UNKNOWN_SERVER_ERROR))
        } else {
            let who = identity(member, request.group_instance_id.as_deref());
            match self.check_member(who) {
                Ok(()) => return self.join_again(ticket, request, cx),
                Err(error) => Some(refused_join(member, error)),
            }
        };
        if let Some(refused) = refused {
            cx.reply(ticket, Reply::Join(refused));
        }
    }

    /// Whether there is room for a member.
    fn accepts(&self, member: &str, most: usize) -> bool {
        match self.state() {
            State::Empty => true,
            // Those that wait count: the others may be turned away.
            State::PreparingRebalance => {
                self.member(member).is_some_and(|member| member.join.is_some()) || self.awaiting_joins() < most
            }
            State::CompletingRebalance | State::Stable => self.member(member).is_some() || self.len() < most,
        }
    }

    /// Somebody without a member id.
    fn join_new(&mut self, ticket: Ticket, join: &Join<'_>, cx: &mut GroupCx<'_, '_>) {
        let request = &join.request;
        let name = request.group_instance_id.as_deref().unwrap_or(join.client_id);
        let id: Arc<str> = format!("{name}-{}", hyphenated(&cx.random_id().to_bytes())).into();
        match request.group_instance_id.as_deref() {
            Some(instance) => match self.static_member(instance).cloned() {
                Some(old) => self.join_in_place_of(ticket, instance, &old, id, join, cx),
                None => self.add_joining(ticket, id, join, cx),
            },
            None if join.requires_member_id => {
                self.add_pending(Arc::clone(&id));
                self.start_session(&id, request.session_timeout_ms, cx);
                cx.reply(ticket, Reply::Join(refused_join(&id, ErrorCode::MEMBER_ID_REQUIRED)));
            }
            None => self.add_joining(ticket, id, join, cx),
        }
    }

    fn add_joining(&mut self, ticket: Ticket, id: Arc<str>, join: &Join<'_>, cx: &mut GroupCx<'_, '_>) {
        let request = &join.request;
        self.add(Member {
            id: Arc::clone(&id),
            instance: request.group_instance_id.as_deref().map(str::to_owned),
            client_id: join.client_id.to_owned(),
            client_host: join.client_host.to_owned(),
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            session_timeout_ms: request.session_timeout_ms,
            protocol_type: request.protocol_type.to_string(),
            protocols: Protocols::of(&request.protocols),
            assignment: Vec::new(),
            join: Some(ticket),
            sync: None,
            is_new: true,
        });
        self.start_session(&id, NEW_MEMBER_JOIN_TIMEOUT_MS, cx);
        self.rebalance_with_members(cx);
    }

    /// A member joins again.
    fn join_again(&mut self, ticket: Ticket, request: &JoinGroupRequest<'_>, cx: &mut GroupCx<'_, '_>) {
        let member = &*request.member_id;
        let protocols = Protocols::of(&request.protocols);
        let unchanged = self.member(member).is_some_and(|member| member.protocols == protocols);
        let rejoins = match self.state() {
            State::Empty => return cx.reply(ticket, Reply::Join(refused_join(member, ErrorCode::UNKNOWN_MEMBER_ID))),
            State::PreparingRebalance => true,
            // It may only have missed the answer.
            State::CompletingRebalance => !unchanged,
            // The leader joins when something has changed that only it knows.
            State::Stable => !unchanged || self.is_leader(member),
        };
        if !rejoins {
            return cx.reply(ticket, Reply::Join(self.joined(member)));
        }
        self.update(member, protocols, request);
        self.await_join(member, ticket, cx);
        self.rebalance_with_members(cx);
    }

    fn update(&mut self, member: &str, protocols: Protocols, request: &JoinGroupRequest<'_>) {
        self.set_protocols(member, protocols);
        if let Some(member) = self.member_mut(member) {
            member.rebalance_timeout_ms = request.rebalance_timeout_ms;
            member.session_timeout_ms = request.session_timeout_ms;
        }
    }

    /// A static member has come back without its id: it gets a new one, and in a stable group that is all.
    fn join_in_place_of(
        &mut self,
        ticket: Ticket,
        instance: &str,
        old: &Arc<str>,
        new: Arc<str>,
        join: &Join<'_>,
        cx: &mut GroupCx<'_, '_>,
    ) {
        let leader_before = self.leader().cloned();
        self.replace_static(instance, old, Arc::clone(&new), cx);
        let Some(member) = self.member(&new) else { return };
        let timeouts = (member.rebalance_timeout_ms, member.session_timeout_ms);
        let protocols = member.protocols.clone();
        self.renew_session(&new, cx);
        self.update(&new, Protocols::of(&join.request.protocols), &join.request);
        self.await_join(&new, ticket, cx);
        match self.state() {
            State::Stable if self.keeps_protocol() => {
                let mut records = cx.records();
                self.put(|member| &member.assignment, &mut records);
                let replaced = Replaced {
                    group: Arc::clone(self.id()),
                    instance: instance.to_owned(),
                    old: Arc::clone(old),
                    new,
                    protocols,
                    timeouts,
                    skips_assignment: join.skips_assignment,
                    leader_before,
                };
                cx.write_state(records, After::Replaced(replaced));
            }
            // The leader may be assigning to the old id.
            State::Stable | State::CompletingRebalance => {
                let none = self.prepare_rebalance(cx);
                debug_assert!(none.is_none(), "a group with a member is not empty");
            }
            State::PreparingRebalance | State::Empty => {
                let none = self.maybe_complete_join(cx);
                debug_assert!(none.is_none(), "a group with a member is not empty");
            }
        }
    }

    fn rebalance_with_members(&mut self, cx: &mut GroupCx<'_, '_>) {
        let none = self.rebalance(cx);
        debug_assert!(none.is_none(), "a group with a member is not empty");
    }

    /// Gives a static member another member id; who waits under the old one is told that it was fenced.
    fn replace_static(&mut self, instance: &str, old: &str, new: Arc<str>, cx: &mut GroupCx<'_, '_>) {
        self.answer_join(old, refused_join(old, ErrorCode::FENCED_INSTANCE_ID), cx);
        self.answer_sync(old, refused_sync(ErrorCode::FENCED_INSTANCE_ID), cx);
        self.rename(instance, old, new);
    }
}

/// An id as Java writes a UUID.
fn hyphenated(id: &[u8; 16]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("{}-{}-{}-{}-{}", hex(&id[..4]), hex(&id[4..6]), hex(&id[6..8]), hex(&id[8..10]), hex(&id[10..]))
}
