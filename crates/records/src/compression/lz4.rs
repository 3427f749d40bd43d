//! LZ4 frames as Kafka's clients write them: independent blocks of up to 64 KiB, no checksums but the header's. Read are also larger
//! blocks, a content size, block checksums (compared) and a content checksum (skipped, as Kafka does); linked blocks, dictionaries and
//! a wrong header checksum are refused. Bytes behind the end mark are ignored.

use super::decompressor::Output;
use super::{CompressionError, four_bytes};
use crate::Compression;
use lz4::block::CompressionMode;
use twox_hash::XxHash32;

pub(super) const DEFAULT_LEVEL: i32 = 9;

const MAGIC: [u8; 4] = 0x184d_2204_u32.to_le_bytes();
const VERSION_MASK: u8 = 0xc0;
const VERSION: u8 = 0x40;
const INDEPENDENT_BLOCKS: u8 = 0x20;
const BLOCK_CHECKSUM: u8 = 0x10;
const CONTENT_SIZE: u8 = 0x08;
const RESERVED_OR_DICTIONARY: u8 = 0x03;
/// Block maximum of 64 KiB in the block descriptor byte.
const DESCRIPTOR_64_KIB: u8 = 0x40;
const WRITTEN_BLOCK: usize = 64 << 10;
/// Bit of a block's size that says its bytes are not compressed.
const STORED: u32 = 0x8000_0000;
const CHECKSUM: usize = 4;

fn malformed(what: &'static str) -> CompressionError {
    CompressionError::Malformed { codec: Compression::Lz4, what }
}

/// A frame on its way through the decoder, one block a piece.
#[derive(Debug)]
pub(crate) struct Lz4Stream<'a> {
    input: &'a [u8],
    frame: Option<Frame>,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    max_block: usize,
    block_checksums: bool,
}

impl<'a> Lz4Stream<'a> {
    pub(super) fn new(input: &'a [u8]) -> Lz4Stream<'a> {
        Lz4Stream { input, frame: None }
    }

    pub(super) fn next_piece(&mut self, output: &mut Output) -> Result<bool, CompressionError> {
        let frame = match self.frame {
            Some(frame) => frame,
            None => {
                let frame = self.header()?;
                *self.frame.insert(frame)
            }
        };
        let size = u32::from_le_bytes(four_bytes(self.input, 0).ok_or(malformed("end mark is missing"))?);
        let length = (size & !STORED) as usize;
        if length == 0 {
            return Ok(false);
        }
        if length > frame.max_block {
            return Err(malformed("block is larger than the frame's maximum"));
        }
        let block = self.input[4..].get(..length).ok_or(malformed("block is cut"))?;
        self.input = &self.input[4 + length..];
        if frame.block_checksums {
            let stored = four_bytes(self.input, 0).ok_or(malformed("block checksum is cut"))?;
            if XxHash32::oneshot(0, block) != u32::from_le_bytes(stored) {
                return Err(malformed("block checksum does not fit"));
            }
            self.input = &self.input[CHECKSUM..];
        }
        if size & STORED == 0 { decompress_block(block, frame.max_block, output) } else { copy_block(block, output) }?;
        Ok(true)
    }

    fn header(&mut self) -> Result<Frame, CompressionError> {
        let cut = malformed("frame header is cut");
        if self.input.get(..4).ok_or(cut)? != MAGIC {
            return Err(malformed("no frame magic"));
        }
        let flags = *self.input.get(4).ok_or(cut)?;
        let descriptor = *self.input.get(5).ok_or(cut)?;
        if flags & VERSION_MASK != VERSION || flags & RESERVED_OR_DICTIONARY != 0 {
            return Err(malformed("unsupported frame version or flag"));
        }
        if flags & INDEPENDENT_BLOCKS == 0 {
            return Err(malformed("linked blocks are not supported"));
        }
        let max_block = match descriptor {
            0x40 => 64 << 10,
            0x50 => 256 << 10,
            0x60 => 1 << 20,
            0x70 => 4 << 20,
            _ => return Err(malformed("unsupported block maximum")),
        };
        let end = if flags & CONTENT_SIZE == 0 { 6 } else { 14 };
        let checksum = *self.input.get(end).ok_or(cut)?;
        if header_checksum(&self.input[4..end]) != checksum {
            return Err(malformed("header checksum does not fit"));
        }
        self.input = &self.input[end + 1..];
        Ok(Frame { max_block, block_checksums: flags & BLOCK_CHECKSUM != 0 })
    }
}

/// Second byte of the hash over the frame descriptor.
fn header_checksum(descriptor: &[u8]) -> u8 {
    XxHash32::oneshot(0, descriptor).to_le_bytes()[1]
}

fn decompress_block(block: &[u8], max_block: usize, output: &mut Output) -> Result<(), CompressionError> {
    let exceeded = output.exceeded();
    let space = output.space(max_block);
    let (whole, size) = (space.len() == max_block, space.len() as i32);
    match lz4::block::decompress_to_buffer(block, Some(size), space) {
        Ok(length) => output.advance(length),
        Err(_) if whole => Err(malformed("block cannot be decompressed")),
        Err(_) => Err(exceeded),
    }
}

fn copy_block(block: &[u8], output: &mut Output) -> Result<(), CompressionError> {
    if block.len() > output.room() {
        return Err(output.exceeded());
    }
    output.space(block.len()).copy_from_slice(block);
    output.advance(block.len())
}

/// Appends one frame with `input`. The default level is LZ4's fast mode, every other level its high-compression mode.
pub(super) fn compress(input: &[u8], level: i32, out: &mut Vec<u8>) -> Result<(), CompressionError> {
    let failed = CompressionError::Failed { codec: Compression::Lz4 };
    let mode = if level == DEFAULT_LEVEL {
        CompressionMode::DEFAULT
    } else {
        CompressionMode::HIGHCOMPRESSION(level.clamp(1, 12))
    };
    let descriptor = [VERSION | INDEPENDENT_BLOCKS, DESCRIPTOR_64_KIB];
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&descriptor);
    out.push(header_checksum(&descriptor));
    for block in input.chunks(WRITTEN_BLOCK) {
        let at = out.len();
        let bound = lz4::block::compress_bound(block.len()).map_err(|_| failed)?;
        out.resize(at + 4 + bound, 0);
        let length =
            lz4::block::compress_to_buffer(block, Some(mode), false, &mut out[at + 4..]).map_err(|_| failed)?;
        let size = if length < block.len() {
            out.truncate(at + 4 + length);
            length as u32
        } else {
            out.truncate(at + 4);
            out.extend_from_slice(block);
            block.len() as u32 | STORED
        };
        out[at..at + 4].copy_from_slice(&size.to_le_bytes());
    }
    out.extend_from_slice(&[0; 4]);
    Ok(())
}
