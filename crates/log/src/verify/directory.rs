//! A log directory as a whole: every partition, the checkpoints, the metadata quorum's snapshots.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use milena_io::{Disk, OpenMode};

use super::{Condition, Finding, Report, Verified, verify_partition};
use crate::directory::{Checkpoint, LogDirectory};
use crate::error::{IoContext, LogError, Result};
use crate::names::{DirKind, PartitionDirName};
use crate::recover::{Window, check_batch};

/// Checks every partition of a log directory, its checkpoints, and the snapshots of the metadata quorum.
///
/// # Errors
/// [`LogError::Io`] when the directory can't be listed. Files that can't be read are findings.
pub fn verify_directory(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    condition: Condition,
    report: &mut dyn Report,
) -> Result<Verified> {
    let directory = LogDirectory::unlocked(Arc::clone(disk), dir);
    if let Err(error) = directory.meta_properties() {
        problem(report, &dir.join("meta.properties"), &error);
    }
    let mut verified = Verified::default();
    let mut ends = BTreeMap::new();
    for entry in disk.list(dir).context("listing", dir)?.into_iter().filter(|entry| entry.is_dir) {
        let path = dir.join(&entry.name);
        let Some(name) = PartitionDirName::parse(&entry.name) else {
            if entry.name != "remote-log-index-cache" {
                let what = "is neither topic-partition nor one with a suffix; a broker refuses to start here";
                report.found(Finding { path, position: None, is_problem: true, what: what.to_owned() });
            }
            continue;
        };
        if name.kind == DirKind::Delete {
            let what = "waits for its deletion and was not looked at".to_owned();
            report.found(Finding { path, position: None, is_problem: false, what });
            continue;
        }
        match verify_partition(disk, &path, condition, None, report) {
            Ok((one, end)) => {
                verified += one;
                if name.kind == DirKind::Current {
                    ends.insert((name.topic.clone(), name.partition), end);
                }
            }
            // A running broker deletes partitions.
            Err(_) if condition == Condition::Running && !matches!(disk.metadata(&path), Ok(Some(_))) => {}
            Err(error) => problem(report, &path, &error),
        }
        if name.topic == "__cluster_metadata" {
            snapshots(disk, &path, report)?;
        }
    }
    for checkpoint in Checkpoint::ALL {
        checkpoint_fits(&directory, checkpoint, condition, &ends, report);
    }
    Ok(verified)
}

fn problem(report: &mut dyn Report, path: &Path, error: &LogError) {
    let (position, what) = match error {
        LogError::BadFile { reason, .. } => (None, reason.clone()),
        LogError::Io { operation, source, .. } => (None, format!("{operation}: {source}")),
        other => (None, other.to_string()),
    };
    report.found(Finding { path: path.to_owned(), position, is_problem: true, what });
}

/// No offset of a checkpoint is beyond the end of its log. Beside a running broker that can't be told: both move.
fn checkpoint_fits(
    directory: &LogDirectory,
    checkpoint: Checkpoint,
    condition: Condition,
    ends: &BTreeMap<(String, i32), i64>,
    report: &mut dyn Report,
) {
    let path = directory.path().join(checkpoint.file_name());
    let offsets = match directory.read_checkpoint(checkpoint) {
        Ok(offsets) => offsets,
        Err(error) => return problem(report, &path, &error),
    };
    for (topic, partition, offset) in offsets.iter() {
        let Some(&end) = ends.get(&(topic.to_owned(), partition)) else { continue };
        if offset > end && condition != Condition::Running {
            // A high watermark is not synced with its log, and a start takes the end where it is beyond.
            let is_problem = checkpoint != Checkpoint::HighWatermark;
            let what = format!("has offset {offset} for {topic}-{partition}, whose log ends at {end}");
            report.found(Finding { path: path.clone(), position: None, is_problem, what });
        }
    }
}

/// The snapshots of the metadata quorum: whole batches from a header to a footer.
fn snapshots(disk: &Arc<dyn Disk>, dir: &Path, report: &mut dyn Report) -> Result<()> {
    for entry in disk.list(dir).context("listing", dir)? {
        if !entry.name.ends_with(".checkpoint") {
            continue;
        }
        let path = dir.join(&entry.name);
        match verify_snapshot(disk, &path) {
            Ok(None) => {}
            Ok(Some((position, what))) => {
                report.found(Finding { path, position: Some(position), is_problem: true, what });
            }
            Err(error) => problem(report, &path, &error),
        }
    }
    Ok(())
}

/// Checks a snapshot of the metadata quorum; where and what is wrong with it.
///
/// # Errors
/// [`LogError::Io`].
pub fn verify_snapshot(disk: &Arc<dyn Disk>, path: &Path) -> Result<Option<(u64, String)>> {
    let file = disk.open(path, OpenMode::Read).context("opening", path)?;
    let size = file.len().context("measuring", path)?;
    let mut window = Window::new(&*file, size);
    let (mut position, mut last_is_control) = (0, false);
    while position < size {
        match check_batch(&mut window, position, size).context("reading", path)? {
            Ok(batch) if position == 0 && !batch.is_control() => {
                return Ok(Some((0, "does not begin with a snapshot's header".to_owned())));
            }
            Ok(batch) => (position, last_is_control) = (batch.end(), batch.is_control()),
            Err(reason) => return Ok(Some((position, reason))),
        }
    }
    Ok((!last_is_control).then(|| (size, "does not end with a snapshot's footer".to_owned())))
}
