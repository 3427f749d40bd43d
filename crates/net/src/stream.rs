//! The socket of one connection: the only place that knows how bytes and file ranges get in and out.

use std::fs::File;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::SendFlags;
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::TcpStream;

/// Bytes of a file handed to the kernel at once, so that a fast reader of a large range leaves others their turn.
const MAX_SENDFILE_BYTES: u64 = 1 << 20;
/// Unread bytes that are thrown away at the end of a connection.
const MAX_DRAINED_BYTES: usize = 1 << 20;

/// A plaintext connection.
#[derive(Debug)]
pub(crate) struct Stream(TcpStream);

impl Stream {
    /// Takes over an accepted, non-blocking socket; only inside a runtime.
    pub(crate) fn new(socket: std::net::TcpStream) -> io::Result<Self> {
        TcpStream::from_std(socket).map(Self)
    }

    /// Waits for something to read, without a buffer.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read_ready(cx)
    }

    /// Reads once; 0 is the peer's end. When less than `buffer` came, the next wait costs no system call.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        let read = Pin::new(&mut self.0).poll_read(cx, &mut buffer);
        read.map_ok(|()| buffer.filled().len())
    }

    /// Waits for room to send.
    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_write_ready(cx)
    }

    /// Sends bytes; with `more`, the kernel may wait for what follows before it sends a packet.
    pub(crate) fn try_send(&self, bytes: &[u8], more: bool) -> io::Result<usize> {
        let mut flags = SendFlags::NOSIGNAL;
        flags.set(SendFlags::MORE, more);
        self.0.try_io(Interest::WRITABLE, || Ok(rustix::net::send(&self.0, bytes, flags)?))
    }

    /// Sends a range of a file; less than asked for when the socket is full or the range is long.
    pub(crate) fn try_send_file(&self, file: &File, mut position: u64, len: u64) -> io::Result<usize> {
        let len = len.min(MAX_SENDFILE_BYTES) as usize;
        let sent =
            self.0.try_io(Interest::WRITABLE, || Ok(rustix::fs::sendfile(&self.0, file, Some(&mut position), len)?))?;
        if sent == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file is shorter than a reply's range of it"));
        }
        Ok(sent)
    }

    /// Ends the connection in good order. What was received and not read goes first: with it, the kernel would reset
    /// the connection, and the peer might lose the last reply.
    pub(crate) fn end(&self) {
        let mut scratch = [0; 4096];
        let mut drained = 0;
        while let Ok(count @ 1..) = self.0.try_read(&mut scratch) {
            drained += count;
            if drained >= MAX_DRAINED_BYTES {
                break;
            }
        }
    }
}
