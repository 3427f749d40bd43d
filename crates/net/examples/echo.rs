//! An echo service on this crate, and a client that drives it: what a request costs here, apart from any API.
//!
//! `echo serve ADDRESS [reactors]` serves until killed. `echo drive ADDRESS DEPTH REQUESTS` sends frames of 100 bytes,
//! DEPTH at a time, on one connection. `echo idle ADDRESS COUNT` opens connections, sends one frame on each, and keeps them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use milena_net::{Frames, ListenerConfig, NetConfig, Peer, Replies, Server, Service};

const FRAME_BYTES: usize = 100;

struct Echo;

impl Service for Echo {
    type Session = ();

    fn connect(&self, _peer: &Peer) {}

    fn serve(&self, (): &mut (), frames: &mut Frames<'_>, replies: &mut Replies<'_>) {
        while let Some(frame) = frames.take() {
            replies.ready(|out| out.bytes.extend_from_slice(frame));
        }
    }

    fn disconnect(&self, (): ()) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["serve", address] => serve(address.parse()?, None),
        ["serve", address, reactors] => serve(address.parse()?, Some(reactors.parse()?)),
        ["drive", address, depth, requests] => drive(address.parse()?, depth.parse()?, requests.parse()?),
        ["idle", address, count] => idle(address.parse()?, count.parse()?),
        _ => Err("serve ADDRESS [reactors] | drive ADDRESS DEPTH REQUESTS | idle ADDRESS COUNT".into()),
    }
}

fn serve(address: SocketAddr, reactors: Option<usize>) -> Result<(), Box<dyn std::error::Error>> {
    let listener = ListenerConfig { name: "ECHO".into(), host: address.ip().to_string(), port: address.port() };
    let config = NetConfig { listeners: vec![listener], reactors, backlog: 1024, ..NetConfig::default() };
    let server = Server::start(config, Arc::new(Echo))?;
    println!("{:?}", server.local_addrs());
    loop {
        std::thread::park();
    }
}

fn frame() -> Vec<u8> {
    let mut frame = (FRAME_BYTES as u32).to_be_bytes().to_vec();
    frame.resize(4 + FRAME_BYTES, 7);
    frame
}

fn drive(address: SocketAddr, depth: usize, requests: usize) -> Result<(), Box<dyn std::error::Error>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let batch = frame().repeat(depth);
    let mut replies = vec![0; batch.len()];
    let started = Instant::now();
    for _ in 0..requests.div_ceil(depth) {
        stream.write_all(&batch)?;
        stream.read_exact(&mut replies)?;
    }
    assert_eq!(replies, batch);
    let each = started.elapsed() / u32::try_from(requests)?;
    println!("depth {depth}: {requests} requests, {each:?} each");
    Ok(())
}

fn idle(address: SocketAddr, count: usize) -> Result<(), Box<dyn std::error::Error>> {
    let frame = frame();
    let mut streams = Vec::with_capacity(count);
    for _ in 0..count {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(&frame)?;
        stream.read_exact(&mut vec![0; frame.len()])?;
        streams.push(stream);
    }
    println!("{count} connections are idle");
    loop {
        std::thread::park();
    }
}
