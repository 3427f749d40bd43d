//! From one protocol to the other while members live (`group.consumer.migration.policy`). The first member of the consumer
//! protocol makes a classic group a consumer group; when the last one has left, or a member of the classic protocol has
//! taken its place, it becomes a classic group again.
//!
//! Both are written as the tombstones of the old group and the records of the new one. The group is the other one when they
//! are replayed; what only the other one keeps in memory follows when they are committed.

use std::sync::Arc;

use milena_protocol::ErrorCode;

use super::assign::Partitions;
use super::embedded::{Assigned, Subscription, assignment, read_assignment};
use super::heartbeat::Refusal;
use super::leave::cancel_timers;
use super::member::{ClassicSide, Member, Owned};
use super::{ConsumerGroup, Metadata, Writing, start_session_of};
use crate::group::api::GroupSettings;
use crate::group::classic::{self, CONSUMER, ClassicGroup, Protocols, State};
use crate::group::expire::group_key;
use crate::group::{After, GroupCx, Groups, timeouts};
use crate::records::Records;

/// A group that becomes a classic one.
#[derive(Debug)]
pub struct Downgraded {
    group: Arc<str>,
    generation: i32,
    /// Its members until then.
    before: Vec<Arc<str>>,
    /// What its members know beside the protocol that the record names.
    protocols: Vec<(Arc<str>, Protocols)>,
    rebalances: bool,
}

/// Writes records; a group that they make a classic one goes on as that when they are committed.
pub(super) fn write(records: Records, downgraded: Option<Downgraded>, after: After, cx: &mut GroupCx<'_, '_>) {
    let after = match downgraded {
        Some(downgraded) => After::Downgraded(downgraded, Box::new(after)),
        None => after,
    };
    cx.write(records, after);
}

impl Groups {
    /// The records of a group that has become a classic one are committed.
    pub(in crate::group) fn downgraded(&mut self, downgraded: Downgraded, cx: &mut GroupCx<'_, '_>) {
        let Downgraded { group: id, generation, before, protocols, rebalances } = downgraded;
        // It may be a consumer group again, whose members must be heard of.
        let Some(group) = self.groups.get_mut(&id).filter(|group| group.generation() == generation) else { return };
        before.iter().for_each(|member| cancel_timers(&id, member, cx));
        for (member, protocols) in protocols {
            if group.member(&member).is_some_and(|member| member.join.is_none()) {
                group.set_protocols(&member, protocols);
            }
            group.renew_session(&member, cx);
        }
        if rebalances {
            let emptied = group.rebalance(cx);
            timeouts::write_emptied(emptied, cx);
        }
    }
}

impl ConsumerGroup {
    /// Makes a consumer group of a classic one with members, in its generation and with its assignment. Who waits is told to
    /// join again: the member that comes begins another rebalance.
    pub(super) fn upgraded(
        classic: &mut ClassicGroup,
        records: &mut Records,
        cx: &mut GroupCx<'_, '_>,
    ) -> Result<Self, Refusal> {
        let id = Arc::clone(classic.id());
        let group = Self::of_classic(classic, cx.settings()).map_err(|why| {
            (ErrorCode::GROUP_ID_NOT_FOUND, format!("Classic group {id} can not become a consumer group: {why}."))
        })?;
        classic.refuse_waiting(ErrorCode::REBALANCE_IN_PROGRESS, cx);
        records.remove(&group_key(&id));
        let mut writing = Writing { group: &id, records };
        group.members.values().for_each(|member| writing.member(member));
        writing.epoch(group.epoch, group.metadata_hash);
        group.targets.iter().for_each(|(member, target)| writing.target(member, target));
        writing.target_epoch(group.target_epoch, group.target_timestamp);
        group.members.values().for_each(|member| writing.current(member));
        for (id_of_member, side) in group.members.iter().filter_map(|(id, member)| Some((id, member.classic.as_ref()?)))
        {
            start_session_of(&id, id_of_member, side.session_timeout_ms.into(), cx);
        }
        Ok(group)
    }

    fn of_classic(classic: &ClassicGroup, settings: &GroupSettings) -> Result<Self, &'static str> {
        if !settings.migration.upgrades {
            return Err("the broker does not allow it");
        }
        if classic.protocol_type() != Some(CONSUMER) {
            return Err("its members are no consumers");
        }
        if classic.len() > settings.consumer_max_size {
            return Err("it has too many members");
        }
        let epoch = classic.generation();
        let mut group = Self { epoch, target_epoch: epoch, ..Self::default() };
        let mut waiting = Vec::new();
        for member in classic.members() {
            let (upgraded, subscription) = of_classic_member(member, classic, &*settings.metadata)?;
            if let Some(instance) = &upgraded.instance {
                group.static_members.insert(instance.clone(), Arc::clone(&upgraded.id));
            }
            let id = Arc::clone(&upgraded.id);
            group.members.insert(Arc::clone(&id), upgraded);
            group.claim(&id);
            waiting.push((id, subscription));
        }
        if classic.state() != State::Stable {
            group.add_owned(&waiting, &*settings.metadata);
        }
        for member in group.members.values() {
            let target = member.assigned.iter().map(|(topic, own)| (*topic, own.keys().copied().collect()));
            group.targets.insert(Arc::clone(&member.id), target.collect());
        }
        group.metadata_hash = group.hash_of(group.members.values(), &*settings.metadata);
        Ok(group)
    }

    /// In a rebalance the last assignment may be forgotten, and members may still own what it gave them: what they say counts,
    /// where it is nobody else's.
    fn add_owned(&mut self, members: &[(Arc<str>, Subscription)], metadata: &dyn Metadata) {
        let epoch = self.epoch;
        for (id, subscription) in members {
            for topic in subscription.owned(metadata) {
                for partition in topic.partitions.iter().copied() {
                    if self.owners.contains_key(&(topic.topic_id, partition)) {
                        continue;
                    }
                    self.owners.insert((topic.topic_id, partition), Arc::clone(id));
                    if let Some(member) = self.members.get_mut(id) {
                        member.assigned.entry(topic.topic_id).or_default().insert(partition, epoch);
                    }
                }
            }
        }
    }

    /// Whether the group becomes a classic one without these members.
    pub(super) fn may_downgrade_without(&self, gone: &[Arc<str>], settings: &GroupSettings) -> bool {
        let mut stay = self.members_with(None, gone).peekable();
        stay.peek().is_some()
            && stay.all(|member| member.classic.is_some())
            && self.may_downgrade_to(self.members.len() - gone.len(), settings)
    }

    /// Whether the group becomes a classic one when a member of the classic protocol takes this one's place.
    pub(super) fn may_downgrade_replacing(&self, replaced: &Member, settings: &GroupSettings) -> bool {
        let mut others = self.members.values().filter(|member| member.id != replaced.id);
        replaced.classic.is_none()
            && others.all(|member| member.classic.is_some())
            && self.may_downgrade_to(self.members.len(), settings)
    }

    fn may_downgrade_to(&self, members: usize, settings: &GroupSettings) -> bool {
        settings.migration.downgrades && members <= settings.max_size
    }

    /// Writes the classic group that this one becomes without these members, of whom there was one of the consumer protocol.
    pub(super) fn downgrade_without(
        &self,
        id: &Arc<str>,
        gone: &[Arc<str>],
        writing: &mut Writing<'_>,
        cx: &GroupCx<'_, '_>,
    ) -> Downgraded {
        writing.remove_group(self, self.members.keys().map(|id| &**id));
        self.downgrade(id, self.members_with(None, gone).collect(), true, writing, cx)
    }

    /// Writes the classic group that this one becomes when `joining` takes the place of the static member of its name. Its
    /// members go on with what they have, unless it reads other topics, or some are on their way to another assignment.
    pub(super) fn downgrade_replacing(
        &self,
        id: &Arc<str>,
        joining: &Member,
        subscription_changed: bool,
        writing: &mut Writing<'_>,
        cx: &GroupCx<'_, '_>,
    ) -> Downgraded {
        let replaces = |member: &Member| member.instance.is_some() && member.instance == joining.instance;
        let members = || self.members.values().map(|member| if replaces(member) { joining } else { member });
        // The records that put it into that place are there already.
        writing.remove_group(self, members().map(|member| &*member.id));
        let has_target = |member: &Member| {
            let target = self.targets.get(&member.id).cloned().unwrap_or_default();
            member.revoking.is_empty() && owned_by(member) == target
        };
        let is_settled = self.epoch == self.target_epoch && self.members.values().all(has_target);
        self.downgrade(id, members().collect(), subscription_changed || !is_settled, writing, cx)
    }

    /// Writes a classic group of these members, with what they own as their assignment: who has not heard of another one yet
    /// must not lose it to others.
    fn downgrade(
        &self,
        id: &Arc<str>,
        members: Vec<&Member>,
        rebalances: bool,
        writing: &mut Writing<'_>,
        cx: &GroupCx<'_, '_>,
    ) -> Downgraded {
        let metadata = &*cx.settings().metadata;
        let classic = members.iter().map(|member| to_classic_member(member)).collect();
        let mut group = ClassicGroup::stable(Arc::clone(id), self.epoch, classic, cx.now());
        for member in members {
            let subscription = group.subscription(&member.id).unwrap_or_default();
            let owned = owned_by(member).into_iter().map(|(topic, all)| (topic, all.into_iter().collect()));
            let assignment = assignment(subscription, owned, metadata);
            if let Some(member) = group.member_mut(&member.id) {
                member.assignment = assignment;
            }
        }
        group.put(|member| &member.assignment, writing.records);
        let protocols = group.members().map(|member| (Arc::clone(&member.id), member.protocols.clone()));
        Downgraded {
            group: Arc::clone(id),
            generation: self.epoch,
            before: self.members.keys().cloned().collect(),
            protocols: protocols.collect(),
            rebalances,
        }
    }
}

/// What a member owns, or is still to give up.
fn owned_by(member: &Member) -> Partitions {
    let mut owned = Partitions::new();
    for (topic, partitions) in member.assigned.iter().chain(&member.revoking) {
        owned.entry(*topic).or_default().extend(partitions.keys());
    }
    owned
}

fn of_classic_member(
    member: &classic::Member,
    group: &ClassicGroup,
    metadata: &dyn Metadata,
) -> Result<(Member, Subscription), &'static str> {
    let malformed = "what its members say to each other can not be read";
    let subscription = group.subscription(&member.id).and_then(Subscription::read).ok_or(malformed)?;
    let partitions = match read_assignment(&member.assignment, metadata).ok_or(malformed)? {
        Assigned::Partitions(partitions) => partitions,
        Assigned::WithUserData => return Err("its assignor has data of its own, which would be lost"),
    };
    let epoch = group.generation();
    let owned = partitions.into_iter().map(|(topic, all)| (topic, all.into_iter().map(|one| (one, epoch)).collect()));
    let upgraded = Member {
        id: Arc::clone(&member.id),
        instance: member.instance.clone(),
        rack: subscription.rack.clone(),
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        names: subscription.topics.clone(),
        rebalance_timeout_ms: member.rebalance_timeout_ms,
        classic: Some(ClassicSide {
            session_timeout_ms: member.session_timeout_ms,
            protocols: member.protocols.clone(),
        }),
        epoch,
        previous_epoch: epoch,
        assigned: owned.collect::<Owned>(),
        ..Member::default()
    };
    Ok((upgraded, subscription))
}

fn to_classic_member(member: &Member) -> classic::Member {
    let side = member.classic.clone().unwrap_or_default();
    classic::Member {
        id: Arc::clone(&member.id),
        instance: member.instance.clone(),
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        rebalance_timeout_ms: member.rebalance_timeout_ms,
        session_timeout_ms: side.session_timeout_ms,
        protocol_type: CONSUMER.to_owned(),
        protocols: side.protocols,
        assignment: Vec::new(),
        join: None,
        sync: None,
        is_new: false,
    }
}
