//! Moves of replicas between log directories of their brokers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use milena_client::Admin;
use milena_client::admin::{LogDir, ReplicaMove, TopicPartition};
use milena_protocol::ErrorCode;
use tokio::time::{Instant, sleep};

use super::plan::Moves;
use super::{Assignment, Ended, Thrown, commas, java, plural, terse};
use crate::output::print;

/// How long to wait before a move that could not begin is asked for again.
const PAUSE: Duration = Duration::from_millis(100);

/// Where a replica is, and where it is on its way to.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Place {
    current: Option<String>,
    future: Option<String>,
}

type Replica = (i32, TopicPartition);

/// `topic-partition-broker`.
fn name((broker, partition): &Replica) -> String {
    format!("{partition}-{broker}")
}

/// Has replicas move. One that its broker does not have yet is waited for.
pub async fn start(admin: &Admin, wanted: Moves, patience: Duration) -> Result<(), Ended> {
    let until = Instant::now() + patience;
    let mut open = wanted;
    while !open.is_empty() {
        let moves = open.iter().map(|((broker, partition), to)| ReplicaMove {
            partition: partition.clone(),
            broker: *broker,
            to: to.clone(),
        });
        let brokers: BTreeSet<i32> = open.keys().map(|(broker, _)| *broker).collect();
        let mut waiting = Moves::new();
        for broker in brokers {
            let moves: Vec<ReplicaMove> = moves.clone().filter(|wanted| wanted.broker == broker).collect();
            for (partition, outcome) in admin.alter_replica_log_dirs(moves).await? {
                let replica = (broker, partition);
                let Some(to) = open.get(&replica) else { continue };
                match outcome {
                    Ok(()) => print(&format!(
                        "Successfully started moving log directory to {to} for replica {} with broker {broker} \n",
                        replica.1
                    )),
                    Err(error) if error.code() == Some(ErrorCode::REPLICA_NOT_AVAILABLE) => {
                        waiting.insert(replica, to.clone());
                    }
                    Err(_) => {
                        let message = format!("Failed to alter dir for {}", name(&replica));
                        return Err(Thrown::new(java::TOOL_COMMAND_FAILED, message).into());
                    }
                }
            }
        }
        if !waiting.is_empty() && Instant::now() >= until {
            let names: Vec<String> = waiting.keys().map(name).collect();
            return Err(terse(format!(
                "Timed out before log directory move{} could be started for: {}",
                plural(&names),
                commas(&names)
            )));
        }
        if !waiting.is_empty() {
            sleep(PAUSE).await;
        }
        open = waiting;
    }
    Ok(())
}

/// Tells how far moves are; whether none goes on.
pub async fn verify(admin: &Admin, wanted: &Moves) -> Result<bool, Ended> {
    let places = places(admin, wanted).await?;
    let lines: Vec<String> =
        wanted.iter().zip(&places).map(|((replica, to), place)| status(replica, to, place)).collect();
    print(&format!("{}\n", lines.join("\n")));
    Ok(places.iter().all(|place| place.future.is_none()))
}

/// Has replicas stay where they are.
pub async fn cancel(admin: &Admin, wanted: &Moves, patience: Duration) -> Result<(), Ended> {
    let places = places(admin, wanted).await?;
    let active = wanted.keys().zip(places).filter(|(_, place)| place.future.is_some());
    let back: Moves = active.filter_map(|(replica, place)| Some((replica.clone(), place.current?))).collect();
    if back.is_empty() {
        // No line feed, as in Kafka.
        print("None of the specified partition moves are active.");
        return Ok(());
    }
    start(admin, back, patience).await
}

/// The log directories of the replicas of partitions, as far as they are known.
pub async fn of(admin: &Admin, assignment: &Assignment) -> Result<Moves, Ended> {
    let all = assignment
        .iter()
        .flat_map(|(partition, replicas)| replicas.iter().map(|broker| ((*broker, partition.clone()), String::new())));
    let all: Moves = all.collect();
    let places = places(admin, &all).await?;
    Ok(all.into_keys().zip(places).filter_map(|(replica, place)| Some((replica, place.current?))).collect())
}

/// Where the replicas are, in their order.
async fn places(admin: &Admin, wanted: &Moves) -> Result<Vec<Place>, Ended> {
    let brokers: BTreeSet<i32> = wanted.keys().map(|(broker, _)| *broker).collect();
    let mut described = BTreeMap::new();
    for (broker, dirs) in admin.describe_log_dirs(&Vec::from_iter(brokers)).await? {
        described.insert(broker, dirs?);
    }
    let place = |(broker, partition): &Replica| {
        let dirs = described.get(broker).map(Vec::as_slice).unwrap_or_default();
        let find = |future: bool| {
            let has = |dir: &&LogDir| dir.replicas.iter().any(|(it, info)| it == partition && info.is_future == future);
            dirs.iter().find(has).map(|dir| dir.path.clone())
        };
        Place { current: find(false), future: find(true) }
    };
    Ok(wanted.keys().map(place).collect())
}

fn status(replica: &Replica, to: &str, place: &Place) -> String {
    let (broker, partition) = replica;
    match place {
        Place { current: None, .. } => format!(
            "Partition {partition} is not found in any live log dir on broker {broker}. There is likely an offline log \
             directory on the broker."
        ),
        Place { future: Some(future), .. } if future == to => {
            format!("Reassignment of replica {} is still in progress.", name(replica))
        }
        Place { future: Some(future), .. } => {
            format!("Partition {partition} on broker {broker} is being moved to log dir {future} instead of {to}.")
        }
        Place { current: Some(current), .. } if current == to => {
            format!("Reassignment of replica {} completed successfully.", name(replica))
        }
        Place { current: Some(current), .. } => {
            format!("Partition {partition} on broker {broker} is not being moved from log dir {current} to {to}.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_done_goes_on_or_was_given_up() {
        let replica = (1, TopicPartition::new("t", 0));
        let at = |current: Option<&str>, future: Option<&str>| {
            let place = Place { current: current.map(Into::into), future: future.map(Into::into) };
            status(&replica, "/b", &place)
        };
        assert_eq!(at(Some("/b"), None), "Reassignment of replica t-0-1 completed successfully.");
        assert_eq!(at(Some("/a"), Some("/b")), "Reassignment of replica t-0-1 is still in progress.");
        assert!(at(Some("/a"), Some("/c")).ends_with("is being moved to log dir /c instead of /b."));
        assert!(at(Some("/a"), None).ends_with("is not being moved from log dir /a to /b."));
        assert!(at(None, None).starts_with("Partition t-0 is not found in any live log dir on broker 1."));
    }
}
