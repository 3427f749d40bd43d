//! Changing a batch's header in place. Base offset and leader epoch lie before the checksum's range and can be set freely; everything
//! else needs the checksum again.

use crate::batch::{Batch, TimestampType};
use crate::error::BatchError;
use crate::layout::{
    ATTRIBUTES_AT, BASE_SEQUENCE_AT, CRC_AT, KNOWN_BITS, LEADER_EPOCH_AT, LOG_APPEND_TIME_BIT, MAX_TIMESTAMP_AT,
    PRODUCER_EPOCH_AT, PRODUCER_ID_AT,
};
use crate::split;

/// One whole record batch of magic 2 whose header may be changed; the same promises as [`Batch`].
#[derive(Debug)]
pub struct BatchMut<'a>(&'a mut [u8]);

impl<'a> BatchMut<'a> {
    /// The view of exactly one batch.
    ///
    /// # Errors
    /// As [`Batch::parse`].
    pub fn parse(bytes: &'a mut [u8]) -> Result<BatchMut<'a>, BatchError> {
        Batch::parse(bytes)?;
        Ok(BatchMut(bytes))
    }

    /// The view of the first batch in `bytes`, and the bytes behind it.
    ///
    /// # Errors
    /// As the first item of [`batches`](crate::batches).
    pub fn split_first(bytes: &'a mut [u8]) -> Result<(BatchMut<'a>, &'a mut [u8]), BatchError> {
        let size = split::first_batch(bytes)?.size();
        let (first, rest) = bytes.split_at_mut(size);
        Ok((BatchMut(first), rest))
    }

    /// `bytes` are a whole batch: the builder has just written its header.
    pub(crate) fn of_checked(bytes: &'a mut [u8]) -> BatchMut<'a> {
        BatchMut(bytes)
    }

    /// The read-only view.
    pub fn as_batch(&self) -> Batch<'_> {
        Batch::of_checked(self.0)
    }

    /// Offset of the record with offset delta 0. The checksum does not cover it.
    pub fn set_base_offset(&mut self, offset: i64) {
        self.put(0, offset.to_be_bytes());
    }

    /// Epoch of the leader that appends the batch. The checksum does not cover it.
    pub fn set_partition_leader_epoch(&mut self, epoch: i32) {
        self.put(LEADER_EPOCH_AT, epoch.to_be_bytes());
    }

    /// Sets the timestamp type and the largest stamp (ms since 1970), and the checksum if one of them is new.
    ///
    /// With [`TimestampType::LogAppendTime`] the stamp is the append time and becomes every record's; base timestamp and deltas stay.
    /// Returns whether the checksum was computed again; attribute bits without a meaning are gone then, as in Kafka.
    pub fn set_max_timestamp(&mut self, timestamp_type: TimestampType, max_timestamp: i64) -> bool {
        let batch = self.as_batch();
        if batch.timestamp_type() == timestamp_type && batch.max_timestamp() == max_timestamp {
            return false;
        }
        let attributes = match timestamp_type {
            TimestampType::CreateTime => batch.attributes() & !LOG_APPEND_TIME_BIT,
            TimestampType::LogAppendTime => batch.attributes() | LOG_APPEND_TIME_BIT,
        };
        self.put(ATTRIBUTES_AT, (attributes & KNOWN_BITS).to_be_bytes());
        self.put(MAX_TIMESTAMP_AT, max_timestamp.to_be_bytes());
        self.update_crc();
        true
    }

    /// Sets id, epoch and base sequence of the producer; the checksum must be updated afterwards.
    pub fn set_producer(&mut self, id: i64, epoch: i16, base_sequence: i32) {
        self.put(PRODUCER_ID_AT, id.to_be_bytes());
        self.put(PRODUCER_EPOCH_AT, epoch.to_be_bytes());
        self.put(BASE_SEQUENCE_AT, base_sequence.to_be_bytes());
    }

    /// Computes the checksum over byte 21 to the end and stores it.
    pub fn update_crc(&mut self) {
        let crc = self.as_batch().computed_crc();
        self.put(CRC_AT, crc.to_be_bytes());
    }

    #[inline]
    fn put<const N: usize>(&mut self, at: usize, value: [u8; N]) {
        self.0[at..at + N].copy_from_slice(&value);
    }
}
