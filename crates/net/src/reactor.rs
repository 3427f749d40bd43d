//! One reactor: a thread with a runtime of its own, the connections that live on it, and the sweep that looks after
//! them once a second. What a connection does in a wake-up is not here.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::{Notify, mpsc, watch};

use crate::accept;
use crate::connection::Connection;
use crate::limits::{Connections, Permit, ReceiveMemory};
use crate::pool::Pool;
use crate::server::Listener;
use crate::{NetConfig, Peer, Service};

/// Most threads of one reactor that read what is to be sent from the disk.
const MOST_READERS: usize = 4;
/// Shortest and longest time between two sweeps.
const SWEEP_EVERY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// What all reactors of a server share.
pub(crate) struct Shared {
    pub(crate) config: NetConfig,
    pub(crate) connections: Arc<Connections>,
    pub(crate) memory: Arc<ReceiveMemory>,
}

/// A connection on its way to its reactor.
pub(crate) struct Accepted {
    pub(crate) socket: TcpStream,
    pub(crate) peer: Peer,
    pub(crate) permit: Permit,
}

/// What the connections of one reactor share.
pub(crate) struct Reactor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) pool: RefCell<Pool>,
    /// Time of the last sweep, counted from the start; coarse, and free to read.
    now: Cell<Duration>,
    entries: RefCell<HashMap<u64, Rc<Entry>>>,
    stopping: Cell<bool>,
    /// Told when the last connection goes.
    empty: Notify,
}

/// Why the sweep ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No traffic for too long. A reply that is outstanding makes no difference: the peer may be gone, and nothing else
    /// would tell.
    Idle,
    /// No progress in its frame, or the slowest of those that take too long, while others need the memory.
    Stalled,
}

/// What the reactor knows of a connection.
#[derive(Default)]
pub(crate) struct Entry {
    /// When the connection last had traffic, in the reactor's time.
    last_active: Cell<Duration>,
    /// Bytes claimed from the receive memory, for what is received and for long replies.
    pub(crate) claim: Cell<u64>,
    /// When the frame began for which they are claimed, in the reactor's time.
    frame_began: Cell<Duration>,
    /// Whether the connection is not read because memory is short: that it does not get on is not its fault.
    pub(crate) waits_for_memory: Cell<bool>,
    verdict: Cell<Option<Verdict>>,
    waker: RefCell<Option<Waker>>,
}

impl Entry {
    /// Notes whom to wake for a verdict.
    pub(crate) fn remember(&self, waker: &Waker) {
        let mut known = self.waker.borrow_mut();
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.verdict.get()
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

impl Reactor {
    /// Registers a connection.
    pub(crate) fn enter(&self, id: u64) -> Rc<Entry> {
        let entry = Rc::new(Entry::default());
        self.touch(&entry);
        self.entries.borrow_mut().insert(id, Rc::clone(&entry));
        entry
    }

    /// Forgets a connection.
    pub(crate) fn leave(&self, id: u64) {
        let mut entries = self.entries.borrow_mut();
        entries.remove(&id);
        if entries.is_empty() {
            self.empty.notify_one();
        }
    }

    /// Notes traffic.
    pub(crate) fn touch(&self, entry: &Entry) {
        entry.last_active.set(self.now.get());
    }

    /// Notes that what comes next is another frame.
    pub(crate) fn begin_frame(&self, entry: &Entry) {
        entry.frame_began.set(self.now.get());
    }

    /// Whether nothing more is read.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    fn sweep(&self, now: Duration) {
        self.now.set(now);
        self.pool.borrow_mut().trim();
        let config = &self.shared.config;
        let memory_is_wanted = self.shared.memory.is_short() && self.shared.memory.is_wanted();
        let entries = self.entries.borrow();
        let for_long = |since: &Cell<Duration>| now.saturating_sub(since.get()) > config.stalled_frame_timeout;
        let holds = |entry: &Rc<Entry>| memory_is_wanted && entry.claim.get() > 0;
        let waits = |entry: &Rc<Entry>| entry.waits_for_memory.get();
        // Those that wait themselves give up theirs only where others can't: most of the memory is held by such.
        let waiting_give = memory_is_wanted && self.shared.memory.is_held_by_waiting();
        let may_give = |entry: &Rc<Entry>| holds(entry) && (waiting_give || !waits(entry));
        // A byte now and then is no progress: the one that holds its memory longest gives it up.
        let slowest = entries.values().filter(|entry| may_give(entry) && for_long(&entry.frame_began));
        let slowest = slowest.min_by_key(|entry| entry.frame_began.get());
        for entry in entries.values() {
            let quiet = now.saturating_sub(entry.last_active.get());
            let is_slowest = slowest.is_some_and(|slowest| Rc::ptr_eq(slowest, entry));
            let verdict = if is_slowest || (may_give(entry) && for_long(&entry.last_active)) {
                Verdict::Stalled
            } else if config.max_idle.is_some_and(|max| quiet > max) {
                Verdict::Idle
            } else {
                continue;
            };
            entry.verdict.set(Some(verdict));
            entry.wake();
        }
    }

    async fn sweep_for_ever(self: Rc<Self>) {
        let shortest = self.shared.config.max_idle.into_iter().chain([self.shared.config.stalled_frame_timeout]).min();
        let every = (shortest.unwrap_or(SWEEP_EVERY.1) / 4).clamp(SWEEP_EVERY.0, SWEEP_EVERY.1);
        let started = Instant::now();
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.sweep(started.elapsed());
        }
    }

    /// Lets connections finish until `deadline`.
    async fn drain(&self, deadline: Instant) {
        self.stopping.set(true);
        self.entries.borrow().values().for_each(|entry| entry.wake());
        let emptied = async {
            while !self.entries.borrow().is_empty() {
                self.empty.notified().await;
            }
        };
        if tokio::time::timeout_at(deadline.into(), emptied).await.is_err() {
            tracing::info!("{} connections are closed with requests in flight", self.entries.borrow().len());
        }
    }
}

/// What a reactor's thread starts with.
pub(crate) struct Seed<S> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) service: Arc<S>,
    /// Listeners that this reactor accepts from.
    pub(crate) listeners: Vec<Listener>,
    pub(crate) inbox: mpsc::Receiver<Accepted>,
    pub(crate) outboxes: Arc<[mpsc::Sender<Accepted>]>,
    /// Set to the deadline when the server stops.
    pub(crate) stop: watch::Receiver<Option<Instant>>,
}

/// Builds a reactor's runtime.
pub(crate) fn runtime() -> std::io::Result<LocalRuntime> {
    let mut builder = Builder::new_current_thread();
    builder.enable_io().enable_time().thread_name("reader").max_blocking_threads(MOST_READERS);
    builder.build_local(LocalOptions::default())
}

/// Runs until the server stops; dropping the runtime afterwards ends what is left.
pub(crate) async fn run<S: Service>(mut seed: Seed<S>) {
    let reactor = Rc::new(Reactor {
        shared: Arc::clone(&seed.shared),
        pool: RefCell::default(),
        now: Cell::default(),
        entries: RefCell::default(),
        stopping: Cell::new(false),
        empty: Notify::new(),
    });
    tokio::task::spawn_local(Rc::clone(&reactor).sweep_for_ever());
    let accepting: Vec<_> = seed
        .listeners
        .drain(..)
        .map(|listener| {
            tokio::task::spawn_local(accept::run(listener, Arc::clone(&seed.shared), Arc::clone(&seed.outboxes)))
        })
        .collect();
    let deadline = loop {
        tokio::select! {
            Some(accepted) = seed.inbox.recv() => open(&reactor, &seed.service, accepted),
            changed = seed.stop.changed() => match (changed, *seed.stop.borrow()) {
                (Ok(()), None) => {}
                (Ok(()), Some(deadline)) => break deadline,
                (Err(_), _) => break Instant::now(),
            },
        }
    };
    accepting.iter().for_each(tokio::task::JoinHandle::abort);
    drop(seed);
    reactor.drain(deadline).await;
}

fn open<S: Service>(reactor: &Rc<Reactor>, service: &Arc<S>, accepted: Accepted) {
    match Connection::open(Rc::clone(reactor), Arc::clone(service), accepted) {
        Ok(connection) => drop(tokio::task::spawn_local(connection)),
        Err(e) => tracing::error!("a connection could not be served: {e}"),
    }
}
