//! Range: of each topic, neighbouring partitions for each member, the first members one more if it does not come out even.
//! Topics with the same members and as many partitions are divided alike, so that what belongs together stays together.
//! With racks, first to those whose rack has a replica.

use std::collections::{BTreeMap, BTreeSet};

use super::{Participant, Placed, by_instance, rack, racks_decide, topics_of};

/// One topic while its partitions are divided.
struct Topic<'a> {
    index: usize,
    racks: &'a [BTreeSet<String>],
    /// Who is subscribed, in Kafka's order, with rack.
    members: Vec<(usize, Option<&'a str>)>,
    /// How many each of them has so far.
    counts: Vec<usize>,
    free: Vec<bool>,
    /// How many each gets at least.
    quota: usize,
    /// How many get one more.
    extra: usize,
    racks_decide: bool,
}

impl<'a> Topic<'a> {
    fn new(index: usize, racks: &'a [BTreeSet<String>], members: Vec<(usize, Option<&'a str>)>) -> Self {
        let known: BTreeSet<&str> = members.iter().filter_map(|(_, rack)| *rack).collect();
        let (count, partitions) = (members.len(), racks.len());
        Self {
            index,
            racks,
            counts: vec![0; count],
            free: vec![true; partitions],
            quota: partitions.checked_div(count).unwrap_or(0),
            extra: partitions.checked_rem(count).unwrap_or(0),
            racks_decide: racks_decide(&known, racks.iter()),
            members,
        }
    }

    /// How many more the member at this place may get.
    fn room(&self, place: usize) -> usize {
        (self.quota + usize::from(self.extra > 0)).saturating_sub(self.counts[place])
    }

    /// Whether reading this partition stays in the member's rack, if it has one.
    fn matches(&self, place: usize, partition: usize) -> bool {
        self.members[place].1.is_none_or(|rack| self.racks[partition].contains(rack))
    }

    fn give(&mut self, place: usize, partitions: &[usize], placed: &mut Placed) {
        for partition in partitions {
            self.free[*partition] = false;
            placed.push((self.members[place].0, self.index, *partition));
        }
        self.counts[place] += partitions.len();
        if self.counts[place] > self.quota {
            self.extra = self.extra.saturating_sub(1);
        }
    }

    /// Gives each member as many of the free partitions as it may get; with `matching`, only those of its rack.
    fn give_ranges(&mut self, matching: bool, placed: &mut Placed) {
        for place in 0..self.members.len() {
            let free = (0..self.free.len()).filter(|partition| self.free[*partition]);
            let suitable = free.filter(|partition| !matching || self.matches(place, *partition));
            let given: Vec<usize> = suitable.take(self.room(place)).collect();
            if !given.is_empty() {
                self.give(place, &given, placed);
            }
        }
    }
}

pub(super) fn assign(topics: &[(&str, &[BTreeSet<String>])], members: &[Participant]) -> Placed {
    let (order, topics_of) = (by_instance(members), topics_of(members));
    let subscribed = |name: &str| {
        let of_topic = order.iter().filter(|place| topics_of[**place].contains(name));
        of_topic.map(|place| (*place, rack(&members[*place]))).collect()
    };
    let mut states: Vec<_> =
        topics.iter().enumerate().map(|(index, (name, racks))| Topic::new(index, racks, subscribed(name))).collect();
    let mut placed = Placed::new();
    if states.iter().any(|topic| topic.racks_decide) {
        give_within_racks(&mut states, &mut placed);
    }
    for topic in &mut states {
        topic.give_ranges(false, &mut placed);
    }
    placed
}

fn give_within_racks(states: &mut [Topic<'_>], placed: &mut Placed) {
    // Topics that are divided alike. Where no member has a rack, Kafka does not count the partitions.
    let mut alike = BTreeMap::<_, Vec<&mut Topic<'_>>>::new();
    for topic in states {
        let counted = topic.members.iter().any(|(_, rack)| rack.is_some());
        let partitions = if counted { topic.racks.len() } else { 0 };
        alike.entry((topic.members.clone(), partitions)).or_default().push(topic);
    }
    for ((members, partitions), mut topics) in alike {
        if let [topic] = &mut topics[..] {
            if topic.racks_decide {
                topic.give_ranges(true, placed);
            }
            continue;
        }
        let mut remaining: Vec<usize> = (0..members.len()).collect();
        for partition in 0..partitions {
            let suits =
                |place: &usize| topics.iter().all(|topic| topic.matches(*place, partition) && topic.room(*place) > 0);
            let Some(place) = remaining.iter().copied().find(suits) else { continue };
            for topic in &mut topics {
                topic.give(place, &[partition], placed);
            }
            if topics.iter().all(|topic| topic.room(place) == 0) {
                remaining.retain(|other| *other != place);
            }
        }
    }
}
