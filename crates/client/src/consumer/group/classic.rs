//! A member of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup. One member, the leader, divides the
//! partitions for all. `lead` is what only the leader does.
//!
//! With an eager assignor, members give up everything before they join again. With a cooperative one they keep what they
//! have, give up what the new assignment takes from them, and join once more, so that others can get it (KIP-429).

mod lead;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use milena_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use milena_protocol::messages::leave_group_request::MemberIdentity;
use milena_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use milena_protocol::messages::{
    HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, SyncGroupRequest, SyncGroupResponse,
};
use milena_protocol::{ErrorCode, Uuid};
use tokio::time::Instant;

use super::assignor::{Assignor, Participant, Subscription, Topics};
use super::config::{GroupConfig, wire_millis};
use super::membership::{Answer, Change, Duties, Membership, Request, Step, Wanted};
use super::wire;
use crate::admin::TopicPartition;
use crate::error::{Error, check};
use crate::producer::GroupMetadata;

/// The protocol type of groups of consumers.
const CONSUMER: &str = "consumer";
/// A generation of who is no member.
const NO_GENERATION: i32 = -1;

/// Where a member stands.
#[derive(Debug)]
enum State {
    /// It is to join, and rejoin after that.
    Out,
    /// It has asked to join.
    Joining,
    /// It leads, and divides the partitions among these as soon as it knows the topics.
    Assigning(Vec<Participant>),
    /// It waits for its assignment; the leader with what each member gets.
    Syncing(Vec<SyncGroupRequestAssignment<'static>>),
    /// It has an assignment.
    Stable,
    /// It is to leave; and then to end, or to wait for its consumer.
    Leaving { end: bool },
    /// It has left.
    Left,
}

#[derive(Debug)]
pub(super) struct Classic {
    config: Arc<GroupConfig>,
    duties: Duties,
    state: State,
    /// Whether the assignor lets members keep what they have.
    cooperative: bool,
    topics: BTreeSet<String>,
    /// What the group was told.
    joined: BTreeSet<String>,
    member: String,
    generation: i32,
    assignor: Assignor,
    /// What the consumer has when it has followed all changes.
    owned: BTreeSet<TopicPartition>,
    /// The last assignment, and its generation, for assignors that want to know.
    last: Option<(Vec<TopicPartition>, i32)>,
    /// Why the member is to join again.
    rejoin: Option<&'static str>,
    /// Whether it has given up what it must before it joins again.
    prepared: bool,
    heartbeat_at: Instant,
    lead: lead::Lead,
}

impl Classic {
    pub(super) fn new(config: Arc<GroupConfig>, duties: Duties, topics: BTreeSet<String>, now: Instant) -> Self {
        let cooperative = config.assignors.iter().all(|assignor| *assignor == Assignor::CooperativeSticky);
        let assignor = config.assignors[0];
        Self {
            config,
            duties,
            state: State::Out,
            cooperative,
            topics,
            joined: BTreeSet::new(),
            member: String::new(),
            generation: NO_GENERATION,
            assignor,
            owned: BTreeSet::new(),
            last: None,
            rejoin: Some("the consumer has subscribed"),
            prepared: false,
            heartbeat_at: now,
            lead: lead::Lead::default(),
        }
    }

    fn ask_to_rejoin(&mut self, reason: &'static str) {
        tracing::debug!(group = self.config.group, reason, "is to join again");
        self.rejoin.get_or_insert(reason);
    }

    /// It is not known to the group any more, or not in this generation.
    fn forget(&mut self, member_too: bool) {
        if member_too {
            self.member.clear();
        }
        self.generation = NO_GENERATION;
        self.state = State::Out;
        self.lead.end();
        self.ask_to_rejoin("the member was not known to the group any more");
        self.lose();
    }

    fn lose(&mut self) {
        if !self.owned.is_empty() {
            let lost = std::mem::take(&mut self.owned);
            self.duties.tell(Change::Lost(lost.into_iter().collect()));
        }
    }

    /// Gives up what must not be had while the group is divided anew.
    fn prepare(&mut self) {
        if std::mem::replace(&mut self.prepared, true) {
            return;
        }
        let (cooperative, topics) = (self.cooperative, &self.topics);
        let given_up = |partition: &TopicPartition| !cooperative || !topics.contains(&*partition.topic);
        let revoked: Vec<_> = self.owned.iter().filter(|partition| given_up(partition)).cloned().collect();
        self.owned.retain(|partition| !given_up(partition));
        if !revoked.is_empty() {
            self.duties.tell(Change::Revoke(revoked));
        }
    }

    fn join(&mut self) -> Result<Request, Error> {
        self.state = State::Joining;
        self.joined = self.topics.clone();
        let protocol = |assignor: &Assignor| {
            let metadata = wire::write_subscription(&self.subscription(*assignor)?)?;
            Ok(JoinGroupRequestProtocol { name: assignor.name().into(), metadata: metadata.into() })
        };
        let protocols = self.config.assignors.iter().map(protocol).collect::<Result<_, Error>>()?;
        Ok(Request::Join(JoinGroupRequest {
            group_id: self.config.group.clone().into(),
            session_timeout_ms: wire_millis(self.config.session_timeout),
            rebalance_timeout_ms: wire_millis(self.config.max_poll_interval),
            member_id: self.member.clone().into(),
            group_instance_id: self.config.instance.clone().map(Into::into),
            protocol_type: CONSUMER.into(),
            protocols,
            reason: self.rejoin.map(Into::into),
        }))
    }

    fn subscription(&self, assignor: Assignor) -> Result<Subscription, Error> {
        let last = self.last.as_ref();
        let user_data = match (assignor, last) {
            (Assignor::Sticky, Some((had, since))) => Some(wire::write_previous_assignment(had, *since)?),
            (Assignor::CooperativeSticky, last) => {
                Some(wire::write_generation(last.map_or(NO_GENERATION, |last| last.1)))
            }
            _ => None,
        };
        Ok(Subscription {
            topics: self.topics.iter().cloned().collect(),
            user_data,
            owned: self.owned.iter().cloned().collect(),
            generation: (self.generation >= 0).then_some(self.generation),
            rack: self.config.rack.clone(),
        })
    }

    fn sync(&self, assignments: &[SyncGroupRequestAssignment<'static>]) -> Request {
        Request::Sync(SyncGroupRequest {
            group_id: self.config.group.clone().into(),
            generation_id: self.generation,
            member_id: self.member.clone().into(),
            group_instance_id: self.config.instance.clone().map(Into::into),
            protocol_type: Some(CONSUMER.into()),
            protocol_name: Some(self.assignor.name().into()),
            assignments: assignments.to_vec(),
        })
    }

    fn heartbeat(&mut self, now: Instant) -> Step {
        self.heartbeat_at = now + self.config.heartbeat_interval;
        Step::Send(Request::Heartbeat(HeartbeatRequest {
            group_id: self.config.group.clone().into(),
            generation_id: self.generation,
            member_id: self.member.clone().into(),
            group_instance_id: self.config.instance.clone().map(Into::into),
        }))
    }

    /// The request to leave. A static member stays: its session ends, or it comes back before.
    fn farewell(&self) -> Option<Request> {
        (self.config.instance.is_none() && !self.member.is_empty()).then(|| {
            let member = MemberIdentity {
                member_id: self.member.clone().into(),
                group_instance_id: None,
                reason: Some("the consumer has ended, or has not asked for records in time".into()),
            };
            let group_id = self.config.group.clone().into();
            Request::Leave(LeaveGroupRequest { group_id, members: vec![member], ..Default::default() })
        })
    }

    /// The consumer did not ask for records in time: it may hang, and others get what it has.
    fn expel(&mut self) {
        tracing::warn!(group = self.config.group, "leaves the group: max.poll.interval.ms is over");
        self.duties.expired = true;
        self.lose();
        self.state = State::Leaving { end: false };
    }

    /// What to do while nothing is under way.
    fn idle(&mut self, now: Instant) -> Step {
        let stable = matches!(self.state, State::Stable);
        if self.duties.expired {
            return Step::Wait(None);
        }
        if self.duties.is_overdue(now) {
            self.expel();
            return self.next(now);
        }
        if self.rejoin.is_some() {
            self.prepare();
            if self.duties.is_settled() {
                return self.join().map_or_else(|error| self.fail(error), Step::Send);
            }
        }
        let until = self.duties.poll_until(now);
        if !stable {
            Step::Wait(Some(until))
        } else if now >= self.heartbeat_at {
            self.heartbeat(now)
        } else {
            Step::Wait(Some(until.min(self.heartbeat_at)))
        }
    }

    fn fail(&mut self, error: Error) -> Step {
        tracing::warn!(group = self.config.group, %error, "can't be a member");
        self.lose();
        self.lead.end();
        self.state = State::Out;
        self.ask_to_rejoin("the consumer has heard what was wrong");
        self.duties.halt(error);
        Step::Wait(None)
    }

    fn on_joined(&mut self, response: &JoinGroupResponse<'_>, now: Instant) {
        self.duties.succeeded();
        self.member = response.member_id.to_string();
        self.generation = response.generation_id;
        let name = response.protocol_name.as_deref().unwrap_or_default();
        let Some(assignor) = self.config.assignors.iter().find(|assignor| assignor.name() == name) else {
            self.fail(ErrorCode::INCONSISTENT_GROUP_PROTOCOL.into());
            return;
        };
        self.assignor = *assignor;
        self.rejoin = None;
        self.heartbeat_at = now + self.config.heartbeat_interval;
        self.lead.end();
        self.state = State::Syncing(Vec::new());
        if response.leader == response.member_id {
            let members = lead::participants(response);
            self.lead.begin(&members);
            if !response.skip_assignment {
                self.state = State::Assigning(members);
            }
        }
    }

    fn on_synced(&mut self, response: &SyncGroupResponse<'_>) {
        self.duties.succeeded();
        self.state = State::Stable;
        self.prepared = false;
        let Some(assigned) = wire::read_assignment(&response.assignment) else {
            let message = Some("the leader's assignment can't be read".into());
            self.fail(Error::Broker { code: ErrorCode::INCONSISTENT_GROUP_PROTOCOL, message });
            return;
        };
        if assigned.iter().any(|partition| !self.topics.contains(&*partition.topic)) {
            self.ask_to_rejoin("the assignment is of an earlier subscription");
            return;
        }
        self.last = Some((assigned.clone(), self.generation));
        let assigned: BTreeSet<_> = assigned.into_iter().collect();
        let revoked: Vec<_> = self.owned.difference(&assigned).cloned().collect();
        let added: Vec<_> = assigned.difference(&self.owned).cloned().collect();
        self.owned = assigned;
        if !revoked.is_empty() {
            self.duties.tell(Change::Revoke(revoked));
            self.ask_to_rejoin("partitions were given up for others");
        }
        self.duties.tell(Change::Assign(added));
        if self.topics != self.joined {
            self.ask_to_rejoin("the subscription has changed");
        }
    }

    /// The coordinator has refused what was asked in this state.
    fn on_refused(&mut self, code: ErrorCode, now: Instant) {
        let heartbeat = self.has_joined();
        match code {
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
            | ErrorCode::COORDINATOR_NOT_AVAILABLE
            | ErrorCode::NOT_COORDINATOR => {
                self.duties.failed(now);
                self.try_again();
            }
            ErrorCode::REBALANCE_IN_PROGRESS if matches!(self.state, State::Stable) => {
                self.ask_to_rejoin("the group is divided anew");
            }
            ErrorCode::REBALANCE_IN_PROGRESS => self.join_again(),
            ErrorCode::UNKNOWN_MEMBER_ID => {
                if !heartbeat {
                    self.duties.failed(now);
                }
                self.forget(true);
            }
            ErrorCode::ILLEGAL_GENERATION => self.forget(false),
            other => {
                self.fail(other.into());
            }
        }
    }

    /// Whether what is under way is a heartbeat, if anything is.
    fn has_joined(&self) -> bool {
        matches!(self.state, State::Stable | State::Assigning(_))
    }

    /// What was under way is begun anew: who wanted an assignment joins again.
    fn try_again(&mut self) {
        if !self.has_joined() {
            self.join_again();
        }
    }

    fn join_again(&mut self) {
        self.state = State::Out;
        self.ask_to_rejoin("the group could not be divided");
    }
}

impl Membership for Classic {
    fn next(&mut self, now: Instant) -> Step {
        if let State::Leaving { end } = self.state {
            let farewell = self.farewell();
            if !end {
                self.generation = NO_GENERATION;
                self.member.clear();
                self.ask_to_rejoin("the consumer asks for records again");
            }
            self.state = if end { State::Left } else { State::Out };
            return farewell.map_or_else(|| self.next(now), Step::Send);
        }
        if matches!(self.state, State::Left) {
            return Step::End;
        }
        if self.duties.is_halted() {
            return Step::Wait(None);
        }
        if let Some(until) = self.duties.pause(now) {
            return Step::Wait(Some(until));
        }
        if let State::Assigning(members) = &self.state {
            if !self.lead.knows_topics() {
                return if now < self.heartbeat_at { Step::Learn(self.heartbeat_at) } else { self.heartbeat(now) };
            }
            match self.lead.assign(self.assignor, members) {
                Ok(assignments) => self.state = State::Syncing(assignments),
                Err(error) => return self.fail(error),
            }
        }
        match &self.state {
            State::Syncing(assignments) => Step::Send(self.sync(assignments)),
            _ => self.idle(now),
        }
    }

    fn received(&mut self, answer: &Answer<'_>, now: Instant) {
        if self.is_leaving() || matches!(self.state, State::Left) {
            if let Answer::Join(response) = answer
                && self.member.is_empty()
            {
                // It is by this name that it leaves.
                self.member = response.member_id.to_string();
            }
            return;
        }
        match answer {
            Answer::Leave(_) => return,
            Answer::Failed(error) if error.is_retriable() => {
                self.duties.failed(now);
                return self.try_again();
            }
            Answer::Failed(error) => {
                self.fail(error.clone());
                return;
            }
            _ => {}
        }
        let code = answer.code();
        match answer {
            Answer::Join(response) if code == ErrorCode::MEMBER_ID_REQUIRED => {
                self.member = response.member_id.to_string();
                self.state = State::Out;
            }
            _ if check(code.0, None).is_err() => self.on_refused(code, now),
            Answer::Join(response) => self.on_joined(response, now),
            Answer::Sync(response) => self.on_synced(response),
            _ => self.duties.succeeded(),
        }
    }

    fn learnt(&mut self, topics: &Topics) {
        if self.lead.learn(topics) {
            self.ask_to_rejoin("partitions of the group's topics have changed");
        }
    }

    fn named(&mut self, _: Vec<(Uuid, String)>, _: Instant) {}

    fn watched(&self) -> BTreeSet<String> {
        self.topics.union(self.lead.topics()).cloned().collect()
    }

    fn subscribe(&mut self, wanted: Wanted) {
        let Wanted::Topics(topics) = wanted else { unreachable!("patterns are resolved before") };
        self.topics = topics;
        if self.topics != self.joined && matches!(self.state, State::Stable) {
            self.ask_to_rejoin("the subscription has changed");
        }
    }

    fn refused(&mut self, code: ErrorCode, identity: &GroupMetadata) {
        if !matches!(self.state, State::Stable) || *identity != self.identity() {
            return;
        }
        match code {
            ErrorCode::UNKNOWN_MEMBER_ID => self.forget(true),
            ErrorCode::ILLEGAL_GENERATION => self.forget(false),
            ErrorCode::REBALANCE_IN_PROGRESS => self.ask_to_rejoin("the group is divided anew"),
            ErrorCode::FENCED_INSTANCE_ID => {
                self.fail(code.into());
            }
            _ => {}
        }
    }

    fn leave(&mut self) {
        if !matches!(self.state, State::Left) {
            self.state = State::Leaving { end: true };
        }
    }

    fn is_leaving(&self) -> bool {
        matches!(self.state, State::Leaving { .. })
    }

    fn identity(&self) -> GroupMetadata {
        GroupMetadata {
            group: self.config.group.clone(),
            generation: self.generation,
            member: self.member.clone(),
            instance: self.config.instance.clone(),
        }
    }

    fn duties(&mut self) -> &mut Duties {
        &mut self.duties
    }
}
