//! OffsetFetch: what a group has committed.

use milena_protocol::ErrorCode;
use milena_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;

use super::api::Reply;
use super::offsets::CommittedOffset;
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
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.metadata.len()
    }

    fn none(partition: i32, error: ErrorCode) -> Self {
        Self { partition, offset: -1, leader_epoch: -1, metadata: String::new(), error }
    }

    fn some(partition: i32, committed: &CommittedOffset) -> Self {
        Self {
            partition,
            offset: committed.offset,
            leader_epoch: committed.leader_epoch,
            metadata: committed.metadata.clone().into(),
            error: ErrorCode::NONE,
        }
    }
}

impl FetchedGroup {
    /// What it takes in memory.
    pub fn bytes(&self) -> usize {
        self.topics.iter().flat_map(|(_, offsets)| offsets).map(FetchedOffset::bytes).sum()
    }
}

impl Groups {
    pub(super) fn fetch(
        &self,
        ticket: Ticket,
        group: &OffsetFetchRequestGroup<'_>,
        require_stable: bool,
        most_bytes: usize,
        cx: &mut GroupCx<'_, '_>,
    ) {
        let id = &*group.group_id;
        let checked =
            self.consumers.get(id).map(|known| known.may_fetch(group.member_id.as_deref(), group.member_epoch));
        if let Some(Err(error)) = checked {
            return cx.reply(ticket, Reply::Fetch(FetchedGroup { error, topics: Vec::new() }));
        }
        match self.fetched(group, require_stable, most_bytes) {
            Some(topics) => {
                cx.reply_when_committed(ticket, Reply::Fetch(FetchedGroup { error: ErrorCode::NONE, topics }));
            }
            None => {
                let refused = FetchedGroup { error: ErrorCode::INVALID_REQUEST, topics: Vec::new() };
                cx.reply(ticket, Reply::Fetch(refused));
            }
        }
    }

    /// The offsets asked for, in the order asked for; `None` when they take more than `most_bytes`: the same partition
    /// may be asked for again and again.
    fn fetched(
        &self,
        group: &OffsetFetchRequestGroup<'_>,
        require_stable: bool,
        most_bytes: usize,
    ) -> Option<Vec<(String, Vec<FetchedOffset>)>> {
        let id = &*group.group_id;
        let mut left = most_bytes;
        let mut fetched = |topic: &str, partition: i32| {
            let found = if require_stable && self.offsets.is_pending(id, topic, partition) {
                FetchedOffset::none(partition, ErrorCode::UNSTABLE_OFFSET_COMMIT)
            } else {
                match self.offsets.get(id, topic, partition) {
                    Some(committed) => FetchedOffset::some(partition, committed),
                    None => FetchedOffset::none(partition, ErrorCode::NONE),
                }
            };
            left = left.checked_sub(found.bytes())?;
            Some(found)
        };
        match &group.topics {
            Some(topics) => topics
                .iter()
                .map(|topic| {
                    let offsets = topic.partition_indexes.iter().map(|partition| fetched(&topic.name, *partition));
                    Some((topic.name.to_string(), offsets.collect::<Option<_>>()?))
                })
                .collect(),
            None => self
                .offsets
                .of_group(id)
                .into_iter()
                .flatten()
                .map(|(topic, partitions)| {
                    let offsets = partitions.keys().map(|partition| fetched(topic, *partition));
                    Some((topic.to_string(), offsets.collect::<Option<_>>()?))
                })
                .collect(),
        }
    }
}
