//! The entries of an index, met one after another by a walk over the log.

use std::path::{Path, PathBuf};

use milena_io::{Disk, FileExt, OpenMode};

use crate::error::{IoContext, Result};
use crate::index::IndexEntry;

/// Most bytes of an index; `segment.index.bytes` is an int32.
const LIMIT: u64 = i32::MAX as u64;
/// Bytes that are compared with zeros at once.
const CHUNK: usize = 4096;

/// The entries of an index file up to the first that can't be true, and the one that the walk comes to next.
#[derive(Debug)]
pub(super) struct Cursor<E> {
    pub(super) path: PathBuf,
    entries: Vec<E>,
    at: usize,
    /// Zeros behind the entries: what was reserved for further ones, bytes.
    pub(super) reserved: u64,
}

/// The bytes up to the last one that is not zero. What is reserved in a killed broker's indexes is most of its directory's size.
fn without_zeros(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let Some((before, last)) = rest.split_last_chunk::<CHUNK>()
        && *last == [0; CHUNK]
    {
        rest = before;
    }
    &rest[..rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)]
}

/// A file that is no whole number of entries, or an entry that can't follow the one before: at which byte, and what is wrong.
pub(super) type Fault = (u64, String);

impl<E: IndexEntry> Cursor<E> {
    /// Reads a file; `None` without one. `follows` says whether the second entry may stand behind the first.
    pub(super) fn read(
        disk: &dyn Disk,
        path: &Path,
        base_offset: i64,
        follows: impl Fn(&E, &E) -> bool,
    ) -> Result<Option<(Self, Option<Fault>)>> {
        let bytes = match disk.open(path, OpenMode::Read).and_then(|file| file.read_all(LIMIT)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.context("reading", path)?,
        };
        let rest = bytes.len() % E::SIZE;
        let mut fault = (rest > 0).then(|| {
            ((bytes.len() - rest) as u64, format!("{rest} bytes are left behind the entries of {} bytes", E::SIZE))
        });
        // Behind the entries stands what was reserved for further ones.
        let used = without_zeros(&bytes).len().div_ceil(E::SIZE);
        let mut entries: Vec<E> = Vec::new();
        for (number, bytes) in bytes.chunks_exact(E::SIZE).take(used).enumerate() {
            let entry = E::decode(base_offset, bytes);
            if let Some(last) = entries.last()
                && !follows(last, &entry)
            {
                fault = Some(((number * E::SIZE) as u64, format!("{entry:?} can't follow {last:?}")));
                break;
            }
            entries.push(entry);
        }
        let reserved = bytes.len().saturating_sub(used * E::SIZE + rest) as u64;
        Ok(Some((Self { path: path.to_owned(), entries, at: 0, reserved }, fault)))
    }

    /// The next entry.
    pub(super) fn peek(&self) -> Option<E> {
        self.entries.get(self.at).copied()
    }

    /// Where the next entry is in its file, bytes.
    pub(super) fn position(&self) -> u64 {
        (self.at * E::SIZE) as u64
    }

    /// Where the entries end, bytes.
    pub(super) fn end(&self) -> u64 {
        (self.entries.len() * E::SIZE) as u64
    }

    pub(super) fn advance(&mut self) {
        self.at += 1;
    }

    pub(super) fn skip_while(&mut self, passed: impl Fn(&E) -> bool) {
        while self.peek().is_some_and(|entry| passed(&entry)) {
            self.advance();
        }
    }

    pub(super) fn last(&self) -> Option<E> {
        self.entries.last().copied()
    }
}
