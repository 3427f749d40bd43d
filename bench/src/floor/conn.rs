//! The floor's side of a connection: a pooled receive buffer, and a queue of bytes and file ranges.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::ops::Range;

use anyhow::{Result, bail, ensure};
use rustix::net::{SendFlags, send};

use super::log::{Log, PartitionId};

/// Bytes of a receive buffer; a larger request makes its buffer grow.
const BUFFER_BYTES: usize = 256 << 10;
/// Longest request taken, in bytes.
const MAX_FRAME: usize = 100 << 20;

/// Receive buffers that no connection holds.
#[derive(Default)]
pub(super) struct Pool(Vec<Vec<u8>>);

impl Pool {
    fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_else(|| vec![0; BUFFER_BYTES])
    }
}

/// A fetch that waits for data.
pub(super) struct WaitingFetch {
    /// A copy of the request.
    pub request: Vec<u8>,
    /// When it's answered even without data, in ns of the server's clock.
    pub deadline: u64,
}

/// A connection.
pub(super) struct Conn {
    /// The socket.
    pub stream: TcpStream,
    /// Received bytes: `start..end` is not handled yet.
    pub buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes of replies; the queue says in which order they and file ranges go out.
    pub out: Vec<u8>,
    out_sent: usize,
    queue: VecDeque<Piece>,
    /// Whether the event loop watches for room in the socket.
    pub wants_write: bool,
    /// The deadline that the event loop last armed a timer for, in ns of the server's clock.
    pub armed: u64,
    /// The fetch that waits.
    pub fetch: Option<WaitingFetch>,
    /// Partitions that list this connection among their followers.
    pub follows: Vec<PartitionId>,
    /// Whether this wake-up has work for the connection.
    pub touched: bool,
}

enum Piece {
    /// The next bytes of `out`.
    Bytes(usize),
    /// A range of a partition's file.
    File { partition: PartitionId, position: u64, len: usize },
}

impl Conn {
    /// Takes over an accepted socket.
    pub(super) fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            out: Vec::new(),
            out_sent: 0,
            queue: VecDeque::new(),
            wants_write: false,
            armed: 0,
            fetch: None,
            follows: Vec::new(),
            touched: false,
        })
    }

    /// Reads once; `false` when the client has closed.
    pub(super) fn receive(&mut self, pool: &mut Pool) -> Result<bool> {
        if self.buffer.is_empty() {
            self.buffer = pool.take();
        }
        match self.stream.read(&mut self.buffer[self.end..]) {
            Ok(0) => Ok(false),
            Ok(len) => {
                self.end += len;
                Ok(true)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(true),
            Err(e) => Err(e.into()),
        }
    }

    /// The next whole request in the buffer, without its length prefix.
    pub(super) fn next_frame(&mut self) -> Option<Range<usize>> {
        let len = self.frame_len()?;
        let from = self.start + 4;
        (self.end >= from + len).then(|| {
            self.start = from + len;
            from..from + len
        })
    }

    fn frame_len(&self) -> Option<usize> {
        let prefix = self.buffer[self.start..self.end].first_chunk::<4>()?;
        Some(u32::from_be_bytes(*prefix) as usize)
    }

    /// After the handled requests are written: moves the rest to the front, or gives the buffer back.
    pub(super) fn tidy(&mut self, pool: &mut Pool) -> Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if !self.buffer.is_empty() {
                pool.0.push(std::mem::take(&mut self.buffer));
            }
            return Ok(());
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let need = 4 + self.frame_len().unwrap_or(0);
        ensure!(need <= MAX_FRAME, "a request of {need} bytes");
        if self.buffer.len() < need {
            self.buffer.resize(need, 0);
        }
        Ok(())
    }

    /// Queues the bytes put onto `out` since it was `from` long.
    pub(super) fn queue_bytes(&mut self, from: usize) {
        let len = self.out.len() - from;
        match self.queue.back_mut() {
            Some(Piece::Bytes(bytes)) => *bytes += len,
            _ => self.queue.push_back(Piece::Bytes(len)),
        }
    }

    /// Queues a range of a partition's file.
    pub(super) fn queue_file(&mut self, partition: PartitionId, position: u64, len: usize) {
        self.queue.push_back(Piece::File { partition, position, len });
    }

    /// Gives the socket what it takes; `true` when nothing is left.
    pub(super) fn flush(&mut self, log: &mut Log) -> Result<bool> {
        while let Some(piece) = self.queue.front_mut() {
            let (sent, left) = match piece {
                Piece::Bytes(len) => {
                    let bytes = &self.out[self.out_sent..self.out_sent + *len];
                    let flags = SendFlags::NOSIGNAL;
                    let sent = send(&self.stream, bytes, flags).or_else(when_full)?;
                    self.out_sent += sent;
                    *len -= sent;
                    (sent, *len)
                }
                Piece::File { partition, position, len } => {
                    let Some(source) = log.partition(*partition) else { bail!("a topic went away under a reader") };
                    let sent =
                        rustix::fs::sendfile(&self.stream, &source.file, Some(position), *len).or_else(when_full)?;
                    *len -= sent;
                    (sent, *len)
                }
            };
            if sent == 0 && left > 0 {
                return Ok(false);
            }
            if left == 0 {
                self.queue.pop_front();
            }
        }
        self.out.clear();
        self.out_sent = 0;
        Ok(true)
    }
}

/// A full socket takes nothing.
fn when_full(e: rustix::io::Errno) -> rustix::io::Result<usize> {
    match e {
        rustix::io::Errno::AGAIN | rustix::io::Errno::INTR => Ok(0),
        e => Err(e),
    }
}
