//! OffsetForLeaderEpoch. v3: the asking replica. v4: flexible.

use std::borrow::Cow;

use milena_net::Outgoing;
use milena_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use milena_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};
use milena_protocol::{ApiKey, ErrorCode};

use crate::ports::Ports;
use crate::registry::Api;
use crate::replicas::{HostedTopic, Topics};
use crate::request::{Call, Refusal};

/// The registry's line.
pub const API: Api = Api::now(ApiKey::OFFSET_FOR_LEADER_EPOCH, 2..=4, handle);

/// The client does not know the current leader epoch.
const NO_EPOCH: i32 = -1;

fn handle(call: &Call<'_>, ports: &Ports, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: OffsetForLeaderEpochRequest<'_> = call.request()?;
    let topics = ports.replicas.topics();
    let results = request.topics.iter().map(|asked| topic(asked, &topics)).collect();
    call.answer(out, &OffsetForLeaderEpochResponse { topics: results, ..Default::default() })
}

fn topic<'r>(asked: &'r OffsetForLeaderTopic<'r>, topics: &Topics) -> OffsetForLeaderTopicResult<'r> {
    let hosted = topics.by_name(&asked.topic).map(|topic| &**topic);
    OffsetForLeaderTopicResult {
        topic: Cow::Borrowed(&asked.topic),
        partitions: asked.partitions.iter().map(|asked| partition(asked, hosted)).collect(),
    }
}

fn partition(asked: &OffsetForLeaderPartition, topic: Option<&HostedTopic>) -> EpochEndOffset {
    let mut answer = EpochEndOffset { partition: asked.partition, ..Default::default() };
    match end_of_epoch(asked, topic) {
        Ok((epoch, end)) => (answer.leader_epoch, answer.end_offset) = (epoch, end),
        Err(error) => answer.error_code = error.0,
    }
    answer
}

fn end_of_epoch(asked: &OffsetForLeaderPartition, topic: Option<&HostedTopic>) -> Result<(i32, i64), ErrorCode> {
    let partition = topic.and_then(|topic| topic.partition(asked.partition));
    let partition = partition.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
    if asked.current_leader_epoch != NO_EPOCH {
        partition.check_leader_epoch(asked.current_leader_epoch)?;
    }
    let end = partition.end_offset_for_epoch(asked.leader_epoch);
    Ok((end.epoch, end.end_offset))
}
