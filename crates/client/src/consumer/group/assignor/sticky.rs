//! Sticky: as even as possible, and as much as possible stays where it was. `constrained` is for members with equal
//! subscriptions, `general` for all others.
//!
//! Members, topics and partitions are numbers here: members by the order of their ids, topics by that of their names, and
//! partitions through all topics, so that comparing numbers compares names.

mod constrained;
mod general;
mod movements;

use std::collections::{BTreeMap, BTreeSet};

use super::{Participant, Placed, Subscription, java_order, rack};
use crate::admin::TopicPartition;
use crate::consumer::group::wire;

/// How members go from one assignment to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// All give up everything.
    Eager,
    /// They give up what others get, and those get it a generation later.
    Cooperative,
}

/// A generation that no member had.
const NO_GENERATION: i32 = -1;

/// What members say that they have.
#[derive(Debug, Default)]
struct Claim {
    partitions: Vec<TopicPartition>,
    generation: Option<i32>,
}

impl Claim {
    fn of(subscription: &Subscription, kind: Kind) -> Self {
        let user_data = subscription.user_data.as_deref();
        match kind {
            // Who joins has given up everything; what it had stands in its user data.
            Kind::Eager => match user_data.filter(|data| !data.is_empty()) {
                None => Self::default(),
                Some(data) => wire::previous_assignment(data).map_or_else(
                    || Self { partitions: Vec::new(), generation: Some(NO_GENERATION) },
                    |(partitions, generation)| Self { partitions, generation },
                ),
            },
            Kind::Cooperative => {
                let told = user_data.map(|data| wire::generation(data).unwrap_or(NO_GENERATION));
                Self { partitions: subscription.owned.clone(), generation: subscription.generation.or(told) }
            }
        }
    }
}

/// What is to be divided, and among whom.
struct Input<'a> {
    topics: &'a [(&'a str, &'a [BTreeSet<String>])],
    /// By id.
    members: Vec<&'a Participant>,
    /// Places in `members`, as Kafka walks over them.
    order: Vec<usize>,
    /// By member.
    claims: Vec<Claim>,
    /// By topic, its first partition.
    first: Vec<usize>,
    /// By partition, its topic.
    topic_of: Vec<usize>,
    highest_generation: i32,
}

impl<'a> Input<'a> {
    fn new(topics: &'a [(&'a str, &'a [BTreeSet<String>])], given: &'a [Participant], kind: Kind) -> Self {
        let mut members: Vec<&Participant> = given.iter().collect();
        members.sort_by(|a, b| a.id.cmp(&b.id));
        let place =
            |id: &str| members.binary_search_by(|member| member.id.as_str().cmp(id)).expect("it is one of them");
        let order = java_order::of_texts(given.iter().map(|member| member.id.as_str()));
        let order = order.into_iter().map(|index| place(&given[index].id)).collect();
        let claims: Vec<_> = members.iter().map(|member| Claim::of(&member.subscription, kind)).collect();
        let highest_generation = claims.iter().filter_map(|claim| claim.generation).fold(NO_GENERATION, i32::max);
        let mut first = Vec::with_capacity(topics.len());
        let mut topic_of = Vec::new();
        for (topic, (_, racks)) in topics.iter().enumerate() {
            first.push(topic_of.len());
            topic_of.resize(topic_of.len() + racks.len(), topic);
        }
        Self { topics, members, order, claims, first, topic_of, highest_generation }
    }

    fn topic(&self, name: &str) -> Option<usize> {
        self.topics.binary_search_by(|(topic, _)| (*topic).cmp(name)).ok()
    }

    /// The partition, if it is there.
    fn partition(&self, wanted: &TopicPartition) -> Option<usize> {
        let topic = self.topic(&wanted.topic)?;
        let number = usize::try_from(wanted.partition).ok()?;
        (number < self.topics[topic].1.len()).then(|| self.first[topic] + number)
    }

    /// Its number in its topic.
    fn number(&self, partition: usize) -> usize {
        partition - self.first[self.topic_of[partition]]
    }

    fn partitions(&self) -> usize {
        self.topic_of.len()
    }

    fn racks(&self, partition: usize) -> &'a BTreeSet<String> {
        &self.topics[self.topic_of[partition]].1[self.number(partition)]
    }

    fn claimed(&self, member: usize) -> impl Iterator<Item = usize> {
        self.claims[member].partitions.iter().filter_map(|partition| self.partition(partition))
    }
}

/// What members had, as far as they agree on it.
struct Owned {
    /// By member.
    partitions: Vec<Vec<usize>>,
    /// What two members claim of the same generation; neither has it.
    disputed: BTreeSet<usize>,
}

impl Owned {
    fn of(input: &Input<'_>) -> Self {
        let mut partitions = vec![Vec::new(); input.members.len()];
        let mut disputed = BTreeSet::new();
        let mut owners = BTreeMap::new();
        for &member in &input.order {
            let generation = input.claims[member].generation.unwrap_or(NO_GENERATION);
            for partition in input.claimed(member) {
                if let Some(&other) = owners.get(&partition) {
                    let others: &Participant = input.members[other];
                    let others = others.subscription.generation.unwrap_or(NO_GENERATION);
                    if generation < others {
                        continue;
                    }
                    remove(&mut partitions[other], partition);
                    if generation == others {
                        disputed.insert(partition);
                        owners.insert(partition, member);
                        continue;
                    }
                }
                partitions[member].push(partition);
                owners.insert(partition, member);
            }
        }
        Self { partitions, disputed }
    }
}

/// Which members and partitions are to come together by rack.
struct Racks<'a> {
    /// By member; all `None` where racks do not decide.
    of_members: Vec<Option<&'a str>>,
    /// By partition, how many members are in racks that have a replica; `None` when no member has told its rack.
    consumers: Option<Vec<usize>>,
    decide: bool,
}

impl<'a> Racks<'a> {
    fn new(input: &Input<'a>) -> Self {
        let of_members: Vec<_> = input.members.iter().map(|member| rack(member)).collect();
        let known: BTreeSet<&str> = of_members.iter().copied().flatten().collect();
        if known.is_empty() {
            return Self { of_members, consumers: None, decide: false };
        }
        let partitions = 0..input.partitions();
        let decide = super::racks_decide(&known, partitions.clone().map(|partition| input.racks(partition)));
        let near =
            |partition| of_members.iter().flatten().filter(|rack| input.racks(partition).contains(**rack)).count();
        let consumers = Some(partitions.map(near).collect());
        let of_members = if decide { of_members } else { vec![None; of_members.len()] };
        Self { of_members, consumers, decide }
    }

    /// Whether the member is in a rack that has no replica.
    fn mismatch(&self, input: &Input<'_>, member: usize, partition: usize) -> bool {
        self.of_members[member].is_some_and(|rack| !input.racks(partition).contains(rack))
    }

    /// Whether the member is in a rack that has a replica.
    fn match_(&self, input: &Input<'_>, member: usize, partition: usize) -> bool {
        self.of_members[member].is_some_and(|rack| input.racks(partition).contains(rack))
    }
}

/// What each member gets, and what of it another one has to give up first.
struct Outcome {
    assignment: Vec<Vec<usize>>,
    /// By partition, who gets it; `None` where that was not followed.
    moving: Option<BTreeMap<usize, usize>>,
}

pub(super) fn assign(topics: &[(&str, &[BTreeSet<String>])], members: &[Participant], kind: Kind) -> Placed {
    if members.is_empty() {
        return Placed::new();
    }
    let input = Input::new(topics, members, kind);
    let owned = Owned::of(&input);
    let racks = Racks::new(&input);
    let Outcome { mut assignment, moving } = if are_equal(&input) {
        constrained::assign(&input, &racks, owned)
    } else {
        general::assign(&input, &racks, owned)
    };
    if kind == Kind::Cooperative {
        for (partition, member) in moving.unwrap_or_else(|| changing_hands(&input, &assignment)) {
            remove(&mut assignment[member], partition);
        }
    }
    let given: BTreeMap<&str, usize> =
        members.iter().enumerate().map(|(at, member)| (member.id.as_str(), at)).collect();
    let mut placed = Placed::new();
    for (member, partitions) in assignment.into_iter().enumerate() {
        let at = given[input.members[member].id.as_str()];
        placed.extend(partitions.into_iter().map(|p| (at, input.topic_of[p], input.number(p))));
    }
    placed
}

/// Whether all members are subscribed to the same topics; those that are subscribed to none before others do not count.
fn are_equal(input: &Input<'_>) -> bool {
    let mut all = BTreeSet::<&str>::new();
    for &member in &input.order {
        let topics = &input.members[member].subscription.topics;
        if all.is_empty() {
            all.extend(topics.iter().map(String::as_str));
        } else if topics.len() != all.len() || topics.iter().any(|topic| !all.contains(topic.as_str())) {
            return false;
        }
    }
    true
}

/// What goes from one member that says it has it to another that does not.
fn changing_hands(input: &Input<'_>, assignment: &[Vec<usize>]) -> BTreeMap<usize, usize> {
    let mut added = BTreeMap::new();
    let mut given_up = BTreeSet::new();
    for (member, assigned) in assignment.iter().enumerate() {
        let assigned: BTreeSet<usize> = assigned.iter().copied().collect();
        let owned = &input.members[member].subscription.owned;
        let owned: BTreeSet<usize> = owned.iter().filter_map(|partition| input.partition(partition)).collect();
        added.extend(assigned.difference(&owned).map(|partition| (*partition, member)));
        given_up.extend(owned.difference(&assigned).copied());
    }
    added.retain(|partition, _| given_up.contains(partition));
    added
}

fn remove(list: &mut Vec<usize>, partition: usize) {
    if let Some(at) = list.iter().position(|other| *other == partition) {
        list.remove(at);
    }
}
