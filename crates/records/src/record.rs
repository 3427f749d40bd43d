//! Reading the records of one batch: borrowed from the batch, or from the decompressor's buffer. Nothing is allocated a record, and
//! headers are decoded when asked for. Checking a batch without needing its records lives in `validate`.

use crate::batch::TimestampType;
use crate::record_error::{RecordError, RecordFault};
use crate::{Batch, Compression, Decompressor, varint};

/// One record, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Offset minus the batch's base offset.
    pub offset_delta: i32,
    /// Stamp minus the batch's base timestamp, ms.
    pub timestamp_delta: i64,
    /// Unused by Kafka; as it came.
    pub attributes: i8,
    /// Key; any negative length reads as null.
    pub key: Option<&'a [u8]>,
    /// Value; any negative length reads as null.
    pub value: Option<&'a [u8]>,
    /// Headers, already checked.
    pub headers: Headers<'a>,
}

impl Record<'_> {
    /// The record's offset in its log (wrapping, as hostile deltas can).
    pub fn offset(&self, batch: &Batch<'_>) -> i64 {
        batch.base_offset().wrapping_add(i64::from(self.offset_delta))
    }

    /// The stamp that a consumer sees, ms since 1970: the batch's append time, or base timestamp plus delta (wrapping).
    pub fn timestamp(&self, batch: &Batch<'_>) -> i64 {
        match batch.timestamp_type() {
            TimestampType::LogAppendTime => batch.max_timestamp(),
            TimestampType::CreateTime => batch.base_timestamp().wrapping_add(self.timestamp_delta),
        }
    }
}

/// The headers of one record: how many, and an iterator that decodes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Headers<'a> {
    count: usize,
    bytes: &'a [u8],
}

/// One header. Keys are mostly UTF-8, but need not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// Key, never null.
    pub key: &'a [u8],
    /// Value; any negative length reads as null.
    pub value: Option<&'a [u8]>,
}

impl<'a> Headers<'a> {
    /// Headers by their number and their bytes, such as those of a [`Record`] that was read before. Of bytes that are no
    /// headers fewer come out.
    pub fn new(count: usize, bytes: &'a [u8]) -> Self {
        Self { count, bytes }
    }

    /// Number of headers.
    pub fn len(&self) -> usize {
        self.count
    }

    /// No headers.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The headers as they are encoded, without their count.
    pub fn encoded(&self) -> &'a [u8] {
        self.bytes
    }

    /// The headers in their order.
    pub fn iter(&self) -> HeaderIter<'a> {
        HeaderIter { left: self.count, fields: Fields::new(self.bytes) }
    }
}

impl<'a> IntoIterator for Headers<'a> {
    type Item = Header<'a>;
    type IntoIter = HeaderIter<'a>;

    fn into_iter(self) -> HeaderIter<'a> {
        self.iter()
    }
}

/// Iterator over a record's headers.
#[derive(Debug, Clone)]
pub struct HeaderIter<'a> {
    left: usize,
    fields: Fields<'a>,
}

impl<'a> Iterator for HeaderIter<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        self.left = self.left.checked_sub(1)?;
        // The record's iterator has read all of them once; none can fail now.
        self.fields.header().ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<'a> Batch<'a> {
    /// The batch's records, decompressed into `decompressor` where needed.
    ///
    /// As many records as the header counts come out, or an error, which ends the iteration; bytes behind the last record are an
    /// error too. Offset deltas, stamps and the checksum are not looked at.
    ///
    /// # Errors
    /// Unknown codec, negative count, or what [`Decompressor::decompress`] says.
    pub fn records<'r>(&self, decompressor: &'r mut Decompressor) -> Result<Records<'r>, RecordError>
    where
        'a: 'r,
    {
        let codec = self.codec()?;
        let max_size = if codec == Compression::None { i32::MAX } else { decompressor.max_record_size() };
        Ok(Records::new(self.checked_count()?, max_size, decompressor.decompress(codec, self.body())?))
    }

    /// The batch's records out of its body, which the caller has decompressed.
    ///
    /// # Errors
    /// Negative count.
    pub fn records_of<'r>(&self, body: &'r [u8]) -> Result<Records<'r>, RecordError> {
        Ok(Records::new(self.checked_count()?, i32::MAX, body))
    }

    /// The records of a batch that is not compressed, which need no decompressor.
    ///
    /// # Errors
    /// [`RecordError::UnknownCodec`] when a codec is named at all; negative count.
    pub fn plain_records(&self) -> Result<Records<'a>, RecordError> {
        match self.codec()? {
            Compression::None => Ok(Records::new(self.checked_count()?, i32::MAX, self.body())),
            codec => Err(RecordError::UnknownCodec(codec.id())),
        }
    }

    pub(crate) fn codec(&self) -> Result<Compression, RecordError> {
        self.compression().ok_or(RecordError::UnknownCodec(self.attributes() & crate::layout::CODEC_MASK))
    }

    pub(crate) fn checked_count(&self) -> Result<i32, RecordError> {
        let count = self.count();
        if count < 0 { Err(RecordError::NegativeCount(count)) } else { Ok(count) }
    }
}

/// Iterator over a batch's records; see [`Batch::records`].
#[derive(Debug, Clone)]
pub struct Records<'a> {
    count: i32,
    index: i32,
    max_size: i32,
    fields: Fields<'a>,
    ended: bool,
}

impl<'a> Records<'a> {
    fn new(count: i32, max_size: i32, body: &'a [u8]) -> Records<'a> {
        Records { count, index: 0, max_size, fields: Fields::new(body), ended: false }
    }

    /// Passes over the next record, unless the walk has ended: what was read once need not be looked into again.
    pub fn pass_over(&mut self) {
        if self.ended || self.index == self.count {
            return;
        }
        let size = self.fields.varint().ok().and_then(|length| usize::try_from(length).ok());
        self.ended = size.is_none_or(|size| self.fields.take(size).is_err());
        self.index += 1;
    }

    fn record(&mut self) -> Result<Record<'a>, RecordFault> {
        let length = self.fields.varint()?;
        let size = usize::try_from(length).map_err(|_| RecordFault::NegativeLength(length))?;
        if length > self.max_size {
            return Err(RecordFault::TooLarge { length, limit: self.max_size });
        }
        let available = self.fields.rest.len();
        let bytes = self.fields.take(size).map_err(|_| RecordFault::LengthBeyondBytes { length, available })?;
        let mut fields = Fields::new(bytes);
        let attributes = fields.byte()?.cast_signed();
        let timestamp_delta = fields.varlong()?;
        let offset_delta = fields.varint()?;
        let key = fields.nullable()?;
        let value = fields.nullable()?;
        let count = fields.varint()?;
        let count = usize::try_from(count).map_err(|_| RecordFault::NegativeHeaderCount(count))?;
        let headers = Headers { count, bytes: fields.rest };
        for _ in 0..count {
            fields.header()?;
        }
        if !fields.rest.is_empty() {
            return Err(RecordFault::LengthMismatch { length });
        }
        Ok(Record { offset_delta, timestamp_delta, attributes, key, value, headers })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let (index, count) = (self.index, self.count);
        let item = if index == count {
            self.ended = true;
            if self.fields.rest.is_empty() {
                return None;
            }
            Err(RecordError::LeftOver { count })
        } else if self.fields.rest.is_empty() {
            Err(RecordError::Missing { index, count })
        } else {
            self.record().map_err(|fault| fault.at(index))
        };
        self.ended |= item.is_err();
        self.index += 1;
        Some(item)
    }
}

impl std::iter::FusedIterator for Records<'_> {}

/// A checked walk over fields.
#[derive(Debug, Clone)]
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn new(rest: &'a [u8]) -> Fields<'a> {
        Fields { rest }
    }

    fn byte(&mut self) -> Result<u8, RecordFault> {
        let (first, rest) = self.rest.split_first().ok_or(RecordFault::Truncated)?;
        self.rest = rest;
        Ok(*first)
    }

    fn varint(&mut self) -> Result<i32, RecordFault> {
        Ok(varint::take_varint(&mut self.rest)?)
    }

    fn varlong(&mut self) -> Result<i64, RecordFault> {
        Ok(varint::take_varlong(&mut self.rest)?)
    }

    fn take(&mut self, size: usize) -> Result<&'a [u8], RecordFault> {
        let (bytes, rest) = self.rest.split_at_checked(size).ok_or(RecordFault::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn nullable(&mut self) -> Result<Option<&'a [u8]>, RecordFault> {
        match usize::try_from(self.varint()?) {
            Ok(size) => self.take(size).map(Some),
            Err(_) => Ok(None),
        }
    }

    fn header(&mut self) -> Result<Header<'a>, RecordFault> {
        let key = self.nullable()?.ok_or(RecordFault::NullHeaderKey)?;
        Ok(Header { key, value: self.nullable()? })
    }
}
