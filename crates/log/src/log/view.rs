//! Looking into the log without holding it: what reads from the disk may take long, and the log goes on meanwhile.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::{Log, Segment, Slice, segment_at, transactions};
use crate::aborted::AbortedTxn;
use crate::config::LogConfig;
use crate::error::Result;
use crate::index::Index;
use crate::names::Home;

/// How often segments may come or go under a look into a log without its lock.
const MOST_LOOKS: usize = 4;
/// Segments that a view for reading has. Only where compaction has emptied so many in a row does a read need more.
const MOST_SEGMENTS: usize = 8;

/// Some of a log's segments as they were when it was taken: it needs neither the log nor its lock. When it was used,
/// [`Log::is_intact`] says whether what it told is true.
#[derive(Debug)]
pub struct LogView {
    pub(super) home: Home,
    pub(super) segments: Vec<Segment>,
    pub(super) log_start_offset: i64,
    /// Offset behind the last one that these segments can hold.
    pub(super) end_offset: i64,
    pub(super) config: Arc<LogConfig>,
    /// The aborted transactions whose markers are behind these segments; only where they were asked for.
    aborted_behind: Vec<Index<AbortedTxn>>,
    generation: u64,
    /// Count of [`Marks::names`](super::Marks::names): whatever makes, replaces or removes a segment's files adds to it.
    names: u64,
}

impl Log {
    /// A view for finding `timestamp` or later; `None` for any timestamp. Takes no look at a file.
    pub fn view_since(&self, timestamp: Option<i64>) -> LogView {
        let least = timestamp.unwrap_or(i64::MIN);
        let may_have = |segment: &&Segment| {
            segment.size > 0 && segment.known_newest().is_none_or(|newest| newest.timestamp >= least)
        };
        self.view(self.segments.iter().filter(may_have).cloned().collect(), self.log_end_offset)
    }

    /// A view for reading from `offset` on. Takes no look at a file.
    pub fn view_from(&self, offset: i64) -> LogView {
        let from = self.segment_at(offset);
        let to = self.segments.len().min(from + MOST_SEGMENTS);
        self.view(self.segments[from..to].to_vec(), self.segment_end(to - 1))
    }

    /// A view of all segments. Takes no look at a file.
    pub fn view_of_all(&self) -> LogView {
        self.view(self.segments.clone(), self.log_end_offset)
    }

    /// A view of the segments that begin below `end`, without the last one. Takes no look at a file.
    pub(crate) fn view_below(&self, end: i64) -> LogView {
        let finished = self.finished_segments();
        let count = finished.partition_point(|segment| segment.base_offset < end);
        self.view(finished[..count].to_vec(), self.segments[count].base_offset)
    }

    /// A view of the aborted transactions whose markers stand in the segment of `offset` or behind. Takes no look at a file.
    pub(crate) fn view_of_aborted_from(&self, offset: i64) -> LogView {
        let mut view = self.view(Vec::new(), self.log_end_offset);
        let segments = &self.segments[self.segment_at(offset)..];
        view.aborted_behind = segments.iter().filter_map(Segment::aborted).cloned().collect();
        view
    }

    /// As [`view_from`](Self::view_from), for readers of committed records: it also knows of
    /// [aborted transactions](LogView::aborted_transactions).
    pub fn view_of_committed_from(&self, offset: i64) -> LogView {
        let mut view = self.view_from(offset);
        let behind = &self.segments[self.segment_at(offset) + view.segments.len()..];
        view.aborted_behind = behind.iter().filter_map(Segment::aborted).cloned().collect();
        view
    }

    fn view(&self, segments: Vec<Segment>, end_offset: i64) -> LogView {
        LogView {
            home: self.home.clone(),
            segments,
            log_start_offset: self.log_start_offset,
            end_offset,
            config: Arc::clone(&self.config),
            aborted_behind: Vec::new(),
            generation: self.generation,
            names: self.marks.names,
        }
    }

    /// Keeps what a view has learned of the segments. False when segments have come or gone meanwhile: what the view found, or its error, may be of
    /// use no more.
    pub fn is_intact(&self, view: &LogView) -> bool {
        let same = view.generation == self.generation && view.names == self.marks.names;
        if !same || view.home.dir != self.home.dir {
            return false;
        }
        for old in &view.segments {
            let at = self.segments.binary_search_by_key(&old.base_offset, |segment| segment.base_offset);
            let now = &self.segments[at.expect("segments do not go without a change of names")];
            if now.size == old.size {
                now.learn(old);
            }
        }
        true
    }
}

/// Looks into a view of a log without holding the log, for as long as the disk takes; while holding it only where segments come or go under
/// the look again and again. The log comes back as it was looked at.
pub fn look<T>(
    log: &Mutex<Log>,
    view: impl Fn(&Log) -> LogView,
    mut look: impl FnMut(&LogView) -> T,
) -> (T, MutexGuard<'_, Log>) {
    for _ in 0..MOST_LOOKS {
        let view = view(&log.lock());
        let found = look(&view);
        let log = log.lock();
        if log.is_intact(&view) {
            return (found, log);
        }
    }
    let log = log.lock();
    let found = look(&view(&log));
    (found, log)
}

impl LogView {
    /// As [`Log::aborted_transactions`], for a slice that this view has found.
    ///
    /// # Errors
    /// The same.
    pub fn aborted_transactions(&self, offset: i64, slice: &Slice, end_offset: i64) -> Result<Vec<AbortedTxn>> {
        let at = segment_at(&self.segments, slice.segment);
        let aborted = self.segments[at..].iter().filter_map(Segment::aborted).chain(&self.aborted_behind);
        transactions::concerning(
            &self.home,
            &self.segments[at],
            self.segment_end(at),
            aborted,
            (offset, slice, end_offset),
        )
    }

    /// The aborted transactions with records in a range of offsets, and perhaps others, of a [view of them](Log::view_of_aborted_from).
    pub(crate) fn aborted_between(&self, start: i64, end: i64) -> Result<Vec<AbortedTxn>> {
        let mut found = Vec::new();
        for aborted in &self.aborted_behind {
            if !aborted.collect(&self.home, start, end, &mut found)? {
                break;
            }
        }
        Ok(found)
    }

    /// Offset after the last one that segment number `at` can hold.
    pub(super) fn segment_end(&self, at: usize) -> i64 {
        self.segments.get(at + 1).map_or(self.end_offset, |next| next.base_offset)
    }
}
