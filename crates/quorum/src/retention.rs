//! Old snapshots are removed when they, or the metadata log with them, become too old or too many. The newest one and the
//! one that formatting wrote always stay; the log itself is kept whole.

use std::path::Path;

use milena_io::{Disk, OpenMode};
use milena_records::batches;

use crate::batches::{Contents, ControlRecord, decode};
use crate::error::{IoContext, QuorumError};
use crate::snapshot::{self, SnapshotId};

/// Bytes that hold a snapshot's first batch.
const HEADER_BYTES: usize = 4096;

/// What may stay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// `metadata.max.retention.bytes`: most bytes of the log and all snapshots together; negative for no limit.
    pub(crate) bytes: i64,
    /// `metadata.max.retention.ms`: greatest age of a snapshot's last record; negative for no limit.
    pub(crate) ms: i64,
}

/// Removes snapshots beyond the limits, oldest first, and returns how many.
pub(crate) fn clean(
    disk: &dyn Disk,
    dir: &Path,
    log_bytes: u64,
    limits: Limits,
    now_ms: i64,
) -> Result<usize, QuorumError> {
    snapshot::remove_remains(disk, dir)?;
    let mut ids = snapshot::list(disk, dir)?;
    ids.retain(|id| *id != SnapshotId::BOOTSTRAP);
    ids.pop();
    let mut sizes = Vec::with_capacity(ids.len());
    for id in &ids {
        let path = dir.join(id.file_name());
        sizes.push(disk.metadata(&path).context("cannot read", &path)?.map_or(0, |m| m.len));
    }
    let mut total = log_bytes + sizes.iter().sum::<u64>();
    let mut removed = 0;
    for (id, size) in ids.into_iter().zip(sizes) {
        let path = dir.join(id.file_name());
        let too_many = u64::try_from(limits.bytes).is_ok_and(|limit| total > limit);
        let too_old = limits.ms >= 0 && now_ms.saturating_sub(last_timestamp(disk, &path)?) > limits.ms;
        if !too_many && !too_old {
            break;
        }
        disk.remove_file(&path).context("cannot remove", &path)?;
        total -= size;
        removed += 1;
    }
    Ok(removed)
}

/// Timestamp of the last record a snapshot contains, from its header. A snapshot without one counts as new: what is broken
/// is told when it is loaded.
fn last_timestamp(disk: &dyn Disk, path: &Path) -> Result<i64, QuorumError> {
    let file = disk.open(path, OpenMode::Read).context("cannot open", path)?;
    let mut bytes = vec![0; HEADER_BYTES];
    let read = file.read_at(&mut bytes, 0).context("cannot read", path)?;
    let Some(Ok(batch)) = batches(&bytes[..read]).next() else { return Ok(i64::MAX) };
    let Ok(Contents::Control(records)) = decode(&batch) else { return Ok(i64::MAX) };
    let timestamp = |record: &ControlRecord| match record {
        ControlRecord::SnapshotHeader { last_contained_log_timestamp } => Some(*last_contained_log_timestamp),
        _ => None,
    };
    Ok(records.iter().find_map(timestamp).unwrap_or(i64::MAX))
}
