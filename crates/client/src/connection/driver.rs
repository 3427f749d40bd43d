//! The task behind a connection. It owns the stream, writes what is asked of it in order, and gives the answers to those
//! who wait; when anything goes wrong, all of them hear of it and the task ends.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Sleep};

use super::Frame;
use super::frames::Frames;
use crate::config::ClientConfig;
use crate::error::Error;
use crate::metrics::{ConnectionMetrics, Open, ms};
use crate::transport::Transport;

/// What is wrong with an answer that has another request's number.
pub(super) const UNASKED: &str = "an answer to nothing that was asked";
/// Requests on their way at once; further ones wait in the queue.
const MAX_IN_FLIGHT: usize = 1024;
/// Bytes that wait to be written before no further request is taken.
const MAX_UNWRITTEN: usize = 1 << 20;
/// Pieces handed to the system in one call.
const MAX_PIECES: usize = 64;

/// A request to send.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) frame: Frame,
    /// As in the frame's header.
    pub(super) correlation: i32,
    /// How long the answer may take.
    pub(super) timeout: Duration,
    /// Whether there is an answer at all.
    pub(super) answered: bool,
    pub(super) reply: oneshot::Sender<Result<Bytes, Error>>,
}

/// A request that waits for its answer, or for being written where there is none.
struct Waiting {
    correlation: i32,
    until: Instant,
    timeout: Duration,
    reply: oneshot::Sender<Result<Bytes, Error>>,
}

/// A frame that is not wholly written.
struct Unwritten {
    pieces: VecDeque<Bytes>,
    /// The request, where there is no answer.
    unanswered: Option<Waiting>,
}

/// Why the task ends.
enum End {
    /// Nobody needs the connection any more.
    Unused,
    /// Something is wrong.
    Failed(Error),
}

/// The task's state.
pub(super) struct Driver {
    stream: Box<dyn Transport>,
    address: Arc<str>,
    commands: mpsc::Receiver<Command>,
    no_more_commands: bool,
    unwritten: VecDeque<Unwritten>,
    unwritten_bytes: usize,
    /// What was written may still be in the transport.
    unflushed: bool,
    in_flight: VecDeque<Waiting>,
    frames: Frames,
    metrics: Open,
    max_idle: Duration,
    last_use: Instant,
    /// Goes off no later than anything is due.
    timer: Pin<Box<Sleep>>,
}

impl Driver {
    pub(super) fn new(
        stream: Box<dyn Transport>,
        address: Arc<str>,
        commands: mpsc::Receiver<Command>,
        config: &ClientConfig,
        metrics: ConnectionMetrics,
    ) -> Self {
        Self {
            stream,
            address,
            commands,
            no_more_commands: false,
            unwritten: VecDeque::new(),
            unwritten_bytes: 0,
            unflushed: false,
            in_flight: VecDeque::new(),
            frames: Frames::new(config.max_response),
            metrics: Open::new(metrics),
            max_idle: config.connections_max_idle,
            last_use: Instant::now(),
            timer: Box::pin(tokio::time::sleep(config.connections_max_idle)),
        }
    }

    /// Works until the connection ends.
    pub(super) async fn run(mut self) {
        let end = poll_fn(|cx| self.poll(cx)).await;
        self.commands.close();
        let error = match end {
            End::Unused => Error::disconnected(&self.address, io::ErrorKind::NotConnected.into()),
            End::Failed(error) => error,
        };
        tracing::debug!(address = %self.address, %error, "connection ended");
        let unwritten = self.unwritten.into_iter().filter_map(|frame| frame.unanswered);
        for request in self.in_flight.into_iter().chain(unwritten) {
            // Whoever does not wait any more does not hear of it.
            let _ = request.reply.send(Err(error.clone()));
        }
        while let Ok(command) = self.commands.try_recv() {
            let _ = command.reply.send(Err(error.clone()));
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            let full = !self.take_commands(cx);
            let moved = self.write(cx).and_then(|wrote| Ok(self.read(cx)? || wrote));
            match moved {
                Err(source) => return Poll::Ready(End::Failed(Error::disconnected(&self.address, source))),
                Ok(true) if full => {}
                Ok(_) => break,
            }
        }
        if self.no_more_commands && self.is_written() && self.in_flight.iter().all(|r| r.reply.is_closed()) {
            return Poll::Ready(End::Unused);
        }
        self.check_time(cx)
    }

    fn is_written(&self) -> bool {
        self.unwritten.is_empty() && !self.unflushed
    }

    /// Takes requests while there is room; whether all were taken.
    fn take_commands(&mut self, cx: &mut Context<'_>) -> bool {
        while !self.no_more_commands {
            if self.in_flight.len() >= MAX_IN_FLIGHT || self.unwritten_bytes >= MAX_UNWRITTEN {
                return false;
            }
            match self.commands.poll_recv(cx) {
                Poll::Ready(Some(command)) => self.take(command),
                Poll::Ready(None) => self.no_more_commands = true,
                Poll::Pending => break,
            }
        }
        true
    }

    fn take(&mut self, command: Command) {
        if command.reply.is_closed() {
            return;
        }
        let Command { frame, correlation, timeout, answered, reply } = command;
        self.metrics.request_total.increment(1);
        self.last_use = Instant::now();
        let until = self.last_use + timeout;
        if until < self.timer.deadline() {
            self.timer.as_mut().reset(until);
        }
        let mut unanswered = Some(Waiting { correlation, until, timeout, reply });
        if answered {
            self.in_flight.extend(unanswered.take());
        }
        let pieces = pieces(frame);
        self.unwritten_bytes += pieces.iter().map(Bytes::len).sum::<usize>();
        self.unwritten.push_back(Unwritten { pieces, unanswered });
    }

    /// Writes what the system takes; whether it took anything.
    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut wrote = false;
        while !self.unwritten.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_PIECES];
            let all = self.unwritten.iter().flat_map(|frame| &frame.pieces);
            let used = slices.iter_mut().zip(all).map(|(slice, piece)| *slice = IoSlice::new(piece)).count();
            match Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..used]) {
                Poll::Pending => return Ok(wrote),
                Poll::Ready(written) => match written? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    bytes => self.written(bytes),
                },
            }
            (wrote, self.unflushed) = (true, true);
        }
        if self.unflushed
            && let Poll::Ready(flushed) = Pin::new(&mut self.stream).poll_flush(cx)
        {
            flushed?;
            self.unflushed = false;
        }
        Ok(wrote)
    }

    /// Forgets bytes that were written.
    fn written(&mut self, mut bytes: usize) {
        self.unwritten_bytes -= bytes;
        self.metrics.outgoing_byte_total.increment(bytes as u64);
        while let Some(frame) = self.unwritten.front_mut() {
            while let Some(piece) = frame.pieces.front_mut() {
                let taken = piece.len().min(bytes);
                drop(piece.split_to(taken));
                bytes -= taken;
                if !piece.is_empty() {
                    return;
                }
                frame.pieces.pop_front();
            }
            if let Some(frame) = self.unwritten.pop_front()
                && let Some(request) = frame.unanswered
            {
                let _ = request.reply.send(Ok(Bytes::new()));
            }
        }
    }

    /// Reads what is there and hands on the answers; whether anything came.
    fn read(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut came = false;
        loop {
            let read = pin!(self.stream.read_buf(self.frames.room())).poll(cx);
            match read {
                Poll::Pending => return Ok(came),
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Poll::Ready(bytes) => {
                    self.metrics.incoming_byte_total.increment(bytes? as u64);
                    came = true;
                }
            }
            while let Some(frame) = self.frames.next().map_err(io::Error::other)? {
                self.answer(frame)?;
            }
        }
    }

    fn answer(&mut self, frame: Bytes) -> io::Result<()> {
        let correlation = frame.first_chunk::<4>().map(|id| i32::from_be_bytes(*id));
        let request = self.in_flight.pop_front().filter(|request| Some(request.correlation) == correlation);
        let Some(request) = request else { return Err(io::Error::other(UNASKED)) };
        self.last_use = Instant::now();
        self.metrics.response_total.increment(1);
        self.metrics.request_latency_ms.record(ms(request.timeout - (request.until - self.last_use)));
        let _ = request.reply.send(Ok(frame));
        Ok(())
    }

    /// All requests that are under way.
    fn waiting(&self) -> impl Iterator<Item = &Waiting> {
        self.in_flight.iter().chain(self.unwritten.iter().filter_map(|frame| frame.unanswered.as_ref()))
    }

    /// Ends the connection when an answer is late, or nobody has used it for long.
    fn check_time(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if let Some(late) = self.waiting().find(|request| request.until <= now) {
                let what = format!("a request to {}", self.address);
                return Poll::Ready(End::Failed(Error::timeout(what, late.timeout, None)));
            }
            let idle_at = self.last_use + self.max_idle;
            if self.in_flight.is_empty() && self.is_written() && idle_at <= now {
                return Poll::Ready(End::Unused);
            }
            let due = self.waiting().map(|request| request.until).min();
            // Not idle while something is under way: looked at again when that is over.
            let idle_at = if idle_at <= now { now + self.max_idle } else { idle_at };
            self.timer.as_mut().reset(due.map_or(idle_at, |due| due.min(idle_at)));
        }
        Poll::Pending
    }
}

/// The frame as it is written: its own bytes around those of the gaps.
fn pieces(frame: Frame) -> VecDeque<Bytes> {
    let mut rest = Bytes::from(frame.bytes);
    let mut pieces = VecDeque::with_capacity(2 * frame.gaps.len() + 1);
    let mut cut = 0;
    for (at, bytes) in frame.gaps {
        pieces.push_back(rest.split_to(at - cut));
        pieces.push_back(bytes);
        cut = at;
    }
    pieces.push_back(rest);
    pieces.retain(|piece| !piece.is_empty());
    pieces
}
