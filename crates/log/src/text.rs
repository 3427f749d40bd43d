//! The one writer of small files, and the text checkpoints: a version line, a count line, and one entry a line.

use std::path::{Path, PathBuf};

use milena_io::{Disk, FileExt, OpenMode};

use crate::error::{IoContext, LogError, Result};

/// Most bytes of a small file: a million checkpoint entries.
const LIMIT: u64 = 256 << 20;

/// Replaces a file's content in one step that survives a power loss.
///
/// Order: write (the new content goes to `<name>.tmp`), sync (of that file), rename (over the old one), sync of the directory. A crash
/// leaves the old content or the new, and perhaps the temporary file, which the next call overwrites.
///
/// # Errors
/// [`LogError::Io`].
pub fn replace_file(disk: &dyn Disk, path: &Path, content: &[u8]) -> Result<()> {
    let replacement = Replacement::write(disk, path, content)?;
    replacement.sync(disk)?;
    replacement.rename(disk)?;
    let dir = path.parent().unwrap_or(Path::new("."));
    disk.sync_dir(dir).context("syncing", dir)
}

/// A file's new content, written beside the old one. It must be synced before it is renamed.
#[derive(Debug)]
pub(crate) struct Replacement {
    tmp: PathBuf,
    path: PathBuf,
}

impl Replacement {
    pub(crate) fn write(disk: &dyn Disk, path: &Path, content: &[u8]) -> Result<Self> {
        let tmp = with_suffix(path, ".tmp");
        let file = disk.open(&tmp, OpenMode::Create).context("opening", &tmp)?;
        file.truncate(0).context("truncating", &tmp)?;
        file.write_at(content, 0).context("writing", &tmp)?;
        Ok(Self { tmp, path: path.to_owned() })
    }

    pub(crate) fn sync(&self, disk: &dyn Disk) -> Result<()> {
        disk.open(&self.tmp, OpenMode::Write).and_then(|file| file.sync_all()).context("syncing", &self.tmp)
    }

    pub(crate) fn rename(&self, disk: &dyn Disk) -> Result<()> {
        disk.rename(&self.tmp, &self.path).context("renaming to", &self.path)
    }
}

/// A small file's content; `None` if there is no such file.
///
/// # Errors
/// [`LogError::Io`], also for a file that is too large to be a small one.
pub fn read_file(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>> {
    match disk.open(path, OpenMode::Read).and_then(|file| file.read_all(LIMIT)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context("reading", path),
    }
}

/// As [`read_file`], for text.
pub(crate) fn read_text(disk: &dyn Disk, path: &Path) -> Result<Option<String>> {
    let Some(bytes) = read_file(disk, path)? else { return Ok(None) };
    String::from_utf8(bytes).map(Some).map_err(|_| bad(path, "is not UTF-8"))
}

pub(crate) fn bad(path: &Path, reason: impl Into<String>) -> LogError {
    LogError::BadFile { path: path.to_owned(), reason: reason.into() }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The text of a checkpoint.
pub(crate) fn format_checkpoint(entries: impl ExactSizeIterator<Item = String>) -> String {
    let mut text = format!("0\n{}\n", entries.len());
    for entry in entries {
        text.push_str(&entry);
        text.push('\n');
    }
    text
}

/// The entries of a checkpoint's text; `entry` reads a line, split at white space. A file of length zero has none.
pub(crate) fn parse_checkpoint<T>(path: &Path, text: &str, entry: impl Fn(&[&str]) -> Option<T>) -> Result<Vec<T>> {
    let mut lines = text.lines();
    let Some(version) = lines.next() else { return Ok(Vec::new()) };
    if version.trim() != "0" {
        return Err(bad(path, format!("line 1: unknown version `{version}`")));
    }
    let count = lines.next().and_then(|line| line.trim().parse::<usize>().ok());
    let count = count.ok_or_else(|| bad(path, "line 2: no count of entries"))?;
    let mut entries = Vec::new();
    for (number, line) in lines.enumerate() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let parsed = entry(&fields).ok_or_else(|| bad(path, format!("line {}: `{line}`", number + 3)))?;
        entries.push(parsed);
    }
    if entries.len() != count {
        return Err(bad(path, format!("{count} entries announced, {} found", entries.len())));
    }
    Ok(entries)
}
