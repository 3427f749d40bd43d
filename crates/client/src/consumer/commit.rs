//! The offsets of a group: one request each to commit some, and to ask for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use milena_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use milena_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use milena_protocol::messages::{OffsetCommitRequest, OffsetFetchRequest};
use milena_protocol::{ErrorCode, Uuid};

use crate::admin::{CommittedOffset, Outcomes, by_topic};
use crate::call::Target;
use crate::client::Client;
use crate::coordinators::CoordinatorKind;
use crate::error::{Error, check};
use crate::producer::GroupMetadata;
use crate::topic_partition::TopicPartition;

/// Last version of both requests that names topics rather than giving their ids.
const WITH_NAMES: i16 = 9;
/// First version of OffsetFetch that asks for several groups.
const SEVERAL_GROUPS: i16 = 8;

/// The topics of a request by name and id; ids only where all are known.
struct Topics {
    ids: BTreeMap<Arc<str>, Uuid>,
    last_version: i16,
}

impl Topics {
    async fn of(client: &Client, partitions: impl Iterator<Item = &TopicPartition>) -> Self {
        let mut ids = BTreeMap::new();
        for partition in partitions {
            if ids.contains_key(&partition.topic) {
                continue;
            }
            let known = client.known().topic(&partition.topic).cloned();
            let topic = match known {
                Some(topic) if topic.is_expired() => client.topic(&partition.topic, false).await.ok(),
                known => known,
            };
            ids.insert(Arc::clone(&partition.topic), topic.map_or(Uuid::ZERO, |topic| topic.id));
        }
        let last_version = if ids.values().any(|id| *id == Uuid::ZERO) { WITH_NAMES } else { i16::MAX };
        Self { ids, last_version }
    }

    fn id(&self, name: &str) -> Uuid {
        self.ids.get(name).copied().unwrap_or(Uuid::ZERO)
    }

    /// The topic that a response names.
    fn name(&self, name: &str, id: Uuid) -> Arc<str> {
        let by_id = || self.ids.iter().find(|(_, known)| **known == id).map(|(name, _)| Arc::clone(name));
        if name.is_empty() { by_id().unwrap_or_default() } else { name.into() }
    }
}

/// Commits offsets, once.
pub(super) async fn commit(
    client: &Client,
    group: &GroupMetadata,
    offsets: &[(TopicPartition, CommittedOffset)],
) -> Result<(), Error> {
    if offsets.is_empty() {
        return Ok(());
    }
    let topics = Topics::of(client, offsets.iter().map(|(partition, _)| partition)).await;
    let partition = |(partition_index, offset): &(i32, &CommittedOffset)| OffsetCommitRequestPartition {
        partition_index: *partition_index,
        committed_offset: offset.offset,
        committed_leader_epoch: offset.leader_epoch.unwrap_or(-1),
        committed_metadata: Some(offset.metadata.clone().into()),
    };
    let topic = |(name, partitions): (&str, Vec<(i32, &CommittedOffset)>)| OffsetCommitRequestTopic {
        topic_id: topics.id(name),
        name: name.to_owned().into(),
        partitions: partitions.iter().map(partition).collect(),
    };
    let request = OffsetCommitRequest {
        group_id: group.group.as_str().into(),
        generation_id_or_member_epoch: group.generation,
        member_id: group.member.as_str().into(),
        group_instance_id: group.instance.as_deref().map(Into::into),
        topics: by_topic(offsets.iter().map(|(partition, offset)| (partition, offset)))
            .into_iter()
            .map(topic)
            .collect(),
        ..Default::default()
    };
    let target = Target::Coordinator(CoordinatorKind::Group, &group.group);
    let call = client.call(target, &request).versions(2..=topics.last_version).once();
    let refused = call.read(|response| {
        let all = response.topics.iter().flat_map(|topic| topic.partitions.iter().map(move |found| (topic, found)));
        let mut refused = None;
        for (topic, found) in all {
            let Err(error) = check(found.error_code, None) else { continue };
            // Who is no coordinator has decided nothing, about any partition.
            if is_of_coordinator(&error) {
                return Err(error);
            }
            let partition = TopicPartition::new(topics.name(&topic.name, topic.topic_id), found.partition_index);
            refused.get_or_insert((partition, error));
        }
        Ok(refused)
    });
    let Some((partition, error)) = refused.await? else { return Ok(()) };
    client.note_error(Target::Leader(&partition.topic, partition.partition), &error);
    let offset = offsets.iter().find(|(of, _)| *of == partition).map(|(_, offset)| offset.offset);
    Err(Error::Partition { partition, offset, cause: Box::new(error) })
}

fn is_of_coordinator(error: &Error) -> bool {
    let codes =
        [ErrorCode::NOT_COORDINATOR, ErrorCode::COORDINATOR_NOT_AVAILABLE, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS];
    error.code().is_some_and(|code| codes.contains(&code))
}

/// What a group has committed for partitions, asked once. Offsets of transactions that are about to end are waited for by an
/// error that is worth another try.
pub(super) async fn fetch(
    client: &Client,
    group: &GroupMetadata,
    partitions: &[TopicPartition],
) -> Result<Outcomes<TopicPartition, Option<CommittedOffset>>, Error> {
    if partitions.is_empty() {
        return Ok(Vec::new());
    }
    let topics = Topics::of(client, partitions.iter()).await;
    let topic = |(name, partitions): (&str, Vec<(i32, ())>)| OffsetFetchRequestTopics {
        topic_id: topics.id(name),
        name: name.to_owned().into(),
        partition_indexes: partitions.into_iter().map(|(partition, ())| partition).collect::<Vec<_>>().into(),
    };
    let is_member = group.generation >= 0;
    let asked = OffsetFetchRequestGroup {
        group_id: group.group.as_str().into(),
        member_id: is_member.then(|| group.member.as_str().into()),
        member_epoch: group.generation,
        topics: Some(by_topic(partitions.iter().map(|partition| (partition, ()))).into_iter().map(topic).collect()),
    };
    let request = OffsetFetchRequest { groups: vec![asked], require_stable: true, ..Default::default() };
    let target = Target::Coordinator(CoordinatorKind::Group, &group.group);
    let call = client.call(target, &request).versions(SEVERAL_GROUPS..=topics.last_version).once();
    let read = call.read(|response| {
        let group = response.groups.first().ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)?;
        check(group.error_code, None)?;
        let all = group.topics.iter().flat_map(|topic| topic.partitions.iter().map(move |found| (topic, found)));
        let outcome = all.map(|(topic, found)| {
            let name = topics.name(&topic.name, topic.topic_id);
            let committed = (found.committed_offset >= 0).then(|| CommittedOffset {
                offset: found.committed_offset,
                leader_epoch: (found.committed_leader_epoch >= 0).then_some(found.committed_leader_epoch),
                metadata: found.metadata.as_deref().unwrap_or_default().to_owned(),
            });
            (TopicPartition::new(name, found.partition_index), check(found.error_code, None).map(|()| committed))
        });
        Ok(outcome.collect())
    });
    read.await
}
