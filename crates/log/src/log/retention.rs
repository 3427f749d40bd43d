//! Which of the oldest segments are due to go: those below the log start offset, then by size, then by age.

use super::{Log, LogView};
use crate::error::{IoContext, Result};

/// How many of the oldest segments are due, by reason; each reason looks at what the one before leaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Due {
    /// Wholly below the log start offset.
    pub below_start: usize,
    /// The others have `retention.bytes` without them.
    pub by_size: usize,
    /// Their largest timestamp is older than `retention.ms`.
    pub by_age: usize,
}

impl Due {
    /// All of them.
    pub fn count(&self) -> usize {
        self.below_start + self.by_size + self.by_age
    }
}

impl Log {
    /// As [`LogView::due_segments`], at once.
    ///
    /// # Errors
    /// The same.
    pub fn due_segments(&self, high_watermark: i64, now_ms: i64) -> Result<Due> {
        let view = self.view_of_all();
        let due = view.due_segments(high_watermark, now_ms);
        assert!(self.is_intact(&view), "nothing has changed the log");
        due
    }
}

impl LogView {
    /// Of a [view of all segments](Log::view_of_all): the oldest ones that are due, as Kafka's `UnifiedLog.deleteOldSegments` has it: none that reaches beyond the high watermark, and not
    /// the last one while it is empty. Without `delete` in `cleanup.policy` only the log start offset counts.
    ///
    /// A segment without timestamps, or whose index does not fit its batches, is as old as its file's last change. `now_ms` is the wall clock, ms since 1970.
    ///
    /// # Errors
    /// [`LogError::Io`](crate::LogError::Io) when an index or a file can't be looked at.
    pub fn due_segments(&self, high_watermark: i64, now_ms: i64) -> Result<Due> {
        let mut due = Due::default();
        let may_go = self.segments_below(high_watermark);
        let next_base = |at: usize| self.segments.get(at + 1).map(|next| next.base_offset);
        let starts_above = |at: usize| next_base(at).is_some_and(|next| next <= self.log_start_offset);
        due.below_start = (0..may_go).take_while(|at| starts_above(*at)).count();
        if !self.config.delete {
            return Ok(due);
        }
        let mut at = due.below_start;
        if let Ok(limit) = u64::try_from(self.config.retention_bytes) {
            let size: u64 = self.segments[at..].iter().map(|segment| segment.size).sum();
            let mut excess = size.checked_sub(limit);
            while at < may_go
                && let Some(left) = excess.and_then(|excess| excess.checked_sub(self.segments[at].size))
            {
                excess = Some(left);
                at += 1;
            }
            due.by_size = at - due.below_start;
        }
        while at < may_go && self.is_too_old(at, now_ms)? {
            at += 1;
            due.by_age += 1;
        }
        Ok(due)
    }

    /// How many of the oldest segments end at or below the high watermark; without the last one while it is empty.
    fn segments_below(&self, high_watermark: i64) -> usize {
        let is_empty = self.segments.last().is_some_and(|last| last.size == 0);
        let count = self.segments.len() - usize::from(is_empty);
        (0..count).take_while(|at| self.segment_end(*at) <= high_watermark).count()
    }

    fn is_too_old(&self, at: usize, now_ms: i64) -> Result<bool> {
        let (home, retention_ms) = (&self.home, self.config.retention_ms);
        let older = |timestamp: i64| now_ms.saturating_sub(timestamp) > retention_ms;
        if retention_ms < 0 {
            return Ok(false);
        }
        // Its open files and indexes go with the copy: what is looked at once an hour holds none.
        let segment = self.segments[at].clone();
        let newest = segment.newest(home)?;
        self.segments[at].learn_newest(newest);
        if newest.timestamp >= 0 && !older(newest.timestamp) {
            return Ok(false);
        }
        // Nothing is deleted at an index's word alone.
        let confirmed = newest.timestamp >= 0 && segment.holds(home, newest)?;
        let path = segment.path(home);
        let changed_ms = || home.disk.modified_ms(&path).context("looking at", &path);
        Ok(confirmed || older(changed_ms()?))
    }
}
