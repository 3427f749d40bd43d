//! Starting and stopping.

mod common;

use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use common::{Event, Lab, PATIENCE, Running, config, listener};
use milena_net::{ListenerConfig, NetConfig, NetError, Server};

#[test]
fn requests_in_flight_finish_and_idle_connections_end_at_once() {
    let running = Running::start(config());
    let (mut idle, mut busy) = (running.connect(), running.connect());
    idle.echo(b"r0");
    busy.send(&[b"l1", b"h2", b"r3"]);
    running.lab.wait_for(&Event::Served(b"h2".to_vec()), 1);
    let (address, lab) = (running.address(), Arc::clone(&running.lab));
    let stopping = std::thread::spawn(move || running.server.stop(PATIENCE));
    idle.assert_finished();
    // Accepted by nobody, or refused.
    if let Ok(mut late) = TcpStream::connect(address) {
        late.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(!matches!(late.read(&mut [0]), Ok(1..)));
    }
    lab.open(b'2');
    lab.open(b'1');
    for reply in ["l1", "h2", "r3"] {
        assert_eq!(busy.receive(), reply.as_bytes());
    }
    busy.assert_finished();
    stopping.join().unwrap();
    assert_eq!(lab.events().iter().filter(|event| **event == Event::Disconnected).count(), 2);
}

#[test]
fn what_does_not_finish_by_the_deadline_is_dropped() {
    let running = Running::start(config());
    let mut busy = running.connect();
    busy.send(&[b"l1"]);
    running.lab.wait_for(&Event::Served(b"l1".to_vec()), 1);
    let Running { server, lab } = running;
    server.stop(Duration::ZERO);
    busy.assert_gone();
    assert!(lab.events().contains(&Event::Disconnected));
    assert_eq!(Arc::strong_count(&lab), 1, "nothing of the server is left");
}

#[test]
fn a_port_in_use_is_named() {
    let running = Running::start(config());
    let taken = ListenerConfig { port: running.address().port(), ..listener() };
    let result = Server::bind(NetConfig { listeners: vec![listener(), taken], ..config() });
    let Err(error @ NetError::AddressInUse { address, .. }) = result else { panic!("it was bound twice") };
    assert_eq!(address, running.address());
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn a_host_without_an_address_is_named() {
    let result = Server::bind(NetConfig {
        listeners: vec![ListenerConfig { host: "no such host".into(), ..listener() }],
        ..config()
    });
    let Err(error @ NetError::Resolve { .. }) = result else { panic!("it has an address") };
    assert!(error.to_string().contains("no such host"), "{error}");
}

#[test]
fn an_empty_host_is_every_interface_and_peers_have_plain_ipv4_addresses() {
    let every = ListenerConfig { host: String::new(), name: "EVERY".into(), ..listener() };
    let bound = Server::bind(NetConfig { listeners: vec![listener(), every], ..config() }).unwrap();
    let addresses = bound.local_addrs();
    assert_eq!(addresses.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["PLAINTEXT", "EVERY"]);
    let lab = Arc::new(Lab::default());
    let server = bound.start(Arc::clone(&lab)).unwrap();
    let mut client = common::Client::connect(([127, 0, 0, 1], addresses[1].1.port()).into());
    client.echo(b"r1");
    assert_eq!(lab.peers()[0].remote, client.0.local_addr().unwrap());
    assert_eq!(lab.peers()[0].local, client.0.peer_addr().unwrap());
    assert_eq!(&*lab.peers()[0].listener, "EVERY");
    drop(server);
    client.assert_finished();
}
