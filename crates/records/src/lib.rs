//! Record batch v2: views, builder, compression, checksum.
//!
//! What lives here: everything that reads or writes the bytes of a record batch (magic 2). What does not: segments, indexes,
//! producer state, and the error codes that a broker answers with.

mod batch;
mod batch_mut;
mod crc;
mod error;
mod split;
pub mod varint;

pub use batch::{BATCH_OVERHEAD, Batch, Compression, LOG_OVERHEAD, MAGIC, NO_PRODUCER_ID, TimestampType, add_sequence};
pub use batch_mut::BatchMut;
pub use crc::crc32c;
pub use error::BatchError;
pub use split::{Batches, MIN_LENGTH_FIELD, batch_size, batches};
