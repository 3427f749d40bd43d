//! DescribeQuorum. v1: when replicas fetched last. v2: their directories, where voters are, and messages.

use std::borrow::Cow;

use milena_metadata::Provenance;
use milena_net::Outgoing;
use milena_protocol::messages::DescribeQuorumRequest;
use milena_protocol::messages::describe_quorum_response::{
    DescribeQuorumResponse, Listener, Node as NodeAddress, PartitionData, ReplicaState, TopicData,
};
use milena_protocol::{ApiKey, ErrorCode};
use milena_raft::{Voter, VoterSet};

use crate::registry::{Api, Handler};
use crate::request::{Call, Refusal};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::DESCRIBE_QUORUM, 0..=2, Handler::Now(handle));

const METADATA_TOPIC: &str = "__cluster_metadata";

fn handle(call: &Call<'_>, services: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: DescribeQuorumRequest<'_> = call.request()?;
    let provenance = services.image().provenance();
    call.answer(
        out,
        &response(&request, provenance, services.node.id, &services.live.voting.load().voters, services.clock.now_ms()),
    )
}

fn response<'r>(
    request: &'r DescribeQuorumRequest<'_>,
    log: Provenance,
    node_id: i32,
    voters: &'r VoterSet,
    now_ms: i64,
) -> DescribeQuorumResponse<'r> {
    let is_metadata = match &request.topics[..] {
        [topic] => topic.topic_name == METADATA_TOPIC && matches!(&topic.partitions[..], [p] if p.partition_index == 0),
        _ => false,
    };
    let error_message = Some(Cow::Borrowed(""));
    if !is_metadata {
        return DescribeQuorumResponse { topics: unknown(request), error_message, ..Default::default() };
    }
    // What the image has is committed: the quorum has no other voter to wait for.
    let end = log.last_contained_offset + 1;
    let partition = PartitionData {
        leader_id: node_id,
        leader_epoch: log.last_contained_epoch,
        high_watermark: end,
        current_voters: voters.iter().map(|voter| replica(voter, end, now_ms)).collect(),
        error_message: error_message.clone(),
        ..Default::default()
    };
    let topic_name = Cow::Borrowed(METADATA_TOPIC);
    let topics = vec![TopicData { topic_name, partitions: vec![partition] }];
    let nodes = voters.iter().map(address).collect();
    DescribeQuorumResponse { topics, nodes, error_message, ..Default::default() }
}

/// The answer for every partition, if one is not that of the metadata.
fn unknown<'r>(request: &'r DescribeQuorumRequest<'_>) -> Vec<TopicData<'r>> {
    let unknown = |partition_index| PartitionData {
        partition_index,
        error_code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0,
        error_message: Some(Cow::Borrowed("This server does not host this topic-partition.")),
        ..Default::default()
    };
    let topics = request.topics.iter().map(|topic| TopicData {
        topic_name: Cow::Borrowed(&topic.topic_name),
        partitions: topic.partitions.iter().map(|partition| unknown(partition.partition_index)).collect(),
    });
    topics.collect()
}

/// The leader, which is always up to date with itself.
fn replica(voter: &Voter, log_end_offset: i64, now_ms: i64) -> ReplicaState {
    ReplicaState {
        replica_id: voter.key.id,
        replica_directory_id: voter.key.directory_id,
        log_end_offset,
        last_fetch_timestamp: now_ms,
        last_caught_up_timestamp: now_ms,
    }
}

fn address(voter: &Voter) -> NodeAddress<'_> {
    let listeners = voter.endpoints.iter().map(|endpoint| Listener {
        name: Cow::Borrowed(&endpoint.name),
        host: Cow::Borrowed(&endpoint.host),
        port: endpoint.port,
    });
    NodeAddress { node_id: voter.key.id, listeners: listeners.collect() }
}
