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

use crate::registry::{Api, Handler};
use crate::replicas::{HostedTopic, Topics};
use crate::request::{Call, Refusal};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::OFFSET_FOR_LEADER_EPOCH, 2..=4, Handler::Now(handle));

/// The client does not know the current leader epoch.
const NO_EPOCH: i32 = -1;

fn handle(call: &Call<'_>, services: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: OffsetForLeaderEpochRequest<'_> = call.request()?;
    let topics = services.replicas.topics();
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
    let partition = topic.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?.served(asked.partition)?;
    if asked.current_leader_epoch != NO_EPOCH {
        partition.check_leader_epoch(asked.current_leader_epoch)?;
    }
    let end = partition.end_offset_for_epoch(asked.leader_epoch);
    Ok((end.epoch, end.end_offset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_partitions::{self, EPOCH};

    /// Error, epoch and end offset of one question about a partition of three records.
    fn ask(partition: i32, leader_epoch: i32, current_leader_epoch: i32) -> (i16, i32, i64) {
        let replicas = test_partitions::topic(&[&[&[1, 2, 3]]]);
        let topics = replicas.topics();
        let asked = OffsetForLeaderPartition { partition, current_leader_epoch, leader_epoch };
        let asked = OffsetForLeaderTopic { topic: "t".into(), partitions: vec![asked] };
        let answer = topic(&asked, &topics);
        let end = &answer.partitions[0];
        (end.error_code, end.leader_epoch, end.end_offset)
    }

    #[test]
    fn the_current_epoch_ends_at_the_log_end_and_those_around_it_where_it_begins_or_nowhere() {
        assert_eq!(ask(0, EPOCH, NO_EPOCH), (0, EPOCH, 3));
        assert_eq!(ask(0, EPOCH - 1, NO_EPOCH), (0, EPOCH - 1, 0));
        assert_eq!(ask(0, -2, NO_EPOCH), (0, -2, 0));
        assert_eq!(ask(0, EPOCH + 1, NO_EPOCH), (0, -1, -1));
        assert_eq!(ask(0, -1, NO_EPOCH), (0, -1, -1));
    }

    #[test]
    fn the_leader_epoch_of_the_client_must_be_the_current_one() {
        assert_eq!(ask(0, EPOCH, EPOCH), (0, EPOCH, 3));
        assert_eq!(ask(0, EPOCH, EPOCH + 1), (ErrorCode::UNKNOWN_LEADER_EPOCH.0, -1, -1));
        assert_eq!(ask(0, EPOCH, -2), (ErrorCode::FENCED_LEADER_EPOCH.0, -1, -1));
        assert_eq!(ask(9, EPOCH, NO_EPOCH), (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0, -1, -1));
    }
}
