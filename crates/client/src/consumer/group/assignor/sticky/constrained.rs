//! Members with equal subscriptions: each gets `quota` partitions, and as many as are needed get one more. They keep what
//! they had up to that; with racks, only where a replica is near.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Input, Outcome, Owned, Racks};

struct Builder<'a> {
    input: &'a Input<'a>,
    racks: &'a Racks<'a>,
    disputed: BTreeSet<usize>,
    assignment: Vec<Vec<usize>>,
    assigned: Vec<bool>,
    /// By partition, who had it and may have to give it up.
    given_up: BTreeMap<usize, usize>,
    moving: BTreeMap<usize, usize>,
    /// Members with less than the quota.
    below: Vec<usize>,
    /// Members with the quota, some of which get one more.
    at_quota: VecDeque<usize>,
    quota: usize,
    most: usize,
    /// How many members get more than the quota, and how many have it already.
    above: usize,
    above_now: usize,
}

pub(super) fn assign(input: &Input<'_>, racks: &Racks<'_>, owned: Owned) -> Outcome {
    let (partitions, members) = (input.partitions(), input.members.len());
    let mut builder = Builder {
        input,
        racks,
        disputed: owned.disputed,
        assignment: vec![Vec::new(); members],
        assigned: vec![false; partitions],
        given_up: BTreeMap::new(),
        moving: BTreeMap::new(),
        below: Vec::new(),
        at_quota: VecDeque::new(),
        quota: partitions / members,
        most: partitions.div_ceil(members),
        above: partitions % members,
        above_now: 0,
    };
    for &member in &input.order {
        builder.keep(member, &owned.partitions[member]);
    }
    builder.below.sort_unstable();
    builder.at_quota.make_contiguous().sort_unstable();
    let mut free: Vec<usize> = (0..partitions).filter(|partition| !builder.assigned[*partition]).collect();
    if let Some(consumers) = &racks.consumers {
        free.sort_by_key(|partition| consumers[*partition]);
    }
    if racks.decide {
        builder.fill_within_racks(&mut free);
    }
    builder.fill(&free);
    Outcome { assignment: builder.assignment, moving: Some(builder.moving) }
}

impl Builder<'_> {
    /// Leaves the member what it had, up to what it may have.
    fn keep(&mut self, member: usize, owned: &[usize]) {
        let mut kept = Vec::new();
        for &partition in owned {
            if self.racks.mismatch(self.input, member, partition) {
                self.given_up.insert(partition, member);
            } else if !self.disputed.contains(&partition) {
                kept.push(partition);
            }
        }
        kept.sort_unstable_by_key(|partition| (self.input.number(*partition), self.input.topic_of[*partition]));
        let keep = if kept.len() < self.quota {
            self.below.push(member);
            kept.len()
        } else if kept.len() >= self.most && self.above_now < self.above {
            self.above_now += 1;
            if self.above_now == self.above {
                self.at_quota.clear();
            }
            self.most
        } else {
            if self.above_now < self.above {
                self.at_quota.push_back(member);
            }
            self.quota
        };
        for partition in kept.split_off(keep) {
            self.given_up.insert(partition, member);
        }
        for partition in kept {
            self.assigned[partition] = true;
            self.assignment[member].push(partition);
        }
    }

    /// Gives free partitions to members near a replica, in turn.
    fn fill_within_racks(&mut self, free: &mut Vec<usize>) {
        let mut turn = 0;
        free.retain(|&partition| {
            let taker = match self.next_near(partition, self.below.iter().copied(), turn) {
                Some(at) => Some(self.take_below(at, &mut turn)),
                None => {
                    let near = self.next_near(partition, self.at_quota.iter().copied(), 0);
                    near.and_then(|at| self.take_at_quota(at))
                }
            };
            if let Some(member) = taker {
                self.give(partition, member);
            }
            taker.is_none()
        });
    }

    /// The member at a place of those below the quota gets one more.
    fn take_below(&mut self, at: usize, turn: &mut usize) -> usize {
        let member = self.below[at];
        let count = self.assignment[member].len() + 1;
        let mut next = at;
        if count >= self.quota {
            self.below.remove(at);
            if count < self.most && self.above_now < self.above {
                self.at_quota.push_back(member);
            }
        } else {
            next += 1;
        }
        *turn = next.checked_rem(self.below.len()).unwrap_or(0);
        member
    }

    /// The member at a place of those with the quota gets one more.
    fn take_at_quota(&mut self, at: usize) -> Option<usize> {
        let member = *self.at_quota.get(at)?;
        if self.assignment[member].len() + 1 == self.most {
            self.at_quota.remove(at);
            self.above_now += 1;
            if self.above_now == self.above {
                self.at_quota.clear();
            }
        }
        Some(member)
    }

    /// The place of the first member from `turn` on, around the list, that is near a replica.
    fn next_near(&self, partition: usize, list: impl ExactSizeIterator<Item = usize>, turn: usize) -> Option<usize> {
        let list: Vec<usize> = list.collect();
        let places = (0..list.len()).map(|step| (turn + step) % list.len());
        places.into_iter().find(|place| self.racks.match_(self.input, list[*place], partition))
    }

    /// Gives the rest in turn, to those below the quota first.
    fn fill(&mut self, free: &[usize]) {
        let mut turn = 0;
        for &partition in free {
            if turn >= self.below.len() {
                turn = 0;
            }
            let below = self.below.get(turn).copied();
            // The quotas add up to all partitions; if they did not, whoever has least would get the rest.
            let least = || (0..self.assignment.len()).min_by_key(|member| self.assignment[*member].len());
            let Some(member) = below.or_else(|| self.at_quota.pop_front()).or_else(least) else { return };
            self.give(partition, member);
            if below.is_none() {
                continue;
            }
            if self.assignment[member].len() == self.quota {
                self.below.remove(turn);
                self.at_quota.push_back(member);
            } else {
                turn += 1;
            }
        }
    }

    fn give(&mut self, partition: usize, member: usize) {
        self.assignment[member].push(partition);
        let from_another = self.given_up.get(&partition).is_some_and(|before| *before != member);
        if from_another || self.disputed.contains(&partition) {
            self.moving.insert(partition, member);
        }
    }
}
