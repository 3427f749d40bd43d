//! An aborted transaction as a transaction index keeps it.

use crate::scan::field;

const VERSION: i16 = 0;

/// An aborted transaction, ordered by its first offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AbortedTransaction {
    /// Offset of its first record in the partition.
    pub(crate) first_offset: i64,
    /// Offset of its marker.
    pub(crate) last_offset: i64,
    /// Whose it was.
    pub(crate) producer_id: i64,
    /// Last stable offset when the marker was written.
    pub(crate) last_stable_offset: i64,
}

impl AbortedTransaction {
    /// Bytes of an entry.
    pub(crate) const SIZE: usize = 34;

    /// The entry of a `.txnindex` file.
    pub(crate) fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..2].copy_from_slice(&VERSION.to_be_bytes());
        let fields = [self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset];
        for (at, field) in fields.into_iter().enumerate() {
            bytes[2 + 8 * at..10 + 8 * at].copy_from_slice(&field.to_be_bytes());
        }
        bytes
    }

    /// Reads an entry.
    pub(crate) fn decode(bytes: &[u8; Self::SIZE]) -> Self {
        let number = |at: usize| i64::from_be_bytes(field(bytes, 2 + 8 * at));
        Self { producer_id: number(0), first_offset: number(1), last_offset: number(2), last_stable_offset: number(3) }
    }
}
