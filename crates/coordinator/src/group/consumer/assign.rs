//! The assignors: which member should own which partition. `uniform` gives all members the same number of partitions and
//! leaves as many as it can where they are; `range` gives each member a run of each topic's partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use milena_protocol::Uuid;

/// Partitions by topic.
pub(in crate::group) type Partitions = BTreeMap<Uuid, BTreeSet<i32>>;

/// A member as assignors see it.
#[derive(Debug, Clone, Default)]
pub(super) struct Assignee {
    /// The name of a static member.
    pub(super) instance: Option<String>,
    /// The topics that it reads and that exist.
    pub(super) topics: BTreeSet<Uuid>,
    /// What it should own until now.
    pub(super) target: Partitions,
}

/// The members, and how many partitions each of their topics has.
#[derive(Debug, Clone, Default)]
pub(super) struct Assignees {
    pub(super) members: BTreeMap<Arc<str>, Assignee>,
    pub(super) partitions: BTreeMap<Uuid, i32>,
}

/// What each member should own.
pub(super) type Assignments = BTreeMap<Arc<str>, Partitions>;

/// The assignor of a name; every name that is not known is `uniform`.
pub(super) fn assign(name: &str, all: &Assignees) -> Assignments {
    if name == "range" { range(all) } else { uniform(all) }
}

/// Runs of partitions, in the order of static members' names, then of member ids.
fn range(all: &Assignees) -> Assignments {
    let mut order: Vec<_> = all.members.iter().collect();
    order.sort_by_key(|(id, member)| (member.instance.is_none(), member.instance.clone(), Arc::clone(id)));
    let mut assignments: Assignments = all.members.keys().map(|id| (Arc::clone(id), Partitions::new())).collect();
    for (topic, partitions) in &all.partitions {
        let readers: Vec<_> = order.iter().filter(|(_, member)| member.topics.contains(topic)).collect();
        let count = i32::try_from(readers.len()).unwrap_or(i32::MAX).max(1);
        let (quota, extra) = (partitions / count, partitions % count);
        let mut next = 0;
        for (at, (id, _)) in (0..).zip(readers) {
            let end = next + quota + i32::from(at < extra);
            if end > next
                && let Some(own) = assignments.get_mut(*id)
            {
                own.insert(*topic, (next..end).collect());
            }
            next = end;
        }
    }
    assignments
}

fn uniform(all: &Assignees) -> Assignments {
    let mut load = Load::keeping(all);
    let first = all.members.values().next().map(|member| &member.topics);
    if all.members.values().all(|member| Some(&member.topics) == first) {
        load.cut(all);
    }
    load.give_out(all);
    load.balance(all);
    load.assignments
}

/// Who owns what while partitions are given out.
struct Load {
    assignments: Assignments,
    counts: BTreeMap<Arc<str>, usize>,
    owned: BTreeSet<(Uuid, i32)>,
}

impl Load {
    /// What members have and may keep.
    fn keeping(all: &Assignees) -> Self {
        let mut load = Self { assignments: Assignments::new(), counts: BTreeMap::new(), owned: BTreeSet::new() };
        for (id, member) in &all.members {
            load.assignments.insert(Arc::clone(id), Partitions::new());
            load.counts.insert(Arc::clone(id), 0);
            for (topic, partitions) in member.target.iter().filter(|(topic, _)| member.topics.contains(topic)) {
                let there = all.partitions.get(topic).copied().unwrap_or(0);
                for partition in partitions.iter().filter(|partition| (0..there).contains(partition)) {
                    if !load.owned.contains(&(*topic, *partition)) {
                        load.give(id, *topic, *partition);
                    }
                }
            }
        }
        load
    }

    fn give(&mut self, member: &Arc<str>, topic: Uuid, partition: i32) {
        self.assignments.entry(Arc::clone(member)).or_default().entry(topic).or_default().insert(partition);
        *self.counts.entry(Arc::clone(member)).or_default() += 1;
        self.owned.insert((topic, partition));
    }

    fn take(&mut self, member: &Arc<str>, topic: Uuid, partition: i32) {
        if let Some(own) = self.assignments.get_mut(member)
            && let Some(partitions) = own.get_mut(&topic)
            && partitions.remove(&partition)
        {
            if partitions.is_empty() {
                own.remove(&topic);
            }
            if let Some(count) = self.counts.get_mut(member) {
                *count -= 1;
            }
            self.owned.remove(&(topic, partition));
        }
    }

    /// Where all members read the same topics, nobody keeps more than a fair share.
    fn cut(&mut self, all: &Assignees) {
        let topics = all.members.values().next().map(|member| member.topics.clone()).unwrap_or_default();
        let total: usize =
            topics.iter().filter_map(|topic| all.partitions.get(topic)).map(|count| *count as usize).sum();
        let members = all.members.len().max(1);
        let (quota, mut extra) = (total / members, total % members);
        for id in all.members.keys() {
            let most = quota + usize::from(extra > 0);
            extra = extra.saturating_sub(1);
            let own = self.assignments.get(id).cloned().unwrap_or_default();
            let too_many =
                own.into_iter().flat_map(|(topic, all)| all.into_iter().map(move |one| (topic, one))).skip(most);
            for (topic, partition) in too_many.collect::<Vec<_>>() {
                self.take(id, topic, partition);
            }
        }
    }

    /// Each partition without an owner goes to the reader that has the fewest; topics with few readers come first.
    fn give_out(&mut self, all: &Assignees) {
        let readers_of = |topic: &Uuid| -> Vec<&Arc<str>> {
            all.members.iter().filter(|(_, member)| member.topics.contains(topic)).map(|(id, _)| id).collect()
        };
        let mut topics: Vec<_> =
            all.partitions.iter().map(|(topic, count)| (readers_of(topic), topic, count)).collect();
        topics.sort_by_key(|(readers, topic, _)| (readers.len(), **topic));
        for (readers, topic, count) in topics {
            for partition in
                (0..*count).filter(|partition| !self.owned.contains(&(*topic, *partition))).collect::<Vec<_>>()
            {
                let fewest = readers.iter().min_by_key(|id| (self.counts.get(**id).copied(), Arc::clone(id)));
                if let Some(member) = fewest {
                    self.give(member, *topic, partition);
                }
            }
        }
    }

    /// Moves partitions from members that have two more than another reader of the topic, until there are none.
    fn balance(&mut self, all: &Assignees) {
        while let Some((from, to, topic, partition)) = self.unfair(all) {
            self.take(&from, topic, partition);
            self.give(&to, topic, partition);
        }
    }

    fn unfair(&self, all: &Assignees) -> Option<(Arc<str>, Arc<str>, Uuid, i32)> {
        let mut by_count: Vec<_> = self.counts.iter().collect();
        by_count.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (from, count) in by_count {
            for (topic, partitions) in self.assignments.get(from)? {
                let readers = all.members.iter().filter(|(_, member)| member.topics.contains(topic));
                let to = readers.map(|(id, _)| id).min_by_key(|id| self.counts.get(*id).copied());
                if let (Some(to), Some(partition)) = (to, partitions.last())
                    && self.counts.get(to).is_some_and(|other| other + 1 < *count)
                {
                    return Some((Arc::clone(from), Arc::clone(to), *topic, *partition));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(n: u8) -> Uuid {
        Uuid::from_bytes([n; 16])
    }

    fn all(topics: &[(u8, i32)], members: &[(&str, &[u8])]) -> Assignees {
        let assignee =
            |read: &[u8]| Assignee { topics: read.iter().map(|n| topic(*n)).collect(), ..Assignee::default() };
        Assignees {
            members: members.iter().map(|(id, read)| (Arc::from(*id), assignee(read))).collect(),
            partitions: topics.iter().map(|(n, count)| (topic(*n), *count)).collect(),
        }
    }

    fn shown(assignments: &Assignments) -> Vec<String> {
        let of = |own: &Partitions| {
            own.iter().map(|(topic, all)| format!("{}:{all:?}", topic.as_bytes()[0])).collect::<Vec<_>>()
        };
        assignments.iter().map(|(id, own)| format!("{id} {}", of(own).join(" "))).collect()
    }

    #[test]
    fn range_gives_runs_and_the_first_members_one_more() {
        let mut group = all(&[(1, 5), (2, 1)], &[("a", &[1, 2]), ("b", &[1]), ("c", &[1, 2])]);
        assert_eq!(shown(&assign("range", &group)), ["a 1:{0, 1} 2:{0}", "b 1:{2, 3}", "c 1:{4}"]);
        if let Some(member) = group.members.get_mut("c") {
            member.instance = Some("z".to_owned());
        }
        assert_eq!(shown(&assign("range", &group)), ["a 1:{2, 3}", "b 1:{4}", "c 1:{0, 1} 2:{0}"]);
    }

    #[test]
    fn uniform_is_even_and_moves_no_more_than_it_must() {
        let mut group = all(&[(1, 7)], &[("a", &[1])]);
        let mut before = assign("uniform", &group);
        assert_eq!(shown(&before), ["a 1:{0, 1, 2, 3, 4, 5, 6}"]);
        for (joins, most_moved) in [("b", 3), ("c", 2), ("d", 1)] {
            let member = group.members["a"].clone();
            group.members.insert(Arc::from(joins), member);
            for (id, target) in &before {
                group.members.get_mut(id).unwrap().target = target.clone();
            }
            group.members.get_mut(joins).unwrap().target = Partitions::new();
            let after = assign("uniform", &group);
            let counts: Vec<_> = after.values().map(|own| own.values().map(BTreeSet::len).sum::<usize>()).collect();
            assert_eq!(counts.iter().sum::<usize>(), 7);
            assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
            let kept = |id: &Arc<str>| {
                after[id].get(&topic(1)).map_or(0, |own| own.intersection(&before[id][&topic(1)]).count())
            };
            let moved = 7 - before.keys().map(kept).sum::<usize>();
            assert!(moved <= most_moved, "{moved} when {joins} joins");
            before = after;
        }
    }

    #[test]
    fn uniform_balances_members_with_different_topics() {
        let group = all(&[(1, 4), (2, 2)], &[("a", &[1]), ("b", &[1, 2]), ("c", &[2])]);
        let after = assign("uniform", &group);
        let counts: Vec<_> = after.values().map(|own| own.values().map(BTreeSet::len).sum::<usize>()).collect();
        assert_eq!(counts.iter().sum::<usize>(), 6);
        assert!(counts.iter().all(|count| *count == 2), "{}", shown(&after).join(", "));
    }

    #[test]
    fn what_nobody_reads_nobody_gets() {
        let group = all(&[(1, 2)], &[("a", &[]), ("b", &[])]);
        assert_eq!(shown(&assign("uniform", &group)), ["a ", "b "]);
        assert!(assign("uniform", &Assignees::default()).is_empty());
    }
}
