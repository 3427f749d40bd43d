use std::time::Duration;

use milena_protocol::messages::join_group_response::JoinGroupResponseMember;
use milena_protocol::messages::{HeartbeatResponse, LeaveGroupResponse};

use super::*;
use crate::backoff::Backoff;

const SECOND: Duration = Duration::from_secs(1);

/// A member, its time, and what the coordinator would say.
struct Test {
    member: Classic,
    now: Instant,
}

fn topics(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn known(counts: &[(&str, usize)]) -> Topics {
    counts.iter().map(|(name, count)| ((*name).to_owned(), vec![BTreeSet::new(); *count])).collect()
}

fn partitions(of: &[(&str, i32)]) -> Vec<TopicPartition> {
    of.iter().map(|(topic, partition)| TopicPartition::new(*topic, *partition)).collect()
}

fn test(settings: &[(&str, &str)]) -> Test {
    let mut config = GroupConfig::default();
    (config.group, config.rack) = ("g".to_owned(), Some("r".to_owned()));
    for (key, value) in settings {
        config.set(key, value).unwrap();
    }
    let now = Instant::now();
    let backoff = Backoff { first: SECOND, max: SECOND };
    let duties = Duties::new(config.max_poll_interval, backoff, now);
    Test { member: Classic::new(Arc::new(config), duties, topics(&["t"]), now), now }
}

impl Test {
    fn next(&mut self) -> Step {
        self.member.next(self.now)
    }

    fn join(&mut self) -> JoinGroupRequest<'static> {
        let Step::Send(Request::Join(request)) = self.next() else { panic!("{:?}", self.member) };
        request
    }

    fn sync(&mut self) -> SyncGroupRequest<'static> {
        let Step::Send(Request::Sync(request)) = self.next() else { panic!("{:?}", self.member) };
        request
    }

    fn heartbeat(&mut self) {
        self.now += 3 * SECOND;
        let step = self.next();
        assert!(matches!(step, Step::Send(Request::Heartbeat(_))), "{step:?}");
    }

    fn joined(
        &mut self,
        generation: i32,
        assignor: &'static str,
        leader: bool,
        members: &[(&'static str, Subscription)],
    ) {
        let members = members.iter().map(|(id, subscription)| JoinGroupResponseMember {
            member_id: (*id).into(),
            metadata: wire::write_subscription(subscription).unwrap().into(),
            ..Default::default()
        });
        let response = JoinGroupResponse {
            generation_id: generation,
            protocol_name: Some(assignor.into()),
            leader: if leader { "me".into() } else { "other".into() },
            member_id: "me".into(),
            members: members.collect(),
            ..Default::default()
        };
        self.member.received(&Answer::Join(response), self.now);
    }

    fn synced(&mut self, assigned: &[(&str, i32)]) {
        let assignment = wire::write_assignment(&partitions(assigned)).unwrap().into();
        self.member.received(&Answer::Sync(SyncGroupResponse { assignment, ..Default::default() }), self.now);
    }

    /// A member of this generation that follows, with this assignment, which the consumer has taken.
    fn stable(&mut self, generation: i32, assignor: &'static str, assigned: &[(&str, i32)]) {
        self.join();
        self.joined(generation, assignor, false, &[]);
        self.sync();
        self.synced(assigned);
        while self.member.duties.change().is_some() {
            self.member.duties.acknowledge();
        }
    }

    fn refuse_heartbeat(&mut self, code: ErrorCode) {
        self.heartbeat();
        let answer = Answer::Heartbeat(HeartbeatResponse { error_code: code.0, ..Default::default() });
        self.member.received(&answer, self.now);
    }

    fn refuse_join(&mut self, code: ErrorCode) {
        self.join();
        let response = JoinGroupResponse { error_code: code.0, member_id: "me".into(), ..Default::default() };
        self.member.received(&Answer::Join(response), self.now);
    }

    fn take(&mut self) -> Option<Change> {
        let change = self.member.duties.change().cloned();
        self.member.duties.acknowledge();
        change
    }
}

fn told(request: &JoinGroupRequest<'_>, assignor: &str) -> Subscription {
    let protocol = request.protocols.iter().find(|protocol| protocol.name == assignor).unwrap();
    wire::read_subscription(&protocol.metadata).unwrap()
}

#[test]
fn a_member_joins_with_the_id_that_it_is_given_and_takes_its_assignment() {
    let mut test = test(&[]);
    let first = test.join();
    assert_eq!((first.member_id.as_ref(), first.session_timeout_ms, first.rebalance_timeout_ms), ("", 45_000, 300_000));
    assert_eq!(told(&first, "range").rack.as_deref(), Some("r"));
    let response =
        JoinGroupResponse { error_code: ErrorCode::MEMBER_ID_REQUIRED.0, member_id: "me".into(), ..Default::default() };
    test.member.received(&Answer::Join(response), test.now);
    assert_eq!(test.join().member_id, "me");
    test.joined(3, "range", false, &[]);
    assert_eq!(test.sync().generation_id, 3);
    test.synced(&[("t", 1)]);
    assert_eq!(test.take(), Some(Change::Assign(partitions(&[("t", 1)]))));
    assert_eq!(test.member.identity().generation, 3);
    let until = test.now + 3 * SECOND;
    assert!(matches!(test.next(), Step::Wait(Some(at)) if at == until));
    test.heartbeat();
}

#[test]
fn a_leader_learns_all_topics_of_the_group_and_divides_again_when_they_grow() {
    let mut test = test(&[]);
    test.join();
    let subscribed =
        |names: &[&str]| Subscription { topics: topics(names).into_iter().collect(), ..Default::default() };
    test.joined(1, "range", true, &[("me", subscribed(&["t"])), ("you", subscribed(&["t", "u"]))]);
    assert!(matches!(test.next(), Step::Learn(_)));
    assert_eq!(test.member.watched(), topics(&["t", "u"]));
    test.member.learnt(&known(&[("t", 2), ("u", 1), ("other", 7)]));
    let sync = test.sync();
    let given: Vec<_> =
        sync.assignments.iter().map(|to| (to.member_id.as_ref(), wire::read_assignment(&to.assignment))).collect();
    let (mine, yours) = (partitions(&[("t", 0)]), partitions(&[("t", 1), ("u", 0)]));
    assert_eq!(given, [("me", Some(mine)), ("you", Some(yours))]);
    test.synced(&[("t", 0)]);
    test.take();
    test.member.learnt(&known(&[("t", 2), ("u", 1)]));
    assert!(matches!(test.next(), Step::Wait(_)));
    test.member.learnt(&known(&[("t", 3), ("u", 1)]));
    assert!(matches!(test.next(), Step::Wait(_)));
    assert_eq!(test.take(), Some(Change::Revoke(partitions(&[("t", 0)]))));
    assert_eq!(test.join().reason.as_deref(), Some("partitions of the group's topics have changed"));
}

#[test]
fn a_leader_that_can_not_learn_the_topics_stays_alive_until_the_group_is_divided_anew() {
    let mut test = test(&[]);
    test.join();
    let subscription = Subscription { topics: vec!["t".to_owned()], ..Default::default() };
    test.joined(1, "range", true, &[("me", subscription)]);
    assert!(matches!(test.next(), Step::Learn(until) if until == test.now + 3 * SECOND));
    test.heartbeat();
    test.member.received(&Answer::Heartbeat(HeartbeatResponse::default()), test.now);
    assert!(matches!(test.next(), Step::Learn(_)));
    test.heartbeat();
    test.member.received(&Answer::Failed(Error::timeout("Heartbeat", SECOND, None)), test.now);
    test.now += 2 * SECOND;
    assert!(matches!(test.next(), Step::Learn(_)));
    test.refuse_heartbeat(ErrorCode::REBALANCE_IN_PROGRESS);
    assert_eq!(test.join().member_id, "me");
}

#[test]
fn a_leader_of_who_wants_nothing_needs_no_topics() {
    let mut test = test(&[]);
    test.join();
    test.joined(1, "range", true, &[("me", Subscription::default())]);
    assert_eq!(test.sync().assignments.len(), 1);
}

#[test]
fn a_static_leader_that_comes_back_leaves_the_assignment_as_it_is() {
    let mut test = test(&[("group.instance.id", "i")]);
    test.join();
    let response = JoinGroupResponse {
        generation_id: 4,
        protocol_name: Some("range".into()),
        leader: "me".into(),
        member_id: "me".into(),
        skip_assignment: true,
        ..Default::default()
    };
    test.member.received(&Answer::Join(response), test.now);
    assert!(test.sync().assignments.is_empty());
}

#[test]
fn an_eager_member_gives_up_everything_before_it_joins_again_and_stays_alive_meanwhile() {
    let mut test = test(&[]);
    test.stable(1, "range", &[("t", 0), ("t", 1)]);
    test.refuse_heartbeat(ErrorCode::REBALANCE_IN_PROGRESS);
    assert!(matches!(test.next(), Step::Wait(_)));
    test.heartbeat();
    test.member.received(&Answer::Heartbeat(HeartbeatResponse::default()), test.now);
    assert_eq!(test.take(), Some(Change::Revoke(partitions(&[("t", 0), ("t", 1)]))));
    let request = test.join();
    assert_eq!((request.member_id.as_ref(), told(&request, "range").owned), ("me", Vec::new()));
}

#[test]
fn a_cooperative_member_keeps_what_it_has_and_joins_again_after_it_gave_up_what_others_get() {
    let mut test = test(&[("partition.assignment.strategy", "cooperative-sticky")]);
    test.stable(1, "cooperative-sticky", &[("t", 0), ("t", 1)]);
    test.refuse_heartbeat(ErrorCode::REBALANCE_IN_PROGRESS);
    let request = test.join();
    let subscription = told(&request, "cooperative-sticky");
    assert_eq!(subscription.owned, partitions(&[("t", 0), ("t", 1)]));
    assert_eq!(subscription.generation, Some(1));
    test.joined(2, "cooperative-sticky", false, &[]);
    test.sync();
    test.synced(&[("t", 1), ("t", 2)]);
    assert!(matches!(test.next(), Step::Wait(_)));
    assert_eq!(test.take(), Some(Change::Revoke(partitions(&[("t", 0)]))));
    assert_eq!(test.take(), Some(Change::Assign(partitions(&[("t", 2)]))));
    let again = test.join();
    assert_eq!(told(&again, "cooperative-sticky").owned, partitions(&[("t", 1), ("t", 2)]));
}

#[test]
fn the_sticky_assignor_is_told_what_the_member_had() {
    let mut test = test(&[("partition.assignment.strategy", "sticky")]);
    assert_eq!(told(&test.join(), "sticky").user_data, None);
    test.joined(1, "sticky", false, &[]);
    test.sync();
    test.synced(&[("t", 4)]);
    test.take();
    test.refuse_heartbeat(ErrorCode::REBALANCE_IN_PROGRESS);
    test.next();
    test.take();
    let had = wire::previous_assignment(&told(&test.join(), "sticky").user_data.unwrap());
    assert_eq!(had, Some((partitions(&[("t", 4)]), Some(1))));
}

#[test]
fn a_member_that_is_not_known_any_more_has_lost_what_it_had() {
    for (code, id) in [(ErrorCode::UNKNOWN_MEMBER_ID, ""), (ErrorCode::ILLEGAL_GENERATION, "me")] {
        let mut test = test(&[("partition.assignment.strategy", "cooperative-sticky")]);
        test.stable(1, "cooperative-sticky", &[("t", 0)]);
        test.refuse_heartbeat(code);
        assert!(matches!(test.next(), Step::Wait(_)));
        assert_eq!(test.take(), Some(Change::Lost(partitions(&[("t", 0)]))));
        let request = test.join();
        let subscription = told(&request, "cooperative-sticky");
        assert_eq!((request.member_id.as_ref(), subscription.owned, subscription.generation), (id, Vec::new(), None));
    }
}

#[test]
fn what_another_try_can_heal_is_tried_again_after_a_while() {
    let codes = [
        ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode::COORDINATOR_NOT_AVAILABLE,
        ErrorCode::NOT_COORDINATOR,
        ErrorCode::UNKNOWN_MEMBER_ID,
    ];
    for code in codes {
        let mut test = test(&[]);
        test.refuse_join(code);
        assert!(matches!(test.next(), Step::Wait(Some(_))), "{code:?}");
        test.now += 2 * SECOND;
        test.join();
    }
    let mut test = test(&[]);
    test.join();
    let lost = Error::timeout("JoinGroup", SECOND, None);
    test.member.received(&Answer::Failed(lost), test.now);
    test.now += 2 * SECOND;
    test.join();
}

#[test]
fn what_no_try_can_heal_is_told() {
    let codes = [
        ErrorCode::GROUP_AUTHORIZATION_FAILED,
        ErrorCode::INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode::FENCED_INSTANCE_ID,
        ErrorCode::INVALID_SESSION_TIMEOUT,
        ErrorCode::GROUP_MAX_SIZE_REACHED,
    ];
    for code in codes {
        let mut test = test(&[]);
        test.refuse_join(code);
        assert!(matches!(test.next(), Step::Wait(None)));
        let told = test.member.duties.take_error(test.now);
        assert_eq!(told.and_then(|error| error.code()), Some(code));
        assert!(matches!(test.next(), Step::Wait(Some(_))));
        test.now += 2 * SECOND;
        test.join();
    }
}

#[test]
fn a_sync_that_fails_leads_to_a_new_join() {
    let mut test = test(&[]);
    test.join();
    test.joined(1, "range", false, &[]);
    test.sync();
    let code = ErrorCode::REBALANCE_IN_PROGRESS.0;
    test.member.received(&Answer::Sync(SyncGroupResponse { error_code: code, ..Default::default() }), test.now);
    assert_eq!(test.join().member_id, "me");
}

#[test]
fn who_does_not_ask_for_records_in_time_leaves_until_it_asks_again() {
    let mut test = test(&[("max.poll.interval.ms", "10000")]);
    test.stable(1, "range", &[("t", 0)]);
    test.now += 10 * SECOND;
    let Step::Send(Request::Leave(request)) = test.next() else { panic!("{:?}", test.member) };
    assert_eq!(request.members[0].member_id, "me");
    test.member.received(&Answer::Leave(LeaveGroupResponse::default()), test.now);
    assert_eq!(test.take(), Some(Change::Lost(partitions(&[("t", 0)]))));
    assert!(matches!(test.next(), Step::Wait(None)));
    assert!(test.member.duties.polls(true, test.now));
    assert_eq!(test.join().member_id, "");
}

#[test]
fn who_waits_for_records_that_do_not_come_stays_a_member() {
    let mut test = test(&[("max.poll.interval.ms", "10000")]);
    test.stable(1, "range", &[("t", 0)]);
    test.member.duties.polls(true, test.now);
    test.now += 60 * SECOND;
    test.heartbeat();
    test.member.received(&Answer::Heartbeat(HeartbeatResponse::default()), test.now);
    let until = test.now + 3 * SECOND;
    assert!(matches!(test.next(), Step::Wait(Some(at)) if at == until));
    test.member.duties.polls(false, test.now);
    test.now += 10 * SECOND;
    assert!(matches!(test.next(), Step::Send(Request::Leave(_))));
}

#[test]
fn a_member_leaves_once_and_a_static_one_stays() {
    let mut test = test(&[]);
    test.stable(1, "range", &[]);
    test.member.leave();
    assert!(matches!(test.next(), Step::Send(Request::Leave(_))));
    assert!(matches!(test.next(), Step::End));

    let mut test = self::test(&[("group.instance.id", "i")]);
    test.stable(1, "range", &[]);
    test.member.leave();
    assert!(matches!(test.next(), Step::End));
}

#[test]
fn what_fails_while_a_member_is_to_leave_does_not_keep_it() {
    let mut test = test(&[]);
    test.stable(1, "range", &[]);
    test.refuse_heartbeat(ErrorCode::REBALANCE_IN_PROGRESS);
    test.join();
    test.member.leave();
    test.member.received(&Answer::Failed(Error::timeout("JoinGroup", SECOND, None)), test.now);
    assert!(matches!(test.next(), Step::Send(Request::Leave(_))));
    assert!(matches!(test.next(), Step::End));
}

#[test]
fn another_subscription_gives_up_what_is_not_in_it_and_joins_again() {
    let mut test = test(&[("partition.assignment.strategy", "cooperative-sticky")]);
    test.stable(1, "cooperative-sticky", &[("t", 0)]);
    test.member.subscribe(Wanted::Topics(topics(&["u"])));
    assert!(matches!(test.next(), Step::Wait(_)));
    assert_eq!(test.take(), Some(Change::Revoke(partitions(&[("t", 0)]))));
    assert_eq!(told(&test.join(), "cooperative-sticky").topics, ["u"]);
    // It changes once more while the group is divided.
    test.member.subscribe(Wanted::Topics(topics(&["v"])));
    test.joined(2, "cooperative-sticky", false, &[]);
    test.sync();
    test.synced(&[("u", 0)]);
    assert_eq!(test.take(), None);
    assert_eq!(told(&test.join(), "cooperative-sticky").topics, ["v"]);
}

#[test]
fn a_commit_that_the_group_refuses_has_the_member_join_again() {
    let mut test = test(&[]);
    test.stable(1, "range", &[("t", 0)]);
    let earlier = GroupMetadata { generation: 0, ..test.member.identity() };
    test.member.refused(ErrorCode::ILLEGAL_GENERATION, &earlier);
    assert_eq!(test.take(), None);
    let identity = test.member.identity();
    test.member.refused(ErrorCode::ILLEGAL_GENERATION, &identity);
    assert_eq!(test.take(), Some(Change::Lost(partitions(&[("t", 0)]))));
    test.join();
}
