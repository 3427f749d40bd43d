//! Reading a segment batch by batch, checking everything, and building its indexes anew. Memory stays at one buffer whatever the lengths
//! in the file claim.

use std::io;

use crc_fast::{CrcAlgorithm, Digest};
use milena_io::File;
use milena_records::layout::{ATTRIBUTES_AT, BATCH_OVERHEAD, MAGIC, MAGIC_AT};
use milena_records::{Batch, EndTransaction};

use crate::epochs::EpochCache;
use crate::error::{IoContext, Result};
use crate::index::{Index, OffsetEntry, TimeEntry};
use crate::names::Home;
use crate::producers::{ProducerBatch, Producers};
use crate::scan::Header;
use crate::segment::{Indexes, Segment};

/// Bytes read at once.
const BUFFER: usize = 256 << 10;
/// Times that the bytes behind damage are summed at most to find a sound batch in them.
const MOST_SUMMED: u64 = 16;

/// What reading a segment found.
#[derive(Debug)]
pub(crate) struct Rebuilt {
    /// Offset after the last good batch; the base offset of an empty segment.
    pub(crate) next_offset: i64,
    /// Bytes of good batches.
    pub(crate) valid: u64,
    /// Bytes read.
    pub(crate) read: u64,
    /// Why reading stopped before the end of the file.
    pub(crate) reason: Option<String>,
    /// Offsets are missing between or inside of the batches: compaction has been here.
    pub(crate) has_gaps: bool,
}

/// Reads the segment, gives it new indexes in memory and adds to `epochs` what is newer than all in there.
///
/// The index files keep what they hold until the new entries are written over it: mostly it is the same, and a file system that frees what is
/// cut off does it slowly. Where the segment turns out to be damaged they are emptied: what they hold leads into what is cut.
/// The segment's size becomes that of its good batches; the `.log` file is left as it is.
/// With `producers` as they are at the segment's beginning, the transaction index is made anew too, and they become what they are at its end.
pub(crate) fn rebuild(
    segment: &mut Segment,
    home: &Home,
    interval: u64,
    epochs: &mut EpochCache,
    mut producers: Option<&mut Producers>,
) -> Result<Rebuilt> {
    let path = segment.path(home);
    let base = segment.base_offset;
    let mut indexes = Indexes { offsets: Index::new(base), times: Index::new(base) };
    if producers.is_some() {
        segment.reset_aborted(home)?;
    }
    let mut newest = TimeEntry { timestamp: -1, offset: base };
    let mut rebuilt = Rebuilt { next_offset: base, valid: 0, read: segment.size, reason: None, has_gaps: false };
    let mut last_entry = 0;
    let file = std::sync::Arc::clone(segment.file(home)?);
    let mut window = Window::new(&*file, segment.size);
    while rebuilt.valid < segment.size {
        let batch = match check_batch(&mut window, rebuilt.valid, segment.size).context("reading", &path)? {
            Ok(batch) if batch.base_offset < rebuilt.next_offset => {
                Err(format!("base offset {} where {} is the least", batch.base_offset, rebuilt.next_offset))
            }
            Ok(batch) if batch.last_offset - base > i64::from(i32::MAX) => {
                Err(format!("last offset {} is too far from the segment's base", batch.last_offset))
            }
            checked => checked,
        };
        let batch = match batch {
            Ok(batch) => batch,
            Err(reason) => {
                rebuilt.reason = Some(reason);
                indexes.offsets.trim(home)?;
                indexes.times.trim(home)?;
                break;
            }
        };
        if batch.max_timestamp > newest.timestamp {
            newest = TimeEntry { timestamp: batch.max_timestamp, offset: batch.last_offset };
        }
        if rebuilt.valid - last_entry > interval {
            indexes.note(OffsetEntry { offset: batch.last_offset, position: rebuilt.valid }, newest);
            indexes.write_out_if_many(home)?;
            last_entry = rebuilt.valid;
        }
        if epochs.latest().is_none_or(|latest| batch.leader_epoch > latest) {
            epochs.assign(batch.leader_epoch, batch.base_offset);
        }
        if let Some(producers) = &mut producers {
            let end = end_transaction(&mut window, &batch).context("reading", &path)?;
            if let Some(aborted) = ProducerBatch::of_header(&batch, end).and_then(|batch| producers.apply(&batch)) {
                segment.note_aborted(aborted);
                segment.write_out_if_many(home)?;
            }
        }
        rebuilt.has_gaps |= batch.base_offset > rebuilt.next_offset || batch.has_gap();
        rebuilt.next_offset = batch.last_offset + 1;
        rebuilt.valid = batch.end();
    }
    segment.size = rebuilt.valid;
    segment.set_indexes(indexes, newest);
    Ok(rebuilt)
}

/// Whether compaction has been in one of these segments, and so in all before it: offsets are missing between or inside of sound batches.
pub(crate) fn has_gaps(segments: &[Segment], home: &Home) -> Result<bool> {
    for segment in segments {
        let file = segment.file(home)?;
        let mut window = Window::new(&**file, segment.size);
        let (mut position, mut next_offset) = (0, segment.base_offset);
        while position < segment.size {
            let checked = check_batch(&mut window, position, segment.size);
            let Ok(batch) = checked.context_at("reading", || segment.path(home))? else { break };
            if batch.base_offset > next_offset || batch.has_gap() {
                return Ok(true);
            }
            (position, next_offset) = (batch.end(), batch.last_offset + 1);
        }
    }
    Ok(false)
}

/// Bytes of a file that are in memory.
pub(crate) struct Window<'f> {
    file: &'f dyn File,
    buf: Vec<u8>,
    start: u64,
    len: usize,
}

impl<'f> Window<'f> {
    /// Of a file of `size` bytes, nothing of which is in memory.
    pub(crate) fn new(file: &'f dyn File, size: u64) -> Self {
        Self { file, buf: vec![0; BUFFER.min(size as usize)], start: 0, len: 0 }
    }

    /// Bytes from `position` on; at least `least` of them unless the file ends before.
    fn at(&mut self, position: u64, least: usize) -> io::Result<&[u8]> {
        let held = self.start..=self.start + self.len as u64;
        let have = if held.contains(&position) { (*held.end() - position) as usize } else { 0 };
        if have < least.max(1) {
            self.len = self.file.read_at(&mut self.buf, position)?;
            self.start = position;
        }
        Ok(&self.buf[(position - self.start) as usize..self.len])
    }
}

/// What a batch says if it is a transaction marker.
pub(crate) fn end_transaction(window: &mut Window<'_>, header: &Header) -> io::Result<Option<EndTransaction>> {
    if !header.may_be_marker() {
        return Ok(None);
    }
    let size = header.size as usize;
    let bytes = window.at(header.position, size)?;
    Ok(bytes.get(..size).and_then(|bytes| Batch::parse(bytes).ok()).and_then(|batch| EndTransaction::of(&batch)))
}

/// Whether a sound batch with offsets from `least` on stands somewhere between the damage at `from` and `end`. So it is assumed where too much
/// looks like headers of batches: it must not keep a start busy.
pub(crate) fn sound_behind(file: &dyn File, from: u64, end: u64, least: i64) -> io::Result<bool> {
    let buf = vec![0; BUFFER.min((end - from) as usize)];
    let mut window = Window { file, buf, start: 0, len: 0 };
    let mut left_to_sum = (end - from).saturating_mul(MOST_SUMMED);
    let Some(mut at) = skip_hole(file, from)? else { return Ok(false) };
    while at + BATCH_OVERHEAD as u64 <= end {
        let bytes = window.at(at, BATCH_OVERHEAD)?;
        let magic = bytes.iter().skip(MAGIC_AT).position(|byte| byte.cast_signed() == MAGIC);
        let Some(ahead) = magic else {
            let behind = at + (bytes.len() - MAGIC_AT) as u64;
            let Some(next) = skip_hole(file, behind)? else { return Ok(false) };
            at = next;
            continue;
        };
        at += ahead as u64;
        let header = window.at(at, BATCH_OVERHEAD)?.first_chunk().filter(|_| at > from);
        let header = header.and_then(|bytes| Header::parse(bytes, at, end).ok());
        if let Some(header) = header.filter(|header| header.base_offset >= least) {
            let Some(left) = left_to_sum.checked_sub(header.size) else { return Ok(true) };
            left_to_sum = left;
            if check_batch(&mut window, at, end)?.is_ok() {
                return Ok(true);
            }
        }
        at += 1;
    }
    Ok(false)
}

/// Where the first batch at or behind `at` may begin: its magic is not zero. A preallocated file is a hole for the most part.
fn skip_hole(file: &dyn File, at: u64) -> io::Result<Option<u64>> {
    let magic = MAGIC_AT as u64;
    Ok(file.skip_hole(at + magic)?.map(|data| at.max(data - magic)))
}

/// The base offset that stands at `position`, if the header of a batch may begin there.
pub(crate) fn peek_base_offset(window: &mut Window<'_>, position: u64, end: u64) -> io::Result<Option<i64>> {
    if position >= end {
        return Ok(None);
    }
    let bytes = window.at(position, BATCH_OVERHEAD)?.first_chunk();
    Ok(bytes.and_then(|bytes| Header::parse(bytes, position, end).ok()).map(|header| header.base_offset))
}

/// Reads the batch at `position` and checks length, magic and checksum. The inner error says what is wrong with it.
pub(crate) fn check_batch(
    window: &mut Window<'_>,
    position: u64,
    end: u64,
) -> io::Result<std::result::Result<Header, String>> {
    let Some(bytes) = window.at(position, BATCH_OVERHEAD)?.first_chunk() else {
        return Ok(Err(format!("{} bytes are left, less than a batch header", end - position)));
    };
    let header = match Header::parse(bytes, position, end) {
        Ok(header) => header,
        Err(_) if bytes.iter().all(|byte| *byte == 0) => {
            return Ok(Err("zeros: reserved space, never written".to_owned()));
        }
        Err(reason) => return Ok(Err(reason)),
    };
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    let mut at = position + ATTRIBUTES_AT as u64;
    while at < header.end() {
        let left = (header.end() - at) as usize;
        let bytes = window.at(at, 1)?;
        if bytes.is_empty() {
            return Ok(Err("the file ends inside of a batch".to_owned()));
        }
        let bytes = &bytes[..bytes.len().min(left)];
        digest.update(bytes);
        at += bytes.len() as u64;
    }
    let computed = digest.finalize() as u32;
    if computed != header.crc {
        return Ok(Err(format!("CRC is {:#010x} in the header, {computed:#010x} over the bytes", header.crc)));
    }
    Ok(Ok(header))
}

#[cfg(test)]
mod tests {
    use milena_io::{Disk, FileExt, OpenMode, RealDisk};
    use milena_records::BatchBuilder;

    use super::*;

    #[test]
    fn a_hole_is_passed_over_however_long_it_is_and_what_stands_at_its_end_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let file = RealDisk::new().open(&dir.path().join("f"), OpenMode::Create).unwrap();
        let end = 1 << 43;
        file.write_at(b"damage", 0).unwrap();
        file.truncate(end).unwrap();
        assert!(!sound_behind(&*file, 0, end, 0).unwrap());
        let mut builder = BatchBuilder::new().base_offset(7);
        builder.push(0, None, Some(b"value"), &[]);
        let batch = builder.build().unwrap();
        // The first bytes of its offset are zeros in front of a page.
        for at in [(1 << 40) - 6, end - batch.len() as u64] {
            file.truncate(0).unwrap();
            file.truncate(end).unwrap();
            file.write_at(&batch, at).unwrap();
            assert!(sound_behind(&*file, 0, end, 7).unwrap(), "{at}");
        }
    }
}
