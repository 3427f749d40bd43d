//! A segment's offset index, time index and transaction index: entries of fixed size, appended in order, found by binary search.
//!
//! New entries are kept in memory and reach the file in pieces of [`WRITE_OUT`]; what is in the file is read with `pread`, never mapped.
//! An index is only a hint: whoever follows an entry checks the batch header that it points to.

use std::sync::{Arc, OnceLock};

use milena_io::{File, FileExt, OpenMode};

use crate::error::{IoContext, Result};
use crate::names::{Home, INDEX, TIME_INDEX};
use crate::scan::field;

/// Entries kept in memory before they are written out together.
pub(crate) const WRITE_OUT: usize = 512;

/// Bytes of the file that a search reads at once; beyond that it reads single entries.
const WINDOW: usize = 1536;
/// Bytes of the longest entry.
const LONGEST: usize = 34;

/// An index entry: its two numbers, and how the file holds them.
pub(crate) trait IndexEntry: Copy + std::fmt::Debug + PartialEq {
    /// Bytes in the file.
    const SIZE: usize;
    /// Suffix of the file's name.
    const SUFFIX: &'static str;
    /// Appends the `SIZE` bytes.
    fn encode(&self, base_offset: i64, out: &mut Vec<u8>);
    /// Reads `SIZE` bytes.
    fn decode(base_offset: i64, bytes: &[u8]) -> Self;
    /// Offset of the entry; never decreases within an index.
    fn offset(&self) -> i64;
}

/// `.index`: the batch with this last offset begins at this position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OffsetEntry {
    /// Last offset of the batch.
    pub(crate) offset: i64,
    /// Where the batch begins, bytes.
    pub(crate) position: u64,
}

/// `.timeindex`: the largest timestamp up to here, and the last offset of the batch that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeEntry {
    /// Largest timestamp so far, ms since 1970; strictly increases.
    pub(crate) timestamp: i64,
    /// Last offset of the first batch with it.
    pub(crate) offset: i64,
}

impl IndexEntry for OffsetEntry {
    const SIZE: usize = 8;
    const SUFFIX: &'static str = INDEX;

    fn encode(&self, base_offset: i64, out: &mut Vec<u8>) {
        out.extend(((self.offset - base_offset) as i32).to_be_bytes());
        out.extend((self.position as u32).to_be_bytes());
    }

    fn decode(base_offset: i64, bytes: &[u8]) -> Self {
        let relative = u32::from_be_bytes(field(bytes, 0));
        let position = u32::from_be_bytes(field(bytes, 4));
        Self { offset: base_offset.saturating_add(i64::from(relative)), position: u64::from(position) }
    }

    fn offset(&self) -> i64 {
        self.offset
    }
}

impl IndexEntry for TimeEntry {
    const SIZE: usize = 12;
    const SUFFIX: &'static str = TIME_INDEX;

    fn encode(&self, base_offset: i64, out: &mut Vec<u8>) {
        out.extend(self.timestamp.to_be_bytes());
        out.extend(((self.offset - base_offset) as i32).to_be_bytes());
    }

    fn decode(base_offset: i64, bytes: &[u8]) -> Self {
        let relative = u32::from_be_bytes(field(bytes, 8));
        Self { timestamp: i64::from_be_bytes(field(bytes, 0)), offset: base_offset.saturating_add(i64::from(relative)) }
    }

    fn offset(&self) -> i64 {
        self.offset
    }
}

/// One index of one segment.
#[derive(Debug, Clone)]
pub(crate) struct Index<E> {
    base_offset: i64,
    file: OnceLock<Arc<dyn File>>,
    /// Entries in the file.
    written: u64,
    /// Entries behind those, not yet in the file.
    pending: Vec<E>,
    last: Option<E>,
}

impl<E: IndexEntry> Index<E> {
    /// Bytes of an entry.
    pub(crate) const ENTRY: u64 = E::SIZE as u64;
    /// Entries in [`WINDOW`].
    const WINDOW: u64 = (WINDOW / E::SIZE) as u64;

    /// An index without entries and without a file.
    pub(crate) fn new(base_offset: i64) -> Self {
        Self { base_offset, file: OnceLock::new(), written: 0, pending: Vec::new(), last: None }
    }

    /// An index without entries; whatever the file holds is cut off.
    pub(crate) fn reset(home: &Home, base_offset: i64) -> Result<Self> {
        let mut index = Self::new(base_offset);
        index.trim(home)?;
        // Not left open: most segments never need more of the file before they are finished.
        index.release();
        Ok(index)
    }

    /// An index as its file has it. Zeros that Kafka reserved behind the last entry do not count.
    pub(crate) fn load(home: &Home, base_offset: i64) -> Result<Self> {
        let mut index = Self::new(base_offset);
        let path = home.segment_file(base_offset, E::SUFFIX);
        let len = home.disk.metadata(&path).context("looking for", &path)?.map_or(0, |found| found.len);
        index.written = len / E::SIZE as u64;
        index.skip_padding(home)?;
        index.last = index.written.checked_sub(1).map(|last| index.entry(home, last)).transpose()?;
        Ok(index)
    }

    /// No entry but the first can be all zeros: their offsets or timestamps increase.
    fn skip_padding(&mut self, home: &Home) -> Result<()> {
        let zero = E::decode(self.base_offset, &[0; LONGEST]);
        if self.written > 0 && self.entry(home, self.written - 1)? == zero {
            self.written = self.partition_point(home, |entry| *entry != zero)?;
        }
        Ok(())
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    pub(crate) fn last(&self) -> Option<E> {
        self.last
    }

    pub(crate) fn push(&mut self, entry: E) {
        self.pending.push(entry);
        self.last = Some(entry);
    }

    /// Entries that only memory has.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The file, opened or made at the first use.
    pub(crate) fn file(&self, home: &Home) -> Result<&Arc<dyn File>> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let path = home.segment_file(self.base_offset, E::SUFFIX);
        let file = home.disk.open(&path, OpenMode::Create).context("opening", &path)?;
        Ok(self.file.get_or_init(|| file))
    }

    /// Writes the pending entries behind those in the file, in one write.
    pub(crate) fn write_out(&mut self, home: &Home) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(self.pending.len() * E::SIZE);
        for entry in &self.pending {
            entry.encode(self.base_offset, &mut bytes);
        }
        let path = home.segment_file(self.base_offset, E::SUFFIX);
        self.file(home)?.write_at(&bytes, self.written * E::SIZE as u64).context("writing", &path)?;
        self.written += self.pending.len() as u64;
        self.pending = Vec::new();
        Ok(())
    }

    /// Cuts the file to its entries.
    pub(crate) fn trim(&self, home: &Home) -> Result<()> {
        let path = home.segment_file(self.base_offset, E::SUFFIX);
        let file = self.file(home)?;
        let exact = self.written * E::SIZE as u64;
        if file.len().context("measuring", &path)? != exact {
            file.truncate(exact).context("truncating", &path)?;
        }
        Ok(())
    }

    /// Lets go of the file until it is needed again.
    pub(crate) fn release(&mut self) {
        self.file = OnceLock::new();
    }

    fn entry(&self, home: &Home, number: u64) -> Result<E> {
        if let Some(in_memory) = number.checked_sub(self.written) {
            return Ok(self.pending[in_memory as usize]);
        }
        let mut bytes = [0; LONGEST];
        self.read(home, &mut bytes[..E::SIZE], number)?;
        Ok(E::decode(self.base_offset, &bytes))
    }

    /// Reads entries of the file from number `first` on.
    fn read(&self, home: &Home, bytes: &mut [u8], first: u64) -> Result<()> {
        let path = || home.segment_file(self.base_offset, E::SUFFIX);
        let file = match self.file.get() {
            Some(file) => file,
            None => {
                // Not made: where it is gone, a deletion has overtaken a search.
                let file = home.disk.open(&path(), OpenMode::Write).context_at("opening", path)?;
                self.file.get_or_init(|| file)
            }
        };
        file.read_exact_at(bytes, first * E::SIZE as u64).context_at("reading", path)
    }

    /// How many entries at the beginning satisfy `before`, which none behind them does.
    fn partition_point(&self, home: &Home, before: impl Fn(&E) -> bool) -> Result<u64> {
        if self.pending.first().is_some_and(&before) {
            return Ok(self.written + self.pending.partition_point(before) as u64);
        }
        let (mut low, mut high) = (0, self.written);
        while high - low > Self::WINDOW {
            let middle = low + (high - low) / 2;
            if before(&self.entry(home, middle)?) { low = middle + 1 } else { high = middle }
        }
        let mut bytes = [0; WINDOW];
        let bytes = &mut bytes[..(high - low) as usize * E::SIZE];
        if !bytes.is_empty() {
            self.read(home, bytes, low)?;
        }
        let first = low;
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = E::decode(self.base_offset, &bytes[(middle - first) as usize * E::SIZE..]);
            if before(&entry) { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// Hands over the entries from the first on that does not satisfy `before`, until `each` returns false. None behind that one satisfies
    /// `before`.
    pub(crate) fn for_each_after(
        &self,
        home: &Home,
        before: impl Fn(&E) -> bool,
        mut each: impl FnMut(E) -> bool,
    ) -> Result<()> {
        let mut number = self.partition_point(home, before)?;
        let mut bytes = [0; WINDOW];
        while number < self.written {
            let count = (self.written - number).min(Self::WINDOW);
            let bytes = &mut bytes[..count as usize * E::SIZE];
            self.read(home, bytes, number)?;
            if !bytes.chunks_exact(E::SIZE).all(|entry| each(E::decode(self.base_offset, entry))) {
                return Ok(());
            }
            number += count;
        }
        self.pending[(number - self.written) as usize..].iter().all(|entry| each(*entry));
        Ok(())
    }

    /// The first entry that satisfies `after`, which none before it does.
    pub(crate) fn first_where(&self, home: &Home, after: impl Fn(&E) -> bool) -> Result<Option<E>> {
        let number = self.partition_point(home, |entry| !after(entry))?;
        (number < self.len()).then(|| self.entry(home, number)).transpose()
    }

    /// The last entry that satisfies `before`, which none behind it does.
    pub(crate) fn last_where(&self, home: &Home, before: impl Fn(&E) -> bool) -> Result<Option<E>> {
        let count = self.partition_point(home, before)?;
        count.checked_sub(1).map(|last| self.entry(home, last)).transpose()
    }

    /// Drops the entries at and above `offset`, in the file too.
    pub(crate) fn truncate_to_offset(&mut self, home: &Home, offset: i64) -> Result<()> {
        let keep = self.partition_point(home, |entry| entry.offset() < offset)?;
        self.pending.truncate(keep.saturating_sub(self.written) as usize);
        if keep < self.written {
            self.written = keep;
        }
        self.trim(home)?;
        self.last = keep.checked_sub(1).map(|last| self.entry(home, last)).transpose()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use milena_io::{Disk, SimDisk};

    use super::*;

    #[test]
    fn a_read_makes_no_file_that_is_gone() {
        let disk = Arc::new(SimDisk::new(0));
        let home = Home { disk: Arc::<SimDisk>::clone(&disk), dir: "/".into() };
        let mut index = Index::new(0);
        index.push(OffsetEntry { offset: 3, position: 0 });
        index.write_out(&home).unwrap();
        index.release();
        disk.remove_file(&home.segment_file(0, INDEX)).unwrap();
        index.last_where(&home, |_| true).unwrap_err();
        assert_eq!(disk.list(Path::new("/")).unwrap(), []);
    }
}
