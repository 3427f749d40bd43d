//! The `records` field type: raw record batches inside a message. What a batch looks like is not known here.

use std::ops::Range;

/// Record batches as they travel, back to back, never decoded here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Records<'a> {
    /// The batches themselves. Decoding always gives this form.
    Bytes(&'a [u8]),
    /// So many bytes that the encoder leaves out: only their length is written, and the place is noted in
    /// [`Writer::gaps`](crate::Writer::gaps) for the caller to send the bytes from a file.
    Gap(usize),
}

impl<'a> Records<'a> {
    /// Length in bytes, of a gap too.
    pub fn len(&self) -> usize {
        match self {
            Records::Bytes(bytes) => bytes.len(),
            Records::Gap(len) => *len,
        }
    }

    /// Whether there is not a single byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes in memory; empty for a gap.
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Records::Bytes(bytes) => bytes,
            Records::Gap(_) => &[],
        }
    }

    /// Where the bytes lie within `frame`, if they were decoded from it.
    ///
    /// For handlers that decode a request, and then change its batches in the buffer it came in.
    pub fn range_in(&self, frame: &[u8]) -> Option<Range<usize>> {
        let Records::Bytes(bytes) = self else { return None };
        let start = (bytes.as_ptr() as usize).checked_sub(frame.as_ptr() as usize)?;
        let end = start.checked_add(bytes.len())?;
        (end <= frame.len()).then_some(start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::Records;

    #[test]
    fn the_range_of_decoded_records_is_their_place_in_the_frame() {
        let frame = [0u8; 10];
        let other = [0u8; 10];
        assert_eq!(Records::Bytes(&frame[3..7]).range_in(&frame), Some(3..7));
        assert_eq!(Records::Bytes(&frame[10..]).range_in(&frame), Some(10..10));
        assert_eq!(Records::Bytes(&frame[3..7]).range_in(&frame[5..]), None);
        assert_eq!(Records::Bytes(&other[..]).range_in(&frame[2..4]), None);
        assert_eq!(Records::Gap(4).range_in(&frame), None);
    }
}
