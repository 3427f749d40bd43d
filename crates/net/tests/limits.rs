//! Limits that connections share: their number, their number from one address, memory, and time without traffic.

mod common;

use std::time::{Duration, Instant};

use common::{Client, Event, PATIENCE, Running, config, framed};
use milena_net::{ConnectionLimits, NetConfig, Server};

/// Waits until `count` connections are left.
fn wait_for_connections(running: &Running, count: usize) {
    let started = Instant::now();
    while running.server.connections() != count {
        assert!(started.elapsed() < PATIENCE, "{} connections, not {count}", running.server.connections());
        std::thread::yield_now();
    }
}

#[test]
fn a_thousand_connections_are_served() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let running = Running::start(config());
    let mut clients: Vec<Client> = (0..1000).map(|_| running.connect()).collect();
    for client in &mut clients {
        client.send(&[b"r0", b"l1", b"r2"]);
    }
    for client in &mut clients {
        assert_eq!(client.receive(), b"r0");
    }
    running.lab.wait_for(&Event::Served(b"r2".to_vec()), 1000);
    assert_eq!(running.server.connections(), 1000);
    for _ in 0..1000 {
        running.lab.open(b'1');
    }
    for client in &mut clients {
        assert_eq!(client.receive(), b"l1");
        assert_eq!(client.receive(), b"r2");
    }
    drop(clients);
    wait_for_connections(&running, 0);
    running.lab.wait_for(&Event::Disconnected, 1000);
}

#[test]
fn connections_from_one_address_are_limited() {
    let connections = ConnectionLimits { max_per_ip: 2, ..Default::default() };
    let running = Running::start(NetConfig { connections, ..config() });
    let mut first = running.connect();
    let mut second = running.connect();
    first.echo(b"r1");
    second.echo(b"r1");
    running.connect().assert_gone();
    drop(first);
    wait_for_connections(&running, 1);
    running.connect().echo(b"r2");
    second.echo(b"r2");
}

#[test]
fn an_address_may_have_a_limit_of_its_own() {
    let per_ip_overrides = std::collections::HashMap::from([([127, 0, 0, 1].into(), 1)]);
    let connections = ConnectionLimits { per_ip_overrides, ..Default::default() };
    let running = Running::start(NetConfig { connections, ..config() });
    let mut first = running.connect();
    first.echo(b"r1");
    running.connect().assert_gone();
    first.echo(b"r2");
}

#[test]
fn connections_beyond_the_limit_wait_until_another_ends() {
    let connections = ConnectionLimits { max: 1, ..Default::default() };
    let running = Running::start(NetConfig { connections, ..config() });
    let mut first = running.connect();
    first.echo(b"r1");
    let mut second = running.connect();
    second.send(&[b"r2"]);
    first.echo(b"r3");
    drop(first);
    assert_eq!(second.receive(), b"r2");
    let connections: Vec<_> = running.lab.events().into_iter().filter(|event| *event != Event::Called).collect();
    let served = |frame: &[u8]| Event::Served(frame.to_vec());
    let one_after_the_other =
        [Event::Connected, served(b"r1"), served(b"r3"), Event::Disconnected, Event::Connected, served(b"r2")];
    assert_eq!(connections, one_after_the_other);
}

#[test]
fn a_limit_that_is_raised_lets_those_in_that_wait() {
    let connections = ConnectionLimits { max: 1, ..Default::default() };
    let bound = Server::bind(NetConfig { connections, ..config() }).unwrap();
    let limits = bound.limits();
    let lab = std::sync::Arc::new(common::Lab::default());
    let running = Running { server: bound.start(std::sync::Arc::clone(&lab)).unwrap(), lab };
    let mut first = running.connect();
    first.echo(b"r1");
    let mut second = running.connect();
    second.send(&[b"r2"]);
    limits.limit(ConnectionLimits { max: 2, ..Default::default() });
    assert_eq!(second.receive(), b"r2");
    first.echo(b"r3");
}

#[test]
fn idle_connections_are_closed_whatever_they_wait_for() {
    let running = Running::start(NetConfig { max_idle: Some(Duration::from_millis(40)), ..config() });
    let mut silent = running.connect();
    silent.assert_finished();
    let mut stalled = running.connect();
    stalled.send_raw(&framed(b"request")[..6]);
    stalled.assert_finished();
    for request in [b"l1", b"h1"] {
        let mut waiting = running.connect();
        waiting.send(&[request]);
        waiting.assert_finished();
        let mut half_closed = running.connect();
        half_closed.send(&[request]);
        // It may have been closed already.
        let _ = half_closed.0.shutdown(std::net::Shutdown::Write);
        half_closed.assert_finished();
        let mut gone = running.connect();
        gone.send(&[request]);
        drop(gone);
    }
    wait_for_connections(&running, 0);
}

#[test]
fn while_memory_is_short_frames_that_fit_go_on_and_others_wait() {
    let running = Running::start(NetConfig { max_receive_memory_bytes: 100_000, ..config() });
    let mut holder = running.connect();
    let frame = framed(&[1; 200_000]);
    holder.send_raw(&[&framed(b"r1"), &frame[..150_000]].concat());
    assert_eq!(holder.receive(), b"r1");
    // The rest is read even though the memory is short, which lets the others go on.
    let mut others: Vec<Client> = (0..4).map(|_| running.connect()).collect();
    others.iter_mut().for_each(|other| other.send(&[b"r2"]));
    holder.send_raw(&frame[150_000..]);
    assert_eq!(holder.receive().len(), 200_000);
    for other in &mut others {
        assert_eq!(other.receive(), b"r2");
    }
}

#[test]
fn while_memory_is_short_a_frame_that_makes_no_progress_is_given_up() {
    let running = Running::start(NetConfig {
        max_receive_memory_bytes: 100_000,
        stalled_frame_timeout: Duration::from_millis(40),
        ..config()
    });
    let mut holder = running.connect();
    holder.send_raw(&[&framed(b"r1"), &framed(&[1; 200_000])[..150_000]].concat());
    assert_eq!(holder.receive(), b"r1");
    let mut other = running.connect();
    other.echo(b"r2");
    holder.assert_gone();
}

#[test]
fn while_memory_is_short_a_frame_of_which_a_byte_comes_now_and_then_is_given_up() {
    let running = Running::start(NetConfig {
        max_receive_memory_bytes: 100_000,
        stalled_frame_timeout: Duration::from_millis(200),
        ..config()
    });
    let mut holder = running.connect();
    holder.send_raw(&[&framed(b"r1"), &framed(&[1; 200_000])[..150_000]].concat());
    assert_eq!(holder.receive(), b"r1");
    // So slowly that the frame never ends, so often that the connection is never quiet.
    let trickle = std::thread::spawn(move || {
        while holder.try_send_raw(&[1]) {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    running.connect().echo(b"r2");
    trickle.join().unwrap();
}

#[test]
fn while_memory_is_short_a_long_reply_that_nobody_reads_is_given_up() {
    let running = Running::start(NetConfig {
        max_receive_memory_bytes: 100_000,
        stalled_frame_timeout: Duration::from_millis(40),
        ..config()
    });
    let mut holders = [running.connect(), running.connect()];
    holders[0].send(&[b"b\x40"]);
    // The same as a reply for which another one waits.
    holders[1].send(&[b"l1", b"b\x40"]);
    running.lab.wait_for(&Event::Served(b"b\x40".to_vec()), 2);
    // Others that need memory wait until it is there.
    let (mut other, started) = (running.connect(), Instant::now());
    while running.server.connections() > 1 {
        assert!(started.elapsed() < PATIENCE, "replies are kept for those who do not read them");
        other.echo(b"r1");
    }
    let mut reply = Vec::new();
    let _reset_or_end = std::io::Read::read_to_end(&mut holders[0].0, &mut reply);
    assert!(reply.len() < 64 << 20, "the whole reply came");
}

#[test]
fn who_waits_for_memory_in_the_middle_of_a_frame_is_not_closed_for_that() {
    let stalled = Duration::from_millis(200);
    let running =
        Running::start(NetConfig { max_receive_memory_bytes: 100_000, stalled_frame_timeout: stalled, ..config() });
    let mut other = running.connect();
    let frame = framed(b"r1");
    other.send_raw(&frame[..5]);
    std::thread::sleep(2 * stalled);
    let mut holder = running.connect();
    holder.send(&[b"b\x10"]);
    running.lab.wait_for(&Event::Served(b"b\x10".to_vec()), 1);
    std::thread::sleep(stalled / 2);
    other.send_raw(&frame[5..]);
    assert_eq!(other.receive(), b"r1");
}

#[test]
fn memory_of_requests_that_wait_counts_too() {
    let running = Running::start(NetConfig { max_receive_memory_bytes: 100_000, ..config() });
    let mut holder = running.connect();
    let frame = [&b"m1"[..], &[1; 150_000]].concat();
    holder.send(&[&frame]);
    running.lab.wait_for(&Event::Served(frame), 1);
    let mut other = running.connect();
    other.send(&[b"r2"]);
    running.lab.open(b'1');
    assert_eq!((holder.receive(), other.receive()), (b"released".to_vec(), b"r2".to_vec()));
    let events = running.lab.events();
    let place = |event: &Event| events.iter().position(|other| other == event).unwrap();
    assert!(place(&Event::Released) < place(&Event::Served(b"r2".to_vec())), "{events:?}");
}
