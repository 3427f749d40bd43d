//! Who makes logs durable while the broker runs. A partition asks for a flush and is queued once, however many appends ask;
//! what was appended until its turn comes is flushed together. When one is due and what waits for it is the partition's
//! business.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use milena_io::Clock;
use parking_lot::Mutex;

use crate::disk_threads::DiskThreads;
use crate::partition::Partition;
use crate::storage::Failures;
use crate::vital;

/// Flushes partitions on threads of its own.
pub struct Flusher {
    threads: DiskThreads,
    clock: Arc<dyn Clock>,
    /// Partitions that have records which `flush.ms` will make due.
    watched: Mutex<Vec<Arc<Partition>>>,
}

impl Flusher {
    /// One that has a thread when there is something to flush.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { threads: DiskThreads::new("flusher", 1), clock, watched: Mutex::default() }
    }

    /// The wall clock, ms since 1970.
    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// Flushes up to this many partitions at once.
    pub fn set_threads(&self, most: usize) {
        self.threads.set_most(most);
    }

    /// Queues a partition. The queue has each at most once.
    pub(crate) fn queue(&self, partition: Arc<Partition>) {
        self.threads.run(move || partition.flush_now());
    }

    /// Looks at the partition at every tick until it is flushed.
    pub(crate) fn watch(&self, partition: Arc<Partition>) {
        self.watched.lock().push(partition);
    }

    /// Looks after `flush.ms`: first after `delay_ms`, then every `interval_ms`. Without an interval nobody does, as in Kafka.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start_timer(
        self: &Arc<Self>,
        delay_ms: i64,
        interval_ms: i64,
        failures: &Arc<Failures>,
    ) -> std::io::Result<Option<FlushTimer>> {
        if interval_ms <= 0 || interval_ms == i64::MAX {
            return Ok(None);
        }
        let ms = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        let (flusher, mut wait, every) = (Arc::clone(self), ms(delay_ms), ms(interval_ms));
        let (stop, stopped) = mpsc::channel();
        let run = move || {
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                flusher.tick();
                wait = every;
            }
        };
        let thread = vital::spawn(failures, "flush-timer", run)?;
        Ok(Some(FlushTimer { stop, thread }))
    }

    /// Queues those of the watched partitions whose `flush.ms` is over.
    pub(crate) fn tick(&self) {
        let now_ms = self.now_ms();
        let mut watched = std::mem::take(&mut *self.watched.lock());
        watched.retain(|partition| !partition.flush_if_late(now_ms));
        self.watched.lock().append(&mut watched);
    }

    /// Flushes what is queued, and nothing more.
    pub fn stop(&self) {
        self.threads.stop();
        self.watched.lock().clear();
    }
}

/// The thread that looks after `flush.ms`.
pub struct FlushTimer {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl FlushTimer {
    /// Ends the thread.
    pub fn stop(self) {
        drop(self.stop);
        // A panic in it has been told; there is nothing more to do.
        let _ = self.thread.join();
    }
}
