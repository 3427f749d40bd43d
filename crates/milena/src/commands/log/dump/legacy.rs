//! Messages of the formats before record batches (magic 0 and 1), which Kafka no longer writes but still shows. A magic byte that was
//! damaged looks like one.

use std::io::Write;

use anyhow::{Context, Result, bail};
use crc_fast::{CrcAlgorithm, checksum};
use milena_records::Compression;

use super::batches::{Entry, LogFile};
use super::decoders::Parser;
use super::records::{Options, codec_name, contents};

/// Offset and size.
const LOG_OVERHEAD: usize = 12;
/// Where the checksum's range begins, in the message.
const CRC_FROM: usize = 4;
/// Checksum, magic, attributes, two lengths.
const MIN_SIZE: usize = 14;

/// One message, which may hold further ones compressed.
pub(super) struct Message {
    offset: i64,
    magic: i8,
    /// Behind offset and size.
    bytes: Vec<u8>,
}

impl Message {
    /// Reads the message at an entry.
    pub(super) fn read(file: &LogFile, entry: &Entry) -> Result<Message> {
        let bytes = file.bytes(entry)?.split_off(LOG_OVERHEAD);
        if bytes.len() < MIN_SIZE {
            bail!("a message of {} bytes at position {}", bytes.len(), entry.position);
        }
        Ok(Message { offset: entry.offset, magic: entry.magic, bytes })
    }

    /// The message's offset.
    pub(super) fn offset(&self) -> i64 {
        self.offset
    }

    fn attributes(&self) -> u8 {
        self.bytes[5]
    }

    /// The name of the timestamp's type, and the timestamp.
    fn time(&self) -> Result<(&'static str, i64)> {
        if self.magic == 0 {
            return Ok(("NoTimestampType", -1));
        }
        let name = if self.attributes() & 8 == 0 { "CreateTime" } else { "LogAppendTime" };
        let stamp = self.bytes.get(6..).and_then(|rest| rest.first_chunk()).context("a message without timestamp")?;
        Ok((name, i64::from_be_bytes(*stamp)))
    }

    /// The timestamp; -1 without one.
    pub(super) fn timestamp(&self) -> Result<i64> {
        Ok(self.time()?.1)
    }

    fn crc(&self) -> u32 {
        u32::from_be_bytes([self.bytes[0], self.bytes[1], self.bytes[2], self.bytes[3]])
    }

    fn is_valid(&self) -> bool {
        checksum(CrcAlgorithm::Crc32IsoHdlc, &self.bytes[CRC_FROM..]) == u64::from(self.crc())
    }

    fn codec(&self) -> Result<&'static str> {
        let id = i16::from(self.attributes() & 7);
        codec_name(Compression::from_id(id), id)
    }

    /// The line of a batch.
    pub(super) fn write_batch(&self, entry: &Entry, out: &mut dyn Write) -> Result<()> {
        write!(out, "offset: {}", self.offset)?;
        let (codec, (name, time)) = (self.codec()?, self.time()?);
        writeln!(
            out,
            " position: {} {name}: {time} size: {} magic: {} compresscodec: {codec} crc: {} isvalid: {}",
            entry.position,
            entry.size,
            self.magic,
            self.crc(),
            self.is_valid(),
        )?;
        Ok(())
    }

    /// The line of the record.
    pub(super) fn write_record(&self, options: &Options, parser: &Parser, out: &mut dyn Write) -> Result<()> {
        if self.codec()? != Compression::None.name() {
            bail!("offset {}: compressed messages of magic {} are not read", self.offset, self.magic);
        }
        let rest = self.bytes.get(if self.magic == 0 { 6.. } else { 14.. }).context("a message that is cut")?;
        let (key, rest) = field(rest)?;
        let (value, _) = field(rest)?;
        let size = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| bytes.len() as i64);
        if options.metadata {
            let (name, time) = self.time()?;
            write!(out, "| offset: {} {name}: {time} keySize: {} valueSize: {}", self.offset, size(key), size(value))?;
            write!(out, " isValid: {} crc: {}", self.is_valid(), self.crc())?;
        }
        if options.contents {
            let prefix = if options.metadata { " " } else { "| " };
            contents(&parser.parse(self.offset, key, value)?, prefix, out)?;
        }
        writeln!(out)?;
        Ok(())
    }
}

/// A length and its bytes; what follows them.
fn field(bytes: &[u8]) -> Result<(Option<&[u8]>, &[u8])> {
    let (length, rest) = bytes.split_first_chunk().context("a field without length")?;
    match usize::try_from(i32::from_be_bytes(*length)) {
        Err(_) => Ok((None, rest)),
        Ok(length) => {
            let (field, rest) = rest.split_at_checked(length).context("a field goes beyond the message")?;
            Ok((Some(field), rest))
        }
    }
}
