//! OffsetFetch: what a group has committed.

use milena_protocol::ErrorCode;
use milena_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;

use super::api::Reply;
use super::offsets::Committed;
use super::{GroupCx, Groups};
use crate::engine::Ticket;

/// What one group has committed: topics in the order asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedGroup {
    /// Why nothing is told: the member that asks is none, or of another epoch.
    pub error: ErrorCode,
    /// Name and partitions of each topic.
    pub topics: Vec<(String, Vec<FetchedOffset>)>,
}

/// What a group has committed for a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedOffset {
    /// Number of the partition.
    pub partition: i32,
    /// The offset, or -1.
    pub offset: i64,
    /// Epoch of the last consumed record's leader, or -1.
    pub leader_epoch: i32,
    /// What the client wrote beside it.
    pub metadata: String,
    /// UNSTABLE_OFFSET_COMMIT when a transaction is about to change it.
    pub error: ErrorCode,
}

impl FetchedOffset {
    fn none(partition: i32, error: ErrorCode) -> Self {
        Self { partition, offset: -1, leader_epoch: -1, metadata: String::new(), error }
    }

    fn some(partition: i32, committed: &Committed) -> Self {
        Self {
            partition,
            offset: committed.offset,
            leader_epoch: committed.leader_epoch,
            metadata: committed.metadata.clone().into(),
            error: ErrorCode::NONE,
        }
    }
}

impl Groups {
    pub(super) fn fetch(
        &self,
        ticket: Ticket,
        group: &OffsetFetchRequestGroup<'_>,
        require_stable: bool,
        cx: &mut GroupCx<'_, '_>,
    ) {
        let id = &*group.group_id;
        let checked =
            self.consumers.get(id).map(|known| known.may_fetch(group.member_id.as_deref(), group.member_epoch));
        if let Some(Err(error)) = checked {
            return cx.reply(ticket, Reply::Fetch(FetchedGroup { error, topics: Vec::new() }));
        }
        let fetched = |topic: &str, partition: i32| {
            if require_stable && self.offsets.is_pending(id, topic, partition) {
                return FetchedOffset::none(partition, ErrorCode::UNSTABLE_OFFSET_COMMIT);
            }
            match self.offsets.get(id, topic, partition) {
                Some(committed) => FetchedOffset::some(partition, committed),
                None => FetchedOffset::none(partition, ErrorCode::NONE),
            }
        };
        let topics = match &group.topics {
            Some(topics) => topics
                .iter()
                .map(|topic| {
                    let partitions = topic.partition_indexes.iter();
                    (topic.name.to_string(), partitions.map(|partition| fetched(&topic.name, *partition)).collect())
                })
                .collect(),
            None => self
                .offsets
                .of_group(id)
                .into_iter()
                .flatten()
                .map(|(topic, partitions)| {
                    (topic.to_string(), partitions.keys().map(|partition| fetched(topic, *partition)).collect())
                })
                .collect(),
        };
        cx.reply_when_committed(ticket, Reply::Fetch(FetchedGroup { error: ErrorCode::NONE, topics }));
    }
}
