//! Where the fields of a batch's header stand. Nothing else knows.

/// Bytes of the batch header; the records begin here.
pub const BATCH_OVERHEAD: usize = 61;
/// Bytes of base offset and length field, which have the same place in every record format. The length field counts what follows them.
pub const LOG_OVERHEAD: usize = 12;
/// The magic of record batches.
pub const MAGIC: i8 = 2;
/// Producer id of a batch from a producer that is not idempotent.
pub const NO_PRODUCER_ID: i64 = -1;
/// Epoch of a batch without producer.
pub const NO_PRODUCER_EPOCH: i16 = -1;

/// Where the length field stands in a batch; the base offset is in front of it.
pub const LENGTH_AT: usize = 8;
/// Where the leader's epoch stands in a batch.
pub const LEADER_EPOCH_AT: usize = 12;
/// Where the magic stands in a batch.
pub const MAGIC_AT: usize = 16;
/// Where the checksum stands in a batch.
pub const CRC_AT: usize = 17;
/// Where the attributes stand in a batch, and with them what the checksum covers begins.
pub const ATTRIBUTES_AT: usize = 21;
/// Where the last offset delta stands in a batch.
pub const LAST_OFFSET_DELTA_AT: usize = 23;
/// Where the base timestamp stands in a batch.
pub const BASE_TIMESTAMP_AT: usize = 27;
/// Where the largest timestamp stands in a batch.
pub const MAX_TIMESTAMP_AT: usize = 35;
/// Where the producer id stands in a batch.
pub const PRODUCER_ID_AT: usize = 43;
/// Where the producer epoch stands in a batch.
pub const PRODUCER_EPOCH_AT: usize = 51;
/// Where the base sequence stands in a batch.
pub const BASE_SEQUENCE_AT: usize = 53;
/// Where the number of records stands in a batch.
pub const COUNT_AT: usize = 57;

/// Bits of the attributes that name the codec.
pub const CODEC_MASK: i16 = 0x07;
/// Bit of the attributes: timestamps are the broker's.
pub const LOG_APPEND_TIME_BIT: i16 = 0x08;
/// Bit of the attributes: the batch belongs to a transaction.
pub const TRANSACTIONAL_BIT: i16 = 0x10;
/// Bit of the attributes: the batch holds a control record.
pub const CONTROL_BIT: i16 = 0x20;
/// Bit of the attributes: the delete horizon stands in the place of the base timestamp.
pub const DELETE_HORIZON_BIT: i16 = 0x40;
/// All of these bits; the others have no meaning.
pub const KNOWN_BITS: i16 = 0x7f;
