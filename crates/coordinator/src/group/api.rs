//! What a group's partition is asked, and what it answers.

use std::collections::BTreeSet;
use std::sync::Arc;

use milena_protocol::ErrorCode;
use milena_protocol::messages::consumer_group_describe_response;
use milena_protocol::messages::delete_groups_response::DeletableGroupResult;
use milena_protocol::messages::describe_groups_response::DescribedGroup;
use milena_protocol::messages::list_groups_response::ListedGroup;
use milena_protocol::messages::offset_commit_response::OffsetCommitResponseTopic;
use milena_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use milena_protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, HeartbeatRequest, HeartbeatResponse,
    JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, OffsetCommitRequest,
    OffsetDeleteRequest, OffsetDeleteResponse, SyncGroupRequest, SyncGroupResponse,
};

use super::consumer::Metadata;
use super::fetch::FetchedGroup;
use crate::transaction::Producer;

/// Which way groups with members may change their protocol (`group.consumer.migration.policy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Migration {
    /// From classic groups to consumer groups.
    pub upgrades: bool,
    /// And back.
    pub downgrades: bool,
}

/// What groups take from the configuration.
#[derive(Debug, Clone)]
pub struct GroupSettings {
    /// Shortest session, ms (`group.min.session.timeout.ms`).
    pub min_session_timeout_ms: i32,
    /// Longest session, ms (`group.max.session.timeout.ms`).
    pub max_session_timeout_ms: i32,
    /// Most members of a group (`group.max.size`).
    pub max_size: usize,
    /// How long an empty group waits for further members, ms (`group.initial.rebalance.delay.ms`).
    pub initial_rebalance_delay_ms: i32,
    /// Longest metadata of a committed offset, UTF-16 units (`offset.metadata.max.bytes`).
    pub offset_metadata_max_bytes: usize,
    /// How long offsets are kept, ms (`offsets.retention.minutes`).
    pub offsets_retention_ms: i64,
    /// How often offsets are looked through for old ones, ms (`offsets.retention.check.interval.ms`).
    pub offsets_retention_check_interval_ms: i64,
    /// Most members of a consumer group (`group.consumer.max.size`).
    pub consumer_max_size: usize,
    /// Which way groups with members may change their protocol.
    pub migration: Migration,
    /// The cluster.
    pub metadata: Arc<dyn Metadata>,
}

/// JoinGroup, with what the request itself does not say.
#[derive(Debug)]
pub struct Join<'r> {
    /// The request.
    pub request: JoinGroupRequest<'r>,
    /// The client's name for itself.
    pub client_id: &'r str,
    /// The address it came from, as Kafka writes it: a slash before it.
    pub client_host: &'r str,
    /// A new member is first given an id, and joins with it (from version 4).
    pub requires_member_id: bool,
    /// A leader that comes back may be told that its assignment stands (from version 9).
    pub skips_assignment: bool,
}

/// ConsumerGroupHeartbeat, with what the request itself does not say.
#[derive(Debug)]
pub struct ConsumerHeartbeat<'r> {
    /// The request.
    pub request: ConsumerGroupHeartbeatRequest<'r>,
    /// The client's name for itself.
    pub client_id: &'r str,
    /// The address it came from, as Kafka writes it: a slash before it.
    pub client_host: &'r str,
    /// A member brings its own id (from version 1).
    pub requires_member_id: bool,
}

/// Which groups ListGroups names; an empty set admits all.
#[derive(Debug)]
pub struct ListFilter<'r> {
    /// States, in lower case.
    pub states: &'r BTreeSet<String>,
    /// Types, in lower case.
    pub types: &'r BTreeSet<String>,
}

/// Names of topics that are gone.
pub type DeletedTopics<'r> = &'r [String];

/// A request to one partition's groups.
#[derive(Debug)]
pub enum Request<'r> {
    /// JoinGroup.
    Join(Join<'r>),
    /// SyncGroup.
    Sync(SyncGroupRequest<'r>),
    /// Heartbeat.
    Heartbeat(HeartbeatRequest<'r>),
    /// LeaveGroup; members are in the list in every version.
    Leave(LeaveGroupRequest<'r>),
    /// ConsumerGroupHeartbeat.
    ConsumerHeartbeat(ConsumerHeartbeat<'r>),
    /// ConsumerGroupDescribe of one group.
    DescribeConsumers(&'r str),
    /// OffsetCommit. Topics exist, and have their names and ids.
    Commit {
        /// The request.
        request: OffsetCommitRequest<'r>,
        /// Its version.
        version: i16,
    },
    /// TxnOffsetCommit, as an OffsetCommit: its offsets count when the producer's transaction is committed. Topics exist,
    /// and have their names and ids.
    CommitInTransaction {
        /// The request.
        request: OffsetCommitRequest<'r>,
        /// Version of the TxnOffsetCommit.
        version: i16,
        /// Whose transaction.
        producer: Producer,
    },
    /// OffsetFetch of one group. Topics have their names.
    Fetch {
        /// The group.
        group: OffsetFetchRequestGroup<'r>,
        /// Offsets that a transaction is about to change are refused.
        require_stable: bool,
        /// Most bytes that the answer may take in memory; more is refused with INVALID_REQUEST.
        most_bytes: usize,
    },
    /// OffsetDelete. Topics exist.
    DeleteOffsets(OffsetDeleteRequest<'r>),
    /// ListGroups.
    List(ListFilter<'r>),
    /// DescribeGroups of one group.
    Describe(&'r str),
    /// DeleteGroups of one group.
    Delete(&'r str),
    /// Topics are gone, and so their offsets.
    TopicsDeleted(DeletedTopics<'r>),
}

/// An answer.
#[derive(Debug, PartialEq)]
pub enum Reply {
    /// To [`Request::Join`].
    Join(JoinGroupResponse<'static>),
    /// To [`Request::Sync`].
    Sync(SyncGroupResponse<'static>),
    /// To [`Request::Heartbeat`].
    Heartbeat(HeartbeatResponse),
    /// To [`Request::Leave`].
    Leave(LeaveGroupResponse<'static>),
    /// To [`Request::ConsumerHeartbeat`].
    ConsumerHeartbeat(ConsumerGroupHeartbeatResponse<'static>),
    /// To [`Request::DescribeConsumers`].
    DescribeConsumers(consumer_group_describe_response::DescribedGroup<'static>),
    /// To [`Request::Commit`] and [`Request::CommitInTransaction`], with names and ids of the topics.
    Commit(Vec<OffsetCommitResponseTopic<'static>>),
    /// To [`Request::Fetch`].
    Fetch(FetchedGroup),
    /// To [`Request::DeleteOffsets`].
    DeleteOffsets(OffsetDeleteResponse<'static>),
    /// To [`Request::List`].
    List(Vec<ListedGroup<'static>>),
    /// To [`Request::Describe`]; a group that does not exist is Dead.
    Describe(DescribedGroup<'static>),
    /// To [`Request::Delete`].
    Delete(DeletableGroupResult<'static>),
    /// To [`Request::TopicsDeleted`].
    TopicsDeleted,
}

impl Reply {
    /// The same, or the failure of what it promises.
    pub(super) fn or_failed(self, outcome: Result<(), ErrorCode>) -> Self {
        let Err(error) = outcome else { return self };
        match self {
            Self::DeleteOffsets(_) => {
                Self::DeleteOffsets(OffsetDeleteResponse { error_code: error.0, ..Default::default() })
            }
            Self::Delete(deleted) if deleted.error_code == 0 => {
                Self::Delete(DeletableGroupResult { error_code: error.0, ..deleted })
            }
            other => other,
        }
    }
}
