//! Who gets which partition, decided by a classic group's leader: [`assign`] and the assignors behind it, as pure functions.
//!
//! They give what Kafka's classes give for the same input. Where Kafka walks over a hash map and the order decides, so does
//! `java_order`.

mod java_order;
mod range;
mod round_robin;
mod sticky;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::admin::TopicPartition;
use crate::error::Error;

/// How partitions of a classic group are divided among its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Assignor {
    /// Of each topic, a run of neighbouring partitions for each member.
    Range,
    /// Partition by partition in turn.
    RoundRobin,
    /// As even as possible, and of what members had, as much as possible; all give up everything first.
    Sticky,
    /// The same, but members give up only what others get.
    CooperativeSticky,
}

impl Assignor {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Range, Self::RoundRobin, Self::Sticky, Self::CooperativeSticky];

    /// Kafka's name of it, by which members agree.
    pub fn name(self) -> &'static str {
        match self {
            Self::Range => "range",
            Self::RoundRobin => "roundrobin",
            Self::Sticky => "sticky",
            Self::CooperativeSticky => "cooperative-sticky",
        }
    }

    /// The assignor with this name, which may be that of Kafka's class.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.strip_prefix("org.apache.kafka.clients.consumer.").unwrap_or(name);
        let class = |assignor: Self| match assignor {
            Self::Range => "RangeAssignor",
            Self::RoundRobin => "RoundRobinAssignor",
            Self::Sticky => "StickyAssignor",
            Self::CooperativeSticky => "CooperativeStickyAssignor",
        };
        Self::ALL.into_iter().find(|assignor| assignor.name() == name || class(*assignor) == name)
    }
}

/// Takes the names of assignors with commas.
pub(super) fn parse(key: &str, text: &str) -> Result<Vec<Assignor>, Error> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let unknown = |name| Error::config(key, format!("`{name}` is no assignor"));
    let assignors: Vec<_> =
        names.map(|name| Assignor::from_name(name).ok_or_else(|| unknown(name))).collect::<Result<_, _>>()?;
    if assignors.is_empty() { Err(Error::config(key, "names no assignor")) } else { Ok(assignors) }
}

/// What a leader knows of a member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Subscription {
    pub(super) topics: Vec<String>,
    pub(super) user_data: Option<Vec<u8>>,
    /// What the member has, as far as it tells.
    pub(super) owned: Vec<TopicPartition>,
    /// The generation in which it got that.
    pub(super) generation: Option<i32>,
    pub(super) rack: Option<String>,
}

/// A member that takes part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Participant {
    pub(super) id: String,
    pub(super) instance: Option<String>,
    pub(super) subscription: Subscription,
}

/// Of each topic, by partition, the racks that have a replica.
pub(super) type Topics = BTreeMap<String, Vec<BTreeSet<String>>>;

/// Of each member, by its id, what it gets.
pub(super) type Assignment = BTreeMap<String, Vec<TopicPartition>>;

/// Divides the partitions of those topics that somebody is subscribed to and that are there.
pub(super) fn assign(assignor: Assignor, topics: &Topics, members: &[Participant]) -> Assignment {
    let subscribed: BTreeSet<&str> =
        members.iter().flat_map(|member| &member.subscription.topics).map(String::as_str).collect();
    let there = topics.iter().filter(|(name, racks)| subscribed.contains(name.as_str()) && !racks.is_empty());
    let topics: Vec<(&str, &[BTreeSet<String>])> = there.map(|(name, racks)| (name.as_str(), &racks[..])).collect();
    let mut assignment: Assignment = members.iter().map(|member| (member.id.clone(), Vec::new())).collect();
    let assigned = match assignor {
        Assignor::Range => range::assign(&topics, members),
        Assignor::RoundRobin => round_robin::assign(&topics, members),
        Assignor::Sticky => sticky::assign(&topics, members, sticky::Kind::Eager),
        Assignor::CooperativeSticky => sticky::assign(&topics, members, sticky::Kind::Cooperative),
    };
    for (member, topic, partition) in assigned {
        let list = assignment.get_mut(&members[member].id).expect("every member is there");
        list.push(TopicPartition::new(topics[topic].0, partition_number(partition)));
    }
    for list in assignment.values_mut() {
        list.sort_unstable();
    }
    assignment
}

/// Which member gets which partition of which topic, all by their places.
type Placed = Vec<(usize, usize, usize)>;

fn partition_number(place: usize) -> i32 {
    i32::try_from(place).expect("partitions are numbered by i32")
}

/// Members in the order in which Kafka gives: those with an instance id first, by it; others by member id.
fn by_instance(members: &[Participant]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|place| {
        let member = &members[*place];
        (member.instance.is_none(), member.instance.as_deref().unwrap_or(&member.id))
    });
    order
}

/// Of each member, the topics that it is subscribed to.
fn topics_of(members: &[Participant]) -> Vec<BTreeSet<&str>> {
    members.iter().map(|member| member.subscription.topics.iter().map(String::as_str).collect()).collect()
}

/// The racks that matter: whether members with racks and replicas have some in common, and not every partition is everywhere.
fn racks_decide<'a>(
    of_members: &BTreeSet<&str>,
    of_partitions: impl Iterator<Item = &'a BTreeSet<String>> + Clone,
) -> bool {
    let all: BTreeSet<&str> = of_partitions.clone().flatten().map(String::as_str).collect();
    !of_members.is_disjoint(&all) && of_partitions.into_iter().any(|racks| racks.len() != all.len())
}

/// A member's rack, if it has told one.
fn rack(member: &Participant) -> Option<&str> {
    member.subscription.rack.as_deref().filter(|rack| !rack.is_empty())
}
