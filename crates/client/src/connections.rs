//! The connections of a client: at most one to each broker, made when it is needed, and not again at once where it failed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::config::ClientConfig;
use crate::connection::Connection;
use crate::error::Error;
use crate::transport::Transports;
use crate::unless_dropped::UnlessDropped;

/// Who is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    /// The address with this place in `bootstrap.servers`.
    Bootstrap(usize),
    /// The broker with this id.
    Broker(i32),
}

/// Cheap to clone; all clones are the same connections.
#[derive(Debug, Clone)]
pub(crate) struct Connections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: Arc<ClientConfig>,
    transports: Arc<dyn Transports>,
    slots: Mutex<HashMap<Node, Arc<Slot>>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    closed: watch::Sender<bool>,
}

/// A node's connection. The task that makes one holds the lock, so that others wait for it instead of making more.
#[derive(Debug, Default)]
struct Slot {
    open: Mutex<Option<Connection>>,
    /// How many tries have failed at all.
    failed: AtomicU64,
    attempts: tokio::sync::Mutex<Attempts>,
}

#[derive(Debug, Default)]
struct Attempts {
    failures: u32,
    not_before: Option<Instant>,
    /// Why the last one failed.
    last: Option<Error>,
}

impl Connections {
    pub(crate) fn new(config: Arc<ClientConfig>, transports: Arc<dyn Transports>) -> Self {
        let (slots, tasks, closed) = (Mutex::default(), Mutex::default(), watch::Sender::new(false));
        Self(Arc::new(Shared { config, transports, slots, tasks, closed }))
    }

    /// None yet, but made in the same way.
    pub(crate) fn another(&self) -> Self {
        Self::new(Arc::clone(&self.0.config), Arc::clone(&self.0.transports))
    }

    /// The node's connection if it is open, and is to this address.
    pub(crate) fn opened(&self, node: Node, host: &str, port: u16) -> Option<Connection> {
        let slot = Arc::clone(self.0.slots.lock().get(&node)?);
        slot.get(host, port)
    }

    /// The node's connection, made if it is not there. That is done by a task, since others wait for it who must not depend on
    /// whether this future goes on; it ends when this is dropped.
    pub(crate) async fn get(&self, node: Node, host: &str, port: u16) -> Result<Connection, Error> {
        let slot = Arc::clone(self.0.slots.lock().entry(node).or_default());
        if let Some(connection) = slot.get(host, port) {
            return Ok(connection);
        }
        let (shared, host) = (Arc::clone(&self.0), host.to_owned());
        UnlessDropped::spawn(async move { shared.connect_unless_closed(&slot, &host, port).await }).await
    }

    /// Whether a try to connect would have to wait, because one has failed a moment ago.
    pub(crate) fn is_backing_off(&self, node: Node) -> bool {
        let Some(slot) = self.0.slots.lock().get(&node).cloned() else { return false };
        let attempts = slot.attempts.try_lock();
        attempts.is_ok_and(|attempts| attempts.not_before.is_some_and(|not_before| not_before > Instant::now()))
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        self.0.check_open()
    }

    /// Lets go of all connections and waits until their tasks have ended; those that go on after `patience` are ended.
    pub(crate) async fn close(&self, patience: Duration) {
        self.0.closed.send_replace(true);
        let until = Instant::now() + patience;
        self.0.slots.lock().clear();
        let tasks = std::mem::take(&mut *self.0.tasks.lock());
        for mut task in tasks {
            if timeout_at(until, &mut task).await.is_err() {
                task.abort();
                // Ended, or was aborted; either way it is gone.
                let _ = task.await;
            }
        }
    }
}

impl Shared {
    async fn connect_unless_closed(&self, slot: &Slot, host: &str, port: u16) -> Result<Connection, Error> {
        let mut closed = self.closed.subscribe();
        tokio::select! {
            connected = self.connect(slot, host, port) => connected,
            _ = closed.wait_for(|closed| *closed) => Err(Error::Closed),
        }
    }

    async fn connect(&self, slot: &Slot, host: &str, port: u16) -> Result<Connection, Error> {
        let failed = slot.failed.load(Ordering::Acquire);
        let mut attempts = slot.attempts.lock().await;
        if let Some(connection) = slot.get(host, port) {
            return Ok(connection);
        }
        // The try that was waited for is this one's too.
        if let Some(error) = attempts.last.clone().filter(|_| slot.failed.load(Ordering::Acquire) != failed) {
            return Err(error);
        }
        if let Some(not_before) = attempts.not_before {
            sleep_until(not_before).await;
        }
        self.check_open()?;
        match Connection::open(&*self.transports, host, port, &self.config).await {
            Ok((connection, task)) => {
                *attempts = Attempts::default();
                self.keep(task)?;
                *slot.open.lock() = Some(connection.clone());
                Ok(connection)
            }
            Err(error) => {
                attempts.failures += 1;
                let wait = self.config.reconnect_backoff.after(attempts.failures);
                (attempts.not_before, attempts.last) = (Some(Instant::now() + wait), Some(error.clone()));
                slot.failed.fetch_add(1, Ordering::Release);
                Err(error)
            }
        }
    }

    fn keep(&self, task: JoinHandle<()>) -> Result<(), Error> {
        let mut tasks = self.tasks.lock();
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
        self.check_open()
    }

    fn check_open(&self) -> Result<(), Error> {
        if *self.closed.borrow() { Err(Error::Closed) } else { Ok(()) }
    }
}

impl Slot {
    fn get(&self, host: &str, port: u16) -> Option<Connection> {
        let mut open = self.open.lock();
        let good = |connection: &&mut Connection| !connection.is_closed() && connection.is_to(host, port);
        if let Some(connection) = open.as_mut().filter(good) {
            return Some(connection.clone());
        }
        *open = None;
        None
    }
}
