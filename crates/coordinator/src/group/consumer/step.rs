//! One request's way through a group: what its member asks for, whether the group assigns anew for it, and the member's
//! next step. All of it is worked out on copies and written as records.

use std::collections::BTreeSet;
use std::sync::Arc;

use milena_protocol::messages::consumer_group_heartbeat_request::{
    ConsumerGroupHeartbeatRequest, TopicPartitions as OwnedPartitions,
};
use milena_protocol::{ErrorCode, Uuid};

use super::assign::Partitions;
use super::heartbeat::{JOIN, LEAVE_FOR_NOW, Refusal, check_epoch, is_static_member, unknown_member};
use super::member::{Member, Target};
use super::{ConsumerGroup, Metadata, Writing, regex};

/// One request's way.
pub(super) struct Step<'s> {
    group: &'s ConsumerGroup,
    metadata: &'s dyn Metadata,
    /// The group's epoch, as the request leaves it.
    pub(super) epoch: i32,
    /// It assigns anew, whatever the member asks for.
    pub(super) is_upgraded: bool,
    /// The member whose place a static member takes.
    gone: Option<Arc<str>>,
    pub(super) writing: Writing<'s>,
}

impl<'s> Step<'s> {
    pub(super) fn new(group: &'s ConsumerGroup, metadata: &'s dyn Metadata, writing: Writing<'s>) -> Self {
        Self { group, metadata, epoch: group.epoch, is_upgraded: false, gone: None, writing }
    }

    /// The member that a heartbeat is of, as it was until now.
    pub(super) fn member(
        &mut self,
        id: &Arc<str>,
        request: &ConsumerGroupHeartbeatRequest<'_>,
        most: usize,
    ) -> Result<Member, Refusal> {
        let known = self.group.members.get(id);
        if known.is_none() && self.group.members.len() >= most {
            let full = format!("The consumer group has reached its maximum capacity of {most} members.");
            return Err((ErrorCode::GROUP_MAX_SIZE_REACHED, full));
        }
        let Some(instance) = request.instance_id.as_deref() else {
            let member = match known {
                Some(known) => known.clone(),
                None if request.member_epoch == JOIN => Member::new(Arc::clone(id)),
                None => return Err(unknown_member(id, &self.writing)),
            };
            check_epoch(&member, request)?;
            return Ok(member);
        };
        let named = self.group.static_member(instance);
        if request.member_epoch != JOIN {
            let member = is_static_member(named, id, instance)?;
            check_epoch(member, request)?;
            return Ok(member.clone());
        }
        let Some(old) = named else { return Ok(known.cloned().unwrap_or_else(|| Member::new(Arc::clone(id)))) };
        if old.epoch != LEAVE_FOR_NOW && old.classic.is_none() {
            let held = format!(
                "Static member {id} with instance id {instance} cannot join the group because the instance id is owned \
                 by {} member.",
                old.id
            );
            return Err((ErrorCode::UNRELEASED_INSTANCE_ID, held));
        }
        Ok(self.replace(old, id))
    }

    /// The member that a JoinGroup is of, as it was until now. A dynamic one becomes one by joining; a static one that does
    /// not know its id takes its predecessor's place.
    pub(super) fn classic_member(
        &mut self,
        id: &Arc<str>,
        instance: Option<&str>,
        is_new: bool,
    ) -> Result<Member, ErrorCode> {
        let known = || self.group.members.get(id).cloned().unwrap_or_else(|| Member::new(Arc::clone(id)));
        let Some(instance) = instance else { return Ok(known()) };
        match self.group.static_member(instance) {
            Some(old) if is_new => Ok(self.replace(old, id)),
            None if is_new => Ok(known()),
            named => is_static_member(named, id, instance).cloned().map_err(|(error, _)| error),
        }
    }

    /// A static member has come back under another id, and goes on with what it had.
    fn replace(&mut self, old: &Member, id: &Arc<str>) -> Member {
        let new = Member { id: Arc::clone(id), epoch: 0, previous_epoch: 0, ..old.clone() };
        self.writing.remove_member(&old.id);
        self.writing.member(&new);
        self.writing.target(id, self.group.targets.get(&old.id).unwrap_or(&Partitions::new()));
        self.writing.current(&new);
        self.gone = Some(Arc::clone(&old.id)).filter(|old| old != id);
        new
    }

    /// Writes what the member asks for, where that has changed, and begins a new epoch of the group where it changes what
    /// is to be assigned, or the topics have changed. Says whether the member asks for other topics.
    pub(super) fn subscribe(&mut self, before: &Member, after: &Member) -> Result<bool, Refusal> {
        let is_new = !self.group.members.contains_key(&before.id) && self.gone.is_none();
        if is_new || before != after {
            self.writing.member(after);
        }
        let gone = self.gone.as_slice();
        let expression_changed = before.regex != after.regex;
        if expression_changed && !after.regex.is_empty() {
            regex::check(&after.regex).map_err(|message| (ErrorCode::INVALID_REGULAR_EXPRESSION, message))?;
        }
        let is_used = |regex: &str| self.group.members_with(Some(after), gone).any(|member| member.regex == regex);
        if expression_changed && !before.regex.is_empty() && !is_used(&before.regex) {
            self.writing.remove_regex(&before.regex);
        }
        let known_expression = self.group.regexes.contains_key(&after.regex) || after.regex.is_empty();
        let default = self.metadata.assignors().into_iter().next().unwrap_or_default();
        let wanted = ConsumerGroup::assignor(self.group.members.values()).unwrap_or(&default);
        let wants = ConsumerGroup::assignor(self.group.members_with(Some(after), gone)).unwrap_or(&default);
        let names_changed = before.names != after.names;
        let mut bumps =
            self.is_upgraded || names_changed || (expression_changed && known_expression) || wanted != wants;
        if bumps || self.group.compared_version != Some(self.metadata.version()) {
            let hash = self.group.hash_of(self.group.members_with(Some(after), gone), self.metadata);
            bumps |= hash != self.group.metadata_hash;
            if bumps {
                self.epoch = self.group.epoch + 1;
                self.writing.epoch(self.epoch, hash);
            }
        }
        Ok(names_changed || expression_changed)
    }

    /// The member after its next step; assigns first, if that is due.
    pub(super) fn reconcile(
        &mut self,
        member: &Member,
        subscription_changed: bool,
        now_ms: i64,
        owned: Option<&[OwnedPartitions<'_>]>,
    ) -> Member {
        let (epoch, partitions) = self.target(member, now_ms);
        let owner_is_member = |owner: &Arc<str>| *owner == member.id || self.gone.as_ref() == Some(owner);
        let is_free = |topic, partition| self.group.owners.get(&(topic, partition)).is_none_or(owner_is_member);
        let topics = self.group.topics_of(member).filter_map(|name| self.metadata.topic(name));
        let topics: BTreeSet<Uuid> = topics.map(|topic| topic.id).collect();
        let to =
            Target { epoch, partitions: &partitions, topics: &topics, subscription_changed, is_free: &is_free, owned };
        let after = member.reconciled(&to);
        if after != *member {
            self.writing.current(&after);
        }
        after
    }

    /// Whether the group's expressions are to be looked up, now that the member is as it is `after` the heartbeat.
    pub(super) fn is_lookup_due(&self, after: &Member, now_ms: i64) -> bool {
        regex::is_due(self.group, after, self.gone.as_slice(), self.metadata, now_ms)
    }

    /// What the member should own, and in which epoch of the assignment.
    fn target(&mut self, member: &Member, now_ms: i64) -> (i32, Partitions) {
        let group = self.group;
        if !group.is_assignment_due(self.writing.group, self.epoch, self.metadata, now_ms) {
            let id = self.gone.as_ref().unwrap_or(&member.id);
            return (group.target_epoch, group.targets.get(id).cloned().unwrap_or_default());
        }
        let mut targets = group.assign(member, self.gone.as_slice(), self.metadata);
        for (id, target) in &targets {
            if group.targets.get(id) != Some(target) {
                self.writing.target(id, target);
            }
        }
        self.writing.target_epoch(self.epoch, now_ms);
        (self.epoch, targets.remove(&member.id).unwrap_or_default())
    }
}
