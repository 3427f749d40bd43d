//! Record batch v2: views, builder, compression, checksum.
//!
//! What lives here: everything that reads or writes the bytes of a record batch (magic 2). What does not: segments, indexes,
//! producer state, and the error codes that a broker answers with.

mod batch;
mod batch_mut;
mod builder;
mod compression;
mod control;
mod crc;
mod error;
pub mod layout;
mod rebuild;
mod record;
mod record_error;
mod split;
pub mod validate;
pub mod varint;

pub use batch::{Batch, Compression, TimestampType, add_sequence};
pub use batch_mut::BatchMut;
pub use builder::{BatchBuilder, BuildError, HeaderSource};
pub use compression::{CompressionError, Compressor, Decompressor, Output};
pub use control::{ControlType, EndTransaction, coordinator_epoch, end_transaction_marker};
pub use crc::crc32c;
pub use error::BatchError;
pub use layout::{BATCH_OVERHEAD, LOG_OVERHEAD, MAGIC, NO_PRODUCER_EPOCH, NO_PRODUCER_ID};
pub use rebuild::{RebuildError, RebuildTarget, rebuild};
pub use record::{Header, HeaderIter, Headers, Record, Records};
pub use record_error::{RecordError, RecordFault};
pub use split::{Batches, MIN_LENGTH_FIELD, batch_size, batches};
