//! The borrowed view of one record batch: its 61-byte header and where its records are. Reading the records lives in `record`,
//! changing the header in `batch_mut`.

use crate::error::BatchError;
use crate::layout::{
    ATTRIBUTES_AT, BASE_SEQUENCE_AT, BASE_TIMESTAMP_AT, BATCH_OVERHEAD, CODEC_MASK, CONTROL_BIT, COUNT_AT, CRC_AT,
    DELETE_HORIZON_BIT, LAST_OFFSET_DELTA_AT, LEADER_EPOCH_AT, LOG_APPEND_TIME_BIT, MAGIC, MAX_TIMESTAMP_AT,
    NO_PRODUCER_ID, PRODUCER_EPOCH_AT, PRODUCER_ID_AT, TRANSACTIONAL_BIT,
};
use crate::{crc, split};

/// Codec of a batch's records, by its id in bits 0 to 2 of the attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Compression {
    /// Records as they are.
    #[default]
    None,
    /// RFC 1952.
    Gzip,
    /// Snappy blocks, raw or in xerial framing.
    Snappy,
    /// LZ4 frames of independent blocks.
    Lz4,
    /// Zstandard frames.
    Zstd,
}

impl Compression {
    /// Every codec, in the order of their ids.
    pub const ALL: [Compression; 5] =
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

    /// The codec of an id; `None` for the unused ids 5 to 7 and everything that is no id.
    pub fn from_id(id: i16) -> Option<Compression> {
        usize::try_from(id).ok().and_then(|index| Self::ALL.get(index)).copied()
    }

    /// The id as bits 0 to 2 of the attributes.
    pub fn id(self) -> i16 {
        match self {
            Compression::None => 0,
            Compression::Gzip => 1,
            Compression::Snappy => 2,
            Compression::Lz4 => 3,
            Compression::Zstd => 4,
        }
    }

    /// Kafka's name of the codec: `none`, `gzip`, `snappy`, `lz4`, `zstd`.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    /// The codec of a name as [`name`](Self::name) gives it.
    pub fn from_name(name: &str) -> Option<Compression> {
        Self::ALL.into_iter().find(|codec| codec.name() == name)
    }
}

/// What a batch's timestamps mean, bit 3 of the attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TimestampType {
    /// Each record has the stamp that its producer gave.
    #[default]
    CreateTime,
    /// Every record has the batch's maximum timestamp, the leader's clock at the append.
    LogAppendTime,
}

/// One whole record batch of magic 2.
///
/// The length field agrees with the bytes, which are at least [`BATCH_OVERHEAD`]. Nothing else is checked: neither the CRC nor
/// that the fields make sense.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Batch<'a>(&'a [u8]);

impl<'a> Batch<'a> {
    /// The view of exactly one batch.
    ///
    /// # Errors
    /// What [`batches`](crate::batches) gives for a piece that is no whole batch of magic 2, and [`BatchError::TrailingBytes`]
    /// when bytes follow the batch.
    pub fn parse(bytes: &'a [u8]) -> Result<Batch<'a>, BatchError> {
        let batch = split::first_batch(bytes)?;
        if batch.size() != bytes.len() {
            return Err(BatchError::TrailingBytes { expected: batch.size(), available: bytes.len() });
        }
        Ok(batch)
    }

    /// `bytes` have passed the checks that this type promises.
    pub(crate) fn of_checked(bytes: &'a [u8]) -> Batch<'a> {
        assert!(bytes.len() >= BATCH_OVERHEAD, "a batch of {} bytes has no header", bytes.len());
        Batch(bytes)
    }

    #[inline]
    fn field<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.0[at..at + N]);
        field
    }

    /// The whole batch, header included.
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Size of the whole batch in bytes, length field and base offset included.
    pub fn size(&self) -> usize {
        self.0.len()
    }

    /// Offset of the record with offset delta 0. A producer sends 0, the leader writes the log end offset.
    #[inline]
    pub fn base_offset(&self) -> i64 {
        i64::from_be_bytes(self.field(0))
    }

    /// Offset of the last record: base offset plus last offset delta (wrapping, as hostile headers can).
    #[inline]
    pub fn last_offset(&self) -> i64 {
        self.base_offset().wrapping_add(i64::from(self.last_offset_delta()))
    }

    /// Offset that follows the batch.
    #[inline]
    pub fn next_offset(&self) -> i64 {
        self.last_offset().wrapping_add(1)
    }

    /// Epoch of the leader that appended the batch; -1 from a producer.
    #[inline]
    pub fn partition_leader_epoch(&self) -> i32 {
        i32::from_be_bytes(self.field(LEADER_EPOCH_AT))
    }

    /// Always 2.
    pub fn magic(&self) -> i8 {
        MAGIC
    }

    /// The stored checksum; not compared with the bytes.
    #[inline]
    pub fn crc(&self) -> u32 {
        u32::from_be_bytes(self.field(CRC_AT))
    }

    /// All 16 attribute bits, the unused ones as they came.
    #[inline]
    pub fn attributes(&self) -> i16 {
        i16::from_be_bytes(self.field(ATTRIBUTES_AT))
    }

    /// Codec of the records; `None` for the unused ids 5 to 7.
    #[inline]
    pub fn compression(&self) -> Option<Compression> {
        Compression::from_id(self.attributes() & CODEC_MASK)
    }

    /// Whose stamps the records have.
    #[inline]
    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes() & LOG_APPEND_TIME_BIT == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Written within a transaction (markers too).
    #[inline]
    pub fn is_transactional(&self) -> bool {
        self.attributes() & TRANSACTIONAL_BIT != 0
    }

    /// Holds a control record (transaction marker, quorum record), which consumers do not see.
    #[inline]
    pub fn is_control(&self) -> bool {
        self.attributes() & CONTROL_BIT != 0
    }

    /// When the cleaner may drop the tombstones and markers in here, ms since 1970; kept in the base timestamp's place.
    pub fn delete_horizon(&self) -> Option<i64> {
        (self.attributes() & DELETE_HORIZON_BIT != 0).then(|| self.base_timestamp())
    }

    /// Last offset minus base offset. Compaction removes records but never changes it.
    #[inline]
    pub fn last_offset_delta(&self) -> i32 {
        i32::from_be_bytes(self.field(LAST_OFFSET_DELTA_AT))
    }

    /// What the records' timestamp deltas count from, ms since 1970; need not be the smallest stamp.
    #[inline]
    pub fn base_timestamp(&self) -> i64 {
        i64::from_be_bytes(self.field(BASE_TIMESTAMP_AT))
    }

    /// Largest stamp of the records, or the append time, ms since 1970; -1 without stamps.
    #[inline]
    pub fn max_timestamp(&self) -> i64 {
        i64::from_be_bytes(self.field(MAX_TIMESTAMP_AT))
    }

    /// Producer id, [`NO_PRODUCER_ID`] when not idempotent.
    #[inline]
    pub fn producer_id(&self) -> i64 {
        i64::from_be_bytes(self.field(PRODUCER_ID_AT))
    }

    /// Producer epoch, -1 when not idempotent.
    #[inline]
    pub fn producer_epoch(&self) -> i16 {
        i16::from_be_bytes(self.field(PRODUCER_EPOCH_AT))
    }

    /// Sequence of the first record, -1 without one.
    #[inline]
    pub fn base_sequence(&self) -> i32 {
        i32::from_be_bytes(self.field(BASE_SEQUENCE_AT))
    }

    /// Sequence of the last record; after 2^31-1 comes 0. -1 without a base sequence.
    pub fn last_sequence(&self) -> i32 {
        let (base, delta) = (self.base_sequence(), self.last_offset_delta());
        if base == -1 { -1 } else { add_sequence(base, delta) }
    }

    /// Has a producer id.
    pub fn has_producer_id(&self) -> bool {
        self.producer_id() > NO_PRODUCER_ID
    }

    /// The header's number of records; not compared with the records that are there.
    #[inline]
    pub fn count(&self) -> i32 {
        i32::from_be_bytes(self.field(COUNT_AT))
    }

    /// The records, compressed as [`compression`](Self::compression) says.
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        &self.0[BATCH_OVERHEAD..]
    }

    /// CRC-32C over everything the checksum covers: byte 21 to the end.
    pub fn computed_crc(&self) -> u32 {
        crc::crc32c(&self.0[ATTRIBUTES_AT..])
    }

    /// Compares the stored checksum with the bytes.
    ///
    /// # Errors
    /// [`BatchError::Crc`] with both values.
    pub fn verify_crc(&self) -> Result<(), BatchError> {
        let (stored, computed) = (self.crc(), self.computed_crc());
        if stored == computed { Ok(()) } else { Err(BatchError::Crc { stored, computed }) }
    }
}

impl std::fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("base_offset", &self.base_offset())
            .field("size", &self.size())
            .field("partition_leader_epoch", &self.partition_leader_epoch())
            .field("crc", &format_args!("{:#010x}", self.crc()))
            .field("attributes", &format_args!("{:#06x}", self.attributes()))
            .field("last_offset_delta", &self.last_offset_delta())
            .field("base_timestamp", &self.base_timestamp())
            .field("max_timestamp", &self.max_timestamp())
            .field("producer_id", &self.producer_id())
            .field("producer_epoch", &self.producer_epoch())
            .field("base_sequence", &self.base_sequence())
            .field("count", &self.count())
            .finish()
    }
}

/// `sequence` advanced by `increment` records: 0 follows 2^31-1.
///
/// Both are non-negative in sound batches; others wrap without meaning.
pub fn add_sequence(sequence: i32, increment: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(increment);
    if sum > i64::from(i32::MAX) { (sum - i64::from(i32::MAX) - 1) as i32 } else { sum as i32 }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
