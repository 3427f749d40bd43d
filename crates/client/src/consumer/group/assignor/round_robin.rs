//! Round robin: all partitions of all topics in order, each to the next member that is subscribed to its topic.

use std::collections::BTreeSet;

use super::{Participant, Placed, by_instance, topics_of};

pub(super) fn assign(topics: &[(&str, &[BTreeSet<String>])], members: &[Participant]) -> Placed {
    let (order, topics_of) = (by_instance(members), topics_of(members));
    let mut placed = Placed::new();
    let mut turn = 0;
    for (index, (name, racks)) in topics.iter().enumerate() {
        for partition in 0..racks.len() {
            let subscribed = |turn: &usize| topics_of[order[turn % order.len()]].contains(name);
            // Somebody is, or the topic would not be here.
            let Some(next) = (turn..turn + order.len()).find(subscribed) else { continue };
            placed.push((order[next % order.len()], index, partition));
            turn = next % order.len() + 1;
        }
    }
    placed
}
