//! What a service answers with: replies that are ready, and replies that come later. Their order and their polling are
//! the queue's business.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::Outgoing;
use crate::frames::Gate;
use crate::limits::{Claim, ReceiveMemory};
use crate::outgoing::TooLong;
use crate::queue::ReplyQueue;

/// A boxed future that stays on its thread.
pub type LocalBoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Whether frames behind a later reply are served before it is there. Replies leave in order either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pipelining {
    /// No further frame of the connection is served until the reply is there.
    Hold,
    /// Further frames are served; their replies wait behind this one.
    Continue,
}

type WriteReply = Box<dyn FnOnce(&mut Outgoing)>;

pub(crate) enum Content {
    Nothing,
    Frame(Outgoing),
    Write(WriteReply),
}

/// The outcome of a later reply.
pub struct Reply {
    pub(crate) content: Content,
    pub(crate) close: Option<Cow<'static, str>>,
}

impl Reply {
    /// A frame; `frame` was made by [`Outgoing::new`] and holds one reply without its length prefix.
    pub fn frame(frame: Outgoing) -> Self {
        Self { content: Content::Frame(frame), close: None }
    }

    /// A frame that is written straight into the connection's buffer, when its turn has come.
    pub fn write(write: impl FnOnce(&mut Outgoing) + 'static) -> Self {
        Self { content: Content::Write(Box::new(write)), close: None }
    }

    /// The request has no answer, as a Produce with acks=0.
    pub fn none() -> Self {
        Self { content: Content::Nothing, close: None }
    }

    /// Closes the connection after everything before is sent; what comes after is dropped.
    pub fn close(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::none().then_close(reason)
    }

    /// Closes the connection after this reply is sent.
    #[must_use]
    pub fn then_close(self, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { close: Some(reason.into()), ..self }
    }
}

impl Reply {
    /// Bytes it keeps until its turn, those in files included.
    pub(crate) fn len(&self) -> u64 {
        match &self.content {
            Content::Frame(frame) => frame.len(),
            Content::Nothing | Content::Write(_) => 0,
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = match &self.content {
            Content::Nothing => "none",
            Content::Frame(_) => "frame",
            Content::Write(_) => "write",
        };
        f.debug_struct("Reply").field("content", &content).field("close", &self.close).finish()
    }
}

/// Takes the replies to the frames of one call of [`Service::serve`](crate::Service::serve), in the frames' order.
pub struct Replies<'a> {
    queue: &'a mut ReplyQueue,
    gate: &'a Gate,
    memory: &'a Arc<ReceiveMemory>,
    limits: ReplyLimits,
    given: usize,
}

/// From where on a connection's replies forbid further frames.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplyLimits {
    pub(crate) max_in_flight: usize,
    pub(crate) max_unsent_bytes: usize,
}

impl<'a> Replies<'a> {
    pub(crate) fn new(
        queue: &'a mut ReplyQueue,
        gate: &'a Gate,
        memory: &'a Arc<ReceiveMemory>,
        limits: ReplyLimits,
    ) -> Self {
        Self { queue, gate, memory, limits, given: 0 }
    }

    /// Counts `bytes` among the memory of received bytes: whoever copies a frame to answer it later keeps this with the
    /// copy. While memory is short, connections that need more are not read.
    pub fn claim(&self, bytes: usize) -> Claim {
        Claim::new(self.memory, bytes as u64)
    }

    /// A reply that is ready: `write` appends it to the connection's buffer, without a length prefix.
    pub fn ready<R>(&mut self, write: impl FnOnce(&mut Outgoing) -> R) -> R {
        let (result, sealed) = self.queue.append(|out| {
            let mark = out.begin();
            let result = write(out);
            (result, out.seal(mark))
        });
        self.sealed(sealed);
        result
    }

    /// A reply is ready; one that is too long ends the connection.
    fn sealed(&mut self, sealed: Result<(), TooLong>) {
        if sealed.is_err() {
            self.queue.close(Cow::Borrowed(TooLong::REASON));
        }
        self.given();
    }

    /// As [`Self::ready`]; after an error there is no reply, and the frame still waits for one.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn try_ready<R, E>(&mut self, write: impl FnOnce(&mut Outgoing) -> Result<R, E>) -> Result<R, E> {
        let (result, sealed) = self.queue.append(|out| {
            let mark = out.begin();
            let result = write(out);
            if result.is_err() {
                out.abandon(mark);
                return (result, Ok(()));
            }
            (result, out.seal(mark))
        });
        if result.is_ok() {
            self.sealed(sealed);
        }
        result
    }

    /// A reply that is there when `reply` resolves. It is polled by the connection's task, first right after this
    /// call of the service; replies to later frames wait behind it. It is dropped when the connection ends.
    pub fn later(&mut self, reply: LocalBoxFuture<'static, Reply>, pipelining: Pipelining) {
        self.queue.push(reply, pipelining);
        self.given();
    }

    /// The frame has no reply, as a Produce with acks=0.
    pub fn none(&mut self) {
        self.given();
    }

    /// Serves no further frame, and closes the connection after the replies so far are sent. Counts as the reply to
    /// one frame, or comes after the reply to the last one. The reason goes to the log.
    pub fn close(&mut self, reason: impl Into<Cow<'static, str>>) {
        self.queue.close(reason.into());
        self.given();
    }

    /// Closes the connection at once; the replies so far may be lost.
    pub fn close_now(&mut self, reason: impl Into<Cow<'static, str>>) {
        self.queue.close_now(reason.into());
        self.given();
    }

    fn given(&mut self) {
        self.given += 1;
        if !self.queue.may_serve(self.limits) {
            self.gate.shut();
        }
    }

    /// Whether each of `taken` frames has its reply.
    pub(crate) fn complete(&self, taken: usize) -> bool {
        self.given == taken || self.queue.is_shut()
    }
}
