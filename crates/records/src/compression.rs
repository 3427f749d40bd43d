//! The four codecs of batch bodies, as reusable contexts: [`Decompressor`] and [`Compressor`], one of each a thread. One file a codec
//! below; what the decompressed bytes mean lives in `record` and `validate`.

mod compressor;
mod decompressor;
mod gzip;
mod lz4;
mod snappy;
mod zstd;

pub use compressor::Compressor;
pub(crate) use decompressor::Stream;
pub use decompressor::{Decompressor, Output};

use crate::Compression;
use std::ops::RangeInclusive;

/// A body that cannot be compressed or decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CompressionError {
    /// The body holds more than the limit.
    #[error("decompressed records are longer than the limit of {limit} bytes")]
    LimitExceeded {
        /// The limit, bytes.
        limit: usize,
    },
    /// The bytes are not what the codec writes.
    #[error("{} payload: {what}", codec.name())]
    Malformed {
        /// The codec that the batch names.
        codec: Compression,
        /// What is wrong with them.
        what: &'static str,
    },
    /// The codec's library refused to work: no memory, or bytes beyond its own limits.
    #[error("{} compression failed", codec.name())]
    Failed {
        /// The codec.
        codec: Compression,
    },
}

impl Compression {
    /// The level of `compression.<codec>.level` when nothing else is configured; 0 for codecs without levels.
    pub fn default_level(self) -> i32 {
        match self {
            Compression::None | Compression::Snappy => 0,
            Compression::Gzip => gzip::DEFAULT_LEVEL,
            Compression::Lz4 => lz4::DEFAULT_LEVEL,
            Compression::Zstd => zstd::DEFAULT_LEVEL,
        }
    }

    /// Levels that the topic configuration allows; gzip also has -1, its library's own choice, and not 0.
    pub fn levels(self) -> RangeInclusive<i32> {
        match self {
            Compression::None | Compression::Snappy => 0..=0,
            Compression::Gzip => -1..=9,
            Compression::Lz4 => 1..=17,
            Compression::Zstd => zstd::MIN_LEVEL..=22,
        }
    }
}

/// The big-endian or little-endian 32 bits at `at`, if they are there.
fn four_bytes(bytes: &[u8], at: usize) -> Option<[u8; 4]> {
    let field = bytes.get(at..at.checked_add(4)?)?;
    Some([field[0], field[1], field[2], field[3]])
}

#[cfg(test)]
#[path = "compression/tests.rs"]
mod tests;
