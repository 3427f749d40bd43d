//! Which brokers have a partition, and which of them leads it.

use std::collections::BTreeMap;

use milena_protocol::messages::alter_partition_reassignments_request::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use milena_protocol::messages::elect_leaders_request::{ElectLeadersRequest, TopicPartitions};
use milena_protocol::messages::{ListPartitionReassignmentsRequest, elect_leaders_response};

use super::topics::CONTROLLER_TIMEOUT;
use super::{Admin, Outcomes, TopicPartition, by_topic};
use crate::call::Target;
use crate::error::{Error, check};

/// A partition whose replicas are being moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reassignment {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// All replicas, old and new.
    pub replicas: Vec<i32>,
    /// The new ones.
    pub adding: Vec<i32>,
    /// Those that will go.
    pub removing: Vec<i32>,
}

/// Which replica may become leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElectionType {
    /// The first one, if it is in sync.
    Preferred,
    /// Where nobody leads, one that may lack records.
    Unclean,
}

impl Admin {
    /// Has leaders elected; of all partitions that need it without a list.
    ///
    /// # Errors
    /// When the controller does not answer or refuses everything.
    pub async fn elect_leaders(
        &self,
        kind: ElectionType,
        partitions: Option<&[TopicPartition]>,
    ) -> Result<Outcomes<TopicPartition, ()>, Error> {
        let topic = |(topic, partitions): (&str, Vec<(i32, ())>)| TopicPartitions {
            topic: topic.to_owned().into(),
            partitions: partitions.into_iter().map(|(partition, ())| partition).collect::<Vec<_>>().into(),
        };
        let named = |all: &[TopicPartition]| {
            by_topic(all.iter().map(|partition| (partition, ()))).into_iter().map(topic).collect()
        };
        let request = ElectLeadersRequest {
            election_type: match kind {
                ElectionType::Preferred => 0,
                ElectionType::Unclean => 1,
            },
            topic_partitions: partitions.map(named),
            timeout_ms: CONTROLLER_TIMEOUT,
        };
        let first = if kind == ElectionType::Preferred { 0 } else { 1 };
        let read = self.client.call(Target::Controller, &request).versions(first..).read(|response| {
            check(response.error_code, None)?;
            let all = response.replica_election_results.iter().flat_map(|topic| {
                topic.partition_result.iter().map(|result: &elect_leaders_response::PartitionResult<'_>| {
                    let partition = TopicPartition::new(topic.topic.as_ref(), result.partition_id);
                    (partition, check(result.error_code, result.error_message.as_deref()))
                })
            });
            Ok(all.collect())
        });
        read.await
    }

    /// Moves partitions to the brokers that each names, the preferred leader first; `None` ends a move that goes on. The
    /// number of replicas changes only if it may.
    ///
    /// # Errors
    /// When the controller does not answer or refuses everything.
    pub async fn alter_reassignments(
        &self,
        wanted: &BTreeMap<TopicPartition, Option<Vec<i32>>>,
        allow_replication_factor_change: bool,
    ) -> Result<Outcomes<TopicPartition, ()>, Error> {
        let partition = |(partition_index, replicas): (i32, &Option<Vec<i32>>)| ReassignablePartition {
            partition_index,
            replicas: replicas.clone().map(Into::into),
        };
        let topic = |(name, partitions): (&str, Vec<(i32, _)>)| ReassignableTopic {
            name: name.to_owned().into(),
            partitions: partitions.into_iter().map(partition).collect(),
        };
        let request = AlterPartitionReassignmentsRequest {
            timeout_ms: CONTROLLER_TIMEOUT,
            allow_replication_factor_change,
            topics: by_topic(wanted).into_iter().map(topic).collect(),
        };
        let read = self.client.call(Target::Controller, &request).read(|response| {
            check(response.error_code, response.error_message.as_deref())?;
            let all = response.responses.iter().flat_map(|topic| {
                topic.partitions.iter().map(|result| {
                    let partition = TopicPartition::new(topic.name.as_ref(), result.partition_index);
                    (partition, check(result.error_code, result.error_message.as_deref()))
                })
            });
            Ok(all.collect())
        });
        read.await
    }

    /// The partitions whose replicas are being moved; none where the server cannot move any.
    ///
    /// # Errors
    /// When the controller does not answer or refuses.
    pub async fn list_reassignments(&self) -> Result<Vec<Reassignment>, Error> {
        let request = ListPartitionReassignmentsRequest { timeout_ms: CONTROLLER_TIMEOUT, topics: None };
        let read = self.client.call(Target::Controller, &request).read(|response| {
            check(response.error_code, response.error_message.as_deref())?;
            let all = response.topics.iter().flat_map(|topic| {
                topic.partitions.iter().map(|partition| Reassignment {
                    topic: topic.name.to_string(),
                    partition: partition.partition_index,
                    replicas: partition.replicas.to_vec(),
                    adding: partition.adding_replicas.to_vec(),
                    removing: partition.removing_replicas.to_vec(),
                })
            });
            Ok(all.collect())
        });
        match read.await {
            Err(Error::UnsupportedVersion { .. }) => Ok(Vec::new()),
            other => other,
        }
    }
}
