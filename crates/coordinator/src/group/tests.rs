//! Scenarios of groups over a log in memory and a clock that stands still until it is moved.

mod classic;
mod consumers;
mod embedded;
mod migration;
mod offsets;
mod rebalances;
mod simulation;

use std::collections::BTreeMap;
use std::sync::Arc;

use milena_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use milena_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use milena_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use milena_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use milena_protocol::messages::{
    HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, OffsetCommitRequest, SyncGroupRequest, SyncGroupResponse,
};
use milena_protocol::{ErrorCode, Uuid};

use super::consumer::{Metadata, TopicInfo};
use super::fetch::FetchedOffset;
use super::{GroupSettings, Groups, Join, Migration, Reply, Request};
use crate::engine::Ticket;
use crate::test_log::{Bench, TestLog};

pub(crate) type Group = Bench<Groups>;

/// Topics by name, with a number for an id and how many partitions they have.
#[derive(Debug, Clone, Default)]
struct Cluster {
    version: i64,
    topics: BTreeMap<String, (u8, usize)>,
}

impl Cluster {
    fn of(version: i64, topics: &[(&str, u8, usize)]) -> Arc<Self> {
        let topics = topics.iter().map(|(name, id, partitions)| ((*name).to_owned(), (*id, *partitions))).collect();
        Arc::new(Self { version, topics })
    }
}

impl Metadata for Cluster {
    fn version(&self) -> i64 {
        self.version
    }

    fn topic(&self, name: &str) -> Option<TopicInfo> {
        let (id, partitions) = self.topics.get(name)?;
        Some(TopicInfo { id: Uuid::from_bytes([*id; 16]), racks: vec![Vec::new(); *partitions] })
    }

    fn name(&self, id: Uuid) -> Option<String> {
        self.topics.iter().find(|(_, (known, _))| id == Uuid::from_bytes([*known; 16])).map(|(name, _)| name.clone())
    }

    fn names(&self) -> Vec<String> {
        self.topics.keys().cloned().collect()
    }

    fn assignors(&self) -> Vec<String> {
        ["uniform", "range"].map(str::to_owned).to_vec()
    }

    fn group_config(&self, _: &str, name: &str) -> i64 {
        match name {
            "consumer.session.timeout.ms" => 45_000,
            "consumer.heartbeat.interval.ms" => 5_000,
            "consumer.assignment.interval.ms" => 1_000,
            other => panic!("{other}"),
        }
    }
}

pub(crate) fn settings() -> GroupSettings {
    GroupSettings {
        min_session_timeout_ms: 6_000,
        max_session_timeout_ms: 1_800_000,
        max_size: 3,
        initial_rebalance_delay_ms: 3_000,
        offset_metadata_max_bytes: 8,
        offsets_retention_ms: 1_000_000,
        offsets_retention_check_interval_ms: 600_000,
        consumer_max_size: 3,
        migration: Migration { upgrades: true, downgrades: true },
        metadata: Arc::new(Cluster::default()),
    }
}

fn bench() -> Group {
    Bench::load(TestLog::new(), settings())
}

/// A JoinGroup with what most tests want.
fn join_request<'r>(member: &'r str, protocols: &[&'r str]) -> JoinGroupRequest<'r> {
    let protocol = |name: &&'r str| JoinGroupRequestProtocol { name: (*name).into(), metadata: b"m"[..].into() };
    JoinGroupRequest {
        group_id: "g".into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        member_id: member.into(),
        protocol_type: "consumer".into(),
        protocols: protocols.iter().map(protocol).collect(),
        ..Default::default()
    }
}

fn send_join(bench: &mut Group, request: JoinGroupRequest<'_>) -> Ticket {
    bench.send(Request::Join(Join {
        request,
        client_id: "c",
        client_host: "/127.0.0.1",
        requires_member_id: false,
        skips_assignment: true,
    }))
}

fn join(bench: &mut Group, member: &str) -> Ticket {
    send_join(bench, join_request(member, &["range"]))
}

fn joined(bench: &mut Group, ticket: Ticket) -> Option<JoinGroupResponse<'static>> {
    match bench.reply(ticket)? {
        Reply::Join(response) => Some(response),
        other => panic!("{other:?}"),
    }
}

fn send_sync(bench: &mut Group, member: &str, generation: i32, assignment: &[(&str, &[u8])]) -> Ticket {
    let assignments = assignment
        .iter()
        .map(|(member, bytes)| SyncGroupRequestAssignment { member_id: (*member).into(), assignment: (*bytes).into() });
    bench.send(Request::Sync(SyncGroupRequest {
        group_id: "g".into(),
        generation_id: generation,
        member_id: member.into(),
        assignments: assignments.collect(),
        ..Default::default()
    }))
}

fn synced(bench: &mut Group, ticket: Ticket) -> Option<SyncGroupResponse<'static>> {
    match bench.reply(ticket)? {
        Reply::Sync(response) => Some(response),
        other => panic!("{other:?}"),
    }
}

fn heartbeat(bench: &mut Group, member: &str, generation: i32) -> ErrorCode {
    let request = HeartbeatRequest {
        group_id: "g".into(),
        generation_id: generation,
        member_id: member.into(),
        ..Default::default()
    };
    match bench.ask(Request::Heartbeat(request)) {
        Reply::Heartbeat(response) => ErrorCode(response.error_code),
        other => panic!("{other:?}"),
    }
}

fn describe(bench: &mut Group) -> (String, Vec<String>) {
    let Reply::Describe(group) = bench.ask(Request::Describe("g")) else { panic!("another answer") };
    let members = group.members.iter().map(|member| member.member_id.to_string()).collect();
    (group.group_state.into(), members)
}

fn state(bench: &mut Group) -> String {
    describe(bench).0
}

/// A group that is stable with one member, which is returned.
fn stable(bench: &mut Group) -> String {
    let ticket = join(bench, "");
    bench.advance(3_000);
    let member = joined(bench, ticket).unwrap().member_id.to_string();
    let ticket = send_sync(bench, &member, 1, &[(&member, b"a")]);
    assert_eq!(synced(bench, ticket).unwrap().assignment[..], *b"a");
    member
}

fn commit_request<'r>(
    member: &'r str,
    generation: i32,
    topic: &'r str,
    offsets: &[(i32, i64, &'r str)],
) -> OffsetCommitRequest<'r> {
    let partition = |(index, offset, metadata): &(i32, i64, &'r str)| OffsetCommitRequestPartition {
        partition_index: *index,
        committed_offset: *offset,
        committed_metadata: Some((*metadata).into()),
        ..Default::default()
    };
    OffsetCommitRequest {
        group_id: "g".into(),
        member_id: member.into(),
        generation_id_or_member_epoch: generation,
        topics: vec![OffsetCommitRequestTopic {
            name: topic.into(),
            topic_id: Uuid::ONE,
            partitions: offsets.iter().map(partition).collect(),
        }],
        ..Default::default()
    }
}

fn commit(bench: &mut Group, request: OffsetCommitRequest<'_>, version: i16) -> Vec<ErrorCode> {
    match bench.ask(Request::Commit { request, version }) {
        Reply::Commit(topics) => {
            topics.iter().flat_map(|topic| &topic.partitions).map(|partition| ErrorCode(partition.error_code)).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn fetch_all(bench: &mut Group, require_stable: bool) -> Vec<(String, Vec<FetchedOffset>)> {
    let group = OffsetFetchRequestGroup { group_id: "g".into(), topics: None, ..Default::default() };
    match bench.ask(Request::Fetch { group, require_stable, most_bytes: usize::MAX }) {
        Reply::Fetch(fetched) => fetched.topics,
        other => panic!("{other:?}"),
    }
}

/// The committed offset of a partition of `t`, or -1.
pub(crate) fn fetch(bench: &mut Group, partition: i32) -> i64 {
    let partitions = vec![partition];
    let topics =
        vec![OffsetFetchRequestTopics { name: "t".into(), partition_indexes: partitions.into(), ..Default::default() }];
    let group = OffsetFetchRequestGroup { group_id: "g".into(), topics: Some(topics), ..Default::default() };
    match bench.ask(Request::Fetch { group, require_stable: false, most_bytes: usize::MAX }) {
        Reply::Fetch(fetched) => fetched.topics[0].1[0].offset,
        other => panic!("{other:?}"),
    }
}
