//! Runs one engine: what it writes goes into the log in order, its answers leave when everything they rest on is
//! committed, and its timers fire. Events come in by the methods that take an [`Input`]; after each of them the driver
//! makes the writes ([`Runtime::next_write`], [`Runtime::written`]), does what is wanted ([`Runtime::take_effects`]) and sends
//! the answers ([`Runtime::take_replies`]).

use std::collections::VecDeque;

use milena_protocol::ErrorCode;
use milena_records::{Batch, Decompressor};

use crate::engine::{Cx, Engine, Input, Ticket};
use crate::load::replay_batch;
use crate::records::Records;
use crate::timers::Timers;

/// What follows a write.
pub(crate) enum Then<E: Engine> {
    Nothing,
    Settle(E::After),
    Reply(Ticket, E::Reply),
}

/// One batch to be written; one without bytes waits for those before it.
struct Write<E: Engine> {
    batch: Vec<u8>,
    replay: bool,
    then: Then<E>,
}

/// What an engine left to be done.
pub(crate) struct Outbox<E: Engine> {
    pub(crate) replies: Vec<(Ticket, E::Reply)>,
    pub(crate) effects: Vec<E::Effect>,
    writes: VecDeque<Write<E>>,
    /// Writes that could not be made into batches.
    failed: Vec<E::After>,
}

impl<E: Engine> Outbox<E> {
    pub(crate) fn write(&mut self, records: Records, replay: bool, then: Then<E>) {
        match records.finish() {
            Ok(batches) => {
                let mut writes: Vec<_> =
                    batches.into_iter().map(|batch| Write { batch, replay, then: Then::Nothing }).collect();
                match writes.last_mut() {
                    Some(last) => last.then = then,
                    None => writes.push(Write { batch: Vec::new(), replay, then }),
                }
                self.writes.extend(writes);
            }
            Err(_) => match then {
                Then::Settle(after) => self.failed.push(after),
                Then::Nothing | Then::Reply(..) => {}
            },
        }
    }

    pub(crate) fn wait(&mut self, then: Then<E>) {
        self.writes.push_back(Write { batch: Vec::new(), replay: false, then });
    }
}

/// An engine at work.
pub struct Runtime<E: Engine> {
    engine: E,
    timers: Timers<E::Timer>,
    outbox: Outbox<E>,
    /// What follows writes that are in the log, by the offset that must be committed.
    uncommitted: VecDeque<(i64, Then<E>)>,
    /// Offset after the last record that was written.
    end_offset: i64,
    high_watermark: i64,
    decompressor: Decompressor,
}

impl<E: Engine> Runtime<E> {
    pub(crate) fn new(
        engine: E,
        end_offset: i64,
        decompressor: Decompressor,
        input: &mut Input<'_, E::Settings>,
    ) -> Self {
        let mut runtime = Self {
            engine,
            timers: Timers::default(),
            outbox: Outbox { replies: Vec::new(), effects: Vec::new(), writes: VecDeque::new(), failed: Vec::new() },
            uncommitted: VecDeque::new(),
            end_offset,
            high_watermark: 0,
            decompressor,
        };
        runtime.event(input, Engine::loaded);
        runtime
    }

    /// The engine, to be looked at.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// Offset after the last record that was written.
    pub fn end_offset(&self) -> i64 {
        self.end_offset
    }

    /// A request comes in.
    pub fn request(&mut self, input: &mut Input<'_, E::Settings>, ticket: Ticket, request: E::Request<'_>) {
        self.event(input, |engine, cx| engine.handle(ticket, request, cx));
    }

    /// Time has passed: fires the first timer that is due; false when none is.
    pub fn fire(&mut self, input: &mut Input<'_, E::Settings>) -> bool {
        let Some(timer) = self.timers.pop(input.now.ticks_ms) else { return false };
        self.event(input, |engine, cx| engine.fire(timer, cx));
        true
    }

    /// When to call [`fire`](Self::fire) next, in ticks.
    pub fn next_deadline(&self) -> Option<i64> {
        self.timers.next()
    }

    /// The batch that is to be appended next. The driver appends it and says by [`written`](Self::written) what came of it.
    pub fn next_write(&mut self) -> Option<&mut [u8]> {
        self.outbox.writes.front_mut().map(|write| &mut write.batch[..])
    }

    /// The batch of [`next_write`](Self::next_write) is in the log, its offsets in its header; or it is not, and why.
    pub fn written(&mut self, input: &mut Input<'_, E::Settings>, outcome: Result<(), ErrorCode>) {
        let Some(write) = self.outbox.writes.pop_front() else { return };
        match outcome {
            Ok(()) => {
                self.apply(&write);
                self.uncommitted.push_back((self.end_offset, write.then));
            }
            Err(error) => {
                if let Then::Settle(after) = write.then {
                    self.event(input, |engine, cx| engine.settle(after, Err(coordinator_error(error)), cx));
                }
            }
        }
        self.settle(input);
    }

    fn apply(&mut self, write: &Write<E>) {
        let batch = Batch::parse(&write.batch).expect("a batch that was built and appended");
        self.end_offset = batch.next_offset();
        if write.replay {
            let replayed = replay_batch(&mut self.engine, &batch, &mut self.decompressor);
            assert!(replayed.is_ok(), "an engine can't replay what it wrote: {:?}", replayed.err());
        }
    }

    /// Everything below `high_watermark` is committed.
    pub fn committed(&mut self, input: &mut Input<'_, E::Settings>, high_watermark: i64) {
        self.high_watermark = self.high_watermark.max(high_watermark);
        self.settle(input);
    }

    /// The marker of a producer's transaction, which others have written into the log, is there; the log ends behind it.
    pub fn transaction_ended(&mut self, producer_id: i64, committed: bool, end_offset: i64) {
        self.engine.replay_end_of_transaction(producer_id, committed);
        self.end_offset = self.end_offset.max(end_offset);
    }

    /// The answers that may leave.
    pub fn take_replies(&mut self) -> Vec<(Ticket, E::Reply)> {
        std::mem::take(&mut self.outbox.replies)
    }

    /// What the engine wants done.
    pub fn take_effects(&mut self) -> Vec<E::Effect> {
        std::mem::take(&mut self.outbox.effects)
    }

    fn event(&mut self, input: &mut Input<'_, E::Settings>, event: impl FnOnce(&mut E, &mut Cx<'_, '_, E>)) {
        event(&mut self.engine, &mut Cx { input, timers: &mut self.timers, outbox: &mut self.outbox });
        self.settle(input);
    }

    /// Does what follows writes that have an outcome, and what follows from that.
    fn settle(&mut self, input: &mut Input<'_, E::Settings>) {
        loop {
            // A wait at the front has nothing before it that is not in the log.
            while self.outbox.writes.front().is_some_and(|write| write.batch.is_empty())
                && let Some(wait) = self.outbox.writes.pop_front()
            {
                self.uncommitted.push_back((self.end_offset, wait.then));
            }
            let (after, outcome) = if let Some(after) = self.outbox.failed.pop() {
                (after, Err(ErrorCode::UNKNOWN_SERVER_ERROR))
            } else if self.uncommitted.front().is_some_and(|(offset, _)| *offset <= self.high_watermark)
                && let Some((_, then)) = self.uncommitted.pop_front()
            {
                match then {
                    Then::Settle(after) => (after, Ok(())),
                    Then::Reply(ticket, reply) => {
                        self.outbox.replies.push((ticket, reply));
                        continue;
                    }
                    Then::Nothing => continue,
                }
            } else {
                return;
            };
            let mut cx = Cx { input: &mut *input, timers: &mut self.timers, outbox: &mut self.outbox };
            self.engine.settle(after, outcome, &mut cx);
        }
    }
}

/// What a client of a coordinator is told when a write failed with `error`.
pub fn coordinator_error(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        | ErrorCode::NOT_ENOUGH_REPLICAS
        | ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND
        | ErrorCode::REQUEST_TIMED_OUT => ErrorCode::COORDINATOR_NOT_AVAILABLE,
        ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::KAFKA_STORAGE_ERROR => ErrorCode::NOT_COORDINATOR,
        ErrorCode::MESSAGE_TOO_LARGE | ErrorCode::RECORD_LIST_TOO_LARGE | ErrorCode::INVALID_FETCH_SIZE => {
            ErrorCode::UNKNOWN_SERVER_ERROR
        }
        error => error,
    }
}

#[cfg(test)]
mod tests;
