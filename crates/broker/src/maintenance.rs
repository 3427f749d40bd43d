//! What a broker does on the side: checkpoints, retention, deletion of files whose time has come, forgetting of silent producers. One thread, which wakes once a
//! second and does what is due.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use milena_log::Checkpoint;

use crate::controller::ControllerHandle;
use crate::ports::Live;
use crate::replicas::Replicas;
use crate::retention;
use crate::storage::Storage;

/// How often the thread looks for what is due.
const TICK: Duration = Duration::from_secs(1);

/// The running thread.
pub struct Maintenance {
    stop: Sender<()>,
    thread: JoinHandle<()>,
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
        let (stop, stopped) = mpsc::channel();
        let run = move || {
            let mut work = Work::new(storage, replicas, live, controller);
            while stopped.recv_timeout(work.pause()) == Err(RecvTimeoutError::Timeout) {
                work.tick();
            }
        };
        let thread = std::thread::Builder::new().name("maintenance".into()).spawn(run)?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread after what it is doing.
    pub fn stop(self) {
        drop(self.stop);
        // A panic in it has been printed; there is nothing more to do.
        let _ = self.thread.join();
    }
}

struct Work {
    storage: Arc<Storage>,
    replicas: Arc<Replicas>,
    live: Arc<Live>,
    controller: ControllerHandle,
    /// For each kind of checkpoint.
    checkpoints: [Timer; 3],
    /// For looking through producers for those to forget.
    expiry: Timer,
    /// For looking through segments for those that are due to go.
    retention: Timer,
}

/// Says when something is due that is done again and again.
struct Timer {
    last: Instant,
    wait: Duration,
}

impl Timer {
    /// Due the first time after this long, ms.
    fn first_after(ms: i64) -> Self {
        Self { last: Instant::now(), wait: millis(ms) }
    }

    /// Until it is due.
    fn left(&self) -> Duration {
        self.wait.saturating_sub(self.last.elapsed())
    }

    /// Whether it is due; then it is again after this long, ms.
    fn is_due(&mut self, again_ms: i64) -> bool {
        let due = self.left().is_zero();
        if due {
            *self = Self::first_after(again_ms);
        }
        due
    }
}

impl Work {
    fn new(storage: Arc<Storage>, replicas: Arc<Replicas>, live: Arc<Live>, controller: ControllerHandle) -> Self {
        let config = live.config.load();
        let delay_ms = config.log_initial_task_delay_ms();
        let high_watermark = Timer::first_after(config.replica_high_watermark_checkpoint_interval_ms());
        let expiry = Timer::first_after(config.producer_id_expiration_check_interval_ms().into());
        drop(config);
        let [recovery_point, log_start, retention] = [delay_ms; 3].map(Timer::first_after);
        let checkpoints = [high_watermark, recovery_point, log_start];
        Self { storage, replicas, live, controller, checkpoints, expiry, retention }
    }

    /// Until the next tick.
    fn pause(&self) -> Duration {
        TICK.min(self.retention.left())
    }

    fn tick(&mut self) {
        self.storage.delete_due();
        self.storage.sync_created();
        self.storage.forget_deleted(&self.replicas);
        if self.storage.has_missing() || self.storage.has_untold() {
            // Partitions are made by the controller's thread, which tries again after each change.
            self.controller.try_change(|_| Vec::new());
        }
        if self.retention.is_due(self.live.config.load().log_retention_check_interval_ms()) {
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
            if self.checkpoints[at].is_due(interval_ms) {
                self.checkpoint(which);
            }
        }
        if self.expiry.is_due(expiry_ms.into()) {
            let now_ms = self.storage.now_ms();
            self.replicas.topics().partitions().for_each(|partition| partition.log().expire_producers(now_ms));
        }
    }

    fn delete_old_segments(&self) {
        for partition in self.replicas.topics().partitions() {
            if let Err(error) = retention::delete_old_segments(partition, &self.storage) {
                tracing::error!(%partition, %error, "old segments can't be deleted");
            }
        }
    }

    fn checkpoint(&self, which: Checkpoint) {
        if let Err(error) = self.storage.checkpoint(&self.replicas, which) {
            tracing::error!(file = which.file_name(), %error, "a checkpoint can't be written");
        }
    }
}

/// A duration from the configuration.
fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
