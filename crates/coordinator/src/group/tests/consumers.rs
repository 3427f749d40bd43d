//! Consumer groups, heartbeat by heartbeat.

use std::collections::BTreeSet;

use milena_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use milena_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};

use super::*;
use crate::group::ConsumerHeartbeat;

/// A consumer as its client sees it.
#[derive(Debug, Clone, Default)]
pub(super) struct Consumer {
    pub(super) id: String,
    pub(super) instance: Option<String>,
    pub(super) regex: Option<String>,
    pub(super) epoch: i32,
    /// Partitions of the topic with the id 1.
    pub(super) owned: BTreeSet<i32>,
}

impl Consumer {
    pub(super) fn new(id: &str) -> Self {
        Self { id: id.to_owned(), ..Self::default() }
    }

    /// A heartbeat that says everything.
    pub(super) fn request(&self) -> ConsumerGroupHeartbeatRequest<'_> {
        let owned = TopicPartitions {
            topic_id: Uuid::from_bytes([1; 16]),
            partitions: self.owned.iter().copied().collect::<Vec<_>>().into(),
        };
        ConsumerGroupHeartbeatRequest {
            group_id: "g".into(),
            member_id: self.id.as_str().into(),
            member_epoch: self.epoch,
            instance_id: self.instance.as_deref().map(Into::into),
            rebalance_timeout_ms: 20_000,
            server_assignor: self.instance.as_ref().map(|_| "range".into()),
            subscribed_topic_names: Some(if self.regex.is_some() { Vec::new() } else { vec!["t".into()] }),
            subscribed_topic_regex: Some(self.regex.as_deref().unwrap_or_default().into()),
            topic_partitions: Some(if self.owned.is_empty() { Vec::new() } else { vec![owned] }),
            ..Default::default()
        }
    }

    /// Does what the coordinator says: gives up and takes at once.
    pub(super) fn follow(&mut self, response: &ConsumerGroupHeartbeatResponse<'_>) {
        self.epoch = response.member_epoch;
        if let Some(assignment) = &response.assignment {
            self.owned =
                assignment.topic_partitions.iter().flat_map(|topic| topic.partitions.iter().copied()).collect();
        }
    }

    /// One heartbeat, obeyed.
    pub(super) fn beat(&mut self, bench: &mut Group) -> ErrorCode {
        let response = send(bench, self.request());
        if response.error_code == 0 {
            self.follow(&response);
        }
        ErrorCode(response.error_code)
    }

    pub(super) fn leave(&mut self, bench: &mut Group, epoch: i32) -> ErrorCode {
        let request = ConsumerGroupHeartbeatRequest { member_epoch: epoch, ..self.request() };
        let left = ErrorCode(send(bench, request).error_code);
        (self.epoch, self.owned) = (0, BTreeSet::new());
        left
    }
}

pub(super) fn send(
    bench: &mut Group,
    request: ConsumerGroupHeartbeatRequest<'_>,
) -> ConsumerGroupHeartbeatResponse<'static> {
    let heartbeat = ConsumerHeartbeat { request, client_id: "c", client_host: "/127.0.0.1", requires_member_id: true };
    match bench.ask(Request::ConsumerHeartbeat(heartbeat)) {
        Reply::ConsumerHeartbeat(response) => response,
        other => panic!("{other:?}"),
    }
}

/// A group over one topic.
pub(super) fn over(partitions: usize) -> Group {
    let mut settings = settings();
    settings.metadata = Cluster::of(1, &[("t", 1, partitions)]);
    Bench::load(TestLog::new(), settings)
}

/// State, epoch and assignment epoch.
pub(super) fn described(bench: &mut Group) -> (String, i32, i32) {
    let Reply::DescribeConsumers(group) = bench.ask(Request::DescribeConsumers("g")) else { panic!("another answer") };
    (group.group_state.into(), group.group_epoch, group.assignment_epoch)
}

/// Types of the records of each batch, those of tombstones negative.
pub(super) fn kinds(bench: &Group) -> Vec<Vec<i16>> {
    let kind = |record: milena_records::Record<'_>| {
        let kind = i16::from_be_bytes([record.key.unwrap()[0], record.key.unwrap()[1]]);
        if record.value.is_some() { kind } else { -kind }
    };
    let batches = bench.log.batches.iter().map(|batch| milena_records::Batch::parse(batch).unwrap());
    batches.map(|batch| batch.plain_records().unwrap().map(|record| kind(record.unwrap())).collect()).collect()
}

#[test]
fn a_client_id_that_no_record_can_say_is_refused() {
    let mut bench = over(3);
    let one = Consumer::new("m");
    let mut refused = |client_id: &str| {
        let heartbeat =
            ConsumerHeartbeat { request: one.request(), client_id, client_host: "/h", requires_member_id: true };
        match bench.ask(Request::ConsumerHeartbeat(heartbeat)) {
            Reply::ConsumerHeartbeat(response) => ErrorCode(response.error_code),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(&"x".repeat(40_000)), ErrorCode::INVALID_REQUEST);
    assert_eq!(refused(&"x".repeat(32_767)), ErrorCode::NONE);
}

#[test]
fn a_group_of_one_is_written_as_kafka_writes_it() {
    let mut bench = over(3);
    let mut one = Consumer::new("m");
    assert_eq!(one.beat(&mut bench), ErrorCode::NONE);
    assert_eq!((one.epoch, one.owned.len()), (2, 3));
    assert_eq!(described(&mut bench), ("Stable".into(), 2, 2));
    assert_eq!(one.beat(&mut bench), ErrorCode::NONE);
    bench.advance(2_000);
    bench.settings.metadata = Cluster::of(2, &[("t", 1, 4)]);
    one.beat(&mut bench);
    assert_eq!((one.epoch, one.owned.len()), (3, 4));
    assert_eq!(one.leave(&mut bench, -1), ErrorCode::NONE);
    assert_eq!(described(&mut bench), ("Empty".into(), 4, 4));
    assert_eq!(kinds(&bench), [vec![5, 3, 7, 6, 8], vec![3, 7, 6, 8], vec![-8, -7, -5, 3, 6]]);
}

#[test]
fn partitions_move_only_when_they_were_given_up() {
    let mut bench = over(4);
    let (mut a, mut b) = (Consumer::new("a"), Consumer::new("b"));
    a.beat(&mut bench);
    // The next assignment waits for its interval.
    b.beat(&mut bench);
    assert_eq!((b.epoch, b.owned.len()), (2, 0));
    bench.advance(1_000);
    b.beat(&mut bench);
    assert_eq!((b.epoch, b.owned.len(), described(&mut bench).0), (3, 0, "Reconciling".into()));
    let told = send(&mut bench, a.request());
    assert_eq!((told.member_epoch, told.assignment.as_ref().unwrap().topic_partitions[0].partitions.len()), (2, 2));
    b.beat(&mut bench);
    assert!(b.owned.is_empty(), "before they were given up");
    a.follow(&told);
    a.beat(&mut bench);
    b.beat(&mut bench);
    assert_eq!((a.epoch, b.epoch), (3, 3));
    assert_eq!((a.owned.len(), b.owned.len(), a.owned.intersection(&b.owned).count()), (2, 2, 0));
    assert_eq!(described(&mut bench).0, "Stable");
    let mut bench = bench.restart();
    assert_eq!(described(&mut bench).0, "Stable");
    assert_eq!((a.beat(&mut bench), b.beat(&mut bench)), (ErrorCode::NONE, ErrorCode::NONE));
    assert_eq!((a.owned.len(), b.owned.len()), (2, 2));
}

#[test]
fn what_a_member_reads_no_longer_it_gives_up_before_there_is_another_assignment() {
    let mut bench = over(2);
    bench.settings.metadata = Cluster::of(1, &[("t", 1, 2), ("u", 2, 1)]);
    let mut one = Consumer::new("m");
    let reads = |names: &[&str], request: ConsumerGroupHeartbeatRequest<'static>| ConsumerGroupHeartbeatRequest {
        subscribed_topic_names: Some(names.iter().map(|name| (*name).to_owned().into()).collect()),
        ..request
    };
    let own = |one: &Consumer| ConsumerGroupHeartbeatRequest {
        group_id: "g".into(),
        member_id: one.id.clone().into(),
        member_epoch: one.epoch,
        rebalance_timeout_ms: 20_000,
        topic_partitions: if one.epoch == 0 { Some(Vec::new()) } else { None },
        ..Default::default()
    };
    let topics = |response: &ConsumerGroupHeartbeatResponse<'_>| {
        response.assignment.as_ref().map(|assignment| assignment.topic_partitions.len())
    };
    let both = send(&mut bench, reads(&["t", "u"], own(&one)));
    one.follow(&both);
    assert_eq!((one.epoch, topics(&both)), (2, Some(2)));
    let dropped = send(&mut bench, reads(&["t"], own(&one)));
    assert_eq!((dropped.member_epoch, topics(&dropped)), (2, Some(1)));
    assert_eq!(described(&mut bench), ("Assigning".into(), 3, 2));
}

#[test]
fn a_member_that_must_give_up_more_than_it_has_given_up_stays_in_its_epoch() {
    let mut bench = over(3);
    let mut one = Consumer::new("a");
    one.beat(&mut bench);
    for (other, left) in [("b", 2), ("c", 1)] {
        bench.advance(1_000);
        Consumer::new(other).beat(&mut bench);
        one.beat(&mut bench);
        assert_eq!((one.epoch, one.owned.len()), (2, left));
    }
    one.beat(&mut bench);
    assert_eq!((one.epoch, one.owned.len()), (4, 1));
}

#[test]
fn silent_members_are_dropped_and_those_who_give_nothing_up() {
    let mut bench = over(2);
    let (mut a, mut b) = (Consumer::new("a"), Consumer::new("b"));
    a.beat(&mut bench);
    bench.advance(1_000);
    b.beat(&mut bench);
    send(&mut bench, a.request());
    // It is heard of, but still owns what it should not.
    for _ in 0..4 {
        bench.advance(5_000);
        send(&mut bench, ConsumerGroupHeartbeatRequest { topic_partitions: None, ..a.request() });
        b.beat(&mut bench);
    }
    assert_eq!(a.beat(&mut bench), ErrorCode::UNKNOWN_MEMBER_ID);
    b.beat(&mut bench);
    assert_eq!(b.owned.len(), 2);
    bench.advance(45_000);
    assert_eq!(b.beat(&mut bench), ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(described(&mut bench).0, "Empty");
}

#[test]
fn epochs_fence() {
    let mut bench = over(1);
    let mut one = Consumer::new("m");
    let unknown = ConsumerGroupHeartbeatRequest { member_epoch: 5, ..one.request() };
    assert_eq!(send(&mut bench, unknown).error_code, ErrorCode::GROUP_ID_NOT_FOUND.0);
    one.beat(&mut bench);
    let mut with = |epoch| send(&mut bench, ConsumerGroupHeartbeatRequest { member_epoch: epoch, ..one.request() });
    assert_eq!(with(3).error_code, ErrorCode::FENCED_MEMBER_EPOCH.0);
    assert_eq!(with(1).error_code, ErrorCode::FENCED_MEMBER_EPOCH.0);
    assert_eq!(with(-3).error_code, ErrorCode::INVALID_REQUEST.0);
    let other = Consumer { epoch: 2, ..Consumer::new("other") };
    assert_eq!(send(&mut bench, other.request()).error_code, ErrorCode::UNKNOWN_MEMBER_ID.0);
    // The answer with the new epoch was lost.
    bench.advance(1_000);
    bench.settings.metadata = Cluster::of(2, &[("t", 1, 2)]);
    assert_eq!(send(&mut bench, one.request()).member_epoch, 3);
    assert_eq!((one.beat(&mut bench), one.epoch), (ErrorCode::NONE, 3));
    one.epoch = 0;
    one.owned.clear();
    assert_eq!((one.beat(&mut bench), one.epoch, one.owned.len()), (ErrorCode::NONE, 3, 2));
}

#[test]
fn a_static_member_finds_its_partitions_again() {
    let mut bench = over(2);
    let named = |id: &str| Consumer { instance: Some("i".to_owned()), ..Consumer::new(id) };
    let (mut first, mut second) = (named("first"), named("second"));
    first.beat(&mut bench);
    assert_eq!(second.beat(&mut bench), ErrorCode::UNRELEASED_INSTANCE_ID);
    assert_eq!(first.leave(&mut bench, -2), ErrorCode::NONE);
    let mut bench = bench.restart();
    assert_eq!(second.beat(&mut bench), ErrorCode::NONE);
    assert_eq!((second.epoch, second.owned.len(), described(&mut bench).1), (2, 2, 2));
    first.epoch = 2;
    assert_eq!(first.beat(&mut bench), ErrorCode::FENCED_INSTANCE_ID);
    bench.advance(50_000);
    assert_eq!(described(&mut bench).0, "Empty");
}

#[test]
fn an_expression_is_looked_up_after_the_heartbeat_and_again_when_there_are_topics() {
    let mut bench = over(2);
    let mut one = Consumer { regex: Some("t|u.*".to_owned()), ..Consumer::new("m") };
    one.beat(&mut bench);
    assert_eq!((one.epoch, one.owned.len()), (1, 0));
    one.beat(&mut bench);
    assert_eq!((one.epoch, one.owned.len()), (2, 2));
    assert_eq!(kinds(&bench), [vec![5, 8], vec![16, 3], vec![7, 6, 8]]);
    bench.settings.metadata = Cluster::of(2, &[("t", 1, 2), ("tu", 3, 1), ("unit", 2, 1)]);
    bench.advance(10_001);
    one.beat(&mut bench);
    one.beat(&mut bench);
    assert_eq!((one.epoch, one.owned.len()), (3, 2));
    assert_eq!(described(&mut bench).0, "Stable");
    let bad = Consumer { regex: Some("(?=t)".to_owned()), ..Consumer::new("other") };
    assert_eq!(send(&mut bench, bad.request()).error_code, ErrorCode::INVALID_REGULAR_EXPRESSION.0);
}

#[test]
fn expressions_are_looked_up_at_most_every_ten_seconds() {
    let mut bench = over(2);
    let regex = |id: &str, regex: &str| Consumer { regex: Some(regex.to_owned()), ..Consumer::new(id) };
    let (mut one, mut two) = (regex("one", "none"), regex("two", "t"));
    one.beat(&mut bench);
    one.beat(&mut bench);
    assert_eq!(described(&mut bench), ("Stable".into(), 1, 1), "an expression for no topic begins no epoch");
    two.beat(&mut bench);
    bench.advance(10_000);
    two.beat(&mut bench);
    two.beat(&mut bench);
    assert_eq!((two.epoch, two.owned.len()), (1, 0));
    bench.advance(1);
    two.beat(&mut bench);
    two.beat(&mut bench);
    assert_eq!((two.epoch, two.owned.len()), (2, 2));
}

#[test]
fn a_clock_that_was_set_back_does_not_keep_an_expression_waiting() {
    let mut bench = over(2);
    let regex = |id: &str, regex: &str| Consumer { regex: Some(regex.to_owned()), ..Consumer::new(id) };
    let (mut one, mut two) = (regex("one", "none"), regex("two", "t"));
    one.beat(&mut bench);
    bench.log.now.wall_ms -= 1_000;
    two.beat(&mut bench);
    two.beat(&mut bench);
    assert_eq!(two.owned.len(), 2);
}

#[test]
fn what_a_member_is_to_give_up_is_described_as_its_own() {
    let mut bench = over(4);
    let (mut one, mut two) = (Consumer::new("one"), Consumer::new("two"));
    one.beat(&mut bench);
    bench.advance(2_000);
    two.beat(&mut bench);
    let told = send(&mut bench, one.request());
    assert_eq!(told.assignment.unwrap().topic_partitions[0].partitions.len(), 2);
    let Reply::DescribeConsumers(group) = bench.ask(Request::DescribeConsumers("g")) else { panic!("another answer") };
    let described = group.members.iter().find(|member| &*member.member_id == "one").unwrap();
    let partitions = |all: &[_]| -> usize {
        all.iter()
            .map(|topic: &milena_protocol::messages::consumer_group_describe_response::TopicPartitions<'_>| {
                topic.partitions.len()
            })
            .sum()
    };
    let counts = (&described.assignment, &described.target_assignment);
    assert_eq!((partitions(&counts.0.topic_partitions), partitions(&counts.1.topic_partitions)), (4, 2));
}

#[test]
fn offsets_are_committed_and_fetched_in_the_member_epoch() {
    let mut bench = over(2);
    let mut one = Consumer::new("m");
    one.beat(&mut bench);
    let mut by = |member: &str, epoch, version| {
        let mut request = commit_request(member, epoch, "t", &[(0, 7, "")]);
        request.topics[0].topic_id = Uuid::from_bytes([1; 16]);
        commit(&mut bench, request, version)
    };
    assert_eq!(by("m", 2, 9), [ErrorCode::NONE]);
    assert_eq!(by("m", 2, 8), [ErrorCode::UNSUPPORTED_VERSION]);
    assert_eq!([by("m", 3, 9), by("m", 1, 9)].concat(), [ErrorCode::STALE_MEMBER_EPOCH; 2]);
    assert_eq!([by("other", 2, 9), by("", -1, 9)].concat(), [ErrorCode::UNKNOWN_MEMBER_ID; 2]);
    bench.advance(1_000);
    bench.settings.metadata = Cluster::of(2, &[("t", 1, 3)]);
    one.beat(&mut bench);
    // It has had partition 0 since epoch 2, and partition 2 since epoch 3.
    let mut request = commit_request("m", 2, "t", &[(0, 8, ""), (2, 8, "")]);
    request.topics[0].topic_id = Uuid::from_bytes([1; 16]);
    assert_eq!(commit(&mut bench, request, 10), [ErrorCode::NONE, ErrorCode::STALE_MEMBER_EPOCH]);
    assert_eq!(fetch(&mut bench, 0), 8);
    let mut fetched = |member_epoch| {
        let group = OffsetFetchRequestGroup {
            group_id: "g".into(),
            member_id: Some("m".into()),
            member_epoch,
            ..Default::default()
        };
        match bench.ask(Request::Fetch { group, require_stable: false, most_bytes: usize::MAX }) {
            Reply::Fetch(fetched) => fetched.error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((fetched(3), fetched(2)), (ErrorCode::NONE, ErrorCode::STALE_MEMBER_EPOCH));
}

#[test]
fn a_group_without_members_changes_its_kind() {
    let mut bench = over(1);
    commit(&mut bench, commit_request("", -1, "t", &[(0, 5, "")]), 8);
    let mut one = Consumer::new("m");
    assert_eq!((one.beat(&mut bench), fetch(&mut bench, 0)), (ErrorCode::NONE, 5));
    one.leave(&mut bench, -1);
    let member = stable(&mut bench);
    assert_eq!(one.beat(&mut bench), ErrorCode::GROUP_ID_NOT_FOUND);
    let mut bench = bench.restart();
    assert_eq!((heartbeat(&mut bench, &member, 1), state(&mut bench).as_str()), (ErrorCode::NONE, "Stable"));
    bench.advance(20_000);
    assert_eq!(one.beat(&mut bench), ErrorCode::NONE);
    let mut bench = bench.restart();
    assert_eq!((described(&mut bench).0.as_str(), state(&mut bench).as_str()), ("Stable", "Dead"));
    assert_eq!(fetch(&mut bench, 0), 5);
}

#[test]
fn what_can_not_be_written_has_not_happened() {
    let mut bench = over(2);
    let mut one = Consumer::new("m");
    bench.log.failure = Some(ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!(one.beat(&mut bench), ErrorCode::NOT_COORDINATOR);
    bench.log.failure = None;
    assert_eq!(bench.runtime.engine().len(), 0);
    assert_eq!((one.beat(&mut bench), one.owned.len()), (ErrorCode::NONE, 2));
}
