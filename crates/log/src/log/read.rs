//! Where a fetch reads: the range of a segment's file, found without touching any payload.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use milena_io::File;

use super::recent::{End, Recent, Start};
use super::{Log, LogView, Segment, segment_at};
use crate::error::{LogError, Result};
use crate::names::Home;

/// A range of one segment's file that begins with a batch; the last batch in it may be cut.
#[derive(Debug, Clone)]
pub struct Slice {
    /// The segment's file. It stays readable after the segment is deleted.
    pub file: Arc<dyn File>,
    /// Where the first batch begins, bytes.
    pub position: u64,
    /// How many bytes; never 0.
    pub len: usize,
    /// Base offset of the segment.
    pub segment: i64,
    /// The bytes may not be in the page cache.
    pub cold: bool,
    /// Records before the first batch that should be there and are not.
    pub missing: Option<Box<Missing>>,
}

/// Records that should be in a log and are not: a file was lost, cut, or overwritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The file that they should be in or behind.
    pub path: PathBuf,
    /// Its length, bytes.
    pub size: u64,
    /// The first offset that is known to be missing.
    pub from: i64,
    /// The first offset that is there again.
    pub to: i64,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, size, from, to } = self;
        write!(f, "the records from offset {from} to {to} (exclusive) are missing: {} has {size} bytes", path.display())
    }
}

impl Log {
    /// Where to read from `offset` on: from the start of the batch that holds it, up to `end_offset` (exclusive: the high watermark, the last
    /// stable offset, or the log end) and up to `max_bytes`, never over the end of a segment.
    ///
    /// With `at_least_one_batch` the first batch is whole even if it is longer than `max_bytes`. `None` when there is nothing to send: at or
    /// beyond `end_offset`, or because the first batch does not fit.
    ///
    /// # Errors
    /// [`LogError::OffsetOutOfRange`](crate::LogError::OffsetOutOfRange) outside of log start and log end (inclusive); a damaged file.
    pub fn read(
        &self,
        offset: i64,
        max_bytes: usize,
        end_offset: i64,
        at_least_one_batch: bool,
    ) -> Result<Option<Slice>> {
        if offset < self.log_start_offset || offset > self.log_end_offset {
            return Err(self.out_of_range(offset));
        }
        let (home, segments, recent) = (&self.home, &self.segments[..], Some(&self.recent));
        let read = Read { home, segments, log_end: self.log_end_offset, recent, compact: self.config.compact };
        read.slice(offset, max_bytes, end_offset, at_least_one_batch)
    }

    /// First offset of what was appended lately: its bytes and index entries are in memory, unless that is short. `i64::MAX` when there is
    /// nothing.
    pub fn recent_from(&self) -> i64 {
        self.recent.from()
    }
}

impl LogView {
    /// As [`Log::read`]. It also finds nothing where its segments have nothing at or behind `offset`, of which it has only some.
    ///
    /// # Errors
    /// The same.
    pub fn read(
        &self,
        offset: i64,
        max_bytes: usize,
        end_offset: i64,
        at_least_one_batch: bool,
    ) -> Result<Option<Slice>> {
        if offset < self.log_start_offset {
            let (start, end) = (self.log_start_offset, self.end_offset);
            return Err(LogError::OffsetOutOfRange { offset, start, end });
        }
        let (home, segments, log_end) = (&self.home, &self.segments[..], self.end_offset);
        let read = Read { home, segments, log_end, recent: None, compact: self.config.compact };
        read.slice(offset, max_bytes, end_offset, at_least_one_batch)
    }
}

/// Segments that are read from.
struct Read<'l> {
    home: &'l Home,
    segments: &'l [Segment],
    /// Offset behind the last one that they can hold.
    log_end: i64,
    /// Of the whole log; `None` for some of its segments.
    recent: Option<&'l Recent>,
    /// `cleanup.policy` has `compact`: single records may be gone.
    compact: bool,
}

/// A batch that was looked for.
struct Place {
    /// Number of its segment.
    at: usize,
    start: Start,
    /// What should stand before it.
    missing: Option<Box<Missing>>,
}

impl Read<'_> {
    fn slice(&self, offset: i64, max_bytes: usize, end_offset: i64, at_least_one_batch: bool) -> Result<Option<Slice>> {
        let end_offset = end_offset.min(self.log_end);
        if offset >= end_offset {
            return Ok(None);
        }
        let Some(Place { at, start, missing }) = self.find(offset)? else { return self.nothing_from(offset) };
        let end = self.end_position(at, end_offset)?;
        let available = end.saturating_sub(start.position);
        let wanted = if start.size <= max_bytes as u64 {
            max_bytes as u64
        } else if at_least_one_batch {
            start.size
        } else {
            0
        };
        let len = available.min(wanted).min(i32::MAX as u64) as usize;
        if len == 0 {
            return Ok(None);
        }
        let file = Arc::clone(self.segments[at].file(self.home)?);
        let cold = self.recent.is_none();
        Ok(Some(Slice { file, position: start.position, len, segment: start.segment, cold, missing }))
    }

    /// The first batch whose last offset is at or after `offset`, which is below the log end.
    fn find(&self, offset: i64) -> Result<Option<Place>> {
        if let Some(start) = self.recent.and_then(|recent| recent.get(End::First, offset)) {
            return Ok(Some(Place { at: segment_at(self.segments, start.segment), start, missing: None }));
        }
        let first = segment_at(self.segments, offset);
        for at in first..self.segments.len() {
            if let Some((start, base_offset)) = self.locate(End::First, at, offset)? {
                let gap = base_offset > offset && !self.compact;
                let missing = gap.then(|| Box::new(self.missing(first, offset, base_offset)));
                return Ok(Some(Place { at, start, missing }));
            }
        }
        Ok(None)
    }

    fn missing(&self, at: usize, from: i64, to: i64) -> Missing {
        let segment = &self.segments[at];
        Missing { path: segment.path(self.home), size: segment.size, from, to }
    }

    /// There is no batch at or behind an offset below the log end.
    fn nothing_from(&self, offset: i64) -> Result<Option<Slice>> {
        if self.recent.is_none() {
            return Ok(None);
        }
        let missing = self.missing(self.segments.len() - 1, offset, self.log_end);
        let reason = missing.to_string();
        Err(LogError::Corrupt { path: missing.path, position: missing.size, reason })
    }

    /// The first batch of a segment whose last offset is at or after `offset`, and its base offset.
    fn locate(&self, end: End, at: usize, offset: i64) -> Result<Option<(Start, i64)>> {
        let segment = &self.segments[at];
        let Some(header) = segment.locate(self.home, offset)? else { return Ok(None) };
        let start = Start { offset, segment: segment.base_offset, position: header.position, size: header.size };
        if let Some(recent) = self.recent {
            recent.found(end, start);
        }
        Ok(Some((start, header.base_offset)))
    }

    /// Where reading segment number `at` must stop so that nothing at or after `end_offset` is read.
    fn end_position(&self, at: usize, end_offset: i64) -> Result<u64> {
        let segment = &self.segments[at];
        if end_offset >= self.segments.get(at + 1).map_or(self.log_end, |next| next.base_offset) {
            return Ok(segment.size);
        }
        let known = self.recent.and_then(|recent| recent.get(End::Last, end_offset));
        if let Some(start) = known.filter(|start| start.segment == segment.base_offset) {
            return Ok(start.position);
        }
        Ok(self.locate(End::Last, at, end_offset)?.map_or(segment.size, |(start, _)| start.position))
    }
}
