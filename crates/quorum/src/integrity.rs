//! Tells damage from an interrupted write before the log is opened, which would cut both. Every append waits for the disk,
//! so only the very last batch can be torn. A bad batch with a whole one behind it was acknowledged, and what follows it
//! was too: cutting there would lose topics.

use std::path::{Path, PathBuf};

use milena_io::{Disk, File, FileExt, OpenMode};
use milena_records::layout::{BATCH_OVERHEAD, MAGIC, MAGIC_AT};
use milena_records::{Batch, BatchError, batches};

use crate::error::{IoContext, QuorumError};
use crate::metadata_log::METADATA_DIR;
use crate::snapshot::{self, SnapshotId};

/// How much of a segment is looked at at once, bytes. More than two of the largest batches.
const WINDOW: usize = 32 << 20;

/// Where the batches of a segment stop being whole.
struct Bad {
    position: u64,
    /// Offset that the bad batch should begin with.
    offset: i64,
    reason: String,
}

/// A log of whole batches, as its files have it.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    /// Offset of the first batch.
    pub(crate) start: i64,
    /// Offset after the last whole batch.
    pub(crate) end: i64,
    /// Epoch of the last whole batch, 0 without one.
    pub(crate) epoch: i32,
}

/// Walks over all batches, and looks for a bad one that has a whole one behind it. A log that is not there is empty.
///
/// # Errors
/// [`QuorumError::Damaged`]; the files are as they were.
pub(crate) fn check(disk: &dyn Disk, dir: &Path) -> Result<Walked, QuorumError> {
    let mut walked = Walked::default();
    if disk.metadata(dir).context("cannot look at", dir)?.is_none() {
        return Ok(walked);
    }
    let segments = segments(disk, dir)?;
    walked.start = segments.first().map_or(0, |(base_offset, _)| *base_offset);
    walked.end = walked.start;
    let mut bad: Option<(PathBuf, Bad)> = None;
    for (base_offset, path) in segments {
        let file = disk.open(&path, OpenMode::Read).context("cannot open", &path)?;
        let is_empty = file.len().context("cannot read", &path)? == 0;
        if let Some((path, bad)) = bad.take() {
            // A later segment with records was begun after this one was complete and on disk.
            return if is_empty { Ok(walked) } else { Err(damaged(path, bad)) };
        }
        if base_offset != walked.end && !is_empty {
            let reason = format!("the segment begins with {base_offset}");
            return Err(damaged(path, Bad { position: 0, offset: walked.end, reason }));
        }
        if let Some(found) = first_bad(&*file, &path, &mut walked)? {
            if whole_batch_behind(&*file, &found, &path)? {
                return Err(damaged(path, found));
            }
            bad = Some((path, found));
        }
    }
    Ok(walked)
}

/// Gives `sink` the batches of a log that was walked over, from the one with `offset` on.
pub(crate) fn replay(
    disk: &dyn Disk,
    dir: &Path,
    walked: &Walked,
    offset: i64,
    mut sink: impl FnMut(&Batch<'_>) -> Result<(), QuorumError>,
) -> Result<(), QuorumError> {
    let mut next = offset;
    if next >= walked.end {
        return Ok(());
    }
    for (_, path) in segments(disk, dir)? {
        let file = disk.open(&path, OpenMode::Read).context("cannot open", &path)?;
        let mut position = 0;
        loop {
            let bytes = window(&*file, position, &path)?;
            let mut used = 0;
            for batch in batches(&bytes).map_while(Result::ok).take_while(|batch| batch.next_offset() <= walked.end) {
                used += batch.size();
                if batch.last_offset() >= next {
                    sink(&batch)?;
                    next = batch.next_offset();
                }
            }
            if used == 0 {
                break;
            }
            position += used as u64;
        }
    }
    if next < walked.end {
        let reason = "the log holds nothing there".to_owned();
        return Err(QuorumError::Batch { path: dir.to_owned(), offset: next, reason });
    }
    Ok(())
}

/// Whether no record of a metadata log is left in a metadata directory: no snapshot but that of the formatting, and no
/// segment that begins with a whole batch.
///
/// # Errors
/// [`QuorumError::Io`].
pub fn holds_no_metadata(disk: &dyn Disk, metadata_dir: &Path) -> Result<bool, QuorumError> {
    let dir = metadata_dir.join(METADATA_DIR);
    if disk.metadata(&dir).context("cannot look at", &dir)?.is_none() {
        return Ok(true);
    }
    if snapshot::list(disk, &dir)?.iter().any(|id| *id != SnapshotId::BOOTSTRAP) {
        return Ok(false);
    }
    for (_, path) in segments(disk, &dir)? {
        let file = disk.open(&path, OpenMode::Read).context("cannot open", &path)?;
        let bytes = window(&*file, 0, &path)?;
        if batches(&bytes).next().is_some_and(|first| first.is_ok_and(|batch| batch.verify_crc().is_ok())) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn damaged(path: PathBuf, bad: Bad) -> QuorumError {
    QuorumError::Damaged { path, position: bad.position, offset: bad.offset, reason: bad.reason }
}

/// The segment files, ascending by base offset.
fn segments(disk: &dyn Disk, dir: &Path) -> Result<Vec<(i64, PathBuf)>, QuorumError> {
    let entries = disk.list(dir).context("cannot list", dir)?;
    let base = |name: &str| name.strip_suffix(".log").filter(|n| n.len() == 20).and_then(|n| n.parse().ok());
    let mut found: Vec<(i64, PathBuf)> =
        entries.iter().filter(|e| !e.is_dir).filter_map(|e| Some((base(&e.name)?, dir.join(&e.name)))).collect();
    found.sort_unstable();
    Ok(found)
}

/// Bytes of a file from a position on, at most a window.
fn window(file: &dyn File, position: u64, path: &Path) -> Result<Vec<u8>, QuorumError> {
    let len = file.len().context("cannot read", path)?.saturating_sub(position);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(WINDOW).min(WINDOW)];
    file.read_exact_at(&mut bytes, position).context("cannot read", path)?;
    Ok(bytes)
}

/// The first batch of a segment that is not whole or does not follow the one before.
fn first_bad(file: &dyn File, path: &Path, walked: &mut Walked) -> Result<Option<Bad>, QuorumError> {
    let mut position = 0;
    loop {
        let bytes = window(file, position, path)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let mut used = 0;
        for batch in batches(&bytes) {
            let batch = batch.and_then(|batch| batch.verify_crc().map(|()| batch));
            let reason = match batch {
                Ok(batch) if batch.base_offset() == walked.end => {
                    used += batch.size();
                    (walked.end, walked.epoch) = (batch.next_offset(), batch.partition_leader_epoch());
                    continue;
                }
                Ok(batch) => format!("its base offset is {}", batch.base_offset()),
                // The rest of the batch is in the next window.
                Err(BatchError::Truncated { .. }) if used > 0 && bytes.len() == WINDOW => break,
                Err(error) => error.to_string(),
            };
            return Ok(Some(Bad { position: position + used as u64, offset: walked.end, reason }));
        }
        position += used as u64;
    }
}

/// Whether a whole batch with a later offset begins anywhere behind a bad one.
fn whole_batch_behind(file: &dyn File, bad: &Bad, path: &Path) -> Result<bool, QuorumError> {
    let mut position = bad.position + 1;
    loop {
        let bytes = window(file, position, path)?;
        let candidates =
            bytes.windows(BATCH_OVERHEAD).enumerate().filter(|(_, header)| header[MAGIC_AT] == MAGIC.cast_unsigned());
        for (at, _) in candidates {
            let Some(Ok(batch)) = batches(&bytes[at..]).next() else { continue };
            if is_later(&batch, bad.offset) {
                return Ok(true);
            }
        }
        if bytes.len() < WINDOW {
            return Ok(false);
        }
        // Half a window again, so that no batch lies across a border.
        position += (WINDOW / 2) as u64;
    }
}

fn is_later(batch: &Batch<'_>, offset: i64) -> bool {
    let plausible = batch.base_offset() >= offset && batch.count() > 0 && batch.partition_leader_epoch() >= 0;
    plausible && batch.verify_crc().is_ok()
}
