//! Making the index files of a stopped broker's partition anew from its batches. A file is replaced in one step that survives a power loss,
//! and only where its content changes; the `.log` files are read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use milena_io::{Disk, File, OpenMode};

use crate::aborted::AbortedTxn;
use crate::error::{IoContext, Result};
use crate::index::{IndexEntry, OffsetEntry, TimeEntry};
use crate::names::{Home, LOG, SNAPSHOT, segment_offset};
use crate::producers::{ProducerBatch, Producers};
use crate::recover::{Window, check_batch, end_transaction};
use crate::scan::Header;
use crate::snapshot;
use crate::text::{read_file, replace_file};

/// One index file that was made anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuiltIndex {
    /// The file.
    pub path: PathBuf,
    /// Entries it has now.
    pub entries: usize,
    /// Its content is another one than before; otherwise the file was left alone.
    pub changed: bool,
}

/// Where a segment can't be read on. Its indexes end there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The `.log` file.
    pub path: PathBuf,
    /// At which byte.
    pub position: u64,
    /// Why.
    pub reason: String,
}

/// Who is told what was done.
pub trait RebuildReport {
    /// An index file was made anew.
    fn rebuilt(&mut self, index: RebuiltIndex);
    /// A segment can't be read to its end.
    fn unreadable(&mut self, place: Unreadable);
    /// So many bytes more of `.log` files have been read.
    fn progress(&mut self, bytes: u64);
}

/// Makes the indexes of all segments of a partition anew, with an entry each `interval` bytes. The log directory must be locked.
///
/// # Errors
/// [`LogError::Io`](crate::LogError::Io); every file then has its old content or its new one.
pub fn rebuild_indexes(disk: &Arc<dyn Disk>, dir: &Path, interval: u64, report: &mut dyn RebuildReport) -> Result<()> {
    let home = Home { disk: Arc::clone(disk), dir: dir.to_owned() };
    let mut bases: Vec<i64> = Vec::new();
    for entry in disk.list(dir).context("listing", dir)? {
        bases.extend(segment_offset(&entry.name, LOG));
    }
    bases.sort_unstable();
    // Which transactions are open at the beginning of a segment; not known behind a place that can't be read.
    let mut producers = Some(bases.first().map_or(Ok(Producers::default()), |first| producers_at(&home, *first))?);
    for base in bases {
        let path = home.segment_file(base, LOG);
        let file = disk.open(&path, OpenMode::Read).context("opening", &path)?;
        let contents = Contents::read(&*file, &path, base, interval, &mut producers, report)?;
        replace::<OffsetEntry>(&home, base, &contents.offsets, report)?;
        replace::<TimeEntry>(&home, base, &contents.times, report)?;
        if producers.is_some() {
            replace_aborted(&home, base, &contents.aborted, report)?;
        }
    }
    Ok(())
}

/// The producers at the beginning of the log. Without a sound snapshot there are none.
fn producers_at(home: &Home, base: i64) -> Result<Producers> {
    let bytes = read_file(&*home.disk, &home.segment_file(base, SNAPSHOT))?;
    Ok(bytes.as_deref().and_then(snapshot::parse).map_or_else(Producers::default, Producers::from_states))
}

/// Replaces the transaction index if it does not have these transactions already. Where compaction has been, the sound one may know of
/// earlier first offsets than the log still does.
fn replace_aborted(home: &Home, base: i64, aborted: &[AbortedTxn], report: &mut dyn RebuildReport) -> Result<()> {
    let found = read_file(&*home.disk, &home.segment_file(base, AbortedTxn::SUFFIX))?;
    let is_known = |bytes: &[u8], entry: &AbortedTxn| {
        let known = AbortedTxn::decode(base, bytes);
        known.is_sound(base - 1, i64::MAX)
            && (known.producer_id, known.last_offset) == (entry.producer_id, entry.last_offset)
            && known.first_offset <= entry.first_offset
    };
    let bytes = found.unwrap_or_default();
    let is_whole = bytes.len() == aborted.len() * AbortedTxn::SIZE;
    if is_whole && bytes.chunks_exact(AbortedTxn::SIZE).zip(aborted).all(|(bytes, entry)| is_known(bytes, entry)) {
        return Ok(());
    }
    let mut bytes = Vec::new();
    aborted.iter().for_each(|entry| entry.encode(base, &mut bytes));
    replace::<AbortedTxn>(home, base, &bytes, report)
}

/// Replaces the file of a kind if it has not these entries already.
fn replace<E: IndexEntry>(home: &Home, base: i64, bytes: &[u8], report: &mut dyn RebuildReport) -> Result<()> {
    let path = home.segment_file(base, E::SUFFIX);
    let changed = read_file(&*home.disk, &path)?.as_deref() != Some(bytes);
    if changed {
        replace_file(&*home.disk, &path, bytes)?;
    }
    report.rebuilt(RebuiltIndex { path, entries: bytes.len() / E::SIZE, changed });
    Ok(())
}

/// What the index files of a segment must hold.
#[derive(Default)]
struct Contents {
    offsets: Vec<u8>,
    times: Vec<u8>,
    aborted: Vec<AbortedTxn>,
}

impl Contents {
    fn read(
        file: &dyn File,
        path: &Path,
        base: i64,
        interval: u64,
        producers: &mut Option<Producers>,
        report: &mut dyn RebuildReport,
    ) -> Result<Contents> {
        let size = file.len().context("measuring", path)?;
        let mut window = Window::new(file, size);
        let mut contents = Contents::default();
        let mut newest = TimeEntry { timestamp: -1, offset: base };
        let (mut position, mut last_entry, mut last_time) = (0, 0, -1);
        while position < size {
            let batch =
                match check_batch(&mut window, position, size).context("reading", path)?.and_then(|b| fits(b, base)) {
                    Ok(batch) => batch,
                    Err(reason) => {
                        report.unreadable(Unreadable { path: path.to_owned(), position, reason });
                        *producers = None;
                        break;
                    }
                };
            if let Some(producers) = producers {
                let end = end_transaction(&mut window, &batch).context("reading", path)?;
                let batch = ProducerBatch::of_header(&batch, end);
                contents.aborted.extend(batch.and_then(|batch| producers.apply(&batch)));
            }
            if batch.max_timestamp > newest.timestamp {
                newest = TimeEntry { timestamp: batch.max_timestamp, offset: batch.last_offset };
            }
            if position - last_entry > interval {
                OffsetEntry { offset: batch.last_offset, position }.encode(base, &mut contents.offsets);
                contents.push_time(base, newest, &mut last_time);
                last_entry = position;
            }
            position = batch.end();
            report.progress(batch.size);
        }
        // A finished segment ends with its largest timestamp.
        contents.push_time(base, newest, &mut last_time);
        Ok(contents)
    }

    fn push_time(&mut self, base: i64, newest: TimeEntry, last: &mut i64) {
        if newest.timestamp > *last {
            newest.encode(base, &mut self.times);
            *last = newest.timestamp;
        }
    }
}

/// A batch whose offsets an index of the segment can name.
fn fits(batch: Header, base: i64) -> std::result::Result<Header, String> {
    if batch.base_offset >= base && batch.last_offset - base <= i64::from(i32::MAX) {
        return Ok(batch);
    }
    Err(format!("offsets {} to {} are none of this segment", batch.base_offset, batch.last_offset))
}
