//! `.index` and `.timeindex` files, compared with the log beside them.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use milena_records::{Batch, Decompressor, MAGIC};

use super::batches::{Entry, LogFile};
use super::{Findings, base_offset, legacy, of};

/// Entries at the end in which Kafka looks first, bytes.
const HOT: usize = 8192;

/// What is checked and printed.
pub(super) struct Options {
    /// Only what a start checks.
    pub(super) sanity_only: bool,
    /// Findings only.
    pub(super) quiet: bool,
    /// Bytes that may be read for one entry.
    pub(super) max_message_size: i32,
}

/// The entries of an offset index: offset and position.
struct OffsetIndex {
    base: i64,
    bytes: Vec<u8>,
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}

impl OffsetIndex {
    const ENTRY: usize = 8;

    fn len(&self) -> usize {
        self.bytes.len() / Self::ENTRY
    }

    fn entry(&self, number: usize) -> (i64, i64) {
        let at = number * Self::ENTRY;
        let relative = i32::from_be_bytes(field(&self.bytes, at));
        let position = i32::from_be_bytes(field(&self.bytes, at + 4));
        (self.base.wrapping_add(i64::from(relative)), i64::from(position))
    }

    /// Position of the last entry at or before `offset`, found by the very steps of Kafka's search: behind the entries of a file that
    /// was reserved stand zeros, and a search in what is not sorted finds what its steps lead to.
    fn lookup(&self, offset: i64) -> i64 {
        let Some(last) = self.len().checked_sub(1) else { return 0 };
        let hot = last.saturating_sub(HOT / Self::ENTRY);
        let (low, high) = match self.entry(hot).0 < offset {
            true => (hot, last),
            false if self.entry(0).0 > offset => return 0,
            false => (0, hot),
        };
        let (mut low, mut high) = (low, high);
        while low < high {
            let middle = (low + high).div_ceil(2);
            let found = self.entry(middle).0;
            match found.cmp(&offset) {
                std::cmp::Ordering::Greater => high = middle - 1,
                std::cmp::Ordering::Less => low = middle,
                std::cmp::Ordering::Equal => return self.entry(middle).1,
            }
        }
        self.entry(low).1
    }

    fn sanity_check(&self, path: &Path) -> Result<()> {
        if let Some(last) = self.len().checked_sub(1)
            && self.entry(last).0 < self.base
        {
            bail!("{}: the last offset is {}, below the base offset {}", path.display(), self.entry(last).0, self.base);
        }
        whole_entries(path, self.bytes.len(), Self::ENTRY)
    }
}

fn whole_entries(path: &Path, len: usize, entry: usize) -> Result<()> {
    if len.is_multiple_of(entry) {
        return Ok(());
    }
    bail!("{}: {len} bytes, which is not a multiple of {entry}", path.display())
}

/// Prints an offset index; every entry must point to the batch that ends with its offset.
pub(super) fn offsets(path: &Path, options: &Options, out: &mut dyn Write, findings: &mut Findings) -> Result<()> {
    let base = base_offset(path)?;
    let log = LogFile::open(&beside(path, ".log"))?;
    let index = OffsetIndex { base, bytes: read(path)? };
    if index.len() == 0 {
        writeln!(out, "{} is empty.", path.display())?;
        return Ok(());
    }
    if options.sanity_only {
        index.sanity_check(path)?;
        writeln!(out, "{} passed sanity check.", path.display())?;
        return Ok(());
    }
    for number in 0..index.len() {
        let (offset, position) = index.entry(number);
        // Behind the entries of a file that was reserved, or not cut after a crash, stand zeros.
        if offset == base && number > 0 {
            return Ok(());
        }
        let end = log.slice_end(position, options.max_message_size)?;
        let entry = log.entry(position as u64, end)?;
        let entry = entry
            .with_context(|| format!("{}: no batch at {position}, which entry {number} points to", path.display()))?;
        let last = log.last_offset(&entry)?;
        if last != offset {
            of(&mut findings.mismatches, path).insert(offset, last);
        }
        if !options.quiet {
            writeln!(out, "offset: {offset} position: {position}")?;
        }
    }
    Ok(())
}

/// The file of another kind with the same offset.
fn beside(path: &Path, suffix: &str) -> std::path::PathBuf {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let stem = name.split('.').next().unwrap_or_default();
    path.with_file_name(format!("{stem}{suffix}"))
}

fn time_entry(base: i64, bytes: &[u8], number: usize) -> (i64, i64) {
    let at = number * TIME_ENTRY;
    let relative = i32::from_be_bytes(field(bytes, at + 8));
    (i64::from_be_bytes(field(bytes, at)), base.wrapping_add(i64::from(relative)))
}

const TIME_ENTRY: usize = 12;

/// Prints a time index; the batch that ends with an entry's offset must have its timestamp as the largest one.
pub(super) fn times(path: &Path, options: &Options, out: &mut dyn Write, findings: &mut Findings) -> Result<()> {
    let base = base_offset(path)?;
    let log = LogFile::open(&beside(path, ".log"))?;
    let bytes = match read(&beside(path, ".index")) {
        // Kafka's tool makes the file. Reading changes nothing here.
        Err(_) if !beside(path, ".index").exists() => Vec::new(),
        read => read?,
    };
    let index = OffsetIndex { base, bytes };
    let bytes = read(path)?;
    let count = bytes.len() / TIME_ENTRY;
    if options.sanity_only {
        sanity_check(path, base, &bytes)?;
        writeln!(out, "{} passed sanity check.", path.display())?;
        return Ok(());
    }
    let mut batches = Walk { log: &log, end: log.slice_end(0, i32::MAX)?, known: BTreeMap::new() };
    let mut decompressor = Decompressor::new(usize::MAX);
    let mut before = -1;
    for number in 0..count {
        let (timestamp, offset) = time_entry(base, &bytes, number);
        if offset == base && number > 0 {
            return Ok(());
        }
        let position = index.lookup(offset);
        log.slice_end(position, i32::MAX)?;
        match batches.ending_at_or_after(offset, position as u64)? {
            None => of(&mut findings.missing, path).push((offset, -1)),
            Some((_, last)) if last != offset => of(&mut findings.missing, path).push((offset, last)),
            Some((entry, _)) => {
                let newest = newest(&log, &entry, &mut decompressor)?;
                if newest != timestamp {
                    of(&mut findings.timestamps, path).push((timestamp, newest));
                }
                if before >= timestamp {
                    of(&mut findings.unordered, path).push((timestamp, before));
                }
            }
        }
        if !options.quiet {
            writeln!(out, "timestamp: {timestamp} offset: {offset}")?;
        }
        before = timestamp;
    }
    Ok(())
}

fn sanity_check(path: &Path, base: i64, bytes: &[u8]) -> Result<()> {
    if let Some(last) = (bytes.len() / TIME_ENTRY).checked_sub(1) {
        let (first_time, _) = time_entry(base, bytes, 0);
        let (time, offset) = time_entry(base, bytes, last);
        if time < first_time {
            bail!("{}: the last timestamp is {time}, below the first one {first_time}", path.display());
        }
        if offset < base {
            bail!("{}: the last offset is {offset}, below the base offset {base}", path.display());
        }
    }
    whole_entries(path, bytes.len(), TIME_ENTRY)
}

/// Batches of a log, each looked at once although every entry asks for all from its position to the end.
struct Walk<'l> {
    log: &'l LogFile,
    end: u64,
    /// By position: the batch and its last offset. From each of them on the log can be walked to its end.
    known: BTreeMap<u64, (Entry, i64)>,
}

impl Walk<'_> {
    /// The first batch from `position` on that ends at or after `offset`. An error where the log can't be walked to its end.
    fn ending_at_or_after(&mut self, offset: i64, position: u64) -> Result<Option<(Entry, i64)>> {
        let mut at = position;
        while !self.known.contains_key(&at) {
            let Some(entry) = self.log.entry(at, self.end)? else { break };
            self.known.insert(at, (entry, self.log.last_offset(&entry)?));
            at += entry.size;
        }
        let mut at = position;
        while let Some(&(entry, last)) = self.known.get(&at) {
            if last >= offset {
                return Ok(Some((entry, last)));
            }
            at += entry.size;
        }
        Ok(None)
    }
}

/// The largest timestamp of a batch's records; -1 without any.
fn newest(log: &LogFile, entry: &Entry, decompressor: &mut Decompressor) -> Result<i64> {
    if entry.magic < MAGIC {
        return legacy::Message::read(log, entry)?.timestamp();
    }
    let mut bytes = log.bytes(entry)?;
    bytes[16] = MAGIC.cast_unsigned();
    let batch = Batch::parse(&bytes)?;
    if batch.count() == 0 {
        return Ok(-1);
    }
    let mut newest = -1;
    for record in batch.records(decompressor)? {
        newest = newest.max(record?.timestamp(&batch));
    }
    Ok(newest)
}
