//! One segment: a `.log` file of batches with its indexes. Files and index contents are touched at their first use, so that an idle
//! segment costs its numbers only.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use milena_io::{File, OpenMode};

use crate::aborted::AbortedTxn;
use crate::error::{IoContext, LogError, Result};
use crate::index::{Index, IndexEntry, OffsetEntry, TimeEntry, WRITE_OUT};
use crate::names::{Home, INDEX, LOG, TIME_INDEX, TXN_INDEX};
use crate::scan::{Header, HeaderScan, ScanError};

/// Below this length no space is reserved behind a segment's end: most partitions are small.
pub(crate) const RESERVE_FROM: u64 = 32 << 10;

/// A part of the log with its own files, named by its base offset. A clone goes on reading as the segment is now, whatever becomes of it.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) base_offset: i64,
    /// Bytes of whole batches in the `.log` file.
    pub(crate) size: u64,
    file: OnceLock<Arc<dyn File>>,
    indexes: OnceLock<Box<Indexes>>,
    /// Aborted transactions; `None` when there are none.
    aborted: Option<Box<Index<AbortedTxn>>>,
    /// Largest timestamp and the last offset of its batch; -1 without one.
    newest: OnceLock<TimeEntry>,
    tail: Option<Tail>,
    /// Space may stay reserved behind the end; no longer so when the index files are durable.
    spare: bool,
    /// The index files are complete and durable. Only ever true of segments that are not written to.
    pub(crate) indexes_synced: bool,
}

/// Both indexes of a segment.
#[derive(Debug, Clone)]
pub(crate) struct Indexes {
    pub(crate) offsets: Index<OffsetEntry>,
    pub(crate) times: Index<TimeEntry>,
}

/// What only the segment that is written to needs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tail {
    /// Largest timestamp of the first batch; `None` in an empty segment.
    pub(crate) first_timestamp: Option<i64>,
    /// Bytes appended since the batch of the last index entry, that one included.
    pub(crate) bytes_since_index: u64,
    /// Up to where space is reserved, bytes.
    pub(crate) reserved: u64,
    /// Length that the file was made with, in zeros, bytes.
    length: u64,
}

impl Segment {
    /// A segment whose files exist.
    pub(crate) fn existing(base_offset: i64, size: u64) -> Self {
        Self {
            base_offset,
            size,
            file: OnceLock::new(),
            indexes: OnceLock::new(),
            aborted: None,
            newest: OnceLock::new(),
            tail: None,
            spare: false,
            indexes_synced: true,
        }
    }

    /// A segment that is only read, and of which nothing is looked for under its names.
    pub(crate) fn held(
        base_offset: i64,
        size: u64,
        file: &Arc<dyn File>,
        newest: TimeEntry,
        aborted: &[AbortedTxn],
    ) -> Self {
        let mut segment = Self::existing(base_offset, size);
        segment.file = OnceLock::from(Arc::clone(file));
        let indexes = Indexes { offsets: Index::new(base_offset), times: Index::new(base_offset) };
        segment.set_indexes(indexes, newest);
        aborted.iter().for_each(|aborted| segment.note_aborted(*aborted));
        segment
    }

    /// Makes the files of an empty segment; leftovers of those names, which no segment owns, are emptied. The `.log` file gets this length, in
    /// zeros, until the segment is finished.
    pub(crate) fn create(home: &Home, base_offset: i64, length: u64) -> Result<Self> {
        let path = home.segment_file(base_offset, LOG);
        let file = home.disk.open(&path, OpenMode::Create).context("creating", &path)?;
        if file.len().context("measuring", &path)? > 0 {
            file.truncate(0).context("truncating", &path)?;
        }
        if length > 0 {
            file.truncate(length).context("lengthening", &path)?;
        }
        let indexes = Indexes { offsets: Index::reset(home, base_offset)?, times: Index::reset(home, base_offset)? };
        let mut segment = Self::existing(base_offset, 0);
        segment.file = OnceLock::from(file);
        segment.set_indexes(indexes, TimeEntry { timestamp: -1, offset: base_offset });
        segment.tail = Some(Tail { length, ..Tail::default() });
        Ok(segment)
    }

    pub(crate) fn path(&self, home: &Home) -> PathBuf {
        home.segment_file(self.base_offset, LOG)
    }

    /// The `.log` file, opened at the first use.
    pub(crate) fn file(&self, home: &Home) -> Result<&Arc<dyn File>> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let path = self.path(home);
        let file = home.disk.open(&path, OpenMode::Write).context("opening", &path)?;
        Ok(self.file.get_or_init(|| file))
    }

    /// Lets go of the `.log` file until it is needed again.
    pub(crate) fn release(&mut self) {
        self.file = OnceLock::new();
    }

    /// Both indexes, loaded at the first use.
    pub(crate) fn indexes(&self, home: &Home) -> Result<&Indexes> {
        if let Some(indexes) = self.indexes.get() {
            return Ok(indexes);
        }
        let offsets = Index::load(home, self.base_offset)?;
        let times = Index::load(home, self.base_offset)?;
        Ok(self.indexes.get_or_init(|| Box::new(Indexes { offsets, times })))
    }

    pub(crate) fn indexes_mut(&mut self, home: &Home) -> Result<&mut Indexes> {
        self.indexes(home)?;
        Ok(self.indexes.get_mut().expect("the indexes were loaded in the line above"))
    }

    /// The index files with their paths.
    pub(crate) fn index_files(&self, home: &Home) -> Result<Vec<(PathBuf, Arc<dyn File>)>> {
        let indexes = self.indexes(home)?;
        let path = |suffix| home.segment_file(self.base_offset, suffix);
        let mut files = vec![
            (path(INDEX), Arc::clone(indexes.offsets.file(home)?)),
            (path(TIME_INDEX), Arc::clone(indexes.times.file(home)?)),
        ];
        if let Some(aborted) = &self.aborted {
            files.push((path(TXN_INDEX), Arc::clone(aborted.file(home)?)));
        }
        Ok(files)
    }

    /// The aborted transactions whose markers are here.
    pub(crate) fn aborted(&self) -> Option<&Index<AbortedTxn>> {
        self.aborted.as_deref()
    }

    /// Takes a transaction index whose file is there.
    pub(crate) fn set_aborted(&mut self, aborted: Index<AbortedTxn>) {
        self.aborted = Some(Box::new(aborted));
    }

    /// An aborted transaction ends here; memory only.
    pub(crate) fn note_aborted(&mut self, entry: AbortedTxn) {
        let base_offset = self.base_offset;
        self.aborted.get_or_insert_with(|| Box::new(Index::new(base_offset))).push(entry);
    }

    /// Removes the transaction index, so that it can be made anew.
    pub(crate) fn reset_aborted(&mut self, home: &Home) -> Result<()> {
        self.aborted = None;
        self.indexes_synced = false;
        remove_if_there(home, &home.segment_file(self.base_offset, TXN_INDEX))
    }

    /// Completes the file of the transaction index.
    pub(crate) fn finish_aborted(&mut self, home: &Home) -> Result<()> {
        let Some(aborted) = &mut self.aborted else { return Ok(()) };
        aborted.write_out(home)?;
        aborted.trim(home)?;
        aborted.release();
        Ok(())
    }

    /// Puts rebuilt indexes in place of whatever was loaded.
    pub(crate) fn set_indexes(&mut self, indexes: Indexes, newest: TimeEntry) {
        self.indexes = OnceLock::from(Box::new(indexes));
        self.newest = OnceLock::from(newest);
        self.tail = None;
        self.indexes_synced = false;
    }

    /// Largest timestamp, and the last offset of the first batch that has it; timestamp -1 when there is none.
    pub(crate) fn newest(&self, home: &Home) -> Result<TimeEntry> {
        if let Some(newest) = self.newest.get() {
            return Ok(*newest);
        }
        let last = self.indexes(home)?.times.last();
        let newest = last.unwrap_or(TimeEntry { timestamp: -1, offset: self.base_offset });
        Ok(*self.newest.get_or_init(|| newest))
    }

    /// Keeps what a copy has found out.
    pub(crate) fn learn_newest(&self, newest: TimeEntry) {
        // Known already, as likely as not.
        let _ = self.newest.set(newest);
    }

    /// Whether there is a batch as `entry` says.
    pub(crate) fn holds(&self, home: &Home, entry: TimeEntry) -> Result<bool> {
        let batch = match self.locate(home, entry.offset) {
            Err(LogError::Corrupt { .. }) => None,
            located => located?,
        };
        Ok(batch.is_some_and(|batch| batch.base_offset <= entry.offset && batch.max_timestamp == entry.timestamp))
    }

    /// As [`newest`](Self::newest), if that is known without looking into the files.
    pub(crate) fn known_newest(&self) -> Option<TimeEntry> {
        self.newest.get().copied()
    }

    /// Takes over what a clone has learned from the files, which are those of this segment at the same size.
    pub(crate) fn learn(&self, clone: &Segment) {
        // Known already, as likely as not.
        if let Some(file) = clone.file.get() {
            let _ = self.file.set(Arc::clone(file));
        }
        if self.indexes.get().is_none()
            && let Some(indexes) = clone.indexes.get()
        {
            let _ = self.indexes.set(indexes.clone());
        }
        if let Some(newest) = clone.newest.get() {
            self.learn_newest(*newest);
        }
    }

    /// Largest timestamp of the first batch; `None` in an empty segment.
    pub(crate) fn first_timestamp(&self, home: &Home) -> Result<Option<i64>> {
        if let Some(tail) = &self.tail {
            return Ok(tail.first_timestamp);
        }
        Ok(self.next_header(home, &mut self.scan(home, 0)?)?.map(|header| header.max_timestamp))
    }

    /// A walk over the headers from `position` on, a batch start.
    pub(crate) fn scan(&self, home: &Home, position: u64) -> Result<HeaderScan<'_>> {
        Ok(HeaderScan::new(&**self.file(home)?, position, self.size))
    }

    /// The next header of a walk, with this segment's path in its error.
    pub(crate) fn next_header(&self, home: &Home, scan: &mut HeaderScan<'_>) -> Result<Option<Header>> {
        scan.next().map_err(|error| match error {
            ScanError::Io(source) => LogError::Io { operation: "reading", path: self.path(home), source },
            ScanError::Corrupt { position, reason } => LogError::Corrupt { path: self.path(home), position, reason },
        })
    }

    /// The first batch whose last offset is at or after `offset`; `None` when this segment has no such batch.
    ///
    /// The batch that an index entry leads to must be the one that the entry names; otherwise the index is not believed and the walk
    /// begins with the segment.
    pub(crate) fn locate(&self, home: &Home, offset: i64) -> Result<Option<Header>> {
        let entry = self.indexes(home)?.offsets.last_where(home, |entry| entry.offset <= offset);
        if let Ok(Some(entry)) = entry
            && entry.position < self.size
        {
            let mut scan = self.scan(home, entry.position)?;
            if let Ok(Some(first)) = scan.next()
                && first.last_offset == entry.offset
            {
                return self.walk_to(home, scan, first, offset);
            }
        }
        let mut scan = self.scan(home, 0)?;
        match self.next_header(home, &mut scan)? {
            Some(first) => self.walk_to(home, scan, first, offset),
            None => Ok(None),
        }
    }

    /// Last offset of a batch that begins at or behind `position`, if an index entry leads to one.
    pub(crate) fn offset_behind(&self, home: &Home, position: u64) -> Option<i64> {
        let indexes = self.indexes(home).ok()?;
        let entry = indexes.offsets.first_where(home, |entry| entry.position >= position).ok()??;
        let header = self.scan(home, entry.position).ok()?.next().ok()??;
        (entry.position >= position && header.last_offset == entry.offset).then_some(entry.offset)
    }

    fn walk_to(&self, home: &Home, mut scan: HeaderScan<'_>, first: Header, offset: i64) -> Result<Option<Header>> {
        let mut at = first;
        while at.last_offset < offset {
            match self.next_header(home, &mut scan)? {
                Some(next) => at = next,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    /// Offset after the last batch, by the headers behind the last index entry.
    ///
    /// # Errors
    /// [`LogError::Corrupt`] when the bytes do not end with a whole batch.
    pub(crate) fn end_offset(&self, home: &Home) -> Result<i64> {
        let mut end = self.base_offset;
        let last_entry = self.indexes(home)?.offsets.last();
        let at = last_entry.map(|entry| self.locate(home, entry.offset)).transpose()?.flatten();
        let mut scan = self.scan(home, at.map_or(0, |header| header.position))?;
        while let Some(header) = self.next_header(home, &mut scan)? {
            end = header.last_offset + 1;
        }
        Ok(end)
    }

    /// Loads what appending needs: file, indexes, newest timestamp, tail.
    pub(crate) fn prepare_tail(&mut self, home: &Home) -> Result<&mut Tail> {
        if self.tail.is_none() {
            self.newest(home)?;
            self.file(home)?;
            let last = self.indexes(home)?.offsets.last();
            let tail = Tail {
                first_timestamp: self.first_timestamp(home)?,
                bytes_since_index: self.size - last.map_or(0, |last| last.position.min(self.size)),
                reserved: self.size,
                length: 0,
            };
            self.tail = Some(tail);
        }
        self.indexes_synced = false;
        Ok(self.tail.as_mut().expect("the tail was set in the lines above"))
    }

    /// Bytes of the entries of both indexes, without loading them.
    pub(crate) fn index_bytes(&self, home: &Home) -> Result<(u64, u64)> {
        if let Some((offsets, times)) = self.index_lengths() {
            return Ok((offsets * OffsetEntry::SIZE as u64, times * TimeEntry::SIZE as u64));
        }
        let len = |suffix| -> Result<u64> {
            let path = home.segment_file(self.base_offset, suffix);
            let found = home.disk.metadata(&path).context("measuring", &path)?;
            Ok(found.map_or(0, |found| found.len))
        };
        Ok((len(INDEX)?, len(TIME_INDEX)?))
    }

    /// Number of entries of both indexes, if they are loaded.
    pub(crate) fn index_lengths(&self) -> Option<(u64, u64)> {
        self.indexes.get().map(|indexes| (indexes.offsets.len(), indexes.times.len()))
    }

    pub(crate) fn tail(&self) -> Option<&Tail> {
        self.tail.as_ref()
    }

    pub(crate) fn tail_mut(&mut self) -> Option<&mut Tail> {
        self.tail.as_mut()
    }

    /// Accounts for a batch that now stands at the end; memory only. The tail must be prepared.
    pub(crate) fn note_batch(&mut self, last_offset: i64, max_timestamp: i64, size: u64, index_interval: u64) {
        let (Some(tail), Some(indexes), Some(newest)) =
            (self.tail.as_mut(), self.indexes.get_mut(), self.newest.get_mut())
        else {
            panic!("segment {} is appended to without its tail prepared", self.base_offset);
        };
        if max_timestamp > newest.timestamp {
            *newest = TimeEntry { timestamp: max_timestamp, offset: last_offset };
        }
        if tail.bytes_since_index > index_interval {
            indexes.note(OffsetEntry { offset: last_offset, position: self.size }, *newest);
            tail.bytes_since_index = 0;
        }
        tail.first_timestamp.get_or_insert(max_timestamp);
        tail.bytes_since_index += size;
        self.size += size;
    }

    /// Keeps the entries in memory bounded.
    pub(crate) fn write_out_if_many(&mut self, home: &Home) -> Result<()> {
        if let Some(aborted) = self.aborted.as_mut().filter(|aborted| aborted.pending() >= WRITE_OUT) {
            aborted.write_out(home)?;
        }
        self.indexes.get_mut().map_or(Ok(()), |indexes| indexes.write_out_if_many(home))
    }

    /// Completes the files as at a roll or close: the final time entry, all index entries written, exact lengths. True when the `.log` file
    /// has lost zeros that it was made with.
    ///
    /// Space that is reserved behind the end stays [spare](Self::has_spare): a file system may take long to free it.
    pub(crate) fn finish(&mut self, home: &Home) -> Result<bool> {
        let newest = self.newest(home)?;
        let indexes = self.indexes_mut(home)?;
        indexes.push_time(newest);
        indexes.write_out(home)?;
        indexes.offsets.trim(home)?;
        indexes.times.trim(home)?;
        indexes.offsets.release();
        indexes.times.release();
        self.finish_aborted(home)?;
        let Some(Tail { reserved, length, .. }) = self.tail else { return Ok(false) };
        let shortened = length > self.size;
        if shortened {
            self.file(home)?.truncate(self.size).context("trimming", &self.path(home))?;
        }
        // Only now: whoever tries again has to cut what could not be cut.
        self.tail = None;
        self.spare |= !shortened && reserved > self.size;
        Ok(shortened)
    }

    /// Whether space may stay reserved behind the end, which is to be given back.
    pub(crate) fn has_spare(&self) -> bool {
        self.spare
    }

    /// The index files are durable, and no space is spare any more.
    pub(crate) fn flushed(&mut self) {
        self.indexes_synced = true;
        self.spare = false;
    }

    /// Gives spare space back.
    pub(crate) fn give_back_spare(&mut self, home: &Home) -> Result<()> {
        if self.spare { self.cut_to_size(home) } else { Ok(()) }
    }

    /// Gives back the space behind the end that a writer may have reserved before it crashed.
    pub(crate) fn give_back_reserved(&mut self, home: &Home) -> Result<()> {
        if self.size < RESERVE_FROM { Ok(()) } else { self.cut_to_size(home) }
    }

    /// Cuts the file to the batches counted so far, and gives back what is reserved behind them.
    pub(crate) fn cut_to_size(&mut self, home: &Home) -> Result<()> {
        self.file(home)?.truncate(self.size).context("truncating", &self.path(home))?;
        self.spare = false;
        if let Some(tail) = &mut self.tail {
            tail.reserved = self.size;
            tail.length = 0;
        }
        Ok(())
    }

    /// Removes the batch that holds `offset` and all behind it. Returns the base offset of the first one removed.
    pub(crate) fn truncate_to_offset(&mut self, home: &Home, offset: i64) -> Result<Option<i64>> {
        let Some(first) = self.locate(home, offset)? else {
            self.cut_to_size(home)?;
            return Ok(None);
        };
        self.tail = None;
        let indexes = self.indexes_mut(home)?;
        indexes.offsets.truncate_to_offset(home, first.base_offset)?;
        indexes.times.truncate_to_offset(home, first.base_offset)?;
        self.truncate_aborted(home, first.base_offset)?;
        let indexes = self.indexes_mut(home)?;
        let last = indexes.times.last();
        self.size = first.position;
        let (file, path) = (self.file(home)?, self.path(home));
        file.truncate(self.size).context("truncating", &path)?;
        // What is written here next must not meet what stood here before after a power loss.
        file.sync_data().context("syncing", &path)?;
        self.spare = false;
        self.newest = OnceLock::from(self.newest_after(home, last)?);
        self.indexes_synced = false;
        Ok(Some(first.base_offset))
    }

    /// The newest timestamp when the time index ends with `last`.
    fn newest_after(&self, home: &Home, last: Option<TimeEntry>) -> Result<TimeEntry> {
        let mut newest = last.unwrap_or(TimeEntry { timestamp: -1, offset: self.base_offset });
        let from = match last {
            Some(last) => self.locate(home, last.offset)?.map_or(0, |header| header.position),
            None => 0,
        };
        let mut scan = self.scan(home, from)?;
        while let Some(header) = self.next_header(home, &mut scan)? {
            if header.max_timestamp > newest.timestamp {
                newest = TimeEntry { timestamp: header.max_timestamp, offset: header.last_offset };
            }
        }
        Ok(newest)
    }

    /// Gives the files the suffix `.deleted`, the `.log` first: whatever a crash leaves of the others goes at the next start. Adds their new
    /// paths to `deleted`, also those renamed before a failure.
    pub(crate) fn rename_deleted(&self, home: &Home, deleted: &mut Vec<PathBuf>) -> Result<()> {
        [LOG, INDEX, TIME_INDEX, TXN_INDEX]
            .iter()
            .try_for_each(|suffix| home.rename_deleted(self.base_offset, suffix, deleted))
    }

    fn truncate_aborted(&mut self, home: &Home, offset: i64) -> Result<()> {
        let Some(aborted) = &mut self.aborted else { return Ok(()) };
        aborted.truncate_to_offset(home, offset)?;
        if aborted.len() == 0 { self.reset_aborted(home) } else { Ok(()) }
    }

    /// Removes the files.
    pub(crate) fn remove(&self, home: &Home) -> Result<()> {
        let mut suffixes = [LOG, INDEX, TIME_INDEX, TXN_INDEX].into_iter();
        suffixes.try_for_each(|suffix| remove_if_there(home, &home.segment_file(self.base_offset, suffix)))
    }
}

fn remove_if_there(home: &Home, path: &Path) -> Result<()> {
    match home.disk.remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        result => result.context("removing", path),
    }
}

impl Indexes {
    /// An index entry is due: the batch that begins at `batch.position`, and the newest timestamp up to and with it.
    pub(crate) fn note(&mut self, batch: OffsetEntry, newest: TimeEntry) {
        self.offsets.push(batch);
        self.push_time(newest);
    }

    /// Adds a time entry if its timestamp is above the last one.
    pub(crate) fn push_time(&mut self, newest: TimeEntry) {
        if newest.timestamp > self.times.last().map_or(-1, |last| last.timestamp) {
            self.times.push(newest);
        }
    }

    /// Keeps the entries in memory bounded.
    pub(crate) fn write_out_if_many(&mut self, home: &Home) -> Result<()> {
        if self.offsets.pending() >= WRITE_OUT { self.write_out(home) } else { Ok(()) }
    }

    pub(crate) fn write_out(&mut self, home: &Home) -> Result<()> {
        self.offsets.write_out(home)?;
        self.times.write_out(home)
    }
}
