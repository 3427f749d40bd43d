//! The coordinator of a group with one member: it gives what the test says, by either protocol.

use std::time::Duration;

use milena_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use milena_protocol::messages::join_group_response::JoinGroupResponseMember;
use milena_protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, HeartbeatResponse, JoinGroupRequest,
    JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, SyncGroupRequest, SyncGroupResponse,
};
use milena_protocol::{ApiKey, ErrorCode};

use super::{Came, TOPIC_ID};
use crate::test_peer::Peer;

#[derive(Debug, Default)]
pub(crate) struct Group {
    /// The member's epoch or generation; with a new one it gets what is assigned then.
    pub(crate) epoch: i32,
    /// Partitions that a member of the consumer protocol shall have.
    pub(crate) assigned: Vec<i32>,
    /// What the next heartbeats, or tries to join, are answered.
    pub(crate) codes: Vec<ErrorCode>,
    /// Epochs of the heartbeats that came.
    pub(crate) heartbeats: Vec<i32>,
    /// How long the others take to join.
    pub(crate) join_delay: Duration,
    /// Members of the classic protocol that have left.
    pub(crate) left: Vec<String>,
}

/// What a request to the coordinator is answered.
pub(super) enum Reply {
    Consumer(ConsumerGroupHeartbeatResponse<'static>),
    Join(JoinGroupResponse<'static>),
    Sync(SyncGroupResponse<'static>),
    Heartbeat(HeartbeatResponse),
    Leave(LeaveGroupResponse<'static>),
}

impl Reply {
    pub(super) async fn send(&self, peer: &mut Peer, came: &Came) {
        let (id, version) = (came.id, came.version);
        match self {
            Self::Consumer(response) => peer.answer(id, version, response).await,
            Self::Join(response) => peer.answer(id, version, response).await,
            Self::Sync(response) => peer.answer(id, version, response).await,
            Self::Heartbeat(response) => peer.answer(id, version, response).await,
            Self::Leave(response) => peer.answer(id, version, response).await,
        }
    }
}

impl Group {
    pub(super) fn reply(&mut self, came: &Came) -> Option<Reply> {
        Some(match came.api {
            ApiKey::CONSUMER_GROUP_HEARTBEAT => Reply::Consumer(self.consumer_heartbeat(&came.body())),
            ApiKey::JOIN_GROUP => Reply::Join(self.join(&came.body())),
            ApiKey::SYNC_GROUP => Reply::Sync(sync(&came.body())),
            ApiKey::HEARTBEAT => {
                let error_code = self.codes.pop().map_or(0, |code| code.0);
                Reply::Heartbeat(HeartbeatResponse { error_code, ..Default::default() })
            }
            ApiKey::LEAVE_GROUP => {
                let request: LeaveGroupRequest<'_> = came.body();
                self.left.extend(request.members.iter().map(|member| member.member_id.to_string()));
                Reply::Leave(LeaveGroupResponse::default())
            }
            _ => return None,
        })
    }

    fn consumer_heartbeat(
        &mut self,
        request: &ConsumerGroupHeartbeatRequest<'_>,
    ) -> ConsumerGroupHeartbeatResponse<'static> {
        self.heartbeats.push(request.member_epoch);
        if let Some(code) = self.codes.pop() {
            return ConsumerGroupHeartbeatResponse { error_code: code.0, ..Default::default() };
        }
        let leaves = request.member_epoch < 0;
        let topics = || vec![TopicPartitions { topic_id: TOPIC_ID, partitions: self.assigned.clone().into() }];
        let assignment = || Assignment { topic_partitions: topics() };
        ConsumerGroupHeartbeatResponse {
            member_epoch: if leaves { request.member_epoch } else { self.epoch },
            heartbeat_interval_ms: 1000,
            assignment: (!leaves && request.member_epoch != self.epoch).then(assignment),
            ..Default::default()
        }
    }

    fn join(&mut self, request: &JoinGroupRequest<'_>) -> JoinGroupResponse<'static> {
        if let Some(code) = self.codes.pop() {
            return JoinGroupResponse { error_code: code.0, member_id: "me".into(), ..Default::default() };
        }
        let metadata = request.protocols[0].metadata.to_vec().into();
        let member = JoinGroupResponseMember { member_id: "me".into(), metadata, ..Default::default() };
        JoinGroupResponse {
            generation_id: self.epoch,
            protocol_name: Some(request.protocols[0].name.to_string().into()),
            leader: "me".into(),
            member_id: "me".into(),
            members: vec![member],
            ..Default::default()
        }
    }
}

/// The member is its own leader.
fn sync(request: &SyncGroupRequest<'_>) -> SyncGroupResponse<'static> {
    SyncGroupResponse { assignment: request.assignments[0].assignment.to_vec().into(), ..Default::default() }
}
