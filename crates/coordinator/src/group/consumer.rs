//! A group of the consumer protocol: the coordinator assigns, and members follow step by step with their heartbeats.
//!
//! | module | what lives there |
//! |---|---|
//! | `metadata` | what groups see of the cluster |
//! | `assign` | the assignors |
//! | `member` | a member, and its way to what it should own |
//! | `record` | groups in their records |
//! | `heartbeat`, `regex` | ConsumerGroupHeartbeat; subscriptions by expression |
//! | `leave` | members that leave or are silent |
//! | `describe` | ConsumerGroupDescribe |

mod assign;
mod describe;
mod heartbeat;
mod leave;
mod member;
mod metadata;
mod record;
mod regex;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use milena_protocol::{ErrorCode, Uuid};

use super::{GroupCx, Timer};
use assign::{Assignee, Assignees, Assignments};
pub(super) use describe::CONSUMER;
pub use heartbeat::Beat;
pub(super) use member::Member;
use member::MemberState;
pub use metadata::{Metadata, TopicInfo};
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
    regexes: BTreeMap<String, Resolved>,
    /// Version of the metadata in which they were last looked up, and when, ms since 1970.
    looked_up: Option<(i64, i64)>,
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
        if known.epoch == epoch { Ok(()) } else { Err(ErrorCode::STALE_MEMBER_EPOCH) }
    }

    /// The group was loaded: members are given the time to be heard of.
    pub(super) fn loaded(&self, id: &Arc<str>, cx: &mut GroupCx<'_, '_>) {
        for member in self.members.values() {
            start_session(id, &member.id, cx);
            if member.state == MemberState::UnrevokedPartitions {
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
    cx.set_timer(Timer::ConsumerSession { group: Arc::clone(group), member: Arc::clone(member) }, timeout_ms);
}
