//! One engine with its partition. Requests, timers and commits take turns under one lock; who has to wait for an answer
//! waits outside of it.

use std::sync::{Arc, Weak};

use milena_coordinator::{Input, Now, Runtime, Ticket};
use milena_io::{RealRng, Rng};
use milena_log::{LogError, Marker, VerificationGuard};
use milena_net::{Outgoing, Pipelining, Replies, Reply};
use milena_protocol::ErrorCode;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use super::Shared;
use super::coordinator::{CoordinatorEngine, Perform};
use super::marker_error;
use crate::dispatch::frame;
use crate::partition::{CommitListener, Partition};
use crate::request::{Call, Header, Refusal};

/// An answer of a coordinator, or why there is none.
pub enum Answer<R> {
    /// It is there.
    Now(Result<R, ErrorCode>),
    /// It comes.
    Later(oneshot::Receiver<R>),
}

impl<R> Answer<R> {
    /// Waits for it. When the coordinator ends before, another broker has to be asked.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn get(self) -> Result<R, ErrorCode> {
        match self {
            Self::Now(answer) => answer,
            Self::Later(answer) => answer.await.map_err(|_| ErrorCode::NOT_COORDINATOR),
        }
    }

    /// Answers a request with it: at once, or when it is there; later requests of the connection wait meanwhile.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn send(
        self,
        call: &Call<'_>,
        replies: &mut Replies<'_>,
        write: impl FnOnce(&Header<'_>, Result<R, ErrorCode>, &mut Outgoing) -> Result<(), Refusal> + 'static,
    ) -> Result<(), Refusal>
    where
        R: 'static,
    {
        if let Self::Now(answer) = self {
            return replies.try_ready(|out| write(&call.header, answer, out));
        }
        let header = Header::new(call.header.key, call.header.version, call.header.correlation_id, None);
        let reply = async move {
            let answer = self.get().await;
            frame(|out| write(&header, answer, out)).unwrap_or_else(|refusal| Reply::close(refusal.to_string()))
        };
        replies.later(Box::pin(reply), Pipelining::Hold);
        Ok(())
    }
}

/// One engine with its partition.
pub(super) struct Shard<E: CoordinatorEngine> {
    pub(super) partition: Arc<Partition>,
    shared: Arc<Shared>,
    /// Does what the engine wants done, with no lock held.
    perform: Perform<E>,
    state: Mutex<State<E>>,
    me: Weak<Self>,
}

/// Tells a shard of commits for as long as it lives.
struct ShardListener<E: CoordinatorEngine>(Weak<Shard<E>>);

enum State<E: CoordinatorEngine> {
    /// The partition is being read. Topics that were deleted meanwhile.
    Loading(Vec<String>),
    Active(Box<Active<E>>),
    /// The partition is gone, or can't be read or written.
    Ended,
}

struct Active<E: CoordinatorEngine> {
    runtime: Runtime<E>,
    waiting: FxHashMap<Ticket, oneshot::Sender<E::Reply>>,
    tickets: u64,
}

impl<E: CoordinatorEngine> Shard<E> {
    /// An engine that is to be loaded.
    pub(super) fn new(partition: Arc<Partition>, shared: Arc<Shared>, perform: Perform<E>) -> Arc<Self> {
        let state = Mutex::new(State::Loading(Vec::new()));
        Arc::new_cyclic(|me| Self { partition, shared, perform, state, me: Weak::clone(me) })
    }

    /// Stands for it without keeping it alive.
    pub(super) fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.me)
    }

    /// The engine was loaded, by `finish`.
    pub(super) fn loaded(&self, finish: impl FnOnce(&mut Input<'_, E::Settings>) -> Runtime<E>) {
        let mut state = self.state.lock();
        let State::Loading(deleted) = &mut *state else { return };
        let deleted = std::mem::take(deleted);
        let runtime = self.with_input(finish);
        let mut active = Box::new(Active { runtime, waiting: FxHashMap::default(), tickets: 0 });
        self.partition.add_listener(Arc::new(ShardListener(self.weak())));
        let effects = self.step(&mut active, None, |_, _| {}, |_, reply| Some(reply));
        *state = State::Active(active);
        drop(state);
        self.perform(effects);
        if !deleted.is_empty() {
            self.topics_deleted(&deleted);
        }
    }

    /// The engine can't work, or is no longer to: who waits for it is sent elsewhere.
    pub(super) fn end(&self) {
        *self.state.lock() = State::Ended;
    }

    /// How much of the partition is read at once, bytes.
    pub(super) fn load_buffer_bytes(&self) -> i32 {
        E::load_buffer_bytes(&self.shared.live.config.load())
    }

    /// Whether the engine is to work no more.
    pub(super) fn has_ended(&self) -> bool {
        matches!(&*self.state.lock(), State::Ended)
    }

    /// Runs a request.
    pub(super) fn request(&self, request: E::Request<'_>) -> Answer<E::Reply> {
        self.request_verified(request, None)
    }

    /// Runs a request that begins a transaction in the partition, with the guard that was given for it.
    pub(super) fn request_verified(
        &self,
        request: E::Request<'_>,
        guard: Option<VerificationGuard>,
    ) -> Answer<E::Reply> {
        let mut state = self.state.lock();
        if self.partition.is_retired() {
            return Answer::Now(Err(ErrorCode::NOT_COORDINATOR));
        }
        let active = match &mut *state {
            State::Active(active) => active,
            State::Loading(_) => return Answer::Now(Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS)),
            State::Ended => return Answer::Now(Err(ErrorCode::NOT_COORDINATOR)),
        };
        active.tickets += 1;
        let ticket = Ticket(active.tickets);
        let mut own = None;
        let effects = self.step(
            active,
            guard,
            |runtime, input| runtime.request(input, ticket, request),
            |answered, reply| {
                if answered == ticket {
                    own = Some(reply);
                    return None;
                }
                Some(reply)
            },
        );
        let answer = match own {
            Some(reply) => Answer::Now(Ok(reply)),
            None => {
                let (send, receive) = oneshot::channel();
                active.waiting.insert(ticket, send);
                Answer::Later(receive)
            }
        };
        drop(state);
        self.perform(effects);
        answer
    }

    /// Appends the marker of a transaction to the partition, and lets the engine know; returns the offset after it.
    ///
    /// # Errors
    /// As a broker answers WriteTxnMarkers.
    pub(super) fn append_marker(&self, marker: &Marker, now_ms: i64) -> Result<i64, ErrorCode> {
        let mut state = self.state.lock();
        if matches!(*state, State::Loading(_)) {
            return Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
        }
        let end = self.partition.append_marker(marker, now_ms).map_err(|_| self.partition.failure_error())?;
        let end = end.map_err(marker_error)?;
        if let State::Active(active) = &mut *state {
            active.runtime.transaction_ended(marker.producer_id, marker.end.committed, end);
        }
        Ok(end)
    }

    fn perform(&self, effects: Vec<E::Effect>) {
        effects.into_iter().for_each(|effect| (self.perform)(self, effect));
    }

    /// Topics are gone.
    pub(super) fn topics_deleted(&self, names: &[String]) {
        if let State::Loading(deleted) = &mut *self.state.lock() {
            return deleted.extend_from_slice(names);
        }
        if let Some(request) = E::topics_deleted(names) {
            // Nobody waits for it; what fails is tried by the offsets' expiry.
            let _ = self.request(request);
        }
    }

    /// Fires what is due, and says when to come again.
    pub(super) fn fire(&self) -> Option<i64> {
        loop {
            let mut state = self.state.lock();
            let State::Active(active) = &mut *state else { return None };
            let next = active.runtime.next_deadline()?;
            if next > self.shared.ticks_ms() {
                return Some(next);
            }
            let fire = |runtime: &mut Runtime<E>, input: &mut Input<'_, E::Settings>| {
                runtime.fire(input);
            };
            let effects = self.step(active, None, fire, |_, reply| Some(reply));
            drop(state);
            self.perform(effects);
        }
    }

    /// Lets the engine handle an event, makes its writes, and hands out its answers: those that `take` gives back go to who
    /// waits for them. Returns what the engine wants done.
    fn step(
        &self,
        active: &mut Active<E>,
        guard: Option<VerificationGuard>,
        event: impl FnOnce(&mut Runtime<E>, &mut Input<'_, E::Settings>),
        mut take: impl FnMut(Ticket, E::Reply) -> Option<E::Reply>,
    ) -> Vec<E::Effect> {
        let runtime = &mut active.runtime;
        let now_ms = self.shared.clock.now_ms();
        self.with_input(|input| {
            event(runtime, input);
            runtime.committed(input, self.partition.high_watermark());
            while let Some(batch) = runtime.next_write() {
                let outcome = self.append(batch, guard, now_ms);
                runtime.written(input, outcome);
                runtime.committed(input, self.partition.high_watermark());
            }
        });
        for (ticket, reply) in runtime.take_replies() {
            if let Some(reply) = take(ticket, reply)
                && let Some(waiting) = active.waiting.remove(&ticket)
            {
                // The asker may have gone away with its connection.
                let _ = waiting.send(reply);
            }
        }
        if let Some(at) = runtime.next_deadline() {
            self.shared.alarm.ring(at);
        }
        runtime.take_effects()
    }

    fn append(&self, batch: &mut [u8], guard: Option<VerificationGuard>, now_ms: i64) -> Result<(), ErrorCode> {
        match self.partition.append_as_coordinator(batch, guard, now_ms) {
            Ok(appended) => appended.unwritten.first().map_or(Ok(()), |(_, why)| Err(marker_error(*why))),
            Err(_) if self.partition.is_retired() => Err(ErrorCode::NOT_LEADER_OR_FOLLOWER),
            Err(LogError::BatchTooLarge { .. }) => Err(ErrorCode::RECORD_LIST_TOO_LARGE),
            Err(_) => Err(ErrorCode::KAFKA_STORAGE_ERROR),
        }
    }

    fn with_input<R>(&self, run: impl FnOnce(&mut Input<'_, E::Settings>) -> R) -> R {
        let config = self.shared.live.config.load();
        let settings = E::settings(&self.shared.live);
        let now = Now { wall_ms: self.shared.clock.now_ms(), ticks_ms: self.shared.ticks_ms() };
        run(&mut Input {
            now,
            settings: &settings,
            compression: E::compression(&config),
            max_batch_bytes: self.partition.settings().records.max_batch_bytes,
            random: &mut |bytes| RealRng.fill(bytes),
        })
    }
}

impl<E: CoordinatorEngine> Shard<E> {
    fn committed(&self) {
        let mut state = self.state.lock();
        let State::Active(active) = &mut *state else { return };
        if self.partition.acknowledges(active.runtime.end_offset()).is_some_and(|answer| answer.is_err()) {
            *state = State::Ended;
            return;
        }
        let effects = self.step(active, None, |_, _| {}, |_, reply| Some(reply));
        drop(state);
        self.perform(effects);
    }
}

impl<E: CoordinatorEngine> CommitListener for ShardListener<E> {
    fn committed(&self) -> bool {
        self.0.upgrade().map(|shard| shard.committed()).is_some()
    }
}
