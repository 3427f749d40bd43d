//! Snappy blocks, raw (one block is the whole body) or in the framing of the xerial library: a 16-byte header, then chunks of a
//! big-endian length and a raw block. Java's client writes and expects xerial; raw is read too.

use super::decompressor::Output;
use super::{CompressionError, four_bytes};
use crate::Compression;

const XERIAL_MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
const XERIAL_HEADER: usize = 16;
const XERIAL_VERSION: i32 = 1;
const WRITTEN_CHUNK: usize = 32 << 10;
/// A copy element of three bytes makes 64 at the most.
const MOST_EXPANSION: usize = 22;

fn malformed(what: &'static str) -> CompressionError {
    CompressionError::Malformed { codec: Compression::Snappy, what }
}

/// A body on its way through the decoder, one chunk a piece.
#[derive(Debug)]
pub(crate) struct SnappyStream<'a> {
    decoder: &'a mut snap::raw::Decoder,
    input: &'a [u8],
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Chunks,
    End,
}

impl<'a> SnappyStream<'a> {
    pub(super) fn new(decoder: &'a mut snap::raw::Decoder, input: &'a [u8]) -> SnappyStream<'a> {
        SnappyStream { decoder, input, state: State::Start }
    }

    pub(super) fn next_piece(&mut self, output: &mut Output) -> Result<bool, CompressionError> {
        if self.state == State::Start {
            self.state = if self.take_xerial_header() { State::Chunks } else { State::End };
            if self.state == State::End {
                let whole = std::mem::take(&mut self.input);
                self.decompress_block(whole, output)?;
                return Ok(true);
            }
        }
        if self.state == State::End {
            return Ok(false);
        }
        // Fewer than four bytes behind the last chunk are no chunk and no error for the xerial library.
        let Some(length) = four_bytes(self.input, 0) else { return Ok(false) };
        if length == XERIAL_MAGIC[..4] {
            return if self.take_xerial_header() {
                Ok(true)
            } else {
                Err(malformed("header within the chunks is cut"))
            };
        }
        let length = usize::try_from(i32::from_be_bytes(length)).map_err(|_| malformed("chunk length is negative"))?;
        let chunk = self.input[4..].get(..length).ok_or(malformed("chunk is cut"))?;
        self.input = &self.input[4 + length..];
        self.decompress_block(chunk, output)?;
        Ok(true)
    }

    /// Takes a header away if one stands here. Kafka reads bodies of every version that a header can name.
    fn take_xerial_header(&mut self) -> bool {
        let header = self.input.split_at_checked(XERIAL_HEADER).filter(|(header, _)| header[..8] == XERIAL_MAGIC);
        let Some((_, rest)) = header else { return false };
        self.input = rest;
        true
    }

    fn decompress_block(&mut self, block: &[u8], output: &mut Output) -> Result<(), CompressionError> {
        let broken = malformed("block cannot be decompressed");
        let length = snap::raw::decompress_len(block).map_err(|_| broken)?;
        if length > block.len().saturating_mul(MOST_EXPANSION) {
            return Err(malformed("block announces more than its bytes can hold"));
        }
        if length > output.room() {
            return Err(output.exceeded());
        }
        let written = self.decoder.decompress(block, output.space(length)).map_err(|_| broken)?;
        output.advance(written)
    }
}

/// Appends `input` in xerial framing with chunks of 32 KiB.
pub(super) fn compress(
    encoder: &mut snap::raw::Encoder,
    input: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    let failed = CompressionError::Failed { codec: Compression::Snappy };
    out.extend_from_slice(&XERIAL_MAGIC);
    out.extend_from_slice(&XERIAL_VERSION.to_be_bytes());
    out.extend_from_slice(&XERIAL_VERSION.to_be_bytes());
    for chunk in input.chunks(WRITTEN_CHUNK) {
        let at = out.len();
        out.resize(at + 4 + snap::raw::max_compress_len(chunk.len()), 0);
        let length = encoder.compress(chunk, &mut out[at + 4..]).map_err(|_| failed)?;
        out.truncate(at + 4 + length);
        let field = u32::try_from(length).map_err(|_| failed)?;
        out[at..at + 4].copy_from_slice(&field.to_be_bytes());
    }
    Ok(())
}
