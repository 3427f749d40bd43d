//! A member of a consumer group: what it asks for, what it owns, and the next step towards what it should own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use milena_protocol::Uuid;
use milena_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;

use super::assign::Partitions;
use crate::group::classic::Protocols;

/// Partitions with the member epochs in which the member got them.
pub(in crate::group) type Owned = BTreeMap<Uuid, BTreeMap<i32, i32>>;

/// How a member stands to what it should own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum MemberState {
    /// It owns what it should, as of its epoch.
    #[default]
    Stable,
    /// It is to give partitions up first.
    UnrevokedPartitions,
    /// It waits for partitions that others have not given up.
    UnreleasedPartitions,
    /// Written by a release that knows more states.
    Unknown,
}

impl MemberState {
    /// The state of a record.
    pub(super) fn of(number: i8) -> Self {
        match number {
            0 => Self::Stable,
            1 => Self::UnrevokedPartitions,
            2 => Self::UnreleasedPartitions,
            _ => Self::Unknown,
        }
    }

    /// As a record has it.
    pub(super) fn number(self) -> i8 {
        match self {
            Self::Stable => 0,
            Self::UnrevokedPartitions => 1,
            Self::UnreleasedPartitions => 2,
            Self::Unknown => 127,
        }
    }
}

/// What a member has that speaks the classic protocol.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::group) struct ClassicSide {
    pub(in crate::group) session_timeout_ms: i32,
    pub(in crate::group) protocols: Protocols,
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::group) struct Member {
    pub(in crate::group) id: Arc<str>,
    pub(in crate::group) instance: Option<String>,
    pub(super) rack: Option<String>,
    pub(in crate::group) client_id: String,
    pub(in crate::group) client_host: String,
    /// Topics by name, whether they exist or not.
    pub(super) names: BTreeSet<String>,
    /// Topics by expression; empty for none.
    pub(super) regex: String,
    pub(in crate::group) rebalance_timeout_ms: i32,
    pub(super) assignor: Option<String>,
    /// `None` when it speaks the consumer protocol.
    pub(in crate::group) classic: Option<ClassicSide>,
    pub(super) epoch: i32,
    pub(super) previous_epoch: i32,
    pub(super) state: MemberState,
    pub(super) assigned: Owned,
    /// What it is to give up.
    pub(super) revoking: Owned,
}

/// Where a member is to get, and what stands in its way.
pub(super) struct Target<'t> {
    /// Epoch of the assignment.
    pub(super) epoch: i32,
    /// What it should own.
    pub(super) partitions: &'t Partitions,
    /// The topics that it reads and that exist.
    pub(super) topics: &'t BTreeSet<Uuid>,
    /// Those are others than before.
    pub(super) subscription_changed: bool,
    /// Whether nobody else owns a partition.
    pub(super) is_free: &'t dyn Fn(Uuid, i32) -> bool,
    /// What it says that it owns.
    pub(super) owned: Option<&'t [TopicPartitions<'t>]>,
}

impl Member {
    /// Somebody who joins.
    pub(super) fn new(id: Arc<str>) -> Self {
        Self { id, rebalance_timeout_ms: -1, ..Self::default() }
    }

    /// It owns what the assignment of this epoch gives it.
    pub(super) fn is_reconciled_to(&self, epoch: i32) -> bool {
        self.state == MemberState::Stable && self.epoch == epoch
    }

    /// Whether everything in `owned` is assigned to it; not, where it does not say what it owns.
    pub(super) fn has_all(&self, owned: Option<&[TopicPartitions<'_>]>) -> bool {
        owned.is_some_and(|owned| {
            owned.iter().all(|topic| {
                let assigned = self.assigned.get(&topic.topic_id);
                assigned
                    .is_some_and(|assigned| topic.partitions.iter().all(|partition| assigned.contains_key(partition)))
            })
        })
    }

    /// The next step of the member towards its target.
    pub(super) fn reconciled(&self, to: &Target<'_>) -> Self {
        match self.state {
            MemberState::Stable if self.epoch == to.epoch => self.without_unread(to),
            MemberState::UnrevokedPartitions if still_owns(&self.revoking, to.owned) => self.without_unread(to),
            MemberState::Stable | MemberState::UnreleasedPartitions | MemberState::UnrevokedPartitions => {
                self.step(self.epoch, to)
            }
            MemberState::Unknown => self.step(to.epoch, to),
        }
    }

    /// What it no longer reads it gives up at once, without another assignment.
    fn without_unread(&self, to: &Target<'_>) -> Self {
        let mut next = self.clone();
        let unread = |topic: &Uuid| !to.topics.contains(topic);
        if !to.subscription_changed || !self.assigned.keys().any(unread) {
            return next;
        }
        for (topic, partitions) in self.assigned.iter().filter(|(topic, _)| unread(topic)) {
            next.assigned.remove(topic);
            next.revoking.entry(*topic).or_default().extend(partitions);
        }
        if still_owns(&next.revoking, to.owned) {
            next.state = MemberState::UnrevokedPartitions;
        } else {
            next.revoking = Owned::new();
        }
        next.enter(self.epoch);
        next
    }

    fn step(&self, own_epoch: i32, to: &Target<'_>) -> Self {
        let (mut kept, mut revoking, mut waits) = (Owned::new(), Owned::new(), false);
        let wanted = |topic: &Uuid| to.partitions.get(topic).filter(|_| to.topics.contains(topic));
        for (topic, partitions) in &self.assigned {
            for (partition, since) in partitions {
                let keeps = wanted(topic).is_some_and(|wanted| wanted.contains(partition));
                let side = if keeps { &mut kept } else { &mut revoking };
                side.entry(*topic).or_default().insert(*partition, *since);
            }
        }
        let mut next = self.clone();
        if !revoking.is_empty() && still_owns(&revoking, to.owned) {
            (next.state, next.assigned, next.revoking) = (MemberState::UnrevokedPartitions, kept, revoking);
            next.enter(own_epoch);
            return next;
        }
        for topic in to.partitions.keys() {
            for partition in wanted(topic).into_iter().flatten() {
                if self.assigned.get(topic).is_some_and(|own| own.contains_key(partition)) {
                    continue;
                }
                if (to.is_free)(*topic, *partition) {
                    kept.entry(*topic).or_default().insert(*partition, to.epoch);
                } else {
                    waits = true;
                }
            }
        }
        next.state = if waits { MemberState::UnreleasedPartitions } else { MemberState::Stable };
        (next.assigned, next.revoking) = (kept, Owned::new());
        next.enter(to.epoch);
        next
    }

    fn enter(&mut self, epoch: i32) {
        (self.previous_epoch, self.epoch) = (self.epoch, epoch);
    }
}

/// Whether the member has any of `revoking` left; it has, while it does not say what it owns.
fn still_owns(revoking: &Owned, owned: Option<&[TopicPartitions<'_>]>) -> bool {
    let Some(owned) = owned else { return true };
    owned.iter().any(|topic| {
        let revoking = revoking.get(&topic.topic_id);
        revoking.is_some_and(|revoking| topic.partitions.iter().any(|partition| revoking.contains_key(partition)))
    })
}
