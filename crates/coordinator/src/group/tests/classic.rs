use milena_protocol::messages::LeaveGroupRequest;
use milena_protocol::messages::leave_group_request::MemberIdentity;

use super::*;
use crate::group::{ListFilter, check_join};

fn error(bench: &mut Group, ticket: Ticket) -> ErrorCode {
    ErrorCode(joined(bench, ticket).expect("an answer").error_code)
}

fn leave(bench: &mut Group, member: &str, instance: Option<&str>) -> ErrorCode {
    let member =
        MemberIdentity { member_id: member.into(), group_instance_id: instance.map(Into::into), ..Default::default() };
    let request = LeaveGroupRequest { group_id: "g".into(), members: vec![member], ..Default::default() };
    match bench.ask(Request::Leave(request)) {
        Reply::Leave(response) => ErrorCode(response.members[0].error_code),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_group_is_recorded_empty_and_then_with_its_generation() {
    let mut bench = bench();
    let member = stable(&mut bench);
    assert_eq!((bench.log.batches.len(), describe(&mut bench)), (2, ("Stable".into(), vec![member.clone()])));
    let mut bench = bench.restart();
    assert_eq!(describe(&mut bench), ("Stable".into(), vec![member.clone()]));
    assert_eq!(heartbeat(&mut bench, &member, 1), ErrorCode::NONE);
    assert_eq!(leave(&mut bench, &member, None), ErrorCode::NONE);
    assert_eq!((bench.log.batches.len(), state(&mut bench).as_str()), (3, "Empty"));
    assert_eq!(state(&mut bench.restart()), "Empty");
}

#[test]
fn a_member_is_first_given_an_id_where_the_version_asks_for_it() {
    let mut bench = bench();
    let ask = |member: &'static str| Join {
        request: join_request(member, &["range"]),
        client_id: "c",
        client_host: "/h",
        requires_member_id: true,
        skips_assignment: true,
    };
    let ticket = bench.send(Request::Join(ask("")));
    let response = joined(&mut bench, ticket).unwrap();
    assert_eq!(ErrorCode(response.error_code), ErrorCode::MEMBER_ID_REQUIRED);
    let (name, id) = response.member_id.split_once('-').unwrap();
    assert_eq!((name, id.len(), id.split('-').map(str::len).collect::<Vec<_>>()), ("c", 36, vec![8, 4, 4, 4, 12]));
    assert_eq!(state(&mut bench), "Empty");
    let ticket = join(&mut bench, &response.member_id);
    bench.advance(3_000);
    assert_eq!(joined(&mut bench, ticket).unwrap().generation_id, 1);
}

#[test]
fn an_id_that_is_not_used_within_its_session_is_forgotten() {
    let mut bench = bench();
    let request = Join {
        request: join_request("", &["range"]),
        client_id: "c",
        client_host: "/h",
        requires_member_id: true,
        skips_assignment: true,
    };
    let ticket = bench.send(Request::Join(request));
    let member = joined(&mut bench, ticket).unwrap().member_id;
    bench.advance(10_000);
    let ticket = join(&mut bench, &member);
    assert_eq!(error(&mut bench, ticket), ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn what_a_join_says_of_itself_is_checked_first() {
    let check = |group: &'static str, session| {
        let request = JoinGroupRequest { group_id: group.into(), session_timeout_ms: session, ..Default::default() };
        check_join(&request, "c", &settings())
    };
    assert_eq!(check("", 10_000), Err(ErrorCode::INVALID_GROUP_ID));
    assert_eq!((check("g", 6_000), check("g", 1_800_000)), (Ok(()), Ok(())));
    for session in [0, -1, 5_999, 1_800_001] {
        assert_eq!(check("g", session), Err(ErrorCode::INVALID_SESSION_TIMEOUT));
    }
}

#[test]
fn a_name_that_leaves_no_room_for_a_member_id_does_not_join() {
    let check = |client_id: usize, instance: usize| {
        let request = JoinGroupRequest {
            group_id: "g".into(),
            session_timeout_ms: 10_000,
            group_instance_id: Some("i".repeat(instance).into()),
            ..Default::default()
        };
        check_join(&request, &"c".repeat(client_id), &settings())
    };
    assert_eq!(check(32_730, 32_730), Ok(()));
    assert_eq!(
        (check(32_731, 1), check(1, 32_731)),
        (Err(ErrorCode::INVALID_REQUEST), Err(ErrorCode::INVALID_REQUEST))
    );
}

#[test]
fn a_join_without_protocols_or_with_others_is_refused() {
    let mut bench = bench();
    let ticket = send_join(&mut bench, join_request("", &[]));
    assert_eq!(error(&mut bench, ticket), ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
    stable(&mut bench);
    let ticket = send_join(&mut bench, join_request("", &["sticky"]));
    assert_eq!(error(&mut bench, ticket), ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
    let connect = JoinGroupRequest { protocol_type: "connect".into(), ..join_request("", &["range"]) };
    let ticket = send_join(&mut bench, connect);
    assert_eq!(error(&mut bench, ticket), ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
}

#[test]
fn a_full_group_takes_nobody_in() {
    let mut bench = bench();
    let tickets = [(); 3].map(|()| join(&mut bench, ""));
    let fourth = join(&mut bench, "");
    assert_eq!(error(&mut bench, fourth), ErrorCode::GROUP_MAX_SIZE_REACHED);
    bench.advance(6_000);
    assert_eq!(tickets.map(|ticket| error(&mut bench, ticket)), [ErrorCode::NONE; 3]);
}

#[test]
fn a_silent_member_is_dropped_after_its_session_and_the_group_is_empty() {
    let mut bench = bench();
    let member = stable(&mut bench);
    bench.advance(9_999);
    assert_eq!(heartbeat(&mut bench, &member, 1), ErrorCode::NONE);
    bench.advance(9_999);
    assert_eq!(state(&mut bench), "Stable");
    bench.advance(1);
    assert_eq!(state(&mut bench), "Empty");
    assert_eq!(heartbeat(&mut bench, &member, 1), ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(state(&mut bench.restart()), "Empty");
}

#[test]
fn a_wall_clock_that_jumps_ends_no_session() {
    let mut bench = bench();
    let member = stable(&mut bench);
    bench.log.now.wall_ms += 1_000_000_000;
    bench.advance(9_000);
    assert_eq!(heartbeat(&mut bench, &member, 1), ErrorCode::NONE);
    bench.log.now.wall_ms -= 2_000_000_000;
    bench.advance(9_000);
    assert_eq!(heartbeat(&mut bench, &member, 1), ErrorCode::NONE);
}

#[test]
fn requests_of_strangers_and_of_other_generations_are_told_apart() {
    let mut bench = bench();
    assert_eq!(heartbeat(&mut bench, "m", 1), ErrorCode::UNKNOWN_MEMBER_ID);
    let ticket = join(&mut bench, "m");
    assert_eq!(error(&mut bench, ticket), ErrorCode::UNKNOWN_MEMBER_ID);
    let ticket = send_sync(&mut bench, "m", 1, &[]);
    assert_eq!(synced(&mut bench, ticket).unwrap().error_code, ErrorCode::UNKNOWN_MEMBER_ID.0);
    assert_eq!(leave(&mut bench, "m", None), ErrorCode::UNKNOWN_MEMBER_ID);
    let member = stable(&mut bench);
    assert_eq!(heartbeat(&mut bench, &member, 2), ErrorCode::ILLEGAL_GENERATION);
    let ticket = send_sync(&mut bench, &member, 0, &[]);
    assert_eq!(synced(&mut bench, ticket).unwrap().error_code, ErrorCode::ILLEGAL_GENERATION.0);
    assert_eq!(leave(&mut bench, "m", None), ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn groups_are_listed_by_state_and_type() {
    let mut bench = bench();
    stable(&mut bench);
    commit(&mut bench, OffsetCommitRequest { group_id: "h".into(), ..commit_request("", -1, "t", &[(0, 1, "")]) }, 8);
    let mut list = |states: &[&'static str], types: &[&'static str]| {
        let lower_case = |names: &[&str]| names.iter().map(|name| name.to_ascii_lowercase()).collect();
        let filter = ListFilter { states: &lower_case(states), types: &lower_case(types) };
        match bench.ask(Request::List(filter)) {
            Reply::List(groups) => groups.iter().map(|group| group.group_id.to_string()).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(list(&[], &[]), ["g", "h"]);
    assert_eq!((list(&["stable"], &[]), list(&["Empty"], &["Classic"])), (vec!["g".into()], vec!["h".into()]));
    assert!(list(&[], &["consumer"]).is_empty() && list(&["Dead"], &[]).is_empty());
}

fn static_join(bench: &mut Group, member: &str, protocols: &[&str]) -> Ticket {
    send_join(bench, JoinGroupRequest { group_instance_id: Some("i".into()), ..join_request(member, protocols) })
}

fn stable_static(bench: &mut Group) -> String {
    let ticket = static_join(bench, "", &["range", "sticky"]);
    bench.advance(3_000);
    let member = joined(bench, ticket).unwrap().member_id.to_string();
    let ticket = send_sync(bench, &member, 1, &[(&member, b"a")]);
    synced(bench, ticket).unwrap();
    member
}

#[test]
fn a_static_member_comes_back_without_a_rebalance_and_its_old_id_is_fenced() {
    let mut bench = bench();
    let old = stable_static(&mut bench);
    let ticket = static_join(&mut bench, "", &["range"]);
    let response = joined(&mut bench, ticket).unwrap();
    let new = response.member_id.to_string();
    assert_eq!((response.generation_id, response.skip_assignment, response.leader.as_ref()), (1, true, &*new));
    assert_eq!((response.members.len(), new != old, state(&mut bench).as_str()), (1, true, "Stable"));
    let ticket = send_sync(&mut bench, &new, 1, &[]);
    assert_eq!(synced(&mut bench, ticket).unwrap().assignment[..], *b"a");
    let ticket = static_join(&mut bench, &old, &["range"]);
    assert_eq!(error(&mut bench, ticket), ErrorCode::FENCED_INSTANCE_ID);
    let mut bench = bench.restart();
    assert_eq!(describe(&mut bench).1, [new]);
    assert_eq!(leave(&mut bench, "", Some("i")), ErrorCode::NONE);
    assert_eq!(leave(&mut bench, "", Some("i")), ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn a_static_member_whose_new_id_can_not_be_recorded_stays_who_it_was() {
    let mut bench = bench();
    let old = stable_static(&mut bench);
    bench.log.failure = Some(ErrorCode::NOT_ENOUGH_REPLICAS);
    let ticket = static_join(&mut bench, "", &["range", "sticky"]);
    assert_eq!(error(&mut bench, ticket), ErrorCode::COORDINATOR_NOT_AVAILABLE);
    bench.log.failure = None;
    assert_eq!(heartbeat(&mut bench, &old, 1), ErrorCode::NONE);
    assert_eq!(describe(&mut bench), ("Stable".into(), vec![old]));
}

#[test]
fn a_static_member_that_changes_the_protocol_makes_a_rebalance() {
    let mut bench = bench();
    stable_static(&mut bench);
    let ticket = static_join(&mut bench, "", &["sticky", "range"]);
    let response = joined(&mut bench, ticket).unwrap();
    assert_eq!((response.generation_id, response.protocol_name.as_deref()), (2, Some("sticky")));
}

#[test]
fn a_group_whose_record_can_not_be_written_does_not_exist() {
    let mut bench = bench();
    bench.log.failure = Some(ErrorCode::KAFKA_STORAGE_ERROR);
    let ticket = join(&mut bench, "");
    assert_eq!(error(&mut bench, ticket), ErrorCode::NOT_COORDINATOR);
    bench.log.failure = None;
    assert_eq!(state(&mut bench), "Dead");
    stable(&mut bench);
}
