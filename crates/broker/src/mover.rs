//! Who copies logs to other log directories (AlterReplicaLogDirs) while they are written to. What has been copied whole waits here until the
//! controller's thread has told the metadata and puts it in the log's place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use milena_io::Clock;
use parking_lot::{Condvar, Mutex};

use crate::disk_threads::DiskThreads;
use crate::partition::{FutureReplica, Partition};

/// How often a thread that pauses looks whether it still has to.
const GLANCE: Duration = Duration::from_millis(500);
/// The rate without a limit.
const UNLIMITED: u64 = i64::MAX as u64;

type Wake = Box<dyn Fn() + Send + Sync>;

/// Copies logs on threads of its own.
pub struct Mover {
    threads: DiskThreads,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    stopping: AtomicBool,
    /// Ends pauses.
    changed: Condvar,
    /// Has the controller's thread look here.
    wake: Mutex<Option<Wake>>,
}

struct State {
    /// Bytes a second, over all threads (`replica.alter.log.dirs.io.max.bytes.per.second`).
    rate: u64,
    /// When the next piece may be copied, by the monotonic clock.
    free_at: Duration,
    /// Those that lack nothing.
    caught_up: Vec<Arc<Partition>>,
    /// Those that can't go on now.
    stalled: Vec<Arc<Partition>>,
}

impl Mover {
    /// One that has threads when there is something to copy.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let (free_at, rate) = (clock.monotonic(), UNLIMITED);
        let state = State { rate, free_at, caught_up: Vec::new(), stalled: Vec::new() };
        Self {
            threads: DiskThreads::new("mover", 1),
            clock,
            state: Mutex::new(state),
            stopping: AtomicBool::new(false),
            changed: Condvar::new(),
            wake: Mutex::default(),
        }
    }

    /// Copies up to this many logs at once, and this many bytes a second of all together.
    pub fn configure(&self, threads: usize, bytes_per_second: i64) {
        self.threads.set_most(threads);
        let mut state = self.state.lock();
        state.rate = u64::try_from(bytes_per_second).unwrap_or(0).max(1);
        state.free_at = self.clock.monotonic();
        self.changed.notify_all();
    }

    /// Calls this when there is something to [take](Self::take_caught_up).
    pub fn on_caught_up(&self, wake: impl Fn() + Send + Sync + 'static) {
        *self.wake.lock() = Some(Box::new(wake));
    }

    /// Has the future replica of a partition copied.
    pub fn queue(self: &Arc<Self>, partition: Arc<Partition>) {
        let mover = Arc::clone(self);
        self.threads.run(move || mover.copy(partition));
    }

    /// Tries those again that could not go on.
    pub fn retry_stalled(self: &Arc<Self>) {
        let stalled = std::mem::take(&mut self.state.lock().stalled);
        stalled.into_iter().for_each(|partition| self.queue(partition));
    }

    /// Whether partitions wait for their future replicas to take over.
    pub fn has_caught_up(&self) -> bool {
        !self.state.lock().caught_up.is_empty()
    }

    /// The partitions whose future replicas lack nothing, which are then no longer here.
    pub fn take_caught_up(&self) -> Vec<Arc<Partition>> {
        std::mem::take(&mut self.state.lock().caught_up)
    }

    /// From now on copies only when it is called.
    #[cfg(test)]
    pub(crate) fn by_hand(&self) {
        self.threads.stop();
    }

    /// Tries these later.
    pub fn stall(&self, partitions: Vec<Arc<Partition>>) {
        self.state.lock().stalled.extend(partitions);
    }

    /// Ends the threads, each after its piece. What is not copied goes on after the next start.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake.lock().take();
        let state = self.state.lock();
        self.changed.notify_all();
        drop(state);
        self.threads.stop();
        let free_at = self.clock.monotonic();
        *self.state.lock() = State { rate: 1, free_at, caught_up: Vec::new(), stalled: Vec::new() };
    }

    /// A thread's turn: copies until nothing is missing.
    pub(crate) fn copy(&self, partition: Arc<Partition>) {
        let Some(future) = partition.future() else { return };
        while !self.stopping.load(Ordering::Acquire) && !partition.is_retired() && !future.is_dropped() {
            let copied = partition.copy_piece(&future, self.clock.now_ms()).and_then(|copied| {
                if copied == 0 || future.log().wants_flush() {
                    future.flush()?;
                }
                Ok(copied)
            });
            match copied {
                Ok(0) => return self.caught_up(partition),
                Ok(copied) => {
                    future.set_failing(false);
                    self.pause_after(copied as u64, &future);
                }
                Err(error) => {
                    if future.set_failing(true) {
                        tracing::error!(%partition, to = %future.directory.path().display(), %error, "a move between log directories stands still; it is tried again");
                    }
                    return self.stall(vec![partition]);
                }
            }
        }
    }

    fn caught_up(&self, partition: Arc<Partition>) {
        self.state.lock().caught_up.push(partition);
        if let Some(wake) = &*self.wake.lock() {
            wake();
        }
    }

    /// Keeps to the rate.
    fn pause_after(&self, copied: u64, future: &FutureReplica) {
        let mut state = self.state.lock();
        if state.rate == UNLIMITED {
            return;
        }
        let takes = Duration::from_secs_f64(copied as f64 / state.rate as f64);
        state.free_at = state.free_at.max(self.clock.monotonic()).checked_add(takes).unwrap_or(state.free_at);
        loop {
            let left = state.free_at.saturating_sub(self.clock.monotonic());
            if left.is_zero() || self.stopping.load(Ordering::Acquire) || future.is_dropped() {
                return;
            }
            self.changed.wait_for(&mut state, left.min(GLANCE));
        }
    }
}
