//! The replies of one connection in request order: what is ready, and what must come first. Polls later replies in the
//! connection's task: the first one with the task's own waker, those behind it only when they woke.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::outgoing::{Outgoing, TooLong};
use crate::replies::{Content, LocalBoxFuture, Pipelining, Reply, ReplyLimits};

/// File ranges in one connection's output from which on its next frames wait.
const MAX_UNSENT_RANGES: usize = 1024;

/// Room for later replies that a connection without any keeps.
const MAX_IDLE_SLOTS: usize = 8;

/// A later reply, and what is ready behind it.
struct Slot {
    state: SlotState,
    /// No further frame is served until it resolves.
    holds: bool,
    after: Outgoing,
}

enum SlotState {
    /// Not polled yet.
    Fresh(LocalBoxFuture<'static, Reply>),
    /// Polled with the task's waker, for it was the first.
    First(LocalBoxFuture<'static, Reply>),
    /// Polled with a waker of its own, for others were before it.
    Behind(LocalBoxFuture<'static, Reply>, Arc<SlotWaker>),
    /// Resolved.
    Done(Reply),
}

/// Remembers which of many later replies woke the task.
struct SlotWaker {
    woken: AtomicBool,
    task: Waker,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

/// How a connection is about to end.
#[derive(Debug)]
pub(crate) struct Closing {
    /// For the log.
    pub(crate) reason: Cow<'static, str>,
    /// Without sending what is left.
    pub(crate) now: bool,
}

/// The replies of one connection that are not sent yet.
pub(crate) struct ReplyQueue {
    /// What can be sent.
    pub(crate) out: Outgoing,
    slots: VecDeque<Slot>,
    /// Length of all `after` of the slots.
    behind: u64,
    /// How many of the last slots were never polled.
    fresh: usize,
    /// Unresolved slots that hold the connection.
    held: usize,
    /// The connection ends after some reply: no further frame is served.
    shut: bool,
    /// Set when that reply's turn has come.
    closing: Option<Closing>,
}

impl ReplyQueue {
    pub(crate) fn new() -> Self {
        Self {
            out: Outgoing::empty(),
            slots: VecDeque::new(),
            behind: 0,
            fresh: 0,
            held: 0,
            shut: false,
            closing: None,
        }
    }

    /// Lets `write` append where the next ready reply goes.
    pub(crate) fn append<R>(&mut self, write: impl FnOnce(&mut Outgoing) -> R) -> R {
        let Some(slot) = self.slots.back_mut() else { return write(&mut self.out) };
        let before = slot.after.len();
        let result = write(&mut slot.after);
        self.behind += slot.after.len() - before;
        result
    }

    /// Takes a later reply.
    pub(crate) fn push(&mut self, reply: LocalBoxFuture<'static, Reply>, pipelining: Pipelining) {
        let holds = pipelining == Pipelining::Hold;
        self.held += usize::from(holds);
        self.fresh += 1;
        self.slots.push_back(Slot { state: SlotState::Fresh(reply), holds, after: Outgoing::empty() });
    }

    /// Ends the connection after what is there.
    pub(crate) fn close(&mut self, reason: Cow<'static, str>) {
        self.shut = true;
        match self.slots.back_mut() {
            // Comes behind the last later reply.
            Some(_) => self.push(Box::pin(std::future::ready(Reply::close(reason))), Pipelining::Hold),
            None => self.close_as(Closing { reason, now: false }),
        }
    }

    /// Ends the connection without what is there.
    pub(crate) fn close_now(&mut self, reason: Cow<'static, str>) {
        self.close_as(Closing { reason, now: true });
    }

    fn close_as(&mut self, closing: Closing) {
        self.slots.clear();
        (self.behind, self.fresh, self.held) = (0, 0, 0);
        self.shut = true;
        self.closing.get_or_insert(closing);
    }

    /// Whether no further frame is ever served.
    pub(crate) fn is_shut(&self) -> bool {
        self.shut
    }

    /// How the connection is about to end.
    pub(crate) fn closing(&self) -> Option<&Closing> {
        self.closing.as_ref()
    }

    /// As [`Self::closing`], once.
    pub(crate) fn take_closing(&mut self) -> Option<Closing> {
        self.closing.take()
    }

    /// Whether replies are outstanding.
    pub(crate) fn has_outstanding(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Bytes of memory that the replies take until they are sent.
    pub(crate) fn held(&self) -> u64 {
        let behind = match self.behind {
            0 => 0,
            _ => self.slots.iter().map(Slot::held).sum(),
        };
        (self.out.bytes.capacity() + behind) as u64
    }

    /// Whether one more frame may be served.
    pub(crate) fn may_serve(&self, limits: ReplyLimits) -> bool {
        self.held == 0
            && !self.shut
            && self.slots.len() < limits.max_in_flight
            && self.out.ranges_left() < MAX_UNSENT_RANGES
            && self.out.len() + self.behind <= limits.max_unsent_bytes as u64
    }

    /// Polls what woke since the last call, and moves what is in turn to the output.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) {
        self.poll_from(0, cx);
    }

    /// As [`Self::poll`], for those only that came since.
    pub(crate) fn poll_fresh(&mut self, cx: &mut Context<'_>) {
        if self.fresh > 0 {
            self.poll_from(self.slots.len() - self.fresh, cx);
        }
    }

    fn poll_from(&mut self, from: usize, cx: &mut Context<'_>) {
        self.fresh = 0;
        for (index, slot) in self.slots.iter_mut().enumerate().skip(from) {
            let Some(reply) = slot.state.poll(index == 0, cx) else { continue };
            self.behind += reply.len();
            self.held -= usize::from(slot.holds);
            self.shut |= reply.close.is_some();
            slot.state = SlotState::Done(reply);
        }
        while let Some(Slot { state: SlotState::Done(_), .. }) = self.slots.front()
            && let Some(Slot { state: SlotState::Done(reply), after, .. }) = self.slots.pop_front()
        {
            self.behind -= reply.len() + after.len();
            self.send(reply, after);
        }
        if self.slots.is_empty() && self.slots.capacity() > MAX_IDLE_SLOTS {
            self.slots = VecDeque::new();
        }
    }

    fn send(&mut self, reply: Reply, after: Outgoing) {
        let sealed = match reply.content {
            Content::Nothing => Ok(()),
            Content::Frame(frame) => self.out.append_frame(frame),
            Content::Write(write) => {
                let mark = self.out.begin();
                write(&mut self.out);
                self.out.seal(mark)
            }
        };
        let close = reply.close.or(sealed.err().map(|TooLong| Cow::Borrowed(TooLong::REASON)));
        match close {
            Some(reason) => self.close_as(Closing { reason, now: false }),
            None => self.out.append(after),
        }
    }
}

impl Slot {
    /// Bytes of memory that it takes.
    fn held(&self) -> usize {
        let reply = match &self.state {
            SlotState::Done(Reply { content: Content::Frame(frame), .. }) => frame.bytes.capacity(),
            _ => 0,
        };
        reply + self.after.bytes.capacity()
    }
}

impl SlotState {
    /// Polls what may have woken; the reply, when it has just come.
    fn poll(&mut self, first: bool, cx: &mut Context<'_>) -> Option<Reply> {
        if let Self::Fresh(_) = self
            && let Self::Fresh(reply) = std::mem::replace(self, Self::Done(Reply::none()))
        {
            *self = if first {
                Self::First(reply)
            } else {
                let waker = SlotWaker { woken: AtomicBool::new(true), task: cx.waker().clone() };
                Self::Behind(reply, Arc::new(waker))
            };
        }
        let polled = match self {
            Self::First(reply) => reply.as_mut().poll(cx),
            Self::Behind(reply, waker) if waker.woken.swap(false, Ordering::AcqRel) => {
                let own = Waker::from(Arc::clone(waker));
                reply.as_mut().poll(&mut Context::from_waker(&own))
            }
            Self::Behind(..) | Self::Fresh(_) | Self::Done(_) => Poll::Pending,
        };
        match polled {
            Poll::Ready(reply) => Some(reply),
            Poll::Pending => None,
        }
    }
}
