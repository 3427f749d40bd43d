//! A classic group: its members, its state, its generation. Who asks for what lives beside this (`join`, `sync`, `leave`);
//! here is what the group is, in `rebalance` how it gets from one generation to the next, and in `migrate` how it becomes a
//! consumer group.
//!
//! The group is in memory as its members left it; its record holds what must survive: the members of a generation with
//! their assignments.

mod member;
mod migrate;
mod rebalance;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use milena_protocol::messages::ConsumerProtocolSubscription;
use milena_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use milena_protocol::messages::join_group_response::JoinGroupResponseMember;
use milena_protocol::{ErrorCode, Message, Reader};

use super::{GroupCx, Timer};
use crate::partition::java_place;
pub(super) use member::{Member, Protocols};
pub(super) use rebalance::{refused_join, refused_sync};

/// Protocol type of consumers.
pub(super) const CONSUMER: &str = "consumer";

/// State of a classic group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No members.
    Empty,
    /// Members are joining.
    PreparingRebalance,
    /// The leader is assigning.
    CompletingRebalance,
    /// Every member has its assignment, or may fetch it.
    Stable,
}

impl State {
    /// Kafka's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// How a request names its member.
#[derive(Debug, Clone, Copy)]
pub(super) struct Identity<'r> {
    /// The member's id.
    pub(super) member: &'r str,
    /// The name of a static member.
    pub(super) instance: Option<&'r str>,
}

/// A classic group.
#[derive(Debug)]
pub(super) struct ClassicGroup {
    id: Arc<str>,
    state: State,
    /// The rebalance under way began in an empty group: how long it may still be delayed, ms.
    initial: Option<InitialRebalance>,
    /// When the state was entered, ms since 1970.
    state_since: Option<i64>,
    protocol_type: Option<String>,
    protocol_name: Option<String>,
    generation: i32,
    leader: Option<Arc<str>>,
    members: BTreeMap<Arc<str>, Member>,
    /// Member ids of static members, by their names.
    static_members: BTreeMap<String, Arc<str>>,
    /// Members that were given an id and are to join with it.
    pending_joins: BTreeSet<Arc<str>>,
    /// Members that have not asked for their assignment.
    pending_syncs: BTreeSet<Arc<str>>,
    /// Members that wait in JoinGroup.
    awaiting_joins: usize,
    /// How many members support a protocol.
    supported: BTreeMap<String, usize>,
    /// The topics that consumers are subscribed to, where known.
    subscribed: Option<BTreeSet<String>>,
}

/// The delay of the first rebalance of an empty group.
#[derive(Debug, Clone, Copy)]
struct InitialRebalance {
    delay_ms: i32,
    remaining_ms: i32,
    /// A member has come since the delay began.
    member_added: bool,
}

impl ClassicGroup {
    /// An empty group that members are about to join.
    pub(super) fn new(id: Arc<str>, state_since: Option<i64>) -> Self {
        Self {
            id,
            state: State::Empty,
            initial: None,
            state_since,
            protocol_type: None,
            protocol_name: None,
            generation: 0,
            leader: None,
            members: BTreeMap::new(),
            static_members: BTreeMap::new(),
            pending_joins: BTreeSet::new(),
            pending_syncs: BTreeSet::new(),
            awaiting_joins: 0,
            supported: BTreeMap::new(),
            subscribed: None,
        }
    }

    /// A group that only keeps offsets.
    pub(super) fn simple(id: Arc<str>) -> Self {
        Self::new(id, None)
    }

    /// Whether the group has a record: one that only keeps offsets has none.
    pub(super) fn is_recorded(&self) -> bool {
        self.protocol_type.is_some() || self.state_since.is_some()
    }

    /// The group's id.
    pub(super) fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Its state.
    pub(super) fn state(&self) -> State {
        self.state
    }

    /// What its members speak among themselves; `None` in a group that only keeps offsets.
    pub(super) fn protocol_type(&self) -> Option<&str> {
        self.protocol_type.as_deref()
    }

    /// The protocol of this generation.
    pub(super) fn protocol_name(&self) -> Option<&str> {
        self.protocol_name.as_deref()
    }

    /// Its generation.
    pub(super) fn generation(&self) -> i32 {
        self.generation
    }

    /// No members.
    pub(super) fn is_empty(&self) -> bool {
        self.state == State::Empty
    }

    /// How many members there are.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// How many members wait in JoinGroup.
    pub(super) fn awaiting_joins(&self) -> usize {
        self.awaiting_joins
    }

    /// A member.
    pub(super) fn member(&self, id: &str) -> Option<&Member> {
        self.members.get(id)
    }

    /// A member.
    pub(super) fn member_mut(&mut self, id: &str) -> Option<&mut Member> {
        self.members.get_mut(id)
    }

    /// The leader's member id.
    pub(super) fn leader(&self) -> Option<&Arc<str>> {
        self.leader.as_ref()
    }

    /// Whether a member is the leader.
    pub(super) fn is_leader(&self, member: &str) -> bool {
        self.leader.as_deref() == Some(member)
    }

    /// The member id of a static member.
    pub(super) fn static_member(&self, instance: &str) -> Option<&Arc<str>> {
        self.static_members.get(instance)
    }

    /// Whether a member was given an id and is to join with it.
    pub(super) fn is_pending(&self, member: &str) -> bool {
        self.pending_joins.contains(member)
    }

    /// Gives out an id.
    pub(super) fn add_pending(&mut self, member: Arc<str>) {
        self.pending_joins.insert(member);
    }

    /// Checks that a request comes from a member.
    ///
    /// # Errors
    /// UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another has its name.
    pub(super) fn check_member(&self, who: Identity<'_>) -> Result<(), ErrorCode> {
        if let Some(instance) = who.instance {
            match self.static_member(instance) {
                None => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
                Some(member) if **member != *who.member => return Err(ErrorCode::FENCED_INSTANCE_ID),
                Some(_) => {}
            }
        }
        self.member(who.member).map(|_| ()).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)
    }

    /// Checks that offsets may be committed.
    ///
    /// # Errors
    /// What a commit is refused with.
    pub(super) fn may_commit(&self, who: Identity<'_>, generation: i32) -> Result<(), ErrorCode> {
        if generation < 0 && self.is_empty() {
            // An administrator, or a consumer that assigns its partitions itself.
            return Ok(());
        }
        if generation < 0 && who.member.is_empty() && who.instance.is_none() {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        self.check_member(who)?;
        if generation != self.generation {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        match self.state {
            State::CompletingRebalance => Err(ErrorCode::REBALANCE_IN_PROGRESS),
            _ => Ok(()),
        }
    }

    /// Whether a member may commit offsets in a transaction.
    pub(super) fn may_commit_in_transaction(&self, who: Identity<'_>, generation: i32) -> Result<(), ErrorCode> {
        if generation < 0 && self.is_empty() {
            return Ok(());
        }
        self.check_member(who)?;
        if generation == self.generation { Ok(()) } else { Err(ErrorCode::ILLEGAL_GENERATION) }
    }

    /// Whether offsets may be deleted: those of consumers by topic, those of others when they are gone.
    pub(super) fn may_delete_offsets(&self) -> bool {
        self.is_empty() || self.is_of_consumers()
    }

    fn is_of_consumers(&self) -> bool {
        self.protocol_type() == Some(CONSUMER)
    }

    /// Whether the group reads a topic. Where the subscriptions are not known, consumers are taken to read everything.
    pub(super) fn is_subscribed_to(&self, topic: &str) -> bool {
        match &self.subscribed {
            Some(topics) => topics.contains(topic),
            None => self.is_of_consumers(),
        }
    }

    /// From when on offsets age: `None` when they don't, `Some(None)` from their commit on.
    pub(super) fn offsets_kept_since(&self) -> Option<Option<i64>> {
        match self.state {
            _ if self.protocol_type.is_none() => Some(None),
            State::Empty => Some(self.state_since),
            State::Stable if self.is_of_consumers() && self.subscribed.is_some() => Some(None),
            _ => None,
        }
    }

    /// Whether a member with these protocols can be one of this group.
    pub(super) fn supports(&self, protocol_type: &str, protocols: &[JoinGroupRequestProtocol<'_>]) -> bool {
        if self.is_empty() {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        let by_all = |name: &str| self.supported.get(name).copied().unwrap_or(0) == self.members.len();
        self.protocol_type() == Some(protocol_type) && protocols.iter().any(|protocol| by_all(&protocol.name))
    }

    /// Starts the time after which a silent member is dropped.
    pub(super) fn start_session(&self, member: &str, timeout_ms: i32, cx: &mut GroupCx<'_, '_>) {
        let id = self.members.get_key_value(member).map(|(id, _)| Arc::clone(id)).unwrap_or_else(|| member.into());
        cx.set_timer(Timer::Session { group: Arc::clone(&self.id), member: id }, timeout_ms.into());
    }

    /// A member was heard of.
    pub(super) fn renew_session(&self, member: &str, cx: &mut GroupCx<'_, '_>) {
        if let Some(timeout_ms) = self.member(member).map(|member| member.session_timeout_ms) {
            self.start_session(member, timeout_ms, cx);
        }
    }

    /// A member that is gone can't be late.
    pub(super) fn end_session(&self, member: &str, cx: &mut GroupCx<'_, '_>) {
        cx.cancel_timer(&Timer::Session { group: Arc::clone(&self.id), member: member.into() });
    }

    /// Adds a member, as the leader when it is the first.
    pub(super) fn add(&mut self, member: Member) {
        let id = Arc::clone(&member.id);
        if let Some(instance) = &member.instance {
            self.static_members.insert(instance.clone(), Arc::clone(&id));
        }
        if self.members.is_empty() {
            self.protocol_type = Some(member.protocol_type.clone());
        }
        self.leader.get_or_insert_with(|| Arc::clone(&id));
        self.count_protocols(&member.protocols, true);
        self.awaiting_joins += usize::from(member.join.is_some());
        self.pending_joins.remove(&id);
        if let Some(initial) = &mut self.initial {
            initial.member_added = true;
        }
        self.members.insert(id, member);
    }

    /// Takes a member out; the next one leads when it was the leader.
    pub(super) fn remove(&mut self, id: &str) {
        if let Some(member) = self.members.remove(id) {
            self.count_protocols(&member.protocols, false);
            self.awaiting_joins -= usize::from(member.join.is_some());
            if let Some(instance) = &member.instance {
                self.static_members.remove(instance);
            }
        }
        if self.is_leader(id) {
            self.leader = self.members.keys().next().cloned();
        }
        self.pending_joins.remove(id);
        self.pending_syncs.remove(id);
    }

    /// The ids of all members.
    pub(super) fn member_ids(&self) -> Vec<Arc<str>> {
        self.members.keys().cloned().collect()
    }

    /// Gives a static member another member id; it keeps everything else, the lead too.
    pub(super) fn rename(&mut self, instance: &str, old: &str, new: Arc<str>) {
        let Some(mut member) = self.members.remove(old) else { return };
        member.id = Arc::clone(&new);
        if self.is_leader(old) {
            self.leader = Some(Arc::clone(&new));
        }
        if self.pending_syncs.remove(old) {
            self.pending_syncs.insert(Arc::clone(&new));
        }
        self.static_members.insert(instance.to_owned(), Arc::clone(&new));
        self.members.insert(new, member);
    }

    /// Gives a member other protocols.
    pub(super) fn set_protocols(&mut self, id: &str, protocols: Protocols) {
        let Some(member) = self.members.get_mut(id) else { return };
        let before = std::mem::replace(&mut member.protocols, protocols.clone());
        self.count_protocols(&before, false);
        self.count_protocols(&protocols, true);
    }

    fn count_protocols(&mut self, protocols: &Protocols, more: bool) {
        for name in protocols.names() {
            if more {
                *self.supported.entry(name.to_owned()).or_default() += 1;
            } else if let Some(count) = self.supported.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    self.supported.remove(name);
                }
            }
        }
    }

    /// The protocol that the members agree on: each votes for its first one of those that all support. With as many votes
    /// the one wins that Kafka finds first in its table.
    fn select_protocol(&self) -> Option<String> {
        let candidates: BTreeSet<&str> =
            self.supported.iter().filter(|(_, count)| **count == self.members.len()).map(|(name, _)| &**name).collect();
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            if let Some(name) = member.protocols.names().find(|name| candidates.contains(name)) {
                *votes.entry(name).or_default() += 1;
            }
        }
        let len = votes.len();
        let order = |(name, votes): &(&str, usize)| (*votes, std::cmp::Reverse(java_place(name, len)));
        votes.into_iter().max_by_key(order).map(|(name, _)| name.to_owned())
    }

    /// Whether the protocol of the next generation would be that of this one.
    pub(super) fn keeps_protocol(&self) -> bool {
        self.select_protocol() == self.protocol_name
    }

    /// The topics that the members' subscriptions name, as far as they can be read.
    fn read_subscriptions(&self) -> Option<BTreeSet<String>> {
        if !self.is_of_consumers() {
            return None;
        }
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            topics.extend(subscribed_topics(member.protocols.metadata(self.protocol_name()?)?)?);
        }
        Some(topics)
    }

    /// What the leader is told of the members.
    pub(super) fn members_for_leader(&self) -> Vec<JoinGroupResponseMember<'static>> {
        let protocol = self.protocol_name().unwrap_or_default();
        let member = |member: &Member| JoinGroupResponseMember {
            member_id: member.id.to_string().into(),
            group_instance_id: member.instance.clone().map(Into::into),
            metadata: member.protocols.metadata(protocol).unwrap_or_default().to_vec().into(),
        };
        self.members.values().map(member).collect()
    }
}

/// The topics of a consumer's subscription: a version, of which nothing depends, and fields that every version begins with.
fn subscribed_topics(subscription: &[u8]) -> Option<Vec<String>> {
    let mut reader = Reader::new(subscription);
    reader.i16().ok()?;
    let subscription = ConsumerProtocolSubscription::decode(&mut reader, 0).ok()?;
    Some(subscription.topics.into_iter().map(Into::into).collect())
}
