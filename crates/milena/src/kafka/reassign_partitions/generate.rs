//! A proposal of where partitions could be: replicas spread over brokers, and over racks where all brokers have one.

use std::collections::{BTreeMap, BTreeSet};

use milena_client::Admin;
use milena_client::admin::TopicPartition;
use milena_io::{RealRng, Rng};
use serde_json::Value;

use super::super::json::Json;
use super::plan::{self, twice};
use super::{Assignment, Ended, Thrown, assignment_of, java, log_dirs};
use crate::output::print;

/// Brokers with their racks, ascending.
type Brokers = BTreeMap<i32, Option<String>>;

/// Prints where the topics of a file are and where they could be.
pub async fn generate(admin: &Admin, text: &str, brokers: &str, racks: bool) -> Result<(), Ended> {
    let wanted = broker_list(brokers)?;
    let topics = topics(text)?;
    let now = assignment_of(admin, &topics).await?;
    let cluster = admin.describe_cluster().await?;
    let chosen = cluster.brokers.into_iter().filter(|broker| wanted.contains(&broker.id));
    let chosen: Brokers = chosen.map(|broker| (broker.id, broker.rack.filter(|_| racks))).collect();
    let without = chosen.values().filter(|rack| rack.is_none()).count();
    if racks && without != 0 && without != chosen.len() {
        let message = "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica \
            assignment without rack information.";
        return Err(Thrown::new(java::TOOL_OPERATION, message).into());
    }
    let mut proposed = Assignment::new();
    let mut by_topic = BTreeMap::<&str, Vec<&Vec<i32>>>::new();
    for (partition, replicas) in &now {
        by_topic.entry(&partition.topic).or_default().push(replicas);
    }
    for (topic, partitions) in by_topic {
        let placed = place(&chosen, partitions.len(), partitions[0].len(), &mut RealRng)?;
        proposed.extend((0..).zip(placed).map(|(index, replicas)| (TopicPartition::new(topic, index), replicas)));
    }
    print(&format!(
        "Current partition replica assignment\n{}\n\n",
        plan::json(&now, &log_dirs::of(admin, &now).await?)
    ));
    print(&format!("Proposed partition reassignment configuration\n{}\n", plan::json(&proposed, &Default::default())));
    Ok(())
}

fn broker_list(text: &str) -> Result<Vec<i32>, Thrown> {
    let parse = |text: &str| {
        let message = || format!("For input string: \"{text}\"");
        text.parse().map_err(|_| Thrown::new(java::NUMBER_FORMAT, message()))
    };
    let brokers = text.split(',').map(parse).collect::<Result<Vec<i32>, _>>()?;
    let twice = Vec::from_iter(twice(&brokers));
    if twice.is_empty() {
        return Ok(brokers);
    }
    Err(Thrown::new(java::TOOL_COMMAND_FAILED, format!("Broker list contains duplicate entries: {twice:?}")))
}

fn topics(text: &str) -> Result<Vec<String>, Thrown> {
    let bad = |message: &str| Thrown::new(java::TOOL_OPERATION, message);
    let file: Value = serde_json::from_str(text).map_err(|_| bad("The input string is not a valid JSON"))?;
    let file = Json(&file).object()?;
    match file.get("version").map_or(Ok(1), Json::int)? {
        1 => {}
        other => return Err(bad(&format!("Not supported version field value {other}"))),
    }
    let mut topics = Vec::new();
    if let Some(listed) = file.get("topics") {
        for entry in listed.array()? {
            topics.push(entry.object()?.need("topic")?.text()?.to_owned());
        }
    }
    let twice: Vec<&str> = twice(topics.iter().map(String::as_str)).into_iter().collect();
    if twice.is_empty() {
        return Ok(topics);
    }
    let message = format!("List of topics to reassign contains duplicate entries: [{}]", twice.join(", "));
    Err(Thrown::new(java::TOOL_COMMAND_FAILED, message))
}

/// The replicas of a topic's partitions: leaders go round the brokers, each round's followers are one further away, and a
/// rack or a broker comes again only when all others have had their turn.
fn place(brokers: &Brokers, partitions: usize, replicas: usize, rng: &mut dyn Rng) -> Result<Vec<Vec<i32>>, Thrown> {
    let ring = alternating(brokers);
    let count = ring.len();
    if replicas > count {
        let class = "org.apache.kafka.common.errors.InvalidReplicationFactorException";
        let message = match count {
            0 => "All brokers are currently fenced, or have all their log directories cordoned.".to_owned(),
            _ => format!(
                "The target replication factor of {replicas} cannot be reached because only {count} broker(s) are registered \
                 or some brokers have all their log directories cordoned."
            ),
        };
        return Err(Thrown::new(class, message));
    }
    let racks: BTreeSet<&Option<String>> = brokers.values().collect();
    // Without racks every broker is on its own.
    let racks = if racks.iter().any(|rack| rack.is_none()) { 1 } else { racks.len() };
    let (start, mut shift) = (below(rng, count), below(rng, count));
    let mut placed = Vec::with_capacity(partitions);
    for partition in 0..partitions {
        if partition > 0 && partition % count == 0 {
            shift += 1;
        }
        let first = (partition + start) % count;
        let mut chosen = vec![ring[first]];
        let mut candidates = (0..).map(|step| ring[follower(first, shift * racks, step, count)]);
        while chosen.len() < replicas {
            let candidate = candidates.next().expect("the numbers do not end");
            let in_racks: BTreeSet<&Option<String>> = chosen.iter().map(|broker| &brokers[broker]).collect();
            let fits_rack = racks == 1 || in_racks.len() == racks || !in_racks.contains(&brokers[&candidate]);
            if fits_rack && !chosen.contains(&candidate) {
                chosen.push(candidate);
            }
        }
        placed.push(chosen);
    }
    Ok(placed)
}

/// The place of a partition's further replica.
fn follower(first: usize, shift: usize, step: usize, count: usize) -> usize {
    let distance = if count > 1 { 1 + (shift + step) % (count - 1) } else { 0 };
    (first + distance) % count
}

/// One broker of each rack after the other.
fn alternating(brokers: &Brokers) -> Vec<i32> {
    let mut racks = BTreeMap::<&Option<String>, Vec<i32>>::new();
    for (broker, rack) in brokers {
        racks.entry(rack).or_default().push(*broker);
    }
    let most = racks.values().map(Vec::len).max().unwrap_or(0);
    (0..most).flat_map(|round| racks.values().filter_map(move |rack| rack.get(round).copied())).collect()
}

fn below(rng: &mut dyn Rng, bound: usize) -> usize {
    let bound = u64::try_from(bound.max(1)).unwrap_or(u64::MAX);
    usize::try_from(rng.next_u64() % bound).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives zeros.
    struct Zeros;

    impl Rng for Zeros {
        fn next_u64(&mut self) -> u64 {
            0
        }
    }

    fn brokers(racks: &[(i32, &str)]) -> Brokers {
        racks.iter().map(|(id, rack)| (*id, (!rack.is_empty()).then(|| (*rack).to_owned()))).collect()
    }

    #[test]
    fn leaders_go_round_and_followers_come_behind_them() {
        let three = brokers(&[(1, ""), (2, ""), (3, "")]);
        let placed = place(&three, 4, 2, &mut Zeros).unwrap();
        assert_eq!(placed, [vec![1, 2], vec![2, 3], vec![3, 1], vec![1, 3]]);
        let message = place(&three, 1, 4, &mut Zeros).unwrap_err().message;
        assert!(message.starts_with("The target replication factor of 4 cannot be reached because only 3 broker(s)"));
    }

    #[test]
    fn replicas_are_in_different_racks_as_long_as_there_are_any() {
        let four = brokers(&[(1, "a"), (2, "a"), (3, "b"), (4, "b")]);
        assert_eq!(alternating(&four), [1, 3, 2, 4]);
        for replicas in place(&four, 8, 2, &mut Zeros).unwrap() {
            assert_ne!(four[&replicas[0]], four[&replicas[1]], "{replicas:?}");
        }
        assert_eq!(place(&four, 1, 4, &mut Zeros).unwrap()[0].len(), 4);
    }

    #[test]
    fn a_broker_or_topic_is_named_once() {
        assert_eq!(broker_list("1,2,1").unwrap_err().message, "Broker list contains duplicate entries: [1]");
        assert_eq!(broker_list("1,x").unwrap_err().message, "For input string: \"x\"");
        assert_eq!(topics("x").unwrap_err().message, "The input string is not a valid JSON");
        let twice = r#"{"topics":[{"topic":"t"},{"topic":"t"}]}"#;
        assert_eq!(topics(twice).unwrap_err().message, "List of topics to reassign contains duplicate entries: [t]");
    }
}
