//! Splitting bytes into batches by their length fields alone. The only such scanner: produce, recovery, fetch and the metadata log
//! all use it.

use crate::batch::Batch;
use crate::error::BatchError;
use crate::layout::{BATCH_OVERHEAD, LENGTH_AT, LOG_OVERHEAD, MAGIC, MAGIC_AT};

/// Least value of a length field: the overhead of a message of magic 0, the smallest thing that any format stores.
pub const MIN_LENGTH_FIELD: i32 = 14;

/// The batches in `bytes`, split by length only.
///
/// The first error ends the iteration: what follows it has no known beginning. A tail that is no whole batch is
/// [`BatchError::Truncated`]; [`Batches::position`] says where it begins.
///
/// A piece is judged in this order: 12 bytes there, length field at least 14, 17 bytes there, magic known, whole batch there,
/// magic 2, at least a header.
pub fn batches(bytes: &[u8]) -> Batches<'_> {
    Batches { bytes, position: 0, failed: false }
}

/// Iterator of [`batches`].
#[derive(Debug, Clone)]
pub struct Batches<'a> {
    bytes: &'a [u8],
    position: usize,
    failed: bool,
}

impl Batches<'_> {
    /// Where the next batch, or the piece that was no batch, begins: bytes from the start.
    pub fn position(&self) -> usize {
        self.position
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<Batch<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.bytes[self.position..];
        if self.failed || rest.is_empty() {
            return None;
        }
        let first = first_batch(rest);
        match &first {
            Ok(batch) => self.position += batch.size(),
            Err(_) => self.failed = true,
        }
        Some(first)
    }
}

impl std::iter::FusedIterator for Batches<'_> {}

/// Size of the batch that begins with `bytes`, once its start (17 bytes) is there: its magic is known to be 0, 1 or 2.
///
/// For callers that read a header first and the rest later. The whole batch need not be in `bytes`.
///
/// # Errors
/// [`BatchError::Truncated`], [`BatchError::LengthTooSmall`], [`BatchError::UnknownMagic`].
pub fn batch_size(bytes: &[u8]) -> Result<usize, BatchError> {
    let Some(field) = bytes.get(LENGTH_AT..LOG_OVERHEAD) else {
        return Err(BatchError::Truncated { needed: LOG_OVERHEAD, available: bytes.len() });
    };
    let length = i32::from_be_bytes([field[0], field[1], field[2], field[3]]);
    if length < MIN_LENGTH_FIELD {
        return Err(BatchError::LengthTooSmall { length });
    }
    let Some(magic) = bytes.get(MAGIC_AT) else {
        return Err(BatchError::Truncated { needed: MAGIC_AT + 1, available: bytes.len() });
    };
    let magic = magic.cast_signed();
    if !(0..=MAGIC).contains(&magic) {
        return Err(BatchError::UnknownMagic(magic));
    }
    Ok(LOG_OVERHEAD + length.unsigned_abs() as usize)
}

/// The batch that `bytes` begin with.
pub(crate) fn first_batch(bytes: &[u8]) -> Result<Batch<'_>, BatchError> {
    let size = batch_size(bytes)?;
    let Some(whole) = bytes.get(..size) else {
        return Err(BatchError::Truncated { needed: size, available: bytes.len() });
    };
    let magic = whole[MAGIC_AT].cast_signed();
    if magic != MAGIC {
        return Err(BatchError::LegacyMagic(magic));
    }
    if size < BATCH_OVERHEAD {
        return Err(BatchError::BelowOverhead { size });
    }
    Ok(Batch::of_checked(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(length: i32, magic: i8, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        if size >= 12 {
            bytes[8..12].copy_from_slice(&length.to_be_bytes());
        }
        if size > 16 {
            bytes[16] = magic.cast_unsigned();
        }
        bytes
    }

    fn only(bytes: &[u8]) -> BatchError {
        let mut iter = batches(bytes);
        let error = iter.next().unwrap().unwrap_err();
        assert!(iter.next().is_none());
        error
    }

    #[test]
    fn whole_batches_are_split_and_the_cut_tail_is_told_with_its_place() {
        let mut bytes = piece(49, 2, 61);
        bytes.extend(piece(60, 2, 72));
        bytes.extend(piece(60, 2, 71));
        let mut iter = batches(&bytes);
        assert_eq!(iter.next().unwrap().unwrap().size(), 61);
        assert_eq!(iter.next().unwrap().unwrap().size(), 72);
        assert_eq!(iter.position(), 133);
        assert_eq!(iter.next(), Some(Err(BatchError::Truncated { needed: 72, available: 71 })));
        assert_eq!((iter.next(), iter.position()), (None, 133));
    }

    #[test]
    fn nothing_is_no_batch_and_no_error() {
        assert!(batches(&[]).next().is_none());
    }

    #[test]
    fn the_length_field_is_judged_before_magic_and_magic_before_the_missing_bytes() {
        assert_eq!(only(&piece(0, 0, 11)), BatchError::Truncated { needed: 12, available: 11 });
        assert_eq!(only(&piece(0, 0, 12)), BatchError::LengthTooSmall { length: 0 });
        assert_eq!(only(&piece(13, 3, 12)), BatchError::LengthTooSmall { length: 13 });
        assert_eq!(only(&piece(i32::MIN, 2, 80)), BatchError::LengthTooSmall { length: i32::MIN });
        assert_eq!(only(&piece(14, 2, 16)), BatchError::Truncated { needed: 17, available: 16 });
        assert_eq!(only(&piece(i32::MAX, 3, 17)), BatchError::UnknownMagic(3));
        assert_eq!(only(&piece(i32::MAX, -1, 17)), BatchError::UnknownMagic(-1));
        assert_eq!(only(&piece(i32::MAX, 2, 80)), BatchError::Truncated { needed: 2_147_483_659, available: 80 });
        assert_eq!(only(&piece(60, 1, 72)), BatchError::LegacyMagic(1));
        assert_eq!(only(&piece(14, 0, 26)), BatchError::LegacyMagic(0));
        assert_eq!(only(&piece(48, 2, 60)), BatchError::BelowOverhead { size: 60 });
    }
}
