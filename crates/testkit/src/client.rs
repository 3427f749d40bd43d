//! A client that sends what a test wants, right or wrong: whole requests, raw frames, or bytes without a frame. It
//! blocks, with a deadline on every read, and tells a closed connection from a silent one.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::wire;

/// Replies longer than this are a bug of the server under test.
const MAX_REPLY: usize = 256 << 20;

/// What a connection did within the time a test gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A whole frame, without its length.
    Frame(Vec<u8>),
    /// The server closed or reset the connection.
    Closed,
    /// Nothing came, and the connection is still open.
    Silent,
}

/// One connection to a server.
#[derive(Debug)]
pub struct RawClient {
    stream: TcpStream,
    correlation: i32,
    /// What a call waits for its answer at most.
    pub patience: Duration,
}

impl RawClient {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn connect(addr: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, Duration::from_secs(5)).with_context(|| format!("{addr}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, correlation: 0, patience: Duration::from_secs(20) })
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.set_write_timeout(Some(self.patience))?;
        self.stream.write_all(bytes)?;
        Ok(())
    }

    /// Sends one frame: the length, then `payload`.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn send_frame(&mut self, payload: &[u8]) -> Result<()> {
        self.send_bytes(&wire::framed(payload))
    }

    /// What comes next within `wait`.
    ///
    /// # Errors
    /// When a reply's length makes no sense, or it stops in its middle.
    pub fn next_event(&mut self, wait: Duration) -> Result<Event> {
        let until = Instant::now() + wait;
        let mut length = [0; 4];
        match self.read_full(&mut length, until)? {
            Filled::Whole => {}
            Filled::Closed(0) => return Ok(Event::Closed),
            Filled::Late(0) => return Ok(Event::Silent),
            other => bail!("a reply stopped in its length: {other:?}"),
        }
        let length = usize::try_from(i32::from_be_bytes(length)).context("negative reply length")?;
        if length > MAX_REPLY {
            bail!("a reply of {length} bytes");
        }
        let mut frame = vec![0; length];
        match self.read_full(&mut frame, until.max(Instant::now() + Duration::from_secs(10)))? {
            Filled::Whole => Ok(Event::Frame(frame)),
            other => bail!("a reply of {length} bytes stopped in its middle: {other:?}"),
        }
    }

    /// The next frame, within the client's patience.
    ///
    /// # Errors
    /// When the connection closes or stays silent.
    pub fn next_frame(&mut self) -> Result<Vec<u8>> {
        match self.next_event(self.patience)? {
            Event::Frame(frame) => Ok(frame),
            Event::Closed => bail!("the server closed the connection"),
            Event::Silent => bail!("no reply within {:?}", self.patience),
        }
    }

    /// Sends a request whose body is JSON and gives its correlation id; the answer is not read.
    ///
    /// # Errors
    /// When the body does not fit the schema, or the connection is gone.
    pub fn send(&mut self, api: &str, version: i16, body: &Value) -> Result<i32> {
        self.correlation += 1;
        let request = wire::request(api, version, self.correlation, Some("test"), body)?;
        self.send_frame(&request)?;
        Ok(self.correlation)
    }

    /// Reads the answer to a request that was sent before and gives its body as JSON.
    ///
    /// # Errors
    /// When none comes, it answers another request, or it cannot be decoded.
    pub fn receive(&mut self, api: &str, version: i16, correlation: i32) -> Result<Value> {
        let frame = self.next_frame()?;
        let reply = wire::response(api, version, &frame)?;
        if reply.correlation != correlation {
            bail!("{api} v{version}: correlation id {} instead of {correlation}", reply.correlation);
        }
        if reply.trailing != 0 {
            bail!("{api} v{version}: {} bytes after the reply", reply.trailing);
        }
        Ok(reply.body)
    }

    /// Sends a request and gives its answer.
    ///
    /// # Errors
    /// As [`Self::send`] and [`Self::receive`].
    pub fn call(&mut self, api: &str, version: i16, body: &Value) -> Result<Value> {
        let correlation = self.send(api, version, body)?;
        self.receive(api, version, correlation).with_context(|| format!("{api} v{version}"))
    }

    fn read_full(&mut self, buffer: &mut [u8], until: Instant) -> Result<Filled> {
        let mut at = 0;
        while at < buffer.len() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Filled::Late(at));
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(&mut buffer[at..]) {
                Ok(0) => return Ok(Filled::Closed(at)),
                Ok(n) => at += n,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                    return Ok(Filled::Closed(at));
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(Filled::Whole)
    }
}

#[derive(Debug)]
enum Filled {
    Whole,
    Closed(usize),
    Late(usize),
}
