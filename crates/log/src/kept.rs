//! What a start cuts off a log although it may be sound: it is kept beside the log in files that end with `.cut`, which neither Kafka nor
//! Milena takes for a part of it.

use std::path::PathBuf;

use milena_io::{FileExt, OpenMode};

use crate::error::{IoContext, Result};
use crate::names::{Home, LOG, segment_name};
use crate::recover::sound_behind;
use crate::segment::Segment;

/// Bytes copied at once.
const CHUNK: u64 = 1 << 20;

/// A name that nothing has, for what was cut from `offset` on.
fn free_name(home: &Home, offset: i64) -> Result<PathBuf> {
    let mut number = 1;
    loop {
        let path = home.dir.join(segment_name(offset, &format!("{LOG}.{number}.cut")));
        if home.disk.metadata(&path).context("looking for", &path)?.is_none() {
            return Ok(path);
        }
        number += 1;
    }
}

/// Takes a segment out of the log and keeps its batches; `None` when it has none. The caller syncs the directory.
pub(crate) fn keep_segment(home: &Home, segment: &Segment) -> Result<Option<PathBuf>> {
    let kept = if segment.size > 0 {
        let to = free_name(home, segment.base_offset)?;
        home.disk.rename(&segment.path(home), &to).context("renaming to", &to)?;
        Some(to)
    } else {
        None
    };
    segment.remove(home)?;
    Ok(kept)
}

/// Copies what stands between the segment's end and `len`, durably, if a sound batch is in it or `anyway`. `end` is the log end offset at
/// the segment's end.
pub(crate) fn keep_tail(home: &Home, segment: &Segment, len: u64, end: i64, anyway: bool) -> Result<Option<PathBuf>> {
    let (from, path) = (segment.size, segment.path(home));
    let file = segment.file(home)?;
    if from >= len || !(anyway || sound_behind(&**file, from, len, end).context("reading", &path)?) {
        return Ok(None);
    }
    let to = free_name(home, end)?;
    let copy = home.disk.open(&to, OpenMode::CreateNew).context("creating", &to)?;
    let mut at = from;
    let mut chunk = vec![0; CHUNK.min(len - from) as usize];
    while at < len {
        let wanted = CHUNK.min(len - at) as usize;
        let read = file.read_at(&mut chunk[..wanted], at).context("reading", &path)?;
        if read == 0 {
            break;
        }
        copy.write_at(&chunk[..read], at - from).context("writing", &to)?;
        at += read as u64;
    }
    copy.sync_data().context("syncing", &to)?;
    home.disk.sync_dir(&home.dir).context("syncing", &home.dir)?;
    Ok(Some(to))
}
