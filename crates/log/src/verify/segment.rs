//! One segment: its batches, and beside the walk over them its indexes.

use std::path::Path;

use milena_io::{File, OpenMode};
use milena_records::BATCH_OVERHEAD;

use super::cursor::Cursor;
use super::{Condition, Partition, Verified};
use crate::aborted::AbortedTxn;
use crate::directory::METADATA_PARTITION;
use crate::error::{IoContext, Result};
use crate::index::{IndexEntry, OffsetEntry, TimeEntry};
use crate::names::{LOG, TXN_INDEX};
use crate::recover::{Window, check_batch, end_transaction, peek_base_offset};
use crate::scan::Header;

/// Bytes after which progress is told.
const STEP: u64 = 4 << 20;

/// What a segment holds.
pub(super) struct Checked {
    pub(super) verified: Verified,
    /// Offset behind the last good batch; the base offset without one.
    pub(super) next_offset: i64,
}

/// A walk over a segment.
struct Walk {
    base: i64,
    offsets: Option<Cursor<OffsetEntry>>,
    times: Option<Cursor<TimeEntry>>,
    aborted: Option<Cursor<AbortedTxn>>,
    newest: TimeEntry,
    next_offset: i64,
    position: u64,
    batches: u64,
    /// The epoch whose contradiction was told.
    told_epoch: Option<i32>,
}

impl Walk {
    /// Nothing is said of entries for what can't be read.
    fn skip_entries(&mut self, position: u64, last_offset: i64) {
        for cursor in self.offsets.iter_mut() {
            cursor.skip_while(|entry| entry.position <= position);
        }
        for cursor in self.times.iter_mut() {
            cursor.skip_while(|entry| entry.offset <= last_offset);
        }
        for cursor in self.aborted.iter_mut() {
            cursor.skip_while(|entry| entry.last_offset <= last_offset);
        }
    }
}

/// Why the offsets of a sound batch can't be right: no checksum covers its base offset. `behind` is the base offset of the batch behind
/// it, `next` that of the segment behind.
fn misplaced(walk: &Walk, batch: &Header, behind: Option<i64>, next: Option<i64>) -> Option<String> {
    let (base, last, least) = (batch.base_offset, batch.last_offset, walk.next_offset);
    if base < least {
        return Some(format!("base offset {base} where {least} is the least"));
    }
    if last.saturating_sub(walk.base) > i64::from(i32::MAX) {
        return Some(format!("last offset {last} is too far from the segment's base"));
    }
    if let Some(next) = next.filter(|next| last >= *next) {
        return Some(format!("last offset {last} where the next segment begins at {next}"));
    }
    // Where it follows without a gap, the one behind it is wrong.
    let behind = behind.filter(|behind| base > least && (least + 1..=last).contains(behind))?;
    Some(format!("last offset {last} where the next batch begins at {behind}"))
}

impl Partition<'_> {
    /// Checks the segment that begins at `base`; `next` is where the one behind begins.
    pub(super) fn segment(&mut self, base: i64, next: Option<i64>, is_last: bool) -> Checked {
        let path = self.home.segment_file(base, LOG);
        // Indexes first: their entries are written behind the batches that they point to.
        let mut walk = Walk {
            base,
            offsets: self.index(base, is_last, |a: &OffsetEntry, b| a.offset < b.offset && a.position < b.position),
            times: self.index(base, is_last, |a: &TimeEntry, b| a.timestamp < b.timestamp && a.offset <= b.offset),
            aborted: self.index(base, is_last, |a: &AbortedTxn, b| a.last_offset < b.last_offset),
            newest: TimeEntry { timestamp: -1, offset: base },
            next_offset: base,
            position: 0,
            batches: 0,
            told_epoch: None,
        };
        let walked = self.walk(&path, &mut walk, next, is_last);
        match walked {
            Err(error) => self.failed(&path, &error),
            Ok(true) => self.behind_the_walk(&walk, is_last),
            Ok(false) => {}
        }
        let verified = Verified { partitions: 0, segments: 1, batches: walk.batches, bytes: walk.position };
        Checked { verified, next_offset: walk.next_offset }
    }

    /// What the next start makes anew whatever it finds is no problem.
    fn is_mended(&self, is_last: bool) -> bool {
        is_last && self.condition == Condition::Crashed
    }

    fn index<E: IndexEntry>(
        &mut self,
        base: i64,
        is_last: bool,
        follows: impl Fn(&E, &E) -> bool,
    ) -> Option<Cursor<E>> {
        let path = self.home.segment_file(base, E::SUFFIX);
        let mended = self.is_mended(is_last);
        match Cursor::read(&*self.home.disk, &path, base, follows) {
            Err(error) => self.failed(&path, &error),
            // An empty segment may have none yet, and one without aborted transactions has no index of them.
            Ok(None) if is_last || E::SUFFIX == TXN_INDEX => {}
            Ok(None) => self.problem(&path, None, "is missing".to_owned()),
            Ok(Some((cursor, fault))) => {
                if let Some((position, what)) = fault {
                    self.found(&path, Some(position), !mended, what);
                }
                // A stop cuts what was reserved, except in the metadata log.
                let is_metadata = self.home.dir.file_name().is_some_and(|name| name == METADATA_PARTITION);
                if self.condition == Condition::Stopped && cursor.reserved > 0 && !is_metadata {
                    let position = Some(cursor.end());
                    self.problem(&path, position, format!("{} bytes of zeros behind the entries", cursor.reserved));
                }
                return Some(cursor);
            }
        }
        None
    }

    /// Walks over the batches. False where it had to stop before the end.
    fn walk(&mut self, path: &Path, walk: &mut Walk, next: Option<i64>, is_last: bool) -> Result<bool> {
        let file = self.home.disk.open(path, OpenMode::Read).context("opening", path)?;
        let size = file.len().context("measuring", path)?;
        let mut window = Window::new(&*file, size);
        let mut told = 0;
        while walk.position < size {
            match check_batch(&mut window, walk.position, size).context("reading", path)? {
                Ok(batch) => {
                    let behind = peek_base_offset(&mut window, batch.end(), size).context("reading", path)?;
                    match misplaced(walk, &batch, behind, next) {
                        Some(what) => self.misplaced_batch(path, walk, &batch, is_last, &what),
                        None => {
                            self.aborted_entries(walk, &batch, &mut window, is_last).context("reading", path)?;
                            self.batch(path, walk, &batch, is_last);
                        }
                    }
                }
                Err(reason) => match self.bad_batch(path, &*file, walk, size, is_last, reason)? {
                    Some(next) => walk.position = next,
                    None => {
                        self.report.progress(size - told);
                        return Ok(false);
                    }
                },
            }
            if walk.position - told >= STEP {
                self.report.progress(walk.position - told);
                told = walk.position;
            }
        }
        self.report.progress(size - told);
        Ok(true)
    }

    /// A batch that does not hold: the torn end of the last segment, or damage. Where the next one begins, if that can be told.
    fn bad_batch(
        &mut self,
        path: &Path,
        file: &dyn File,
        walk: &mut Walk,
        size: u64,
        is_last: bool,
        reason: String,
    ) -> Result<Option<u64>> {
        let torn = is_last && is_torn(file, walk.position, size).context("reading", path)?;
        let behind = size - walk.position;
        let mut bytes = [0; BATCH_OVERHEAD];
        let read = file.read_at(&mut bytes, walk.position).context("reading", path)?;
        let header = (read == bytes.len()).then(|| Header::parse(&bytes, walk.position, size).ok()).flatten();
        let next = header.filter(|_| !torn);
        let what = match (self.condition, next) {
            (_, Some(bad)) => {
                let start = self.what_a_start_does(is_last);
                format!("{reason}: the offsets {} to {}, {} bytes; {start}", bad.base_offset, bad.last_offset, bad.size)
            }
            (Condition::Running, None) if torn => format!("the end is being written ({reason})"),
            (Condition::Crashed, None) if torn => {
                let end = walk.next_offset;
                format!("the end is torn ({reason}); the next start cuts {behind} bytes and goes on at offset {end}")
            }
            _ => {
                let (offset, start) = (walk.next_offset, self.what_a_start_does(is_last));
                format!("{reason}; {behind} bytes from here on, offset {offset} and later, can't be read; {start}")
            }
        };
        self.found(path, Some(walk.position), !torn || self.condition == Condition::Stopped, what);
        if let Some(bad) = next {
            walk.skip_entries(bad.position, bad.last_offset);
        }
        Ok(next.map(|bad| bad.end()))
    }

    /// A batch whose records are sound and whose offset is not. The walk goes on with as many offsets as it has records, so that those
    /// behind it are measured by what is right.
    fn misplaced_batch(&mut self, path: &Path, walk: &mut Walk, batch: &Header, is_last: bool, what: &str) {
        let what = format!("{what}: its records have wrong offsets; {}", self.what_a_start_does(is_last));
        self.problem(path, Some(batch.position), what);
        let last_offset = walk.next_offset.saturating_add(batch.last_offset.saturating_sub(batch.base_offset));
        walk.skip_entries(batch.position, last_offset);
        walk.newest.timestamp = walk.newest.timestamp.max(batch.max_timestamp);
        walk.next_offset = last_offset.saturating_add(1);
        walk.position = batch.end();
        walk.batches += 1;
    }

    /// What becomes of damage that is no torn end.
    fn what_a_start_does(&self, is_last: bool) -> &'static str {
        if self.is_mended(is_last) {
            "the next start cuts the log there and keeps what it cuts in files that end with .cut"
        } else {
            "a start leaves it as it is"
        }
    }

    fn batch(&mut self, path: &Path, walk: &mut Walk, batch: &Header, is_last: bool) {
        self.epoch(path, walk, batch);
        let mended = self.is_mended(is_last);
        if let Some(mut cursor) = walk.offsets.take() {
            self.offset_entries(&mut cursor, batch, mended);
            walk.offsets = Some(cursor);
        }
        if let Some(mut cursor) = walk.times.take() {
            self.time_entries(&mut cursor, batch, mended);
            walk.times = Some(cursor);
        }
        if batch.max_timestamp > walk.newest.timestamp {
            walk.newest = TimeEntry { timestamp: batch.max_timestamp, offset: batch.last_offset };
        }
        walk.next_offset = walk.next_offset.max(batch.last_offset + 1);
        walk.position = batch.end();
        walk.batches += 1;
    }

    /// Entries up to and with this batch.
    fn offset_entries(&mut self, cursor: &mut Cursor<OffsetEntry>, batch: &Header, mended: bool) {
        while let Some(entry) = cursor.peek().filter(|entry| entry.position <= batch.position) {
            let what = match entry.position == batch.position {
                true if entry.offset == batch.last_offset => None,
                true => Some(format!("offset {} where the batch ends at {}", entry.offset, batch.last_offset)),
                false => Some(format!("no batch begins at byte {}, to which it points", entry.position)),
            };
            if let Some(what) = what {
                self.found(&cursor.path.clone(), Some(cursor.position()), !mended, what);
            }
            cursor.advance();
        }
    }

    /// Entries up to and with this batch.
    fn time_entries(&mut self, cursor: &mut Cursor<TimeEntry>, batch: &Header, mended: bool) {
        while let Some(entry) = cursor.peek().filter(|entry| entry.offset <= batch.last_offset) {
            let what = match entry.offset == batch.last_offset {
                true if entry.timestamp == batch.max_timestamp => None,
                true => Some(format!("timestamp {} where the batch has {}", entry.timestamp, batch.max_timestamp)),
                false => Some(format!("offset {} is the last one of no batch", entry.offset)),
            };
            if let Some(what) = what {
                self.found(&cursor.path.clone(), Some(cursor.position()), !mended, what);
            }
            cursor.advance();
        }
    }

    /// Entries up to and with this batch: each ends with the marker of an abort.
    fn aborted_entries(
        &mut self,
        walk: &mut Walk,
        batch: &Header,
        window: &mut Window<'_>,
        is_last: bool,
    ) -> std::io::Result<()> {
        let Some(cursor) = &mut walk.aborted else { return Ok(()) };
        while let Some(entry) = cursor.peek().filter(|entry| entry.last_offset <= batch.last_offset) {
            let is_abort = end_transaction(window, batch)?.is_some_and(|end| !end.committed);
            let is_its_marker =
                is_abort && batch.producer_id == entry.producer_id && batch.last_offset == entry.last_offset;
            let what = match is_its_marker && entry.is_sound(walk.base - 1, i64::MAX) {
                true => None,
                false if is_its_marker => Some(format!("{entry:?} contradicts itself")),
                false => Some(format!("{entry:?} ends with no marker of an abort")),
            };
            if let Some(what) = what {
                self.found(&cursor.path.clone(), Some(cursor.position()), !self.is_mended(is_last), what);
            }
            cursor.advance();
        }
        Ok(())
    }

    /// The epoch must be the one that the checkpoint has for the offset. One that is newer may not have been written yet.
    fn epoch(&mut self, path: &Path, walk: &mut Walk, batch: &Header) {
        let Some(epochs) = &self.epochs else { return };
        let Some(first) = epochs.entries().first() else { return };
        if batch.leader_epoch < 0
            || batch.base_offset < first.start_offset
            || walk.told_epoch == Some(batch.leader_epoch)
        {
            return;
        }
        let known = epochs.epoch_of(batch.base_offset);
        let newer = epochs.latest().is_some_and(|latest| batch.leader_epoch > latest);
        if known == Some(batch.leader_epoch) || (newer && self.condition != Condition::Stopped) {
            return;
        }
        walk.told_epoch = Some(batch.leader_epoch);
        let known = known.map_or_else(|| "none".to_owned(), |epoch| epoch.to_string());
        let what = format!(
            "leader epoch {} at offset {}; leader-epoch-checkpoint says {known}",
            batch.leader_epoch, batch.base_offset
        );
        self.problem(path, Some(batch.position), what);
    }

    /// What indexes say beyond the last batch, and what a finished time index must end with.
    fn behind_the_walk(&mut self, walk: &Walk, is_last: bool) {
        let mended = self.is_mended(is_last);
        if let Some(cursor) = &walk.offsets
            && let Some(entry) = cursor.peek()
        {
            let what = format!("points to byte {}, behind the end of the log", entry.position);
            self.found(&cursor.path, Some(cursor.position()), !mended, what);
        }
        if let Some(cursor) = &walk.aborted
            && let Some(entry) = cursor.peek()
        {
            let what = format!("{entry:?} is behind the end of the log");
            self.found(&cursor.path, Some(cursor.position()), !mended, what);
        }
        let Some(cursor) = &walk.times else { return };
        if let Some(entry) = cursor.peek() {
            let what = format!("offset {} is behind the end of the log", entry.offset);
            self.found(&cursor.path, Some(cursor.position()), !mended, what);
        }
        let last = cursor.last().map_or(-1, |entry| entry.timestamp);
        if !is_last && last < walk.newest.timestamp {
            let what = format!("ends with timestamp {last}; the segment has {}", walk.newest.timestamp);
            self.problem(&cursor.path, None, what);
        }
    }
}

/// Whether what begins at `position` is what a crash, or a writer at work, leaves at the end: a batch that is cut, or zeros.
fn is_torn(file: &dyn File, position: u64, size: u64) -> std::io::Result<bool> {
    let mut bytes = [0; 4096];
    let read = file.read_at(&mut bytes, position)?;
    let length = bytes[..read].get(8..12).and_then(|field| field.first_chunk()).map(|field| i32::from_be_bytes(*field));
    if length.is_none_or(|length| i64::from(length) + 12 > (size - position) as i64) {
        return Ok(true);
    }
    let mut at = position;
    while let Some(data) = file.skip_hole(at)?.filter(|data| *data < size) {
        at = data;
        let read = file.read_at(&mut bytes, at)?;
        if read == 0 || bytes[..read].iter().any(|byte| *byte != 0) {
            return Ok(read == 0);
        }
        at += read as u64;
    }
    Ok(true)
}
