use milena_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions as Assigned};

use super::*;
use crate::backoff::Backoff;

const SECOND: Duration = Duration::from_secs(1);

fn id(byte: u8) -> Uuid {
    Uuid::from_bytes([byte; 16])
}

fn wanted(names: &[&str]) -> Wanted {
    Wanted::Topics(names.iter().map(|name| (*name).to_owned()).collect())
}

fn partitions(of: &[(&str, i32)]) -> Vec<TopicPartition> {
    of.iter().map(|(topic, partition)| TopicPartition::new(*topic, *partition)).collect()
}

struct Test {
    member: Reconciling,
    now: Instant,
}

fn test_of(settings: &[(&str, &str)], wanted: Wanted) -> Test {
    let mut config = GroupConfig::default();
    (config.group, config.rack) = ("g".to_owned(), Some("r".to_owned()));
    for (key, value) in [("group.protocol", "consumer")].iter().chain(settings) {
        config.set(key, value).unwrap();
    }
    let now = Instant::now();
    let duties = Duties::new(config.max_poll_interval, Backoff { first: SECOND, max: SECOND }, now);
    Test { member: Reconciling::new(Arc::new(config), duties, wanted, now), now }
}

fn test(settings: &[(&str, &str)]) -> Test {
    test_of(settings, wanted(&["t"]))
}

impl Test {
    fn next(&mut self) -> Step {
        self.member.next(self.now)
    }

    fn heartbeat(&mut self) -> ConsumerGroupHeartbeatRequest<'static> {
        let Step::Send(Request::ConsumerHeartbeat(request)) = self.next() else { panic!("{:?}", self.member) };
        request
    }

    fn is_waiting(&mut self) -> bool {
        matches!(self.next(), Step::Wait(_))
    }

    /// The coordinator's answer: an epoch, and an assignment if there is a new one.
    fn answer(&mut self, epoch: i32, assigned: Option<&[(u8, &[i32])]>) {
        let topic = |(topic, partitions): &(u8, &[i32])| Assigned {
            topic_id: id(*topic),
            partitions: partitions.to_vec().into(),
        };
        let assignment = assigned.map(|topics| Assignment { topic_partitions: topics.iter().map(topic).collect() });
        let response = ConsumerGroupHeartbeatResponse {
            member_epoch: epoch,
            heartbeat_interval_ms: 5000,
            assignment,
            ..Default::default()
        };
        self.member.received(&Answer::ConsumerHeartbeat(response), self.now);
    }

    fn refuse(&mut self, code: ErrorCode) {
        let response = ConsumerGroupHeartbeatResponse { error_code: code.0, ..Default::default() };
        self.member.received(&Answer::ConsumerHeartbeat(response), self.now);
    }

    fn take(&mut self) -> Option<Change> {
        let change = self.member.duties.change().cloned();
        self.member.duties.acknowledge();
        change
    }

    /// A member with partitions of topic 1, which is called `t`.
    fn assigned(&mut self, epoch: i32, assigned: &[i32]) {
        self.heartbeat();
        self.answer(epoch, Some(&[(1, assigned)]));
        self.take();
        assert!(matches!(self.next(), Step::Name(ids, _) if ids == [id(1)]));
        self.member.named(vec![(id(1), "t".to_owned())], self.now);
        assert!(self.is_waiting());
        assert!(matches!(self.take(), Some(Change::Assign(_))));
        assert_eq!(owned(&self.heartbeat()), Some(vec![(1, assigned.to_vec())]));
        self.answer(epoch, None);
    }
}

fn owned(request: &ConsumerGroupHeartbeatRequest<'_>) -> Option<Vec<(u8, Vec<i32>)>> {
    let topics = request.topic_partitions.as_ref()?;
    Some(topics.iter().map(|topic| (topic.topic_id.as_bytes()[0], topic.partitions.to_vec())).collect())
}

#[test]
fn a_member_joins_with_an_id_of_its_own_and_tells_everything_once() {
    let mut test = test(&[("group.remote.assignor", "range"), ("max.poll.interval.ms", "7000")]);
    let request = test.heartbeat();
    assert_eq!((request.member_epoch, request.member_id.len()), (0, 22));
    assert_eq!(request.subscribed_topic_names.as_deref(), Some(&["t".into()][..]));
    assert_eq!((request.rack_id.as_deref(), request.server_assignor.as_deref()), (Some("r"), Some("range")));
    assert_eq!((request.rebalance_timeout_ms, request.subscribed_topic_regex.as_deref()), (7000, None));
    assert_eq!(owned(&request), Some(Vec::new()));
    test.answer(3, None);
    assert_eq!(test.take(), Some(Change::Assign(Vec::new())));
    assert!(test.is_waiting());
    test.now += 5 * SECOND;
    let next = test.heartbeat();
    let expected = ConsumerGroupHeartbeatRequest {
        group_id: "g".into(),
        member_id: request.member_id,
        member_epoch: 3,
        ..Default::default()
    };
    assert_eq!(next, expected);
}

#[test]
fn what_is_taken_is_given_up_and_told_before_anything_else() {
    let mut test = test(&[]);
    test.assigned(1, &[0, 1]);
    test.now += 5 * SECOND;
    test.heartbeat();
    test.answer(1, Some(&[(1, &[1])]));
    assert!(test.is_waiting());
    // Until the consumer has given it up, the coordinator hears nothing of it.
    test.now += 5 * SECOND;
    assert_eq!(owned(&test.heartbeat()), None);
    test.answer(1, None);
    assert_eq!(test.take(), Some(Change::Revoke(partitions(&[("t", 0)]))));
    assert_eq!(test.take(), Some(Change::Assign(Vec::new())));
    assert_eq!(owned(&test.heartbeat()), Some(vec![(1, vec![1])]));
    test.answer(2, None);
    assert!(test.is_waiting());
    assert_eq!(test.member.identity().generation, 2);
}

#[test]
fn an_assignment_that_changes_nothing_is_acknowledged() {
    let mut test = test(&[]);
    test.assigned(1, &[0]);
    test.now += 5 * SECOND;
    test.heartbeat();
    test.answer(2, Some(&[(1, &[0])]));
    assert_eq!(owned(&test.heartbeat()), Some(vec![(1, vec![0])]));
    assert_eq!(test.take(), None);
}

#[test]
fn a_member_that_is_not_known_any_more_has_lost_what_it_had_and_joins_again() {
    for code in [ErrorCode::FENCED_MEMBER_EPOCH, ErrorCode::UNKNOWN_MEMBER_ID] {
        let mut test = test(&[]);
        test.assigned(4, &[0]);
        test.now += 5 * SECOND;
        let before = test.heartbeat().member_id;
        test.refuse(code);
        assert!(test.is_waiting());
        assert_eq!(test.take(), Some(Change::Lost(partitions(&[("t", 0)]))));
        let request = test.heartbeat();
        assert_eq!((request.member_epoch, &request.member_id), (0, &before));
        assert_eq!(owned(&request), Some(Vec::new()));
        assert!(request.subscribed_topic_names.is_some());
    }
}

#[test]
fn what_was_perhaps_not_heard_is_told_again() {
    let mut test = test(&[]);
    test.assigned(1, &[0]);
    test.now += 5 * SECOND;
    test.heartbeat();
    test.member.received(&Answer::Failed(Error::timeout("it", SECOND, None)), test.now);
    assert!(test.is_waiting());
    test.now += 2 * SECOND;
    let request = test.heartbeat();
    assert_eq!((request.member_epoch, owned(&request)), (1, Some(vec![(1, vec![0])])));
    assert!(request.subscribed_topic_names.is_some());
    test.refuse(ErrorCode::NOT_COORDINATOR);
    test.now += 2 * SECOND;
    assert!(test.heartbeat().subscribed_topic_names.is_some());
}

#[test]
fn what_no_try_can_heal_is_told() {
    let codes = [
        ErrorCode::UNRELEASED_INSTANCE_ID,
        ErrorCode::FENCED_INSTANCE_ID,
        ErrorCode::UNSUPPORTED_ASSIGNOR,
        ErrorCode::INVALID_REGULAR_EXPRESSION,
        ErrorCode::GROUP_AUTHORIZATION_FAILED,
        ErrorCode::INVALID_REQUEST,
    ];
    for code in codes {
        let mut test = test(&[]);
        test.heartbeat();
        test.refuse(code);
        assert!(matches!(test.next(), Step::Wait(None)));
        let told = test.member.duties.take_error(test.now);
        assert_eq!(told.and_then(|error| error.code()), Some(code));
        assert!(matches!(test.next(), Step::Wait(Some(_))));
        test.now += 2 * SECOND;
        assert_eq!(test.heartbeat().member_epoch, 0);
    }
}

#[test]
fn a_pattern_is_the_coordinators_to_match() {
    let mut test = test_of(&[], Wanted::Pattern("t.*".to_owned()));
    let request = test.heartbeat();
    assert_eq!(request.subscribed_topic_regex.as_deref(), Some("t.*"));
    test.answer(1, None);
    test.take();
    test.member.subscribe(wanted(&["u"]));
    let request = test.heartbeat();
    assert_eq!(request.subscribed_topic_regex.as_deref(), Some(""));
    assert_eq!(request.subscribed_topic_names.as_deref(), Some(&["u".into()][..]));
}

#[test]
fn a_topic_whose_name_is_not_known_waits_while_others_are_taken() {
    let mut test = test(&[]);
    test.heartbeat();
    test.answer(1, Some(&[(1, &[0]), (2, &[5])]));
    test.take();
    assert!(matches!(test.next(), Step::Name(..)));
    test.member.named(vec![(id(1), "t".to_owned())], test.now);
    assert!(test.is_waiting());
    assert_eq!(test.take(), Some(Change::Assign(partitions(&[("t", 0)]))));
    assert_eq!(owned(&test.heartbeat()), Some(vec![(1, vec![0])]));
    test.now += SECOND;
    assert!(matches!(test.next(), Step::Name(ids, _) if ids == [id(2)]));
    test.member.named(vec![(id(2), "u".to_owned())], test.now);
    assert!(test.is_waiting());
    assert_eq!(test.take(), Some(Change::Assign(partitions(&[("u", 5)]))));
}

#[test]
fn who_does_not_ask_for_records_in_time_leaves_until_it_asks_again() {
    let mut test = test(&[("max.poll.interval.ms", "10000")]);
    test.assigned(1, &[0]);
    test.now += 10 * SECOND;
    assert_eq!(test.heartbeat().member_epoch, -1);
    test.answer(-1, None);
    assert_eq!(test.take(), Some(Change::Lost(partitions(&[("t", 0)]))));
    assert!(matches!(test.next(), Step::Wait(None)));
    assert!(test.member.duties.polls(true, test.now));
    assert_eq!(test.heartbeat().member_epoch, 0);
}

#[test]
fn the_answer_to_a_leave_is_not_taken_for_that_to_a_join() {
    for (settings, epoch) in [(&[][..], -1), (&[("group.instance.id", "i")][..], -2)] {
        let mut test = test(&[&[("max.poll.interval.ms", "10000")], settings].concat());
        test.assigned(1, &[0]);
        test.now += 10 * SECOND;
        assert_eq!(test.heartbeat().member_epoch, epoch);
        // The consumer asks again before the answer comes.
        assert!(test.member.duties.polls(true, test.now));
        test.answer(epoch, None);
        assert_eq!(test.take(), Some(Change::Lost(partitions(&[("t", 0)]))));
        let request = test.heartbeat();
        assert_eq!((request.member_epoch, owned(&request)), (0, Some(Vec::new())));
    }
}

#[test]
fn heartbeats_go_out_while_names_of_topics_can_not_be_had() {
    let mut test = test(&[]);
    test.heartbeat();
    test.answer(1, Some(&[(1, &[0])]));
    test.take();
    let until = test.now + 5 * SECOND;
    assert!(matches!(test.next(), Step::Name(_, at) if at == until));
    test.now = until;
    assert_eq!(test.heartbeat().member_epoch, 1);
}

#[test]
fn topics_that_the_member_may_not_describe_are_told_and_it_stays() {
    let mut test = test(&[]);
    test.assigned(1, &[0]);
    for _ in 0..2 {
        test.now += 5 * SECOND;
        test.heartbeat();
        test.refuse(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
        let told = test.member.duties.take_error(test.now);
        assert_eq!(told.and_then(|error| error.code()), Some(ErrorCode::TOPIC_AUTHORIZATION_FAILED));
    }
    test.now += 2 * SECOND;
    assert_eq!((test.heartbeat().member_epoch, test.take()), (1, None));
}

#[test]
fn a_member_leaves_and_a_static_one_leaves_for_a_while() {
    for (settings, epoch) in [(&[][..], -1), (&[("group.instance.id", "i")][..], -2)] {
        let mut test = test(settings);
        test.assigned(1, &[0]);
        test.member.leave();
        let request = test.heartbeat();
        assert_eq!((request.member_epoch, request.subscribed_topic_names), (epoch, None));
        assert!(matches!(test.next(), Step::End));
    }
}
