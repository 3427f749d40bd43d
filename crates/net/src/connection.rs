//! One connection, as one task: what it does in a wake-up. It polls later replies, serves what is in the buffer, sends
//! what is ready, and reads once, until nothing more can be done without waiting.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::frames::{Frames, Gate, Head};
use crate::limits::Permit;
use crate::outgoing::{FileRange, Piece};
use crate::queue::ReplyQueue;
use crate::reactor::{Accepted, Entry, Reactor, Verdict};
use crate::received::Received;
use crate::replies::{Replies, ReplyLimits};
use crate::stream::Stream;
use crate::warm::Warmth;
use crate::{Peer, Service};

/// Bytes sent in one turn, after which other connections have theirs.
const MAX_SENT_PER_TURN: usize = 4 << 20;

/// Why a connection ends.
enum End {
    /// The peer is done.
    Peer,
    /// The socket failed.
    Failed(io::Error),
    /// The service, or a frame that is none.
    Reason(Cow<'static, str>),
    Swept(Verdict),
    /// The server stops.
    Stopped,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer => f.write_str("closed by the peer"),
            Self::Failed(e) => write!(f, "{e}"),
            Self::Reason(reason) => f.write_str(reason),
            Self::Swept(Verdict::Idle) => f.write_str("idle for too long"),
            Self::Swept(Verdict::Stalled) => f.write_str("memory is short, and a frame takes too long"),
            Self::Stopped => f.write_str("the server stops"),
        }
    }
}

/// A connection; its future ends when it does.
pub(crate) struct Connection<S: Service> {
    stream: Stream,
    peer: Peer,
    service: Arc<S>,
    /// There until the end.
    session: Option<S::Session>,
    received: Received,
    queue: ReplyQueue,
    warmth: Warmth,
    /// The peer sends no more.
    eof: bool,
    entry: Rc<Entry>,
    reactor: Rc<Reactor>,
    _permit: Permit,
}

// Nothing in it is pinned.
impl<S: Service> Unpin for Connection<S> {}

impl<S: Service> Connection<S> {
    /// Takes over an accepted connection on its reactor.
    pub(crate) fn open(reactor: Rc<Reactor>, service: Arc<S>, accepted: Accepted) -> io::Result<Self> {
        let Accepted { socket, peer, permit } = accepted;
        let stream = Stream::new(socket)?;
        let session = catch_unwind(AssertUnwindSafe(|| service.connect(&peer)))
            .map_err(|panic| io::Error::other(format!("a panic: {}", message(&*panic))))?;
        let entry = reactor.enter(peer.id);
        Ok(Self {
            stream,
            peer,
            service,
            session: Some(session),
            received: Received::default(),
            queue: ReplyQueue::new(),
            warmth: Warmth::default(),
            eof: false,
            entry,
            reactor,
            _permit: permit,
        })
    }

    fn limits(&self) -> ReplyLimits {
        let config = &self.reactor.shared.config;
        ReplyLimits { max_in_flight: config.max_in_flight, max_unsent_bytes: config.max_unsent_bytes }
    }

    fn max_frame_bytes(&self) -> usize {
        self.reactor.shared.config.max_frame_bytes
    }

    /// Everything that can be done now.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.queue.poll(cx);
        let mut sent = 0;
        let mut buffer_was_full = false;
        loop {
            self.serve();
            self.queue.poll_fresh(cx);
            if self.queue.closing().is_some_and(|closing| closing.now) {
                return Poll::Ready(self.end());
            }
            let flushed = match self.flush(cx, &mut sent) {
                Poll::Ready(Ok(())) => true,
                Poll::Ready(Err(e)) => return Poll::Ready(End::Failed(e)),
                Poll::Pending => false,
            };
            if self.has_servable_frame() {
                continue;
            }
            if flushed && !self.queue.has_outstanding() && (self.queue.closing().is_some() || self.is_last_turn()) {
                return Poll::Ready(self.end());
            }
            if !self.may_read(cx) {
                return Poll::Pending;
            }
            if buffer_was_full {
                // There may be more, but others come first.
                yield_turn(cx);
                return Poll::Pending;
            }
            match ready!(self.read(cx)) {
                Ok(was_full) => buffer_was_full = was_full,
                Err(e) => return Poll::Ready(End::Failed(e)),
            }
        }
    }

    /// Whether nothing more is read, ever.
    fn is_last_turn(&self) -> bool {
        self.eof || self.reactor.is_stopping()
    }

    fn end(&mut self) -> End {
        match self.queue.take_closing() {
            Some(closing) => End::Reason(closing.reason),
            None if self.eof => End::Peer,
            None => End::Stopped,
        }
    }

    fn has_servable_frame(&self) -> bool {
        self.queue.may_serve(self.limits()) && matches!(self.received.head(self.max_frame_bytes()), Head::Complete(_))
    }

    /// Lets the service take the complete frames, as far as it may.
    fn serve(&mut self) {
        let (limits, max_frame_bytes) = (self.limits(), self.max_frame_bytes());
        let Some(session) = &mut self.session else { return };
        while self.queue.may_serve(limits) {
            match self.received.head(max_frame_bytes) {
                Head::Complete(_) => {}
                Head::Unknown | Head::Partial(_) => return,
                Head::Hostile(prefix) => {
                    self.received.clear();
                    self.queue.close(Cow::Owned(format!("a frame of {prefix} bytes, not 0 to {max_frame_bytes}")));
                    return;
                }
            }
            let gate = Gate::default();
            let mut frames = Frames::new(self.received.bytes_mut(), max_frame_bytes, &gate);
            let mut replies = Replies::new(&mut self.queue, &gate, &self.reactor.shared.memory, limits);
            self.service.serve(session, &mut frames, &mut replies);
            let (taken, bytes) = (frames.taken(), frames.taken_bytes());
            if !replies.complete(taken) || taken == 0 {
                tracing::error!(peer = %self.peer.remote, "the service took {taken} frames and did not answer each once");
                self.queue.close_now(Cow::Borrowed("unanswered frames"));
            }
            self.received.served(bytes, taken);
            self.reactor.begin_frame(&self.entry);
        }
        if self.queue.is_shut() {
            self.received.clear();
        }
    }

    /// Sends what is ready; pending while the socket is full or the disk reads, and after much was sent.
    fn flush(&mut self, cx: &mut Context<'_>, sent: &mut usize) -> Poll<io::Result<()>> {
        while let Some(piece) = self.queue.out.next() {
            if *sent >= MAX_SENT_PER_TURN {
                yield_turn(cx);
                return Poll::Pending;
            }
            let result = match piece {
                Piece::Bytes { bytes, more } => self.stream.try_send(bytes, more),
                Piece::File(FileRange { file, position, len, cold: false, .. }) => {
                    self.stream.try_send_file(file, *position, *len)
                }
                Piece::File(FileRange { file, position, len, .. }) => {
                    let warm = ready!(self.warmth.poll(cx, file, *position, *len));
                    let sent = self.stream.try_send_file(file, *position, warm);
                    sent.inspect(|count| self.warmth.sent(*count as u64))
                }
            };
            match result {
                Ok(count) => {
                    *sent += count;
                    self.queue.out.advance(count);
                    self.reactor.touch(&self.entry);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.queue.out.compact();
                    ready!(self.stream.poll_writable(cx))?;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    if let Some(Piece::File(range)) = self.queue.out.next() {
                        range.failed(&e);
                    }
                    return Poll::Ready(Err(e));
                }
            }
        }
        self.queue.out.reset();
        Poll::Ready(Ok(()))
    }

    /// Whether the next frames are wanted; if only memory is in the way, waits for it.
    fn may_read(&mut self, cx: &Context<'_>) -> bool {
        let wanted = !self.is_last_turn() && self.queue.may_serve(self.limits());
        let memory = &self.reactor.shared.memory;
        let waits = wanted
            && memory.is_short()
            && !self.received.fits(self.max_frame_bytes())
            && memory.wait(self.peer.id, self.entry.claim.get(), cx.waker());
        if self.entry.waits_for_memory.replace(waits) && !waits {
            memory.forget(self.peer.id);
        }
        wanted && !waits
    }

    /// Reads once; whether the buffer is full now, so that there may be more.
    fn read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        ready!(self.stream.poll_readable(cx))?;
        let mut pool = self.reactor.pool.borrow_mut();
        let room = self.received.room(&mut pool, self.reactor.shared.config.max_frame_bytes);
        let count = match ready!(self.stream.poll_read(cx, room)) {
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Poll::Ready(Ok(false)),
            Err(e) => return Poll::Ready(Err(e)),
        };
        let was_full = count == room.len();
        self.eof = count == 0;
        self.received.filled(count);
        self.reactor.touch(&self.entry);
        Poll::Ready(Ok(was_full))
    }

    /// The turn is over: gives back what is not needed while waiting.
    fn settle(&mut self) {
        let mut pool = self.reactor.pool.borrow_mut();
        self.received.settle(&mut pool);
        if self.queue.out.is_empty() {
            pool.put_output(std::mem::take(&mut self.queue.out.bytes));
        }
        drop(pool);
        self.claim(self.received.held() + self.held_by_replies());
    }

    /// Memory of replies, when it is more than every connection may have.
    fn held_by_replies(&self) -> u64 {
        let held = self.queue.held();
        if held > self.reactor.shared.config.max_unsent_bytes as u64 { held } else { 0 }
    }

    fn claim(&self, bytes: u64) {
        let claimed = self.entry.claim.replace(bytes);
        if claimed == 0 {
            self.reactor.begin_frame(&self.entry);
        }
        if claimed != bytes {
            self.reactor.shared.memory.change(claimed, bytes);
        }
    }

    fn wake_up(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.entry.remember(cx.waker());
        if let Some(verdict) = self.entry.verdict() {
            return Poll::Ready(End::Swept(verdict));
        }
        if self.queue.out.bytes.capacity() == 0 {
            self.queue.out.bytes = self.reactor.pool.borrow_mut().take_output();
        }
        let end = self.turn(cx);
        self.settle();
        end
    }
}

impl<S: Service> Future for Connection<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match catch_unwind(AssertUnwindSafe(|| self.wake_up(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(end)) => {
                let Peer { remote, listener, .. } = &self.peer;
                match &end {
                    End::Reason(_) | End::Swept(Verdict::Stalled) => {
                        tracing::info!(peer = %remote, %listener, "connection ended: {end}");
                    }
                    _ => tracing::debug!(peer = %remote, %listener, "connection ended: {end}"),
                }
                self.stream.end();
            }
            Err(panic) => {
                tracing::error!(peer = %self.peer.remote, "a panic ends the connection: {}", message(&*panic));
            }
        }
        Poll::Ready(())
    }
}

impl<S: Service> Drop for Connection<S> {
    fn drop(&mut self) {
        self.claim(0);
        if self.entry.waits_for_memory.get() {
            self.reactor.shared.memory.forget(self.peer.id);
        }
        self.reactor.leave(self.peer.id);
        let outstanding = std::mem::replace(&mut self.queue, ReplyQueue::new());
        let session = self.session.take();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            drop(outstanding);
            session.into_iter().for_each(|session| self.service.disconnect(session));
        }));
        if let Err(panic) = ended {
            tracing::error!(peer = %self.peer.remote, "a panic after the connection's end: {}", message(&*panic));
        }
    }
}

/// Asks for another turn, after the runtime has looked for what else is ready: a plain wake-up would come before that,
/// and a few busy connections could keep the others waiting for many turns.
fn yield_turn(cx: &mut Context<'_>) {
    let first_poll_defers = std::pin::pin!(tokio::task::yield_now()).poll(cx);
    debug_assert!(first_poll_defers.is_pending());
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}
