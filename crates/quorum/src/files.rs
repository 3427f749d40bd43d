//! Small files that are replaced as a whole.

use std::io;
use std::path::{Path, PathBuf};

use milena_io::{Disk, FileExt, OpenMode};

/// Small files are read only up to this size, bytes.
const SMALL_FILE: u64 = 1 << 20;

/// Makes `content` the content of `path`, durably and in one step: after a crash the file is the old one or the new one.
pub(crate) fn replace(disk: &dyn Disk, path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    let file = disk.open(&temporary, OpenMode::Create)?;
    file.truncate(0)?;
    file.write_at(content, 0)?;
    file.sync_all()?;
    disk.rename(&temporary, path)?;
    disk.sync_dir(parent(path))
}

/// The text of a small file; `None` when there is none.
pub(crate) fn read_text(disk: &dyn Disk, path: &Path) -> io::Result<Option<String>> {
    let file = match disk.open(path, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let bytes = file.read_all(SMALL_FILE)?;
    String::from_utf8(bytes).map(Some).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8 text"))
}

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

/// Largest bootstrap snapshot that is read, bytes.
const BOOTSTRAP_FILE: u64 = 64 << 20;

/// The bytes of a bootstrap snapshot; `None` when there is none.
pub(crate) fn read_bytes(disk: &dyn Disk, path: &Path) -> io::Result<Option<Vec<u8>>> {
    match disk.open(path, OpenMode::Read) {
        Ok(file) => file.read_all(BOOTSTRAP_FILE).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
