//! Log directories of brokers: what lies in them, and the move of replicas from one to another.

use std::collections::BTreeMap;

use milena_protocol::messages::DescribeLogDirsRequest;
use milena_protocol::messages::alter_replica_log_dirs_request::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic, AlterReplicaLogDirsRequest,
};

use super::{Admin, Outcomes, TopicPartition, by_topic};
use crate::call::Target;
use crate::error::{Error, check};

/// A log directory.
#[derive(Debug, Clone, PartialEq)]
pub struct LogDir {
    /// Its path on the broker.
    pub path: String,
    /// Why it is not in use.
    pub error: Option<milena_protocol::ErrorCode>,
    /// Size of its file system, bytes, if the server says.
    pub total_bytes: Option<i64>,
    /// What is left there, bytes, if the server says.
    pub usable_bytes: Option<i64>,
    /// Whether it gets no new partitions.
    pub cordoned: bool,
    /// The replicas in it, by partition.
    pub replicas: Vec<(TopicPartition, ReplicaInfo)>,
}

/// A replica in a log directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaInfo {
    /// Of its segments, bytes.
    pub size: i64,
    /// How far it is behind the partition's high watermark, or a future one behind the current one.
    pub offset_lag: i64,
    /// Whether it will replace the one in another directory.
    pub is_future: bool,
}

/// A replica and the directory that it shall move to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaMove {
    /// The partition.
    pub partition: TopicPartition,
    /// The broker that has the replica.
    pub broker: i32,
    /// The directory's path on the broker.
    pub to: String,
}

impl Admin {
    /// The log directories of brokers.
    ///
    /// # Errors
    /// Never as a whole.
    pub async fn describe_log_dirs(&self, brokers: &[i32]) -> Result<Outcomes<i32, Vec<LogDir>>, Error> {
        let request = DescribeLogDirsRequest { topics: None };
        let mut found = Vec::new();
        for &broker in brokers {
            let read = self.client.call(Target::Broker(broker), &request).read(|response| {
                check(response.error_code, None)?;
                Ok(response.results.iter().map(log_dir).collect())
            });
            found.push((broker, read.await));
        }
        Ok(found)
    }

    /// Moves replicas to other directories of their brokers.
    ///
    /// # Errors
    /// When a broker does not answer.
    pub async fn alter_replica_log_dirs(&self, moves: Vec<ReplicaMove>) -> Result<Outcomes<TopicPartition, ()>, Error> {
        let mut brokers = BTreeMap::<i32, BTreeMap<String, Vec<TopicPartition>>>::new();
        for wanted in moves {
            brokers.entry(wanted.broker).or_default().entry(wanted.to).or_default().push(wanted.partition);
        }
        let mut done = Vec::new();
        for (broker, dirs) in brokers {
            let dir = |(path, partitions): (&String, &Vec<TopicPartition>)| {
                let topics = by_topic(partitions.iter().map(|partition| (partition, ())));
                let topic = |(name, partitions): (&str, Vec<(i32, ())>)| AlterReplicaLogDirTopic {
                    name: name.to_owned().into(),
                    partitions: partitions.into_iter().map(|(partition, ())| partition).collect::<Vec<_>>().into(),
                };
                AlterReplicaLogDir { path: path.clone().into(), topics: topics.into_iter().map(topic).collect() }
            };
            let request = AlterReplicaLogDirsRequest { dirs: dirs.iter().map(dir).collect() };
            let read = self.client.call(Target::Broker(broker), &request).read(|response| {
                let all = response.results.iter().flat_map(|topic| {
                    topic.partitions.iter().map(|moved| {
                        let partition = TopicPartition::new(topic.topic_name.as_ref(), moved.partition_index);
                        (partition, check(moved.error_code, None))
                    })
                });
                Ok(all.collect::<Vec<_>>())
            });
            done.extend(read.await?);
        }
        Ok(done)
    }
}

fn log_dir(found: &milena_protocol::messages::describe_log_dirs_response::DescribeLogDirsResult<'_>) -> LogDir {
    let replicas = found.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|replica| {
            let info = ReplicaInfo {
                size: replica.partition_size,
                offset_lag: replica.offset_lag,
                is_future: replica.is_future_key,
            };
            (TopicPartition::new(topic.name.as_ref(), replica.partition_index), info)
        })
    });
    let mut replicas: Vec<_> = replicas.collect();
    replicas.sort_by(|(one, _), (other, _)| one.cmp(other));
    LogDir {
        path: found.log_dir.to_string(),
        error: (found.error_code != 0).then_some(milena_protocol::ErrorCode(found.error_code)),
        total_bytes: (found.total_bytes >= 0).then_some(found.total_bytes),
        usable_bytes: (found.usable_bytes >= 0).then_some(found.usable_bytes),
        cordoned: found.is_cordoned,
        replicas,
    }
}
