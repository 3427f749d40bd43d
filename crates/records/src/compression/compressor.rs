//! The reusable compressor: the contexts of the codecs that have one, and the choice between the codecs.

use super::gzip::Deflater;
use super::zstd::ZstdCompressor;
use super::{CompressionError, lz4, snappy};
use crate::Compression;

/// Contexts for writing compressed bodies, reused from batch to batch; one a thread.
#[derive(Debug)]
pub struct Compressor {
    gzip: Deflater,
    snappy: snap::raw::Encoder,
    zstd: ZstdCompressor,
}

impl Compressor {
    /// A compressor whose contexts are made at first use.
    pub fn new() -> Compressor {
        Compressor { gzip: Deflater::default(), snappy: snap::raw::Encoder::new(), zstd: ZstdCompressor::default() }
    }

    /// Appends `input` to `out`, compressed as the Java client would.
    ///
    /// `level` is the topic's `compression.<codec>.level`; see [`Compression::levels`] and [`Compression::default_level`]. Codecs
    /// without levels ignore it.
    ///
    /// # Errors
    /// [`CompressionError::Failed`] when the codec's library gives up; `out` may then end with a part of the body.
    pub fn compress(
        &mut self,
        codec: Compression,
        level: i32,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), CompressionError> {
        match codec {
            Compression::None => {
                out.extend_from_slice(input);
                Ok(())
            }
            Compression::Gzip => self.gzip.compress(input, level, out),
            Compression::Snappy => snappy::compress(&mut self.snappy, input, out),
            Compression::Lz4 => lz4::compress(input, level, out),
            Compression::Zstd => self.zstd.compress(input, level, out),
        }
    }
}

impl Default for Compressor {
    fn default() -> Compressor {
        Compressor::new()
    }
}
