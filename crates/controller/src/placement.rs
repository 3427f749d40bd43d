//! Which brokers get the replicas of new partitions: one after the other over racks, then over the brokers of a rack, from
//! a random start, fenced brokers last and never as the leader.

use milena_io::Rng;
use milena_metadata::{Broker, Image};

/// Why no placement exists, in Kafka's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlacementError {
    /// Zero or fewer replicas.
    #[error("Invalid replication factor {0}: the replication factor must be positive.")]
    NonPositive(i16),
    /// Nobody could lead.
    #[error("All brokers are currently fenced.")]
    AllFenced,
    /// More replicas than brokers.
    #[error(
        "The target replication factor of {wanted} cannot be reached because only {brokers} broker(s) are registered or \
         some brokers have all their log directories cordoned."
    )]
    TooFewBrokers {
        /// Replicas asked for.
        wanted: i16,
        /// Brokers that take replicas.
        brokers: usize,
    },
}

/// Replicas of `partitions` new partitions, the first of each being the leader.
pub(crate) fn place(
    image: &Image,
    partitions: usize,
    replication_factor: i16,
    rng: &mut dyn Rng,
) -> Result<Vec<Vec<i32>>, PlacementError> {
    let mut racks = Racks::new(image, rng);
    let wanted = usize::try_from(replication_factor).ok().filter(|n| *n > 0);
    let wanted = wanted.ok_or(PlacementError::NonPositive(replication_factor))?;
    if racks.unfenced == 0 {
        return Err(PlacementError::AllFenced);
    }
    if wanted > racks.brokers {
        return Err(PlacementError::TooFewBrokers { wanted: replication_factor, brokers: racks.brokers });
    }
    Ok((0..partitions).map(|_| racks.place(wanted, rng)).collect())
}

/// Whether a broker takes new replicas.
pub(crate) fn has_uncordoned_directory(broker: &Broker) -> bool {
    match &broker.cordoned_directories {
        Some(cordoned) if !broker.directories.is_empty() => broker.directories.iter().any(|d| !cordoned.contains(d)),
        _ => true,
    }
}

/// Brokers in a ring, each given out once a round; the next round begins one further.
#[derive(Default)]
struct Ring {
    brokers: Vec<i32>,
    start: usize,
    given: usize,
    round: usize,
}

impl Ring {
    fn next(&mut self, round: usize) -> Option<i32> {
        let len = self.brokers.len();
        if len == 0 {
            return None;
        }
        if self.round != round {
            self.round = round;
            self.given = 0;
            self.start = (self.start + 1) % len;
        }
        if self.given == len {
            return None;
        }
        let broker = self.brokers[(self.start + self.given) % len];
        self.given += 1;
        Some(broker)
    }
}

#[derive(Default)]
struct Rack {
    name: Option<String>,
    unfenced: Ring,
    fenced: Ring,
}

struct Racks {
    racks: Vec<Rack>,
    brokers: usize,
    unfenced: usize,
    round: usize,
    start: usize,
}

impl Racks {
    fn new(image: &Image, rng: &mut dyn Rng) -> Self {
        let mut all = Self { racks: Vec::new(), brokers: 0, unfenced: 0, round: 0, start: 0 };
        let usable = |b: &&std::sync::Arc<Broker>| !b.in_controlled_shutdown && has_uncordoned_directory(b);
        for broker in image.cluster().brokers().filter(usable) {
            let at = all.racks.iter().position(|rack| rack.name == broker.rack).unwrap_or_else(|| {
                all.racks.push(Rack { name: broker.rack.clone(), ..Rack::default() });
                all.racks.len() - 1
            });
            let rack = &mut all.racks[at];
            let ring = if broker.fenced { &mut rack.fenced } else { &mut rack.unfenced };
            ring.brokers.push(broker.id);
            all.brokers += 1;
            all.unfenced += usize::from(!broker.fenced);
        }
        all.racks.sort_by(|a, b| a.name.cmp(&b.name));
        for rack in &mut all.racks {
            rack.unfenced.start = random_index(rack.unfenced.brokers.len(), rng);
            rack.fenced.start = random_index(rack.fenced.brokers.len(), rng);
        }
        all.start = random_index(all.racks.len(), rng);
        all
    }

    /// Replicas of one partition. There are at least `wanted` brokers and one of them is not fenced.
    fn place(&mut self, wanted: usize, rng: &mut dyn Rng) -> Vec<i32> {
        // After as many rounds as there are possible leaders the pattern would repeat.
        if self.round == self.unfenced && self.unfenced > 1 {
            self.shuffle(rng);
            self.round = 0;
        }
        let racks = self.racks.len();
        self.start %= racks;
        let (leader_rack, leader) = (0..racks)
            .map(|i| (self.start + i) % racks)
            .find_map(|at| Some((at, self.racks[at].unfenced.next(self.round)?)))
            .expect("one broker is not fenced, and a round asks once for a leader");
        let mut replicas = vec![leader];
        let (mut at, mut skip) = (self.start, Some(leader_rack));
        while replicas.len() < wanted {
            if skip == Some(at) {
                skip = None;
            } else {
                let rack = &mut self.racks[at];
                replicas.extend(rack.unfenced.next(self.round).or_else(|| rack.fenced.next(self.round)));
            }
            at = (at + 1) % racks;
        }
        self.round += 1;
        self.start += 1;
        replicas
    }

    fn shuffle(&mut self, rng: &mut dyn Rng) {
        shuffle(&mut self.racks, rng);
        for rack in &mut self.racks {
            shuffle(&mut rack.unfenced.brokers, rng);
            shuffle(&mut rack.fenced.brokers, rng);
        }
    }
}

fn random_index(len: usize, rng: &mut dyn Rng) -> usize {
    // Below a length that is a usize.
    rng.below(len as u64) as usize
}

fn shuffle<T>(items: &mut [T], rng: &mut dyn Rng) {
    for i in (1..items.len()).rev() {
        items.swap(i, random_index(i + 1, rng));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use milena_io::SimRng;

    use super::*;
    use crate::testing::{broker, image};

    #[test]
    fn every_partition_gets_distinct_brokers_and_leaders_are_spread_evenly() {
        let image = image((1..=4).map(broker));
        let placed = place(&image, 40, 3, &mut SimRng::new(1)).unwrap();
        for replicas in &placed {
            assert_eq!(replicas.iter().collect::<BTreeSet<_>>().len(), 3, "{replicas:?}");
        }
        for leader in 1..=4 {
            assert_eq!(placed.iter().filter(|r| r[0] == leader).count(), 10, "broker {leader}");
        }
    }

    #[test]
    fn replicas_go_to_different_racks_while_there_are_some() {
        let rack = |id: i32| Some(["a", "b", "c"][id as usize % 3].to_owned());
        let brokers = (0..9).map(|id| Broker { rack: rack(id), ..broker(id) });
        for replicas in place(&image(brokers), 50, 3, &mut SimRng::new(2)).unwrap() {
            let racks: BTreeSet<i32> = replicas.iter().map(|id| id % 3).collect();
            assert_eq!(racks.len(), 3, "{replicas:?}");
        }
    }

    #[test]
    fn a_fenced_broker_never_leads_and_comes_last() {
        let image = image([broker(1), broker(2), Broker { fenced: true, ..broker(3) }]);
        for replicas in place(&image, 20, 2, &mut SimRng::new(3)).unwrap() {
            assert!(!replicas.contains(&3), "{replicas:?}");
        }
        for replicas in place(&image, 20, 3, &mut SimRng::new(3)).unwrap() {
            assert_eq!(replicas[2], 3, "{replicas:?}");
        }
    }

    #[test]
    fn what_cannot_be_placed_is_refused_with_kafkas_message() {
        let message = |brokers: Vec<Broker>, factor| {
            place(&image(brokers), 1, factor, &mut SimRng::new(4)).unwrap_err().to_string()
        };
        let too_few = "cannot be reached because only 1 broker(s) are registered or some brokers have all their log \
                       directories cordoned.";
        assert_eq!(message(vec![broker(1)], 3), format!("The target replication factor of 3 {too_few}"));
        let leaving = Broker { in_controlled_shutdown: true, ..broker(2) };
        assert_eq!(message(vec![broker(1), leaving], 2), format!("The target replication factor of 2 {too_few}"));
        let cordoned = Broker { cordoned_directories: Some(broker(2).directories), ..broker(2) };
        assert_eq!(message(vec![broker(1), cordoned], 2), format!("The target replication factor of 2 {too_few}"));
        let fenced = Broker { fenced: true, ..broker(1) };
        assert_eq!(message(vec![fenced], 1), "All brokers are currently fenced.");
        let zero = "Invalid replication factor 0: the replication factor must be positive.";
        assert_eq!(message(vec![broker(1)], 0), zero);
    }
}
