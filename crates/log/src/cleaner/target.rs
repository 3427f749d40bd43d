//! The segment that a cleaning writes: files with the suffix `.cleaned`, which nobody reads before they are swapped in.

use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;

use milena_io::{File, OpenMode};
use milena_records::Batch;

use crate::aborted::AbortedTxn;
use crate::error::{IoContext, LogError, Result};
use crate::index::{IndexEntry, OffsetEntry, TimeEntry};
use crate::names::{CLEANED, Home, INDEX, LOG, TIME_INDEX, TXN_INDEX, segment_name};
use crate::segment::Segment;

/// Bytes of an index that are kept in memory.
const WRITE_OUT: usize = 8 << 10;
/// Positions in an index are 31 bits.
const MOST_BYTES: u64 = i32::MAX as u64;

/// One file of the new segment, written from its beginning on.
#[derive(Debug)]
struct Output {
    path: PathBuf,
    file: Arc<dyn File>,
    written: u64,
}

impl Output {
    /// What an earlier cleaning left under the name is emptied.
    fn create(home: &Home, base_offset: i64, suffix: &str) -> Result<Self> {
        let path = home.dir.join(segment_name(base_offset, suffix) + CLEANED);
        let file = home.disk.open(&path, OpenMode::Create).context("creating", &path)?;
        file.truncate(0).context("truncating", &path)?;
        Ok(Self { path, file, written: 0 })
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> Result<()> {
        self.file.write_vectored_at(pieces, self.written).context("writing", &self.path)?;
        self.written += pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        Ok(())
    }
}

/// An index, of which little is in memory.
#[derive(Debug)]
struct IndexOutput<E> {
    output: Output,
    pending: Vec<u8>,
    last: Option<E>,
}

impl<E: IndexEntry> IndexOutput<E> {
    fn create(home: &Home, base_offset: i64) -> Result<Self> {
        let output = Output::create(home, base_offset, E::SUFFIX)?;
        Ok(Self { output, pending: Vec::new(), last: None })
    }

    fn bytes(&self) -> u64 {
        self.output.written + self.pending.len() as u64
    }

    fn push(&mut self, base_offset: i64, entry: E) -> Result<()> {
        entry.encode(base_offset, &mut self.pending);
        self.last = Some(entry);
        if self.pending.len() >= WRITE_OUT { self.write_out() } else { Ok(()) }
    }

    fn write_out(&mut self) -> Result<()> {
        self.output.write(&[IoSlice::new(&self.pending)])?;
        self.pending.clear();
        Ok(())
    }
}

/// The new segment.
#[derive(Debug)]
pub(crate) struct Target {
    base_offset: i64,
    log: Output,
    offsets: IndexOutput<OffsetEntry>,
    times: IndexOutput<TimeEntry>,
    /// `None` while no aborted transaction is left.
    aborted: Option<Output>,
    /// What is in it.
    aborted_entries: Vec<AbortedTxn>,
    newest: TimeEntry,
    /// Bytes since the batch of the last index entry, that one included.
    since_entry: u64,
    /// Of the batches noted so far, bytes.
    noted: u64,
    index_interval_bytes: u64,
    index_bytes: u64,
}

impl Target {
    /// Makes the files. To be called with the log held, so that `home` is where the log is.
    pub(crate) fn create(home: &Home, base_offset: i64, index_interval_bytes: u64, index_bytes: u64) -> Result<Self> {
        Ok(Self {
            base_offset,
            log: Output::create(home, base_offset, LOG)?,
            offsets: IndexOutput::create(home, base_offset)?,
            times: IndexOutput::create(home, base_offset)?,
            aborted: None,
            aborted_entries: Vec::new(),
            newest: TimeEntry { timestamp: -1, offset: base_offset },
            since_entry: 0,
            noted: 0,
            index_interval_bytes,
            index_bytes,
        })
    }

    /// Accounts for a batch that is going to be written behind those before it.
    pub(super) fn note(&mut self, batch: &Batch<'_>) -> Result<()> {
        let last_offset = batch.last_offset();
        let size = batch.size() as u64;
        if self.noted + size > MOST_BYTES || last_offset - self.base_offset > i64::from(i32::MAX) {
            let reason = format!("offset {last_offset} in {} bytes is too far for a segment", self.noted + size);
            return Err(LogError::Corrupt { path: self.log.path.clone(), position: self.noted, reason });
        }
        if batch.max_timestamp() > self.newest.timestamp {
            self.newest = TimeEntry { timestamp: batch.max_timestamp(), offset: last_offset };
        }
        if self.since_entry > self.index_interval_bytes && self.has_room() {
            let entry = OffsetEntry { offset: last_offset, position: self.noted };
            self.offsets.push(self.base_offset, entry)?;
            self.push_time()?;
            self.since_entry = 0;
        }
        self.since_entry += size;
        self.noted += size;
        Ok(())
    }

    /// Another entry fits into both indexes, and the time entry at the end.
    fn has_room(&self) -> bool {
        let times = self.times.bytes() + 2 * TimeEntry::SIZE as u64;
        self.offsets.bytes() + OffsetEntry::SIZE as u64 <= self.index_bytes && times <= self.index_bytes
    }

    fn push_time(&mut self) -> Result<()> {
        if self.newest.timestamp > self.times.last.map_or(-1, |last| last.timestamp) {
            self.times.push(self.base_offset, self.newest)?;
        }
        Ok(())
    }

    /// Writes noted batches in one write.
    pub(super) fn write(&mut self, pieces: &[IoSlice<'_>]) -> Result<()> {
        self.log.write(pieces)
    }

    /// Adds to the transaction index.
    pub(crate) fn add_aborted(&mut self, home: &Home, aborted: &[AbortedTxn]) -> Result<()> {
        if aborted.is_empty() {
            return Ok(());
        }
        let output = match &mut self.aborted {
            Some(output) => output,
            none => none.insert(Output::create(home, self.base_offset, TXN_INDEX)?),
        };
        let mut bytes = Vec::with_capacity(aborted.len() * AbortedTxn::SIZE);
        aborted.iter().for_each(|aborted| aborted.encode(self.base_offset, &mut bytes));
        self.aborted_entries.extend(aborted);
        output.write(&[IoSlice::new(&bytes)])
    }

    /// The segment as it can be read without its names: from the open file, walking over it.
    pub(crate) fn held(&self) -> Segment {
        Segment::held(self.base_offset, self.log.written, &self.log.file, self.newest, &self.aborted_entries)
    }

    /// Stage *clean*: the files are complete and durable, their names are not.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.push_time()?;
        self.offsets.write_out()?;
        self.times.write_out()?;
        for output in self.outputs() {
            output.file.sync_data().context("syncing", &output.path)?;
        }
        Ok(())
    }

    fn outputs(&self) -> impl Iterator<Item = &Output> {
        [&self.log, &self.offsets.output, &self.times.output].into_iter().chain(&self.aborted)
    }

    /// Base offset of the new segment.
    pub(crate) fn base_offset(&self) -> i64 {
        self.base_offset
    }

    /// Bytes of its batches.
    pub(crate) fn size(&self) -> u64 {
        self.log.written
    }

    /// The kinds of files that it has, the `.log` first.
    pub(crate) fn suffixes(&self) -> impl Iterator<Item = &'static str> {
        [LOG, INDEX, TIME_INDEX].into_iter().chain(self.aborted.iter().map(|_| TXN_INDEX))
    }
}
