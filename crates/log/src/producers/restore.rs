//! The state of the producers at the end of a log: from its newest sound snapshot and the headers of the batches behind.

use std::path::Path;

use milena_io::{Disk, FileExt, OpenMode};

use super::{ProducerBatch, Producers};
use crate::aborted::AbortedTxn;
use crate::error::{IoContext, LogError, Result};
use crate::names::{Home, SNAPSHOT, segment_offset};
use crate::scan::ScanError;
use crate::segment::Segment;
use crate::snapshot;
use crate::text::read_file;

/// A log whose producers are wanted.
#[derive(Clone, Copy)]
pub(crate) struct Source<'l> {
    pub(crate) home: &'l Home,
    pub(crate) segments: &'l [Segment],
    /// Log end offset.
    pub(crate) end: i64,
    /// Stopped in order: without any snapshot there are no producers.
    pub(crate) clean: bool,
    /// Wall clock and `producer.id.expiration.ms`: what a snapshot has of older producers is not taken.
    pub(crate) expire: Option<(i64, i64)>,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    pub(crate) producers: Producers,
    /// Offset of the snapshot that was taken.
    pub(crate) snapshot: Option<i64>,
}

/// Reads the state at the log end. Snapshots that are damaged, beyond the end, or of no use go; durably, so that none comes back when the log
/// has grown to its offset on another way.
///
/// A snapshot that the disk does not give is passed over: all that it says the log says too. Batches below the log start offset count as long
/// as they are there. `snapshots` are the offsets of the snapshot files.
pub(crate) fn restore(source: &Source<'_>, snapshots: &[i64]) -> Result<Restored> {
    if source.clean && snapshots.is_empty() {
        return Ok(Restored::default());
    }
    let (restored, useless) = read_state(source, snapshots)?;
    let (disk, dir) = (&*source.home.disk, &source.home.dir);
    if !useless.is_empty() {
        for offset in useless {
            remove(disk, &source.home.segment_file(offset, SNAPSHOT))?;
        }
        disk.sync_dir(dir).context("syncing", dir)?;
    }
    Ok(restored)
}

/// The state at the base offset of segment number `at`. Changes nothing.
pub(crate) fn state_at(source: &Source<'_>, at: usize, snapshots: &[i64]) -> Result<Producers> {
    let end = source.segments[at].base_offset;
    let below = Source { segments: &source.segments[..=at], end, ..*source };
    read_state(&below, snapshots).map(|(restored, _)| restored.producers)
}

/// The state at the log end, and the snapshots that are damaged or of no use.
fn read_state(source: &Source<'_>, snapshots: &[i64]) -> Result<(Restored, Vec<i64>)> {
    let (useful, mut useless) = sorted(source, snapshots);
    let mut restored = Restored::default();
    let disk = &*source.home.disk;
    for &offset in useful.iter().rev() {
        let Ok(bytes) = read_file(disk, &source.home.segment_file(offset, SNAPSHOT)) else { continue };
        if let Some(states) = bytes.as_deref().and_then(snapshot::parse) {
            restored.producers = Producers::from_states(states);
            restored.snapshot = Some(offset);
            break;
        }
        useless.push(offset);
    }
    if let Some((now_ms, expiration_ms)) = source.expire {
        restored.producers.expire(now_ms, expiration_ms);
    }
    let first = source.segments.first().map_or(source.end, |first| first.base_offset);
    replay(source, restored.snapshot.unwrap_or(first), &mut restored.producers, |_| Ok(()))?;
    Ok((restored, useless))
}

/// Snapshots from which the state can be had, ascending, and those that are of no use. Useful are those at the base offsets of segments, and
/// the newest one behind the last of these.
fn sorted(source: &Source<'_>, snapshots: &[i64]) -> (Vec<i64>, Vec<i64>) {
    let newest = snapshots.iter().copied().filter(|offset| *offset <= source.end).max();
    let last_base = source.segments.last().map_or(i64::MAX, |last| last.base_offset);
    let (mut useful, useless): (Vec<i64>, Vec<i64>) = snapshots.iter().partition(|offset| {
        let at_base = source.segments.binary_search_by_key(*offset, |segment| segment.base_offset).is_ok();
        **offset <= source.end && (at_base || (newest == Some(**offset) && **offset >= last_base))
    });
    useful.sort_unstable();
    (useful, useless)
}

/// Adds the batches from `from` on, and tells of the transactions among them that were aborted. Where a segment can't be read on its rest is
/// passed over, as it is for everyone who reads the log.
pub(crate) fn replay(
    source: &Source<'_>,
    from: i64,
    producers: &mut Producers,
    mut aborted: impl FnMut(AbortedTxn) -> Result<()>,
) -> Result<()> {
    for (at, segment) in source.segments.iter().enumerate() {
        let end = source.segments.get(at + 1).map_or(source.end, |next| next.base_offset);
        if end <= from || segment.base_offset >= end || segment.size == 0 {
            continue;
        }
        let start = match segment.base_offset < from {
            true => match segment.locate(source.home, from) {
                Err(error @ LogError::Io { .. }) => return Err(error),
                located => located.ok().flatten(),
            },
            false => None,
        };
        let mut scan = segment.scan(source.home, start.map_or(0, |header| header.position))?;
        loop {
            match scan.next() {
                Ok(Some(header)) if header.base_offset >= from => {
                    let end = scan.end_transaction(&header).context_at("reading", || segment.path(source.home))?;
                    if let Some(batch) = ProducerBatch::of_header(&header, end) {
                        producers.apply(&batch).map_or(Ok(()), &mut aborted)?;
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(ScanError::Corrupt { .. }) => break,
                Err(ScanError::Io(error)) => return Err(error).context("reading", &segment.path(source.home)),
            }
        }
    }
    Ok(())
}

/// Writes the snapshot of the state at `offset`, not synced: a torn one is found out by its checksum.
pub(crate) fn write_snapshot(home: &Home, offset: i64, producers: &Producers) -> Result<()> {
    let path = home.segment_file(offset, SNAPSHOT);
    let file = home.disk.open(&path, OpenMode::Create).context("creating", &path)?;
    if file.len().context("measuring", &path)? > 0 {
        file.truncate(0).context("truncating", &path)?;
    }
    file.write_at(&snapshot::format(producers.states()), 0).context("writing", &path)
}

/// Removes all snapshots of a log; the directory is synced by the caller.
pub(crate) fn remove_snapshots(home: &Home) -> Result<()> {
    for entry in home.disk.list(&home.dir).context("listing", &home.dir)? {
        if segment_offset(&entry.name, SNAPSHOT).is_some() {
            remove(&*home.disk, &home.dir.join(&entry.name))?;
        }
    }
    Ok(())
}

fn remove(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        result => result.context("removing", path),
    }
}
