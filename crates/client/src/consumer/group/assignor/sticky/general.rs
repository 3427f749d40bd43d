//! Members with different subscriptions: they keep what they may keep, what is free goes to who has least, and then
//! partitions move from who has more to who has less as long as that makes the assignment more even.

use std::collections::{BTreeMap, BTreeSet};

use super::movements::Movements;
use super::{Input, NO_GENERATION, Outcome, Owned, Racks, remove};

struct Builder<'a> {
    input: &'a Input<'a>,
    racks: &'a Racks<'a>,
    /// By topic, who may get its partitions.
    takers: Vec<Vec<usize>>,
    /// By member, what it may get.
    topics: Vec<Vec<usize>>,
    assignment: Vec<Vec<usize>>,
    /// By partition, who has it.
    owner: Vec<Option<usize>>,
    /// Members that may still change, by how much they have.
    sorted: BTreeSet<(usize, usize)>,
    /// By partition, who had it in an earlier generation.
    earlier: BTreeMap<usize, (usize, i32)>,
    movements: Movements,
}

pub(super) fn assign(input: &Input<'_>, racks: &Racks<'_>, owned: Owned) -> Outcome {
    let mut builder = Builder::new(input, racks, owned);
    let gave_up = builder.keep();
    // Topics with the fewest takers first.
    let mut topics: Vec<usize> = (0..input.topics.len()).collect();
    topics.sort_by_key(|topic| builder.takers[*topic].len());
    let all =
        topics.into_iter().flat_map(|topic| (0..input.topics[topic].1.len()).map(move |at| input.first[topic] + at));
    let all: Vec<usize> = all.collect();
    let kept: BTreeSet<usize> = builder.assignment.iter().flatten().copied().collect();
    let free: Vec<usize> = all.iter().copied().filter(|partition| !kept.contains(partition)).collect();
    builder.sorted = (0..input.members.len()).map(|member| (builder.assignment[member].len(), member)).collect();
    builder.balance(all, free, gave_up);
    Outcome { assignment: builder.assignment, moving: None }
}

impl<'a> Builder<'a> {
    fn new(input: &'a Input<'a>, racks: &'a Racks<'a>, owned: Owned) -> Self {
        let mut takers = vec![Vec::new(); input.topics.len()];
        let mut topics = vec![Vec::new(); input.members.len()];
        for &member in &input.order {
            for topic in input.members[member].subscription.topics.iter().filter_map(|name| input.topic(name)) {
                takers[topic].push(member);
                topics[member].push(topic);
            }
        }
        let mut owner = vec![None; input.partitions()];
        for &member in &input.order {
            for &partition in &owned.partitions[member] {
                owner[partition] = Some(member);
            }
        }
        let (assignment, sorted, movements) = (owned.partitions, BTreeSet::new(), Movements::default());
        Self { input, racks, takers, topics, assignment, owner, sorted, earlier: earlier(input), movements }
    }

    /// Leaves members what they may keep; whether one had to give something up.
    fn keep(&mut self) -> bool {
        let mut gave_up = false;
        for member in 0..self.assignment.len() {
            let (input, racks, topics) = (self.input, self.racks, &self.topics[member]);
            let before = self.assignment[member].len();
            self.assignment[member].retain(|partition| {
                topics.contains(&input.topic_of[*partition]) && !racks.mismatch(input, member, *partition)
            });
            gave_up |= self.assignment[member].len() < before;
        }
        gave_up
    }

    fn balance(&mut self, mut all: Vec<usize>, mut free: Vec<usize>, gave_up: bool) {
        let initializing = self.sorted.last().is_none_or(|(most, _)| *most == 0);
        let mut rest = free.clone();
        if self.racks.decide {
            rest.retain(|partition| !self.give(*partition, true));
        }
        for partition in rest {
            self.give(partition, false);
        }
        let (takers, topic_of) = (&self.takers, &self.input.topic_of);
        let movable = |partition: &usize| takers[topic_of[*partition]].len() >= 2;
        all.retain(movable);
        free.retain(movable);
        self.sorted = self.sorted.iter().copied().filter(|(_, member)| self.may_change(*member)).collect();
        let before = (self.assignment.clone(), self.score());
        if !gave_up {
            self.reassign_all(&free);
        }
        let reassigned = self.reassign_all(&all);
        if !initializing && reassigned && self.score() >= before.1 {
            self.assignment = before.0;
        }
    }

    /// How uneven it is: the differences between all pairs of members.
    fn score(&self) -> usize {
        let counts: Vec<usize> = self.sorted.iter().map(|(_, member)| self.assignment[*member].len()).collect();
        let against =
            |(at, count): (usize, &usize)| counts[at + 1..].iter().map(|other| other.abs_diff(*count)).sum::<usize>();
        counts.iter().enumerate().map(against).sum()
    }

    /// Gives a partition to the member that has least of those that may get it; with `near`, that are near a replica.
    fn give(&mut self, partition: usize, near: bool) -> bool {
        let topic = self.input.topic_of[partition];
        let may = |member: usize| {
            self.topics[member].contains(&topic) && !(near && self.racks.mismatch(self.input, member, partition))
        };
        let Some((count, member)) = self.sorted.iter().copied().find(|(_, member)| may(*member)) else { return false };
        self.sorted.remove(&(count, member));
        self.assignment[member].push(partition);
        self.owner[partition] = Some(member);
        self.sorted.insert((count + 1, member));
        true
    }

    /// How many partitions the member could have at most.
    fn most(&self, member: usize) -> usize {
        let topics = &self.topics[member];
        if topics.len() == self.input.topics.len() {
            return self.input.partitions();
        }
        topics.iter().map(|topic| self.input.topics[*topic].1.len()).sum()
    }

    /// Whether the member could get something, or has something that another could get.
    fn may_change(&self, member: usize) -> bool {
        let assigned = &self.assignment[member];
        let movable = |partition: &usize| self.takers[self.input.topic_of[*partition]].len() >= 2;
        assigned.len() < self.most(member) || assigned.iter().any(movable)
    }

    /// Whether no partition could move to a member that would still have less than the one it comes from.
    fn is_balanced(&self) -> bool {
        let (Some((least, _)), Some((most, _))) = (self.sorted.first(), self.sorted.last()) else { return true };
        if least + 1 >= *most {
            return true;
        }
        self.sorted.iter().all(|(count, member)| {
            let partitions = self.topics[*member].iter().flat_map(|topic| {
                let first = self.input.first[*topic];
                first..first + self.input.topics[*topic].1.len()
            });
            let better = |partition: usize| {
                let owner = self.owner[partition].filter(|owner| owner != member);
                owner.is_some_and(|owner| count + 1 < self.assignment[owner].len())
            };
            *count == self.most(*member) || !partitions.into_iter().any(better)
        })
    }

    /// Moves what makes the assignment more even until nothing does; whether anything did.
    fn reassign_all(&mut self, partitions: &[usize]) -> bool {
        let mut reassigned = false;
        loop {
            let mut modified = false;
            for &partition in partitions {
                if self.is_balanced() {
                    break;
                }
                modified |= self.reassign(partition);
            }
            reassigned |= modified;
            if !modified {
                return reassigned;
            }
        }
    }

    fn reassign(&mut self, partition: usize) -> bool {
        let Some(owner) = self.owner[partition] else { return false };
        let count = self.assignment[owner].len();
        let fuller_than = |member: usize| count > self.assignment[member].len() + 1;
        if let Some(&(member, _)) = self.earlier.get(&partition)
            && fuller_than(member)
        {
            self.move_to(partition, member);
            return true;
        }
        let topic = self.input.topic_of[partition];
        if !self.takers[topic].iter().any(|member| fuller_than(*member)) {
            return false;
        }
        let may = |member: usize| self.topics[member].contains(&topic);
        let next = self.sorted.iter().map(|(_, member)| *member).find(|member| may(*member));
        if let Some(member) = next {
            self.move_to(partition, member);
        }
        next.is_some()
    }

    fn move_to(&mut self, partition: usize, to: usize) {
        let Some(from) = self.owner[partition] else { return };
        let partition = self.movements.actual(self.input, partition, from, to);
        let Some(from) = self.owner[partition] else { return };
        let takes_part = [from, to].map(|member| self.sorted.remove(&(self.assignment[member].len(), member)));
        self.movements.record(self.input.topic_of[partition], partition, from, to);
        remove(&mut self.assignment[from], partition);
        self.assignment[to].push(partition);
        self.owner[partition] = Some(to);
        for (member, takes_part) in [from, to].into_iter().zip(takes_part) {
            if takes_part {
                self.sorted.insert((self.assignment[member].len(), member));
            }
        }
    }
}

/// What members had in generations before the highest.
fn earlier(input: &Input<'_>) -> BTreeMap<usize, (usize, i32)> {
    let mut earlier = BTreeMap::new();
    for &member in &input.order {
        let generation = input.claims[member].generation.unwrap_or(NO_GENERATION);
        if generation >= input.highest_generation {
            continue;
        }
        for partition in input.claimed(member) {
            let known = earlier.entry(partition).or_insert((member, generation));
            if generation > known.1 {
                *known = (member, generation);
            }
        }
    }
    earlier
}
