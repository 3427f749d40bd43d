//! Compressed payloads that are wrong, or right in another way than the usual one.

use std::io::Write;

use anyhow::Result;
use lz4_flex::frame::{BlockMode, FrameEncoder, FrameInfo};

use crate::batch::Codec;

/// Where a frame of lz4 keeps its header checksum when it has no content size.
const LZ4_HEADER_CHECKSUM: usize = 6;

/// The payload of a case for the records `plain`, or `None` for a case that is not known.
pub(super) fn odd(codec: Codec, what: &str, plain: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut good = codec.compress(plain)?;
    Ok(Some(match (codec, what) {
        (_, "plain-payload") => plain.to_vec(),
        (_, "garbage") => (0..60u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect(),
        (_, "flipped") => {
            // The cases were made with a zstd that gives the content's size.
            let middle = good.len() / 2 + usize::from(codec == Codec::Zstd);
            good[middle] ^= 0x55;
            good
        }
        (Codec::Gzip, "trailing-garbage") => [&good[..], b"garbage"].concat(),
        (Codec::Gzip, "cut6") => good[..good.len() - 6].to_vec(),
        (Codec::Gzip, "bad-crc") => {
            let at = good.len() - 8;
            good[at] ^= 0xff;
            good
        }
        (Codec::Snappy, "raw") => snap::raw::Encoder::new().compress_vec(plain)?,
        (Codec::Snappy, "xerial-two-chunks") => xerial(plain, plain.len().div_ceil(2))?,
        (Codec::Snappy, "xerial-tiny-chunks") => xerial(plain, 1)?,
        (Codec::Lz4, "content-checksum") => lz4(FrameInfo::new().content_checksum(true), plain)?,
        (Codec::Lz4, "content-size") => lz4(FrameInfo::new().content_size(Some(plain.len() as u64)), plain)?,
        (Codec::Lz4, "linked-blocks") => lz4(FrameInfo::new().block_mode(BlockMode::Linked), plain)?,
        (Codec::Lz4, "no-end-mark") => good[..good.len() - 4].to_vec(),
        (Codec::Lz4, "bad-header-checksum") => {
            good[LZ4_HEADER_CHECKSUM] ^= 0xff;
            good
        }
        (Codec::Gzip | Codec::Lz4 | Codec::Zstd, "two-frames") => {
            let (first, second) = plain.split_at(plain.len() / 2);
            [codec.compress(first)?, codec.compress(second)?].concat()
        }
        (Codec::Zstd, "skippable") => {
            let mut frame = 0x184d_2a50u32.to_le_bytes().to_vec();
            frame.extend_from_slice(&4u32.to_le_bytes());
            frame.extend_from_slice(b"skip");
            [frame, good].concat()
        }
        _ => return Ok(None),
    }))
}

/// The framing of the Java library with chunks of this size.
fn xerial(plain: &[u8], chunk: usize) -> Result<Vec<u8>> {
    let mut out = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    for piece in plain.chunks(chunk) {
        let block = snap::raw::Encoder::new().compress_vec(piece)?;
        out.extend_from_slice(&u32::try_from(block.len())?.to_be_bytes());
        out.extend_from_slice(&block);
    }
    Ok(out)
}

fn lz4(info: FrameInfo, plain: &[u8]) -> Result<Vec<u8>> {
    let mut writer = FrameEncoder::with_frame_info(info, Vec::new());
    writer.write_all(plain)?;
    Ok(writer.finish()?)
}
