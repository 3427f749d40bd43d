//! Directories that survive a power loss.

use std::io;
use std::path::{Path, PathBuf};

use milena_io::Disk;

/// Makes a directory and those above it, durably: each name that was missing is synced in its parent.
pub(crate) fn create_dir(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let mut missing: Vec<PathBuf> = Vec::new();
    let mut at = dir.to_owned();
    while disk.metadata(&at)?.is_none() {
        missing.push(at.clone());
        if !at.pop() || at.as_os_str().is_empty() {
            break;
        }
    }
    disk.create_dir_all(dir)?;
    for made in missing.iter().rev() {
        disk.sync_dir(parent(made))?;
    }
    Ok(())
}

/// The directory a path is in; `.` for a bare name.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
