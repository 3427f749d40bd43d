//! One partition that this broker hosts: its log behind a short lock, and what readers see without the lock.
//! Which partitions exist is `replicas`' business; what a request asks of them is the handlers'.

mod flush;
mod future;
mod read;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering};

use arc_swap::{ArcSwap, Guard};
use milena_log::{Appended, Checkpoint, EpochEnd, Log, LogError, Marker, Unwritten};
use milena_log::{VerificationGuard, VerificationStart};
use milena_net::FileOwner;
use milena_protocol::{ErrorCode, Uuid};
use parking_lot::{Mutex, MutexGuard};

use crate::flusher::Flusher;
use crate::purgatory::Waiters;
use crate::settings::PartitionSettings;
use crate::storage::Directory;
use flush::Flushes;
pub use future::FutureReplica;
pub use read::{FetchedSlice, Isolation};

/// The name and id of a topic, shared by its partitions.
#[derive(Debug, PartialEq, Eq)]
pub struct TopicIdentity {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: Uuid,
}

/// Somebody who is told when the high watermark moves later than an append, or never will.
pub trait CommitListener: Send + Sync {
    /// Look at the partition. False when there is no need to be told again.
    fn committed(&self) -> bool;
}

/// A partition on this broker, of which it is the leader.
pub struct Partition {
    /// Its topic.
    pub topic: Arc<TopicIdentity>,
    /// Its number in the topic.
    pub index: i32,
    directory: ArcSwap<Directory>,
    log: Mutex<Log>,
    /// The copy of the log in another directory that will take its place. Its log is locked after the one above.
    future: Mutex<Option<Arc<FutureReplica>>>,
    leader_epoch: AtomicI32,
    high_watermark: AtomicI64,
    /// Changes after the high watermark, so that who reads it first finds it not above.
    last_stable_offset: AtomicI64,
    log_start: AtomicI64,
    /// Everything below is compacted; -1 while nothing is.
    cleaned_to: AtomicI64,
    /// Offset from which on reads find what they need in memory.
    recent_from: AtomicI64,
    settings: ArcSwap<PartitionSettings>,
    retired: AtomicBool,
    failing: AtomicBool,
    waiters: Waiters,
    flushes: Flushes,
    flusher: Arc<Flusher>,
    listeners: Mutex<Vec<Arc<dyn CommitListener>>>,
}

impl Partition {
    /// A partition over an open log, led from its log end on with `leader_epoch`.
    ///
    /// # Errors
    /// When the epoch can't be recorded.
    pub fn lead(
        topic: Arc<TopicIdentity>,
        index: i32,
        directory: Arc<Directory>,
        mut log: Log,
        leader_epoch: i32,
        settings: Arc<PartitionSettings>,
        flusher: &Arc<Flusher>,
    ) -> Result<Self, LogError> {
        let end = log.log_end_offset();
        log.assign_epoch(leader_epoch, end)?;
        Ok(Self {
            topic,
            index,
            directory: ArcSwap::new(directory),
            future: Mutex::default(),
            leader_epoch: AtomicI32::new(leader_epoch),
            high_watermark: AtomicI64::new(end),
            last_stable_offset: AtomicI64::new(log.last_stable_offset(end)),
            log_start: AtomicI64::new(log.log_start_offset()),
            cleaned_to: AtomicI64::new(-1),
            recent_from: AtomicI64::new(log.recent_from()),
            settings: ArcSwap::new(settings),
            retired: AtomicBool::new(false),
            failing: AtomicBool::new(false),
            waiters: Waiters::default(),
            flushes: Flushes::since(flusher.now_ms()),
            flusher: Arc::clone(flusher),
            listeners: Mutex::default(),
            log: Mutex::new(log),
        })
    }

    /// Goes on leading with a newer epoch.
    ///
    /// # Errors
    /// When the epoch can't be recorded.
    pub fn lead_with_epoch(&self, leader_epoch: i32) -> Result<(), LogError> {
        let mut log = self.log.lock();
        if leader_epoch > self.leader_epoch.load(Ordering::Acquire) {
            let end = log.log_end_offset();
            log.assign_epoch(leader_epoch, end)?;
            self.leader_epoch.store(leader_epoch, Ordering::Release);
        }
        Ok(())
    }

    /// Appends whole batches, gives them their offsets in the buffers, and wakes who waits for records. The only replica
    /// is this one, so the high watermark follows at once, or after the flush that `flush.messages` demands: what may be
    /// acknowledged is known from [`acknowledges`](Self::acknowledges). What an idempotent producer may not write is left out.
    /// The `guards` of [`begin_verification`](Self::begin_verification) stand at the places of batches that begin a transaction.
    ///
    /// # Errors
    /// When the log can't take them; then none of them is there.
    pub fn append_as_leader(
        self: &Arc<Self>,
        batches: &mut [&mut [u8]],
        guards: &[Option<VerificationGuard>],
        now_ms: i64,
    ) -> Result<Appended, LogError> {
        self.append_with(|log, leader_epoch| log.append(batches, guards, leader_epoch, now_ms))
    }

    /// Appends a batch of the coordinator that lives on this partition; with the guard that
    /// [`begin_verification`](Self::begin_verification) gave if it begins a transaction.
    ///
    /// # Errors
    /// As `append_as_leader`.
    pub fn append_as_coordinator(
        self: &Arc<Self>,
        batch: &mut [u8],
        guard: Option<VerificationGuard>,
        now_ms: i64,
    ) -> Result<Appended, LogError> {
        self.append_with(|log, leader_epoch| log.append_as_coordinator(batch, guard, leader_epoch, now_ms))
    }

    /// Before the first batch of a transaction is written, its coordinator must know of it: the guard goes with the batch.
    /// `None` when the transaction is open here already.
    ///
    /// # Errors
    /// [`Unwritten::InvalidProducerEpoch`] when the producer has written here in a later epoch.
    pub fn begin_verification(&self, start: &VerificationStart) -> Result<Option<VerificationGuard>, Unwritten> {
        self.log.lock().begin_verification(start)
    }

    /// Appends the marker that ends a transaction; returns the offset after it.
    ///
    /// # Errors
    /// As [`append_as_leader`](Self::append_as_leader). The inner error says why the marker may not be written.
    pub fn append_marker(self: &Arc<Self>, marker: &Marker, now_ms: i64) -> Result<Result<i64, Unwritten>, LogError> {
        let appended = self.append_with(|log, leader_epoch| log.append_marker(marker, leader_epoch, now_ms))?;
        Ok(appended.map(|offset| offset + 1))
    }

    fn append_with<T>(
        self: &Arc<Self>,
        append: impl FnOnce(&mut Log, i32) -> Result<T, LogError>,
    ) -> Result<T, LogError> {
        let (appended, after) = {
            let mut log = self.log.lock();
            if self.is_retired() {
                return Err(LogError::Poisoned { dir: log.dir().to_owned() });
            }
            self.check_online()?;
            let appended = append(&mut log, self.leader_epoch()).inspect_err(|error| self.failed(error))?;
            self.recent_from.store(log.recent_from(), Ordering::Relaxed);
            (appended, self.after_append(&mut log))
        };
        self.ask_after_append(&after);
        if self.failing.load(Ordering::Relaxed) {
            self.failing.store(false, Ordering::Relaxed);
            tracing::info!(partition = %self, "appends succeed again");
        }
        if after.moved {
            self.waiters.wake();
        }
        Ok(appended)
    }

    /// Tells of the first of consecutive failures only: a full disk fails every request, and its log may be on it.
    fn failed(&self, error: &LogError) {
        if !self.failing.swap(true, Ordering::Relaxed) {
            tracing::error!(partition = %self, %error, "appends fail");
        }
        self.note_error(error);
    }

    /// The log directory that it is in.
    pub fn directory(&self) -> Guard<Arc<Directory>> {
        self.directory.load()
    }

    /// To be told when records that [`read`](Self::read) has found can't be read from the segment with this base offset.
    pub fn read_failed(&self, segment: i64, source: std::io::Error) {
        let path = self.log().dir().join(format!("{segment:020}.log"));
        self.note_error(&LogError::Io { operation: "reading", path, source });
    }

    /// To be told of every error of its log: one of the disk takes the directory offline.
    pub fn note_error(&self, error: &LogError) {
        self.directory().note_error(error);
    }

    fn check_online(&self) -> Result<(), LogError> {
        let directory = self.directory();
        if directory.is_offline() {
            return Err(LogError::Offline { dir: directory.path().to_owned() });
        }
        Ok(())
    }

    /// Largest known leader epoch that is not above `epoch`, and where it ended. The current epoch ends at the log end.
    pub fn end_offset_for_epoch(&self, epoch: i32) -> EpochEnd {
        let log = self.log.lock();
        if epoch >= 0 && epoch == self.leader_epoch() {
            return EpochEnd { epoch, end_offset: log.log_end_offset() };
        }
        log.end_offset_for_epoch(epoch)
    }

    /// Checks the leader epoch that a client believes to be current.
    ///
    /// # Errors
    /// FENCED_LEADER_EPOCH for an older one, UNKNOWN_LEADER_EPOCH for a newer one.
    pub fn check_leader_epoch(&self, epoch: i32) -> Result<(), ErrorCode> {
        match epoch.cmp(&self.leader_epoch()) {
            std::cmp::Ordering::Less => Err(ErrorCode::FENCED_LEADER_EPOCH),
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => Err(ErrorCode::UNKNOWN_LEADER_EPOCH),
        }
    }

    /// What the checkpoint of each directory that it is in says of it; nothing where it has no line.
    pub fn checkpointed(&self, which: Checkpoint) -> [Option<(Arc<Directory>, i64)>; 2] {
        // It changes its directory with the log locked.
        let log = self.log();
        let here = match which {
            Checkpoint::RecoveryPoint => Some(log.recovery_point()),
            Checkpoint::HighWatermark => Some(self.high_watermark()),
            Checkpoint::LogStart => log.log_start_needs_checkpoint().then(|| log.log_start_offset()),
            Checkpoint::Cleaner => self.cleaned_to(),
        };
        let future = self.future().map(|future| {
            let offset = match which {
                Checkpoint::RecoveryPoint => future.log().recovery_point(),
                Checkpoint::HighWatermark => self.high_watermark().min(future.log().log_end_offset()),
                // It must not come back with more than the log has.
                Checkpoint::LogStart => log.log_start_offset(),
                Checkpoint::Cleaner => self.cleaned_to()?,
            };
            Some((Arc::clone(&future.directory), offset))
        });
        [here.map(|offset| (Arc::clone(&self.directory()), offset)), future.flatten()]
    }

    /// First offset that is not compacted; `None` while nothing is.
    pub fn cleaned_to(&self) -> Option<i64> {
        Some(self.cleaned_to.load(Ordering::Acquire)).filter(|offset| *offset >= 0)
    }

    /// Everything below is compacted. The caller writes the checkpoint.
    pub fn set_cleaned_to(&self, offset: Option<i64>) {
        self.cleaned_to.store(offset.unwrap_or(-1), Ordering::Release);
    }

    /// The log with its lock, for who takes it again and again.
    pub fn log_mutex(&self) -> &Mutex<Log> {
        &self.log
    }

    /// The log, locked: for what is rare.
    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock()
    }

    /// Changes the log in a way that may raise its start offset; readers see it afterwards.
    ///
    /// # Errors
    /// Those of `change`; the log start offset may have been raised all the same.
    pub fn change_log_start<T>(&self, change: impl FnOnce(&mut Log) -> Result<T, LogError>) -> Result<T, LogError> {
        let mut log = self.log.lock();
        let changed = change(&mut log);
        self.last_stable_offset.store(log.last_stable_offset(self.high_watermark()), Ordering::Release);
        self.log_start.store(log.log_start_offset(), Ordering::Release);
        changed
    }

    /// Takes new settings.
    pub fn set_settings(self: &Arc<Self>, settings: Arc<PartitionSettings>) {
        let timed = settings.log.flush_ms < i64::MAX;
        let unflushed = {
            let mut log = self.log.lock();
            log.set_config(Arc::clone(&settings.log));
            if let Some(future) = self.future() {
                future.log().set_config(Arc::clone(&settings.log));
            }
            log.flushed_to() < log.log_end_offset()
        };
        self.settings.store(settings);
        if timed && unflushed {
            self.watch();
        }
    }

    /// Its settings as of now.
    pub fn settings(&self) -> Guard<Arc<PartitionSettings>> {
        self.settings.load()
    }

    /// The partition is gone: nothing is appended any more, and who waits for it finds out.
    pub fn retire(&self) {
        let log = self.log.lock();
        self.retired.store(true, Ordering::Release);
        drop(log);
        self.waiters.wake();
        self.committed();
    }

    /// Whether the partition is gone.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// What those are told who still ask a partition that is gone.
    pub fn retired_error(&self) -> ErrorCode {
        match self.directory().is_offline() {
            true => ErrorCode::KAFKA_STORAGE_ERROR,
            false => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        }
    }

    /// What those are told whose read or write has failed: that the partition is gone, if that is why.
    pub fn failure_error(&self) -> ErrorCode {
        if self.is_retired() { self.retired_error() } else { ErrorCode::KAFKA_STORAGE_ERROR }
    }

    /// Offset after the last record that consumers may see.
    pub fn high_watermark(&self) -> i64 {
        self.high_watermark.load(Ordering::Acquire)
    }

    /// Shows what is below `end` and not in an open transaction. Under the log's lock.
    fn show_to(&self, log: &mut Log, end: i64) {
        self.high_watermark.store(end, Ordering::Release);
        self.last_stable_offset.store(log.last_stable_offset(end), Ordering::Release);
    }

    /// Offset of the first record that belongs to an open transaction, else the high watermark.
    pub fn last_stable_offset(&self) -> i64 {
        self.last_stable_offset.load(Ordering::Acquire)
    }

    /// First offset that can be read.
    pub fn log_start_offset(&self) -> i64 {
        self.log_start.load(Ordering::Acquire)
    }

    /// Epoch of the current leadership.
    pub fn leader_epoch(&self) -> i32 {
        self.leader_epoch.load(Ordering::Acquire)
    }

    /// Has somebody told of commits. What has happened before is not told: look at the partition after this.
    pub fn add_listener(&self, listener: Arc<dyn CommitListener>) {
        self.listeners.lock().push(listener);
    }

    /// Commits may have happened that no append has told of.
    fn committed(&self) {
        let listeners = self.listeners.lock().clone();
        for one in listeners.iter().filter(|one| !one.committed()) {
            self.listeners.lock().retain(|other| !Arc::ptr_eq(one, other));
        }
    }

    /// Those who wait for records.
    pub fn waiters(&self) -> &Waiters {
        &self.waiters
    }
}

impl FileOwner for Partition {
    fn unreadable(&self, source: std::io::Error) {
        tracing::error!(partition = %self, error = %source, "records can't be sent");
        self.note_error(&LogError::Io { operation: "sending from", path: self.log().dir().to_owned(), source });
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic.name, self.index)
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Partition({self})")
    }
}
