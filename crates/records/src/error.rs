//! The typed errors of this crate: what can be wrong with a batch's header, its compressed body and its records.
//! Which wire error code each one becomes is the broker's decision.

/// A batch that cannot be split off, or whose header does not hold together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Fewer bytes than the batch needs: the tail of a fetch, a torn write, or a length field that is too big.
    #[error("batch is cut: it needs {needed} bytes and {available} are there")]
    Truncated {
        /// Bytes needed to go on: the 12 or 17 bytes of a header's start, or the whole batch.
        needed: usize,
        /// Bytes that are there.
        available: usize,
    },
    /// The length field is below the least that any record format needs.
    #[error("batch length field {length} is below the least possible, {}", crate::split::MIN_LENGTH_FIELD)]
    LengthTooSmall {
        /// The length field as read.
        length: i32,
    },
    /// Longer than one batch may be where it was read from.
    #[error("bytes of one batch expected: its length field says {expected}, {available} are there")]
    TrailingBytes {
        /// Size of the batch by its length field, bytes.
        expected: usize,
        /// Bytes that are there.
        available: usize,
    },
    /// A magic that no Kafka has written: negative or above 2.
    #[error("unknown magic {0}")]
    UnknownMagic(i8),
    /// Magic 0 or 1, the message formats before record batches.
    #[error("message format of magic {0} is no longer supported")]
    LegacyMagic(i8),
    /// Magic 2, but shorter than the batch header.
    #[error("batch of {size} bytes is smaller than its header of {} bytes", crate::BATCH_OVERHEAD)]
    BelowOverhead {
        /// Size of the batch, bytes.
        size: usize,
    },
    /// The checksum does not fit the bytes.
    #[error("CRC is {stored:#010x} in the header, {computed:#010x} over the bytes")]
    Crc {
        /// The header's field.
        stored: u32,
        /// CRC-32C over byte 21 to the end.
        computed: u32,
    },
}
