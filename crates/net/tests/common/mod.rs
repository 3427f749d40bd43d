//! A service that does what each frame says, and a blocking client. The first byte of a frame is the command, the second
//! its argument; replies repeat the frame unless a command says otherwise.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use milena_net::{
    FileRange, Frames, ListenerConfig, NetConfig, Outgoing, Peer, Pipelining, Replies, Reply, Server, Service,
};
use tokio::sync::Semaphore;

/// Longest wait for something that must come; reached only when a test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What has happened in the service, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Connected,
    /// A call of `serve` began.
    Called,
    Served(Vec<u8>),
    /// A request that counted its bytes is done.
    Released,
    Disconnected,
}

/// The service, and its remote control.
#[derive(Default)]
pub struct Lab {
    events: Arc<Mutex<Vec<Event>>>,
    changed: Condvar,
    gates: Mutex<HashMap<u8, Arc<Semaphore>>>,
    peers: Mutex<Vec<Peer>>,
    pub file: Option<Arc<File>>,
}

impl Lab {
    /// A lab whose `f` frames are answered from `file`.
    pub fn with_file(file: File) -> Self {
        Self { file: Some(Arc::new(file)), ..Self::default() }
    }

    fn note(&self, event: Event) {
        self.events.lock().unwrap().push(event);
        self.changed.notify_all();
    }

    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    /// Who has connected, in order.
    pub fn peers(&self) -> Vec<Peer> {
        self.peers.lock().unwrap().clone()
    }

    /// Frames served so far, calls not counted.
    pub fn served(&self) -> usize {
        self.events.lock().unwrap().iter().filter(|event| matches!(event, Event::Served(_))).count()
    }

    /// Waits until `event` has happened `count` times.
    pub fn wait_for(&self, event: &Event, count: usize) {
        let happened = |events: &[Event]| events.iter().filter(|other| *other == event).count() >= count;
        let events = self.events.lock().unwrap();
        let (events, _) = self.changed.wait_timeout_while(events, PATIENCE, |events| !happened(events)).unwrap();
        let count_now = events.iter().filter(|other| *other == event).count();
        assert!(count_now >= count, "{event:?} has happened {count_now} times: {events:?}");
    }

    fn gate(&self, number: u8) -> Arc<Semaphore> {
        let mut gates = self.gates.lock().unwrap();
        Arc::clone(gates.entry(number).or_insert_with(|| Arc::new(Semaphore::new(0))))
    }

    /// Lets one reply that waits at a gate through, or the next one that comes.
    pub fn open(&self, number: u8) {
        self.gate(number).add_permits(1);
    }

    fn later(&self, frame: &[u8], replies: &mut Replies<'_>) {
        let (gate, frame) = (self.gate(frame[1]), frame.to_vec());
        let pipelining = if frame[0] == b'h' { Pipelining::Hold } else { Pipelining::Continue };
        let reply = async move {
            gate.acquire().await.unwrap().forget();
            match frame[0] {
                b'w' => Reply::write(move |out| out.bytes.extend_from_slice(&frame)),
                b'k' => Reply::close("asked to, later"),
                b'N' => Reply::none(),
                b'y' => panic!("asked to, later"),
                _ => {
                    let mut out = Outgoing::new();
                    out.bytes.extend_from_slice(&frame);
                    Reply::frame(out)
                }
            }
        };
        replies.later(Box::pin(reply), pipelining);
    }

    /// Answers later, and counts the frame's bytes until then.
    fn keep(&self, frame: &[u8], replies: &mut Replies<'_>) {
        let (events, gate) = (Arc::clone(&self.events), self.gate(frame[1]));
        let claim = replies.claim(frame.len());
        let reply = async move {
            gate.acquire().await.unwrap().forget();
            events.lock().unwrap().push(Event::Released);
            drop(claim);
            let mut out = Outgoing::new();
            out.bytes.extend_from_slice(b"released");
            Reply::frame(out)
        };
        replies.later(Box::pin(reply), Pipelining::Hold);
    }

    fn file(&self, out: &mut Outgoing, cold: bool) {
        let file = self.file.as_ref().expect("the test has a file");
        out.bytes.extend_from_slice(b"<>");
        let at = out.bytes.len() - 1;
        let range = |position, len| FileRange { file: Arc::clone(file), position, len, cold, owner: None };
        out.file_at(at, range(10, 100_000));
        out.file(range(0, 5));
    }

    fn answer(&self, frame: &[u8], replies: &mut Replies<'_>) {
        match frame.first() {
            Some(b'l' | b'w' | b'h' | b'k' | b'N' | b'y') => self.later(frame, replies),
            Some(b'n') => replies.none(),
            Some(b'c') => replies.close("asked to"),
            Some(b'C') => replies.close_now("asked to"),
            Some(b'x') => panic!("asked to"),
            Some(b'u') => {}
            Some(b'f') => replies.ready(|out| self.file(out, false)),
            Some(b'F') => replies.ready(|out| self.file(out, true)),
            Some(b'm') => self.keep(frame, replies),
            Some(b'L') => replies.ready(|out| {
                let file = Arc::clone(self.file.as_ref().expect("the test has a file"));
                out.file(FileRange { file, position: 0, len: 1 << 31, cold: false, owner: None });
            }),
            // As many MiB as the argument says.
            Some(b'b') => replies.ready(|out| out.bytes.resize(out.bytes.len() + (usize::from(frame[1]) << 20), 1)),
            Some(b'e') => {
                let failed = replies.try_ready(|out| {
                    out.bytes.extend_from_slice(b"half a reply");
                    Err::<(), _>("no reply")
                });
                assert_eq!(failed, Err("no reply"));
                replies.ready(|out| out.bytes.extend_from_slice(b"error"));
            }
            _ => replies.ready(|out| out.bytes.extend_from_slice(frame)),
        }
    }
}

impl Service for Lab {
    type Session = ();

    fn connect(&self, peer: &Peer) {
        self.peers.lock().unwrap().push(peer.clone());
        self.note(Event::Connected);
    }

    fn serve(&self, (): &mut (), frames: &mut Frames<'_>, replies: &mut Replies<'_>) {
        self.note(Event::Called);
        match frames.peek().and_then(<[u8]>::first) {
            // Takes them all before it answers the first.
            Some(b'a') => {
                let taken: Vec<&mut [u8]> = std::iter::from_fn(|| frames.take()).collect();
                for frame in taken {
                    self.note(Event::Served(frame.to_vec()));
                    self.answer(frame, replies);
                }
            }
            Some(b'0') => {}
            _ => {
                while let Some(frame) = frames.take() {
                    self.note(Event::Served(frame.to_vec()));
                    self.answer(frame, replies);
                }
            }
        }
    }

    fn disconnect(&self, (): ()) {
        self.note(Event::Disconnected);
    }
}

/// A listener at a free port of the loopback interface.
pub fn listener() -> ListenerConfig {
    ListenerConfig { name: "PLAINTEXT".into(), host: "127.0.0.1".into(), port: 0 }
}

/// A configuration with one listener and two reactors.
pub fn config() -> NetConfig {
    NetConfig { listeners: vec![listener()], reactors: Some(2), backlog: 1024, ..NetConfig::default() }
}

/// A running server of a [`Lab`].
pub struct Running {
    pub server: Server,
    pub lab: Arc<Lab>,
}

impl Running {
    pub fn start(config: NetConfig) -> Self {
        Self::with(config, Lab::default())
    }

    pub fn with(config: NetConfig, lab: Lab) -> Self {
        let lab = Arc::new(lab);
        Self { server: Server::start(config, Arc::clone(&lab)).unwrap(), lab }
    }

    pub fn address(&self) -> SocketAddr {
        self.server.local_addrs()[0].1
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address())
    }
}

/// A blocking client.
pub struct Client(pub TcpStream);

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Sends bytes as they are; false once the server has closed the connection.
    pub fn try_send_raw(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }

    /// Sends frames with one call.
    pub fn send(&mut self, frames: &[&[u8]]) {
        self.send_raw(&frames.iter().flat_map(|frame| framed(frame)).collect::<Vec<_>>());
    }

    /// Receives one reply.
    pub fn receive(&mut self) -> Vec<u8> {
        let mut prefix = [0; 4];
        self.0.read_exact(&mut prefix).unwrap();
        let mut reply = vec![0; u32::from_be_bytes(prefix) as usize];
        self.0.read_exact(&mut reply).unwrap();
        reply
    }

    /// One frame there and back.
    pub fn echo(&mut self, frame: &[u8]) {
        self.send(&[frame]);
        assert_eq!(self.receive(), frame);
    }

    /// Waits for the server's end: nothing more comes, in good order.
    pub fn assert_finished(&mut self) {
        assert_eq!(self.0.read(&mut [0; 1]).unwrap(), 0);
    }

    /// Waits for the server's end, however it comes.
    pub fn assert_gone(&mut self) {
        match self.0.read(&mut [0; 1]) {
            Ok(0) => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {}
            other => panic!("still there: {other:?}"),
        }
    }

    pub fn finish_sending(&self) {
        self.0.shutdown(Shutdown::Write).unwrap();
    }
}

/// A frame with its prefix.
pub fn framed(frame: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(frame.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend_from_slice(frame);
    bytes
}
