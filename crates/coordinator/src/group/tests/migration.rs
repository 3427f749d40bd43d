//! Groups that go from one protocol to the other while members live, and members of both in one group.

use std::collections::BTreeSet;

use milena_protocol::messages::leave_group_request::MemberIdentity;
use milena_protocol::messages::{ConsumerGroupHeartbeatRequest, LeaveGroupRequest};

use super::consumers::{Consumer, described, kinds, over, send};
use super::embedded::{assigned_in, assignment, subscription};
use super::*;
use crate::group::ConsumerHeartbeat;

fn set(partitions: &[i32]) -> BTreeSet<i32> {
    partitions.iter().copied().collect()
}

/// JoinGroup of a consumer of `t` that says what it owns.
fn consumer_join(bench: &mut Group, member: &str, instance: Option<&str>, owned: &[i32]) -> Ticket {
    let protocol = JoinGroupRequestProtocol { name: "range".into(), metadata: subscription(&set(owned)).into() };
    let request = JoinGroupRequest { protocols: vec![protocol], ..join_request(member, &[]) };
    send_join(bench, JoinGroupRequest { group_instance_id: instance.map(Into::into), ..request })
}

/// A stable classic group with one member, which owns all of two partitions.
fn classic(bench: &mut Group, instance: Option<&str>) -> String {
    let ticket = consumer_join(bench, "", instance, &[]);
    bench.advance(3_000);
    let member = joined(bench, ticket).unwrap().member_id.to_string();
    let ticket = send_sync(bench, &member, 1, &[(&member, &assignment(&set(&[0, 1])))]);
    assert_eq!(synced(bench, ticket).unwrap().error_code, 0);
    member
}

/// JoinGroup and SyncGroup of a member of a consumer group; what it is assigned then, and in which generation.
fn rejoin(bench: &mut Group, member: &str, owned: &[i32]) -> (i32, BTreeSet<i32>) {
    let ticket = consumer_join(bench, member, None, owned);
    let response = joined(bench, ticket).unwrap();
    assert_eq!((response.error_code, response.protocol_name.as_deref()), (0, Some("range")));
    let ticket = send_sync(bench, &response.member_id, response.generation_id, &[]);
    let synced = synced(bench, ticket).unwrap();
    assert_eq!(synced.error_code, 0);
    (response.generation_id, assigned_in(&synced.assignment))
}

/// A consumer group with a member of each protocol, each with one partition.
fn mixed(bench: &mut Group) -> (String, Consumer) {
    let member = classic(bench, None);
    let mut one = Consumer::new("m");
    assert_eq!(one.beat(bench), ErrorCode::NONE);
    let (_, kept) = rejoin(bench, &member, &[0, 1]);
    rejoin(bench, &member, &kept.into_iter().collect::<Vec<_>>());
    one.beat(bench);
    assert_eq!((described(bench).0.as_str(), one.owned.len()), ("Stable", 1));
    (member, one)
}

fn leave(bench: &mut Group, members: &[&str]) -> Vec<ErrorCode> {
    let members = members.iter().map(|id| MemberIdentity { member_id: (*id).into(), ..Default::default() });
    let request = LeaveGroupRequest { group_id: "g".into(), members: members.collect(), ..Default::default() };
    match bench.ask(Request::Leave(request)) {
        Reply::Leave(response) => response.members.iter().map(|member| ErrorCode(member.error_code)).collect(),
        other => panic!("{other:?}"),
    }
}

fn send_later(bench: &mut Group, consumer: &Consumer) -> Ticket {
    bench.send(Request::ConsumerHeartbeat(ConsumerHeartbeat {
        request: consumer.request(),
        client_id: "c",
        client_host: "/127.0.0.1",
        requires_member_id: true,
    }))
}

#[test]
fn the_first_member_of_the_consumer_protocol_makes_a_classic_group_a_consumer_group() {
    let mut bench = over(2);
    let member = classic(&mut bench, None);
    let before = kinds(&bench).len();
    let mut one = Consumer::new("m");
    assert_eq!(one.beat(&mut bench), ErrorCode::NONE);
    assert_eq!((one.epoch, one.owned.len()), (2, 0), "the partitions are the other one's still");
    assert_eq!(kinds(&bench)[before..], [vec![-2, 5, 3, 7, 6, 8, 5, 3, 7, 7, 6, 8]]);
    let mut bench = bench.restart();
    assert_eq!(heartbeat(&mut bench, &member, 1), ErrorCode::REBALANCE_IN_PROGRESS);
    // It keeps one partition, and gives the other one up before it joins again.
    let (generation, kept) = rejoin(&mut bench, &member, &[0, 1]);
    assert_eq!((generation, kept.len()), (1, 1));
    assert_eq!(heartbeat(&mut bench, &member, 1), ErrorCode::REBALANCE_IN_PROGRESS);
    one.beat(&mut bench);
    assert_eq!(one.owned.len(), 0);
    let kept: Vec<_> = kept.into_iter().collect();
    assert_eq!(rejoin(&mut bench, &member, &kept), (2, set(&kept)));
    assert_eq!(heartbeat(&mut bench, &member, 2), ErrorCode::NONE);
    one.beat(&mut bench);
    assert_eq!(one.owned.len(), 1);
    assert_eq!(described(&mut bench), ("Stable".into(), 2, 2));
}

#[test]
fn a_static_member_that_changes_its_protocol_in_a_stable_group_changes_nothing_else() {
    let mut bench = over(2);
    classic(&mut bench, Some("i"));
    let mut one = Consumer { instance: Some("i".to_owned()), ..Consumer::new("m") };
    let told = send(&mut bench, ConsumerGroupHeartbeatRequest { server_assignor: None, ..one.request() });
    one.follow(&told);
    assert_eq!((one.epoch, one.owned), (1, set(&[0, 1])), "its generation and its partitions");
    assert_eq!(described(&mut bench), ("Stable".into(), 1, 1));
}

#[test]
fn who_waits_in_a_classic_group_is_told_to_join_the_consumer_group() {
    let mut bench = over(2);
    let member = classic(&mut bench, None);
    let waits = consumer_join(&mut bench, "", None, &[]);
    Consumer::new("m").beat(&mut bench);
    assert_eq!(joined(&mut bench, waits).unwrap().error_code, ErrorCode::REBALANCE_IN_PROGRESS.0);
    assert_eq!(rejoin(&mut bench, &member, &[]).0, 2);
}

#[test]
fn what_members_own_in_a_rebalance_is_theirs_after_it() {
    let mut bench = over(2);
    let member = classic(&mut bench, None);
    // The next generation is assigned by nobody, and the one after it is on its way.
    let ticket = consumer_join(&mut bench, &member, None, &[0, 1]);
    assert_eq!(joined(&mut bench, ticket).unwrap().generation_id, 2);
    consumer_join(&mut bench, "", None, &[]);
    let mut one = Consumer::new("m");
    one.beat(&mut bench);
    assert_eq!((one.epoch, one.owned.len()), (3, 0));
}

#[test]
fn a_classic_group_that_can_not_become_a_consumer_group_goes_on() {
    let refused = |prepare: &dyn Fn(&mut Group) -> String| {
        let mut bench = over(2);
        let member = prepare(&mut bench);
        assert_eq!(Consumer::new("m").beat(&mut bench), ErrorCode::GROUP_ID_NOT_FOUND);
        assert_eq!((heartbeat(&mut bench, &member, 1), state(&mut bench).as_str()), (ErrorCode::NONE, "Stable"));
    };
    refused(&|bench| stable(bench));
    refused(&|bench| {
        bench.settings.migration.upgrades = false;
        classic(bench, None)
    });
    refused(&|bench| {
        let member = classic(bench, None);
        bench.settings.consumer_max_size = 0;
        member
    });
    refused(&|bench| {
        let ticket = consumer_join(bench, "", None, &[]);
        bench.advance(3_000);
        let member = joined(bench, ticket).unwrap().member_id.to_string();
        let mut own = assignment(&set(&[0]));
        own.truncate(own.len() - 4);
        own.extend([0, 0, 0, 1, 7]);
        send_sync(bench, &member, 1, &[(&member, &own)]);
        member
    });
}

#[test]
fn an_upgrade_that_can_not_be_written_has_not_happened() {
    let mut bench = over(2);
    let member = classic(&mut bench, None);
    bench.log.failure = Some(ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!(Consumer::new("m").beat(&mut bench), ErrorCode::NOT_COORDINATOR);
    bench.log.failure = None;
    assert_eq!((heartbeat(&mut bench, &member, 1), state(&mut bench).as_str()), (ErrorCode::NONE, "Stable"));
    bench.advance(10_000);
    assert_eq!(state(&mut bench), "Empty");
}

#[test]
fn the_group_is_classic_again_when_the_last_member_of_the_consumer_protocol_leaves() {
    let mut bench = over(2);
    let (member, mut one) = mixed(&mut bench);
    let before = kinds(&bench).len();
    assert_eq!(one.leave(&mut bench, -1), ErrorCode::NONE);
    assert_eq!(kinds(&bench)[before..], [vec![-8, -8, -7, -7, -6, -5, -5, -4, -3, 2]]);
    assert_eq!(
        (state(&mut bench).as_str(), heartbeat(&mut bench, &member, 2)),
        ("PreparingRebalance", ErrorCode::REBALANCE_IN_PROGRESS)
    );
    let ticket = consumer_join(&mut bench, &member, None, &[0]);
    let response = joined(&mut bench, ticket).unwrap();
    assert_eq!((response.generation_id, response.members.len()), (3, 1));
    let mut bench = bench.restart();
    assert_eq!(describe(&mut bench), ("Stable".into(), vec![member]));
}

#[test]
fn a_silent_last_member_of_the_consumer_protocol_makes_the_group_classic_too() {
    let mut bench = over(2);
    let (member, _) = mixed(&mut bench);
    for _ in 0..9 {
        bench.advance(5_000);
        heartbeat(&mut bench, &member, 2);
    }
    assert_eq!(describe(&mut bench), ("PreparingRebalance".into(), vec![member]));
}

#[test]
fn a_group_stays_a_consumer_group_where_the_broker_says_so() {
    for (downgrades, most) in [(false, 3), (true, 0)] {
        let mut bench = over(2);
        let (member, mut one) = mixed(&mut bench);
        (bench.settings.migration.downgrades, bench.settings.max_size) = (downgrades, most);
        one.leave(&mut bench, -1);
        assert_eq!(described(&mut bench).0, "Assigning");
        bench.advance(1_000);
        assert_eq!(rejoin(&mut bench, &member, &[0, 1]).1, set(&[0, 1]));
        assert_eq!(leave(&mut bench, &[&member]), [ErrorCode::NONE]);
        assert_eq!(described(&mut bench).0, "Empty");
    }
}

#[test]
fn a_static_member_that_comes_back_with_the_classic_protocol_makes_the_group_classic_without_a_rebalance() {
    let mut bench = over(2);
    let mut one = Consumer { instance: Some("i".to_owned()), ..Consumer::new("m") };
    one.beat(&mut bench);
    let ticket = consumer_join(&mut bench, "", Some("i"), &[]);
    let response = joined(&mut bench, ticket).unwrap();
    assert_eq!((response.error_code, response.generation_id), (0, 2));
    assert_eq!(describe(&mut bench), ("Stable".into(), vec![response.member_id.to_string()]));
    let ticket = send_sync(&mut bench, &response.member_id, 2, &[]);
    assert_eq!(assigned_in(&synced(&mut bench, ticket).unwrap().assignment), set(&[0, 1]));
    assert_eq!(heartbeat(&mut bench, &response.member_id, 2), ErrorCode::NONE);
    // And back: a classic one need not have left first.
    let mut back = Consumer { instance: Some("i".to_owned()), ..Consumer::new("n") };
    assert_eq!((back.beat(&mut bench), back.owned.len()), (ErrorCode::NONE, 2));
    assert_eq!(described(&mut bench).0, "Stable");
}

#[test]
fn members_are_dropped_for_their_silence_also_where_the_group_went_back_and_forth_before_that_was_committed() {
    let mut bench = over(2);
    mixed(&mut bench);
    bench.log.commits = false;
    send_later(&mut bench, &Consumer { epoch: -1, ..Consumer::new("m") });
    let mut other = Consumer::new("n");
    let beat = send_later(&mut bench, &other);
    bench.log.commits = true;
    bench.drive();
    assert!(bench.reply(beat).is_some());
    bench.advance(45_000);
    assert_eq!(other.beat(&mut bench), ErrorCode::NONE);
    assert_eq!((other.owned.len(), described(&mut bench).0.as_str()), (2, "Stable"));
}

#[test]
fn what_the_last_leader_has_not_assigned_is_assigned_when_a_static_member_changes_its_protocol() {
    let mut bench = over(2);
    let ticket = consumer_join(&mut bench, "", Some("i"), &[]);
    bench.advance(3_000);
    let member = joined(&mut bench, ticket).unwrap().member_id.to_string();
    send_sync(&mut bench, &member, 1, &[(&member, &assignment(&set(&[0])))]);
    let mut one = Consumer { instance: Some("i".to_owned()), ..Consumer::new("m") };
    assert_eq!((one.beat(&mut bench), one.owned.len()), (ErrorCode::NONE, 2));
}

#[test]
fn what_a_member_was_not_told_to_give_up_stays_its_own_when_the_group_goes_back_and_forth() {
    let mut bench = over(2);
    let member = classic(&mut bench, None);
    let mut one = Consumer::new("m");
    one.beat(&mut bench);
    one.leave(&mut bench, -1);
    let mut other = Consumer::new("n");
    assert_eq!((other.beat(&mut bench), other.owned.len()), (ErrorCode::NONE, 0));
    let (_, kept) = rejoin(&mut bench, &member, &[0, 1]);
    rejoin(&mut bench, &member, &kept.into_iter().collect::<Vec<_>>());
    assert_eq!((other.beat(&mut bench), other.owned.len()), (ErrorCode::NONE, 1));
}

#[test]
fn members_of_both_protocols_leave_by_leave_group() {
    let mut bench = over(2);
    let (member, _) = mixed(&mut bench);
    let left = leave(&mut bench, &[&member, "nobody", "m", &member]);
    assert_eq!(left, [ErrorCode::NONE, ErrorCode::UNKNOWN_MEMBER_ID, ErrorCode::NONE, ErrorCode::NONE]);
    assert_eq!(described(&mut bench).0, "Empty");
}

#[test]
fn a_member_that_does_not_join_or_sync_in_time_is_dropped() {
    let mut bench = over(2);
    let (member, mut one) = mixed(&mut bench);
    bench.settings.metadata = Cluster::of(2, &[("t", 1, 3)]);
    bench.advance(1_000);
    one.beat(&mut bench);
    // It is heard of, and does not join.
    for _ in 0..12 {
        bench.advance(5_000);
        one.beat(&mut bench);
        assert_eq!(heartbeat(&mut bench, &member, 2), ErrorCode::REBALANCE_IN_PROGRESS);
    }
    bench.advance(5_000);
    assert_eq!(heartbeat(&mut bench, &member, 2), ErrorCode::UNKNOWN_MEMBER_ID);
    let ticket = consumer_join(&mut bench, "", None, &[]);
    let response = joined(&mut bench, ticket).unwrap();
    // It is heard of, and does not sync.
    for _ in 0..12 {
        bench.advance(5_000);
        one.beat(&mut bench);
        heartbeat(&mut bench, &response.member_id, response.generation_id);
    }
    one.beat(&mut bench);
    one.beat(&mut bench);
    assert_eq!(heartbeat(&mut bench, &response.member_id, response.generation_id), ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(one.owned.len(), 3);
}

#[test]
fn members_of_the_classic_protocol_commit_in_their_generation() {
    let mut bench = over(2);
    let (member, _) = mixed(&mut bench);
    let mut by =
        |generation, version| commit(&mut bench, commit_request(&member, generation, "t", &[(0, 7, "")]), version);
    assert_eq!([by(2, 9), by(2, 5)].concat(), [ErrorCode::NONE; 2]);
    assert_eq!([by(1, 9), by(3, 9)].concat(), [ErrorCode::ILLEGAL_GENERATION; 2]);
}

#[test]
fn who_is_none_of_its_kind_is_refused() {
    let mut bench = over(2);
    let (member, one) = mixed(&mut bench);
    assert_eq!(heartbeat(&mut bench, "m", one.epoch), ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(heartbeat(&mut bench, "nobody", 2), ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(heartbeat(&mut bench, &member, 7), ErrorCode::ILLEGAL_GENERATION);
    let other = send_join(&mut bench, join_request("", &["other"]));
    assert_eq!(joined(&mut bench, other).unwrap().error_code, ErrorCode::INCONSISTENT_GROUP_PROTOCOL.0);
    let malformed = send_join(&mut bench, join_request("", &["range"]));
    assert_eq!(joined(&mut bench, malformed).unwrap().error_code, ErrorCode::INCONSISTENT_GROUP_PROTOCOL.0);
    bench.settings.consumer_max_size = 2;
    assert_eq!(Consumer::new("third").beat(&mut bench), ErrorCode::GROUP_MAX_SIZE_REACHED);
    let full = consumer_join(&mut bench, "", None, &[]);
    assert_eq!(joined(&mut bench, full).unwrap().error_code, ErrorCode::GROUP_MAX_SIZE_REACHED.0);
}
