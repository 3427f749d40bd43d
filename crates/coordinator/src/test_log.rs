//! A partition in memory, for tests: appends, a high watermark that may lag, failures, a clock, answers by ticket.

use std::collections::BTreeMap;

use milena_protocol::ErrorCode;
use milena_records::{Batch, BatchMut, Compression};

use crate::engine::{Engine, Input, Now, Ticket};
use crate::load::Loader;
use crate::runtime::Runtime;

/// What of a partition survives a crash, and the clock.
pub(crate) struct TestLog {
    pub(crate) batches: Vec<Vec<u8>>,
    pub(crate) now: Now,
    /// What every append answers, when it is to fail.
    pub(crate) failure: Option<ErrorCode>,
    /// Appends are committed at once.
    pub(crate) commits: bool,
    pub(crate) rng: fastrand::Rng,
}

impl TestLog {
    pub(crate) fn new() -> Self {
        Self {
            batches: Vec::new(),
            now: Now { wall_ms: 1_000_000, ticks_ms: 0 },
            failure: None,
            commits: true,
            rng: fastrand::Rng::with_seed(1),
        }
    }

    pub(crate) fn end_offset(&self) -> i64 {
        self.batches.last().map_or(0, |batch| Batch::parse(batch).unwrap().next_offset())
    }

    fn append(&mut self, batch: &mut [u8]) -> Result<(), ErrorCode> {
        if let Some(error) = self.failure {
            return Err(error);
        }
        BatchMut::parse(batch).unwrap().set_base_offset(self.end_offset());
        self.batches.push(batch.to_vec());
        Ok(())
    }
}

/// An engine at work on a [`TestLog`].
pub(crate) struct Bench<E: Engine> {
    pub(crate) log: TestLog,
    pub(crate) runtime: Runtime<E>,
    pub(crate) settings: E::Settings,
    pub(crate) replies: BTreeMap<Ticket, E::Reply>,
    /// What is to be done.
    pub(crate) effects: Vec<E::Effect>,
    next_ticket: u64,
}

macro_rules! input {
    ($settings:expr, $log:expr, $random:ident) => {
        Input {
            now: $log.now,
            settings: &$settings,
            compression: Compression::None,
            max_batch_bytes: 1 << 20,
            random: &mut $random,
        }
    };
}

impl<E: Engine + Default> Bench<E> {
    /// Loads the log.
    pub(crate) fn load(mut log: TestLog, settings: E::Settings) -> Self {
        let mut loader = Loader::new(E::default(), 1 << 20);
        for batch in &log.batches {
            loader.replay(&Batch::parse(batch).unwrap()).unwrap();
        }
        let mut rng = log.rng.fork();
        let mut random = |bytes: &mut [u8]| rng.fill(bytes);
        let runtime = loader.finish(&mut input!(settings, log, random));
        let mut bench = Self { log, runtime, settings, replies: BTreeMap::new(), effects: Vec::new(), next_ticket: 0 };
        bench.log.commits = true;
        bench.drive();
        bench
    }

    /// The process dies and another one loads the log.
    pub(crate) fn restart(self) -> Self {
        Self::load(self.log, self.settings)
    }

    /// Gives a request to the engine.
    pub(crate) fn send(&mut self, request: E::Request<'_>) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        let mut rng = self.log.rng.fork();
        let mut random = |bytes: &mut [u8]| rng.fill(bytes);
        self.runtime.request(&mut input!(self.settings, self.log, random), ticket, request);
        self.drive();
        ticket
    }

    /// A request that is answered at once.
    pub(crate) fn ask(&mut self, request: E::Request<'_>) -> E::Reply {
        let ticket = self.send(request);
        self.reply(ticket).expect("an answer at once")
    }

    pub(crate) fn reply(&mut self, ticket: Ticket) -> Option<E::Reply> {
        self.replies.remove(&ticket)
    }

    /// Lets time pass, timer by timer.
    pub(crate) fn advance(&mut self, ms: i64) {
        let end = self.log.now.ticks_ms + ms;
        while let Some(at) = self.runtime.next_deadline().filter(|at| *at <= end) {
            let step = (at - self.log.now.ticks_ms).max(0);
            self.log.now.ticks_ms += step;
            self.log.now.wall_ms += step;
            // As a driver does it: what one timer writes is there for the next one.
            while self.fire() {
                self.drive();
            }
        }
        self.log.now.wall_ms += end - self.log.now.ticks_ms;
        self.log.now.ticks_ms = end;
    }

    fn fire(&mut self) -> bool {
        let mut rng = self.log.rng.fork();
        let mut random = |bytes: &mut [u8]| rng.fill(bytes);
        self.runtime.fire(&mut input!(self.settings, self.log, random))
    }

    /// Makes the writes and takes the answers.
    pub(crate) fn drive(&mut self) {
        let mut rng = self.log.rng.fork();
        let mut random = |bytes: &mut [u8]| rng.fill(bytes);
        loop {
            while let Some(batch) = self.runtime.next_write() {
                let outcome = self.log.append(batch);
                self.runtime.written(&mut input!(self.settings, self.log, random), outcome);
            }
            if self.log.commits {
                let end = self.log.end_offset();
                self.runtime.committed(&mut input!(self.settings, self.log, random), end);
            }
            // What follows a commit may write again.
            if self.runtime.next_write().is_none() {
                break;
            }
        }
        self.replies.extend(self.runtime.take_replies());
        self.effects.extend(self.runtime.take_effects());
    }
}
