//! Where a partition's records begin and end, and the deletion of those at its beginning.

use milena_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use milena_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};

use super::leaders::Asked;
use super::topics::CONTROLLER_TIMEOUT;
use super::{Admin, Outcomes, TopicPartition, by_topic};
use crate::call::Target;
use crate::error::{Error, check};

/// Which offset of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OffsetSpec {
    /// The first record's.
    Earliest,
    /// The one that the next record will have.
    Latest,
    /// That of the record with the largest timestamp.
    MaxTimestamp,
    /// The first record's on the broker's own disk.
    EarliestLocal,
    /// The last record's that is in remote storage.
    LatestTiered,
    /// The first record's that is still to be brought to remote storage.
    EarliestPendingUpload,
    /// The first record's whose timestamp is this or later, milliseconds since 1970.
    Timestamp(i64),
}

impl OffsetSpec {
    /// The number that asks for it, and the first version of the request that knows it.
    const fn asked(self) -> (i64, i16) {
        match self {
            Self::Timestamp(timestamp) => (timestamp, 1),
            Self::Latest => (-1, 1),
            Self::Earliest => (-2, 1),
            Self::MaxTimestamp => (-3, 7),
            Self::EarliestLocal => (-4, 8),
            Self::LatestTiered => (-5, 9),
            Self::EarliestPendingUpload => (-6, 11),
        }
    }
}

/// An offset that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedOffset {
    /// The offset; `None` when there is no such record.
    pub offset: Option<i64>,
    /// The record's timestamp, where one was asked for.
    pub timestamp: Option<i64>,
    /// The leader epoch of the record.
    pub leader_epoch: Option<i32>,
}

impl Admin {
    /// Offsets of partitions, in the order of the partitions.
    pub async fn list_offsets(
        &self,
        asked: Vec<(TopicPartition, OffsetSpec)>,
    ) -> Outcomes<TopicPartition, ListedOffset> {
        self.list_offsets_seen(asked, 0).await
    }

    /// As a reader with this isolation level sees them.
    pub(crate) async fn list_offsets_seen(
        &self,
        asked: Vec<(TopicPartition, OffsetSpec)>,
        isolation_level: i8,
    ) -> Outcomes<TopicPartition, ListedOffset> {
        self.of_leaders(asked, |leader, asked| self.list_offsets_of(leader, isolation_level, asked)).await
    }

    async fn list_offsets_of(
        &self,
        leader: i32,
        isolation_level: i8,
        asked: Asked<OffsetSpec>,
    ) -> Result<Outcomes<TopicPartition, ListedOffset>, Error> {
        let partition = |(partition_index, spec): (i32, OffsetSpec)| ListOffsetsPartition {
            partition_index,
            timestamp: spec.asked().0,
            ..Default::default()
        };
        let topics = by_topic(asked.iter().map(|(partition, spec)| (partition, *spec)));
        let topic = |(name, partitions): (&str, Vec<(i32, OffsetSpec)>)| ListOffsetsTopic {
            name: name.to_owned().into(),
            partitions: partitions.into_iter().map(partition).collect(),
        };
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: topics.into_iter().map(topic).collect(),
            isolation_level,
            timeout_ms: CONTROLLER_TIMEOUT,
        };
        let first = asked.iter().map(|(_, spec)| spec.asked().1).max().unwrap_or(1);
        let read = self.client.call(Target::Broker(leader), &request).versions(first..).read(|response| {
            let all = response.topics.iter().flat_map(|topic| {
                topic.partitions.iter().map(|found| {
                    let listed = ListedOffset {
                        offset: (found.offset >= 0).then_some(found.offset),
                        timestamp: (found.timestamp >= 0).then_some(found.timestamp),
                        leader_epoch: (found.leader_epoch >= 0).then_some(found.leader_epoch),
                    };
                    let partition = TopicPartition::new(topic.name.as_ref(), found.partition_index);
                    (partition, check(found.error_code, None).map(|()| listed))
                })
            });
            Ok(all.collect())
        });
        read.await
    }

    /// Deletes the records before these offsets; -1 stands for all. What stays begins at the offsets that come back.
    pub async fn delete_records(&self, before: Vec<(TopicPartition, i64)>) -> Outcomes<TopicPartition, i64> {
        self.of_leaders(before, |leader, before| self.delete_records_of(leader, before)).await
    }

    async fn delete_records_of(&self, leader: i32, before: Asked<i64>) -> Result<Outcomes<TopicPartition, i64>, Error> {
        let partition = |(partition_index, offset): (i32, i64)| DeleteRecordsPartition { partition_index, offset };
        let topics = by_topic(before.iter().map(|(partition, offset)| (partition, *offset)));
        let topic = |(name, partitions): (&str, Vec<(i32, i64)>)| DeleteRecordsTopic {
            name: name.to_owned().into(),
            partitions: partitions.into_iter().map(partition).collect(),
        };
        let request =
            DeleteRecordsRequest { topics: topics.into_iter().map(topic).collect(), timeout_ms: CONTROLLER_TIMEOUT };
        let read = self.client.call(Target::Broker(leader), &request).read(|response| {
            let all = response.topics.iter().flat_map(|topic| {
                topic.partitions.iter().map(|deleted| {
                    let partition = TopicPartition::new(topic.name.as_ref(), deleted.partition_index);
                    (partition, check(deleted.error_code, None).map(|()| deleted.low_watermark))
                })
            });
            Ok(all.collect())
        });
        read.await
    }
}
