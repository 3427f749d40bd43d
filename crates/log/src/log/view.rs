//! Looking into the log without holding it: what reads from the disk may take long, and the log goes on meanwhile.

use super::{Log, Segment};
use crate::names::Home;

/// Segments that a view for reading has. Only where compaction has emptied so many in a row does a read need more.
const MOST_SEGMENTS: usize = 8;

/// Some of a log's segments as they were when it was taken: it needs neither the log nor its lock. When it was used,
/// [`Log::is_intact`] says whether what it told is true.
#[derive(Debug)]
pub struct View {
    pub(super) home: Home,
    pub(super) segments: Vec<Segment>,
    pub(super) log_start_offset: i64,
    /// Offset behind the last one that these segments can hold.
    pub(super) end_offset: i64,
    /// `cleanup.policy` has `compact`.
    pub(super) compact: bool,
    generation: u64,
    /// Count of [`Marks::names`](super::Marks::names): whatever makes, replaces or removes a segment's files adds to it.
    names: u64,
}

impl Log {
    /// A view for finding `timestamp` or later; `None` for any timestamp. Takes no look at a file.
    pub fn view_since(&self, timestamp: Option<i64>) -> View {
        let least = timestamp.unwrap_or(i64::MIN);
        let may_have = |segment: &&Segment| {
            segment.size > 0 && segment.known_newest().is_none_or(|newest| newest.timestamp >= least)
        };
        self.view(self.segments.iter().filter(may_have).cloned().collect(), self.log_end_offset)
    }

    /// A view for reading from `offset` on. Takes no look at a file.
    pub fn view_from(&self, offset: i64) -> View {
        let from = self.segment_at(offset);
        let to = self.segments.len().min(from + MOST_SEGMENTS);
        self.view(self.segments[from..to].to_vec(), self.segment_end(to - 1))
    }

    fn view(&self, segments: Vec<Segment>, end_offset: i64) -> View {
        View {
            home: self.home.clone(),
            segments,
            log_start_offset: self.log_start_offset,
            end_offset,
            compact: self.config.compact,
            generation: self.generation,
            names: self.marks.names,
        }
    }

    /// Keeps what a view has learned of the segments. False when segments have come or gone meanwhile: what the view found, or its error, may be of
    /// use no more.
    pub fn is_intact(&self, view: &View) -> bool {
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
