//! Members of the classic protocol in a consumer group: they join, sync, beat and leave as in a classic group, and the
//! coordinator assigns. A member's generation is its epoch; each step towards its assignment is another JoinGroup.

use std::sync::Arc;

use milena_protocol::ErrorCode;
use milena_protocol::messages::leave_group_request::MemberIdentity;
use milena_protocol::messages::{
    HeartbeatRequest, JoinGroupResponse, LeaveGroupRequest, SyncGroupRequest, SyncGroupResponse,
};

use super::embedded::{self, Subscription};
use super::member::{ClassicSide, Member, MemberState};
use super::migrate::write;
use super::step::Step;
use super::{ConsumerGroup, Writing, member_id, start_session_of};
use crate::engine::Ticket;
use crate::group::api::{Join, Reply};
use crate::group::classic::{CONSUMER, Identity, Protocols, refused_join, refused_sync};
use crate::group::{After, GroupCx, Groups, Timer, identity, leave};

/// A JoinGroup that waits for its records.
#[derive(Debug)]
pub struct Joined {
    ticket: Ticket,
    group: Arc<str>,
    member: Arc<str>,
    response: JoinGroupResponse<'static>,
    session_timeout_ms: i32,
    rebalance_timeout_ms: i32,
}

impl Groups {
    /// JoinGroup into a consumer group that has members.
    pub(in crate::group) fn classic_joins(&mut self, ticket: Ticket, join: &Join<'_>, cx: &mut GroupCx<'_, '_>) {
        if let Err((member, error)) = self.classic_join(ticket, join, cx) {
            cx.reply(ticket, Reply::Join(refused_join(&member, error)));
        }
    }

    /// What is refused is told with a member id, of which most answers have none.
    fn classic_join(
        &mut self,
        ticket: Ticket,
        join: &Join<'_>,
        cx: &mut GroupCx<'_, '_>,
    ) -> Result<(), (Arc<str>, ErrorCode)> {
        let request = &join.request;
        let refused = |error| (Arc::from(""), error);
        let (id, group) = self.consumers.get_key_value(&*request.group_id).expect("the caller has looked");
        let member_id = member_id(&request.member_id, cx);
        let protocols = Protocols::of(&request.protocols);
        group.admits(&member_id, &request.protocol_type, &protocols, cx).map_err(refused)?;
        let is_new = request.member_id.is_empty();
        if is_new && join.requires_member_id && request.group_instance_id.is_none() {
            return Err((member_id, ErrorCode::MEMBER_ID_REQUIRED));
        }
        let metadata = Arc::clone(&cx.settings().metadata);
        let mut records = cx.records();
        let writing = Writing { group: id, records: &mut records };
        let mut step = Step::new(group, &*metadata, writing);
        let before = step.classic_member(&member_id, request.group_instance_id.as_deref(), is_new).map_err(refused)?;
        let (_, first) = protocols.iter().next().unwrap_or_default();
        let subscription = Subscription::read(first).ok_or_else(|| refused(ErrorCode::INCONSISTENT_GROUP_PROTOCOL))?;
        let wanting = wanting(&before, join, &subscription, protocols);
        let changed = step.subscribe(&before, &wanting).map_err(|(error, _)| refused(error))?;
        let owned = subscription.owned(&*metadata);
        let replaced = request.group_instance_id.as_deref().and_then(|instance| group.static_member(instance));
        let downgrades = replaced.is_some_and(|replaced| group.may_downgrade_replacing(replaced, cx.settings()));
        let (after, downgraded) = if downgrades {
            // Its generation is that of the classic group.
            let after = Member { epoch: group.epoch, ..wanting };
            let downgraded = group.downgrade_replacing(id, &after, changed, &mut step.writing, cx);
            (after, Some(downgraded))
        } else {
            (step.reconcile(&wanting, changed, cx.now().wall_ms, Some(&owned)), None)
        };
        let joined = Joined {
            ticket,
            group: Arc::clone(id),
            member: Arc::clone(&after.id),
            response: joined(&after),
            session_timeout_ms: request.session_timeout_ms,
            rebalance_timeout_ms: request.rebalance_timeout_ms,
        };
        write(records, downgraded, After::Joined(joined), cx);
        Ok(())
    }

    /// The records of a JoinGroup are committed, or are not.
    pub(in crate::group) fn classic_joined(
        &self,
        joined: Joined,
        outcome: Result<(), ErrorCode>,
        cx: &mut GroupCx<'_, '_>,
    ) {
        let Joined { ticket, group, member, response, .. } = joined;
        if let Err(error) = outcome {
            return cx.reply(ticket, Reply::Join(refused_join("", error)));
        }
        if self.consumers.contains_key(&group) {
            cx.cancel_timer(&Timer::ClassicJoin { group: Arc::clone(&group), member: Arc::clone(&member) });
            start_session_of(&group, &member, joined.session_timeout_ms.into(), cx);
            cx.set_timer(Timer::ClassicSync { group, member }, joined.rebalance_timeout_ms.into());
        }
        cx.reply(ticket, Reply::Join(response));
    }

    /// SyncGroup of a member of a consumer group: its assignment as of its last JoinGroup.
    pub(in crate::group) fn classic_syncs(
        &self,
        ticket: Ticket,
        request: &SyncGroupRequest<'_>,
        cx: &mut GroupCx<'_, '_>,
    ) {
        let response = self.classic_sync(request, cx).unwrap_or_else(refused_sync);
        if response.error_code == 0 {
            cx.reply_when_committed(ticket, Reply::Sync(response));
        } else {
            cx.reply(ticket, Reply::Sync(response));
        }
    }

    fn classic_sync(
        &self,
        request: &SyncGroupRequest<'_>,
        cx: &mut GroupCx<'_, '_>,
    ) -> Result<SyncGroupResponse<'static>, ErrorCode> {
        let who = identity(&request.member_id, request.group_instance_id.as_deref());
        let (id, group) = self.consumers.get_key_value(&*request.group_id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        let (member, classic) = group.classic_member(who, request.generation_id)?;
        let (name, subscription) = classic.protocols.iter().next().unwrap_or_default();
        let differs = |asked: Option<&str>, known: &str| asked.is_some_and(|asked| asked != known);
        if differs(request.protocol_type.as_deref(), CONSUMER) || differs(request.protocol_name.as_deref(), name) {
            return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        }
        if group.target_epoch > member.epoch && member.state != MemberState::UnrevokedPartitions {
            expect_join(id, member, cx);
            return Err(ErrorCode::REBALANCE_IN_PROGRESS);
        }
        cx.cancel_timer(&Timer::ClassicSync { group: Arc::clone(id), member: Arc::clone(&member.id) });
        start_session_of(id, &member.id, classic.session_timeout_ms.into(), cx);
        let assigned = member.assigned.iter().map(|(topic, own)| (*topic, own.keys().copied().collect()));
        let text = |text: &Option<milena_protocol::Str<'_>>| text.as_deref().map(|text| text.to_owned().into());
        Ok(SyncGroupResponse {
            protocol_type: text(&request.protocol_type),
            protocol_name: text(&request.protocol_name),
            assignment: embedded::assignment(subscription, assigned, &*cx.settings().metadata).into(),
            ..Default::default()
        })
    }

    /// Heartbeat of a member of a consumer group: it is told to join again when there is a next step for it.
    pub(in crate::group) fn classic_beats(
        &self,
        request: &HeartbeatRequest<'_>,
        cx: &mut GroupCx<'_, '_>,
    ) -> Result<(), ErrorCode> {
        let who = identity(&request.member_id, request.group_instance_id.as_deref());
        let (id, group) = self.consumers.get_key_value(&*request.group_id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        let (member, classic) = group.classic_member(who, request.generation_id)?;
        start_session_of(id, &member.id, classic.session_timeout_ms.into(), cx);
        if !group.has_next_step(member) && !group.waits_for_assignment(id, cx) {
            return Ok(());
        }
        expect_join(id, member, cx);
        Err(ErrorCode::REBALANCE_IN_PROGRESS)
    }

    /// LeaveGroup of members of a consumer group, of either protocol.
    pub(in crate::group) fn classic_leaves(
        &self,
        ticket: Ticket,
        request: &LeaveGroupRequest<'_>,
        cx: &mut GroupCx<'_, '_>,
    ) {
        let Some((id, group)) = self.consumers.get_key_value(&*request.group_id) else { return };
        let mut gone: Vec<Arc<str>> = Vec::new();
        let mut left = Vec::with_capacity(request.members.len());
        for member in &request.members {
            let outcome = group.leaving(member).map(|known| {
                if !gone.contains(known) {
                    gone.push(Arc::clone(known));
                }
            });
            left.push(leave::answer(member, outcome.err().unwrap_or(ErrorCode::NONE)));
        }
        let response = leave::Response::new(left);
        if gone.is_empty() {
            return cx.reply_when_committed(ticket, Reply::Leave(response.or_failed(Ok(()))));
        }
        let mut records = cx.records();
        let downgraded = group.drop_members(id, &gone, &mut records, cx);
        write(records, downgraded, After::Left(ticket, response), cx);
    }
}

/// The member is to join again in the time that its rebalance may take.
fn expect_join(group: &Arc<str>, member: &Member, cx: &mut GroupCx<'_, '_>) {
    let timer = Timer::ClassicJoin { group: Arc::clone(group), member: Arc::clone(&member.id) };
    cx.set_timer_if_absent(timer, member.rebalance_timeout_ms.into());
}

/// The member with what its JoinGroup asks for.
fn wanting(before: &Member, join: &Join<'_>, subscription: &Subscription, protocols: Protocols) -> Member {
    let request = &join.request;
    let mut after = before.clone();
    after.instance = request.group_instance_id.as_deref().map(str::to_owned).or(after.instance);
    after.rack = subscription.rack.clone().or(after.rack);
    if request.rebalance_timeout_ms != -1 {
        after.rebalance_timeout_ms = request.rebalance_timeout_ms;
    }
    after.names = subscription.topics.clone();
    after.regex = String::new();
    join.client_id.clone_into(&mut after.client_id);
    join.client_host.clone_into(&mut after.client_host);
    after.classic = Some(ClassicSide { session_timeout_ms: request.session_timeout_ms, protocols });
    after
}

/// The answer to a member: its first protocol is the group's to it, and nobody leads.
fn joined(member: &Member) -> JoinGroupResponse<'static> {
    let protocol = member.classic.as_ref().and_then(|classic| classic.protocols.names().next()).map(str::to_owned);
    JoinGroupResponse {
        generation_id: member.epoch,
        protocol_type: Some(CONSUMER.into()),
        protocol_name: protocol.map(Into::into),
        member_id: member.id.to_string().into(),
        ..Default::default()
    }
}

impl ConsumerGroup {
    /// Whether a member of the classic protocol may join.
    fn admits(
        &self,
        member: &str,
        protocol_type: &str,
        protocols: &Protocols,
        cx: &GroupCx<'_, '_>,
    ) -> Result<(), ErrorCode> {
        if !self.members.contains_key(member) && self.members.len() >= cx.settings().consumer_max_size {
            return Err(ErrorCode::GROUP_MAX_SIZE_REACHED);
        }
        let classic = || self.members.values().filter_map(|member| member.classic.as_ref());
        let known_to_all = |name: &str| classic().all(|other| other.protocols.metadata(name).is_some());
        let supported = protocol_type == CONSUMER && protocols.names().any(known_to_all);
        if supported { Ok(()) } else { Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL) }
    }

    /// The member that a request is of, in its generation.
    fn classic_member(&self, who: Identity<'_>, generation: i32) -> Result<(&Member, &ClassicSide), ErrorCode> {
        let member = self.identified(who)?;
        let classic = member.classic.as_ref().ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        if member.epoch == generation { Ok((member, classic)) } else { Err(ErrorCode::ILLEGAL_GENERATION) }
    }

    fn identified(&self, who: Identity<'_>) -> Result<&Member, ErrorCode> {
        let Some(instance) = who.instance else {
            return self.members.get(who.member).ok_or(ErrorCode::UNKNOWN_MEMBER_ID);
        };
        let member = self.static_member(instance).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        if *member.id == *who.member { Ok(member) } else { Err(ErrorCode::FENCED_INSTANCE_ID) }
    }

    /// The member that LeaveGroup names; an administrator names a static one without its id.
    fn leaving(&self, named: &MemberIdentity<'_>) -> Result<&Arc<str>, ErrorCode> {
        let instance = named.group_instance_id.as_deref();
        let by_name = instance.filter(|_| named.member_id.is_empty()).map(|instance| self.static_member(instance));
        match by_name {
            Some(member) => member.map(|member| &member.id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID),
            None => self.identified(identity(&named.member_id, instance)).map(|member| &member.id),
        }
    }

    /// Whether joining again would bring a member further.
    fn has_next_step(&self, member: &Member) -> bool {
        match member.state {
            _ if member.epoch < self.target_epoch => true,
            MemberState::UnrevokedPartitions => true,
            MemberState::UnreleasedPartitions => !self.waits_for_others(member),
            MemberState::Stable | MemberState::Unknown => false,
        }
    }

    /// Whether another assignment is due that no heartbeat of the consumer protocol will bring about.
    fn waits_for_assignment(&self, id: &str, cx: &GroupCx<'_, '_>) -> bool {
        self.is_assignment_due(id, self.epoch, &*cx.settings().metadata, cx.now().wall_ms)
            && self.members.values().all(|member| member.classic.is_some())
    }

    /// Whether others own something that a member should.
    fn waits_for_others(&self, member: &Member) -> bool {
        let target = self.targets.get(&member.id).into_iter().flatten();
        let mut wanted = target.flat_map(|(topic, partitions)| partitions.iter().map(move |one| (*topic, *one)));
        wanted.any(|(topic, partition)| {
            let has = member.assigned.get(&topic).is_some_and(|own| own.contains_key(&partition));
            !has && self.owners.contains_key(&(topic, partition))
        })
    }
}
