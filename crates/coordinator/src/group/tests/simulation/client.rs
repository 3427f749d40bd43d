//! One consumer, of either protocol, as its client library behaves: it asks one thing at a time, and acts on the answers.

use std::collections::BTreeSet;

use milena_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use milena_protocol::messages::join_group_response::JoinGroupResponseMember;
use milena_protocol::messages::leave_group_request::MemberIdentity;
use milena_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, LeaveGroupRequest};

use super::super::embedded::{assigned_in, assignment, list, owned_in, subscription};
use super::super::*;
use super::{PARTITIONS, SESSION_MS};
use crate::group::ConsumerHeartbeat;

/// Longer than a session, so that only silence drops a member: what it believes to own is its own until then.
const REBALANCE_MS: i32 = 500_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The classic protocol; an eager one gives everything up before it joins.
    Classic { eager: bool },
    /// The consumer protocol.
    Consumer,
}

/// Where a member of the classic protocol stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Joins,
    Syncs,
    Beats,
}

/// What a client asks.
#[derive(Debug, Clone)]
pub(super) enum Call {
    ConsumerBeat(ConsumerGroupHeartbeatRequest<'static>),
    Join(JoinGroupRequest<'static>),
    Sync(SyncGroupRequest<'static>),
    Beat(HeartbeatRequest<'static>),
    Leave(LeaveGroupRequest<'static>),
    /// An offset of this partition; which one is for the log's order to say.
    Commit(i32, OffsetCommitRequest<'static>),
}

impl Call {
    /// Whether it does no harm when it comes late: it says in which epoch it was meant, and nothing of what its sender owns.
    pub(super) fn may_come_late(&self) -> bool {
        match self {
            Self::ConsumerBeat(_) | Self::Join(_) => false,
            Self::Sync(_) | Self::Beat(_) | Self::Leave(_) | Self::Commit(..) => true,
        }
    }

    pub(super) fn send(self, bench: &mut Group) -> Ticket {
        let (client_id, client_host) = ("c", "/127.0.0.1");
        bench.send(match self {
            Self::ConsumerBeat(request) => Request::ConsumerHeartbeat(ConsumerHeartbeat {
                request,
                client_id,
                client_host,
                requires_member_id: true,
            }),
            Self::Join(request) => Request::Join(Join {
                request,
                client_id,
                client_host,
                requires_member_id: true,
                skips_assignment: true,
            }),
            Self::Sync(request) => Request::Sync(request),
            Self::Beat(request) => Request::Heartbeat(request),
            Self::Leave(request) => Request::Leave(request),
            Self::Commit(_, request) => Request::Commit { request, version: 9 },
        })
    }
}

/// A client. Each of its lives is another process.
#[derive(Debug)]
pub(super) struct Client {
    number: usize,
    lives: usize,
    pub(super) instance: Option<String>,
    pub(super) kind: Kind,
    pub(super) runs: bool,
    member: String,
    /// Member epoch, or generation.
    pub(super) epoch: i32,
    pub(super) owned: BTreeSet<i32>,
    phase: Phase,
    /// The members with what they own, when it leads.
    leads: Vec<(String, BTreeSet<i32>)>,
    /// When the last heartbeat that was answered went out: only these are sure to begin a session anew.
    pub(super) heard: i64,
    /// When the last request that was answered went out.
    answered: i64,
}

impl Client {
    pub(super) fn new(number: usize, instance: Option<String>) -> Self {
        Self {
            number,
            lives: 0,
            instance,
            kind: Kind::Consumer,
            runs: false,
            member: String::new(),
            epoch: 0,
            owned: BTreeSet::new(),
            phase: Phase::Joins,
            leads: Vec::new(),
            heard: i64::MIN / 2,
            answered: 0,
        }
    }

    pub(super) fn start(&mut self, kind: Kind) {
        (self.kind, self.runs) = (kind, true);
        self.lives += 1;
        self.forget();
        self.member = match kind {
            Kind::Consumer => format!("m{}-{}", self.number, self.lives),
            Kind::Classic { .. } => String::new(),
        };
    }

    pub(super) fn stop(&mut self) {
        self.runs = false;
        self.forget();
    }

    /// It owns nothing any more, and has to join.
    fn forget(&mut self) {
        self.owned.clear();
        self.heard = i64::MIN / 2;
        self.phase = Phase::Joins;
        self.epoch = if self.kind == Kind::Consumer { 0 } else { -1 };
    }

    fn is_joined(&self) -> bool {
        if self.kind == Kind::Consumer { self.epoch > 0 } else { self.phase == Phase::Beats }
    }

    /// Nobody has answered for so long that others may have what it owned.
    pub(super) fn expire(&mut self, now: i64) {
        let joined = !self.owned.is_empty() || self.is_joined();
        if self.runs && joined && now - self.answered >= SESSION_MS {
            self.forget();
        }
    }

    pub(super) fn next_call(&mut self, rng: &mut fastrand::Rng) -> Call {
        if self.is_joined()
            && rng.u32(..3) == 0
            && let Some(partition) = self.owned.iter().nth(rng.usize(..self.owned.len().max(1)))
        {
            return self.commit(*partition);
        }
        match (self.kind, self.phase) {
            (Kind::Consumer, _) => Call::ConsumerBeat(self.consumer_beat(self.epoch)),
            (Kind::Classic { .. }, Phase::Joins) => self.join(),
            (Kind::Classic { .. }, Phase::Syncs) => self.sync(),
            (Kind::Classic { .. }, Phase::Beats) => Call::Beat(HeartbeatRequest {
                group_id: "g".into(),
                generation_id: self.epoch,
                member_id: self.member.clone().into(),
                group_instance_id: self.instance.clone().map(Into::into),
            }),
        }
    }

    /// What it says when it goes. A static member of the classic protocol says nothing.
    pub(super) fn leave(&self) -> Option<Call> {
        match (self.kind, &self.instance) {
            (Kind::Consumer, Some(_)) => Some(Call::ConsumerBeat(self.consumer_beat(-2))),
            (Kind::Consumer, None) => Some(Call::ConsumerBeat(self.consumer_beat(-1))),
            (Kind::Classic { .. }, Some(_)) => None,
            (Kind::Classic { .. }, None) => Some(Call::Leave(LeaveGroupRequest {
                group_id: "g".into(),
                members: vec![MemberIdentity { member_id: self.member.clone().into(), ..Default::default() }],
                ..Default::default()
            })),
        }
    }

    fn consumer_beat(&self, epoch: i32) -> ConsumerGroupHeartbeatRequest<'static> {
        let owned = TopicPartitions { topic_id: Uuid::from_bytes([1; 16]), partitions: list(&self.owned).into() };
        ConsumerGroupHeartbeatRequest {
            group_id: "g".into(),
            member_id: self.member.clone().into(),
            member_epoch: epoch,
            instance_id: self.instance.clone().map(Into::into),
            rebalance_timeout_ms: REBALANCE_MS,
            subscribed_topic_names: Some(vec!["t".into()]),
            topic_partitions: Some(if self.owned.is_empty() { Vec::new() } else { vec![owned] }),
            ..Default::default()
        }
    }

    fn join(&mut self) -> Call {
        let Kind::Classic { eager } = self.kind else { panic!("a consumer does not join") };
        if eager {
            self.owned.clear();
        }
        let protocol = JoinGroupRequestProtocol {
            name: if eager { "range" } else { "cooperative-sticky" }.into(),
            metadata: subscription(&self.owned).into(),
        };
        Call::Join(JoinGroupRequest {
            group_id: "g".into(),
            session_timeout_ms: SESSION_MS as i32,
            rebalance_timeout_ms: REBALANCE_MS,
            member_id: self.member.clone().into(),
            group_instance_id: self.instance.clone().map(Into::into),
            protocol_type: "consumer".into(),
            protocols: vec![protocol],
            ..Default::default()
        })
    }

    fn sync(&self) -> Call {
        let given = assign(&self.leads).into_iter().map(|(member, partitions)| SyncGroupRequestAssignment {
            member_id: member.into(),
            assignment: assignment(&partitions).into(),
        });
        Call::Sync(SyncGroupRequest {
            group_id: "g".into(),
            generation_id: self.epoch,
            member_id: self.member.clone().into(),
            group_instance_id: self.instance.clone().map(Into::into),
            assignments: given.collect(),
            ..Default::default()
        })
    }

    fn commit(&self, partition: i32) -> Call {
        let mut request = commit_request("", self.epoch, "t", &[(partition, 0, "")]);
        request.member_id = self.member.clone().into();
        request.group_instance_id = self.instance.clone().map(Into::into);
        request.topics[0].topic_id = Uuid::from_bytes([1; 16]);
        Call::Commit(partition, request)
    }

    /// Acts on an answer to a request that went out at `sent`.
    pub(super) fn hear(&mut self, sent: i64, reply: &Reply) {
        let error = match reply {
            Reply::ConsumerHeartbeat(response) => response.error_code,
            Reply::Join(response) => response.error_code,
            Reply::Sync(response) => response.error_code,
            Reply::Heartbeat(response) => response.error_code,
            Reply::Commit(topics) => topics[0].partitions[0].error_code,
            other => panic!("{other:?}"),
        };
        match (ErrorCode(error), reply) {
            // Commits keep nobody alive.
            (ErrorCode::NONE, Reply::Commit(_)) => {}
            (ErrorCode::NONE, reply) => {
                self.answer(sent, reply);
                self.go_on(reply);
            }
            (ErrorCode::MEMBER_ID_REQUIRED, Reply::Join(response)) => self.member = response.member_id.to_string(),
            // It comes again.
            (ErrorCode::NOT_COORDINATOR | ErrorCode::UNRELEASED_INSTANCE_ID | ErrorCode::UNKNOWN_SERVER_ERROR, _) => {}
            // Somebody else has its name: it is over.
            (ErrorCode::FENCED_INSTANCE_ID, _) => self.stop(),
            // A heartbeat will tell.
            (ErrorCode::STALE_MEMBER_EPOCH, _) => {}
            (ErrorCode::REBALANCE_IN_PROGRESS, reply) => {
                self.answer(sent, reply);
                self.phase = Phase::Joins;
            }
            (ErrorCode::ILLEGAL_GENERATION, _) => self.forget(),
            (ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::FENCED_MEMBER_EPOCH | ErrorCode::GROUP_ID_NOT_FOUND, _) => {
                self.forget();
                if self.kind != Kind::Consumer {
                    self.member.clear();
                }
            }
            (error, reply) => panic!("{error:?}: {reply:?}"),
        }
    }

    fn answer(&mut self, sent: i64, reply: &Reply) {
        self.answered = sent;
        if matches!(reply, Reply::ConsumerHeartbeat(_) | Reply::Heartbeat(_)) {
            self.heard = sent;
        }
    }

    fn go_on(&mut self, reply: &Reply) {
        match reply {
            Reply::ConsumerHeartbeat(response) => self.follow(response),
            Reply::Join(response) => {
                self.epoch = response.generation_id;
                self.member = response.member_id.to_string();
                let member =
                    |member: &JoinGroupResponseMember<'_>| (member.member_id.to_string(), owned_in(&member.metadata));
                self.leads = response.members.iter().map(member).collect();
                self.phase = Phase::Syncs;
            }
            Reply::Sync(response) => {
                let assigned = assigned_in(&response.assignment);
                let gives_up = self.owned.iter().any(|own| !assigned.contains(own));
                self.owned = assigned;
                // What it has given up is for the next generation to give to others.
                self.phase = if gives_up { Phase::Joins } else { Phase::Beats };
            }
            _ => {}
        }
    }

    fn follow(&mut self, response: &ConsumerGroupHeartbeatResponse<'_>) {
        self.epoch = response.member_epoch;
        if let Some(assignment) = &response.assignment {
            self.owned =
                assignment.topic_partitions.iter().flat_map(|topic| topic.partitions.iter().copied()).collect();
        }
    }
}

/// What a leader assigns: members keep what only they own, up to their share; what nobody owns goes to those that have the
/// fewest; what somebody has to give up waits.
fn assign(members: &[(String, BTreeSet<i32>)]) -> Vec<(String, BTreeSet<i32>)> {
    let owners = |partition: i32| members.iter().filter(|(_, owned)| owned.contains(&partition)).count();
    let (share, mut extra) = (PARTITIONS / members.len().max(1), PARTITIONS % members.len().max(1));
    let mut given = Vec::new();
    for (member, owned) in members {
        let alone = owned.iter().copied().filter(|partition| owners(*partition) == 1);
        let kept: BTreeSet<i32> = alone.take(share + usize::from(extra > 0)).collect();
        extra -= usize::from(kept.len() > share);
        given.push((member.clone(), kept));
    }
    for partition in (0..PARTITIONS as i32).filter(|partition| owners(*partition) == 0) {
        if let Some((_, fewest)) = given.iter_mut().min_by_key(|(_, given)| given.len()) {
            fewest.insert(partition);
        }
    }
    given
}
