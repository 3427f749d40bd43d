//! Where the records are that somebody asks for. What takes a look at the disk is done in a view of the log, without its
//! lock; a view has not all segments, so where it finds nothing the log is asked.

use std::sync::atomic::Ordering;

use milena_log::{AbortedTxn, Log, LogError, LogView, Slice};
use parking_lot::MutexGuard;

use super::Partition;

/// What a consumer wants to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Every record.
    Uncommitted,
    /// The records before the first open transaction.
    Committed,
}

/// Where the records are that were asked for.
pub struct FetchedSlice {
    /// In which file, and where in it.
    pub slice: Slice,
    /// The aborted transactions among them, for [`Isolation::Committed`].
    pub aborted: Vec<AbortedTxn>,
}

/// Which records somebody asks for.
struct Wanted {
    offset: i64,
    max_bytes: usize,
    /// Nothing at or behind it.
    end: i64,
    at_least_one: bool,
    isolation: Isolation,
}

impl Wanted {
    /// Looks for them in a log or in a view of one.
    fn find_in<L>(
        &self,
        log: &L,
        read: impl FnOnce(&L, i64, usize, i64, bool) -> Result<Option<Slice>, LogError>,
        aborted: impl FnOnce(&L, i64, &Slice, i64) -> Result<Vec<AbortedTxn>, LogError>,
    ) -> Result<Option<FetchedSlice>, LogError> {
        let Some(slice) = read(log, self.offset, self.max_bytes, self.end, self.at_least_one)? else { return Ok(None) };
        let aborted = match self.isolation {
            Isolation::Uncommitted => Vec::new(),
            Isolation::Committed => aborted(log, self.offset, &slice, self.end)?,
        };
        Ok(Some(FetchedSlice { slice, aborted }))
    }
}

impl Partition {
    /// Where records from `offset` on are, as far as a reader with `isolation` may see them; `None` when there are none.
    /// Unless they are [recent](Self::is_recent) this takes as long as the disk does, without the log's lock.
    ///
    /// # Errors
    /// [`LogError::OffsetOutOfRange`] outside of log start and high watermark.
    pub fn read(
        &self,
        offset: i64,
        max_bytes: usize,
        at_least_one: bool,
        isolation: Isolation,
    ) -> Result<Option<FetchedSlice>, LogError> {
        self.check_online()?;
        let end = self.readable_to(isolation);
        let wanted = Wanted { offset, max_bytes, end, at_least_one, isolation };
        let mut found = self.find(&wanted).inspect_err(|error| self.note_error(error))?;
        if let Some(FetchedSlice { slice, .. }) = &mut found {
            // Where compaction has been, perhaps under a policy that the topic has no more, it has taken them.
            slice.missing.take_if(|missing| self.cleaned_to().is_some_and(|cleaned_to| missing.from < cleaned_to));
            if let Some(missing) = &slice.missing {
                tracing::warn!(partition = %self, "{missing}");
            }
        }
        Ok(found)
    }

    fn find(&self, wanted: &Wanted) -> Result<Option<FetchedSlice>, LogError> {
        if !self.is_recent(wanted.offset) {
            let view = |log: &Log| match wanted.isolation {
                Isolation::Uncommitted => log.view_from(wanted.offset),
                Isolation::Committed => log.view_of_committed_from(wanted.offset),
            };
            let (found, log) =
                self.look(view, |view| wanted.find_in(view, LogView::read, LogView::aborted_transactions));
            return match found? {
                Some(found) => Ok(Some(found)),
                None => wanted.find_in(&*log, Log::read, Log::aborted_transactions),
            };
        }
        wanted.find_in(&*self.log.lock(), Log::read, Log::aborted_transactions)
    }

    /// Where records from `offset` on are that are in the log, up to `end` (exclusive), committed or not; `None` when there
    /// are none. Takes as long as the disk does, without the log's lock.
    ///
    /// # Errors
    /// [`LogError::OffsetOutOfRange`] outside of the log; a damaged file.
    pub fn read_written(&self, offset: i64, max_bytes: usize, end: i64) -> Result<Option<Slice>, LogError> {
        let (found, log) = self.look(|log| log.view_from(offset), |view| view.read(offset, max_bytes, end, true));
        match found? {
            Some(slice) => Ok(Some(slice)),
            None => log.read(offset, max_bytes, end, true),
        }
    }

    /// Offset after the last record that a reader may see.
    pub fn readable_to(&self, isolation: Isolation) -> i64 {
        match isolation {
            Isolation::Uncommitted => self.high_watermark(),
            Isolation::Committed => self.last_stable_offset(),
        }
    }

    /// Whether `offset` is between the log start and the log end, that one included.
    pub fn reaches(&self, offset: i64) -> bool {
        let (start, shown) = (self.log_start_offset(), self.high_watermark());
        // The log is asked only for what no consumer sees yet.
        (start..=shown).contains(&offset) || (offset > shown && offset <= self.log().log_end_offset())
    }

    /// Whether nothing but memory is looked into for what is read from `offset` on.
    pub fn is_recent(&self, offset: i64) -> bool {
        let old = self.log_start_offset()..self.recent_from.load(Ordering::Relaxed).min(self.high_watermark());
        !old.contains(&offset)
    }

    /// Looks into the log without its lock where that is possible, for as long as the disk takes: see [`milena_log::look`].
    pub fn look<T>(&self, view: impl Fn(&Log) -> LogView, look: impl FnMut(&LogView) -> T) -> (T, MutexGuard<'_, Log>) {
        milena_log::look(&self.log, view, look)
    }
}
