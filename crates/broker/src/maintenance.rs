//! What a broker does on the side: checkpoints, deletion of files whose time has come, forgetting of silent producers. One thread, which wakes once a
//! second and does what is due.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use milena_log::Checkpoint;

use crate::controller::ControllerHandle;
use crate::ports::Live;
use crate::replicas::Replicas;
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
            let mut work =
                Work { storage, replicas, live, controller, last: [Instant::now(); 3], expired: Instant::now() };
            while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
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
    /// When each kind of checkpoint was last written.
    last: [Instant; 3],
    /// When producers were last looked through for those to forget.
    expired: Instant,
}

impl Work {
    fn tick(&mut self) {
        self.storage.delete_due();
        self.storage.sync_created();
        self.storage.forget_deleted(&self.replicas);
        if self.storage.has_missing() || self.storage.has_untold() {
            // Partitions are made by the controller's thread, which tries again after each change.
            self.controller.try_change(|_| Vec::new());
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
            let interval = Duration::from_millis(u64::try_from(interval_ms).unwrap_or(0));
            if self.last[at].elapsed() >= interval {
                self.last[at] = Instant::now();
                self.checkpoint(which);
            }
        }
        if self.expired.elapsed() >= Duration::from_millis(u64::try_from(expiry_ms).unwrap_or(0)) {
            self.expired = Instant::now();
            let now_ms = self.storage.now_ms();
            self.replicas.topics().partitions().for_each(|partition| partition.log().expire_producers(now_ms));
        }
    }

    fn checkpoint(&self, which: Checkpoint) {
        if let Err(error) = self.storage.checkpoint(&self.replicas, which) {
            tracing::error!(file = which.file_name(), %error, "a checkpoint can't be written");
        }
    }
}
