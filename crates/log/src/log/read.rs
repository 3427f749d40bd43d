//! Where a fetch reads: the range of a segment's file, found without touching any payload.

use std::sync::Arc;

use milena_io::File;

use super::recent::{End, Start};
use super::{Log, Segment};
use crate::error::Result;

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
        let end_offset = end_offset.min(self.log_end_offset);
        if offset >= end_offset {
            return Ok(None);
        }
        let Some((at, start)) = self.find(End::First, offset)? else { return Ok(None) };
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
        let file = Arc::clone(self.segments[at].file(&self.home)?);
        Ok(Some(Slice { file, position: start.position, len, segment: start.segment }))
    }

    /// Place of the segment and start of the first batch whose last offset is at or after `offset`, which is below the log end.
    fn find(&self, end: End, offset: i64) -> Result<Option<(usize, Start)>> {
        if let Some(start) = self.recent.get(end, offset) {
            return Ok(Some((self.segment_at(start.segment), start)));
        }
        for at in self.segment_at(offset)..self.segments.len() {
            if let Some(start) = self.locate(&self.segments[at], offset)? {
                self.recent.found(end, start);
                return Ok(Some((at, start)));
            }
        }
        Ok(None)
    }

    fn locate(&self, segment: &Segment, offset: i64) -> Result<Option<Start>> {
        let found = segment.locate(&self.home, offset)?;
        Ok(found.map(|header| Start {
            offset,
            segment: segment.base_offset,
            position: header.position,
            size: header.size,
        }))
    }

    /// Where reading segment number `at` must stop so that nothing at or after `end_offset` is read.
    fn end_position(&self, at: usize, end_offset: i64) -> Result<u64> {
        let segment = &self.segments[at];
        if end_offset >= self.segment_end(at) {
            return Ok(segment.size);
        }
        if let Some(start) = self.recent.get(End::Last, end_offset).filter(|start| start.segment == segment.base_offset)
        {
            return Ok(start.position);
        }
        match self.locate(segment, end_offset)? {
            Some(start) => {
                self.recent.found(End::Last, start);
                Ok(start.position)
            }
            None => Ok(segment.size),
        }
    }
}
