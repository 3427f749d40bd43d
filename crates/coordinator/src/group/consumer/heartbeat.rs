//! ConsumerGroupHeartbeat: a member joins, asks for other topics, and follows its assignment.
//!
//! What a heartbeat changes is worked out on a copy of the member and written as records; the group changes when they are
//! replayed, and the member is answered when they are committed.

use std::sync::Arc;

use milena_protocol::messages::ConsumerGroupHeartbeatRequest;
use milena_protocol::messages::consumer_group_heartbeat_response::{
    Assignment, ConsumerGroupHeartbeatResponse, TopicPartitions,
};
use milena_protocol::{ErrorCode, Str};

use super::member::{Member, MemberState, Owned};
use super::migrate::{Downgraded, write};
use super::step::Step;
use super::{ConsumerGroup, Writing, member_id, start_session};
use crate::engine::Ticket;
use crate::group::api::{ConsumerHeartbeat, Reply};
use crate::group::expire::group_key;
use crate::group::{After, GroupCx, Groups, State, Timer};
use crate::records::Records;

/// Epoch of a member that joins.
pub(super) const JOIN: i32 = 0;
/// Epoch of a member that leaves.
pub(super) const LEAVE: i32 = -1;
/// Epoch of a static member that will come back.
pub(super) const LEAVE_FOR_NOW: i32 = -2;
/// Bytes of a message at most.
const LONGEST_MESSAGE: usize = 4096;

/// Longest client id, bytes: one that is not UTF-8 gets longer when it is read.
const MOST_CLIENT_ID_BYTES: usize = i16::MAX as usize;

/// Why a heartbeat is refused, in a code and in words.
pub(super) type Refusal = (ErrorCode, String);

/// An answer that waits for its records.
#[derive(Debug)]
pub struct Beat {
    pub(super) ticket: Ticket,
    pub(super) response: ConsumerGroupHeartbeatResponse<'static>,
    /// A group with expressions to look up then.
    pub(super) resolve: Option<Arc<str>>,
}

impl Groups {
    pub(in crate::group) fn consumer_heartbeat(
        &mut self,
        ticket: Ticket,
        heartbeat: &ConsumerHeartbeat<'_>,
        cx: &mut GroupCx<'_, '_>,
    ) {
        let request = &heartbeat.request;
        let mut records = cx.records();
        let outcome = check(heartbeat, cx).and_then(|()| match request.member_epoch {
            LEAVE | LEAVE_FOR_NOW => self.consumer_leaves(request, &mut records, cx),
            _ => self.consumer_beats(heartbeat, &mut records, cx),
        });
        let Outcome { response, resolve, downgraded } = match outcome {
            Ok(outcome) => outcome,
            Err((error, message)) => {
                let response = refused(error, message);
                return cx.reply(ticket, Reply::ConsumerHeartbeat(response));
            }
        };
        // What it is told rests on what was written before, also when nothing is written now.
        write(records, downgraded, After::Beat(Beat { ticket, response, resolve }), cx);
    }

    /// The records of a heartbeat are committed, or are not.
    pub(in crate::group) fn beaten(&mut self, beat: Beat, outcome: Result<(), ErrorCode>, cx: &mut GroupCx<'_, '_>) {
        match outcome {
            Ok(()) => {
                cx.reply(beat.ticket, Reply::ConsumerHeartbeat(beat.response));
                if let Some(group) = beat.resolve {
                    self.resolve(&group, cx);
                }
            }
            Err(error) => cx.reply(beat.ticket, Reply::ConsumerHeartbeat(refused(error, String::new()))),
        }
    }

    /// The group that a member joins, where there is none yet. A classic one without members makes way for it, and one with
    /// members becomes it.
    fn joined_group(
        &mut self,
        id: &Arc<str>,
        joins: bool,
        records: &mut Records,
        cx: &mut GroupCx<'_, '_>,
    ) -> Result<ConsumerGroup, Refusal> {
        if self.consumers.contains_key(id) {
            return Ok(ConsumerGroup::new());
        }
        match self.groups.get_mut(id) {
            _ if !joins => Err((ErrorCode::GROUP_ID_NOT_FOUND, format!("Consumer group {id} not found."))),
            Some(classic) if !classic.is_empty() => ConsumerGroup::upgraded(classic, records, cx),
            Some(classic) if classic.is_recorded() => {
                records.remove(&group_key(id));
                Ok(ConsumerGroup::new())
            }
            _ => Ok(ConsumerGroup::new()),
        }
    }

    fn consumer_beats(
        &mut self,
        heartbeat: &ConsumerHeartbeat<'_>,
        records: &mut Records,
        cx: &mut GroupCx<'_, '_>,
    ) -> Result<Outcome, Refusal> {
        let request = &heartbeat.request;
        let id: Arc<str> = Arc::from(&*request.group_id);
        let in_rebalance = self.groups.get(&id).is_some_and(|classic| classic.state() != State::Stable);
        let new = self.joined_group(&id, request.member_epoch == JOIN, records, cx)?;
        let member_id = member_id(&request.member_id, cx);
        let metadata = Arc::clone(&cx.settings().metadata);
        let now_ms = cx.now().wall_ms;
        let group = self.consumers.get(&id).unwrap_or(&new);
        let writing = Writing { group: &id, records };
        let mut step = Step::new(group, &*metadata, writing);
        // What the last leader has assigned is not all, if it has not ended.
        step.is_upgraded = in_rebalance && !new.is_empty();
        let before = step.member(&member_id, request, cx.settings().consumer_max_size)?;
        let wanting = wanting(&before, heartbeat);
        let changed = step.subscribe(&before, &wanting)?;
        let after = step.reconcile(&wanting, changed, now_ms, request.topic_partitions.as_deref());
        let bumped = step.epoch != group.epoch;
        let resolve = step.is_lookup_due(&after, now_ms).then(|| Arc::clone(&id));
        if let Some(group) = self.consumers.get_mut(&id).filter(|_| !bumped) {
            group.compared_version = Some(metadata.version());
        }
        start_session(&id, &member_id, cx);
        let timer = Timer::Revocation { group: Arc::clone(&id), member: member_id };
        if after.state != MemberState::UnrevokedPartitions {
            cx.cancel_timer(&timer);
        } else if after != wanting {
            cx.set_timer(timer, after.rebalance_timeout_ms.into());
        }
        let response = ConsumerGroupHeartbeatResponse {
            member_id: Some(after.id.to_string().into()),
            member_epoch: after.epoch,
            heartbeat_interval_ms: i32::try_from(metadata.group_config(&id, "consumer.heartbeat.interval.ms"))
                .unwrap_or(i32::MAX),
            assignment: (says_all(request) || after.assigned != before.assigned).then(|| assignment(&after.assigned)),
            ..Default::default()
        };
        Ok(Outcome { response, resolve, downgraded: None })
    }
}

/// What comes of a heartbeat.
pub(super) struct Outcome {
    pub(super) response: ConsumerGroupHeartbeatResponse<'static>,
    /// A group with expressions to look up after it.
    pub(super) resolve: Option<Arc<str>>,
    /// A group that becomes a classic one by it.
    pub(super) downgraded: Option<Downgraded>,
}

/// The member with what its heartbeat asks for.
fn wanting(before: &Member, heartbeat: &ConsumerHeartbeat<'_>) -> Member {
    let request = &heartbeat.request;
    let mut after = before.clone();
    let text = |text: &Option<Str<'_>>| text.as_deref().map(str::to_owned);
    if let Some(names) = &request.subscribed_topic_names {
        after.names = names.iter().map(ToString::to_string).collect();
    }
    if let Some(regex) = text(&request.subscribed_topic_regex) {
        after.regex = regex;
    }
    if request.rebalance_timeout_ms != -1 {
        after.rebalance_timeout_ms = request.rebalance_timeout_ms;
    }
    after.instance = text(&request.instance_id).or(after.instance);
    after.rack = text(&request.rack_id).or(after.rack);
    after.assignor = text(&request.server_assignor).or(after.assignor);
    heartbeat.client_id.clone_into(&mut after.client_id);
    heartbeat.client_host.clone_into(&mut after.client_host);
    after.classic = None;
    after
}

/// Whether a heartbeat says everything that the coordinator may have lost: then it is told everything, too.
fn says_all(request: &ConsumerGroupHeartbeatRequest<'_>) -> bool {
    let subscribes = request.subscribed_topic_names.is_some() || request.subscribed_topic_regex.is_some();
    request.member_epoch == JOIN
        || (request.rebalance_timeout_ms != -1 && subscribes && request.topic_partitions.is_some())
}

/// Checks what a heartbeat says about itself, in Kafka's order.
fn check(heartbeat: &ConsumerHeartbeat<'_>, cx: &GroupCx<'_, '_>) -> Result<(), Refusal> {
    let request = &heartbeat.request;
    let invalid = |message: &str| Err((ErrorCode::INVALID_REQUEST, message.to_owned()));
    let is_blank = |text: &Option<Str<'_>>| text.as_deref().is_some_and(|text| text.trim().is_empty());
    if heartbeat.client_id.len() > MOST_CLIENT_ID_BYTES {
        return invalid("ClientId is longer than a record can say.");
    }
    if heartbeat.requires_member_id && request.member_id.trim().is_empty() {
        return invalid("MemberId can't be empty.");
    }
    if request.group_id.trim().is_empty() {
        return invalid("GroupId can't be empty.");
    }
    if is_blank(&request.instance_id) {
        return invalid("InstanceId can't be empty.");
    }
    if is_blank(&request.rack_id) {
        return invalid("RackId can't be empty.");
    }
    match request.member_epoch {
        JOIN if request.rebalance_timeout_ms == -1 => {
            return invalid("RebalanceTimeoutMs must be provided in first request.");
        }
        JOIN if request.topic_partitions.as_ref().is_none_or(|owned| !owned.is_empty()) => {
            return invalid("TopicPartitions must be empty when (re-)joining.");
        }
        JOIN if request.subscribed_topic_names.is_none() && request.subscribed_topic_regex.is_none() => {
            return invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.");
        }
        JOIN => {}
        LEAVE_FOR_NOW.. if request.member_id.trim().is_empty() => return invalid("MemberId can't be empty."),
        LEAVE_FOR_NOW if request.instance_id.is_none() => return invalid("InstanceId can't be null."),
        LEAVE_FOR_NOW.. => {}
        _ => return invalid("MemberEpoch is invalid."),
    }
    match request.server_assignor.as_deref() {
        Some(name) if !cx.settings().metadata.assignors().iter().any(|known| known == name) => {
            let known = cx.settings().metadata.assignors().join(", ");
            let message = format!("ServerAssignor {name} is not supported. Supported assignors: {known}.");
            Err((ErrorCode::UNSUPPORTED_ASSIGNOR, message))
        }
        _ => Ok(()),
    }
}

/// A member may be one epoch behind when it has not got the last answer, and owns nothing that is not its own.
pub(super) fn check_epoch(member: &Member, request: &ConsumerGroupHeartbeatRequest<'_>) -> Result<(), Refusal> {
    let owned = request.topic_partitions.as_deref();
    let received = request.member_epoch;
    let lost = received < member.epoch && received == member.previous_epoch && member.has_all(owned);
    let knows = member.state != MemberState::Unknown || owned.is_some_and(<[_]>::is_empty);
    if received == JOIN || (knows && (received == member.epoch || lost)) {
        return Ok(());
    }
    let message = format!(
        "The consumer group member has another member epoch ({received}) than the one known by the group coordinator \
         ({}). The member must abandon all its partitions and rejoin.",
        member.epoch
    );
    Err((ErrorCode::FENCED_MEMBER_EPOCH, message))
}

/// The static member of this name, if `id` is it.
pub(super) fn is_static_member<'m>(named: Option<&'m Member>, id: &str, instance: &str) -> Result<&'m Member, Refusal> {
    match named {
        None => Err((ErrorCode::UNKNOWN_MEMBER_ID, format!("Instance id {instance} is unknown."))),
        Some(member) if *member.id != *id => {
            let message = format!("Static member {id} with instance id {instance} was fenced by member {}.", member.id);
            Err((ErrorCode::FENCED_INSTANCE_ID, message))
        }
        Some(member) => Ok(member),
    }
}

pub(super) fn unknown_member(id: &str, writing: &Writing<'_>) -> Refusal {
    (ErrorCode::UNKNOWN_MEMBER_ID, format!("Member {id} is not a member of group {}.", writing.group))
}

fn assignment(assigned: &Owned) -> Assignment<'static> {
    let topic = |(topic_id, partitions): (&_, &std::collections::BTreeMap<i32, i32>)| TopicPartitions {
        topic_id: *topic_id,
        partitions: partitions.keys().copied().collect::<Vec<_>>().into(),
    };
    Assignment { topic_partitions: assigned.iter().map(topic).collect() }
}

/// A message that repeats the request's own texts, which are as long as a field can be, and fits a field all the same.
pub(super) fn clipped(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
    message
}

/// The answer to a heartbeat that is refused.
fn refused(error: ErrorCode, message: String) -> ConsumerGroupHeartbeatResponse<'static> {
    let error_message = Some(message).filter(|message| !message.is_empty()).map(clipped).map(Into::into);
    ConsumerGroupHeartbeatResponse { error_code: error.0, error_message, ..Default::default() }
}
