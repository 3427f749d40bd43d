//! Finding records by their timestamps: the time index leads to a place, the headers behind it to a batch, and only that batch is
//! looked into. A search may take long: it reads, and decompresses.

use milena_io::FileExt;
use milena_records::{Batch, Decompressor, Record};

use super::{Log, LogView, Segment};
use crate::error::{IoContext, LogError, Result};
use crate::scan::Header;

/// A record found by its timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampOffset {
    /// The record's timestamp, ms since 1970.
    pub timestamp: i64,
    /// The record's offset.
    pub offset: i64,
    /// Leader epoch of its batch; -1 when unknown.
    pub leader_epoch: i32,
}

impl Log {
    /// As [`LogView::offset_for_timestamp`], at once.
    ///
    /// # Errors
    /// The same.
    pub fn offset_for_timestamp(
        &self,
        timestamp: i64,
        decompressor: &mut Decompressor,
    ) -> Result<Option<TimestampOffset>> {
        self.view_since(Some(timestamp)).offset_for_timestamp(timestamp, decompressor)
    }

    /// As [`LogView::max_timestamp_offset`], at once.
    ///
    /// # Errors
    /// The same.
    pub fn max_timestamp_offset(&self, decompressor: &mut Decompressor) -> Result<Option<TimestampOffset>> {
        self.view_since(None).max_timestamp_offset(decompressor)
    }
}

impl LogView {
    /// The first record at or after log start whose timestamp is `timestamp` (ms since 1970) or later. Looks at all records up to the log end.
    ///
    /// # Errors
    /// [`LogError::Io`](crate::LogError::Io); [`LogError::Corrupt`](crate::LogError::Corrupt) when the batch can't be read,
    /// [`LogError::BadRecord`](crate::LogError::BadRecord) when a record in it can't.
    pub fn offset_for_timestamp(
        &self,
        timestamp: i64,
        decompressor: &mut Decompressor,
    ) -> Result<Option<TimestampOffset>> {
        for segment in &self.segments {
            if segment.size == 0 || segment.newest(&self.home)?.timestamp < timestamp {
                continue;
            }
            if let Some(found) = self.first_in(segment, timestamp, decompressor)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn first_in(
        &self,
        segment: &Segment,
        timestamp: i64,
        decompressor: &mut Decompressor,
    ) -> Result<Option<TimestampOffset>> {
        let home = &self.home;
        let entry = segment.indexes(home)?.times.last_where(home, |entry| entry.timestamp <= timestamp)?;
        let from = entry.map_or(segment.base_offset, |entry| entry.offset).max(self.log_start_offset);
        let Some(first) = segment.locate(home, from)? else { return Ok(None) };
        let mut scan = segment.scan(home, first.position)?;
        while let Some(header) = segment.next_header(home, &mut scan)? {
            if header.max_timestamp < timestamp {
                continue;
            }
            let wanted = |record: &Record<'_>, batch: &Batch<'_>| {
                record.timestamp(batch) >= timestamp && record.offset(batch) >= self.log_start_offset
            };
            if let Some(found) = self.record_in(segment, &header, decompressor, wanted)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The record with the largest timestamp of all up to the log end, the first of them. Where no record has a timestamp it is the first
    /// one, if its own is the -1 that says so. Records below the log start count, as in Kafka.
    ///
    /// # Errors
    /// As [`offset_for_timestamp`](Self::offset_for_timestamp).
    pub fn max_timestamp_offset(&self, decompressor: &mut Decompressor) -> Result<Option<TimestampOffset>> {
        let mut largest: Option<(&Segment, crate::index::TimeEntry)> = None;
        for segment in self.segments.iter().filter(|segment| segment.size > 0) {
            let newest = segment.newest(&self.home)?;
            if largest.is_none_or(|(_, largest)| newest.timestamp > largest.timestamp) {
                largest = Some((segment, newest));
            }
        }
        let Some((segment, newest)) = largest else { return Ok(None) };
        let Some(header) = segment.locate(&self.home, newest.offset)? else { return Ok(None) };
        let wanted = |record: &Record<'_>, batch: &Batch<'_>| record.timestamp(batch) == batch.max_timestamp();
        self.record_in(segment, &header, decompressor, wanted)
    }

    /// The first record of a batch that is wanted.
    fn record_in(
        &self,
        segment: &Segment,
        header: &Header,
        decompressor: &mut Decompressor,
        wanted: impl Fn(&Record<'_>, &Batch<'_>) -> bool,
    ) -> Result<Option<TimestampOffset>> {
        let path = segment.path(&self.home);
        let bad = |reason| LogError::BadRecord { path: path.clone(), position: header.position, reason };
        let mut bytes = vec![0; header.size as usize];
        segment.file(&self.home)?.read_exact_at(&mut bytes, header.position).context("reading", &path)?;
        let batch = Batch::parse(&bytes)?;
        for record in batch.records(decompressor).map_err(bad)? {
            let record = record.map_err(bad)?;
            if wanted(&record, &batch) {
                let (timestamp, offset) = (record.timestamp(&batch), record.offset(&batch));
                return Ok(Some(TimestampOffset { timestamp, offset, leader_epoch: header.leader_epoch }));
            }
        }
        Ok(None)
    }
}
