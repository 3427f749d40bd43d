//! Record batches (format version 2): building them before a run, walking them in fetched data.

use std::io::Write;

use anyhow::{Result, bail};
use clap::ValueEnum;
use crc_fast::{CrcAlgorithm, checksum};

use crate::wire::{Put, varint_len};

/// Bytes of a batch before its records.
pub(crate) const HEADER_BYTES: usize = 61;
/// Where the batch length stands; it counts the bytes that follow it.
const LENGTH_AT: usize = 8;
/// Where the CRC-32C stands; it covers everything that follows it.
const CRC_AT: usize = 17;
const CRC_FROM: usize = 21;
const ATTRIBUTES_AT: usize = 21;
/// In the lower byte of the attributes: the batch belongs to a transaction.
const TRANSACTIONAL: u8 = 0x10;
const LAST_OFFSET_DELTA_AT: usize = 23;
const PRODUCER_ID_AT: usize = 43;
const BASE_SEQUENCE_AT: usize = 53;
const COUNT_AT: usize = 57;

/// Compression of a batch's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Codec {
    /// Uncompressed.
    None,
    /// Gzip, level 6.
    Gzip,
    /// Snappy in the framing of xerial's Java library.
    Snappy,
    /// LZ4 frame of independent 64 KiB blocks.
    Lz4,
    /// Zstandard, level 3.
    Zstd,
}

impl Codec {
    /// The codec's number in a batch's attributes.
    fn attribute(self) -> i16 {
        match self {
            Codec::None => 0,
            Codec::Gzip => 1,
            Codec::Snappy => 2,
            Codec::Lz4 => 3,
            Codec::Zstd => 4,
        }
    }

    fn compress(self, plain: Vec<u8>) -> Result<Vec<u8>> {
        Ok(match self {
            Codec::None => plain,
            Codec::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(&plain)?;
                encoder.finish()?
            }
            Codec::Snappy => {
                let mut out = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
                for block in plain.chunks(32 << 10) {
                    let packed = snap::raw::Encoder::new().compress_vec(block)?;
                    out.i32(packed.len() as i32);
                    out.raw(&packed);
                }
                out
            }
            Codec::Lz4 => {
                let info = lz4_flex::frame::FrameInfo::new()
                    .block_size(lz4_flex::frame::BlockSize::Max64KB)
                    .block_mode(lz4_flex::frame::BlockMode::Independent);
                let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
                encoder.write_all(&plain)?;
                encoder.finish()?
            }
            Codec::Zstd => zstd::bulk::compress(&plain, 3)?,
        })
    }
}

/// What a record's value is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Payload {
    /// Incompressible bytes.
    Random,
    /// Zero bytes.
    Zeros,
    /// Text like an event in JSON: it compresses about four to one.
    Json,
}

/// The shape of the batches of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchSpec {
    /// Bytes of a record's value.
    pub record_bytes: usize,
    /// Uncompressed bytes that a batch holds at most; a larger single record still makes a batch.
    pub batch_bytes: usize,
    /// Records of a batch, when fixed; overrides `batch_bytes`.
    pub records: Option<u32>,
    /// Compression.
    pub codec: Codec,
    /// Content of the values.
    pub payload: Payload,
    /// How many keys there are, one of them in each record; null ones without it.
    pub keys: Option<u64>,
}

/// A batch ready to be sent, with its base offset zero.
pub(crate) struct Batch {
    /// The bytes, header included.
    pub bytes: Vec<u8>,
    /// How many records it holds.
    pub records: u32,
}

/// Builds one batch whose content follows from `seed`.
pub(crate) fn build(spec: &BatchSpec, seed: u64) -> Result<Batch> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut plain = Vec::new();
    let mut count = 0u32;
    while wants_more(spec, plain.len(), count) {
        put_record(&mut plain, spec, i64::from(count), &mut random);
        count += 1;
    }
    let packed = spec.codec.compress(plain)?;
    let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis() as i64;

    let mut out = Vec::with_capacity(HEADER_BYTES + packed.len());
    out.i64(0); // base offset: the server's to assign
    out.i32((HEADER_BYTES - LENGTH_AT - 4 + packed.len()) as i32);
    out.i32(-1); // partition leader epoch: the server's to assign
    out.i8(2); // format version
    out.i32(0); // CRC, sealed below
    out.i16(spec.codec.attribute());
    out.i32(count as i32 - 1);
    out.i64(now_ms); // base timestamp
    out.i64(now_ms); // largest timestamp
    out.i64(-1); // producer id
    out.i16(-1); // producer epoch
    out.i32(-1); // base sequence
    out.i32(count as i32);
    out.raw(&packed);
    seal(&mut out);
    Ok(Batch { bytes: out, records: count })
}

fn wants_more(spec: &BatchSpec, bytes: usize, count: u32) -> bool {
    match spec.records {
        Some(records) => count < records,
        // 32 bytes cover a record's own header and key for any value under 128 MiB.
        None => {
            count == 0 || HEADER_BYTES + bytes + spec.record_bytes + spec.keys.map_or(16, |_| 32) <= spec.batch_bytes
        }
    }
}

fn put_record(out: &mut Vec<u8>, spec: &BatchSpec, offset_delta: i64, random: &mut Random) {
    let value_len = spec.record_bytes as i64;
    let key = spec.keys.map(|keys| (random.next() % keys).to_be_bytes());
    // attributes, timestamp delta, length of the key and no headers take one byte each
    let body =
        4 + key.map_or(0, |key| key.len()) + varint_len(offset_delta) + varint_len(value_len) + spec.record_bytes;
    out.varint(body as i64);
    out.i8(0);
    out.varint(0);
    out.varint(offset_delta);
    out.varint(key.map_or(-1, |key| key.len() as i64));
    out.raw(&key.unwrap_or_default()[..key.map_or(0, |key| key.len())]);
    out.varint(value_len);
    put_value(out, spec, random);
    out.varint(0);
}

fn put_value(out: &mut Vec<u8>, spec: &BatchSpec, random: &mut Random) {
    let end = out.len() + spec.record_bytes;
    match spec.payload {
        Payload::Zeros => {}
        Payload::Random => {
            while out.len() < end {
                out.raw(&random.next().to_le_bytes());
            }
        }
        Payload::Json => {
            while out.len() < end {
                let (a, b) = (random.next(), random.next());
                let line = format!(
                    "{{\"event\":\"page_view\",\"user_id\":{},\"session\":\"{a:016x}\",\"path\":\"/shop/item/{}\",\
                     \"status\":200,\"duration_ms\":{},\"country\":\"{}\",\"consent\":true}}\n",
                    a % 1_000_000,
                    b % 5_000,
                    b >> 40 & 0x3ff,
                    ["FI", "DE", "US", "JP", "BR"][(a % 5) as usize],
                );
                out.raw(line.as_bytes());
            }
        }
    }
    out.resize(end, 0);
}

/// Recomputes the CRC-32C of a batch after a change.
pub(crate) fn seal(batch: &mut [u8]) {
    let crc = checksum(CrcAlgorithm::Crc32Iscsi, &batch[CRC_FROM..]) as u32;
    batch[CRC_AT..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
}

/// Makes a batch one of a transaction; its producer and checksum are stamped later.
pub(crate) fn make_transactional(batch: &mut [u8]) {
    batch[ATTRIBUTES_AT + 1] |= TRANSACTIONAL;
}

/// Stamps an idempotent producer's identity and sequence number, and seals the batch.
pub(crate) fn stamp(batch: &mut [u8], producer_id: i64, epoch: i16, sequence: i32) {
    batch[PRODUCER_ID_AT..PRODUCER_ID_AT + 8].copy_from_slice(&producer_id.to_be_bytes());
    batch[PRODUCER_ID_AT + 8..BASE_SEQUENCE_AT].copy_from_slice(&epoch.to_be_bytes());
    batch[BASE_SEQUENCE_AT..COUNT_AT].copy_from_slice(&sequence.to_be_bytes());
    seal(batch);
}

/// The header fields of a batch that readers use.
pub(crate) struct Header {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Bytes of the whole batch.
    pub len: usize,
    /// Offset of the last record less that of the first.
    pub last_offset_delta: i32,
    /// How many records the header claims.
    pub records: i32,
}

/// Reads a batch header; `None` when `bytes` holds less than a header.
pub(crate) fn header(bytes: &[u8]) -> Option<Header> {
    let head = bytes.get(..HEADER_BYTES)?;
    let i32_at = |at: usize| i32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    Some(Header {
        base_offset: i64::from(i32_at(0)) << 32 | i64::from(i32_at(4) as u32),
        len: LENGTH_AT + 4 + i32_at(LENGTH_AT).max(0) as usize,
        last_offset_delta: i32_at(LAST_OFFSET_DELTA_AT),
        records: i32_at(COUNT_AT),
    })
}

/// Writes the offset that the server gives the first record; no CRC covers it.
pub(crate) fn set_base_offset(batch: &mut [u8], offset: i64) {
    batch[..8].copy_from_slice(&offset.to_be_bytes());
}

/// What [`walk`] found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Walked {
    /// Whole batches.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Offset after the last record.
    pub next_offset: i64,
}

/// Checks that the whole batches in `data` follow one another from `offset` without a gap, each
/// with a true CRC if `check_crc`; calls `seen` with each base offset. A cut last batch is left out.
pub(crate) fn walk(data: &[u8], offset: i64, check_crc: bool, mut seen: impl FnMut(i64)) -> Result<Walked> {
    let mut found = Walked { next_offset: offset, ..Walked::default() };
    let mut rest = data;
    while let Some(head) = header(rest) {
        let Some(batch) = rest.get(..head.len) else { break };
        if head.len < HEADER_BYTES {
            bail!("a batch of {} bytes is shorter than its header", head.len);
        }
        if head.base_offset != found.next_offset {
            bail!("offset {} where {} is next", head.base_offset, found.next_offset);
        }
        if head.records != head.last_offset_delta + 1 {
            bail!(
                "batch at {}: {} records span {} offsets",
                head.base_offset,
                head.records,
                head.last_offset_delta + 1
            );
        }
        if check_crc {
            let crc = checksum(CrcAlgorithm::Crc32Iscsi, &batch[CRC_FROM..]) as u32;
            if batch[CRC_AT..CRC_FROM] != crc.to_be_bytes() {
                bail!("batch at {} fails its CRC", head.base_offset);
            }
        }
        seen(head.base_offset);
        found.batches += 1;
        found.records += head.records as u64;
        found.bytes += head.len as u64;
        found.next_offset += i64::from(head.last_offset_delta) + 1;
        rest = &rest[head.len..];
    }
    Ok(found)
}

/// Xorshift: fast and reproducible, good enough for incompressible payloads.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(codec: Codec) -> BatchSpec {
        BatchSpec {
            record_bytes: 1024,
            batch_bytes: 64 << 10,
            records: None,
            codec,
            payload: Payload::Json,
            keys: None,
        }
    }

    #[test]
    fn built_batches_fit_and_pass_the_walk() {
        for codec in [Codec::None, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            for keys in [None, Some(1000)] {
                let batch = build(&BatchSpec { keys, ..spec(codec) }, 7).unwrap();
                assert!(batch.bytes.len() <= 64 << 10);
                let found = walk(&batch.bytes, 0, true, |_| ()).unwrap();
                assert_eq!((found.records, found.bytes), (u64::from(batch.records), batch.bytes.len() as u64));
            }
        }
    }

    #[test]
    fn the_walk_refuses_a_gap_and_a_flipped_bit() {
        let mut batch = build(&spec(Codec::None), 1).unwrap().bytes;
        assert!(walk(&batch, 5, true, |_| ()).is_err());
        batch[100] ^= 1;
        assert!(walk(&batch, 0, true, |_| ()).is_err());
        assert!(walk(&batch, 0, false, |_| ()).is_ok());
    }

    #[test]
    fn a_stamped_batch_keeps_a_true_crc() {
        let mut batch = build(&spec(Codec::Lz4), 1).unwrap().bytes;
        stamp(&mut batch, 4000, 0, 17);
        assert!(walk(&batch, 0, true, |_| ()).is_ok());
    }
}
