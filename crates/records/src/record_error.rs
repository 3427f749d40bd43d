//! What can be wrong with the records of a batch. Which wire error code each one becomes is the broker's decision.

use crate::CompressionError;

/// Records that cannot be read. `index` counts the batch's records from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The body cannot be decompressed.
    #[error(transparent)]
    Compression(#[from] CompressionError),
    /// Codec ids 5 to 7.
    #[error("unknown compression codec {0}")]
    UnknownCodec(i16),
    /// The header's record count is negative.
    #[error("record count {0} is negative")]
    NegativeCount(i32),
    /// The bytes end before the header's count is reached.
    #[error("record {index} of {count} is missing")]
    Missing {
        /// The first record that is not there.
        index: i32,
        /// The header's count.
        count: i32,
    },
    /// Bytes follow the last record.
    #[error("bytes are left over behind the last of {count} records")]
    LeftOver {
        /// The header's count.
        count: i32,
    },
    /// One record does not hold together.
    #[error("record {index}: {fault}")]
    Malformed {
        /// The record.
        index: i32,
        /// What is wrong with it.
        fault: RecordFault,
    },
}

/// What is wrong with one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// The record's length is negative.
    #[error("length {0} is negative")]
    NegativeLength(i32),
    /// The record's length goes beyond the body.
    #[error("length {length} is beyond the {available} bytes that are there")]
    LengthBeyondBytes {
        /// The length as read.
        length: i32,
        /// Bytes behind it.
        available: usize,
    },
    /// A record of a compressed batch is longer than the topic allows.
    #[error("length {length} is above the {limit} bytes that a decompressed record may have")]
    TooLarge {
        /// The length as read.
        length: i32,
        /// [`Decompressor::max_record_size`](crate::Decompressor::max_record_size).
        limit: i32,
    },
    /// A field goes beyond the bytes.
    #[error("a field goes beyond the bytes")]
    Truncated,
    /// A varint goes on after its last possible byte.
    #[error("a varint goes on after its last possible byte")]
    VarintTooLong,
    /// The number of headers is negative.
    #[error("header count {0} is negative")]
    NegativeHeaderCount(i32),
    /// A header without key.
    #[error("a header key is null")]
    NullHeaderKey,
    /// The record's length is not that of its fields.
    #[error("length {length} is not that of the fields")]
    LengthMismatch {
        /// The length as read.
        length: i32,
    },
}

impl RecordFault {
    pub(crate) fn at(self, index: i32) -> RecordError {
        RecordError::Malformed { index, fault: self }
    }
}

impl From<crate::varint::VarintError> for RecordFault {
    fn from(error: crate::varint::VarintError) -> Self {
        match error {
            crate::varint::VarintError::Truncated => RecordFault::Truncated,
            crate::varint::VarintError::TooLong => RecordFault::VarintTooLong,
        }
    }
}
