//! Appends Kafka's primitive types to a byte vector. Which primitives make a message is known by the generated code,
//! not here.

use crate::error::EncodeError;
use crate::message::Wire;
use crate::primitive::Primitive;
use crate::records::Records;
use crate::uuid::Uuid;

const MAX_STRING: usize = i16::MAX as usize;
const MAX_LEN: usize = i32::MAX as usize;

type Result<T> = std::result::Result<T, EncodeError>;

/// Bytes that belong into the output and are not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Position in [`Writer::buf`] before which they belong.
    pub at: usize,
    /// How many they are.
    pub len: usize,
}

/// Output of the encoder: bytes, and the places where bytes from elsewhere belong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writer {
    /// What has been written, after what was there before.
    pub buf: Vec<u8>,
    /// The places of [`Records::Gap`], ascending.
    pub gaps: Vec<Gap>,
}

/// The start of something whose length stands in front of it and is not known yet.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Mark {
    at: usize,
    gaps: usize,
}

macro_rules! numbers {
    ($($name:ident $type:ty),*) => {$(
        #[doc = concat!("A big-endian ", stringify!($type), ".")]
        #[inline]
        pub fn $name(&mut self, value: $type) {
            self.buf.extend_from_slice(&value.to_be_bytes());
        }
    )*};
}

impl Writer {
    /// An empty output.
    pub fn new() -> Self {
        Self::default()
    }

    /// An output that continues `buf`. Positions of gaps count from the start of `buf`.
    pub fn over(buf: Vec<u8>) -> Self {
        Self { buf, gaps: Vec::new() }
    }

    /// The bytes, for those who know that there are no gaps.
    pub fn into_bytes(self) -> Vec<u8> {
        debug_assert!(self.gaps.is_empty(), "bytes are missing at {:?}", self.gaps);
        self.buf
    }

    numbers!(i8 i8, i16 i16, u16 u16, i32 i32, u32 u32, i64 i64, f64 f64);

    /// One byte, 0 or 1.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.buf.push(u8::from(value));
    }

    /// Sixteen raw bytes.
    #[inline]
    pub fn uuid(&mut self, value: Uuid) {
        self.buf.extend_from_slice(value.as_bytes());
    }

    /// Seven bits a byte, low group first, in as few bytes as possible.
    #[inline]
    pub fn uvarint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.buf.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.buf.push(value as u8);
    }

    /// A string, or null.
    #[inline]
    pub fn opt_string(&mut self, flexible: bool, value: Option<&str>) -> Result<()> {
        match value {
            Some(value) => return self.string(flexible, value),
            None if flexible => self.buf.push(0),
            None => self.i16(-1),
        }
        Ok(())
    }

    /// A string.
    pub fn string(&mut self, flexible: bool, value: &str) -> Result<()> {
        let len = value.len();
        if len > MAX_STRING {
            return Err(EncodeError::TooLong { what: "string", len });
        }
        if flexible {
            self.uvarint(len as u32 + 1);
        } else {
            self.i16(len as i16);
        }
        self.buf.extend_from_slice(value.as_bytes());
        Ok(())
    }

    /// A length, or a count, of bytes, records or an array; `None` is null.
    #[inline]
    fn len(&mut self, flexible: bool, what: &'static str, len: Option<usize>) -> Result<()> {
        match len {
            Some(len) if len >= MAX_LEN => return Err(EncodeError::TooLong { what, len }),
            Some(len) if flexible => self.uvarint(len as u32 + 1),
            Some(len) => self.i32(len as i32),
            None if flexible => self.buf.push(0),
            None => self.i32(-1),
        }
        Ok(())
    }

    /// Bytes, or null.
    pub fn opt_bytes(&mut self, flexible: bool, value: Option<&[u8]>) -> Result<()> {
        self.len(flexible, "bytes", value.map(<[u8]>::len))?;
        self.buf.extend_from_slice(value.unwrap_or_default());
        Ok(())
    }

    /// Bytes.
    pub fn bytes(&mut self, flexible: bool, value: &[u8]) -> Result<()> {
        self.opt_bytes(flexible, Some(value))
    }

    /// Record batches, or null. Of a gap only the length is written, and its place is noted.
    pub fn opt_records(&mut self, flexible: bool, value: Option<&Records<'_>>) -> Result<()> {
        self.len(flexible, "records", value.map(Records::len))?;
        match value {
            Some(Records::Bytes(bytes)) => self.buf.extend_from_slice(bytes),
            Some(Records::Gap(len)) if *len > 0 => self.gaps.push(Gap { at: self.buf.len(), len: *len }),
            Some(Records::Gap(_)) | None => {}
        }
        Ok(())
    }

    /// Record batches.
    pub fn records(&mut self, flexible: bool, value: &Records<'_>) -> Result<()> {
        self.opt_records(flexible, Some(value))
    }

    /// An array of fixed-size numbers or ids, or null.
    pub(crate) fn opt_primitives<T: Primitive>(&mut self, flexible: bool, value: Option<&[T]>) -> Result<()> {
        self.len(flexible, "array", value.map(<[T]>::len))?;
        let value = value.unwrap_or_default();
        self.buf.reserve(value.len() * T::SIZE);
        for item in value {
            item.write(&mut self.buf);
        }
        Ok(())
    }

    /// An array of fixed-size numbers or ids.
    pub(crate) fn primitives<T: Primitive>(&mut self, flexible: bool, value: &[T]) -> Result<()> {
        self.opt_primitives(flexible, Some(value))
    }

    /// An array of strings, or null.
    pub(crate) fn opt_strings<S: AsRef<str>>(&mut self, flexible: bool, value: Option<&[S]>) -> Result<()> {
        self.len(flexible, "array", value.map(<[S]>::len))?;
        value.unwrap_or_default().iter().try_for_each(|item| self.string(flexible, item.as_ref()))
    }

    /// An array of strings.
    pub(crate) fn strings<S: AsRef<str>>(&mut self, flexible: bool, value: &[S]) -> Result<()> {
        self.opt_strings(flexible, Some(value))
    }

    /// An array of structs, or null.
    pub(crate) fn opt_structs<'a, T: Wire<'a>>(
        &mut self,
        flexible: bool,
        value: Option<&[T]>,
        version: i16,
    ) -> Result<()> {
        self.len(flexible, "array", value.map(<[T]>::len))?;
        value.unwrap_or_default().iter().try_for_each(|item| item.enc(self, version))
    }

    /// An array of structs.
    pub(crate) fn structs<'a, T: Wire<'a>>(&mut self, flexible: bool, value: &[T], version: i16) -> Result<()> {
        self.opt_structs(flexible, Some(value), version)
    }

    /// A nullable struct: a signed byte in front, -1 for null, 1 for present.
    pub(crate) fn opt_struct<'a, T: Wire<'a>>(&mut self, value: Option<&T>, version: i16) -> Result<()> {
        self.i8(if value.is_some() { 1 } else { -1 });
        value.map_or(Ok(()), |value| value.enc(self, version))
    }

    /// A nullable struct inside a tag: an unsigned varint in front, 0 for null, 1 for present.
    pub(crate) fn opt_tagged_struct<'a, T: Wire<'a>>(&mut self, value: Option<&T>, version: i16) -> Result<()> {
        self.uvarint(u32::from(value.is_some()));
        value.map_or(Ok(()), |value| value.enc(self, version))
    }

    fn mark(&self) -> Mark {
        Mark { at: self.buf.len(), gaps: self.gaps.len() }
    }

    /// Bytes written since `mark`, gaps included.
    fn since(&self, mark: Mark) -> usize {
        self.buf.len() - mark.at + self.gaps[mark.gaps..].iter().map(|gap| gap.len).sum::<usize>()
    }

    /// Begins the content of a tagged field. A byte is kept free for its size.
    pub(crate) fn begin_tag(&mut self, tag: u32) -> Mark {
        self.uvarint(tag);
        self.buf.push(0);
        self.mark()
    }

    /// Ends the content of a tagged field and puts its size in front, moving the content if one byte is not enough.
    pub(crate) fn end_tag(&mut self, mark: Mark) -> Result<()> {
        let size = self.since(mark);
        if size > MAX_LEN {
            return Err(EncodeError::TooLong { what: "tagged field", len: size });
        }
        if size < 0x80 {
            self.buf[mark.at - 1] = size as u8;
            return Ok(());
        }
        let end = self.buf.len();
        self.uvarint(size as u32);
        let width = self.buf.len() - end;
        let mut prefix = [0; 5];
        prefix[..width].copy_from_slice(&self.buf[end..]);
        self.buf.truncate(end);
        self.buf.splice(mark.at - 1..mark.at, prefix[..width].iter().copied());
        for gap in &mut self.gaps[mark.gaps..] {
            gap.at += width - 1;
        }
        Ok(())
    }

    /// Begins a frame: its int32 size is filled in by [`end_frame`](Self::end_frame).
    pub fn begin_frame(&mut self) -> Mark {
        self.i32(0);
        self.mark()
    }

    /// Ends a frame: the size in front of it is what was written since, gaps included.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] when the frame exceeds 2^31 - 1 bytes.
    pub fn end_frame(&mut self, mark: Mark) -> Result<()> {
        let len = self.since(mark);
        let size = i32::try_from(len).map_err(|_| EncodeError::TooLong { what: "frame", len })?;
        self.buf[mark.at - 4..mark.at].copy_from_slice(&size.to_be_bytes());
        Ok(())
    }

    /// Takes back everything written since `mark`, and the four bytes of the frame's size.
    pub fn cancel_frame(&mut self, mark: Mark) {
        self.buf.truncate(mark.at - 4);
        self.gaps.truncate(mark.gaps);
    }
}
