//! What the two protocols have in common: a member is a state machine without I/O that says what to do next, hears what came
//! of it, and tells the consumer what changes.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Debug;
use std::time::Duration;

use milena_protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, HeartbeatRequest, HeartbeatResponse,
    JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, SyncGroupRequest, SyncGroupResponse,
};
use milena_protocol::{ErrorCode, Uuid};
use tokio::time::Instant;

use super::assignor::Topics;
use super::config::GroupProtocol;
use super::driver;
use crate::admin::TopicPartition;
use crate::backoff::Backoff;
use crate::error::Error;
use crate::producer::GroupMetadata;

/// A change of what the member reads. The next one, and what others wait for, comes when it was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// These are the member's from now on. There may be none: then it only has heard that it is a member.
    Assign(Vec<TopicPartition>),
    /// These go to others, who begin where this member has committed.
    Revoke(Vec<TopicPartition>),
    /// Others may read these already; nothing can be committed for them.
    Lost(Vec<TopicPartition>),
}

/// What a member is subscribed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// These topics.
    Topics(BTreeSet<String>),
    /// All topics whose whole name matches the regular expression.
    Pattern(String),
}

impl Wanted {
    /// # Errors
    /// [`Error::Config`] for a regular expression that the member can't understand. With the consumer protocol, that is the
    /// coordinator's to do.
    pub(crate) fn check(&self, protocol: GroupProtocol) -> Result<(), Error> {
        match self {
            Self::Pattern(pattern) if protocol == GroupProtocol::Classic => driver::whole(pattern).map(drop),
            _ => Ok(()),
        }
    }
}

/// What a member does next.
#[derive(Debug)]
pub(super) enum Step {
    /// It asks the coordinator; [`Membership::received`] hears the answer.
    Send(Request),
    /// It needs to know the topics that it watches; [`Membership::learnt`]. Nothing else until then.
    Learn(Instant),
    /// It needs to know the names of these topics; [`Membership::named`]. Nothing else until then.
    Name(Vec<Uuid>, Instant),
    /// Nothing until then, or until something happens.
    Wait(Option<Instant>),
    /// It is no member any more, and will not be again.
    End,
}

/// A question to the coordinator.
#[derive(Debug)]
pub(super) enum Request {
    Join(JoinGroupRequest<'static>),
    Sync(SyncGroupRequest<'static>),
    Heartbeat(HeartbeatRequest<'static>),
    Leave(LeaveGroupRequest<'static>),
    ConsumerHeartbeat(ConsumerGroupHeartbeatRequest<'static>),
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Answer<'a> {
    Join(JoinGroupResponse<'a>),
    Sync(SyncGroupResponse<'a>),
    Heartbeat(HeartbeatResponse),
    Leave(LeaveGroupResponse<'a>),
    ConsumerHeartbeat(ConsumerGroupHeartbeatResponse<'a>),
    /// None, and why.
    Failed(Error),
}

impl Answer<'_> {
    /// The code of the whole answer.
    pub(super) fn code(&self) -> ErrorCode {
        ErrorCode(match self {
            Self::Join(response) => response.error_code,
            Self::Sync(response) => response.error_code,
            Self::Heartbeat(response) => response.error_code,
            Self::Leave(response) => response.error_code,
            Self::ConsumerHeartbeat(response) => response.error_code,
            Self::Failed(_) => 0,
        })
    }
}

/// A member of a group. At most one [`Request`] is under way at any time.
pub(super) trait Membership: Debug + Send {
    /// What to do now.
    fn next(&mut self, now: Instant) -> Step;
    /// The answer to the request of the last step.
    fn received(&mut self, answer: &Answer<'_>, now: Instant);
    /// What is known of topics; those that are missing do not exist.
    fn learnt(&mut self, topics: &Topics);
    /// Names of topics; those that are missing do not exist, or are not known yet.
    fn named(&mut self, topics: Vec<(Uuid, String)>, now: Instant);
    /// Topics whose partitions matter to this member.
    fn watched(&self) -> BTreeSet<String>;
    /// It is subscribed to something else.
    fn subscribe(&mut self, wanted: Wanted);
    /// A request of the member, such as a commit, was refused with this code by who knows it as `identity`.
    fn refused(&mut self, code: ErrorCode, identity: &GroupMetadata);
    /// It is to leave. What is under way is given up.
    fn leave(&mut self);
    fn is_leaving(&self) -> bool;
    /// Who it is in the group.
    fn identity(&self) -> GroupMetadata;
    fn duties(&mut self) -> &mut Duties;
}

/// What a member owes to its consumer, and its consumer to it.
#[derive(Debug)]
pub(super) struct Duties {
    changes: VecDeque<Change>,
    /// When the consumer must have asked for records again.
    poll_until: Instant,
    max_poll: Duration,
    /// The consumer asks for them right now.
    polling: bool,
    /// The consumer did not ask in time: it is no member until it asks again.
    pub(super) expired: bool,
    /// What the consumer is to hear.
    error: Option<Error>,
    /// It can't be a member, and tries again when the consumer has heard why.
    halted: bool,
    /// How often it has lost what it had.
    losses: u64,
    backoff: Backoff,
    failures: u32,
    not_before: Option<Instant>,
}

impl Duties {
    pub(super) fn new(max_poll: Duration, backoff: Backoff, now: Instant) -> Self {
        Self {
            changes: VecDeque::new(),
            poll_until: now + max_poll,
            max_poll,
            polling: false,
            expired: false,
            error: None,
            halted: false,
            losses: 0,
            backoff,
            failures: 0,
            not_before: None,
        }
    }

    /// The consumer asks for records, or does so no longer. Whether it was given up before.
    pub(super) fn polls(&mut self, polling: bool, now: Instant) -> bool {
        self.polling = polling;
        self.poll_until = now + self.max_poll;
        std::mem::take(&mut self.expired)
    }

    /// Whether the consumer should have asked by now.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        now >= self.poll_until(now)
    }

    /// When it must have asked again, as far as is known now.
    pub(super) fn poll_until(&self, now: Instant) -> Instant {
        if self.polling { now + self.max_poll } else { self.poll_until }
    }

    pub(super) fn tell(&mut self, change: Change) {
        self.losses += u64::from(matches!(change, Change::Lost(_)));
        self.changes.push_back(change);
    }

    /// The change that the consumer has to follow now.
    pub(super) fn change(&self) -> Option<&Change> {
        self.changes.front()
    }

    /// Whether the consumer has something to hear.
    pub(super) fn has_news(&self) -> bool {
        !self.changes.is_empty() || self.error.is_some()
    }

    pub(super) fn losses(&self) -> u64 {
        self.losses
    }

    /// The consumer is to hear this. It is a member as before.
    pub(super) fn report(&mut self, error: Error) {
        if !self.halted {
            self.error = Some(error);
        }
    }

    /// It can't be a member. Nothing is asked until the consumer has heard why, and has waited a little.
    pub(super) fn halt(&mut self, error: Error) {
        (self.error, self.halted) = (Some(error), true);
    }

    pub(super) fn is_halted(&self) -> bool {
        self.halted
    }

    /// What the consumer hears now.
    pub(super) fn take_error(&mut self, now: Instant) -> Option<Error> {
        if std::mem::take(&mut self.halted) {
            self.failed(now);
        }
        self.error.take()
    }

    /// The consumer has followed it.
    pub(super) fn acknowledge(&mut self) {
        self.changes.pop_front();
    }

    /// Whether the consumer has followed all changes.
    pub(super) fn is_settled(&self) -> bool {
        self.changes.is_empty()
    }

    /// Nothing is asked for a while, a longer one from failure to failure.
    pub(super) fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + self.backoff.after(self.failures));
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
        self.not_before = None;
    }

    /// Until when nothing is asked.
    pub(super) fn pause(&self, now: Instant) -> Option<Instant> {
        self.not_before.filter(|until| *until > now)
    }
}
