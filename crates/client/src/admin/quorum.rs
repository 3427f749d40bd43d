//! The controllers: who leads them, how far each has come, and how one comes in or goes.

use std::collections::BTreeMap;

use milena_protocol::messages::RemoveRaftVoterRequest;
use milena_protocol::messages::add_raft_voter_request::{AddRaftVoterRequest, Listener};
use milena_protocol::messages::describe_quorum_request::{DescribeQuorumRequest, PartitionData, TopicData};
use milena_protocol::messages::describe_quorum_response::ReplicaState;
use milena_protocol::{ErrorCode, Uuid};

use super::Admin;
use super::topics::CONTROLLER_TIMEOUT;
use crate::call::Target;
use crate::error::{Error, check};

/// The topic that is the metadata log.
const METADATA_TOPIC: &str = "__cluster_metadata";

/// The quorum of controllers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuorumDescription {
    /// Who leads it.
    pub leader: i32,
    /// How often leadership has changed.
    pub leader_epoch: i32,
    /// Up to where the metadata log is committed.
    pub high_watermark: i64,
    /// Those that vote.
    pub voters: Vec<QuorumReplica>,
    /// Those that only follow.
    pub observers: Vec<QuorumReplica>,
    /// Where voters are, by id; none from servers that do not say.
    pub endpoints: BTreeMap<i32, Vec<VoterEndpoint>>,
}

/// A replica of the metadata log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuorumReplica {
    /// The node's id.
    pub id: i32,
    /// The id of the log directory; zero when it is not known.
    pub directory_id: Uuid,
    /// Where its log ends.
    pub log_end_offset: i64,
    /// When it asked for records last, milliseconds since 1970, if that is known.
    pub last_fetch: Option<i64>,
    /// When it had all records last, milliseconds since 1970, if that is known.
    pub last_caught_up: Option<i64>,
}

/// Where a controller is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoterEndpoint {
    /// The listener's name.
    pub listener: String,
    /// The host.
    pub host: String,
    /// The port there.
    pub port: u16,
}

impl Admin {
    /// The quorum of controllers.
    ///
    /// # Errors
    /// When nobody answers, or does not know the leader.
    pub async fn describe_quorum(&self) -> Result<QuorumDescription, Error> {
        let partitions = vec![PartitionData { partition_index: 0 }];
        let request =
            DescribeQuorumRequest { topics: vec![TopicData { topic_name: METADATA_TOPIC.into(), partitions }] };
        let read = self.client.call(Target::Any, &request).read(|response| {
            check(response.error_code, response.error_message.as_deref().filter(|text| !text.is_empty()))?;
            let partition = response.topics.first().and_then(|topic| topic.partitions.first());
            let partition = partition.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
            check(partition.error_code, partition.error_message.as_deref().filter(|text| !text.is_empty()))?;
            let endpoints = response.nodes.iter().map(|node| {
                let endpoint =
                    |listener: &milena_protocol::messages::describe_quorum_response::Listener<'_>| VoterEndpoint {
                        listener: listener.name.to_string(),
                        host: listener.host.to_string(),
                        port: listener.port,
                    };
                (node.node_id, node.listeners.iter().map(endpoint).collect())
            });
            Ok(QuorumDescription {
                leader: partition.leader_id,
                leader_epoch: partition.leader_epoch,
                high_watermark: partition.high_watermark,
                voters: partition.current_voters.iter().map(replica).collect(),
                observers: partition.observers.iter().map(replica).collect(),
                endpoints: endpoints.collect(),
            })
        });
        read.await
    }

    /// Lets a controller that follows the quorum vote.
    ///
    /// # Errors
    /// When the quorum does not answer or refuses.
    pub async fn add_raft_voter(&self, id: i32, directory_id: Uuid, at: &[VoterEndpoint]) -> Result<(), Error> {
        let listener = |endpoint: &VoterEndpoint| Listener {
            name: endpoint.listener.clone().into(),
            host: endpoint.host.clone().into(),
            port: endpoint.port,
        };
        let request = AddRaftVoterRequest {
            cluster_id: None,
            timeout_ms: CONTROLLER_TIMEOUT,
            voter_id: id,
            voter_directory_id: directory_id,
            listeners: at.iter().map(listener).collect(),
            ..Default::default()
        };
        let read = self.client.call(Target::Controller, &request);
        read.read(|response| check(response.error_code, response.error_message.as_deref())).await
    }

    /// Takes a controller's vote away.
    ///
    /// # Errors
    /// When the quorum does not answer or refuses.
    pub async fn remove_raft_voter(&self, id: i32, directory_id: Uuid) -> Result<(), Error> {
        let request = RemoveRaftVoterRequest { cluster_id: None, voter_id: id, voter_directory_id: directory_id };
        let read = self.client.call(Target::Controller, &request);
        read.read(|response| check(response.error_code, response.error_message.as_deref())).await
    }
}

fn replica(state: &ReplicaState) -> QuorumReplica {
    let time = |timestamp: i64| (timestamp >= 0).then_some(timestamp);
    QuorumReplica {
        id: state.replica_id,
        directory_id: state.replica_directory_id,
        log_end_offset: state.log_end_offset,
        last_fetch: time(state.last_fetch_timestamp),
        last_caught_up: time(state.last_caught_up_timestamp),
    }
}
