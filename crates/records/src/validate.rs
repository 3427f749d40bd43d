//! Walking over all records of a batch without their keys and values: what a leader must know before it stores the batch. A compressed
//! body is walked piece by piece while its bytes are in the processor's cache, and never held as a whole. Which finding is an error for
//! which topic is the broker's decision.

use crate::compression::{Output, Stream};
use crate::record_error::{RecordError, RecordFault};
use crate::{Batch, CompressionError, Decompressor, varint};

/// What one walk has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkSummary {
    /// Records that are there, as many as the header says.
    pub count: i32,
    /// Offset deltas are 0, 1, 2, and so on.
    pub offsets_sequential: bool,
    /// Smallest stamp, ms since 1970 (base timestamp plus delta, wrapping); -1 without records.
    pub min_timestamp: i64,
    /// Largest stamp, as above.
    pub max_timestamp: i64,
    /// Offset delta of the first record with the largest stamp; -1 without records.
    pub max_timestamp_offset_delta: i32,
    /// Index of the first record without key.
    pub first_null_key: Option<i32>,
    /// Index of the first record whose length field is not that of its fields. Only in compressed batches, where Kafka stores
    /// such a record; in others it is an error.
    pub first_wrong_length: Option<i32>,
    /// Bytes of all records, decompressed.
    pub records_size: u64,
}

/// One record without its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordShape {
    /// Place in the batch, from 0.
    pub index: i32,
    /// Unused by Kafka; as it came.
    pub attributes: i8,
    /// Stamp minus the batch's base timestamp, ms.
    pub timestamp_delta: i64,
    /// Offset minus the batch's base offset.
    pub offset_delta: i32,
    /// Bytes of the key; `None` for a null one.
    pub key_length: Option<usize>,
    /// Bytes of the value; `None` for a null one.
    pub value_length: Option<usize>,
    /// Number of headers.
    pub header_count: i32,
    /// The length field is that of the fields.
    pub length_fits: bool,
}

/// Walks over all records of `batch`.
///
/// # Errors
/// [`RecordError`] at the first record that cannot be read, at a missing one, at bytes behind the last one. Memory stays small
/// whatever the body expands to; more than the decompressor's limit is an error, and so is a longer record than it allows.
pub fn walk(batch: &Batch<'_>, decompressor: &mut Decompressor) -> Result<WalkSummary, RecordError> {
    let base_timestamp = batch.base_timestamp();
    let mut summary = WalkSummary {
        count: batch.count(),
        offsets_sequential: true,
        min_timestamp: -1,
        max_timestamp: -1,
        max_timestamp_offset_delta: -1,
        first_null_key: None,
        first_wrong_length: None,
        records_size: 0,
    };
    let visit = |record: &RecordShape| {
        let timestamp = base_timestamp.wrapping_add(record.timestamp_delta);
        if record.index == 0 || timestamp > summary.max_timestamp {
            summary.max_timestamp = timestamp;
            summary.max_timestamp_offset_delta = record.offset_delta;
        }
        if record.index == 0 || timestamp < summary.min_timestamp {
            summary.min_timestamp = timestamp;
        }
        summary.offsets_sequential &= record.offset_delta == record.index;
        if record.key_length.is_none() && summary.first_null_key.is_none() {
            summary.first_null_key = Some(record.index);
        }
        if !record.length_fits && summary.first_wrong_length.is_none() {
            summary.first_wrong_length = Some(record.index);
        }
    };
    let records_size = walk_each(batch, decompressor, visit)?;
    Ok(WalkSummary { records_size, ..summary })
}

/// Walks over all records of `batch` and shows each to `visit`; for lists of offenders. Returns the records' bytes, decompressed.
///
/// # Errors
/// As [`walk`]; the records before the bad one have been shown.
pub fn walk_each(
    batch: &Batch<'_>,
    decompressor: &mut Decompressor,
    visit: impl FnMut(&RecordShape),
) -> Result<u64, RecordError> {
    let codec = batch.codec()?;
    let count = batch.checked_count()?;
    let max_size = decompressor.max_record_size();
    match decompressor.open(codec, batch.body()) {
        None => walk_plain(batch.body(), count, visit),
        Some((stream, output)) => walk_compressed(Window::new(stream, output), count, max_size, visit),
    }
}

fn walk_plain(body: &[u8], count: i32, visit: impl FnMut(&RecordShape)) -> Result<u64, RecordError> {
    let mut bytes = Whole { rest: body };
    let mut index = 0;
    walk_whole::<true>(&mut bytes, &mut index, count, i32::MAX, visit).map_err(|stop| stop.at(index))?;
    match (index < count, bytes.rest.is_empty()) {
        (true, _) => Err(RecordError::Missing { index, count }),
        (false, false) => Err(RecordError::LeftOver { count }),
        (false, true) => Ok(body.len() as u64),
    }
}

/// Most records lie whole within one piece and are read from it in one go; one that does not is read again byte by byte, with the next
/// pieces taken as they are needed.
fn walk_compressed(
    mut window: Window<'_>,
    count: i32,
    max_size: i32,
    mut visit: impl FnMut(&RecordShape),
) -> Result<u64, RecordError> {
    let mut index = 0;
    while index < count {
        if window.at_end()? {
            return Err(RecordError::Missing { index, count });
        }
        let mut piece = Whole { rest: &window.output.filled()[window.at..] };
        let walked = walk_whole::<false>(&mut piece, &mut index, count, max_size, &mut visit);
        window.at = window.output.filled().len() - piece.rest.len();
        match walked {
            Ok(()) => {}
            Err(Stop::Fault(RecordFault::Truncated)) => {
                let shape = read_shape::<_, false>(&mut window, index, max_size).map_err(|stop| stop.at(index))?;
                visit(&shape);
                index += 1;
            }
            Err(stop) => return Err(stop.at(index)),
        }
    }
    if window.at_end()? { Ok(window.mark()) } else { Err(RecordError::LeftOver { count }) }
}

/// Walks from record `index` on to record `count` or to the end of the bytes, and counts up `index`. At an error, the record to blame has
/// not been taken from the bytes.
fn walk_whole<const STRICT: bool>(
    bytes: &mut Whole<'_>,
    index: &mut i32,
    count: i32,
    max_size: i32,
    mut visit: impl FnMut(&RecordShape),
) -> Result<(), Stop> {
    let mut ahead = Whole { rest: bytes.rest };
    while *index < count && !ahead.rest.is_empty() {
        let shape = read_shape::<_, STRICT>(&mut ahead, *index, max_size)?;
        bytes.rest = ahead.rest;
        visit(&shape);
        *index += 1;
    }
    Ok(())
}

/// Why a record could not be read.
enum Stop {
    Fault(RecordFault),
    Compression(CompressionError),
}

impl Stop {
    #[cold]
    fn at(self, index: i32) -> RecordError {
        match self {
            Stop::Fault(fault) => fault.at(index),
            Stop::Compression(error) => RecordError::Compression(error),
        }
    }
}

impl<T: Into<RecordFault>> From<T> for Stop {
    fn from(fault: T) -> Self {
        Stop::Fault(fault.into())
    }
}

/// Bytes that are read once, from the front.
trait Source {
    fn varint(&mut self) -> Result<i32, Stop>;
    fn varlong(&mut self) -> Result<i64, Stop>;
    fn byte(&mut self) -> Result<u8, Stop>;
    fn skip(&mut self, bytes: usize) -> Result<(), Stop>;
    /// Where the source stands, for [`Self::read_since`].
    fn mark(&self) -> u64;
    /// Bytes read since it stood there.
    fn read_since(&self, mark: u64) -> u64;
    /// Bytes to come, as far as they are known.
    fn available(&self) -> usize;

    /// Skips a field of bytes; its length, `None` for a null.
    #[inline]
    fn field(&mut self) -> Result<Option<usize>, Stop> {
        match usize::try_from(self.varint()?) {
            Ok(length) => self.skip(length).map(|()| Some(length)),
            Err(_) => Ok(None),
        }
    }
}

/// Reads one record. `STRICT` demands that its length field is that of its fields, before memory for them could be needed.
#[inline]
fn read_shape<S: Source, const STRICT: bool>(source: &mut S, index: i32, max_size: i32) -> Result<RecordShape, Stop> {
    let length = source.varint()?;
    if length < 0 {
        return Err(RecordFault::NegativeLength(length).into());
    }
    if length > max_size {
        return Err(RecordFault::TooLarge { length, limit: max_size }.into());
    }
    let size = u64::from(length.unsigned_abs());
    let available = source.available();
    if STRICT && size > available as u64 {
        return Err(RecordFault::LengthBeyondBytes { length, available }.into());
    }
    let start = source.mark();
    let attributes = source.byte()?.cast_signed();
    let timestamp_delta = source.varlong()?;
    let offset_delta = source.varint()?;
    let key_length = source.field()?;
    let value_length = source.field()?;
    let header_count = source.varint()?;
    if header_count < 0 {
        return Err(RecordFault::NegativeHeaderCount(header_count).into());
    }
    for _ in 0..header_count {
        source.field()?.ok_or(RecordFault::NullHeaderKey)?;
        source.field()?;
    }
    let length_fits = source.read_since(start) == size;
    if STRICT && !length_fits {
        return Err(RecordFault::LengthMismatch { length }.into());
    }
    Ok(RecordShape {
        index,
        attributes,
        timestamp_delta,
        offset_delta,
        key_length,
        value_length,
        header_count,
        length_fits,
    })
}

/// Bytes that are all there.
struct Whole<'a> {
    rest: &'a [u8],
}

impl Source for Whole<'_> {
    #[inline]
    fn varint(&mut self) -> Result<i32, Stop> {
        Ok(varint::take_varint(&mut self.rest)?)
    }

    #[inline]
    fn varlong(&mut self) -> Result<i64, Stop> {
        Ok(varint::take_varlong(&mut self.rest)?)
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Stop> {
        let (byte, rest) = self.rest.split_first().ok_or(RecordFault::Truncated)?;
        self.rest = rest;
        Ok(*byte)
    }

    #[inline]
    fn skip(&mut self, bytes: usize) -> Result<(), Stop> {
        self.rest = self.rest.get(bytes..).ok_or(RecordFault::Truncated)?;
        Ok(())
    }

    #[inline]
    fn mark(&self) -> u64 {
        self.rest.len() as u64
    }

    #[inline]
    fn read_since(&self, mark: u64) -> u64 {
        mark - self.rest.len() as u64
    }

    #[inline]
    fn available(&self) -> usize {
        self.rest.len()
    }
}

/// The piece of a compressed body that is decompressed now, and the stream of the further ones.
struct Window<'a> {
    stream: Stream<'a>,
    output: &'a mut Output,
    at: usize,
    /// Bytes of the pieces before this one.
    dropped: u64,
}

impl<'a> Window<'a> {
    fn new(stream: Stream<'a>, output: &'a mut Output) -> Window<'a> {
        Window { stream, output, at: 0, dropped: 0 }
    }

    /// Nothing is left. Otherwise at least one byte of the piece is.
    #[inline]
    fn at_end(&mut self) -> Result<bool, CompressionError> {
        if self.at < self.output.filled().len() { Ok(false) } else { self.next_piece().map(|more| !more) }
    }

    /// Takes the next piece that is not empty; false at the end of the body.
    #[cold]
    fn next_piece(&mut self) -> Result<bool, CompressionError> {
        self.dropped += self.at as u64;
        self.at = 0;
        self.output.clear();
        while self.output.filled().is_empty() {
            if !self.stream.next_piece(self.output)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn number(&mut self, most_bytes: usize) -> Result<([u8; varint::MAX_VARLONG], usize), Stop> {
        let mut bytes = [0; varint::MAX_VARLONG];
        for at in 0..most_bytes {
            bytes[at] = self.byte()?;
            if bytes[at] < 0x80 {
                return Ok((bytes, at + 1));
            }
        }
        Err(RecordFault::VarintTooLong.into())
    }
}

impl Source for Window<'_> {
    fn varint(&mut self) -> Result<i32, Stop> {
        let (bytes, size) = self.number(varint::MAX_VARINT)?;
        Ok(varint::take_varint(&mut &bytes[..size])?)
    }

    fn varlong(&mut self) -> Result<i64, Stop> {
        let (bytes, size) = self.number(varint::MAX_VARLONG)?;
        Ok(varint::take_varlong(&mut &bytes[..size])?)
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        if self.at_end().map_err(Stop::Compression)? {
            return Err(RecordFault::Truncated.into());
        }
        let byte = self.output.filled()[self.at];
        self.at += 1;
        Ok(byte)
    }

    fn skip(&mut self, bytes: usize) -> Result<(), Stop> {
        let mut left = bytes;
        while left > 0 {
            if self.at_end().map_err(Stop::Compression)? {
                return Err(RecordFault::Truncated.into());
            }
            let step = left.min(self.available());
            self.at += step;
            left -= step;
        }
        Ok(())
    }

    fn mark(&self) -> u64 {
        self.dropped + self.at as u64
    }

    fn read_since(&self, mark: u64) -> u64 {
        self.mark() - mark
    }

    fn available(&self) -> usize {
        self.output.filled().len() - self.at
    }
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
