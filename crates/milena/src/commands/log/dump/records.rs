//! `.log` and `.checkpoint` files: one line a batch, and one a record where records are wanted.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use milena_protocol::json::ToJson;
use milena_protocol::messages::{
    KRaftVersionRecord, LeaderChangeMessage, SnapshotFooterRecord, SnapshotHeaderRecord, VotersRecord,
};
use milena_protocol::{Message, Reader};
use milena_records::{
    BATCH_OVERHEAD, Batch, Compression, ControlType, Decompressor, MAGIC, Record, RecordError, TimestampType,
    coordinator_epoch,
};

use super::batches::{Entry, LogFile, view};
use super::decoders::Parser;
use super::{Findings, base_offset, legacy, of};
use crate::java_text;

/// What is printed.
pub(super) struct Options {
    /// Records, not only batches.
    pub(super) deep: bool,
    /// Keys and values.
    pub(super) contents: bool,
    /// Offset, time, sizes; control records.
    pub(super) metadata: bool,
    /// How much of a file is read, bytes.
    pub(super) max_bytes: i32,
}

/// Prints a file.
pub(super) fn dump(
    path: &Path,
    options: &Options,
    parser: &Parser,
    out: &mut dyn Write,
    findings: &mut Findings,
) -> Result<()> {
    heading(path, out)?;
    let file = LogFile::open(path)?;
    let end = file.slice_end(0, options.max_bytes)?;
    let mut dumper =
        Dumper { file: &file, path, options, parser, decompressor: Decompressor::new(usize::MAX), last: -1 };
    let mut valid = 0;
    while let Some(entry) = file.entry(valid, end)? {
        dumper.batch(&entry, out, findings)?;
        valid += entry.size;
    }
    if end > valid && options.max_bytes == i32::MAX {
        let name = path.file_name().unwrap_or_default().display();
        writeln!(out, "Found {} invalid bytes at the end of {name}", end - valid)?;
    }
    Ok(())
}

fn heading(path: &Path, out: &mut dyn Write) -> Result<()> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some(stem) = name.strip_suffix(".checkpoint") else {
        writeln!(out, "Log starting offset: {}", base_offset(path)?)?;
        return Ok(());
    };
    if stem == "bootstrap" {
        writeln!(out, "KRaft bootstrap snapshot")?;
        return Ok(());
    }
    let id = stem.get(..20).zip(stem.get(20..21)).zip(stem.get(21..31));
    let id = id.and_then(|((offset, dash), epoch)| {
        (dash == "-").then_some((offset.parse::<i64>().ok()?, epoch.parse::<i32>().ok()?))
    });
    let (offset, epoch) = id.with_context(|| format!("{}: the name is no snapshot's", path.display()))?;
    writeln!(out, "Snapshot end offset: {offset}, epoch: {epoch}")?;
    Ok(())
}

struct Dumper<'d> {
    file: &'d LogFile,
    path: &'d Path,
    options: &'d Options,
    parser: &'d Parser,
    decompressor: Decompressor,
    /// Offset of the last record.
    last: i64,
}

impl Dumper<'_> {
    fn batch(&mut self, entry: &Entry, out: &mut dyn Write, findings: &mut Findings) -> Result<()> {
        if entry.magic < MAGIC {
            let record = legacy::Message::read(self.file, entry)?;
            record.write_batch(entry, out)?;
            if self.options.deep {
                self.follow(record.offset(), findings);
                record.write_record(self.options, self.parser, out)?;
            }
            return Ok(());
        }
        let mut header = self.file.header(entry)?;
        let mut bytes = batch_line(view(&mut header)?, entry, self.file, out)?;
        if !self.options.deep {
            return Ok(());
        }
        // Kafka reads every magic from 2 on alike.
        if let Some(magic) = bytes.get_mut(16) {
            *magic = MAGIC.cast_unsigned();
        }
        let batch = Batch::parse(&bytes)?;
        if batch.count() == 0 {
            return Ok(());
        }
        let mut decompressor = std::mem::replace(&mut self.decompressor, Decompressor::new(0));
        let mut records = batch.records(&mut decompressor)?.peekable();
        while let Some(record) = records.next() {
            // The last record of a batch that has bytes behind it is not shown either.
            if let Some(Err(error @ RecordError::LeftOver { .. })) = records.peek() {
                bail!("{}: {error}", self.path.display());
            }
            self.record(&batch, &record?, out, findings)?;
        }
        self.decompressor = decompressor;
        Ok(())
    }

    /// Notes a gap in front of this record.
    fn follow(&mut self, offset: i64, findings: &mut Findings) {
        if offset != self.last.wrapping_add(1) {
            of(&mut findings.gaps, self.path).insert(self.last, offset);
        }
        self.last = offset;
    }

    fn record(
        &mut self,
        batch: &Batch<'_>,
        record: &Record<'_>,
        out: &mut dyn Write,
        findings: &mut Findings,
    ) -> Result<()> {
        let offset = record.offset(batch);
        self.follow(offset, findings);
        if self.options.metadata {
            metadata(batch, record, out)?;
        }
        if self.options.contents && !batch.is_control() {
            let prefix = if self.options.metadata { " " } else { "| " };
            let shown = self.parser.parse(offset, record.key, record.value)?;
            contents(&shown, prefix, out)?;
        }
        writeln!(out)?;
        Ok(())
    }
}

/// Key and value of a record as text.
pub(super) type Shown = (Option<String>, Option<String>);

pub(super) fn contents((key, value): &Shown, mut prefix: &str, out: &mut dyn Write) -> Result<()> {
    if let Some(key) = key {
        write!(out, "{prefix}key: {key}")?;
        prefix = " ";
    }
    if let Some(value) = value {
        write!(out, "{prefix}payload: {value}")?;
    }
    Ok(())
}

/// The batch's line; the batch's bytes, which its checksum needed.
fn batch_line(batch: Batch<'_>, entry: &Entry, file: &LogFile, out: &mut dyn Write) -> Result<Vec<u8>> {
    write!(
        out,
        "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} producerId: {} producerEpoch: {} \
         partitionLeaderEpoch: {} isTransactional: {} isControl: {} deleteHorizonMs: {}",
        batch.base_offset(),
        batch.last_offset(),
        batch.count(),
        batch.base_sequence(),
        last_sequence(&batch),
        batch.producer_id(),
        batch.producer_epoch(),
        batch.partition_leader_epoch(),
        batch.is_transactional(),
        batch.is_control(),
        java_text::optional_long(batch.delete_horizon()),
    )?;
    let codec = codec_name(batch.compression(), batch.attributes())?;
    let bytes = file.bytes(entry)?;
    let crc = bytes.get(21..).map(milena_records::crc32c);
    let valid = entry.size >= BATCH_OVERHEAD as u64 && crc == Some(batch.crc());
    writeln!(
        out,
        " position: {} {}: {} size: {} magic: {} compresscodec: {codec} crc: {} isvalid: {valid}",
        entry.position,
        time_name(batch.timestamp_type()),
        batch.max_timestamp(),
        entry.size,
        entry.magic,
        batch.crc(),
    )?;
    Ok(bytes)
}

pub(super) fn codec_name(codec: Option<Compression>, attributes: i16) -> Result<&'static str> {
    codec.map(Compression::name).ok_or_else(|| anyhow!("Unknown compression type id: {}", attributes & 7))
}

fn time_name(kind: TimestampType) -> &'static str {
    match kind {
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    }
}

fn last_sequence(batch: &Batch<'_>) -> i32 {
    match batch.base_sequence() {
        -1 => -1,
        base => advanced(base, batch.last_offset_delta()),
    }
}

/// A sequence advanced as Kafka does it, in 32 bits: the same for the numbers of a damaged header too.
fn advanced(sequence: i32, by: i32) -> i32 {
    let room = i32::MAX.wrapping_sub(by);
    if sequence > room {
        by.wrapping_sub(i32::MAX.wrapping_sub(sequence)).wrapping_sub(1)
    } else {
        sequence.wrapping_add(by)
    }
}

fn metadata(batch: &Batch<'_>, record: &Record<'_>, out: &mut dyn Write) -> Result<()> {
    let size = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| bytes.len() as i64);
    let sequence = if batch.base_sequence() < 0 { -1 } else { advanced(batch.base_sequence(), record.offset_delta) };
    let headers: Vec<_> = record.headers.iter().map(|header| String::from_utf8_lossy(header.key)).collect();
    write!(
        out,
        "| offset: {} {}: {} keySize: {} valueSize: {} sequence: {sequence} headerKeys: [{}]",
        record.offset(batch),
        time_name(batch.timestamp_type()),
        record.timestamp(batch),
        size(record.key),
        size(record.value),
        headers.join(","),
    )?;
    if batch.is_control() { control(record, out) } else { Ok(()) }
}

fn control(record: &Record<'_>, out: &mut dyn Write) -> Result<()> {
    let key = record.key.unwrap_or_default();
    let &[v0, v1, t0, t1, ..] = key else { bail!("a control record's key of {} bytes", key.len()) };
    let (version, id) = (i16::from_be_bytes([v0, v1]), i16::from_be_bytes([t0, t1]));
    if version < 0 {
        bail!("version {version} of a control record's key");
    }
    let value = || record.value.context("a control record without value");
    match ControlType::from_key(key) {
        Some(kind @ (ControlType::Abort | ControlType::Commit)) => {
            let epoch = coordinator_epoch(value()?).context("the value is no transaction marker's")?;
            let kind = if kind == ControlType::Abort { "ABORT" } else { "COMMIT" };
            write!(out, " endTxnMarker: {kind} coordinatorEpoch: {epoch}")?;
        }
        Some(ControlType::LeaderChange) => {
            let message = decoded::<LeaderChangeMessage>(value()?)?;
            write!(out, " LeaderChange: {}", java_text::json(&message.to_json(message.version)))?;
        }
        Some(ControlType::SnapshotHeader) => {
            let message = decoded::<SnapshotHeaderRecord>(value()?)?;
            write!(out, " SnapshotHeader {}", java_text::json(&message.to_json(message.version)))?;
        }
        Some(ControlType::SnapshotFooter) => {
            let message = decoded::<SnapshotFooterRecord>(value()?)?;
            write!(out, " SnapshotFooter {}", java_text::json(&message.to_json(message.version)))?;
        }
        Some(ControlType::KRaftVersion) => {
            let message = decoded::<KRaftVersionRecord>(value()?)?;
            write!(out, " KRaftVersion {}", java_text::json(&message.to_json(message.version)))?;
        }
        Some(ControlType::KRaftVoters) => {
            let message = decoded::<VotersRecord<'_>>(value()?)?;
            write!(out, " KRaftVoters {}", java_text::json(&message.to_json(message.version)))?;
        }
        None => write!(out, " controlType: UNKNOWN({id})")?,
    }
    Ok(())
}

/// Control records are written in version 0, whatever they say of themselves.
fn decoded<'a, M: Message<'a>>(value: &'a [u8]) -> Result<M> {
    M::decode(&mut Reader::new(value), 0).context(M::NAME)
}
