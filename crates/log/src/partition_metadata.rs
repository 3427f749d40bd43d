//! `partition.metadata`, which ties a partition's directory to its topic's id.

use std::path::Path;

use milena_io::Disk;

use crate::error::Result;
use crate::text::{bad, read_text, replace_file};

/// The file's name.
const FILE: &str = "partition.metadata";
/// The id that no topic has, as text.
const ZERO: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// The topic id of the partition in `dir`, 22 characters of base64url; `None` without the file.
///
/// # Errors
/// [`LogError::BadFile`](crate::LogError::BadFile): an unknown version or no id.
pub fn read_topic_id(disk: &dyn Disk, dir: &Path) -> Result<Option<String>> {
    let path = dir.join(FILE);
    let Some(text) = read_text(disk, &path)? else { return Ok(None) };
    let mut lines = text.lines().map(|line| line.split_once(':').map(|(key, value)| (key.trim(), value.trim())));
    match (lines.next().flatten(), lines.next().flatten(), lines.next()) {
        (Some(("version", "0")), Some(("topic_id", id)), None) if is_id(id) => Ok(Some(id.to_owned())),
        (Some(("version", "0")), ..) => Err(bad(&path, "line 2: no topic id")),
        _ => Err(bad(&path, "line 1: unknown version")),
    }
}

/// Writes the file, durably: it must be there before the first append.
///
/// # Errors
/// [`LogError::BadFile`](crate::LogError::BadFile) for what is no id, or the zero id; [`LogError::Io`](crate::LogError::Io).
pub fn write_topic_id(disk: &dyn Disk, dir: &Path, topic_id: &str) -> Result<()> {
    let path = dir.join(FILE);
    if !is_id(topic_id) {
        return Err(bad(&path, format!("`{topic_id}` is no topic id")));
    }
    replace_file(disk, &path, format!("version: 0\ntopic_id: {topic_id}").as_bytes())
}

fn is_id(text: &str) -> bool {
    let base64url = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    text.len() == ZERO.len() && text.bytes().all(base64url) && text != ZERO
}
