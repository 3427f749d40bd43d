//! Questions about partitions that their leaders answer: one request a leader, and again for those partitions whose
//! leader was another by then.

use std::collections::{BTreeMap, BTreeSet};

use milena_protocol::ErrorCode;
use tokio::time::{Instant, sleep};

use super::{Admin, Outcomes, TopicPartition};
use crate::call::Target;
use crate::error::Error;

/// What is asked about partitions.
pub(super) type Asked<V> = Vec<(TopicPartition, V)>;

impl Admin {
    /// Has `ask` ask the leaders until each partition has an answer that stands, or time is up. A partition that does not
    /// exist is not waited for.
    pub(super) async fn of_leaders<V, T, F>(
        &self,
        asked: Asked<V>,
        ask: impl Fn(i32, Asked<V>) -> F,
    ) -> Outcomes<TopicPartition, T>
    where
        V: Clone,
        F: Future<Output = Result<Outcomes<TopicPartition, T>, Error>>,
    {
        let until = Instant::now() + self.client.config().api_timeout;
        let mut done: Outcomes<TopicPartition, T> = Vec::new();
        let mut open = asked;
        for failures in 1.. {
            let mut failed = BTreeMap::new();
            let (by_leader, leaderless) = self.by_leader(open).await;
            for (partition, error, value) in leaderless {
                failed.insert(partition, (error, value));
            }
            for (leader, asked) in by_leader {
                let outcomes = ask(leader, asked.clone()).await;
                let mut values: BTreeMap<TopicPartition, V> = asked.into_iter().collect();
                match outcomes {
                    Ok(outcomes) => {
                        for (partition, outcome) in outcomes {
                            match (outcome, values.remove(&partition)) {
                                (Err(error), Some(value)) => drop(failed.insert(partition, (error, value))),
                                (outcome, _) => done.push((partition, outcome)),
                            }
                        }
                        // What a server leaves out it does not know.
                        let unknown = || Error::from(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
                        failed.extend(values.into_iter().map(|(partition, value)| (partition, (unknown(), value))));
                    }
                    Err(error) => {
                        failed.extend(values.into_iter().map(|(partition, value)| (partition, (error.clone(), value))));
                    }
                }
            }
            let wait = self.client.config().retry_backoff.after(failures);
            let is_late = Instant::now() + wait >= until;
            open = Vec::new();
            for (partition, (error, value)) in failed {
                if is_late || !is_worth_another_try(&error) {
                    done.push((partition, Err(error)));
                } else {
                    self.client.note_error(Target::Leader(&partition.topic, partition.partition), &error);
                    open.push((partition, value));
                }
            }
            if open.is_empty() {
                break;
            }
            sleep(wait).await;
        }
        done.sort_by(|(one, _), (other, _)| one.cmp(other));
        done
    }

    /// The partitions by leader, and those without.
    async fn by_leader<V>(&self, asked: Asked<V>) -> (BTreeMap<i32, Asked<V>>, Vec<(TopicPartition, Error, V)>) {
        let known = self.client.known();
        let topics: BTreeSet<&str> = asked.iter().map(|(partition, _)| &*partition.topic).collect();
        if topics.len() > 1 && topics.iter().any(|topic| known.topic(topic).is_none()) {
            // One question for all; what goes wrong is told by those that follow.
            let _ = self.client.all_topics().await;
        }
        let (mut by_leader, mut without) = (BTreeMap::<i32, Asked<V>>::new(), Vec::new());
        for (partition, value) in asked {
            match self.leader(&partition).await {
                Ok(leader) => by_leader.entry(leader).or_default().push((partition, value)),
                Err(error) => without.push((partition, error, value)),
            }
        }
        (by_leader, without)
    }

    /// Waits until a partition has a leader; not for one that does not exist.
    pub(super) async fn has_leader(&self, partition: &TopicPartition) -> Result<(), Error> {
        let found = self.patiently("Metadata", || async move {
            match self.leader(partition).await {
                Err(error) if is_worth_another_try(&error) => {
                    self.client.note_error(Target::Leader(&partition.topic, partition.partition), &error);
                    Err(error)
                }
                other => Ok(other),
            }
        });
        found.await?.map(drop)
    }

    async fn leader(&self, partition: &TopicPartition) -> Result<i32, Error> {
        let topic = self.client.topic(&partition.topic, false).await?;
        let known = topic.partition(partition.partition).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        Ok(known.leader.ok_or(ErrorCode::LEADER_NOT_AVAILABLE)?)
    }
}

fn is_worth_another_try(error: &Error) -> bool {
    let timed_out = matches!(error, Error::Timeout { .. });
    error.is_retriable() && !timed_out && error.code() != Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
}
