//! Bytes in and out: frames in pieces, frames of hostile lengths, large frames, files, and readers that do not read.

mod common;

use std::io::{Read, Write};

use common::{Client, Event, Lab, Running, config, framed};
use milena_net::NetConfig;

#[test]
fn a_frame_may_trickle_in_byte_by_byte() {
    let running = Running::start(config());
    let mut client = running.connect();
    for byte in framed(b"request one").into_iter().chain(framed(b"request two")) {
        client.send_raw(&[byte]);
    }
    assert_eq!(client.receive(), b"request one");
    assert_eq!(client.receive(), b"request two");
}

#[test]
fn a_half_frame_waits_for_its_other_half() {
    let running = Running::start(config());
    let mut client = running.connect();
    let bytes = [framed(b"request one"), framed(b"request two")].concat();
    client.send_raw(&bytes[..20]);
    assert_eq!(client.receive(), b"request one");
    client.send_raw(&bytes[20..]);
    assert_eq!(client.receive(), b"request two");
}

#[test]
fn half_frames_do_not_keep_others_from_being_served() {
    let running = Running::start(config());
    let mut halves: Vec<Client> = (0..20).map(|_| running.connect()).collect();
    for half in &mut halves {
        half.send_raw(&framed(b"request")[..5]);
    }
    running.connect().echo(b"request");
    for half in &mut halves {
        half.send_raw(&framed(b"request")[5..]);
        assert_eq!(half.receive(), b"request");
    }
}

#[test]
fn an_empty_frame_reaches_the_service() {
    let running = Running::start(config());
    let mut client = running.connect();
    client.echo(b"");
    assert_eq!(running.lab.served(), 1);
}

#[test]
fn a_hostile_length_ends_the_connection_after_the_replies_before_it() {
    let running = Running::start(NetConfig { max_frame_bytes: 1000, ..config() });
    for prefix in [-1, i32::MIN, i32::MAX, 1001, i32::from_be_bytes(*b"GET ")] {
        let mut client = running.connect();
        client.send_raw(&[&framed(b"request")[..], &prefix.to_be_bytes(), b"more"].concat());
        assert_eq!(client.receive(), b"request");
        client.assert_finished();
    }
    running.connect().echo(&[1; 1000]);
}

#[test]
fn the_longest_frame_allowed_may_have_begun_and_stay_so() {
    let running = Running::start(config());
    let mut client = running.connect();
    client.send(&[b"request"]);
    client.send_raw(&[&(100_i32 << 20).to_be_bytes()[..], b"abc"].concat());
    assert_eq!(client.receive(), b"request");
    running.connect().echo(b"another");
    client.0.set_nonblocking(true).unwrap();
    assert_eq!(client.0.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn large_frames_of_changing_lengths_arrive_whole() {
    let running = Running::start(config());
    let mut client = running.connect();
    let mut writer = client.0.try_clone().unwrap();
    let frames: Vec<Vec<u8>> = [300_000, 10, 262_140, 262_141, 5_000_000, 1_000_000, 1_000_000, 0, 70_000, 1_100_000]
        .into_iter()
        .enumerate()
        .map(|(index, len)| (0..len).map(|at| (at % 251 + index) as u8 % 96).collect())
        .collect();
    let bytes: Vec<u8> = frames.iter().flat_map(|frame| framed(frame)).collect();
    let sending = std::thread::spawn(move || writer.write_all(&bytes).unwrap());
    for frame in &frames {
        assert!(client.receive() == *frame);
    }
    sending.join().unwrap();
}

fn with_file() -> (Running, Vec<u8>) {
    let content: Vec<u8> = (0..200_000_u32).map(|at| (at / 7) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&content).unwrap();
    (Running::with(config(), Lab::with_file(file)), content)
}

#[test]
fn file_ranges_stand_where_they_belong_between_bytes() {
    let (running, content) = with_file();
    let mut client = running.connect();
    let expected = [b"<", &content[10..100_010], b">", &content[..5]].concat();
    client.send(&[b"r0", b"f", b"F", b"r1", b"l2", b"F", b"r3"]);
    running.lab.open(b'2');
    assert_eq!(client.receive(), b"r0");
    assert!(client.receive() == expected);
    assert!(client.receive() == expected);
    assert_eq!(client.receive(), b"r1");
    assert_eq!(client.receive(), b"l2");
    assert!(client.receive() == expected);
    assert_eq!(client.receive(), b"r3");
}

#[test]
fn a_file_that_has_become_shorter_ends_the_connection() {
    let (running, _) = with_file();
    running.lab.file.as_ref().unwrap().set_len(50_000).unwrap();
    for (at, command) in [b"f", b"F"].into_iter().enumerate() {
        let mut client = running.connect();
        client.send(&[command]);
        let mut rest = Vec::new();
        // What was there has come, then the end; never bytes that were not in the file.
        let _ = client.0.read_to_end(&mut rest);
        assert!(rest.len() < 100_000);
        running.lab.wait_for(&Event::Disconnected, at + 1);
    }
}

#[test]
fn who_does_not_read_is_not_served() {
    const REPLY: usize = 4 + (1 << 20);
    const BUFFERS: usize = 1 << 20;
    let running =
        Running::start(NetConfig { send_buffer_bytes: Some(64 << 10), max_unsent_bytes: 1 << 20, ..config() });
    let mut client = running.connect();
    let count = 100;
    client.send_raw(&framed(b"b\x01").repeat(count));
    let mut reply = vec![0; REPLY];
    for received in 0..count {
        // Whenever this looks, the server has at most one reply more than its limit and the kernel's buffers hold.
        let served = running.lab.served();
        let room = BUFFERS.max(client_buffer_bytes(&client)) + (1 << 20) + REPLY;
        assert!(served * REPLY <= received * REPLY + room, "{served} replies were made, {received} received");
        client.0.read_exact(&mut reply).unwrap();
    }
    assert_eq!(running.lab.served(), count);
}

/// What the kernel takes for a receiver at most.
fn client_buffer_bytes(_client: &Client) -> usize {
    let limits = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap();
    limits.split_whitespace().next_back().unwrap().parse().unwrap()
}

#[test]
fn a_slow_reader_gets_everything() {
    let running = Running::start(NetConfig { send_buffer_bytes: Some(8 << 10), ..config() });
    let mut client = running.connect();
    client.send(&[b"b\x08", b"r1", b"b\x01"]);
    let mut received = 0;
    let mut piece = [0; 10_000];
    while received < 9 * (1 << 20) + 3 * 4 + 2 {
        received += client.0.read(&mut piece).unwrap();
    }
    client.echo(b"r2");
}

#[test]
fn a_reply_that_no_frame_can_hold_ends_the_connection_after_those_before_it() {
    let (running, _) = with_file();
    let mut client = running.connect();
    client.send(&[b"r1", b"L", b"r2"]);
    assert_eq!(client.receive(), b"r1");
    client.assert_finished();
    running.connect().echo(b"r3");
}
