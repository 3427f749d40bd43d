//! The future replica of a partition: a copy of its log in another log directory, which grows until it has everything and then takes the log's
//! place. Who has it grow is the `mover`; where it is made and dropped is `storage`'s business.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use milena_io::FileExt;
use milena_log::{Log, LogError, Slice};
use parking_lot::{Mutex, MutexGuard};

use super::Partition;
use crate::storage::Directory;

/// Bytes that are copied at once, unless a batch is longer.
const PIECE: usize = 1 << 20;
/// How many pieces may be missing when the future replica is to take the log's place.
const LAST_PIECES: usize = 64;

/// A copy of a partition's log that is going to take its place.
pub struct FutureReplica {
    /// The log directory that it is in.
    pub directory: Arc<Directory>,
    log: Mutex<Log>,
    dropped: AtomicBool,
    failing: AtomicBool,
}

impl FutureReplica {
    /// Over an open log, which has all or some of the partition's.
    pub fn new(directory: Arc<Directory>, log: Log) -> Arc<Self> {
        let (dropped, failing) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { directory, log: Mutex::new(log), dropped, failing })
    }

    /// Its log, locked; after the partition's own where both are.
    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock()
    }

    /// Whether nothing is to be copied any more.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire) || self.directory.is_offline()
    }

    /// Takes note of whether copying fails. True when that is news.
    pub fn set_failing(&self, failing: bool) -> bool {
        self.failing.swap(failing, Ordering::Relaxed) != failing
    }

    /// Makes what was copied so far durable.
    ///
    /// # Errors
    /// Those of its log; its directory has heard of them.
    pub fn flush(&self) -> Result<(), LogError> {
        let begun = self.log().begin_flush();
        let flushed = begun.and_then(|flush| {
            let Some(flush) = flush else { return Ok(()) };
            flush.sync()?;
            self.log().flushed(flush);
            Ok(())
        });
        flushed.inspect_err(|error| self.directory.note_error(error))
    }

    /// Brings its log to a beginning of `source`, after a start.
    ///
    /// # Errors
    /// Those of its log; its directory has heard of them.
    pub fn agree_with(&self, source: &Log) -> Result<(), LogError> {
        self.log().agree_with(source).inspect_err(|error| self.directory.note_error(error))
    }

    /// Where what it lacks begins in `source`; `None` when that is nothing. Where the beginning of its log has gone from `source`, it begins anew.
    fn find(&self, source: &Log) -> Result<Option<Slice>, LogError> {
        let (mut log, start) = (self.log(), source.log_start_offset());
        if log.log_end_offset() < start {
            let restarted = log.truncate_fully_and_start_at(start);
            restarted.inspect_err(|error| self.directory.note_error(error))?;
        }
        source.read(log.log_end_offset(), PIECE, source.log_end_offset(), true)
    }

    fn append(&self, bytes: &[u8], now_ms: i64) -> Result<usize, LogError> {
        self.log().append_copy(bytes, now_ms).inspect_err(|error| self.directory.note_error(error))
    }
}

impl Partition {
    /// Its future replica, if it is being moved to another log directory.
    pub fn future(&self) -> Option<Arc<FutureReplica>> {
        self.future.lock().clone()
    }

    /// Whether it has one. It is not compacted then: a tombstone could go before it is copied.
    pub fn is_moving(&self) -> bool {
        self.future.lock().is_some()
    }

    /// From now on this is its future replica.
    pub fn set_future(&self, future: Arc<FutureReplica>) {
        *self.future.lock() = Some(future);
    }

    /// From now on it has none.
    pub fn take_future(&self) -> Option<Arc<FutureReplica>> {
        let future = self.future.lock().take();
        future.inspect(|future| future.dropped.store(true, Ordering::Release))
    }

    /// Copies a piece of what the future replica lacks. Returns how many bytes; 0 when it lacks nothing.
    ///
    /// # Errors
    /// Those of both logs; the directory that has failed has heard of it.
    pub fn copy_piece(&self, future: &FutureReplica, now_ms: i64) -> Result<usize, LogError> {
        let found = {
            let log = self.log();
            self.check_online()?;
            future.find(&log).inspect_err(|error| self.note_error(error))?
        };
        found.map_or(Ok(0), |slice| self.copy_slice(future, &slice, now_ms))
    }

    fn copy_slice(&self, future: &FutureReplica, slice: &Slice, now_ms: i64) -> Result<usize, LogError> {
        let mut bytes = vec![0; slice.len];
        let read = slice.file.read_exact_at(&mut bytes, slice.position);
        read.map_err(|source| LogError::Io {
            operation: "reading",
            path: self.directory().path().join(self.to_string()),
            source,
        })
        .inspect_err(|error| self.note_error(error))?;
        future.append(&bytes, now_ms)
    }

    /// Puts the future replica in the log's place. Returns where the old log was and waits for its deletion; `None` when so much is missing that the
    /// mover is to go on first. Appends wait for the last piece and for two renames.
    ///
    /// # Errors
    /// Those of both logs, which their directories have heard of. The log keeps its place then.
    pub fn promote(&self, future: &FutureReplica, now_ms: i64) -> Result<Option<(Arc<Directory>, PathBuf)>, LogError> {
        let mut missing = 0..LAST_PIECES;
        while self.copy_piece(future, now_ms)? > 0 {
            if missing.next().is_none() {
                return Ok(None);
            }
        }
        future.flush()?;
        let mut log = self.log.lock();
        self.check_online()?;
        while let Some(slice) = future.find(&log)? {
            self.copy_slice(future, &slice, now_ms)?;
        }
        let mut copy = future.log();
        copy.take_place_of(&mut log, fastrand::u128(..))?;
        std::mem::swap(&mut *log, &mut *copy);
        let left = self.directory.swap(Arc::clone(&future.directory));
        self.take_future();
        Ok(Some((left, copy.dir().to_owned())))
    }
}
