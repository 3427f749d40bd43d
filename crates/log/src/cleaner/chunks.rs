//! Reading a segment's whole batches, a buffer full at a time.

use std::path::PathBuf;
use std::sync::Arc;

use milena_io::File;
use milena_records::{Batch, BatchError, batches};

use crate::error::{IoContext, LogError, Result};

/// A segment's file as it was when the cleaning began.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) file: Arc<dyn File>,
    /// For errors.
    pub(crate) path: PathBuf,
    /// Where reading goes on, bytes.
    pub(crate) position: u64,
    /// End of the last batch, bytes.
    pub(crate) end: u64,
    /// Offset that the next batch must not go below.
    pub(crate) next_offset: i64,
}

impl Source {
    /// An error about the batch at `position`.
    pub(super) fn corrupt(&self, position: u64, reason: impl ToString) -> LogError {
        LogError::Corrupt { path: self.path.clone(), position, reason: reason.to_string() }
    }

    /// Fills `buf` with whole batches from the current position on and moves behind them. Returns how many bytes they are; 0 at the end. The
    /// buffer is as long as before, unless one batch is longer.
    pub(super) fn read(&mut self, buf: &mut Vec<u8>) -> Result<usize> {
        if self.position >= self.end {
            return Ok(0);
        }
        loop {
            let want = usize::try_from(self.end - self.position).unwrap_or(usize::MAX).min(buf.len());
            let read = self.file.read_at(&mut buf[..want], self.position).context("reading", &self.path)?;
            if read < want {
                return Err(self.corrupt(self.position + read as u64, "the file ends before its segment does"));
            }
            match whole(&buf[..read]) {
                (0, Some(BatchError::Truncated { needed, .. })) if needed > buf.len() => {
                    // What the length field claims is there, or no memory is taken for it.
                    if needed as u64 > self.end - self.position {
                        return Err(
                            self.corrupt(self.position, format!("a batch of {needed} bytes goes beyond the end"))
                        );
                    }
                    buf.resize(needed, 0);
                }
                (0, Some(error)) => return Err(self.corrupt(self.position, error)),
                (len, _) => {
                    self.position += len as u64;
                    return Ok(len);
                }
            }
        }
    }

    /// Checks a batch that stands at `position`: its offsets go up, and its bytes are what was written.
    pub(super) fn check(&mut self, batch: &Batch<'_>, position: u64) -> Result<()> {
        let (base, last) = (batch.base_offset(), batch.last_offset());
        if base < self.next_offset || last < base || last == i64::MAX {
            let reason = format!("offsets {base} to {last} where {} is the least", self.next_offset);
            return Err(self.corrupt(position, reason));
        }
        self.next_offset = last + 1;
        batch.verify_crc().map_err(|error| self.corrupt(position, error))
    }
}

/// Bytes of the whole batches that `bytes` begin with, and why there are no more.
fn whole(bytes: &[u8]) -> (usize, Option<BatchError>) {
    let mut walk = batches(bytes);
    let error = walk.find_map(std::result::Result::err);
    (walk.position(), error)
}
