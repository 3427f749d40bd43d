//! The order of replies, whether ready or later, and the ways in which a service ends a connection.

mod common;

use common::{Event, Running, config};

fn served(frame: &[u8]) -> Event {
    Event::Served(frame.to_vec())
}

#[test]
fn replies_leave_in_request_order_whatever_order_they_come_in() {
    let running = Running::start(config());
    let mut client = running.connect();
    client.send(&[b"r0", b"l1", b"r1", b"w2", b"r2", b"l3", b"n", b"N4", b"r3"]);
    assert_eq!(client.receive(), b"r0", "what stands before the later reply does not wait");
    running.lab.wait_for(&served(b"r3"), 1);
    for gate in [4, 3, 2, 1] {
        running.lab.open(b'0' + gate);
    }
    for reply in ["l1", "r1", "w2", "r2", "l3", "r3"] {
        assert_eq!(client.receive(), reply.as_bytes());
    }
    client.echo(b"r4");
}

#[test]
fn frames_behind_a_reply_that_holds_are_served_when_it_is_there() {
    let running = Running::start(config());
    let mut client = running.connect();
    client.send(&[b"r0", b"l1", b"h2", b"r3", b"h4", b"r5"]);
    assert_eq!(client.receive(), b"r0");
    running.lab.wait_for(&served(b"h2"), 1);
    running.lab.open(b'2');
    // Served although the reply before is still outstanding.
    running.lab.wait_for(&served(b"h4"), 1);
    assert!(!running.lab.events().contains(&served(b"r5")));
    running.lab.open(b'1');
    for reply in ["l1", "h2", "r3"] {
        assert_eq!(client.receive(), reply.as_bytes());
    }
    assert!(!running.lab.events().contains(&served(b"r5")));
    running.lab.open(b'4');
    assert_eq!(client.receive(), b"h4");
    assert_eq!(client.receive(), b"r5");
}

#[test]
fn frames_taken_before_the_first_answer_are_answered_in_order() {
    let running = Running::start(config());
    let mut client = running.connect();
    client.send(&[b"a0", b"h1", b"r2", b"l3", b"r4"]);
    assert_eq!(client.receive(), b"a0");
    running.lab.wait_for(&served(b"a0"), 1);
    client.send(&[b"r5"]);
    running.lab.open(b'3');
    running.lab.open(b'1');
    for reply in ["h1", "r2", "l3", "r4", "r5"] {
        assert_eq!(client.receive(), reply.as_bytes());
    }
}

#[test]
fn many_later_replies_wait_within_their_limit() {
    let running = Running::start(milena_net::NetConfig { max_in_flight: 3, ..config() });
    let mut client = running.connect();
    client.send(&[b"l0", b"l1", b"l2", b"l3", b"r4"]);
    running.lab.wait_for(&served(b"l2"), 1);
    assert!(!running.lab.events().contains(&served(b"l3")));
    for gate in (b'0'..=b'3').rev() {
        running.lab.open(gate);
    }
    for reply in ["l0", "l1", "l2", "l3", "r4"] {
        assert_eq!(client.receive(), reply.as_bytes());
    }
}

#[test]
fn all_frames_of_a_wake_up_are_served_in_one_call() {
    let running = Running::start(config());
    let mut client = running.connect();
    let batch: Vec<u8> = (0..64).flat_map(|_| common::framed(b"r")).collect();
    client.send_raw(&batch);
    for _ in 0..64 {
        assert_eq!(client.receive(), b"r");
    }
    assert_eq!(running.lab.events().iter().filter(|event| **event == Event::Called).count(), 1);
}

#[test]
fn a_close_comes_after_the_replies_before_it() {
    let running = Running::start(config());
    let mut client = running.connect();
    client.send(&[b"l0", b"r1", b"c", b"r2"]);
    running.lab.wait_for(&served(b"c"), 1);
    running.lab.open(b'0');
    assert_eq!(client.receive(), b"l0");
    assert_eq!(client.receive(), b"r1");
    client.assert_finished();
    running.lab.wait_for(&Event::Disconnected, 1);
    assert!(!running.lab.events().contains(&served(b"r2")));
}

#[test]
fn a_later_reply_can_close_and_drops_what_comes_after() {
    let running = Running::start(config());
    let mut client = running.connect();
    client.send(&[b"r0", b"k1", b"r2", b"l3"]);
    running.lab.wait_for(&served(b"l3"), 1);
    running.lab.open(b'1');
    assert_eq!(client.receive(), b"r0");
    client.assert_finished();
}

#[test]
fn an_immediate_close_waits_for_nothing() {
    let running = Running::start(config());
    let mut client = running.connect();
    client.send(&[b"l0", b"C"]);
    client.assert_gone();
}

#[test]
fn a_failed_reply_leaves_nothing_behind() {
    let running = Running::start(config());
    let mut client = running.connect();
    client.send(&[b"r0", b"e", b"r1"]);
    for reply in ["r0", "error", "r1"] {
        assert_eq!(client.receive(), reply.as_bytes());
    }
}

#[test]
fn a_peer_that_finished_sending_still_gets_its_replies() {
    let running = Running::start(config());
    let mut client = running.connect();
    client.send(&[b"l0", b"h1", b"r2"]);
    client.finish_sending();
    running.lab.wait_for(&served(b"h1"), 1);
    running.lab.open(b'0');
    running.lab.open(b'1');
    for reply in ["l0", "h1", "r2"] {
        assert_eq!(client.receive(), reply.as_bytes());
    }
    client.assert_finished();
}

#[test]
fn a_panic_ends_its_connection_only() {
    let running = Running::start(config());
    let mut bystanders = [running.connect(), running.connect()];
    for bystander in &mut bystanders {
        bystander.echo(b"r0");
    }
    for frame in [&b"x"[..], b"y7"] {
        // One on each reactor.
        for _ in 0..2 {
            let mut client = running.connect();
            client.send(&[frame]);
            running.lab.open(b'7');
            client.assert_gone();
        }
    }
    running.lab.wait_for(&Event::Disconnected, 4);
    for bystander in &mut bystanders {
        bystander.echo(b"r1");
    }
}

#[test]
fn a_service_that_leaves_frames_unanswered_loses_the_connection() {
    let running = Running::start(config());
    for frames in [&[&b"u"[..]][..], &[b"0"]] {
        let mut client = running.connect();
        client.send(frames);
        client.assert_gone();
    }
}
