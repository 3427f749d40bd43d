//! TxnOffsetCommit. v1: throttle time. v2: leader epochs. v3: members, flexible. v4: TRANSACTION_ABORTABLE. v5: the broker
//! adds the group's partition to the transaction. v6: topics by id.

use std::sync::Arc;

use milena_coordinator::coordinator_error;
use milena_coordinator::group::{Reply, Request};
use milena_coordinator::transaction::Producer;
use milena_log::{VerificationGuard, VerificationStart};
use milena_net::{Outgoing, Replies};
use milena_protocol::messages::OffsetCommitRequest;
use milena_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use milena_protocol::messages::txn_offset_commit_request::{TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic};
use milena_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponse, TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use milena_protocol::{ApiKey, ErrorCode};

use super::find_coordinator::GROUPS_TOPIC;
use super::offset_commit::{Answered, gathered, sort, unanswered};
use crate::coordinators::{Answer, Begin, Support};
use crate::partition::Partition;
use crate::registry::{Api, Handler};
use crate::request::{Call, Header, Refusal, answer};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::TXN_OFFSET_COMMIT, 0..=6, Handler::Either(serve));

/// First version that names members.
const FIRST_MEMBER_VERSION: i16 = 3;
/// First version whose clients know TRANSACTION_ABORTABLE.
const FIRST_ABORTABLE_VERSION: i16 = 4;
/// First version whose clients leave adding the partition to the broker.
const FIRST_IMPLICIT_VERSION: i16 = 5;
/// First version that names topics by id.
const FIRST_TOPIC_ID_VERSION: i16 = 6;
/// A batch of a coordinator has no sequence.
const NO_SEQUENCE: i32 = -1;

fn serve(call: &Call<'_>, services: &Arc<Services>, replies: &mut Replies<'_>) -> Result<(), Refusal> {
    let mut asked: TxnOffsetCommitRequest<'_> = call.request()?;
    let version = call.header.version;
    let topics = std::mem::take(&mut asked.topics).into_iter().map(topic).collect();
    let (good, refused) = sort(topics, &services.image(), version >= FIRST_TOPIC_ID_VERSION);
    if good.is_empty() {
        let nothing = Answer::Now(Ok(Reply::Commit(Vec::new())));
        return nothing.send(call, replies, move |header, reply, out| write(header, reply, Vec::new(), refused, out));
    }
    let all = unanswered(&good);
    let answered = match check_group(&asked.group_id).and_then(|()| begin(&asked, version, services)) {
        Ok(guard) => {
            let request = Request::CommitInTransaction {
                request: as_commit(&asked, good, version),
                version,
                producer: Producer { id: asked.producer_id, epoch: asked.producer_epoch },
            };
            services.coordinators.groups().request_verified(&asked.group_id, request, guard)
        }
        Err(error) => Answer::Now(Err(coordinator_error(error))),
    };
    answered.send(call, replies, move |header, reply, out| write(header, reply, all, refused, out))
}

fn check_group(id: &str) -> Result<(), ErrorCode> {
    if id.is_empty() { Err(ErrorCode::INVALID_GROUP_ID) } else { Ok(()) }
}

/// What the group's partition asks for if the transaction begins there: its coordinator must know of it.
fn begin(
    asked: &TxnOffsetCommitRequest<'_>,
    version: i16,
    services: &Services,
) -> Result<Option<VerificationGuard>, ErrorCode> {
    let support = match version {
        FIRST_IMPLICIT_VERSION.. => Support::Implicit,
        FIRST_ABORTABLE_VERSION.. => Support::Abortable,
        _ => Support::Plain,
    };
    let coordinators = &services.coordinators;
    let partition: Arc<Partition> =
        coordinators.groups().partition(&asked.group_id).ok_or(ErrorCode::NOT_COORDINATOR)?;
    if support != Support::Implicit && !services.config().transaction_partition_verification_enable() {
        return Ok(None);
    }
    let start = VerificationStart {
        producer_id: asked.producer_id,
        epoch: asked.producer_epoch,
        base_sequence: NO_SEQUENCE,
        epoch_bumps: support == Support::Implicit,
        now_ms: services.clock.now_ms(),
    };
    let guard = partition.begin_verification(&start).map_err(|_| ErrorCode::INVALID_PRODUCER_EPOCH)?;
    let Some(guard) = guard else { return Ok(None) };
    let producer = Producer { id: asked.producer_id, epoch: asked.producer_epoch };
    let begin = Begin { id: &asked.transactional_id, producer, support };
    let verified = coordinators.verify(&begin, &[(GROUPS_TOPIC.into(), partition.index)]);
    match verified.into_iter().find(|error| *error != ErrorCode::NONE) {
        Some(error) => Err(error),
        None => Ok(Some(guard)),
    }
}

fn topic(asked: TxnOffsetCommitRequestTopic<'_>) -> OffsetCommitRequestTopic<'_> {
    let partitions = asked.partitions.into_iter().map(|partition| OffsetCommitRequestPartition {
        partition_index: partition.partition_index,
        committed_offset: partition.committed_offset,
        committed_leader_epoch: partition.committed_leader_epoch,
        committed_metadata: partition.committed_metadata,
    });
    OffsetCommitRequestTopic { name: asked.name, topic_id: asked.topic_id, partitions: partitions.collect() }
}

fn as_commit<'r>(
    asked: &'r TxnOffsetCommitRequest<'_>,
    topics: Vec<OffsetCommitRequestTopic<'r>>,
    version: i16,
) -> OffsetCommitRequest<'r> {
    let mut commit = OffsetCommitRequest {
        group_id: asked.group_id.as_ref().into(),
        generation_id_or_member_epoch: -1,
        topics,
        ..Default::default()
    };
    if version >= FIRST_MEMBER_VERSION {
        commit.generation_id_or_member_epoch = asked.generation_id_or_member_epoch;
        commit.member_id = asked.member_id.as_ref().into();
        commit.group_instance_id = asked.group_instance_id.as_deref().map(Into::into);
    }
    commit
}

fn write(
    header: &Header<'_>,
    reply: Result<Reply, ErrorCode>,
    all: Answered,
    refused: Answered,
    out: &mut Outgoing,
) -> Result<(), Refusal> {
    let topics = gathered(reply, all, refused).into_iter().map(|topic| TxnOffsetCommitResponseTopic {
        name: topic.name,
        topic_id: topic.topic_id,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| TxnOffsetCommitResponsePartition {
                partition_index: partition.partition_index,
                error_code: partition.error_code,
            })
            .collect(),
    });
    let response = TxnOffsetCommitResponse { topics: topics.collect(), ..Default::default() };
    answer(header, out, &response).map(drop)
}
