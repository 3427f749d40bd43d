//! The threads that compact logs: which log is next, the budget of their I/O, what is told and kept of each cleaning. How
//! a log is cleaned is the log's business.

mod budget;
mod choice;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use milena_log::{Checkpoint, CleanError, CleanTask, Cleaned, Cleaner, CleanerConfig, Host};
use parking_lot::{Condvar, Mutex};

use crate::partition::Partition;
use crate::replicas::Replicas;
use crate::retention;
use crate::services::Live;
use crate::storage::Storage;

use budget::Budget;
use choice::{Choices, Chosen};

/// While there is no log to clean, the settings are looked at this often.
const GLANCE: Duration = Duration::from_secs(1);
/// Looking for a log without a pause would keep a core busy.
const LEAST_BACKOFF: Duration = Duration::from_millis(10);

/// The threads, as many as `log.cleaner.threads` says at the moment.
pub struct LogCleaner(Arc<Shared>);

struct Shared {
    storage: Arc<Storage>,
    replicas: Arc<Replicas>,
    live: Arc<Live>,
    choices: Choices,
    budget: Mutex<Budget>,
    threads: Mutex<Threads>,
    stop: Condvar,
}

#[derive(Default)]
struct Threads {
    stopping: bool,
    handles: Vec<JoinHandle<()>>,
    /// The numbers of those that have not ended.
    alive: BTreeSet<usize>,
}

impl LogCleaner {
    /// Starts the threads; none without `log.cleaner.enable`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(storage: Arc<Storage>, replicas: Arc<Replicas>, live: Arc<Live>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            storage,
            replicas,
            live,
            choices: Choices::default(),
            budget: Mutex::default(),
            threads: Mutex::default(),
            stop: Condvar::new(),
        });
        if shared.live.config.load().log_cleaner_enable() {
            shared.start_missing()?;
        }
        Ok(Self(shared))
    }

    /// Ends the threads. What they are at is given up, and done again after the next start.
    pub fn stop(self) {
        let handles = {
            let mut threads = self.0.threads.lock();
            threads.stopping = true;
            self.0.stop.notify_all();
            std::mem::take(&mut threads.handles)
        };
        for handle in handles {
            // A panic in it has been printed; there is nothing more to do.
            let _ = handle.join();
        }
    }
}

impl Shared {
    fn wanted(&self) -> usize {
        usize::try_from(self.live.config.load().log_cleaner_threads()).unwrap_or(0)
    }

    /// Starts the threads that are wanted and not there.
    fn start_missing(self: &Arc<Self>) -> std::io::Result<()> {
        let mut threads = self.threads.lock();
        if threads.stopping || threads.alive.len() >= self.wanted() {
            return Ok(());
        }
        threads.handles.retain(|handle| !handle.is_finished());
        for number in 0..self.wanted() {
            if threads.alive.contains(&number) {
                continue;
            }
            let shared = Arc::clone(self);
            let run = move || shared.run(number);
            threads.handles.push(std::thread::Builder::new().name(format!("cleaner-{number}")).spawn(run)?);
            threads.alive.insert(number);
        }
        Ok(())
    }

    /// Whether thread `number` is to go on; starts those that are missing.
    fn goes_on(self: &Arc<Self>, number: usize) -> bool {
        if let Err(error) = self.start_missing() {
            tracing::error!(%error, "a log cleaner thread can't be started");
        }
        let goes_on = number < self.wanted() || number == 0;
        let mut threads = self.threads.lock();
        if !goes_on {
            threads.alive.remove(&number);
        }
        goes_on && !threads.stopping
    }

    /// Waits; false when the broker is stopping.
    fn wait(&self, duration: Duration) -> bool {
        let mut threads = self.threads.lock();
        if !threads.stopping && !duration.is_zero() {
            self.stop.wait_for(&mut threads, duration);
        }
        !threads.stopping
    }

    fn run(self: Arc<Self>, number: usize) {
        let mut idle_since = None;
        while self.goes_on(number) {
            let backoff_ms = self.live.config.load().log_cleaner_backoff_ms();
            let backoff = LEAST_BACKOFF.max(Duration::from_millis(u64::try_from(backoff_ms).unwrap_or(0)));
            let now = self.storage.monotonic();
            if idle_since.is_some_and(|since| now.saturating_sub(since) < backoff) {
                self.wait(GLANCE.min(backoff));
                continue;
            }
            let cleaned = self.clean_filthiest(number);
            self.delete_old_segments();
            idle_since = (!cleaned).then(|| self.storage.monotonic());
        }
    }

    /// Cleans the log that needs it most; false when there was none, or when it could not be cleaned.
    fn clean_filthiest(self: &Arc<Self>, number: usize) -> bool {
        let now_ms = self.storage.now_ms();
        let Some(chosen) = self.choices.choose(&self.replicas, now_ms) else { return false };
        let partition = Arc::clone(&chosen.partition);
        let cleaned = catch_unwind(AssertUnwindSafe(|| self.clean(number, &chosen, now_ms)));
        let outcome = match cleaned {
            Ok(Ok(cleaned)) => {
                tell(&partition, number, &chosen, &cleaned);
                true
            }
            Ok(Err(CleanError::GivenUp)) => {
                tracing::info!(%partition, thread = number, "the cleaning is given up");
                false
            }
            Ok(Err(CleanError::Log(error))) if error.is_disk_full() || error.is_disk_failure() => {
                tracing::error!(%partition, %error, "the log can't be cleaned now");
                partition.note_error(&error);
                false
            }
            Ok(Err(error)) => self.set_aside(&partition, &error),
            // The panic itself has been printed.
            Err(_) => self.set_aside(&partition, &"a bug, see the panic before this line"),
        };
        self.choices.release(&partition);
        outcome
    }

    /// The log would fail again and again: it is left alone until the next start.
    fn set_aside(&self, partition: &Arc<Partition>, error: &dyn std::fmt::Display) -> bool {
        tracing::warn!(%partition, %error, "the log can't be cleaned; it is left as it is until the next start");
        self.choices.set_aside(partition);
        false
    }

    fn clean(self: &Arc<Self>, number: usize, chosen: &Chosen, now_ms: i64) -> Result<Cleaned, CleanError> {
        let partition = &chosen.partition;
        let settings = Arc::clone(&partition.settings());
        self.make_durable(partition, chosen.cleanable.end)?;
        let task = CleanTask {
            first_dirty: chosen.cleanable.first_dirty,
            end: chosen.cleanable.end,
            now_ms,
            delete_retention_ms: settings.compaction.delete_retention_ms,
            max_record_bytes: settings.records.max_record_bytes,
        };
        let mut cleaner = Cleaner::new(self.cleaner_config(settings.records.max_decompressed_bytes()));
        let mut at_work = AtWork { shared: self, partition, number };
        let cleaned = cleaner.clean(partition.log_mutex(), task, &mut at_work)?;
        partition.set_cleaned_to(Some(cleaned.end));
        self.storage.checkpoint(&self.replicas, Checkpoint::Cleaner)?;
        Ok(cleaned)
    }

    fn cleaner_config(&self, decompressed_bytes: usize) -> CleanerConfig {
        let config = self.live.config.load();
        let threads = config.log_cleaner_threads().max(1);
        let buffers = usize::try_from(config.log_cleaner_io_buffer_size() / threads).unwrap_or(0);
        CleanerConfig {
            map_bytes: u64::try_from(config.log_cleaner_dedupe_buffer_size() / i64::from(threads)).unwrap_or(0),
            load_factor: config.log_cleaner_io_buffer_load_factor(),
            buffer_bytes: buffers / 2,
            decompressed_bytes,
        }
    }

    /// What is cleaned lies below the recovery point, on disk too. So a start never looks into it for a torn tail, where the offsets that a
    /// cleaning takes out would look like lost ones once the topic is not compacted any more.
    fn make_durable(&self, partition: &Arc<Partition>, end: i64) -> Result<(), CleanError> {
        if partition.log().recovery_point() < end {
            partition.flush(false)?;
        }
        if partition.log().recovery_point() < end {
            return Err(CleanError::GivenUp);
        }
        Ok(self.storage.checkpoint(&self.replicas, Checkpoint::RecoveryPoint)?)
    }

    /// The cleaner looks after the retention of compacted logs too, since it knows which ones are being cleaned.
    fn delete_old_segments(&self) {
        for partition in self.replicas.topics().partitions().filter(|it| it.settings().log.compact) {
            if !partition.directory().is_offline() && self.choices.take(partition) {
                retention::delete_old_segments_or_tell(partition, &self.storage);
                self.choices.release(partition);
            }
        }
    }
}

/// A cleaning's view of the broker.
struct AtWork<'c> {
    shared: &'c Arc<Shared>,
    partition: &'c Arc<Partition>,
    number: usize,
}

impl Host for AtWork<'_> {
    fn go_on(&mut self, bytes: u64) -> bool {
        let partition = self.partition;
        let must_stop = partition.is_retired() || partition.directory().is_offline() || partition.is_moving();
        if must_stop || !partition.settings().log.compact || !self.shared.goes_on(self.number) {
            return false;
        }
        let rate = self.shared.live.config.load().log_cleaner_io_max_bytes_per_second();
        let wait = self.shared.budget.lock().charge(bytes, rate, self.shared.storage.monotonic());
        self.shared.wait(wait)
    }

    fn high_watermark(&self) -> i64 {
        self.partition.high_watermark()
    }

    fn remove_later(&mut self, files: Vec<PathBuf>) {
        self.shared.storage.remove_later(files, self.partition.settings().file_delete_delay_ms);
    }
}

/// How much was cleaned, as Kafka tells it.
fn tell(partition: &Partition, thread: usize, chosen: &Chosen, cleaned: &Cleaned) {
    let stats = &cleaned.stats;
    let mb = |bytes: u64| format!("{:.1}", bytes as f64 / (1 << 20) as f64);
    let part = |of: u64, all: u64| if all == 0 { 0.0 } else { 100.0 * (1.0 - of as f64 / all as f64) };
    let seconds = stats.time.as_secs_f64();
    let rate = stats.bytes_read as f64 / (1 << 20) as f64 / seconds.max(1e-9);
    tracing::info!(
        %partition, thread, from = chosen.cleanable.first_dirty, to = cleaned.end,
        mb_read = %mb(stats.bytes_read), mb_left = %mb(stats.bytes_written),
        size_reduction = %format_args!("{:.1}%", part(stats.bytes_written, stats.bytes_read)),
        messages_read = stats.messages_read, messages_left = stats.messages_written,
        fewer_messages = %format_args!("{:.1}%", part(stats.messages_written, stats.messages_read)),
        mb_indexed = %mb(stats.map_bytes_read), seconds_indexing = %format_args!("{:.1}", stats.map_time.as_secs_f64()),
        buffer_utilization = %format_args!("{:.1}%", 100.0 * stats.map_utilization),
        seconds = %format_args!("{seconds:.1}"), mb_per_second = %format_args!("{rate:.1}"),
        "a log is cleaned"
    );
    if stats.invalid_messages > 0 {
        tracing::warn!(%partition, records = stats.invalid_messages, "records without a key were removed");
    }
}
