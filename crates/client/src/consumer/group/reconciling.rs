//! A member of the consumer protocol (KIP-848): one request, ConsumerGroupHeartbeat. The coordinator says what the member
//! shall have; the member gives up what is not in it, tells so, takes what is new, and tells that too.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use milena_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use milena_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use milena_protocol::{ErrorCode, Uuid};
use tokio::time::Instant;

use super::assignor::Topics;
use super::config::{GroupConfig, wire_millis};
use super::membership::{Answer, Change, Duties, Membership, Request, Step, Wanted};
use crate::admin::TopicPartition;
use crate::error::{Error, check};
use crate::producer::GroupMetadata;

/// Epoch of who wants to join.
const JOIN: i32 = 0;
/// Epoch of who leaves.
const LEAVE: i32 = -1;
/// Epoch of a static member that leaves and may come back.
const LEAVE_FOR_A_WHILE: i32 = -2;

/// A partition as the coordinator names it.
type Partition = (Uuid, i32);

/// Where a member stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It is to join.
    Joining,
    /// It is a member.
    Member,
    /// It is to leave; and then to end, or to wait for its consumer.
    Leaving { end: bool },
    /// It has left.
    Left,
}

#[derive(Debug)]
pub(super) struct Reconciling {
    config: Arc<GroupConfig>,
    duties: Duties,
    state: State,
    member: String,
    epoch: i32,
    wanted: Wanted,
    /// What the coordinator knows of the subscription; nothing after a failure.
    told: Option<Wanted>,
    /// What the member shall have.
    target: BTreeSet<Partition>,
    /// Names of all topics that were seen.
    names: BTreeMap<Uuid, String>,
    /// What the consumer has when it has followed all changes.
    owned: BTreeSet<Partition>,
    /// What it had when it had followed all changes last.
    held: BTreeSet<Partition>,
    /// Whether the coordinator is to hear what the consumer has.
    tell_owned: bool,
    interval: Duration,
    heartbeat_at: Instant,
    /// When to ask again for names that are not known yet.
    name_at: Instant,
}

impl Reconciling {
    pub(super) fn new(config: Arc<GroupConfig>, duties: Duties, wanted: Wanted, now: Instant) -> Self {
        Self {
            config,
            duties,
            state: State::Joining,
            member: Uuid::random(fastrand::fill).to_string(),
            epoch: JOIN,
            wanted,
            told: None,
            target: BTreeSet::new(),
            names: BTreeMap::new(),
            owned: BTreeSet::new(),
            held: BTreeSet::new(),
            tell_owned: false,
            interval: Duration::from_secs(5),
            heartbeat_at: now,
            name_at: now,
        }
    }

    fn partitions<'p>(&self, partitions: impl Iterator<Item = &'p Partition>) -> Vec<TopicPartition> {
        let named = |(id, partition): &Partition| Some(TopicPartition::new(self.names.get(id)?.as_str(), *partition));
        partitions.filter_map(named).collect()
    }

    /// Others may have what the consumer has.
    fn lose(&mut self) {
        let lost = self.partitions(self.owned.iter());
        self.owned.clear();
        self.target.clear();
        self.tell_owned = false;
        if !lost.is_empty() {
            self.duties.tell(Change::Lost(lost));
        }
    }

    /// The coordinator does not know this member, or not in this epoch.
    fn rejoin(&mut self) {
        tracing::debug!(group = self.config.group, member = self.member, epoch = self.epoch, "is to join again");
        self.lose();
        (self.state, self.epoch, self.told) = (State::Joining, JOIN, None);
    }

    fn fail(&mut self, error: Error) {
        tracing::warn!(group = self.config.group, %error, "can't be a member");
        self.rejoin();
        self.duties.halt(error);
    }

    /// The consumer did not ask for records in time: it may hang, and others get what it has.
    fn expel(&mut self) {
        tracing::warn!(group = self.config.group, "leaves the group: max.poll.interval.ms is over");
        self.duties.expired = true;
        self.lose();
        self.state = State::Leaving { end: false };
    }

    /// Has the consumer follow the coordinator, once it has followed everything before.
    fn reconcile(&mut self) {
        if !self.duties.is_settled() {
            return;
        }
        self.held.clone_from(&self.owned);
        let named: BTreeSet<_> = self.target.iter().filter(|(id, _)| self.names.contains_key(id)).copied().collect();
        if named == self.owned {
            return;
        }
        let revoked = self.partitions(self.owned.difference(&self.target));
        if !revoked.is_empty() {
            self.duties.tell(Change::Revoke(revoked));
        }
        let added = self.partitions(named.difference(&self.owned));
        self.duties.tell(Change::Assign(added));
        self.owned = named;
        self.tell_owned = true;
    }

    /// Topics of the target whose names are not known.
    fn unnamed(&self) -> Vec<Uuid> {
        let ids: BTreeSet<Uuid> = self.target.iter().map(|(id, _)| *id).collect();
        ids.into_iter().filter(|id| !self.names.contains_key(id)).collect()
    }

    fn heartbeat(&mut self, now: Instant) -> Step {
        self.heartbeat_at = now + self.interval;
        let all = self.told.is_none();
        let settled = self.duties.is_settled();
        let owned = (all || (self.tell_owned && settled)).then(|| by_topic(&self.held));
        self.tell_owned &= !settled;
        let mut request = self.request(self.epoch);
        request.topic_partitions = owned;
        if all {
            request.rack_id = self.config.rack.clone().map(Into::into);
            request.rebalance_timeout_ms = wire_millis(self.config.max_poll_interval);
            request.server_assignor = self.config.remote_assignor.clone().map(Into::into);
        }
        if self.told.as_ref() != Some(&self.wanted) {
            let (names, regex) = match &self.wanted {
                Wanted::Topics(topics) => (topics.iter().cloned().map(Into::into).collect(), None),
                Wanted::Pattern(regex) => (Vec::new(), Some(regex.clone())),
            };
            let had_regex = matches!(self.told, Some(Wanted::Pattern(_)));
            request.subscribed_topic_names = Some(names);
            request.subscribed_topic_regex = regex.or_else(|| had_regex.then(String::new)).map(Into::into);
            self.told = Some(self.wanted.clone());
        }
        Step::Send(Request::ConsumerHeartbeat(request))
    }

    /// A request with what is in all of them.
    fn request(&self, epoch: i32) -> ConsumerGroupHeartbeatRequest<'static> {
        ConsumerGroupHeartbeatRequest {
            group_id: self.config.group.clone().into(),
            member_id: self.member.clone().into(),
            member_epoch: epoch,
            instance_id: self.config.instance.clone().map(Into::into),
            ..Default::default()
        }
    }

    fn farewell(&self) -> Step {
        let epoch = if self.config.instance.is_some() { LEAVE_FOR_A_WHILE } else { LEAVE };
        Step::Send(Request::ConsumerHeartbeat(self.request(epoch)))
    }

    fn on_heartbeat(&mut self, response: &ConsumerGroupHeartbeatResponse<'_>) {
        // The coordinator has heard that it left; it is to join again since.
        if response.member_epoch < 0 {
            return;
        }
        self.duties.succeeded();
        self.epoch = response.member_epoch;
        self.interval = Duration::from_millis(response.heartbeat_interval_ms.max(1).unsigned_abs().into());
        if self.state == State::Joining {
            self.state = State::Member;
            self.duties.tell(Change::Assign(Vec::new()));
        }
        if let Some(assignment) = &response.assignment {
            let partitions = assignment
                .topic_partitions
                .iter()
                .flat_map(|topic| topic.partitions.iter().map(|partition| (topic.topic_id, *partition)));
            self.target = partitions.collect();
            // Heard, even if nothing is to change.
            self.tell_owned = true;
        }
    }

    /// The coordinator has refused a heartbeat.
    fn on_refused(&mut self, code: ErrorCode, message: Option<&str>, now: Instant) {
        match code {
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
            | ErrorCode::COORDINATOR_NOT_AVAILABLE
            | ErrorCode::NOT_COORDINATOR => {
                self.told = None;
                self.duties.failed(now);
            }
            // It recovers when it may describe the topics.
            ErrorCode::TOPIC_AUTHORIZATION_FAILED => {
                self.told = None;
                self.duties.failed(now);
                self.duties.report(Error::Broker { code, message: message.map(Into::into) });
            }
            ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::FENCED_MEMBER_EPOCH => {
                if self.state == State::Joining {
                    self.duties.failed(now);
                }
                self.rejoin();
            }
            _ => self.fail(Error::Broker { code, message: message.map(Into::into) }),
        }
    }
}

impl Membership for Reconciling {
    fn next(&mut self, now: Instant) -> Step {
        match self.state {
            State::Left => return Step::End,
            State::Leaving { end } => {
                self.state = if end { State::Left } else { State::Joining };
                let farewell = self.farewell();
                (self.epoch, self.told) = (JOIN, None);
                return farewell;
            }
            _ => {}
        }
        if self.duties.is_halted() || self.duties.expired {
            return Step::Wait(None);
        }
        if let Some(until) = self.duties.pause(now) {
            return Step::Wait(Some(until));
        }
        if self.state == State::Joining {
            self.held.clear();
            return if self.duties.is_settled() { self.heartbeat(now) } else { Step::Wait(None) };
        }
        if self.duties.is_overdue(now) {
            self.expel();
            return self.next(now);
        }
        self.reconcile();
        if self.told.as_ref() != Some(&self.wanted) || now >= self.heartbeat_at {
            return self.heartbeat(now);
        }
        let until = self.heartbeat_at.min(self.duties.poll_until(now));
        let unnamed = self.unnamed();
        if !unnamed.is_empty() && now >= self.name_at {
            return Step::Name(unnamed, until);
        }
        if self.duties.is_settled() && self.tell_owned {
            return self.heartbeat(now);
        }
        Step::Wait(Some(if unnamed.is_empty() { until } else { until.min(self.name_at) }))
    }

    fn received(&mut self, answer: &Answer<'_>, now: Instant) {
        if self.is_leaving() || self.state == State::Left || self.duties.expired {
            return;
        }
        match answer {
            Answer::Failed(error) if error.is_retriable() => {
                // Whether it was heard is not known.
                self.told = None;
                self.duties.failed(now);
            }
            Answer::Failed(error) => self.fail(error.clone()),
            Answer::ConsumerHeartbeat(response) => match check(response.error_code, None) {
                Ok(()) => self.on_heartbeat(response),
                Err(_) => self.on_refused(answer.code(), response.error_message.as_deref(), now),
            },
            _ => {}
        }
    }

    fn learnt(&mut self, _: &Topics) {}

    fn named(&mut self, topics: Vec<(Uuid, String)>, now: Instant) {
        self.names.extend(topics);
        self.name_at = now + self.interval.min(Duration::from_secs(1));
    }

    fn watched(&self) -> BTreeSet<String> {
        // They are created by being looked at, where the cluster allows that.
        if let Wanted::Topics(topics) = &self.wanted { topics.clone() } else { BTreeSet::new() }
    }

    fn subscribe(&mut self, wanted: Wanted) {
        self.wanted = wanted;
    }

    fn refused(&mut self, code: ErrorCode, identity: &GroupMetadata) {
        if self.state != State::Member || *identity != self.identity() {
            return;
        }
        match code {
            ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::FENCED_MEMBER_EPOCH => self.rejoin(),
            // The next heartbeat tells the new epoch.
            ErrorCode::STALE_MEMBER_EPOCH => self.heartbeat_at = Instant::now(),
            _ => {}
        }
    }

    fn leave(&mut self) {
        if self.state != State::Left {
            self.state = State::Leaving { end: true };
        }
    }

    fn is_leaving(&self) -> bool {
        matches!(self.state, State::Leaving { .. })
    }

    fn identity(&self) -> GroupMetadata {
        GroupMetadata {
            group: self.config.group.clone(),
            generation: self.epoch,
            member: self.member.clone(),
            instance: self.config.instance.clone(),
        }
    }

    fn duties(&mut self) -> &mut Duties {
        &mut self.duties
    }
}

fn by_topic(partitions: &BTreeSet<Partition>) -> Vec<TopicPartitions<'static>> {
    let mut topics = BTreeMap::<Uuid, Vec<i32>>::new();
    for (id, partition) in partitions {
        topics.entry(*id).or_default().push(*partition);
    }
    topics
        .into_iter()
        .map(|(topic_id, partitions)| TopicPartitions { topic_id, partitions: partitions.into() })
        .collect()
}
