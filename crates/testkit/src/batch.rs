//! Record batches as a test wants them: right by default, with every field of the header and of each record open to be
//! made wrong, and read back field by field from what a server stored.

use std::io::{Read, Write};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// Bytes of a version 2 batch header.
pub const HEADER: usize = 61;
/// Where the bytes that the CRC covers begin.
const CRC_FROM: usize = 21;

/// A codec by its number in a batch's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// Uncompressed.
    None,
    /// A gzip member.
    Gzip,
    /// The framing of the Java library over raw snappy blocks.
    Snappy,
    /// An lz4 frame.
    Lz4,
    /// A zstd frame.
    Zstd,
}

impl Codec {
    /// All of them, by number.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// Its name in configurations.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["none", "gzip", "snappy", "lz4", "zstd"][self as usize]
    }

    /// By name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.name() == name)
    }

    /// Compresses the records of a batch.
    ///
    /// # Errors
    /// When the codec fails.
    pub fn compress(self, plain: &[u8]) -> Result<Vec<u8>> {
        Ok(match self {
            Self::None => plain.to_vec(),
            Self::Gzip => {
                let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                writer.write_all(plain)?;
                writer.finish()?
            }
            Self::Snappy => {
                let block = snap::raw::Encoder::new().compress_vec(plain)?;
                let mut out = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
                out.extend_from_slice(&u32::try_from(block.len())?.to_be_bytes());
                out.extend_from_slice(&block);
                out
            }
            Self::Lz4 => {
                let mut writer = lz4_flex::frame::FrameEncoder::new(Vec::new());
                writer.write_all(plain)?;
                writer.finish()?
            }
            Self::Zstd => zstd::encode_all(plain, 3)?,
        })
    }

    /// Decompresses the records of a batch.
    ///
    /// # Errors
    /// When the bytes are not what the codec writes.
    pub fn decompress(self, packed: &[u8]) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        match self {
            Self::None => out.extend_from_slice(packed),
            Self::Gzip => {
                let mut rest = packed;
                // One member after the other; what is behind them does not count.
                while rest.starts_with(&[0x1f, 0x8b]) {
                    let mut member = flate2::bufread::GzDecoder::new(rest);
                    member.read_to_end(&mut out)?;
                    rest = member.into_inner();
                }
            }
            Self::Lz4 => drop(lz4_flex::frame::FrameDecoder::new(packed).read_to_end(&mut out)?),
            Self::Zstd => out = zstd::decode_all(packed)?,
            Self::Snappy if !packed.starts_with(b"\x82SNAPPY\0") => {
                out = snap::raw::Decoder::new().decompress_vec(packed)?;
            }
            Self::Snappy => {
                let mut rest = packed.get(16..).context("no snappy header")?;
                while let Some((length, after)) = rest.split_first_chunk::<4>() {
                    let (block, after) = after
                        .split_at_checked(u32::from_be_bytes(*length) as usize)
                        .context("a snappy block is cut")?;
                    out.extend(snap::raw::Decoder::new().decompress_vec(block)?);
                    rest = after;
                }
            }
        }
        Ok(out)
    }
}

/// One record of a batch to be built.
#[derive(Debug, Clone)]
pub struct Record {
    /// Relative to the batch's base offset.
    pub offset_delta: i64,
    /// Relative to the batch's base timestamp, in ms.
    pub timestamp_delta: i64,
    /// The unused attribute byte.
    pub attributes: u8,
    /// `None` for null.
    pub key: Option<Vec<u8>>,
    /// `None` for null.
    pub value: Option<Vec<u8>>,
    /// Name and value, null for `None`.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Record {
    /// A record with a text key and value.
    #[must_use]
    pub fn text(delta: i64, timestamp_delta: i64, key: &str, value: &str) -> Self {
        Self {
            offset_delta: delta,
            timestamp_delta,
            attributes: 0,
            key: Some(key.into()),
            value: Some(value.into()),
            headers: Vec::new(),
        }
    }

    /// Its bytes after the length.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let mut out = vec![self.attributes];
        varint(self.timestamp_delta, &mut out);
        varint(self.offset_delta, &mut out);
        nullable(self.key.as_deref(), &mut out);
        nullable(self.value.as_deref(), &mut out);
        varint(self.headers.len() as i64, &mut out);
        for (name, value) in &self.headers {
            nullable(Some(name), &mut out);
            nullable(value.as_deref(), &mut out);
        }
        out
    }
}

/// A batch to be built. Fields that are `None` take the right value for the records.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Zero from a right producer.
    pub base_offset: i64,
    /// Written by the broker.
    pub leader_epoch: i32,
    /// The batch length field.
    pub length: Option<i32>,
    /// 2.
    pub magic: u8,
    /// The CRC field.
    pub crc: Option<u32>,
    /// Compression of the payload, and its bits in the attributes.
    pub codec: Codec,
    /// Further attribute bits.
    pub attributes: i16,
    /// Of the last record, relative to the base offset.
    pub last_offset_delta: Option<i32>,
    /// In ms.
    pub base_timestamp: i64,
    /// In ms.
    pub max_timestamp: Option<i64>,
    /// -1 without idempotence.
    pub producer_id: i64,
    /// -1 without idempotence.
    pub producer_epoch: i16,
    /// -1 without idempotence.
    pub base_sequence: i32,
    /// The record count field.
    pub count: Option<i32>,
    /// The records.
    pub records: Vec<Record>,
    /// The records' bytes before compression, when they are not those of `records`.
    pub plain: Option<Vec<u8>>,
    /// The bytes after the header, when they are not the compressed records.
    pub payload: Option<Vec<u8>>,
}

impl Batch {
    /// `count` records `k0=v0`, `k1=v1`, ... a millisecond apart from `base_timestamp` on.
    #[must_use]
    pub fn of(count: usize, base_timestamp: i64) -> Self {
        let records = (0..count as i64).map(|i| Record::text(i, i, &format!("k{i}"), &format!("v{i}")));
        Self::new(base_timestamp, records.collect())
    }

    /// A right, uncompressed batch of these records.
    #[must_use]
    pub fn new(base_timestamp: i64, records: Vec<Record>) -> Self {
        Self {
            base_offset: 0,
            leader_epoch: -1,
            length: None,
            magic: 2,
            crc: None,
            codec: Codec::None,
            attributes: 0,
            last_offset_delta: None,
            base_timestamp,
            max_timestamp: None,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            count: None,
            records,
            plain: None,
            payload: None,
        }
    }

    /// The same with a codec.
    #[must_use]
    pub fn with(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self
    }

    /// The records' bytes before compression.
    #[must_use]
    pub fn plain(&self) -> Vec<u8> {
        self.plain.clone().unwrap_or_else(|| {
            let mut out = Vec::new();
            for record in &self.records {
                let body = record.body();
                varint(body.len() as i64, &mut out);
                out.extend_from_slice(&body);
            }
            out
        })
    }

    /// The batch's bytes.
    ///
    /// # Panics
    /// When the compressor fails, which it does not in memory.
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let payload = self.payload.clone();
        let payload = payload.unwrap_or_else(|| self.codec.compress(&self.plain()).expect("compression in memory"));
        let last = self.records.iter().map(|r| r.offset_delta).max().unwrap_or(-1);
        let newest = self.records.iter().map(|r| self.base_timestamp.saturating_add(r.timestamp_delta)).max();
        let mut covered = Vec::with_capacity(HEADER + payload.len());
        covered.extend_from_slice(&(self.codec as i16 | self.attributes).to_be_bytes());
        covered.extend_from_slice(&self.last_offset_delta.unwrap_or(last as i32).to_be_bytes());
        covered.extend_from_slice(&self.base_timestamp.to_be_bytes());
        covered.extend_from_slice(&self.max_timestamp.or(newest).unwrap_or(-1).to_be_bytes());
        covered.extend_from_slice(&self.producer_id.to_be_bytes());
        covered.extend_from_slice(&self.producer_epoch.to_be_bytes());
        covered.extend_from_slice(&self.base_sequence.to_be_bytes());
        covered.extend_from_slice(&self.count.unwrap_or(self.records.len() as i32).to_be_bytes());
        covered.extend_from_slice(&payload);
        let length = (covered.len() + CRC_FROM - 12) as i32;
        let mut out = self.base_offset.to_be_bytes().to_vec();
        out.extend_from_slice(&self.length.unwrap_or(length).to_be_bytes());
        out.extend_from_slice(&self.leader_epoch.to_be_bytes());
        out.push(self.magic);
        out.extend_from_slice(&self.crc.unwrap_or_else(|| crc(&covered)).to_be_bytes());
        out.extend_from_slice(&covered);
        out
    }
}

/// The CRC of a batch's bytes from the attributes on.
#[must_use]
pub fn crc(covered: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, covered) as u32
}

/// Appends a signed (zigzag) varint of up to 64 bits.
pub fn varint(number: i64, out: &mut Vec<u8>) {
    let mut rest = ((number << 1) ^ (number >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn nullable(bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    varint(bytes.map_or(-1, |b| b.len() as i64), out);
    out.extend_from_slice(bytes.unwrap_or_default());
}

/// One batch as a server stored it.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a>(&'a [u8]);

impl<'a> Stored<'a> {
    /// Splits what a fetch returned; a batch that is cut at the end is left out, as consumers do.
    ///
    /// # Errors
    /// When a length makes no sense.
    pub fn split(mut bytes: &'a [u8]) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        while bytes.len() >= HEADER {
            let length = 12 + usize::try_from(i32::from_be_bytes(bytes[8..12].try_into()?))?;
            if length < HEADER {
                bail!("a stored batch of {length} bytes");
            }
            let Some((one, rest)) = bytes.split_at_checked(length) else { break };
            all.push(Self(one));
            bytes = rest;
        }
        Ok(all)
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }

    fn int<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut out = [0; N];
        out.copy_from_slice(&self.0[at..at + N]);
        out
    }

    /// The offset of the first record.
    #[must_use]
    pub fn base_offset(&self) -> i64 {
        i64::from_be_bytes(self.int(0))
    }

    /// The last offset relative to the base.
    #[must_use]
    pub fn last_offset_delta(&self) -> i32 {
        i32::from_be_bytes(self.int(23))
    }

    /// The attribute bits.
    #[must_use]
    pub fn attributes(&self) -> i16 {
        i16::from_be_bytes(self.int(21))
    }

    /// The CRC field.
    #[must_use]
    pub fn crc(&self) -> u32 {
        u32::from_be_bytes(self.int(17))
    }

    /// The bytes after the header.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        &self.0[HEADER..]
    }

    /// The base timestamp in ms.
    #[must_use]
    pub fn base_timestamp(&self) -> i64 {
        i64::from_be_bytes(self.int(27))
    }

    /// The codec's name and the other attributes that are set.
    #[must_use]
    pub fn attribute_text(&self) -> String {
        let bits = self.attributes();
        let mut text = match Codec::ALL.get(usize::from(bits as u16 & 7)) {
            Some(codec) => codec.name().to_owned(),
            None => format!("codec{}", bits & 7),
        };
        for (bit, name) in [(3, "logAppendTime"), (4, "txn"), (5, "control"), (6, "deleteHorizon")] {
            if bits & 1 << bit != 0 {
                text += "|";
                text += name;
            }
        }
        let unknown = bits as u16 & 0xff80;
        if unknown != 0 {
            text += &format!("|0x{unknown:x}");
        }
        text
    }

    /// `base+lastDelta codec`.
    #[must_use]
    pub fn brief(&self) -> String {
        format!("{}+{} {}", self.base_offset(), self.last_offset_delta(), self.attribute_text())
    }

    /// Every header field; `sent` is the batch as its producer sent it.
    #[must_use]
    pub fn fields(&self, sent: &[u8]) -> Value {
        let right = crc(&self.0[CRC_FROM..]) == self.crc();
        let same = sent.get(17..21) == Some(&self.0[17..21]);
        let crc = if same {
            "same"
        } else if right {
            "recomputed"
        } else {
            "wrong"
        };
        let body = if sent.get(HEADER..self.0.len()) == Some(self.body()) { "same" } else { "rebuilt" };
        json!({
            "base": self.base_offset(), "lod": self.last_offset_delta(),
            "leaderEpoch": i32::from_be_bytes(self.int(12)), "magic": self.0[16], "attrs": self.attribute_text(),
            "baseTs": self.base_timestamp(), "maxTs": i64::from_be_bytes(self.int(35)),
            "producerId": i64::from_be_bytes(self.int(43)), "producerEpoch": i16::from_be_bytes(self.int(51)),
            "seq": i32::from_be_bytes(self.int(53)), "count": i32::from_be_bytes(self.int(57)), "crc": crc, "body": body,
        })
    }

    /// The records: offset, timestamp, key, value, and headers if there are any.
    ///
    /// # Errors
    /// When they cannot be decoded.
    pub fn records(&self) -> Result<Vec<Value>> {
        let codec = *Codec::ALL.get(usize::from(self.attributes() as u16 & 7)).context("unknown codec")?;
        let plain = codec.decompress(self.body())?;
        let mut rest = &plain[..];
        let mut all = Vec::new();
        for _ in 0..i32::from_be_bytes(self.int(57)) {
            let length = read_varint(&mut rest)?;
            let before = rest.len();
            let (attributes, after) = rest.split_first().context("no attributes")?;
            rest = after;
            let timestamp = self.base_timestamp().wrapping_add(read_varint(&mut rest)?);
            let offset = self.base_offset().wrapping_add(read_varint(&mut rest)?);
            let mut record =
                json!({"o": offset, "ts": timestamp, "k": read_text(&mut rest)?, "v": read_text(&mut rest)?});
            let mut headers = Vec::new();
            for _ in 0..read_varint(&mut rest)? {
                headers.push(json!([read_text(&mut rest)?, read_text(&mut rest)?]));
            }
            if !headers.is_empty() {
                record["h"] = headers.into();
            }
            if *attributes != 0 {
                record["attr"] = (*attributes).into();
            }
            if length != (before - rest.len()) as i64 {
                bail!("a record of {} bytes says that it has {length}", before - rest.len());
            }
            all.push(record);
        }
        Ok(all)
    }
}

fn read_varint(bytes: &mut &[u8]) -> Result<i64> {
    let mut raw: u64 = 0;
    for shift in (0..70).step_by(7) {
        let (byte, rest) = bytes.split_first().context("a varint is cut")?;
        *bytes = rest;
        raw |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if *byte < 0x80 {
            return Ok((raw >> 1) as i64 ^ -((raw & 1) as i64));
        }
    }
    bail!("a varint of more than ten bytes")
}

fn read_text(bytes: &mut &[u8]) -> Result<Option<String>> {
    let Ok(length) = usize::try_from(read_varint(bytes)?) else { return Ok(None) };
    let (text, rest) = bytes.split_at_checked(length).context("a record's bytes are cut")?;
    *bytes = rest;
    Ok(Some(match std::str::from_utf8(text) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => text.iter().fold("hex:".to_owned(), |out, byte| out + &format!("{byte:02x}")),
    }))
}
