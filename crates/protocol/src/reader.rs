//! Takes Kafka's primitive types from a byte slice, every length checked before it is used. Which primitives make a
//! message is known by the generated code, not here.

use std::borrow::Cow;

use crate::error::DecodeError;
use crate::message::Wire;
use crate::primitive::Primitive;
use crate::records::Records;
use crate::uuid::Uuid;

/// Elements that one array may have, and elements with memory of their own, structs and strings, that all arrays of a message
/// may have together.
const MAX_ELEMENTS: usize = 1_000_000;
/// Elements for which memory is taken before the first of them was read.
const MAX_PREALLOCATED: usize = 1000;
/// Fields that one tagged section may have.
const MAX_TAGGED_FIELDS: u32 = 10_000;
const MAX_STRING: usize = i16::MAX as usize;

type Result<T> = std::result::Result<T, DecodeError>;

/// A position in bytes that are being decoded. What it returns borrows from those bytes where it can.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
    elements_left: usize,
    array_bytes: usize,
}

macro_rules! numbers {
    ($($name:ident $type:ty),*) => {$(
        #[doc = concat!("A big-endian ", stringify!($type), ".")]
        #[inline]
        pub fn $name(&mut self) -> Result<$type> {
            Ok(<$type>::from_be_bytes(self.array_of_bytes()?))
        }
    )*};
}

impl<'a> Reader<'a> {
    /// Starts at the first of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, elements_left: MAX_ELEMENTS, array_bytes: 0 }
    }

    /// Bytes not yet taken.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The bytes not yet taken.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// What the arrays that were taken so far hold in memory beside the bytes they were taken from.
    pub fn array_bytes(&self) -> usize {
        self.array_bytes
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// [`DecodeError::TrailingBytes`] with the number of bytes left.
    pub fn finish(&self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::TrailingBytes(self.rest.len())) }
    }

    /// The next `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        match self.rest.split_at_checked(len) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(self.truncated(len)),
        }
    }

    #[inline]
    fn array_of_bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.rest.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(*taken)
            }
            None => Err(self.truncated(N)),
        }
    }

    #[cold]
    fn truncated(&self, needed: usize) -> DecodeError {
        DecodeError::Truncated { needed, remaining: self.rest.len() }
    }

    numbers!(i8 i8, i16 i16, u16 u16, i32 i32, u32 u32, i64 i64, f64 f64);

    /// One byte; everything but zero is true.
    #[inline]
    pub fn bool(&mut self) -> Result<bool> {
        Ok(self.i8()? != 0)
    }

    /// Sixteen raw bytes.
    #[inline]
    pub fn uuid(&mut self) -> Result<Uuid> {
        Ok(Uuid::from_bytes(self.array_of_bytes()?))
    }

    /// Seven bits a byte, low group first. Non-minimal forms are taken, bits beyond the 32nd are dropped.
    #[inline]
    pub fn uvarint(&mut self) -> Result<u32> {
        match self.rest.split_first() {
            Some((&byte, rest)) if byte < 0x80 => {
                self.rest = rest;
                Ok(u32::from(byte))
            }
            _ => self.long_uvarint(),
        }
    }

    fn long_uvarint(&mut self) -> Result<u32> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array_of_bytes()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::VarintTooLong)
    }

    /// A compact length: uvarint(length + 1). Whatever is negative as a signed number means null.
    #[inline]
    fn compact_len(&mut self) -> Result<Option<usize>> {
        let len = (self.uvarint()? as i32).wrapping_sub(1);
        Ok(usize::try_from(len).ok())
    }

    #[inline]
    fn len(&mut self, flexible: bool) -> Result<Option<usize>> {
        if flexible { self.compact_len() } else { Ok(usize::try_from(self.i32()?).ok()) }
    }

    /// A string or null. Invalid UTF-8 is replaced, which takes an allocation; valid UTF-8 is borrowed.
    #[inline]
    pub fn opt_string(&mut self, flexible: bool) -> Result<Option<Cow<'a, str>>> {
        let len = if flexible { self.compact_len()? } else { usize::try_from(self.i16()?).ok() };
        let Some(len) = len else { return Ok(None) };
        if len > MAX_STRING {
            return Err(DecodeError::StringTooLong(len));
        }
        self.take(len).map(|bytes| Some(String::from_utf8_lossy(bytes)))
    }

    /// A string.
    pub fn string(&mut self, flexible: bool) -> Result<Cow<'a, str>> {
        self.opt_string(flexible)?.ok_or(DecodeError::UnexpectedNull("string"))
    }

    /// Bytes or null.
    #[inline]
    pub fn opt_bytes(&mut self, flexible: bool) -> Result<Option<Cow<'a, [u8]>>> {
        match self.len(flexible)? {
            None => Ok(None),
            Some(len) => self.take(len).map(|bytes| Some(Cow::Borrowed(bytes))),
        }
    }

    /// Bytes.
    pub fn bytes(&mut self, flexible: bool) -> Result<Cow<'a, [u8]>> {
        self.opt_bytes(flexible)?.ok_or(DecodeError::UnexpectedNull("bytes"))
    }

    /// Record batches or null.
    #[inline]
    pub fn opt_records(&mut self, flexible: bool) -> Result<Option<Records<'a>>> {
        match self.len(flexible)? {
            None => Ok(None),
            Some(len) => self.take(len).map(|bytes| Some(Records::Bytes(bytes))),
        }
    }

    /// Record batches. `Some` so that both forms have one type.
    pub fn records(&mut self, flexible: bool) -> Result<Option<Records<'a>>> {
        let records = self.opt_records(flexible)?;
        if records.is_none() { Err(DecodeError::UnexpectedNull("records")) } else { Ok(records) }
    }

    /// The count of an array whose elements take at least `size` bytes, checked against the bytes that remain and the
    /// limit of elements. Kafka refuses more elements than bytes even where elements are empty.
    #[inline]
    fn count(&mut self, flexible: bool, size: usize) -> Result<Option<usize>> {
        match self.len(flexible)? {
            Some(count) if count > MAX_ELEMENTS || count * size.max(1) > self.rest.len() => {
                Err(DecodeError::TooManyElements { count, remaining: self.rest.len() })
            }
            other => Ok(other),
        }
    }

    /// As [`count`](Self::count), for elements whose memory is not that of their bytes; all arrays of a message share a limit.
    #[inline]
    fn shared_count<T>(&mut self, flexible: bool, size: usize) -> Result<Option<usize>> {
        let Some(count) = self.count(flexible, size)? else { return Ok(None) };
        match self.elements_left.checked_sub(count) {
            Some(left) => {
                self.elements_left = left;
                self.array_bytes += count * size_of::<T>();
                Ok(Some(count))
            }
            None => Err(DecodeError::TooManyElements { count, remaining: self.rest.len() }),
        }
    }

    /// An array of fixed-size numbers or ids, or null.
    pub(crate) fn opt_primitives<T: Primitive>(&mut self, flexible: bool) -> Result<Option<Cow<'a, [T]>>> {
        match self.count(flexible, T::SIZE)? {
            None => Ok(None),
            Some(0) => Ok(Some(Cow::Borrowed(&[]))),
            Some(count) => {
                let bytes = self.take(count * T::SIZE)?;
                self.array_bytes += count * size_of::<T>();
                Ok(Some(Cow::Owned(bytes.chunks_exact(T::SIZE).map(T::read).collect())))
            }
        }
    }

    /// An array of fixed-size numbers or ids.
    pub(crate) fn primitives<T: Primitive>(&mut self, flexible: bool) -> Result<Cow<'a, [T]>> {
        self.opt_primitives(flexible)?.ok_or(DecodeError::UnexpectedNull("array"))
    }

    /// An array of strings, or null.
    pub(crate) fn opt_strings(&mut self, flexible: bool) -> Result<Option<Vec<Cow<'a, str>>>> {
        let Some(count) = self.shared_count::<Cow<'a, str>>(flexible, 1)? else { return Ok(None) };
        let mut strings = Vec::with_capacity(count.min(MAX_PREALLOCATED));
        for _ in 0..count {
            strings.push(self.string(flexible)?);
        }
        Ok(Some(strings))
    }

    /// An array of strings.
    pub(crate) fn strings(&mut self, flexible: bool) -> Result<Vec<Cow<'a, str>>> {
        self.opt_strings(flexible)?.ok_or(DecodeError::UnexpectedNull("array"))
    }

    /// An array of structs, or null.
    pub(crate) fn opt_structs<T: Wire<'a>>(&mut self, flexible: bool, version: i16) -> Result<Option<Vec<T>>> {
        let Some(count) = self.shared_count::<T>(flexible, T::MIN_SIZE)? else { return Ok(None) };
        let mut structs = Vec::with_capacity(count.min(MAX_PREALLOCATED));
        for _ in 0..count {
            structs.push(T::dec(self, version)?);
        }
        Ok(Some(structs))
    }

    /// An array of structs.
    pub(crate) fn structs<T: Wire<'a>>(&mut self, flexible: bool, version: i16) -> Result<Vec<T>> {
        self.opt_structs(flexible, version)?.ok_or(DecodeError::UnexpectedNull("array"))
    }

    /// A nullable struct: a signed byte in front, negative for null.
    pub(crate) fn opt_struct<T: Wire<'a>>(&mut self, version: i16) -> Result<Option<T>> {
        if self.i8()? < 0 { Ok(None) } else { T::dec(self, version).map(Some) }
    }

    /// A nullable struct inside a tag: an unsigned varint in front, zero for null.
    pub(crate) fn opt_tagged_struct<T: Wire<'a>>(&mut self, version: i16) -> Result<Option<T>> {
        if self.uvarint()? == 0 { Ok(None) } else { T::dec(self, version).map(Some) }
    }

    /// The number of fields in the tagged section that follows.
    #[inline]
    pub(crate) fn tag_count(&mut self) -> Result<u32> {
        let count = self.uvarint()?;
        if count > MAX_TAGGED_FIELDS || count as usize > self.rest.len() {
            return Err(DecodeError::TooManyTaggedFields(count));
        }
        Ok(count)
    }

    /// The next field's tag and size. A known field's size is not looked at, as its content has its own.
    pub(crate) fn tag(&mut self) -> Result<(u32, u32)> {
        Ok((self.uvarint()?, self.uvarint()?))
    }

    /// A whole tagged section of which nothing is known.
    #[inline]
    pub(crate) fn skip_tags(&mut self, flexible: bool) -> Result<()> {
        if !flexible {
            return Ok(());
        }
        for _ in 0..self.tag_count()? {
            let (_, size) = self.tag()?;
            self.take(size as usize)?;
        }
        Ok(())
    }

    /// The content of a field which the message does not have, or does not have in this version.
    #[cold]
    pub(crate) fn unknown_tag(&mut self, (tag, size): (u32, u32), known: bool, version: i16) -> Result<()> {
        if known {
            return Err(DecodeError::TagNotInVersion { tag, version });
        }
        self.take(size as usize).map(|_| ())
    }
}
