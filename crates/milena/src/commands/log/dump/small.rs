//! `.snapshot` files, the state of producers, and `.txnindex` files, the aborted transactions of a segment.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use milena_protocol::messages::ProducerSnapshot;
use milena_protocol::{Message, Reader};

use crate::java_text::optional_long;

/// Where the range of a snapshot's checksum begins.
const CRC_FROM: usize = 6;
/// Bytes of an aborted transaction.
const ABORTED: usize = 34;

/// Prints the producers of a snapshot. A damaged one is a finding, not an error.
pub(super) fn producers(path: &Path, out: &mut dyn Write) -> Result<()> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    let snapshot = match parse(&bytes) {
        Ok(snapshot) => snapshot,
        Err(finding) => {
            writeln!(io::stderr(), "{finding}")?;
            return Ok(());
        }
    };
    for entry in &snapshot.producer_entries {
        write!(
            out,
            "producerId: {} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {} lastTimestamp: {}",
            entry.producer_id,
            entry.epoch,
            entry.coordinator_epoch,
            optional_long(Some(entry.current_txn_first_offset).filter(|offset| *offset >= 0)),
            entry.timestamp,
        )?;
        if entry.last_offset >= 0 {
            write!(
                out,
                " firstSequence: {} lastSequence: {} lastOffset: {} offsetDelta: {} timestamp: {}",
                first_sequence(entry.last_sequence, entry.offset_delta),
                entry.last_sequence,
                entry.last_offset,
                entry.offset_delta,
                entry.timestamp,
            )?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn parse(bytes: &[u8]) -> Result<ProducerSnapshot, String> {
    let failed = |why: &dyn std::fmt::Display| format!("Snapshot failed schema validation: {why}");
    let version = bytes.first_chunk().map(|bytes| i16::from_be_bytes(*bytes)).ok_or_else(|| failed(&"null"))?;
    if version != ProducerSnapshot::MAX_VERSION {
        return Err(failed(&format_args!("Snapshot contained an unknown file version {version}")));
    }
    let snapshot = ProducerSnapshot::decode(&mut Reader::new(&bytes[2..]), version).map_err(|error| failed(&error))?;
    let computed = milena_records::crc32c(&bytes[CRC_FROM..]);
    if snapshot.crc != computed {
        return Err(format!(
            "Snapshot is corrupt (CRC is no longer valid). Stored crc: {}. Computed crc: {computed}",
            snapshot.crc
        ));
    }
    Ok(snapshot)
}

/// Sequences go from 2^31-1 to 0.
fn first_sequence(last: i32, delta: i32) -> i32 {
    if last < delta {
        i32::MAX.wrapping_sub(delta.wrapping_sub(last)).wrapping_add(1)
    } else {
        last.wrapping_sub(delta)
    }
}

/// Prints the aborted transactions of a segment; without a file there are none. A cut entry at the end does not count.
pub(super) fn transactions(path: &Path, out: &mut dyn Write) -> Result<()> {
    super::base_offset(path)?;
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        read => read.with_context(|| path.display().to_string())?,
    };
    let field = |entry: &[u8], at: usize| entry[at..].first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes));
    for (number, entry) in bytes.chunks_exact(ABORTED).enumerate() {
        let version = i16::from_be_bytes([entry[0], entry[1]]);
        if version != 0 {
            bail!("{}: version {version} of an aborted transaction at byte {}", path.display(), number * ABORTED);
        }
    }
    for entry in bytes.chunks_exact(ABORTED) {
        let [producer, first, last, stable] = [2, 10, 18, 26].map(|at| field(entry, at));
        writeln!(
            out,
            "version: 0 producerId: {producer} firstOffset: {first} lastOffset: {last} lastStableOffset: {stable}"
        )?;
    }
    Ok(())
}
