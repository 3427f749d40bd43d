use super::*;

/// Two members of a stable group: the leader and the other one.
fn two(bench: &mut Group) -> (String, String) {
    let tickets = [join(bench, ""), join(bench, "")];
    bench.advance(6_000);
    let [first, second] = tickets.map(|ticket| joined(bench, ticket).unwrap());
    let other = if first.leader == first.member_id { &second } else { &first }.member_id.to_string();
    let leader = first.leader.to_string();
    let ticket = send_sync(bench, &other, 1, &[]);
    assert_eq!(synced(bench, ticket), None);
    let by_leader = send_sync(bench, &leader, 1, &[(&leader, b"l"), (&other, b"o")]);
    assert_eq!(synced(bench, by_leader).unwrap().assignment[..], *b"l");
    assert_eq!(synced(bench, ticket).unwrap().assignment[..], *b"o");
    (leader, other)
}

#[test]
fn only_the_leader_learns_who_the_members_are() {
    let mut bench = bench();
    let tickets = [join(&mut bench, ""), join(&mut bench, "")];
    bench.advance(6_000);
    for response in tickets.map(|ticket| joined(&mut bench, ticket).unwrap()) {
        let is_leader = response.leader == response.member_id;
        assert_eq!((response.generation_id, response.members.len()), (1, if is_leader { 2 } else { 0 }));
        assert_eq!(
            (response.protocol_type.as_deref(), response.protocol_name.as_deref()),
            (Some("consumer"), Some("range"))
        );
    }
}

#[test]
fn the_first_rebalance_waits_longer_when_members_keep_coming() {
    let mut bench = bench();
    let first = join(&mut bench, "");
    bench.advance(2_999);
    let second = join(&mut bench, "");
    bench.advance(1);
    assert_eq!((joined(&mut bench, first), state(&mut bench).as_str()), (None, "PreparingRebalance"));
    bench.advance(2_999);
    assert_eq!(joined(&mut bench, first), None);
    bench.advance(1);
    assert!(joined(&mut bench, first).is_some() && joined(&mut bench, second).is_some());
}

#[test]
fn without_a_delay_the_first_member_is_answered_at_the_next_tick() {
    let mut bench: Group = Bench::load(TestLog::new(), GroupSettings { initial_rebalance_delay_ms: 0, ..settings() });
    let ticket = join(&mut bench, "");
    bench.advance(0);
    assert_eq!(joined(&mut bench, ticket).unwrap().generation_id, 1);
}

#[test]
fn a_second_member_makes_the_first_one_join_again() {
    let mut bench = bench();
    let first = stable(&mut bench);
    let second = join(&mut bench, "");
    assert_eq!(heartbeat(&mut bench, &first, 1), ErrorCode::REBALANCE_IN_PROGRESS);
    let again = join(&mut bench, &first);
    let (again, second) = (joined(&mut bench, again).unwrap(), joined(&mut bench, second).unwrap());
    assert_eq!((again.generation_id, second.generation_id, again.members.len()), (2, 2, 2));
    assert_eq!((again.leader.as_ref(), second.leader.as_ref()), (&*first, &*first));
}

#[test]
fn who_does_not_join_again_in_time_is_dropped() {
    let mut bench = bench();
    let first = stable(&mut bench);
    let second = join(&mut bench, "");
    for _ in 0..6 {
        bench.advance(9_000);
        assert_eq!(heartbeat(&mut bench, &first, 1), ErrorCode::REBALANCE_IN_PROGRESS);
    }
    assert_eq!(joined(&mut bench, second), None);
    bench.advance(6_000);
    let response = joined(&mut bench, second).unwrap();
    assert_eq!((response.generation_id, response.members.len(), response.leader), (2, 1, response.member_id));
    assert_eq!(heartbeat(&mut bench, &first, 2), ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn members_that_wait_are_not_dropped_for_their_silence() {
    let mut bench = bench();
    let (leader, other) = two(&mut bench);
    let waits = join(&mut bench, &leader);
    for _ in 0..3 {
        bench.advance(9_000);
        assert_eq!(heartbeat(&mut bench, &other, 1), ErrorCode::REBALANCE_IN_PROGRESS);
    }
    let second = join(&mut bench, &other);
    let generation = joined(&mut bench, waits).unwrap().generation_id;
    assert_eq!(joined(&mut bench, second).unwrap().generation_id, generation);
    // The other waits for the leader's assignment longer than its session.
    let waits = send_sync(&mut bench, &other, generation, &[]);
    for _ in 0..2 {
        bench.advance(9_000);
        assert_eq!(heartbeat(&mut bench, &leader, generation), ErrorCode::NONE);
    }
    let by_leader = send_sync(&mut bench, &leader, generation, &[(&other, b"x")]);
    assert!(synced(&mut bench, by_leader).unwrap().assignment.is_empty());
    assert_eq!(synced(&mut bench, waits).unwrap().assignment[..], *b"x");
}

#[test]
fn a_leader_that_brings_no_assignment_is_dropped() {
    let mut bench = bench();
    let tickets = [join(&mut bench, ""), join(&mut bench, "")];
    bench.advance(6_000);
    let [first, second] = tickets.map(|ticket| joined(&mut bench, ticket).unwrap());
    let leader = first.leader.to_string();
    let other = if first.member_id == first.leader { second.member_id } else { first.member_id };
    let waits = send_sync(&mut bench, &other, 1, &[]);
    for _ in 0..7 {
        bench.advance(8_571);
        heartbeat(&mut bench, &leader, 1);
    }
    bench.advance(3);
    assert_eq!(synced(&mut bench, waits).unwrap().error_code, ErrorCode::REBALANCE_IN_PROGRESS.0);
    assert_eq!(describe(&mut bench), ("PreparingRebalance".into(), vec![other.to_string()]));
}

#[test]
fn an_assignment_that_can_not_be_stored_is_told_to_all_who_wait() {
    let mut bench = bench();
    let ticket = join(&mut bench, "");
    bench.advance(3_000);
    let member = joined(&mut bench, ticket).unwrap().member_id.to_string();
    bench.log.failure = Some(ErrorCode::KAFKA_STORAGE_ERROR);
    let ticket = send_sync(&mut bench, &member, 1, &[(&member, b"a")]);
    assert_eq!(synced(&mut bench, ticket).unwrap().error_code, ErrorCode::NOT_COORDINATOR.0);
    assert_eq!(state(&mut bench), "PreparingRebalance");
}

#[test]
fn an_assignment_leaves_when_it_is_committed() {
    let mut bench = bench();
    let ticket = join(&mut bench, "");
    bench.advance(3_000);
    let member = joined(&mut bench, ticket).unwrap().member_id.to_string();
    bench.log.commits = false;
    let ticket = send_sync(&mut bench, &member, 1, &[(&member, b"a")]);
    assert_eq!(synced(&mut bench, ticket), None);
    bench.log.commits = true;
    bench.drive();
    assert_eq!(synced(&mut bench, ticket).unwrap().assignment[..], *b"a");
}

#[test]
fn who_asks_again_on_another_connection_gets_the_answer_and_the_first_request_gets_one_too() {
    let mut bench = bench();
    let (leader, other) = two(&mut bench);
    let first = join(&mut bench, &leader);
    let second = join(&mut bench, &leader);
    assert_eq!(joined(&mut bench, first).unwrap().error_code, ErrorCode::REBALANCE_IN_PROGRESS.0);
    let third = join(&mut bench, &other);
    assert!(joined(&mut bench, second).is_some() && joined(&mut bench, third).is_some());
}

#[test]
fn the_protocol_is_one_that_all_know_by_votes() {
    let mut bench = bench();
    let tickets = [
        send_join(&mut bench, join_request("", &["range", "sticky"])),
        send_join(&mut bench, join_request("", &["range", "sticky", "own"])),
        send_join(&mut bench, join_request("", &["sticky", "range"])),
    ];
    bench.advance(9_000);
    for ticket in tickets {
        assert_eq!(joined(&mut bench, ticket).unwrap().protocol_name.as_deref(), Some("range"));
    }
}

#[test]
fn with_as_many_votes_the_protocol_is_the_one_that_kafka_finds_first() {
    let mut bench = bench();
    let tickets = [
        send_join(&mut bench, join_request("", &["roundrobin", "range"])),
        send_join(&mut bench, join_request("", &["range", "roundrobin"])),
    ];
    bench.advance(6_000);
    for ticket in tickets {
        assert_eq!(joined(&mut bench, ticket).unwrap().protocol_name.as_deref(), Some("range"));
    }
}

#[test]
fn an_id_that_was_given_out_is_none_of_a_static_member() {
    let mut bench = bench();
    stable(&mut bench);
    let request = join_request("", &["range"]);
    let told = bench.send(Request::Join(Join { requires_member_id: true, ..with_client(request) }));
    let pending = joined(&mut bench, told).unwrap().member_id.to_string();
    let request = JoinGroupRequest { group_instance_id: Some("i".into()), ..join_request(&pending, &["range"]) };
    let refused = send_join(&mut bench, request);
    let refused = joined(&mut bench, refused).unwrap();
    assert_eq!((refused.error_code, &*refused.member_id), (ErrorCode::UNKNOWN_SERVER_ERROR.0, ""));
    assert_eq!(join_waits(&mut bench, &pending), None, "it can join all the same");
}

fn with_client(request: JoinGroupRequest<'_>) -> Join<'_> {
    Join { request, client_id: "c", client_host: "/127.0.0.1", requires_member_id: false, skips_assignment: true }
}

/// The answer to a JoinGroup of the member, if there is one at once.
fn join_waits(bench: &mut Group, member: &str) -> Option<JoinGroupResponse<'static>> {
    let ticket = join(bench, member);
    joined(bench, ticket)
}

#[test]
fn a_member_that_leaves_while_others_join_is_not_waited_for() {
    let mut bench = bench();
    let (leader, other) = two(&mut bench);
    let waits = join(&mut bench, &leader);
    let member = milena_protocol::messages::leave_group_request::MemberIdentity {
        member_id: other.into(),
        ..Default::default()
    };
    let request = milena_protocol::messages::LeaveGroupRequest {
        group_id: "g".into(),
        members: vec![member],
        ..Default::default()
    };
    bench.ask(Request::Leave(request));
    assert_eq!(joined(&mut bench, waits).unwrap().members.len(), 1);
}

#[test]
fn a_group_that_is_over_its_size_after_a_restart_is_rebalanced() {
    let mut bench = bench();
    two(&mut bench);
    bench.settings.max_size = 1;
    let mut bench = bench.restart();
    assert_eq!(state(&mut bench), "PreparingRebalance");
}
