//! Kafka's primitive types: appending to a byte vector, and checked reading from a slice.

use anyhow::{Result, bail};

/// A topic id as the protocol carries it: 16 bytes, all zero when unknown.
pub(crate) type Uuid = [u8; 16];

/// Appends protocol types to a request or response under construction.
pub(crate) trait Put {
    /// Appends raw bytes.
    fn raw(&mut self, bytes: &[u8]);

    /// Appends one signed byte.
    fn i8(&mut self, value: i8) {
        self.raw(&value.to_be_bytes());
    }
    /// Appends a big-endian 16-bit integer.
    fn i16(&mut self, value: i16) {
        self.raw(&value.to_be_bytes());
    }
    /// Appends a big-endian 32-bit integer.
    fn i32(&mut self, value: i32) {
        self.raw(&value.to_be_bytes());
    }
    /// Appends a big-endian 64-bit integer.
    fn i64(&mut self, value: i64) {
        self.raw(&value.to_be_bytes());
    }
    /// Appends an unsigned variable-length integer.
    fn uvarint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.raw(&[value as u8 | 0x80]);
            value >>= 7;
        }
        self.raw(&[value as u8]);
    }
    /// Appends a zigzag variable-length integer, as records use.
    fn varint(&mut self, value: i64) {
        self.uvarint(((value << 1) ^ (value >> 63)) as u64);
    }
    /// Appends the length of a compact array, string or byte field.
    fn compact_len(&mut self, len: usize) {
        self.uvarint(len as u64 + 1);
    }
    /// Appends a compact string.
    fn compact_str(&mut self, text: &str) {
        self.compact_len(text.len());
        self.raw(text.as_bytes());
    }
    /// Appends the null of a compact string, array or byte field.
    fn compact_null(&mut self) {
        self.uvarint(0);
    }
    /// Appends a string with a 16-bit length.
    fn str16(&mut self, text: &str) {
        self.i16(text.len() as i16);
        self.raw(text.as_bytes());
    }
    /// Appends an empty set of tagged fields.
    fn no_tags(&mut self) {
        self.uvarint(0);
    }
}

impl Put for Vec<u8> {
    fn raw(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Length in bytes of `value` as an unsigned variable-length integer.
pub(crate) fn uvarint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Length in bytes of `value` as a zigzag variable-length integer.
pub(crate) fn varint_len(value: i64) -> usize {
    uvarint_len(((value << 1) ^ (value >> 63)) as u64)
}

/// Reads protocol types from the front of a slice; every read fails rather than run past the end.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the front of `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes not read yet.
    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Takes the next `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        if len > self.rest.len() {
            bail!("message ends early: {len} bytes wanted, {} left", self.rest.len());
        }
        let (head, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    /// Reads one signed byte.
    pub(crate) fn i8(&mut self) -> Result<i8> {
        Ok(i8::from_be_bytes(self.array()?))
    }
    /// Reads a big-endian 16-bit integer.
    pub(crate) fn i16(&mut self) -> Result<i16> {
        Ok(i16::from_be_bytes(self.array()?))
    }
    /// Reads a big-endian 32-bit integer.
    pub(crate) fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }
    /// Reads a big-endian 64-bit integer.
    pub(crate) fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_be_bytes(self.array()?))
    }
    /// Reads a topic id.
    pub(crate) fn uuid(&mut self) -> Result<Uuid> {
        self.array()
    }
    /// Reads an unsigned variable-length integer of at most 32 bits.
    pub(crate) fn uvarint(&mut self) -> Result<u32> {
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(u32::try_from(value)?);
            }
        }
        bail!("variable-length integer is longer than 5 bytes")
    }
    /// Reads a compact length; `None` is null.
    pub(crate) fn compact_len(&mut self) -> Result<Option<usize>> {
        Ok(self.uvarint()?.checked_sub(1).map(|len| len as usize))
    }
    /// Reads a compact byte field; null reads as empty.
    pub(crate) fn compact_bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.compact_len()?.unwrap_or(0);
        self.take(len)
    }
    /// Reads a compact string; null reads as empty.
    pub(crate) fn compact_str(&mut self) -> Result<&'a str> {
        Ok(std::str::from_utf8(self.compact_bytes()?)?)
    }
    /// Reads a string with a 16-bit length; null reads as empty.
    pub(crate) fn str16(&mut self) -> Result<&'a str> {
        let len = self.i16()?.max(0) as usize;
        Ok(std::str::from_utf8(self.take(len)?)?)
    }
    /// Skips a set of tagged fields.
    pub(crate) fn skip_tags(&mut self) -> Result<()> {
        for _ in 0..self.uvarint()? {
            self.uvarint()?;
            let len = self.uvarint()? as usize;
            self.take(len)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_know_their_length() {
        for value in [0u32, 1, 127, 128, 16_383, 16_384, u32::MAX] {
            let mut out = Vec::new();
            out.uvarint(u64::from(value));
            assert_eq!(out.len(), uvarint_len(u64::from(value)));
            assert_eq!(Reader::new(&out).uvarint().unwrap(), value);
        }
        let mut out = Vec::new();
        out.varint(-1);
        assert_eq!(out, [1]);
        assert_eq!(varint_len(-65), 2);
    }

    #[test]
    fn a_length_past_the_end_is_an_error() {
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f]).compact_bytes().is_err());
    }
}
