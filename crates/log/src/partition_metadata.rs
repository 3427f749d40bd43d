//! `partition.metadata`, which ties a partition's directory to its topic's id.

use std::path::Path;

use milena_io::{Disk, FileExt, OpenMode};

use crate::error::{IoContext, Result};
use crate::text::{bad, read_text, replace_file};

/// The file's name.
const FILE: &str = "partition.metadata";
/// What stands before the id.
const HEAD: &str = "version: 0\ntopic_id: ";
/// The id that no topic has, as text.
const ZERO: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// The topic id of the partition in `dir`, 22 characters of base64url; `None` without the file, or when a crash left only
/// a beginning of it before it was synced.
///
/// # Errors
/// [`LogError::BadFile`](crate::LogError::BadFile): an unknown version or no id.
pub fn read_topic_id(disk: &dyn Disk, dir: &Path) -> Result<Option<String>> {
    let path = dir.join(FILE);
    let Some(text) = read_text(disk, &path)?.filter(|text| !is_torn(text)) else { return Ok(None) };
    let mut lines = text.lines().map(|line| line.split_once(':').map(|(key, value)| (key.trim(), value.trim())));
    match (lines.next().flatten(), lines.next().flatten(), lines.next()) {
        // As Kafka reads it: what stands before the colons says nothing.
        (Some((_, "0")), Some((_, id)), None) if is_id(id) => Ok(Some(id.to_owned())),
        (Some((_, "0")), ..) => Err(bad(&path, "line 2: no topic id")),
        _ => Err(bad(&path, "line 1: unknown version")),
    }
}

/// Writes the file, durably: it must be there before the first append.
///
/// # Errors
/// [`LogError::BadFile`](crate::LogError::BadFile) for what is no id, or the zero id; [`LogError::Io`](crate::LogError::Io).
pub fn write_topic_id(disk: &dyn Disk, dir: &Path, topic_id: &str) -> Result<()> {
    let path = dir.join(FILE);
    replace_file(disk, &path, content(&path, topic_id)?.as_bytes())
}

/// Writes the file of a new partition without waiting for the disk: many partitions may be made at once. It lasts after
/// [`sync_topic_id`].
///
/// # Errors
/// As [`write_topic_id`].
pub fn write_topic_id_unsynced(disk: &dyn Disk, dir: &Path, topic_id: &str) -> Result<()> {
    let path = dir.join(FILE);
    let content = content(&path, topic_id)?;
    let file = disk.open(&path, OpenMode::Create).context("opening", &path)?;
    file.write_at(content.as_bytes(), 0).context("writing", &path)
}

/// Makes the file last, where there is one.
pub(crate) fn sync_if_there(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let path = dir.join(FILE);
    match disk.open(&path, OpenMode::Write).and_then(|file| file.sync_all()) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        result => result.context("syncing", &path),
    }
}

/// Makes the file, and the names of a new partition's files, last.
///
/// # Errors
/// [`LogError::Io`](crate::LogError::Io).
pub fn sync_topic_id(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let path = dir.join(FILE);
    disk.open(&path, OpenMode::Write).and_then(|file| file.sync_all()).context("syncing", &path)?;
    disk.sync_dir(dir).context("syncing", dir)
}

fn content(path: &Path, topic_id: &str) -> Result<String> {
    if !is_id(topic_id) {
        return Err(bad(path, format!("`{topic_id}` is no topic id")));
    }
    Ok(format!("{HEAD}{topic_id}"))
}

/// Whether there is less than the whole content, zeros behind it or not.
fn is_torn(text: &str) -> bool {
    let text = text.trim_end_matches('\0');
    text.len() < HEAD.len() + ZERO.len() && (HEAD.starts_with(text) || text.starts_with(HEAD))
}

fn is_id(text: &str) -> bool {
    let base64url = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    text.len() == ZERO.len() && text.bytes().all(base64url) && text != ZERO
}

#[cfg(test)]
mod tests {
    use milena_io::SimDisk;

    use super::*;

    const ID: &str = "VUK78uoJyllVz-GqkcCBCA";

    #[test]
    fn an_unsynced_file_says_the_same_and_one_that_a_crash_left_torn_says_nothing() {
        let disk = SimDisk::new(1);
        let dir = Path::new("/t-0");
        disk.create_dir_all(dir).unwrap();
        assert_eq!(read_topic_id(&disk, dir).unwrap(), None);
        write_topic_id_unsynced(&disk, dir, ID).unwrap();
        sync_topic_id(&disk, dir).unwrap();
        assert_eq!(read_topic_id(&disk, dir).unwrap().as_deref(), Some(ID));
        let file = disk.open(&dir.join(FILE), OpenMode::Create).unwrap();
        for left in [&b""[..], &[0; 43], b"version: 0\nto", b"version: 0\ntopic_id: VUK", b"versi\0\0\0"] {
            file.truncate(0).unwrap();
            file.write_at(left, 0).unwrap();
            assert_eq!(read_topic_id(&disk, dir).unwrap(), None);
        }
        file.truncate(0).unwrap();
        file.write_at(format!("version: 0\ntnpic_id: {ID}").as_bytes(), 0).unwrap();
        assert_eq!(read_topic_id(&disk, dir).unwrap().as_deref(), Some(ID));
        file.truncate(0).unwrap();
        file.write_at(b"version: 0\ntopic_id: VUK78uoJyllVz+GqkcCBCA", 0).unwrap();
        assert!(read_topic_id(&disk, dir).is_err());
    }
}
