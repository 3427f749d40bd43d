//! A group of the consumer protocol: the coordinator assigns, and members follow step by step with their heartbeats.
//!
//! | module | what lives there |
//! |---|---|
//! | `metadata` | what groups see of the cluster |
//! | `assign` | the assignors |
//! | `member` | a member, and its way to what it should own |
//! | `record` | groups in their records |
//! | `step` | what a request of a member does to the member and the group |
//! | `heartbeat`, `regex` | ConsumerGroupHeartbeat; subscriptions by expression |
//! | `classic`, `embedded` | members of the classic protocol; what these say to each other |
//! | `migrate` | groups that were classic, or become so |
//! | `leave` | members that leave or are silent |
//! | `describe` | ConsumerGroupDescribe |

mod assign;
mod classic;
mod describe;
mod embedded;
mod heartbeat;
mod leave;
mod member;
mod metadata;
mod migrate;
mod record;
mod regex;
mod step;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use milena_protocol::{ErrorCode, Uuid};

use super::{GroupCx, Timer};
use assign::{Assignee, Assignees, Assignments};
pub use classic::Joined;
pub(super) use describe::CONSUMER;
pub use heartbeat::Beat;
pub(super) use member::Member;
use member::MemberState;
pub use metadata::{Metadata, TopicInfo};
pub use migrate::Downgraded;
pub(super) use record::Writing;

/// Epoch of a group and of its assignment before anything was subscribed to.
const FIRST_EPOCH: i32 = 1;
/// First version of OffsetCommit that knows member epochs.
const FIRST_MEMBER_EPOCH_VERSION: i16 = 9;

/// What a regular expression stands for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Resolved {
    topics: BTreeSet<String>,
    /// Version of the metadata in which it was looked up.
    version: i64,
    /// When, ms since 1970.
    timestamp: i64,
}

/// A consumer group.
#[derive(Debug, Default)]
pub(super) struct ConsumerGroup {
    /// Rises when what is to be assigned changes.
    epoch: i32,
    /// Hash of the topics that are subscribed to.
    metadata_hash: i64,
    /// Epoch of the group that the targets are of.
    target_epoch: i32,
    /// When they were computed, ms since 1970; 0 when never.
    target_timestamp: i64,
    targets: Assignments,
    members: BTreeMap<Arc<str>, Member>,
    /// Member ids of static members, by their names.
    static_members: BTreeMap<String, Arc<str>>,
    /// Who owns a partition, or is to give it up.
    owners: BTreeMap<(Uuid, i32), Arc<str>>,
    /// What the members' expressions stand for; all are looked up together.
    regexes: BTreeMap<String, Resolved>,
    /// Version of the metadata that the hash was last compared with.
    compared_version: Option<i64>,
}

impl ConsumerGroup {
    pub(super) fn new() -> Self {
        Self { epoch: FIRST_EPOCH, target_epoch: FIRST_EPOCH, ..Self::default() }
    }

    /// No members.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Kafka's name of its state.
    pub(super) fn state(&self) -> &'static str {
        if self.members.is_empty() {
            "Empty"
        } else if self.epoch > self.target_epoch {
            "Assigning"
        } else if self.members.values().all(|member| member.is_reconciled_to(self.target_epoch)) {
            "Stable"
        } else {
            "Reconciling"
        }
    }

    /// The static member of a name.
    fn static_member(&self, instance: &str) -> Option<&Member> {
        self.static_members.get(instance).and_then(|id| self.members.get(id))
    }

    fn member_or_new(&mut self, id: &str) -> &mut Member {
        if !self.members.contains_key(id) {
            let id: Arc<str> = id.into();
            self.members.insert(Arc::clone(&id), Member::new(id));
        }
        self.members.get_mut(id).expect("it was just inserted")
    }

    /// Nobody owns what a member owned.
    fn release(&mut self, id: &str) {
        let Some(member) = self.members.get(id) else { return };
        for (topic, partitions) in member.assigned.iter().chain(&member.revoking) {
            for partition in partitions.keys() {
                if self.owners.get(&(*topic, *partition)) == Some(&member.id) {
                    self.owners.remove(&(*topic, *partition));
                }
            }
        }
    }

    fn claim(&mut self, id: &str) {
        let Some(member) = self.members.get(id) else { return };
        for (topic, partitions) in member.assigned.iter().chain(&member.revoking) {
            for partition in partitions.keys() {
                self.owners.insert((*topic, *partition), Arc::clone(&member.id));
            }
        }
    }

    /// The members as they would be with `changed` in place of the one of that id, and without `gone`.
    fn members_with<'m>(
        &'m self,
        changed: Option<&'m Member>,
        gone: &'m [Arc<str>],
    ) -> impl Iterator<Item = &'m Member> + Clone {
        let others = self
            .members
            .values()
            .filter(move |member| changed.is_none_or(|changed| changed.id != member.id) && !gone.contains(&member.id));
        others.chain(changed)
    }

    /// The topics that a member reads, whether they exist or not.
    fn topics_of<'m>(&'m self, member: &'m Member) -> impl Iterator<Item = &'m String> {
        member.names.iter().chain(self.regexes.get(&member.regex).into_iter().flat_map(|resolved| &resolved.topics))
    }

    fn hash_of<'m>(&'m self, members: impl Iterator<Item = &'m Member>, metadata: &dyn Metadata) -> i64 {
        metadata::hash_of(members.flat_map(|member| self.topics_of(member)), metadata)
    }

    /// Whether a member reads a topic.
    pub(super) fn is_subscribed_to(&self, topic: &str) -> bool {
        let by_regex = |regex: &str| self.regexes.get(regex).is_some_and(|resolved| resolved.topics.contains(topic));
        self.members.values().any(|member| member.names.contains(topic) || by_regex(&member.regex))
    }

    /// The assignor that most members want; `None` when nobody wants any.
    fn assignor<'m>(members: impl Iterator<Item = &'m Member>) -> Option<&'m str> {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        members.filter_map(|member| member.assignor.as_deref()).for_each(|name| *votes.entry(name).or_default() += 1);
        votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(name, _)| name)
    }

    /// Whether it is time for the assignment of this epoch.
    fn is_assignment_due(&self, id: &str, epoch: i32, metadata: &dyn Metadata, now_ms: i64) -> bool {
        let interval_ms = metadata.group_config(id, "consumer.assignment.interval.ms");
        let is_time =
            || self.target_timestamp == 0 || interval_ms == 0 || now_ms >= self.target_timestamp + interval_ms;
        epoch > self.target_epoch && is_time()
    }

    /// What each member should own, with `changed` among them in place of `gone`.
    fn assign(&self, changed: &Member, gone: &[Arc<str>], metadata: &dyn Metadata) -> Assignments {
        let mut all = Assignees::default();
        let members = self.members_with(Some(changed), gone);
        for member in members.clone() {
            let mut assignee = Assignee { instance: member.instance.clone(), ..Assignee::default() };
            for info in self.topics_of(member).filter_map(|name| metadata.topic(name)) {
                all.partitions.insert(info.id, info.partitions());
                assignee.topics.insert(info.id);
            }
            let target = self.targets.get(&member.id).or_else(|| gone.first().and_then(|gone| self.targets.get(gone)));
            assignee.target = target.cloned().unwrap_or_default();
            all.members.insert(Arc::clone(&member.id), assignee);
        }
        let default = metadata.assignors().into_iter().next().unwrap_or_default();
        assign::assign(Self::assignor(members).unwrap_or(&default), &all)
    }

    /// Checks that offsets may be committed. Gives the member, when it speaks of an epoch that it has left.
    ///
    /// # Errors
    /// What a commit is refused with.
    pub(super) fn may_commit(&self, member: &str, epoch: i32, version: i16) -> Result<Option<Member>, ErrorCode> {
        if epoch < 0 && self.members.is_empty() {
            // An administrator, or a consumer that assigns its partitions itself.
            return Ok(None);
        }
        let member = self.members.get(member).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        if member.classic.is_some() {
            return if member.epoch == epoch { Ok(None) } else { Err(ErrorCode::ILLEGAL_GENERATION) };
        }
        if version < FIRST_MEMBER_EPOCH_VERSION {
            return Err(ErrorCode::UNSUPPORTED_VERSION);
        }
        match epoch.cmp(&member.epoch) {
            std::cmp::Ordering::Greater => Err(ErrorCode::STALE_MEMBER_EPOCH),
            std::cmp::Ordering::Equal => Ok(None),
            std::cmp::Ordering::Less => Ok(Some(member.clone())),
        }
    }

    /// Checks that a member may fetch offsets.
    ///
    /// # Errors
    /// What a fetch is refused with.
    pub(super) fn may_fetch(&self, member: Option<&str>, epoch: i32) -> Result<(), ErrorCode> {
        if member.is_none() && epoch < 0 {
            return Ok(());
        }
        let known = self.members.get(member.unwrap_or_default()).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        match known.classic {
            _ if known.epoch == epoch => Ok(()),
            Some(_) => Err(ErrorCode::ILLEGAL_GENERATION),
            None => Err(ErrorCode::STALE_MEMBER_EPOCH),
        }
    }

    /// The group was loaded: members are given the time to be heard of.
    pub(super) fn loaded(&self, id: &Arc<str>, cx: &mut GroupCx<'_, '_>) {
        for member in self.members.values() {
            start_session(id, &member.id, cx);
            if member.state == MemberState::UnrevokedPartitions && member.classic.is_none() {
                let timer = Timer::Revocation { group: Arc::clone(id), member: Arc::clone(&member.id) };
                cx.set_timer(timer, member.rebalance_timeout_ms.into());
            }
        }
    }
}

impl Member {
    /// Whether an offset of a partition may be committed in an epoch that the member has left: it may, when the partition
    /// was its own all the time.
    pub(super) fn may_commit_in(&self, epoch: i32, topic: Uuid, partition: i32) -> bool {
        let since = self.assigned.get(&topic).and_then(|partitions| partitions.get(&partition));
        since.is_some_and(|since| *since <= epoch)
    }
}

/// Starts the time after which a silent member is dropped.
fn start_session(group: &Arc<str>, member: &Arc<str>, cx: &mut GroupCx<'_, '_>) {
    let timeout_ms = cx.settings().metadata.group_config(group, "consumer.session.timeout.ms");
    start_session_of(group, member, timeout_ms, cx);
}

/// Starts a session of this length.
fn start_session_of(group: &Arc<str>, member: &Arc<str>, timeout_ms: i64, cx: &mut GroupCx<'_, '_>) {
    cx.set_timer(Timer::ConsumerSession { group: Arc::clone(group), member: Arc::clone(member) }, timeout_ms);
}

/// A member's id; one that brings none is given one.
fn member_id(id: &str, cx: &mut GroupCx<'_, '_>) -> Arc<str> {
    if id.is_empty() { cx.random_id().to_string().into() } else { id.into() }
}
