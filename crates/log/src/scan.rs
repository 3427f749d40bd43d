//! Walking over the batch headers of a segment's file in few reads, without their records.

use std::io;

use milena_io::File;
use milena_records::layout::{
    ATTRIBUTES_AT, BASE_SEQUENCE_AT, BATCH_OVERHEAD, CONTROL_BIT, COUNT_AT, CRC_AT, LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT, LENGTH_AT, LOG_OVERHEAD, MAGIC, MAGIC_AT, MAX_TIMESTAMP_AT, PRODUCER_EPOCH_AT, PRODUCER_ID_AT,
    TRANSACTIONAL_BIT,
};
use milena_records::{Batch, EndTransaction};

/// Bytes read at once; a walk usually ends within the bytes of one index interval.
const CHUNK: usize = 4096;
/// Longest control batch that may be a transaction marker, bytes; Kafka's has 78.
pub(crate) const MOST_MARKER: usize = 512;

/// The fields of a batch's header that a log needs, and where the batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Where the batch begins in the file, bytes.
    pub(crate) position: u64,
    /// Size of the whole batch, bytes.
    pub(crate) size: u64,
    pub(crate) base_offset: i64,
    pub(crate) last_offset: i64,
    pub(crate) leader_epoch: i32,
    pub(crate) crc: u32,
    pub(crate) attributes: i16,
    pub(crate) max_timestamp: i64,
    pub(crate) count: i32,
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    pub(crate) base_sequence: i32,
}

impl Header {
    /// Position behind the batch.
    pub(crate) fn end(&self) -> u64 {
        self.position + self.size
    }

    /// Offsets are missing inside of the batch: compaction has been here.
    pub(crate) fn has_gap(&self) -> bool {
        i64::from(self.count) <= self.last_offset - self.base_offset
    }

    /// Belongs to a transaction.
    pub(crate) fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_BIT != 0
    }

    /// Holds a marker, no records of a producer.
    pub(crate) fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }

    /// Only such a batch is worth looking into.
    pub(crate) fn may_be_marker(&self) -> bool {
        self.is_control() && self.producer_id >= 0 && self.size <= MOST_MARKER as u64
    }

    /// Reads a header whose batch must end at or before `end`, the end of the file. The error says what is wrong.
    pub(crate) fn parse(bytes: &[u8; BATCH_OVERHEAD], position: u64, end: u64) -> Result<Header, String> {
        let length = i32::from_be_bytes(field(bytes, LENGTH_AT));
        let magic = bytes[MAGIC_AT].cast_signed();
        let size = i64::from(length) + LOG_OVERHEAD as i64;
        if size < BATCH_OVERHEAD as i64 {
            return Err(format!("batch length field {length} is too small"));
        }
        if size as u64 > end - position {
            return Err(format!("a batch of {size} bytes where {} are left", end - position));
        }
        if magic != MAGIC {
            return Err(format!("magic {magic}"));
        }
        let base_offset = i64::from_be_bytes(field(bytes, 0));
        let delta = i32::from_be_bytes(field(bytes, LAST_OFFSET_DELTA_AT));
        let last_offset = base_offset.checked_add(i64::from(delta)).filter(|last| *last < i64::MAX);
        let (0.., 0.., Some(last_offset)) = (base_offset, delta, last_offset) else {
            return Err(format!("base offset {base_offset} and last offset delta {delta}"));
        };
        Ok(Header {
            position,
            size: size as u64,
            base_offset,
            last_offset,
            leader_epoch: i32::from_be_bytes(field(bytes, LEADER_EPOCH_AT)),
            crc: u32::from_be_bytes(field(bytes, CRC_AT)),
            attributes: i16::from_be_bytes(field(bytes, ATTRIBUTES_AT)),
            max_timestamp: i64::from_be_bytes(field(bytes, MAX_TIMESTAMP_AT)),
            count: i32::from_be_bytes(field(bytes, COUNT_AT)),
            producer_id: i64::from_be_bytes(field(bytes, PRODUCER_ID_AT)),
            producer_epoch: i16::from_be_bytes(field(bytes, PRODUCER_EPOCH_AT)),
            base_sequence: i32::from_be_bytes(field(bytes, BASE_SEQUENCE_AT)),
        })
    }
}

/// The `N` bytes at `at`, which the caller knows to be there.
pub(crate) fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

/// Why a walk stopped before the end.
#[derive(Debug)]
pub(crate) enum ScanError {
    /// The disk failed.
    Io(io::Error),
    /// There is no sound header at this position.
    Corrupt { position: u64, reason: String },
}

/// A walk from one batch start to the next.
pub(crate) struct HeaderScan<'f> {
    file: &'f dyn File,
    position: u64,
    end: u64,
    chunk: [u8; CHUNK],
    chunk_at: u64,
    chunk_len: usize,
}

impl<'f> HeaderScan<'f> {
    /// Begins at `position`, a batch start; `end` is the end of the last batch.
    pub(crate) fn new(file: &'f dyn File, position: u64, end: u64) -> Self {
        Self { file, position, end, chunk: [0; CHUNK], chunk_at: position, chunk_len: 0 }
    }

    /// The next header; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Header>, ScanError> {
        let corrupt = |reason| ScanError::Corrupt { position: self.position, reason };
        if self.position >= self.end {
            return Ok(None);
        }
        let left = self.end - self.position;
        if left < BATCH_OVERHEAD as u64 {
            return Err(corrupt(format!("{left} bytes are left, less than a batch header")));
        }
        let ahead = (self.position - self.chunk_at) as usize;
        let within = if ahead + BATCH_OVERHEAD <= self.chunk_len {
            ahead
        } else {
            let want = left.min(CHUNK as u64) as usize;
            self.chunk_len = self.file.read_at(&mut self.chunk[..want], self.position).map_err(ScanError::Io)?;
            self.chunk_at = self.position;
            0
        };
        let bytes = self.chunk[..self.chunk_len].get(within..).and_then(|rest| rest.first_chunk());
        let bytes = bytes.ok_or_else(|| corrupt("the file ends inside of a batch header".to_owned()))?;
        let header = Header::parse(bytes, self.position, self.end).map_err(corrupt)?;
        self.position = header.end();
        Ok(Some(header))
    }

    /// What the batch of `header` says if it is a transaction marker.
    pub(crate) fn end_transaction(&self, header: &Header) -> io::Result<Option<EndTransaction>> {
        if !header.may_be_marker() {
            return Ok(None);
        }
        let mut bytes = [0; MOST_MARKER];
        let bytes = &mut bytes[..header.size as usize];
        let read = self.file.read_at(bytes, header.position)?;
        Ok(Batch::parse(&bytes[..read]).ok().and_then(|batch| EndTransaction::of(&batch)))
    }
}
