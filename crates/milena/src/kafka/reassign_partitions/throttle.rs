//! Limits of how fast replicas move: set on topics and brokers before a move, taken away after it.

use std::collections::{BTreeMap, BTreeSet};

use milena_client::Admin;
use milena_client::admin::{ConfigChange, ConfigResource, Reassignment, ResourceType, TopicPartition};

use super::plan::{Moves, Plan};
use super::{Assignment, Ended, commas};
use crate::output::print;

const LEADER_RATE: &str = "leader.replication.throttled.rate";
const FOLLOWER_RATE: &str = "follower.replication.throttled.rate";
const DIRS_RATE: &str = "replica.alter.log.dirs.io.max.bytes.per.second";
const LEADER_REPLICAS: &str = "leader.replication.throttled.replicas";
const FOLLOWER_REPLICAS: &str = "follower.replication.throttled.replicas";

const WARNING: &str = "Warning: You must run --verify periodically, until the reassignment completes, to ensure the \
    throttle is removed.\n";

/// Limits in bytes a second; `None` where there is to be none.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Between brokers.
    pub between_brokers: Option<i64>,
    /// Between log directories of a broker.
    pub between_dirs: Option<i64>,
}

/// The brokers that a partition comes from, and those that it goes to.
#[derive(Debug, Default)]
struct Move {
    from: BTreeSet<i32>,
    to: BTreeSet<i32>,
}

/// Sets the limits.
pub async fn set(
    admin: &Admin,
    limits: Limits,
    going_on: &[Reassignment],
    wanted: &Assignment,
    now: &Assignment,
    dirs: &Moves,
) -> Result<(), Ended> {
    if limits.between_brokers.is_none() && limits.between_dirs.is_none() {
        return Ok(());
    }
    print(WARNING);
    if let Some(limit) = limits.between_brokers {
        let moves = moves(going_on, wanted, now);
        let topics = throttled(&moves).into_iter().map(|(topic, [leaders, followers])| {
            let set = |name: &str, value: String| ConfigChange::Set(name.to_owned(), value);
            (ConfigResource::topic(topic), vec![set(LEADER_REPLICAS, leaders), set(FOLLOWER_REPLICAS, followers)])
        });
        alter(admin, topics.collect()).await?;
        let brokers: BTreeSet<i32> = moves.values().flat_map(|it| it.from.union(&it.to)).copied().collect();
        let rates = [LEADER_RATE, FOLLOWER_RATE].map(|name| ConfigChange::Set(name.to_owned(), limit.to_string()));
        alter(admin, brokers.into_iter().map(|id| (broker(id), rates.to_vec())).collect()).await?;
        print(&format!("The inter-broker throttle limit was set to {limit} B/s\n"));
    }
    if let Some(limit) = limits.between_dirs {
        let brokers: BTreeSet<i32> = dirs.keys().map(|(broker, _)| *broker).collect();
        let rate = ConfigChange::Set(DIRS_RATE.to_owned(), limit.to_string());
        alter(admin, brokers.into_iter().map(|id| (broker(id), vec![rate.clone()])).collect()).await?;
        print(&format!("The replica-alter-dir throttle limit was set to {limit} B/s\n"));
    }
    Ok(())
}

/// Takes the limits of all brokers that may be concerned, and of the plan's topics, away.
pub async fn clear(admin: &Admin, plan: &Plan) -> Result<(), Ended> {
    let mut brokers: BTreeSet<i32> = admin.describe_cluster().await?.brokers.iter().map(|broker| broker.id).collect();
    brokers.extend(plan.partitions.iter().flat_map(|(_, replicas)| replicas));
    let s = if brokers.len() == 1 { "" } else { "s" };
    print(&format!("Clearing broker-level throttles on broker{s} {}\n", commas(&brokers)));
    let delete = |names: &[&str]| names.iter().map(|name| ConfigChange::Delete((*name).to_owned())).collect::<Vec<_>>();
    let rates = delete(&[LEADER_RATE, FOLLOWER_RATE, DIRS_RATE]);
    alter(admin, brokers.into_iter().map(|id| (broker(id), rates.clone())).collect()).await?;
    let topics = plan.topics();
    let s = if topics.len() == 1 { "" } else { "s" };
    print(&format!("Clearing topic-level throttles on topic{s} {}\n", commas(&topics)));
    let replicas = delete(&[LEADER_REPLICAS, FOLLOWER_REPLICAS]);
    alter(admin, topics.into_iter().map(|topic| (ConfigResource::topic(topic), replicas.clone())).collect()).await
}

fn broker(id: i32) -> ConfigResource {
    ConfigResource { kind: ResourceType::Broker, name: id.to_string() }
}

async fn alter(admin: &Admin, changes: Vec<(ConfigResource, Vec<ConfigChange>)>) -> Result<(), Ended> {
    for (_, outcome) in admin.alter_configs(changes, false).await? {
        outcome?;
    }
    Ok(())
}

/// All moves, those that go on already too.
fn moves(going_on: &[Reassignment], wanted: &Assignment, now: &Assignment) -> BTreeMap<TopicPartition, Move> {
    let mut moves = BTreeMap::<TopicPartition, Move>::new();
    for moving in going_on {
        let to: BTreeSet<i32> = moving.adding.iter().copied().collect();
        let from = moving.replicas.iter().filter(|broker| !to.contains(broker)).copied().collect();
        moves.insert(TopicPartition::new(moving.topic.as_str(), moving.partition), Move { from, to });
    }
    for (partition, replicas) in wanted {
        let moving = moves.entry(partition.clone()).or_insert_with(|| Move {
            from: now.get(partition).into_iter().flatten().copied().collect(),
            to: BTreeSet::new(),
        });
        moving.to = replicas.iter().filter(|broker| !moving.from.contains(broker)).copied().collect();
    }
    moves
}

/// By topic what leaders and what followers are limited, as `partition:broker`.
fn throttled(moves: &BTreeMap<TopicPartition, Move>) -> BTreeMap<&str, [String; 2]> {
    let mut topics = BTreeMap::<&str, [BTreeSet<String>; 2]>::new();
    for (partition, Move { from, to }) in moves {
        let [leaders, followers] = topics.entry(&partition.topic).or_default();
        let name = |broker: &i32| format!("{}:{broker}", partition.partition);
        leaders.extend(from.iter().map(name));
        followers.extend(to.iter().map(name));
    }
    topics.into_iter().map(|(topic, sets)| (topic, sets.map(|set| commas(&set)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaders_are_where_partitions_come_from_and_followers_where_they_go_to() {
        let (a, b) = (TopicPartition::new("t", 0), TopicPartition::new("t", 1));
        let now = Assignment::from([(a.clone(), vec![1, 2]), (b.clone(), vec![1])]);
        let wanted = Assignment::from([(a, vec![2, 3]), (b, vec![1, 4])]);
        let going_on =
            [Reassignment { topic: "t".into(), partition: 1, replicas: vec![5, 6], adding: vec![6], removing: vec![] }];
        let moves = moves(&going_on, &wanted, &now);
        let expected = ["0:1,0:2,1:5".to_owned(), "0:3,1:1,1:4".to_owned()];
        assert_eq!(throttled(&moves), BTreeMap::from([("t", expected)]));
    }
}
