//! Topics: which there are, what they look like, and their creation, growth and end.

use std::borrow::Cow;
use std::collections::BTreeMap;

use milena_protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic,
};
use milena_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use milena_protocol::messages::delete_topics_request::{DeleteTopicState, DeleteTopicsRequest};
use milena_protocol::messages::describe_topic_partitions_request::{
    Cursor, DescribeTopicPartitionsRequest, TopicRequest,
};
use milena_protocol::messages::describe_topic_partitions_response::DescribeTopicPartitionsResponsePartition;
use milena_protocol::messages::metadata_response::MetadataResponsePartition;
use milena_protocol::messages::{MetadataRequest, metadata_request};
use milena_protocol::{ErrorCode, Uuid};

use super::{Admin, Outcomes};
use crate::call::Target;
use crate::error::{Error, check};

/// How long the controller may take to carry a change out, milliseconds.
pub(super) const CONTROLLER_TIMEOUT: i32 = 30_000;
/// How many partitions one answer about topics may describe.
const PARTITIONS_AT_ONCE: i32 = 2000;

/// A topic to be created.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// How many partitions; the cluster's default when not given.
    pub partitions: Option<i32>,
    /// How many replicas of each; the cluster's default when not given.
    pub replication_factor: Option<i16>,
    /// The brokers of each partition's replicas, the preferred leader first; empty to let the controller choose.
    pub assignments: Vec<Vec<i32>>,
    /// Configurations of its own, by name.
    pub configs: Vec<(String, String)>,
}

impl NewTopic {
    /// A topic with the cluster's defaults.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// A topic that was created, or could have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedTopic {
    /// Its id.
    pub id: Uuid,
    /// How many partitions.
    pub partitions: i32,
    /// How many replicas of each.
    pub replication_factor: i16,
}

/// What a topic shall grow to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPartitions {
    /// How many partitions in all.
    pub count: i32,
    /// The brokers of the new ones' replicas; `None` to let the controller choose.
    pub assignments: Option<Vec<Vec<i32>>>,
}

/// A topic in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicListing {
    /// Its name.
    pub name: String,
    /// Its id; zero from servers that have none.
    pub id: Uuid,
    /// Whether it is one of the cluster's own.
    pub internal: bool,
    /// How many partitions it has.
    pub partitions: usize,
    /// How many replicas its first partition has.
    pub replication_factor: usize,
}

/// A topic and its partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicDescription {
    /// Its name.
    pub name: String,
    /// Its id; zero from servers that have none.
    pub id: Uuid,
    /// Whether it is one of the cluster's own.
    pub internal: bool,
    /// In order of their numbers.
    pub partitions: Vec<PartitionDescription>,
}

/// A partition and its replicas, which are brokers' ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionDescription {
    /// Its number.
    pub partition: i32,
    /// Who leads it; `None` while nobody does.
    pub leader: Option<i32>,
    /// How often leadership has changed; -1 from servers that do not say.
    pub leader_epoch: i32,
    /// All replicas, the preferred leader first.
    pub replicas: Vec<i32>,
    /// Those in sync.
    pub in_sync: Vec<i32>,
    /// Those that are down, or whose log directory is.
    pub offline: Vec<i32>,
    /// Those that may lead although they are not in sync; `None` from servers that do not say.
    pub eligible_leaders: Option<Vec<i32>>,
    /// Those that were eligible last; `None` from servers that do not say.
    pub last_known_eligible: Option<Vec<i32>>,
}

impl Admin {
    /// All topics, the cluster's own too, in the server's order.
    ///
    /// # Errors
    /// When no broker answers.
    pub async fn list_topics(&self) -> Result<Vec<TopicListing>, Error> {
        let request = MetadataRequest { topics: None, allow_auto_topic_creation: true, ..Default::default() };
        let read = self.client.call(Target::Any, &request).read(|response| {
            check(response.error_code, None)?;
            let listing =
                |topic: &milena_protocol::messages::metadata_response::MetadataResponseTopic<'_>| TopicListing {
                    name: topic.name.as_deref().unwrap_or_default().to_owned(),
                    id: topic.topic_id,
                    internal: topic.is_internal,
                    partitions: topic.partitions.len(),
                    replication_factor: topic.partitions.first().map_or(0, |first| first.replica_nodes.len()),
                };
            Ok(response.topics.iter().map(listing).collect())
        });
        read.await
    }

    /// Describes topics, in the order of the names.
    ///
    /// # Errors
    /// When no broker answers; a topic that does not exist is an error of its own.
    pub async fn describe_topics(&self, names: &[String]) -> Result<Outcomes<String, TopicDescription>, Error> {
        let found = match self.describe_in_parts(names).await {
            Err(Error::UnsupportedVersion { .. }) => self.describe_by_metadata(names).await?,
            other => other?,
        };
        let mut found: BTreeMap<String, Result<TopicDescription, Error>> = found.into_iter().collect();
        let missing = || Err(Error::from(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
        Ok(names.iter().map(|name| (name.clone(), found.remove(name).unwrap_or_else(missing))).collect())
    }

    /// By the request that knows eligible leaders, so many partitions at a time.
    async fn describe_in_parts(&self, names: &[String]) -> Result<Outcomes<String, TopicDescription>, Error> {
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort();
        let mut found: Outcomes<String, TopicDescription> = Vec::new();
        let mut cursor: Option<(String, i32)> = None;
        loop {
            let rest = sorted.iter().filter(|name| cursor.as_ref().is_none_or(|(topic, _)| **name >= topic));
            let request = DescribeTopicPartitionsRequest {
                topics: rest.map(|name| TopicRequest { name: name.as_str().into() }).collect(),
                response_partition_limit: PARTITIONS_AT_ONCE,
                cursor: cursor.as_ref().map(|(topic, partition)| Cursor {
                    topic_name: topic.as_str().into(),
                    partition_index: *partition,
                }),
            };
            let read = self.client.call(Target::Any, &request).read(|response| {
                let topics = response.topics.iter().map(|topic| {
                    let name = topic.name.as_deref().unwrap_or_default().to_owned();
                    let described = check(topic.error_code, None).map(|()| TopicDescription {
                        name: name.clone(),
                        id: topic.topic_id,
                        internal: topic.is_internal,
                        partitions: topic.partitions.iter().map(of_parts).collect(),
                    });
                    (name, described)
                });
                let next = response.next_cursor.as_ref();
                let next = next.map(|cursor| (cursor.topic_name.to_string(), cursor.partition_index));
                Ok((topics.collect::<Vec<_>>(), next))
            });
            let (topics, next) = read.await?;
            for (name, topic) in topics {
                match (found.last_mut(), topic) {
                    // The rest of a topic whose beginning came before.
                    (Some((last, Ok(begun))), Ok(topic)) if *last == name => begun.partitions.extend(topic.partitions),
                    (_, topic) => found.push((name, topic)),
                }
            }
            match next {
                Some(next) if cursor.as_ref() != Some(&next) => cursor = Some(next),
                _ => return Ok(found),
            }
        }
    }

    async fn describe_by_metadata(&self, names: &[String]) -> Result<Outcomes<String, TopicDescription>, Error> {
        let topic = |name: &String| metadata_request::MetadataRequestTopic {
            name: Some(Cow::Owned(name.clone())),
            ..Default::default()
        };
        let request = MetadataRequest {
            topics: Some(names.iter().map(topic).collect()),
            allow_auto_topic_creation: false,
            ..Default::default()
        };
        let read = self.client.call(Target::Any, &request).read(|response| {
            check(response.error_code, None)?;
            let topics = response.topics.iter().map(|topic| {
                let name = topic.name.as_deref().unwrap_or_default().to_owned();
                let described = check(topic.error_code, None).map(|()| TopicDescription {
                    name: name.clone(),
                    id: topic.topic_id,
                    internal: topic.is_internal,
                    partitions: {
                        let mut partitions: Vec<_> = topic.partitions.iter().map(of_metadata).collect();
                        partitions.sort_by_key(|partition| partition.partition);
                        partitions
                    },
                });
                (name, described)
            });
            Ok(topics.collect())
        });
        read.await
    }

    /// Creates topics, or only says whether they could be created.
    ///
    /// # Errors
    /// When the controller does not answer.
    pub async fn create_topics(
        &self,
        topics: Vec<NewTopic>,
        validate_only: bool,
    ) -> Result<Outcomes<String, CreatedTopic>, Error> {
        let request = CreateTopicsRequest {
            topics: topics.into_iter().map(creatable).collect(),
            timeout_ms: CONTROLLER_TIMEOUT,
            validate_only,
        };
        let read = self.client.call(Target::Controller, &request).read(|response| {
            again_elsewhere(response.topics.iter().map(|topic| topic.error_code))?;
            let outcome = |topic: &milena_protocol::messages::create_topics_response::CreatableTopicResult<'_>| {
                let created = CreatedTopic {
                    id: topic.topic_id,
                    partitions: topic.num_partitions,
                    replication_factor: topic.replication_factor,
                };
                let refused = check(topic.error_code, topic.error_message.as_deref());
                (topic.name.to_string(), refused.map(|()| created))
            };
            Ok(response.topics.iter().map(outcome).collect())
        });
        read.await
    }

    /// Deletes topics with all their records.
    ///
    /// # Errors
    /// When the controller does not answer.
    pub async fn delete_topics(&self, names: &[String]) -> Result<Outcomes<String, ()>, Error> {
        let state = |name: &String| DeleteTopicState { name: Some(Cow::Owned(name.clone())), topic_id: Uuid::ZERO };
        let request = DeleteTopicsRequest {
            topics: names.iter().map(state).collect(),
            topic_names: names.iter().map(|name| Cow::Owned(name.clone())).collect(),
            timeout_ms: CONTROLLER_TIMEOUT,
        };
        let read = self.client.call(Target::Controller, &request).read(|response| {
            again_elsewhere(response.responses.iter().map(|topic| topic.error_code))?;
            let outcome = |topic: &milena_protocol::messages::delete_topics_response::DeletableTopicResult<'_>| {
                let name = topic.name.as_deref().unwrap_or_default().to_owned();
                (name, check(topic.error_code, topic.error_message.as_deref()))
            };
            Ok(response.responses.iter().map(outcome).collect())
        });
        read.await
    }

    /// Lets topics grow, or only says whether they could.
    ///
    /// # Errors
    /// When the controller does not answer.
    pub async fn create_partitions(
        &self,
        topics: Vec<(String, NewPartitions)>,
        validate_only: bool,
    ) -> Result<Outcomes<String, ()>, Error> {
        let assignment = |brokers: Vec<i32>| CreatePartitionsAssignment { broker_ids: brokers.into() };
        let topic = |(name, new): (String, NewPartitions)| CreatePartitionsTopic {
            name: name.into(),
            count: new.count,
            assignments: new.assignments.map(|all| all.into_iter().map(assignment).collect()),
        };
        let request = CreatePartitionsRequest {
            topics: topics.into_iter().map(topic).collect(),
            timeout_ms: CONTROLLER_TIMEOUT,
            validate_only,
        };
        let read = self.client.call(Target::Controller, &request).read(|response| {
            again_elsewhere(response.results.iter().map(|topic| topic.error_code))?;
            let outcome =
                |topic: &milena_protocol::messages::create_partitions_response::CreatePartitionsTopicResult<'_>| {
                    (topic.name.to_string(), check(topic.error_code, topic.error_message.as_deref()))
                };
            Ok(response.results.iter().map(outcome).collect())
        });
        read.await
    }
}

/// One that says to be no controller speaks for the whole answer.
pub(super) fn again_elsewhere(codes: impl IntoIterator<Item = i16>) -> Result<(), Error> {
    let elsewhere = codes.into_iter().find(|code| *code == ErrorCode::NOT_CONTROLLER.0);
    elsewhere.map_or(Ok(()), |code| check(code, None))
}

fn creatable(topic: NewTopic) -> CreatableTopic<'static> {
    let placed = !topic.assignments.is_empty();
    let assignments = (0..)
        .zip(topic.assignments)
        .map(|(partition_index, brokers)| CreatableReplicaAssignment { partition_index, broker_ids: brokers.into() });
    let config =
        |(name, value): (String, String)| CreatableTopicConfig { name: name.into(), value: Some(value.into()) };
    CreatableTopic {
        name: topic.name.into(),
        num_partitions: topic.partitions.filter(|_| !placed).unwrap_or(-1),
        replication_factor: topic.replication_factor.filter(|_| !placed).unwrap_or(-1),
        assignments: assignments.collect(),
        configs: topic.configs.into_iter().map(config).collect(),
    }
}

fn leader(id: i32) -> Option<i32> {
    (id >= 0).then_some(id)
}

fn of_parts(partition: &DescribeTopicPartitionsResponsePartition<'_>) -> PartitionDescription {
    PartitionDescription {
        partition: partition.partition_index,
        leader: leader(partition.leader_id),
        leader_epoch: partition.leader_epoch,
        replicas: partition.replica_nodes.to_vec(),
        in_sync: partition.isr_nodes.to_vec(),
        offline: partition.offline_replicas.to_vec(),
        eligible_leaders: partition.eligible_leader_replicas.as_deref().map(<[i32]>::to_vec),
        last_known_eligible: partition.last_known_elr.as_deref().map(<[i32]>::to_vec),
    }
}

fn of_metadata(partition: &MetadataResponsePartition<'_>) -> PartitionDescription {
    PartitionDescription {
        partition: partition.partition_index,
        leader: leader(partition.leader_id),
        leader_epoch: partition.leader_epoch,
        replicas: partition.replica_nodes.to_vec(),
        in_sync: partition.isr_nodes.to_vec(),
        offline: partition.offline_replicas.to_vec(),
        eligible_leaders: None,
        last_known_eligible: None,
    }
}
