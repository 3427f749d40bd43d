//! The reusable decompressor: its output buffer with the byte limit, and the choice of the codec's stream. A stream appends one piece
//! at a time, so the same code fills a buffer with the whole body or walks over it in a small window.

use super::CompressionError;
use super::gzip::{GzipContext, GzipStream};
use super::lz4::Lz4Stream;
use super::snappy::SnappyStream;
use super::zstd::{ZstdContext, ZstdStream};
use crate::Compression;

/// A larger buffer is given back to the system before the next use.
const RETAINED_BUFFER: usize = 8 << 20;
const FIRST_BUFFER: usize = 64 << 10;

/// Contexts and output buffer for reading compressed bodies, reused from batch to batch; one a thread.
///
/// Never produces more than its limit, whatever a body announces.
#[derive(Debug)]
pub struct Decompressor {
    limit: usize,
    max_record_size: i32,
    output: Output,
    gzip: GzipContext,
    snappy: snap::raw::Decoder,
    zstd: ZstdContext,
}

impl Decompressor {
    /// A decompressor that refuses bodies of more than `limit` decompressed bytes. Contexts are made at first use.
    pub fn new(limit: usize) -> Decompressor {
        Decompressor {
            limit,
            max_record_size: i32::MAX,
            output: Output::default(),
            gzip: GzipContext::default(),
            snappy: snap::raw::Decoder::new(),
            zstd: ZstdContext::default(),
        }
    }

    /// Most decompressed bytes of one body.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Changes the limit for the bodies to come.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Bytes that all bodies so far were decompressed to, except for those that went to other outputs. A piece that failed
    /// counts with all of its room.
    pub fn produced(&self) -> u64 {
        self.output.in_all()
    }

    /// Longest record, by its length field, that a compressed body may hold; any by default.
    pub fn max_record_size(&self) -> i32 {
        self.max_record_size
    }

    /// Sets the longest record for the bodies to come: `max.decompressed.message.bytes` of the topic.
    pub fn set_max_record_size(&mut self, bytes: i32) {
        self.max_record_size = bytes;
    }

    /// The whole decompressed body: in this decompressor's buffer, or `body` itself when it is not compressed.
    ///
    /// # Errors
    /// [`CompressionError::LimitExceeded`] as soon as the limit is passed; [`CompressionError::Malformed`].
    pub fn decompress<'r>(&'r mut self, codec: Compression, body: &'r [u8]) -> Result<&'r [u8], CompressionError> {
        let Some((mut stream, output)) = self.open(codec, body) else { return Ok(body) };
        while stream.next_piece(output)? {}
        Ok(output.filled())
    }

    /// Appends the whole decompressed body to what `output` holds; `body` itself when it is not compressed. The limit is this
    /// body's alone. After an error, what was appended has no meaning; [`Output::truncate`] takes it away.
    ///
    /// # Errors
    /// As [`decompress`](Self::decompress).
    pub fn append(&mut self, codec: Compression, body: &[u8], output: &mut Output) -> Result<(), CompressionError> {
        (output.produced, output.limit) = (0, self.limit);
        match stream(codec, body, &mut self.gzip, &mut self.snappy, &mut self.zstd) {
            Some(mut stream) => while stream.next_piece(output)? {},
            None => {
                let space = output.space(body.len());
                let taken = space.len();
                space.copy_from_slice(&body[..taken]);
                output.advance(taken)?;
            }
        }
        Ok(())
    }

    /// The stream of `body` and where its pieces go; `None` when it is not compressed.
    pub(crate) fn open<'r>(&'r mut self, codec: Compression, body: &'r [u8]) -> Option<(Stream<'r>, &'r mut Output)> {
        self.output.start(self.limit);
        let stream = stream(codec, body, &mut self.gzip, &mut self.snappy, &mut self.zstd)?;
        Some((stream, &mut self.output))
    }

    /// Bytes that the output buffer holds on to.
    #[cfg(test)]
    pub(crate) fn buffer_size(&self) -> usize {
        self.output.buffer.capacity()
    }
}

/// The stream of `body`; `None` when it is not compressed.
fn stream<'r>(
    codec: Compression,
    body: &'r [u8],
    gzip: &'r mut GzipContext,
    snappy: &'r mut snap::raw::Decoder,
    zstd: &'r mut ZstdContext,
) -> Option<Stream<'r>> {
    match codec {
        Compression::None => None,
        Compression::Gzip => Some(Stream::Gzip(GzipStream::new(gzip, body))),
        Compression::Snappy => Some(Stream::Snappy(SnappyStream::new(snappy, body))),
        Compression::Lz4 => Some(Stream::Lz4(Lz4Stream::new(body))),
        Compression::Zstd => Some(Stream::Zstd(ZstdStream::new(zstd, body))),
    }
}

/// One body on its way through its codec.
#[derive(Debug)]
pub(crate) enum Stream<'a> {
    Gzip(GzipStream<'a>),
    Snappy(SnappyStream<'a>),
    Lz4(Lz4Stream<'a>),
    Zstd(ZstdStream<'a>),
}

impl Stream<'_> {
    /// Appends the next piece to `output`; false when the body is at its end. A piece may be empty.
    pub(crate) fn next_piece(&mut self, output: &mut Output) -> Result<bool, CompressionError> {
        match self {
            Stream::Gzip(stream) => stream.next_piece(output),
            Stream::Snappy(stream) => stream.next_piece(output),
            Stream::Lz4(stream) => stream.next_piece(output),
            Stream::Zstd(stream) => stream.next_piece(output),
        }
    }
}

/// Bytes that were decompressed, and room for more. Where [`Decompressor::append`] puts them, to be used again and again.
#[derive(Debug, Default)]
pub struct Output {
    buffer: Vec<u8>,
    filled: usize,
    produced: usize,
    limit: usize,
    /// Produced by earlier bodies.
    before: u64,
    /// Length of the space that was given out and has not been filled.
    given: usize,
}

impl Output {
    fn start(&mut self, limit: usize) {
        (self.before, self.given) = (self.in_all(), 0);
        if self.buffer.len() > RETAINED_BUFFER {
            self.buffer = Vec::new();
        }
        (self.filled, self.produced, self.limit) = (0, 0, limit);
    }

    fn in_all(&self) -> u64 {
        self.before + (self.produced + self.given) as u64
    }

    /// What is there.
    pub fn filled(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    /// Drops all but the first `len` bytes; nothing if there are fewer.
    pub fn truncate(&mut self, len: usize) {
        self.filled = self.filled.min(len);
    }

    /// Bytes of memory that it takes.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Drops what is there, to use its place again.
    pub fn clear(&mut self) {
        self.filled = 0;
    }

    /// How many bytes may still be produced.
    pub(super) fn room(&self) -> usize {
        self.limit - self.produced
    }

    /// Place for `wanted` more bytes, or for one more than the limit leaves: filling that one is how a stream notices it.
    pub(super) fn space(&mut self, wanted: usize) -> &mut [u8] {
        let end = self.filled + wanted.min(self.room().saturating_add(1));
        if self.buffer.len() < end {
            let len = end.max(FIRST_BUFFER).max(self.buffer.len().saturating_mul(2).min(self.limit.saturating_add(1)));
            self.buffer.resize(len, 0);
        }
        self.given = end - self.filled;
        &mut self.buffer[self.filled..end]
    }

    /// `bytes` more of the space are filled.
    pub(super) fn advance(&mut self, bytes: usize) -> Result<(), CompressionError> {
        if bytes > self.room() {
            return Err(self.exceeded());
        }
        self.filled += bytes;
        self.produced += bytes;
        self.given = 0;
        Ok(())
    }

    pub(super) fn exceeded(&self) -> CompressionError {
        CompressionError::LimitExceeded { limit: self.limit }
    }
}
