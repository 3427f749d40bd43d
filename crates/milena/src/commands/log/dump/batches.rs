//! The batches of a log file, one after another, with no more belief in their headers than Kafka's tool has: what is damaged is
//! shown as it is.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use milena_records::{BATCH_OVERHEAD, Batch};

/// Base offset, length, four bytes that depend on the format, magic.
const UP_TO_MAGIC: u64 = 17;
/// Base offset and length.
const LOG_OVERHEAD: i64 = 12;
/// Least length of the oldest format.
const MIN_LENGTH: i32 = 14;

/// A log file; its size as it was when it was opened.
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    size: u64,
}

/// Where a batch is, and what the bytes common to all formats say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) position: u64,
    /// Bytes of the whole batch.
    pub(super) size: u64,
    /// The first eight bytes: base offset, in old formats the last one.
    pub(super) offset: i64,
    pub(super) magic: i8,
}

impl LogFile {
    /// Opens a file, which must not be larger than a segment can be.
    pub(super) fn open(path: &Path) -> Result<LogFile> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        let size = file.metadata().with_context(|| path.display().to_string())?.len();
        if size > i32::MAX as u64 {
            bail!("{}: {size} bytes are more than the {} that a segment can have", path.display(), i32::MAX);
        }
        Ok(LogFile { path: path.to_owned(), file, size })
    }

    /// The end of a slice that begins at `position` and has at most `most` bytes.
    pub(super) fn slice_end(&self, position: i64, most: i32) -> Result<u64> {
        let start = u64::try_from(position).ok().filter(|start| *start <= self.size);
        let (Some(start), Ok(most)) = (start, u64::try_from(most)) else {
            bail!("{}: {most} bytes at {position} are not within the {} of the file", self.path.display(), self.size);
        };
        Ok(self.size.min(start + most))
    }

    /// The batch at `position`; `None` where no further one fits before `end`.
    pub(super) fn entry(&self, position: u64, end: u64) -> Result<Option<Entry>> {
        if position + UP_TO_MAGIC > end {
            return Ok(None);
        }
        let mut bytes = [0; UP_TO_MAGIC as usize];
        self.read(&mut bytes, position)?;
        let [o0, o1, o2, o3, o4, o5, o6, o7, l0, l1, l2, l3, .., magic] = bytes;
        let length = i32::from_be_bytes([l0, l1, l2, l3]);
        if length < MIN_LENGTH {
            bail!(
                "{}: found record size {length} at position {position}, smaller than the minimum record overhead ({MIN_LENGTH})",
                self.path.display()
            );
        }
        let size = (i64::from(length) + LOG_OVERHEAD) as u64;
        if position + size > end {
            return Ok(None);
        }
        let offset = i64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]);
        Ok(Some(Entry { position, size, offset, magic: magic.cast_signed() }))
    }

    /// Reads exactly these bytes.
    pub(super) fn read(&self, bytes: &mut [u8], position: u64) -> Result<()> {
        self.file.read_exact_at(bytes, position).with_context(|| format!("{} at {position}", self.path.display()))
    }

    /// The bytes of a whole batch, at most those of the file.
    pub(super) fn bytes(&self, entry: &Entry) -> Result<Vec<u8>> {
        let mut bytes = vec![0; entry.size as usize];
        self.read(&mut bytes, entry.position)?;
        Ok(bytes)
    }

    /// The header of a batch, even where its length says that it has none.
    pub(super) fn header(&self, entry: &Entry) -> Result<[u8; BATCH_OVERHEAD]> {
        let mut bytes = [0; BATCH_OVERHEAD];
        self.read(&mut bytes, entry.position)?;
        Ok(bytes)
    }

    /// Last offset of a batch.
    pub(super) fn last_offset(&self, entry: &Entry) -> Result<i64> {
        if entry.magic < milena_records::MAGIC {
            return Ok(entry.offset);
        }
        Ok(view(&mut self.header(entry)?)?.last_offset())
    }
}

/// The header as a batch without records, whatever its length and magic are.
pub(super) fn view(header: &mut [u8; BATCH_OVERHEAD]) -> Result<Batch<'_>> {
    header[8..12].copy_from_slice(&(BATCH_OVERHEAD as i32 - LOG_OVERHEAD as i32).to_be_bytes());
    header[16] = milena_records::MAGIC.cast_unsigned();
    Ok(Batch::parse(header)?)
}
