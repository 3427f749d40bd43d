//! Questions about where to read: what a group has committed, which offset a time has, how far a new leader agrees with what
//! was read. One request for each broker that is asked; whoever asked tries again.

use std::collections::BTreeMap;
use std::sync::Arc;

use milena_protocol::ErrorCode;
use milena_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use milena_protocol::messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use milena_protocol::messages::{ListOffsetsRequest, OffsetForLeaderEpochRequest};

use super::commit;
use super::config::ConsumerConfig;
use super::link::Waiting;
use super::partitions::{Position, Reset, Slot, State};
use crate::call::Target;
use crate::client::Client;
use crate::error::{Error, check};
use crate::producer::GroupMetadata;
use crate::topic_partition::TopicPartition;

/// First version of OffsetForLeaderEpoch in which consumers need no rights of a broker.
const FOR_CONSUMERS: i16 = 3;
/// How ListOffsets asks for the first offset, and for the last.
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;

/// What is asked about a partition.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) slot: Slot,
    pub(super) reading: u32,
    pub(super) name: TopicPartition,
    /// The state that the answer ends.
    pub(super) ask: State,
    pub(super) position: Position,
    /// The leader and its epoch, where it is asked.
    pub(super) leader: Option<(i32, i32)>,
}

/// What was answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) slot: Slot,
    pub(super) reading: u32,
    pub(super) found: Result<Found, Error>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The group's offset, if there is one.
    Committed(Option<Position>),
    /// The offset that was asked for, if there is one.
    Offset(Option<Position>),
    /// The leader of this epoch has records of the epoch asked for, or of an earlier one, up to an offset.
    EpochEnd { leader_epoch: i32, end: Option<(i32, i64)> },
}

/// Begins to ask.
pub(super) fn begin(
    client: &Client,
    config: &Arc<ConsumerConfig>,
    name: &GroupMetadata,
    questions: Vec<Question>,
) -> Vec<Waiting<Vec<Answer>>> {
    let (mut group, mut offsets, mut epochs) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    for question in questions {
        match (question.ask, question.leader) {
            (State::Validate, Some((leader, _))) => epochs.entry(leader).or_insert_with(Vec::new).push(question),
            (State::Reset(_), Some((leader, _))) => offsets.entry(leader).or_insert_with(Vec::new).push(question),
            _ => group.push(question),
        }
    }
    let mut begun: Vec<Waiting<Vec<Answer>>> = Vec::new();
    if !group.is_empty() {
        let (client, name) = (client.clone(), name.clone());
        begun.push(Box::pin(async move {
            let found = committed(&client, &name, &group).await;
            answers(group, found)
        }));
    }
    for (leader, asked) in offsets {
        let (client, isolation) = (client.clone(), config.isolation.code());
        begun.push(Box::pin(async move {
            let found = list_offsets(&client, leader, isolation, &asked).await;
            answers(asked, found)
        }));
    }
    for (leader, asked) in epochs {
        let client = client.clone();
        begun.push(Box::pin(async move {
            let found = epoch_ends(&client, leader, &asked).await;
            answers(asked, found)
        }));
    }
    begun
}

type FoundOf = BTreeMap<TopicPartition, Result<Found, Error>>;

fn answers(questions: Vec<Question>, found: Result<FoundOf, Error>) -> Vec<Answer> {
    let answer = |question: Question| {
        let found = match &found {
            // What a server leaves out it does not know.
            Ok(found) => {
                found.get(&question.name).cloned().unwrap_or(Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.into()))
            }
            Err(error) => Err(error.clone()),
        };
        Answer { slot: question.slot, reading: question.reading, found }
    };
    questions.into_iter().map(answer).collect()
}

async fn committed(client: &Client, group: &GroupMetadata, questions: &[Question]) -> Result<FoundOf, Error> {
    let names: Vec<TopicPartition> = questions.iter().map(|question| question.name.clone()).collect();
    let fetched = commit::fetch(client, group, &names).await?;
    let found = |(name, offset): (TopicPartition, Result<Option<crate::admin::CommittedOffset>, Error>)| {
        let position = |offset: crate::admin::CommittedOffset| Position {
            offset: offset.offset,
            leader_epoch: offset.leader_epoch,
        };
        (name, offset.map(|offset| Found::Committed(offset.map(position))))
    };
    Ok(fetched.into_iter().map(found).collect())
}

/// Questions by topic, as requests name them.
fn by_topic(questions: &[Question]) -> BTreeMap<&str, Vec<&Question>> {
    let mut topics = BTreeMap::<&str, Vec<&Question>>::new();
    for question in questions {
        topics.entry(&question.name.topic).or_default().push(question);
    }
    topics
}

async fn list_offsets(
    client: &Client,
    leader: i32,
    isolation_level: i8,
    questions: &[Question],
) -> Result<FoundOf, Error> {
    let partition = |question: &&Question| ListOffsetsPartition {
        partition_index: question.name.partition,
        current_leader_epoch: question.leader.map_or(-1, |(_, epoch)| epoch),
        timestamp: match question.ask {
            State::Reset(Reset::Earliest) => EARLIEST,
            State::Reset(Reset::Time(time)) => time,
            _ => LATEST,
        },
    };
    let topic = |(name, questions): (&str, Vec<&Question>)| ListOffsetsTopic {
        name: name.to_owned().into(),
        partitions: questions.iter().map(partition).collect(),
    };
    let request = ListOffsetsRequest {
        replica_id: -1,
        isolation_level,
        topics: by_topic(questions).into_iter().map(topic).collect(),
        timeout_ms: i32::try_from(client.config().request_timeout.as_millis()).unwrap_or(i32::MAX),
    };
    let ask = client.call(Target::Broker(leader), &request).versions(1..).once().read(|response| {
        let topics = response.topics.iter();
        let all = topics.flat_map(|topic| topic.partitions.iter().map(|partition| (&topic.name, partition)));
        let found = all.map(|(topic, partition)| {
            // Without an epoch: there is nothing that a later leader could have lost.
            let position = Position { offset: partition.offset, leader_epoch: None };
            let position = (partition.offset >= 0).then_some(position);
            let found = check(partition.error_code, None).map(|()| Found::Offset(position));
            (TopicPartition::new(topic.as_ref(), partition.partition_index), found)
        });
        Ok(found.collect())
    });
    ask.await
}

async fn epoch_ends(client: &Client, leader: i32, questions: &[Question]) -> Result<FoundOf, Error> {
    let partition = |question: &&Question| OffsetForLeaderPartition {
        partition: question.name.partition,
        current_leader_epoch: question.leader.map_or(-1, |(_, epoch)| epoch),
        leader_epoch: question.position.leader_epoch.unwrap_or(-1),
    };
    let topic = |(name, questions): (&str, Vec<&Question>)| OffsetForLeaderTopic {
        topic: name.to_owned().into(),
        partitions: questions.iter().map(partition).collect(),
    };
    let topics = by_topic(questions).into_iter().map(topic).collect();
    let request = OffsetForLeaderEpochRequest { replica_id: -1, topics };
    let epochs: BTreeMap<&TopicPartition, i32> =
        questions.iter().filter_map(|question| Some((&question.name, question.leader?.1))).collect();
    let ask = client.call(Target::Broker(leader), &request).versions(FOR_CONSUMERS..).once().read(|response| {
        let topics = response.topics.iter();
        let all = topics.flat_map(|topic| topic.partitions.iter().map(|partition| (&topic.topic, partition)));
        let found = all.map(|(topic, partition)| {
            let name = TopicPartition::new(topic.as_ref(), partition.partition);
            let leader_epoch = epochs.get(&name).copied().unwrap_or(-1);
            let known = partition.end_offset >= 0 && partition.leader_epoch >= 0;
            let end = known.then_some((partition.leader_epoch, partition.end_offset));
            let found = check(partition.error_code, None).map(|()| Found::EpochEnd { leader_epoch, end });
            (name, found)
        });
        Ok(found.collect())
    });
    ask.await
}
