//! A non-blocking client connection: queued frames out, whole replies in.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail};

/// Smallest receive buffer, in bytes.
const RECV_BYTES: usize = 256 << 10;
/// The same of a frugal connection, in bytes: it is made anew for each reply.
const FRUGAL_RECV_BYTES: usize = 4 << 10;
/// Smallest frame that goes out without a copy when nothing is queued before it, in bytes.
const DIRECT_BYTES: usize = 16 << 10;

/// A connection of the load tool.
pub(crate) struct Conn {
    stream: TcpStream,
    out: Vec<u8>,
    out_sent: usize,
    inbox: Vec<u8>,
    start: usize,
    end: usize,
    /// It keeps no buffer between replies.
    frugal: bool,
}

impl Conn {
    /// Connects to a server.
    pub(crate) fn connect(addr: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(addr).with_context(|| format!("connecting to {addr}"))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, out: Vec::new(), out_sent: 0, inbox: Vec::new(), start: 0, end: 0, frugal: false })
    }

    /// The same, keeping no buffer between replies: for thousands of connections that are idle most of the time.
    pub(crate) fn frugal(self, frugal: bool) -> Self {
        Self { frugal, ..self }
    }

    /// Another connection to the same server.
    pub(crate) fn again(&self) -> Result<Self> {
        Ok(Self::connect(self.stream.peer_addr()?)?.frugal(self.frugal))
    }

    /// The socket.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Bytes queued and not yet taken by the socket.
    pub(crate) fn unsent(&self) -> usize {
        self.out.len() - self.out_sent
    }

    /// Queues a frame; a large one starts on its way at once.
    pub(crate) fn send(&mut self, frame: &[u8]) -> Result<()> {
        let mut taken = 0;
        if frame.len() >= DIRECT_BYTES && self.flush()? {
            taken = write_some(&mut self.stream, frame)?;
        }
        self.out.extend_from_slice(&frame[taken..]);
        Ok(())
    }

    /// Gives the socket what it takes of the queue; `true` when nothing is left.
    pub(crate) fn flush(&mut self) -> Result<bool> {
        while self.unsent() > 0 {
            match write_some(&mut self.stream, &self.out[self.out_sent..])? {
                0 => return Ok(false),
                sent => self.out_sent += sent,
            }
        }
        self.out.clear();
        self.out_sent = 0;
        Ok(true)
    }

    /// Reads once and hands each whole reply, without its length prefix, to `handle`.
    pub(crate) fn receive(&mut self, mut handle: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.make_room();
        match self.stream.read(&mut self.inbox[self.end..]) {
            Ok(0) => bail!("the server closed a connection"),
            Ok(len) => self.end += len,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(()),
            Err(e) => return Err(e).context("receiving"),
        }
        while let Some(len) = self.frame_len()
            && self.end - self.start >= 4 + len
        {
            let from = self.start + 4;
            handle(&self.inbox[from..from + len])?;
            self.start = from + len;
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.frugal {
                self.inbox = Vec::new();
            }
        }
        Ok(())
    }

    /// Length of the reply at the front, once its prefix is here.
    fn frame_len(&self) -> Option<usize> {
        let prefix = self.inbox[self.start..self.end].first_chunk::<4>()?;
        Some(u32::from_be_bytes(*prefix) as usize)
    }

    /// Makes room for the rest of the reply at the front, or for a good read.
    fn make_room(&mut self) {
        let least = if self.frugal { FRUGAL_RECV_BYTES } else { RECV_BYTES };
        let need = (4 + self.frame_len().unwrap_or(0)).max(least);
        if self.start > 0 && self.inbox.len() - self.start < need {
            self.inbox.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.inbox.len() < self.start + need {
            self.inbox.resize(self.start + need, 0);
        }
    }
}

/// Writes what the socket takes now; 0 when it's full.
fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> Result<usize> {
    match stream.write(bytes) {
        Ok(len) => Ok(len),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
        Err(e) => Err(e).context("sending"),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_frugal_connection_takes_replies_of_any_length_and_keeps_no_buffer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut conn = Conn::connect(listener.local_addr().unwrap()).unwrap().frugal(true);
        let (mut server, _) = listener.accept().unwrap();
        for len in [3, 3 * FRUGAL_RECV_BYTES] {
            server.write_all(&(len as u32).to_be_bytes()).unwrap();
            server.write_all(&vec![7; len]).unwrap();
            let mut got = 0;
            while got == 0 {
                let take = |reply: &[u8]| {
                    got = reply.len();
                    Ok(())
                };
                conn.receive(take).unwrap();
                assert!(conn.inbox.capacity() < RECV_BYTES);
            }
            assert_eq!((got, conn.inbox.capacity()), (len, 0));
        }
    }
}
