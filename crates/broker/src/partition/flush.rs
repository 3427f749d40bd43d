//! When a partition is flushed, and what waits for it. `flush.messages` holds answers and consumers back until everything up to
//! the append that reached it is durable, as Kafka does by flushing before it goes on; nobody waits for the other flushes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};

use milena_log::{Log, LogError};
use milena_protocol::ErrorCode;

use super::Partition;

/// Nothing to do.
const IDLE: u8 = 0;
/// In the queue.
const QUEUED: u8 = 1;
/// A thread is at it.
const RUNNING: u8 = 2;
/// A thread is at it, and what was appended since wants another one.
const AGAIN: u8 = 3;

/// How the flushes of a partition stand.
#[derive(Default)]
pub(super) struct Flushes {
    turn: AtomicU8,
    /// The next flush takes the segment along that is written to.
    whole: AtomicBool,
    /// Records below it are acknowledged and shown once they are durable. Changes under the log's lock only.
    held_to: AtomicI64,
    /// A flush has failed: what waits for one waits in vain.
    failed: AtomicBool,
    /// Among those that the flusher looks at for `flush.ms`.
    watched: AtomicBool,
    /// When the last flush ended, or the log was opened, ms since 1970.
    last_ms: AtomicI64,
}

impl Flushes {
    /// Of a log that was opened now.
    pub(super) fn since(now_ms: i64) -> Self {
        Self { last_ms: AtomicI64::new(now_ms), ..Self::default() }
    }

    /// Whether the caller has to queue the partition.
    fn ask(&self) -> bool {
        let next = |turn| match turn {
            IDLE => Some(QUEUED),
            RUNNING => Some(AGAIN),
            _ => None,
        };
        self.turn.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) == Ok(IDLE)
    }

    /// Whether the caller has to queue the partition again.
    fn end(&self) -> bool {
        let next = |turn| Some(if turn == AGAIN { QUEUED } else { IDLE });
        self.turn.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) == Ok(AGAIN)
    }
}

/// What an append leaves to do, without the log's lock.
pub(super) struct AfterAppend {
    /// Consumers see more.
    pub(super) moved: bool,
    flush: bool,
    rolled: bool,
    watch: bool,
}

impl Partition {
    /// Moves the high watermark after an append, unless a flush must come before. Under the log's lock.
    pub(super) fn after_append(&self, log: &mut Log) -> AfterAppend {
        let (end, flushed_to) = (log.log_end_offset(), log.flushed_to());
        let mut held_to = self.flushes.held_to.load(Ordering::Relaxed);
        let due = end.saturating_sub(flushed_to.max(held_to)) >= log.config().flush_messages;
        if due {
            held_to = end;
            self.flushes.held_to.store(end, Ordering::Relaxed);
        }
        let moved = held_to <= flushed_to;
        if moved {
            self.show_to(log, end);
        }
        let watch = log.config().flush_ms < i64::MAX && !self.flushes.watched.load(Ordering::Relaxed);
        AfterAppend { moved, flush: due, rolled: log.wants_flush(), watch }
    }

    /// Asks for the flushes that an append has made due.
    pub(super) fn ask_after_append(self: &Arc<Self>, after: &AfterAppend) {
        if after.flush {
            self.flush_soon();
        } else if after.rolled {
            self.flush_finished_soon();
        }
        if after.watch {
            self.watch();
        }
    }

    /// Has the log flushed.
    fn flush_soon(self: &Arc<Self>) {
        self.flushes.whole.store(true, Ordering::Release);
        self.flush_finished_soon();
    }

    /// Has the segments flushed that are no longer written to, and the names of all. Whoever rolls the log by hand calls this.
    pub fn flush_finished_soon(self: &Arc<Self>) {
        if self.flushes.ask() {
            self.flusher.queue(Arc::clone(self));
        }
    }

    /// Has `flush.ms` looked after.
    pub(super) fn watch(self: &Arc<Self>) {
        if !self.flushes.watched.swap(true, Ordering::AcqRel) {
            self.flusher.watch(Arc::clone(self));
        }
    }

    /// Asks for a flush if `flush.ms` have passed since the last one. True when the partition needs no more looking after.
    pub(crate) fn flush_if_late(self: &Arc<Self>, now_ms: i64) -> bool {
        let flush_ms = self.settings().log.flush_ms;
        let late = now_ms.saturating_sub(self.flushes.last_ms.load(Ordering::Relaxed)) >= flush_ms;
        let done = late || flush_ms == i64::MAX || self.is_retired();
        if done {
            self.flushes.watched.store(false, Ordering::Release);
        }
        if late {
            self.flush_soon();
        }
        done
    }

    /// The flusher's turn: what was asked for so far becomes durable.
    pub(crate) fn flush_now(self: &Arc<Self>) {
        self.flushes.turn.store(RUNNING, Ordering::Release);
        let whole = self.flushes.whole.swap(false, Ordering::AcqRel);
        let flushed = self.flush(whole);
        if whole && !matches!(flushed, Ok(true)) {
            self.flushes.whole.store(true, Ordering::Release);
        }
        match flushed {
            Ok(true) => {}
            Ok(false) => self.flushes.turn.store(AGAIN, Ordering::Release),
            Err(error) if self.is_retired() => tracing::debug!(partition = %self, %error, "not flushed"),
            Err(error) => self.flush_failed(&error),
        }
        self.waiters.wake();
        self.committed();
        if self.flushes.end() {
            self.flusher.queue(Arc::clone(self));
        }
    }

    /// Makes everything appended so far durable, or only the segments that are no longer written to; false when the log was truncated meanwhile.
    ///
    /// # Errors
    /// When the disk fails.
    pub(crate) fn flush(&self, whole: bool) -> Result<bool, LogError> {
        let begin = if whole { Log::begin_flush } else { Log::begin_flush_of_finished };
        let begun = begin(&mut self.log.lock())?;
        if let Some(flush) = &begun {
            flush.sync()?;
        }
        let mut log = self.log.lock();
        if begun.is_some_and(|flush| !log.flushed(flush)) {
            return Ok(self.is_retired());
        }
        let (end, flushed_to) = (log.log_end_offset(), log.flushed_to());
        let held = self.flushes.held_to.load(Ordering::Relaxed) > flushed_to;
        let shown = if held { self.high_watermark().max(flushed_to) } else { end };
        self.show_to(&mut log, shown);
        if whole {
            self.flushes.last_ms.store(self.flusher.now_ms(), Ordering::Relaxed);
        }
        Ok(true)
    }

    /// What a failed sync has lost no later one brings back: nothing that waits is acknowledged, and nothing more is appended.
    fn flush_failed(&self, error: &LogError) {
        let log = self.log.lock();
        let waited_for = self.flushes.held_to.load(Ordering::Relaxed) > log.flushed_to();
        if !waited_for && !log.is_poisoned() {
            tracing::error!(partition = %self, %error, "a flush can't begin; the next append asks again");
            return;
        }
        log.poison();
        drop(log);
        self.flushes.failed.store(true, Ordering::Release);
        tracing::error!(partition = %self, %error, "a flush failed; the partition takes no more writes");
        self.note_error(error);
    }

    /// Whether records below `end`, which were appended here, may be acknowledged: `None` while a flush must come first.
    ///
    /// # Errors
    /// They never will be.
    pub fn acknowledges(&self, end: i64) -> Option<Result<(), ErrorCode>> {
        if self.high_watermark() >= end {
            Some(Ok(()))
        } else if self.flushes.failed.load(Ordering::Acquire) {
            Some(Err(ErrorCode::KAFKA_STORAGE_ERROR))
        } else if self.is_retired() {
            Some(Err(self.retired_error()))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests;
