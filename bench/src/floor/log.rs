//! The floor's log: one growing file a partition, appended with one vectored write a wake-up.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::IoSlice;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{FallocateFlags, fallocate};

use crate::wire::Uuid;

/// Bytes between two entries of a partition's index at least.
const INDEX_EVERY: u64 = 4096;
/// Space reserved ahead of the end of a file: at least, and at most.
const RESERVE: std::ops::RangeInclusive<u64> = 1 << 20..=64 << 20;
/// Most slices that one vectored write takes.
const MAX_SLICES: usize = 1024;

/// Names a partition: topic, partition.
pub(super) type PartitionId = (usize, usize);

/// All topics.
pub(super) struct Log {
    dir: PathBuf,
    topics: Vec<Option<Topic>>,
    by_name: HashMap<String, usize>,
}

struct Topic {
    name: String,
    dir: PathBuf,
    partitions: Vec<Partition>,
}

/// A partition's file, and where its batches stand in it.
pub(super) struct Partition {
    /// The file.
    pub file: File,
    len: u64,
    reserved: u64,
    next_offset: i64,
    /// Batch starts: offset, position. Sparse; a reader is only ever cut off at one of them.
    index: Vec<(i64, u64)>,
    /// Whether the next batch needs an index entry because a reader stands at the end of the log.
    reader_at_end: bool,
    /// Connections that have ever waited for this partition.
    pub followers: Vec<usize>,
}

/// A batch that has its offset but is not written yet.
pub(super) struct Pending {
    /// The connection in whose buffer it stands.
    pub conn: usize,
    /// Where in the buffer.
    pub range: std::ops::Range<usize>,
    /// Its offset.
    pub base_offset: i64,
}

impl Log {
    /// An empty log in `dir`; whatever was in a former floor's folder is deleted.
    pub(super) fn create(dir: &Path) -> Result<Self> {
        let dir = dir.join("floor-log");
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        Ok(Self { dir, topics: Vec::new(), by_name: HashMap::new() })
    }

    /// Creates a topic; returns its number, also if it exists.
    pub(super) fn create_topic(&mut self, name: &str, partitions: usize) -> Result<usize> {
        if let Some(&topic) = self.by_name.get(name) {
            return Ok(topic);
        }
        let number = self.topics.len();
        let dir = self.dir.join(number.to_string());
        fs::create_dir(&dir)?;
        let partitions =
            (0..partitions).map(|at| Partition::create(&dir.join(at.to_string()))).collect::<Result<_>>()?;
        self.topics.push(Some(Topic { name: name.to_owned(), dir, partitions }));
        self.by_name.insert(name.to_owned(), number);
        Ok(number)
    }

    /// Deletes a topic with its files.
    pub(super) fn delete_topic(&mut self, name: &str) -> Result<()> {
        if let Some(topic) = self.by_name.remove(name).and_then(|number| self.topics[number].take()) {
            fs::remove_dir_all(topic.dir)?;
        }
        Ok(())
    }

    /// Finds a topic by its name.
    pub(super) fn named(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Finds a topic by its id.
    pub(super) fn identified(&self, id: &Uuid) -> Option<usize> {
        let number = u32::from_be_bytes([id[12], id[13], id[14], id[15]]).checked_sub(1)? as usize;
        self.topics.get(number)?.as_ref().map(|_| number)
    }

    /// A topic's id: its number plus one.
    pub(super) fn id(topic: usize) -> Uuid {
        (topic as u128 + 1).to_be_bytes()
    }

    /// A topic's name and how many partitions it has.
    pub(super) fn describe(&self, topic: usize) -> Option<(&str, usize)> {
        let topic = self.topics.get(topic)?.as_ref()?;
        Some((&topic.name, topic.partitions.len()))
    }

    /// A partition, if it exists.
    pub(super) fn partition(&mut self, (topic, partition): PartitionId) -> Option<&mut Partition> {
        self.topics.get_mut(topic)?.as_mut()?.partitions.get_mut(partition)
    }
}

impl Partition {
    fn create(path: &Path) -> Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        Ok(Self {
            file,
            len: 0,
            reserved: 0,
            next_offset: 0,
            index: Vec::new(),
            reader_at_end: true,
            followers: Vec::new(),
        })
    }

    /// The offset after the last record.
    pub(super) fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// Gives a batch of `records` its offset.
    pub(super) fn take_offsets(&mut self, records: i64) -> i64 {
        let base = self.next_offset;
        self.next_offset += records;
        base
    }

    /// Writes batches, given with their offsets, at the end of the file.
    pub(super) fn append(&mut self, batches: &[(i64, IoSlice<'_>)]) -> Result<()> {
        let mut at = self.len;
        for (base, slice) in batches {
            self.note(*base);
            self.len += slice.len() as u64;
        }
        if self.len > self.reserved {
            let ahead = self.len.clamp(*RESERVE.start(), *RESERVE.end());
            fallocate(&self.file, FallocateFlags::KEEP_SIZE, self.reserved, self.len + ahead - self.reserved)?;
            self.reserved = self.len + ahead;
        }
        for chunk in batches.chunks(MAX_SLICES) {
            let slices: Vec<_> = chunk.iter().map(|(_, slice)| *slice).collect();
            let want: usize = slices.iter().map(|slice| slice.len()).sum();
            let written = rustix::io::pwritev(&self.file, &slices, at)?;
            anyhow::ensure!(written == want, "short write: {written} of {want} bytes");
            at += want as u64;
        }
        Ok(())
    }

    fn note(&mut self, base: i64) {
        let due = self.index.last().is_none_or(|&(_, position)| self.len - position >= INDEX_EVERY);
        if due || self.reader_at_end {
            self.index.push((base, self.len));
            self.reader_at_end = false;
        }
    }

    /// Position and length of whole batches from `offset` on, of about `max` bytes; empty at the end.
    pub(super) fn slice(&mut self, offset: i64, max: u64) -> (u64, u64) {
        if offset >= self.next_offset {
            self.reader_at_end = true;
            return (self.len, 0);
        }
        let from = self.index.partition_point(|&(base, _)| base <= offset).saturating_sub(1);
        let start = self.index[from].1;
        if self.len - start <= max {
            self.reader_at_end = true;
            return (start, self.len - start);
        }
        let past = self.index.partition_point(|&(_, position)| position <= start + max);
        // A single step larger than `max` still goes out whole.
        let end = self.index.get((past - 1).max(from + 1)).map_or(self.len, |&(_, position)| position);
        (start, end - start)
    }

    /// Reads file bytes onto the end of `out`.
    pub(super) fn read(&self, position: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        out.resize(start + len, 0);
        Ok(self.file.read_exact_at(&mut out[start..], position)?)
    }
}
