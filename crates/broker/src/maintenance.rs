//! What a broker does on the side: checkpoints, retention, deletion of files whose time has come, forgetting of silent producers. One thread, which wakes once a
//! second and does what is due.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use milena_log::Checkpoint;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::controller::ControllerHandle;
use crate::replicas::Replicas;
use crate::retention;
use crate::services::Live;
use crate::storage::Storage;
use crate::vital;

/// How often the thread looks for what is due.
const TICK: Duration = Duration::from_secs(1);

/// The running thread.
pub struct Maintenance {
    handle: MaintenanceHandle,
    thread: JoinHandle<()>,
}

/// What others want of the thread.
#[derive(Clone)]
pub struct MaintenanceHandle(Arc<Wants>);

struct Wants {
    /// Ends the thread's pause; one is enough.
    wake: SyncSender<()>,
    stop: AtomicBool,
    /// Who waits until the log start offsets of now are on disk.
    log_starts: Mutex<Vec<oneshot::Sender<bool>>>,
}

impl Wants {
    fn wake(&self) {
        // A full channel wakes it as well; without a receiver there is nobody to wake.
        let _ = self.wake.try_send(());
    }
}

impl MaintenanceHandle {
    /// Makes the log start offsets of now last. All who ask at the same time share one write. False when that failed.
    pub async fn keep_log_starts(&self) -> bool {
        let (kept, told) = oneshot::channel();
        self.0.log_starts.lock().push(kept);
        self.0.wake();
        told.await.unwrap_or(false)
    }
}

impl Maintenance {
    /// Starts the thread.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        storage: Arc<Storage>,
        replicas: Arc<Replicas>,
        live: Arc<Live>,
        controller: ControllerHandle,
    ) -> std::io::Result<Self> {
        let (wake, woken) = mpsc::sync_channel(1);
        let wants = Arc::new(Wants { wake, stop: AtomicBool::new(false), log_starts: Mutex::default() });
        let handle = MaintenanceHandle(Arc::clone(&wants));
        let failures = Arc::clone(storage.failures());
        let run = move || {
            let mut work = Work::new(storage, replicas, live, controller);
            loop {
                // Woken or not: those who want something must not keep it from what is due.
                let _ = woken.recv_timeout(work.pause());
                work.keep_log_starts(&wants);
                if wants.stop.load(Ordering::Acquire) {
                    return;
                }
                if work.pause().is_zero() {
                    work.tick();
                }
            }
        };
        let thread = vital::spawn(&failures, "maintenance", run)?;
        Ok(Self { handle, thread })
    }

    /// For those who want something of the thread.
    pub fn handle(&self) -> MaintenanceHandle {
        self.handle.clone()
    }

    /// Ends the thread after what it is doing.
    pub fn stop(self) {
        self.handle.0.stop.store(true, Ordering::Release);
        self.handle.0.wake();
        // A panic in it has been told; there is nothing more to do.
        let _ = self.thread.join();
    }
}

struct Work {
    storage: Arc<Storage>,
    replicas: Arc<Replicas>,
    live: Arc<Live>,
    controller: ControllerHandle,
    /// For what is looked after all the time.
    tick: Timer,
    /// For each kind of checkpoint.
    checkpoints: [Timer; 3],
    /// For looking through producers for those to forget.
    expiry: Timer,
    /// For looking through segments for those that are due to go.
    retention: Timer,
}

/// Says when something is due that is done again and again. Times are those of the monotonic clock.
struct Timer {
    due: Duration,
}

impl Timer {
    /// Due at `now` plus this long, ms.
    fn after(now: Duration, ms: i64) -> Self {
        Self { due: now.saturating_add(millis(ms)) }
    }

    /// Until it is due.
    fn left(&self, now: Duration) -> Duration {
        self.due.saturating_sub(now)
    }

    /// Whether it is due; then it is again after this long, ms.
    fn is_due(&mut self, now: Duration, again_ms: i64) -> bool {
        let due = self.left(now).is_zero();
        if due {
            *self = Self::after(now, again_ms);
        }
        due
    }
}

impl Work {
    fn new(storage: Arc<Storage>, replicas: Arc<Replicas>, live: Arc<Live>, controller: ControllerHandle) -> Self {
        let (config, now) = (live.config.load(), storage.monotonic());
        let delay_ms = config.log_initial_task_delay_ms();
        let high_watermark = Timer::after(now, config.replica_high_watermark_checkpoint_interval_ms());
        let expiry = Timer::after(now, config.producer_id_expiration_check_interval_ms().into());
        drop(config);
        let [recovery_point, log_start, retention] = [delay_ms; 3].map(|ms| Timer::after(now, ms));
        let checkpoints = [high_watermark, recovery_point, log_start];
        let tick = Timer { due: now + TICK };
        Self { storage, replicas, live, controller, tick, checkpoints, expiry, retention }
    }

    /// Until the next tick.
    fn pause(&self) -> Duration {
        let now = self.storage.monotonic();
        self.tick.left(now).min(self.retention.left(now))
    }

    fn keep_log_starts(&self, wants: &Wants) {
        let waiting = std::mem::take(&mut *wants.log_starts.lock());
        if !waiting.is_empty() {
            let kept = self.checkpoint(Checkpoint::LogStart);
            for waiting in waiting {
                // Who has gone does not need to know.
                let _ = waiting.send(kept);
            }
        }
    }

    fn tick(&mut self) {
        let now = self.storage.monotonic();
        self.tick = Timer { due: now + TICK };
        self.storage.delete_due();
        self.storage.sync_created();
        self.storage.mover().retry_stalled();
        self.storage.forget_deleted(&self.replicas);
        if self.storage.has_missing() || self.storage.has_untold() {
            // Partitions are made by the controller's thread, which tries again after each change.
            self.controller.try_change(|_| Vec::new());
        }
        if self.retention.is_due(now, self.live.config.load().log_retention_check_interval_ms()) {
            self.delete_old_segments();
        }
        let config = self.live.config.load();
        let every = [
            (Checkpoint::HighWatermark, config.replica_high_watermark_checkpoint_interval_ms()),
            (Checkpoint::RecoveryPoint, i64::from(config.log_flush_offset_checkpoint_interval_ms())),
            (Checkpoint::LogStart, i64::from(config.log_flush_start_offset_checkpoint_interval_ms())),
        ];
        let expiry_ms = config.producer_id_expiration_check_interval_ms();
        drop(config);
        for (at, (which, interval_ms)) in every.into_iter().enumerate() {
            if self.checkpoints[at].is_due(now, interval_ms) {
                self.checkpoint(which);
            }
        }
        if self.expiry.is_due(now, expiry_ms.into()) {
            let now_ms = self.storage.now_ms();
            self.replicas.topics().partitions().for_each(|partition| partition.log().expire_producers(now_ms));
        }
    }

    /// Compacted logs are looked after by the cleaner, where there is one.
    fn delete_old_segments(&self) {
        let has_cleaner = self.live.config.load().log_cleaner_enable();
        for partition in self.replicas.topics().partitions() {
            let is_the_cleaners = has_cleaner && partition.settings().log.compact;
            if !is_the_cleaners && !partition.directory().is_offline() {
                retention::delete_old_segments_or_tell(partition, &self.storage);
            }
        }
    }

    /// False when it can't be written.
    fn checkpoint(&self, which: Checkpoint) -> bool {
        let written = self.storage.checkpoint(&self.replicas, which);
        written
            .inspect_err(|error| tracing::error!(file = which.file_name(), %error, "a checkpoint can't be written"))
            .is_ok()
    }
}

/// A duration from the configuration.
fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
