//! What a coordinator's state machine must be able to do, and what it may do while it handles an event.

use milena_protocol::{DecodeError, ErrorCode, Uuid};
use milena_records::Compression;

use crate::records::Records;
use crate::runtime::{Outbox, Then};
use crate::timers::Timers;

/// Stands for a request until it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Both clocks at the time of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// The wall clock, ms since 1970; may jump.
    pub wall_ms: i64,
    /// A clock that never goes back, ms; timers run by it.
    pub ticks_ms: i64,
}

/// What comes with every event.
pub struct Input<'i, S> {
    /// The time.
    pub now: Now,
    /// The settings in force.
    pub settings: &'i S,
    /// Codec of what is written.
    pub compression: Compression,
    /// Longest batch that the topic takes, bytes.
    pub max_batch_bytes: usize,
    /// Fills a buffer with random bytes.
    pub random: &'i mut dyn FnMut(&mut [u8]),
}

/// A record of the log, being replayed.
#[derive(Debug, Clone, Copy)]
pub struct Replayed<'r> {
    /// Its offset.
    pub offset: i64,
    /// The producer whose transaction it belongs to.
    pub producer_id: Option<i64>,
    /// Type of the record, the first two bytes of its key.
    pub kind: i16,
    /// The key behind the type.
    pub key: &'r [u8],
    /// The value; `None` is a tombstone.
    pub value: Option<&'r [u8]>,
}

/// A state machine that lives on one partition.
///
/// What must survive is changed by [`replay`](Self::replay) only: by the records of the log when it is loaded, and by its
/// own writes once they are in the log. Beside it an engine may keep what does not need to survive, such as who waits for
/// what.
pub trait Engine: Sized {
    /// What it takes from the configuration.
    type Settings;
    /// What is asked of it.
    type Request<'r>;
    /// What it answers.
    type Reply;
    /// Names its timers.
    type Timer: Ord + Clone;
    /// What it does when a write has an outcome.
    type After;
    /// What it wants done that is neither a write nor an answer.
    type Effect;

    /// Takes a record. Types that are not known are left alone.
    ///
    /// # Errors
    /// When the record is none of its type, or of a version that is not known: then the partition can't be served.
    fn replay(&mut self, record: &Replayed<'_>) -> Result<(), DecodeError>;

    /// A transaction of a producer ends.
    fn replay_end_of_transaction(&mut self, producer_id: i64, committed: bool);

    /// The whole log was replayed.
    fn loaded(&mut self, cx: &mut Cx<'_, '_, Self>);

    /// Answers a request, at once or later; every ticket is answered once.
    fn handle(&mut self, ticket: Ticket, request: Self::Request<'_>, cx: &mut Cx<'_, '_, Self>);

    /// A timer's time has come.
    fn fire(&mut self, timer: Self::Timer, cx: &mut Cx<'_, '_, Self>);

    /// A write is committed, or was not made; the error is one that clients of a coordinator know.
    fn settle(&mut self, after: Self::After, outcome: Result<(), ErrorCode>, cx: &mut Cx<'_, '_, Self>);
}

/// What an engine may do while it handles an event.
pub struct Cx<'c, 'i, E: Engine> {
    pub(crate) input: &'c mut Input<'i, E::Settings>,
    pub(crate) timers: &'c mut Timers<E::Timer>,
    pub(crate) outbox: &'c mut Outbox<E>,
}

impl<E: Engine> Cx<'_, '_, E> {
    /// The time of the event.
    pub fn now(&self) -> Now {
        self.input.now
    }

    /// The settings in force.
    pub fn settings(&self) -> &E::Settings {
        self.input.settings
    }

    /// A write that begins empty.
    pub fn records(&self) -> Records {
        let codec = self.input.compression;
        Records::new(self.input.now.wall_ms, self.input.max_batch_bytes).compression(codec, codec.default_level())
    }

    /// Writes records and replays them; `after` comes back when they are committed, or could not be written.
    pub fn write(&mut self, records: Records, after: E::After) {
        self.outbox.write(records, true, Then::Settle(after));
    }

    /// As [`write`](Self::write), for records that say what the engine's state is already: they are not replayed.
    pub fn write_state(&mut self, records: Records, after: E::After) {
        self.outbox.write(records, false, Then::Settle(after));
    }

    /// Answers at once: for what says nothing of state that could be lost.
    pub fn reply(&mut self, ticket: Ticket, reply: E::Reply) {
        self.outbox.replies.push((ticket, reply));
    }

    /// Answers when everything that was written before is committed.
    pub fn reply_when_committed(&mut self, ticket: Ticket, reply: E::Reply) {
        self.outbox.wait(Then::Reply(ticket, reply));
    }

    /// Wants something done. What it rests on is to be committed: effects are for [`settle`](Engine::settle), timers, and what
    /// was loaded.
    pub fn effect(&mut self, effect: E::Effect) {
        self.outbox.effects.push(effect);
    }

    /// Sets a timer, in place of the one with this name.
    pub fn set_timer(&mut self, timer: E::Timer, delay_ms: i64) {
        self.timers.set(timer, self.input.now.ticks_ms.saturating_add(delay_ms));
    }

    /// Sets a timer, unless there is one with this name.
    pub fn set_timer_if_absent(&mut self, timer: E::Timer, delay_ms: i64) {
        if !self.timers.contains(&timer) {
            self.set_timer(timer, delay_ms);
        }
    }

    /// Takes a timer away.
    pub fn cancel_timer(&mut self, timer: &E::Timer) {
        self.timers.cancel(timer);
    }

    /// A random id.
    pub fn random_id(&mut self) -> Uuid {
        Uuid::random(&mut *self.input.random)
    }
}
