//! The offsets that groups have committed.

use milena_protocol::ErrorCode;
use milena_protocol::messages::offset_commit_request::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use milena_protocol::messages::offset_delete_request::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use milena_protocol::messages::offset_fetch_request::{OffsetFetchRequest, OffsetFetchRequestGroup};

use super::{Admin, Outcomes, TopicPartition, by_topic};
use crate::call::Target;
use crate::coordinators::CoordinatorKind;
use crate::error::{Error, check};

/// The newest version that names topics rather than giving their ids.
const WITH_NAMES: i16 = 9;

/// How far a group is in a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next record that it will read.
    pub offset: i64,
    /// The leader epoch of the record before it, if that was said.
    pub leader_epoch: Option<i32>,
    /// What the group noted beside it.
    pub metadata: String,
}

impl CommittedOffset {
    /// An offset and nothing else.
    pub fn at(offset: i64) -> Self {
        Self { offset, leader_epoch: None, metadata: String::new() }
    }
}

impl Admin {
    /// All that a group has committed, by partition; nothing for a group that does not exist.
    ///
    /// # Errors
    /// When the group's coordinator does not answer, or refuses.
    pub async fn committed_offsets(&self, group: &str) -> Result<Vec<(TopicPartition, CommittedOffset)>, Error> {
        let request = OffsetFetchRequest {
            groups: vec![OffsetFetchRequestGroup { group_id: group.into(), topics: None, ..Default::default() }],
            ..Default::default()
        };
        let call =
            self.client.call(Target::Coordinator(CoordinatorKind::Group, group), &request).versions(8..=WITH_NAMES);
        let read = call.read(|response| {
            let group = response.groups.first().ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)?;
            check(group.error_code, None)?;
            let mut offsets = Vec::new();
            for topic in &group.topics {
                for partition in &topic.partitions {
                    check(partition.error_code, None)?;
                    if partition.committed_offset < 0 {
                        continue;
                    }
                    let epoch = partition.committed_leader_epoch;
                    let committed = CommittedOffset {
                        offset: partition.committed_offset,
                        leader_epoch: (epoch >= 0).then_some(epoch),
                        metadata: partition.metadata.as_deref().unwrap_or_default().to_owned(),
                    };
                    offsets.push((TopicPartition::new(topic.name.as_ref(), partition.partition_index), committed));
                }
            }
            offsets.sort_by(|(one, _), (other, _)| one.cmp(other));
            Ok(offsets)
        });
        read.await
    }

    /// Sets a group's offsets. The group must have no members.
    ///
    /// # Errors
    /// When the group's coordinator does not answer.
    pub async fn alter_offsets(
        &self,
        group: &str,
        offsets: &[(TopicPartition, CommittedOffset)],
    ) -> Result<Outcomes<TopicPartition, ()>, Error> {
        let partition = |(partition_index, offset): &(i32, &CommittedOffset)| OffsetCommitRequestPartition {
            partition_index: *partition_index,
            committed_offset: offset.offset,
            committed_leader_epoch: offset.leader_epoch.unwrap_or(-1),
            committed_metadata: Some(offset.metadata.clone().into()),
        };
        let topics = by_topic(offsets.iter().map(|(partition, offset)| (partition, offset)));
        let topic = |(name, partitions): (&str, Vec<(i32, &CommittedOffset)>)| OffsetCommitRequestTopic {
            name: name.to_owned().into(),
            partitions: partitions.iter().map(partition).collect(),
            ..Default::default()
        };
        let request = OffsetCommitRequest {
            group_id: group.into(),
            topics: topics.into_iter().map(topic).collect(),
            ..Default::default()
        };
        let call =
            self.client.call(Target::Coordinator(CoordinatorKind::Group, group), &request).versions(2..=WITH_NAMES);
        let read = call.read(|response| {
            let all = response.topics.iter().flat_map(|topic| {
                topic.partitions.iter().map(|partition| {
                    (TopicPartition::new(topic.name.as_ref(), partition.partition_index), partition.error_code)
                })
            });
            outcomes(all.collect())
        });
        read.await
    }

    /// Forgets a group's offsets of partitions that none of its members reads.
    ///
    /// # Errors
    /// When the group's coordinator does not answer, or refuses.
    pub async fn delete_offsets(
        &self,
        group: &str,
        partitions: &[TopicPartition],
    ) -> Result<Outcomes<TopicPartition, ()>, Error> {
        let topics = by_topic(partitions.iter().map(|partition| (partition, ())));
        let partition = |(partition_index, ())| OffsetDeleteRequestPartition { partition_index };
        let topic = |(name, partitions): (&str, Vec<(i32, ())>)| OffsetDeleteRequestTopic {
            name: name.to_owned().into(),
            partitions: partitions.into_iter().map(partition).collect(),
        };
        let request = OffsetDeleteRequest { group_id: group.into(), topics: topics.into_iter().map(topic).collect() };
        let read = self.client.call(Target::Coordinator(CoordinatorKind::Group, group), &request).read(|response| {
            check(response.error_code, None)?;
            let all = response.topics.iter().flat_map(|topic| {
                topic.partitions.iter().map(|partition| {
                    (TopicPartition::new(topic.name.as_ref(), partition.partition_index), partition.error_code)
                })
            });
            outcomes(all.collect())
        });
        read.await
    }
}

/// What became of each partition. A coordinator that is none any more, or not yet, has decided nothing.
fn outcomes(codes: Vec<(TopicPartition, i16)>) -> Result<Outcomes<TopicPartition, ()>, Error> {
    let elsewhere =
        [ErrorCode::NOT_COORDINATOR, ErrorCode::COORDINATOR_NOT_AVAILABLE, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS];
    if let Some((_, code)) = codes.iter().find(|(_, code)| elsewhere.contains(&ErrorCode(*code))) {
        return Err(ErrorCode(*code).into());
    }
    Ok(codes.into_iter().map(|(partition, code)| (partition, check(code, None))).collect())
}
