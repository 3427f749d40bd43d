//! OffsetCommit: who may commit, and the records of it.

use milena_protocol::messages::offset_commit_request::OffsetCommitRequestPartition;
use milena_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use milena_protocol::messages::{OffsetCommitKey, OffsetCommitRequest, OffsetCommitValue};
use milena_protocol::{ErrorCode, Str, Uuid};

use super::api::Reply;
use super::consumer::Member;
use super::{After, GroupCx, Groups, State, identity};
use crate::engine::Ticket;
use crate::transaction::Producer;

/// First version in which an unknown group is told as such.
const FIRST_GROUP_ID_NOT_FOUND_VERSION: i16 = 9;
/// The same of TxnOffsetCommit.
const FIRST_GROUP_ID_NOT_FOUND_TXN_VERSION: i16 = 6;
/// Version of an offset's record; the one with an end of its own is older.
const OFFSET_COMMIT_VERSION: i16 = 4;
const EXPIRING_OFFSET_COMMIT_VERSION: i16 = 1;
/// The client does not say how long the offset is to be kept.
const DEFAULT_RETENTION: i64 = -1;

/// How a commit comes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Origin {
    /// By an OffsetCommit of this version.
    Client {
        /// The version.
        version: i16,
    },
    /// By a TxnOffsetCommit of this version: it counts when the producer's transaction is committed.
    Transaction {
        /// Whose transaction.
        producer: Producer,
        /// The version.
        version: i16,
    },
}

/// The answer that a commit promises.
#[derive(Debug)]
pub struct Response(Vec<OffsetCommitResponseTopic<'static>>);

impl Response {
    /// The same, or the failure of the write for what would have been committed.
    pub(super) fn or_failed(mut self, outcome: Result<(), ErrorCode>) -> Vec<OffsetCommitResponseTopic<'static>> {
        if let Err(error) = outcome {
            let partitions = self.0.iter_mut().flat_map(|topic| &mut topic.partitions);
            partitions.for_each(|partition| partition.error_code = error.0);
        }
        self.0
    }
}

impl Groups {
    pub(super) fn commit(
        &mut self,
        ticket: Ticket,
        request: &OffsetCommitRequest<'_>,
        origin: Origin,
        cx: &mut GroupCx<'_, '_>,
    ) {
        let behind = match self.may_commit(request, origin) {
            Ok(behind) => behind,
            Err(error) => {
                let topics = request.topics.iter().map(|topic| {
                    let all = topic.partitions.iter().map(|partition| answer(partition, error)).collect();
                    answer_topic(&topic.name, topic.topic_id, all)
                });
                return cx.reply(ticket, Reply::Commit(topics.collect()));
            }
        };
        let epoch = request.generation_id_or_member_epoch;
        let is_stale = |topic: Uuid, partition: i32| {
            behind.as_ref().is_some_and(|member| !member.may_commit_in(epoch, topic, partition))
        };
        if let Origin::Client { .. } = origin
            && let Some(group) = self.group(&request.group_id)
            && matches!(group.state(), State::Stable | State::PreparingRebalance)
        {
            group.renew_session(&request.member_id, cx);
        }
        let longest = cx.settings().offset_metadata_max_bytes;
        let now_ms = cx.now().wall_ms;
        // As in Kafka, a retention beyond all times ends in the past.
        let expires =
            (request.retention_time_ms != DEFAULT_RETENTION).then(|| now_ms.wrapping_add(request.retention_time_ms));
        let mut records = cx.records();
        if let Origin::Transaction { producer, .. } = origin {
            records = records.transactional(producer.id, producer.epoch);
        }
        let mut response = Vec::with_capacity(request.topics.len());
        for topic in &request.topics {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for partition in &topic.partitions {
                let metadata = partition.committed_metadata.as_deref().unwrap_or("");
                if is_longer(metadata, longest) {
                    partitions.push(answer(partition, ErrorCode::OFFSET_METADATA_TOO_LARGE));
                    continue;
                }
                if is_stale(topic.topic_id, partition.partition_index) {
                    partitions.push(answer(partition, ErrorCode::STALE_MEMBER_EPOCH));
                    continue;
                }
                partitions.push(answer(partition, ErrorCode::NONE));
                let index = partition.partition_index;
                let key = OffsetCommitKey {
                    group: request.group_id.as_ref().into(),
                    topic: topic.name.as_ref().into(),
                    partition: index,
                };
                let value = OffsetCommitValue {
                    offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    metadata: metadata.into(),
                    commit_timestamp: now_ms,
                    expire_timestamp: expires.unwrap_or(-1),
                    topic_id: topic.topic_id,
                };
                let version = expires.map_or(OFFSET_COMMIT_VERSION, |_| EXPIRING_OFFSET_COMMIT_VERSION);
                records.put(&key, &value, version);
            }
            response.push(answer_topic(&topic.name, topic.topic_id, partitions));
        }
        cx.write(records, After::Commit(ticket, Response(response)));
    }

    /// Whether the member, or somebody who is none, may commit. Gives a member of a consumer group that speaks of an epoch
    /// which it has left: it may commit for partitions that it has had since then.
    fn may_commit(&self, request: &OffsetCommitRequest<'_>, origin: Origin) -> Result<Option<Member>, ErrorCode> {
        let epoch = request.generation_id_or_member_epoch;
        let who = identity(&request.member_id, request.group_instance_id.as_deref());
        // Older clients name no member when they commit in a transaction.
        let is_unnamed = epoch < 0 && who.member.is_empty() && who.instance.is_none();
        let version = match origin {
            Origin::Client { version } => version,
            Origin::Transaction { .. } => i16::MAX,
        };
        if let Some(group) = self.consumers.get(&*request.group_id) {
            return match origin {
                Origin::Transaction { .. } if is_unnamed => Ok(None),
                _ => group.may_commit(&request.member_id, epoch, version),
            };
        }
        match (self.groups.get(&*request.group_id), origin) {
            (Some(_), Origin::Transaction { .. }) if is_unnamed => Ok(None),
            (Some(group), Origin::Transaction { .. }) => group.may_commit_in_transaction(who, epoch).map(|()| None),
            (Some(group), Origin::Client { .. }) => group.may_commit(who, epoch).map(|()| None),
            // A group comes into being with its offsets.
            (None, _) if epoch < 0 => Ok(None),
            (None, Origin::Client { .. }) if version >= FIRST_GROUP_ID_NOT_FOUND_VERSION => {
                Err(ErrorCode::GROUP_ID_NOT_FOUND)
            }
            (None, Origin::Transaction { version, .. }) if version >= FIRST_GROUP_ID_NOT_FOUND_TXN_VERSION => {
                Err(ErrorCode::GROUP_ID_NOT_FOUND)
            }
            (None, _) => Err(ErrorCode::ILLEGAL_GENERATION),
        }
    }
}

fn answer(partition: &OffsetCommitRequestPartition<'_>, error: ErrorCode) -> OffsetCommitResponsePartition {
    OffsetCommitResponsePartition { partition_index: partition.partition_index, error_code: error.0 }
}

fn answer_topic(
    name: &Str<'_>,
    topic_id: Uuid,
    partitions: Vec<OffsetCommitResponsePartition>,
) -> OffsetCommitResponseTopic<'static> {
    OffsetCommitResponseTopic { name: name.to_string().into(), topic_id, partitions }
}

/// Whether a text has more than `most` UTF-16 units.
fn is_longer(text: &str, most: usize) -> bool {
    text.len() > most && text.encode_utf16().count() > most
}
