//! The state machine of one partition of `__consumer_offsets`: the groups that belong there, and what they have committed.
//!
//! | module | what lives there |
//! |---|---|
//! | `api` | requests, replies, settings |
//! | `offsets` | committed offsets, and those of open transactions |
//! | `commit`, `fetch`, `expire` | OffsetCommit; OffsetFetch; what is no longer kept |
//! | `classic` | groups whose members assign partitions among themselves |
//! | `consumer` | groups whose partitions the coordinator assigns |
//! | `join`, `sync`, `leave`, `timeouts` | what members of classic groups ask for, and what their silence means |
//! | `admin` | ListGroups, DescribeGroups, DeleteGroups, OffsetDelete |

mod admin;
mod api;
pub mod classic;
mod commit;
pub mod consumer;
mod expire;
mod fetch;
mod join;
mod leave;
mod offsets;
mod sync;
mod timeouts;

use std::collections::BTreeMap;
use std::sync::Arc;

use milena_protocol::messages::{
    GroupMetadataKey, GroupMetadataValue, LegacyOffsetCommitKey, OffsetCommitKey, OffsetCommitValue,
};
use milena_protocol::{DecodeError, ErrorCode};

use crate::engine::{Cx, Engine, Now, Replayed, Ticket};
use crate::records::{decode, versioned};

pub use api::{ConsumerHeartbeat, DeletedTopics, GroupSettings, Join, ListFilter, Migration, Reply, Request};
pub use classic::State;
use classic::{ClassicGroup, Identity};
use commit::Origin;
use consumer::ConsumerGroup;
pub use fetch::{FetchedGroup, FetchedOffset};
pub use join::check_join;
use offsets::{CommittedOffset, Offsets};

pub(crate) type GroupCx<'c, 'i> = Cx<'c, 'i, Groups>;

/// Type of the group's record.
const GROUP_METADATA: i16 = 2;
/// Types of an offset's record: an old one, and today's.
const OFFSET_COMMITS: [i16; 2] = [0, 1];

/// All groups of one partition.
#[derive(Debug, Default)]
pub struct Groups {
    /// Classic groups, and those that only keep offsets.
    groups: BTreeMap<Arc<str>, ClassicGroup>,
    /// Consumer groups. No id is on both sides.
    consumers: BTreeMap<Arc<str>, ConsumerGroup>,
    offsets: Offsets,
    replayed_commits: u64,
}

/// Names the timers of groups.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A member is silent for too long.
    Session {
        /// Its group.
        group: Arc<str>,
        /// The member.
        member: Arc<str>,
    },
    /// Members have had enough time to join.
    Join(Arc<str>),
    /// Members have had enough time to fetch their assignment.
    Sync(Arc<str>),
    /// A member of a consumer group is silent for too long.
    ConsumerSession {
        /// Its group.
        group: Arc<str>,
        /// The member.
        member: Arc<str>,
    },
    /// A member has had enough time to give partitions up.
    Revocation {
        /// Its group.
        group: Arc<str>,
        /// The member.
        member: Arc<str>,
    },
    /// A member of the classic protocol in a consumer group has had enough time to join again.
    ClassicJoin {
        /// Its group.
        group: Arc<str>,
        /// The member.
        member: Arc<str>,
    },
    /// A member of the classic protocol in a consumer group has had enough time to fetch its assignment.
    ClassicSync {
        /// Its group.
        group: Arc<str>,
        /// The member.
        member: Arc<str>,
    },
    /// Offsets that are no longer kept are looked for.
    Expiry,
}

/// What follows the write of a group or of offsets.
#[derive(Debug)]
pub enum After {
    /// Nothing depends on it.
    Nothing,
    /// Offsets were committed.
    Commit(Ticket, commit::Response),
    /// Offsets or groups were deleted.
    Deleted(Ticket, Reply),
    /// A member of a consumer group has moved on.
    Beat(consumer::Beat),
    /// A member of the classic protocol has joined a consumer group.
    Joined(consumer::Joined),
    /// A consumer group has become a classic one, and something else has happened.
    Downgraded(consumer::Downgraded, Box<After>),
    /// A group came into being.
    Created(Arc<str>),
    /// The leader's assignment was stored.
    Assigned(sync::Assigned),
    /// A static member took the place of its predecessor.
    Replaced(join::Replaced),
    /// Members have left.
    Left(Ticket, leave::Response),
}

impl Groups {
    /// No groups.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many commits were replayed.
    pub fn replayed_commits(&self) -> u64 {
        self.replayed_commits
    }

    /// How many partitions have a committed offset, over all groups.
    pub fn committed_keys(&self) -> usize {
        self.offsets.len()
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        self.groups.len() + self.consumers.len()
    }

    /// No groups.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn group(&mut self, id: &str) -> Option<&mut ClassicGroup> {
        self.groups.get_mut(id)
    }

    fn replay_group(&mut self, record: &Replayed<'_>) -> Result<(), DecodeError> {
        let key: GroupMetadataKey<'_> = decode(record.key, 0)?;
        let Some((version, value)) = versioned(record.value)? else {
            self.groups.remove(&*key.group);
            return Ok(());
        };
        let value: GroupMetadataValue<'_> = decode(value, version)?;
        let id: Arc<str> = key.group.into();
        self.consumers.remove(&id);
        self.groups.insert(Arc::clone(&id), ClassicGroup::from_record(id, &value));
        Ok(())
    }

    fn replay_commit(&mut self, record: &Replayed<'_>) -> Result<(), DecodeError> {
        let (group, topic, partition) = if record.kind == 1 {
            let key: OffsetCommitKey<'_> = decode(record.key, 0)?;
            (key.group, key.topic, key.partition)
        } else {
            let key: LegacyOffsetCommitKey<'_> = decode(record.key, 0)?;
            (key.group, key.topic, key.partition)
        };
        self.replayed_commits += 1;
        let Some((version, value)) = versioned(record.value)? else {
            self.offsets.remove(&group, &topic, partition);
            return Ok(());
        };
        let value: OffsetCommitValue<'_> = decode(value, version)?;
        if !self.groups.contains_key(&*group) && !self.consumers.contains_key(&*group) {
            // A group that only keeps offsets has no record of its own.
            let id: Arc<str> = Arc::from(&*group);
            self.groups.insert(Arc::clone(&id), ClassicGroup::simple(id));
        }
        let committed = CommittedOffset::from_record(&value, record.offset);
        match record.producer_id {
            None => self.offsets.put(&group, &topic, partition, committed),
            Some(producer) => self.offsets.put_pending(producer, &group, &topic, partition, committed),
        }
        Ok(())
    }
}

impl Engine for Groups {
    type Settings = GroupSettings;
    type Request<'r> = Request<'r>;
    type Reply = Reply;
    type Timer = Timer;
    type After = After;
    type Effect = std::convert::Infallible;

    fn replay(&mut self, record: &Replayed<'_>) -> Result<(), DecodeError> {
        match record.kind {
            GROUP_METADATA => self.replay_group(record),
            kind if OFFSET_COMMITS.contains(&kind) => self.replay_commit(record),
            _ => self.replay_consumers(record).map(drop),
        }
    }

    fn replay_end_of_transaction(&mut self, producer_id: i64, committed: bool) {
        self.offsets.end_transaction(producer_id, committed);
    }

    fn loaded(&mut self, cx: &mut GroupCx<'_, '_>) {
        for group in self.groups.values_mut() {
            group.loaded(cx);
        }
        for (id, group) in &self.consumers {
            group.loaded(id, cx);
        }
        self.schedule_expiry(cx);
    }

    fn handle(&mut self, ticket: Ticket, request: Request<'_>, cx: &mut GroupCx<'_, '_>) {
        match request {
            Request::Join(join) => self.join(ticket, &join, cx),
            Request::Sync(request) => self.sync(ticket, &request, cx),
            Request::Heartbeat(request) => self.heartbeat(ticket, &request, cx),
            Request::Leave(request) => self.leave(ticket, &request, cx),
            Request::ConsumerHeartbeat(heartbeat) => self.consumer_heartbeat(ticket, &heartbeat, cx),
            Request::DescribeConsumers(id) => self.describe_consumers(ticket, id, cx),
            Request::Commit { request, version } => self.commit(ticket, &request, Origin::Client { version }, cx),
            Request::CommitInTransaction { request, version, producer } => {
                self.commit(ticket, &request, Origin::Transaction { producer, version }, cx);
            }
            Request::Fetch { group, require_stable, most_bytes } => {
                self.fetch(ticket, &group, require_stable, most_bytes, cx);
            }
            Request::DeleteOffsets(request) => self.delete_offsets(ticket, &request, cx),
            Request::List(filter) => self.list(ticket, &filter, cx),
            Request::Describe(id) => self.describe(ticket, id, cx),
            Request::Delete(id) => self.delete(ticket, id, cx),
            Request::TopicsDeleted(topics) => self.topics_deleted(ticket, topics, cx),
        }
    }

    fn fire(&mut self, timer: Timer, cx: &mut GroupCx<'_, '_>) {
        match timer {
            Timer::Session { group, member } => self.session_timeout(&group, &member, cx),
            Timer::Join(group) => self.join_timeout(&group, cx),
            Timer::Sync(group) => self.sync_timeout(&group, cx),
            Timer::ConsumerSession { group, member } => self.consumer_session_timeout(&group, &member, cx),
            Timer::Revocation { group, member } => self.revocation_timeout(&group, &member, cx),
            Timer::ClassicJoin { group, member } | Timer::ClassicSync { group, member } => {
                self.classic_timeout(&group, &member, cx);
            }
            Timer::Expiry => self.expire(cx),
        }
    }

    fn settle(&mut self, after: After, outcome: Result<(), ErrorCode>, cx: &mut GroupCx<'_, '_>) {
        match (after, outcome) {
            (After::Nothing | After::Created(_), Ok(())) | (After::Nothing, Err(_)) => {}
            (After::Commit(ticket, response), outcome) => {
                cx.reply(ticket, Reply::Commit(response.or_failed(outcome)));
            }
            (After::Deleted(ticket, reply), outcome) => cx.reply(ticket, reply.or_failed(outcome)),
            (After::Beat(beat), outcome) => self.beaten(beat, outcome, cx),
            (After::Joined(joined), outcome) => self.classic_joined(joined, outcome, cx),
            (After::Downgraded(downgraded, after), outcome) => {
                if outcome.is_ok() {
                    self.downgraded(downgraded, cx);
                }
                self.settle(*after, outcome, cx);
            }
            (After::Created(group), Err(error)) => self.not_created(&group, error, cx),
            (After::Assigned(assigned), outcome) => self.assigned(assigned, outcome, cx),
            (After::Replaced(replaced), outcome) => self.replaced(replaced, outcome, cx),
            (After::Left(ticket, response), outcome) => cx.reply(ticket, Reply::Leave(response.or_failed(outcome))),
        }
    }
}

/// Whose member a request is, and in which generation.
fn identity<'r>(member: &'r str, instance: Option<&'r str>) -> Identity<'r> {
    Identity { member, instance }
}

/// When a group was last changed, ms since 1970.
fn stamp(now: Now) -> Option<i64> {
    Some(now.wall_ms)
}

#[cfg(test)]
pub(crate) mod tests;
