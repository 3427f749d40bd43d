//! Bytes and file ranges on their way out, in order. Sending them is the connection's business.

use std::fs::File;
use std::sync::Arc;
use std::{fmt, io};

use crate::frames::PREFIX_BYTES;

/// To whom a file belongs that is sent from.
pub trait FileOwner: Send + Sync + fmt::Debug {
    /// The disk does not give a part of the file.
    fn unreadable(&self, error: io::Error);
}

/// A range of a file.
#[derive(Debug)]
pub struct FileRange {
    /// The file.
    pub file: Arc<File>,
    /// Where the range begins, bytes.
    pub position: u64,
    /// How many bytes.
    pub len: u64,
    /// It may not be in the page cache: it is looked for there, and if need be read by a thread before it is sent.
    pub cold: bool,
    /// Is told when the disk fails under it.
    pub owner: Option<Arc<dyn FileOwner>>,
}

impl FileRange {
    /// It could not be sent. Most reasons are the connection's.
    pub(crate) fn failed(&self, error: &io::Error) {
        // A socket does not give this one.
        let is_the_disks = rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::IO);
        if let Some(owner) = self.owner.as_ref().filter(|_| is_the_disks) {
            owner.unreadable(rustix::io::Errno::IO.into());
        }
    }
}

/// A range that goes out after the first `at` bytes of [`Outgoing::bytes`].
#[derive(Debug)]
pub(crate) struct PlacedRange {
    pub(crate) at: usize,
    pub(crate) range: FileRange,
}

/// File ranges that are sent and still kept.
const MAX_SENT_RANGES: usize = 64;

/// A part of an [`Outgoing`] that one system call sends.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    /// Bytes; `more` when a file range follows directly.
    Bytes { bytes: &'a [u8], more: bool },
    /// A range of a file.
    File(&'a FileRange),
}

/// A reply is longer than a frame can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLong;

impl TooLong {
    /// For the log.
    pub(crate) const REASON: &str = "a reply of 2 GiB or more";
}

/// Where a frame began in an [`Outgoing`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mark {
    bytes: usize,
    ranges: usize,
    file_bytes: u64,
}

/// Replies as bytes with file ranges between them. A writer only ever appends; length prefixes are not its business.
#[derive(Debug)]
pub struct Outgoing {
    /// Bytes to send. Other replies may stand before this one's: append, never touch what is there.
    pub bytes: Vec<u8>,
    pub(crate) ranges: Vec<PlacedRange>,
    /// Length of all ranges that are not sent.
    file_bytes: u64,
    /// Bytes that are sent.
    sent: usize,
    /// Ranges that are sent.
    ranges_sent: usize,
}

impl Default for Outgoing {
    fn default() -> Self {
        Self::new()
    }
}

impl Outgoing {
    /// Room for one later reply, see [`Reply::frame`](crate::Reply::frame); `bytes` begins with 4 bytes that are
    /// kept for its length prefix.
    pub fn new() -> Self {
        Self { bytes: vec![0; PREFIX_BYTES], ..Self::empty() }
    }

    /// Nothing to send; allocates nothing.
    pub(crate) const fn empty() -> Self {
        Self { bytes: Vec::new(), ranges: Vec::new(), file_bytes: 0, sent: 0, ranges_sent: 0 }
    }

    /// Sends a range of a file after all bytes so far and before those appended later.
    pub fn file(&mut self, range: FileRange) {
        self.file_at(self.bytes.len(), range);
    }

    /// Sends a range of a file before the byte at `at` of [`Self::bytes`].
    ///
    /// # Panics
    /// When `at` is beyond the end, or before a file range that is there already: ranges are given in order.
    pub fn file_at(&mut self, at: usize, range: FileRange) {
        let earliest = self.ranges.last().map_or(0, |placed| placed.at);
        assert!(
            (earliest..=self.bytes.len()).contains(&at),
            "a file range at {at}, not in {earliest}..={}",
            self.bytes.len()
        );
        if range.len > 0 {
            self.file_bytes += range.len;
            self.ranges.push(PlacedRange { at, range });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.ranges.is_empty()
    }

    /// Bytes that were put in here and not sent, those in files included.
    pub(crate) fn len(&self) -> u64 {
        (self.bytes.len() - self.sent) as u64 + self.file_bytes
    }

    /// File ranges that are not sent.
    pub(crate) fn ranges_left(&self) -> usize {
        self.ranges.len() - self.ranges_sent
    }

    /// Begins a frame.
    pub(crate) fn begin(&mut self) -> Mark {
        let mark = Mark { bytes: self.bytes.len(), ranges: self.ranges.len(), file_bytes: self.file_bytes };
        self.bytes.extend_from_slice(&[0; PREFIX_BYTES]);
        mark
    }

    /// Ends the frame begun at `mark`: sets its length prefix. One that is longer than a prefix can say is dropped.
    ///
    /// # Errors
    /// [`TooLong`].
    pub(crate) fn seal(&mut self, mark: Mark) -> Result<(), TooLong> {
        let body = self.bytes.len().checked_sub(mark.bytes + PREFIX_BYTES);
        let body = body.expect("a reply's writer only appends");
        let Ok(len) = i32::try_from(body as u64 + (self.file_bytes - mark.file_bytes)) else {
            self.abandon(mark);
            return Err(TooLong);
        };
        self.bytes[mark.bytes..mark.bytes + PREFIX_BYTES].copy_from_slice(&len.to_be_bytes());
        Ok(())
    }

    /// Drops the frame begun at `mark`.
    pub(crate) fn abandon(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.ranges.truncate(mark.ranges);
        self.file_bytes = mark.file_bytes;
    }

    /// Appends what is in `other`, of which nothing is sent.
    pub(crate) fn append(&mut self, other: Self) {
        if self.is_empty() && self.bytes.capacity() < other.bytes.len() {
            *self = other;
            return;
        }
        let shift = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ranges.extend(other.ranges.into_iter().map(|placed| PlacedRange { at: placed.at + shift, ..placed }));
        self.file_bytes += other.file_bytes;
    }

    /// Appends a frame of its own, see [`Self::new`].
    ///
    /// # Errors
    /// [`TooLong`].
    pub(crate) fn append_frame(&mut self, mut frame: Self) -> Result<(), TooLong> {
        frame.seal(Mark::default())?;
        self.append(frame);
        Ok(())
    }

    /// What is to be sent next.
    pub(crate) fn next(&self) -> Option<Piece<'_>> {
        let placed = self.ranges.get(self.ranges_sent);
        let end = placed.map_or(self.bytes.len(), |placed| placed.at);
        if self.sent < end {
            return Some(Piece::Bytes { bytes: &self.bytes[self.sent..end], more: placed.is_some() });
        }
        placed.map(|placed| Piece::File(&placed.range))
    }

    /// Notes that `count` bytes of [`Self::next`] are sent.
    pub(crate) fn advance(&mut self, count: usize) {
        let placed = self.ranges.get_mut(self.ranges_sent);
        let end = placed.as_ref().map_or(self.bytes.len(), |placed| placed.at);
        if self.sent < end {
            self.sent += count;
            return;
        }
        let range = &mut placed.expect("only what was given is sent").range;
        let count = count as u64;
        range.position += count;
        range.len -= count;
        self.file_bytes -= count;
        if range.len == 0 {
            self.ranges_sent += 1;
        }
    }

    /// Forgets what is sent, once that pays: a reader that is never quite up to date must not make this grow.
    pub(crate) fn compact(&mut self) {
        if self.sent < self.bytes.len() / 2 && self.ranges_sent < MAX_SENT_RANGES {
            return;
        }
        self.bytes.drain(..self.sent);
        self.ranges.drain(..self.ranges_sent);
        for placed in &mut self.ranges {
            placed.at -= self.sent;
        }
        (self.sent, self.ranges_sent) = (0, 0);
    }

    /// Forgets what is sent, which is everything.
    pub(crate) fn reset(&mut self) {
        debug_assert!(self.next().is_none());
        (self.sent, self.ranges_sent) = (0, 0);
        self.bytes.clear();
        self.ranges = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(position: u64, len: u64) -> FileRange {
        FileRange { file: Arc::new(tempfile::tempfile().unwrap()), position, len, cold: false, owner: None }
    }

    #[test]
    fn the_owner_of_a_file_hears_of_its_disk_and_not_of_the_connection() {
        #[derive(Debug, Default)]
        struct Owner(std::sync::atomic::AtomicUsize);
        impl FileOwner for Owner {
            fn unreadable(&self, error: io::Error) {
                assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let owner = Arc::new(Owner::default());
        let range = FileRange { owner: Some(owner.clone()), ..range(0, 1) };
        for errno in [rustix::io::Errno::PIPE, rustix::io::Errno::CONNRESET, rustix::io::Errno::IO] {
            range.failed(&errno.into());
        }
        range.failed(&io::ErrorKind::UnexpectedEof.into());
        assert_eq!(owner.0.load(std::sync::atomic::Ordering::Relaxed), 1);
    }

    /// What goes out: bytes as they are, a file range as its position and length.
    fn pieces(out: &mut Outgoing, at_once: usize) -> Vec<(Vec<u8>, u64, u64)> {
        let mut pieces = Vec::new();
        while let Some(piece) = out.next() {
            let (piece, count) = match piece {
                Piece::Bytes { bytes, .. } => {
                    let count = bytes.len().min(at_once);
                    ((bytes[..count].to_vec(), 0, 0), count)
                }
                Piece::File(range) => {
                    let count = range.len.min(at_once as u64);
                    ((Vec::new(), range.position, count), count as usize)
                }
            };
            pieces.push(piece);
            out.advance(count);
            out.compact();
        }
        out.reset();
        pieces
    }

    #[test]
    fn a_frame_counts_its_files_and_sends_them_in_place() {
        let mut out = Outgoing::empty();
        let mark = out.begin();
        out.bytes.extend_from_slice(b"head");
        out.file(range(100, 7));
        out.bytes.extend_from_slice(b"tail");
        out.seal(mark).unwrap();
        let mut later = Outgoing::new();
        later.file(range(0, 3));
        out.append_frame(later).unwrap();
        assert_eq!(out.len(), 4 + 4 + 7 + 4 + 4 + 3);
        let expected = [
            (b"\0\0\0\x0fhead".to_vec(), 0, 0),
            (Vec::new(), 100, 7),
            (b"tail\0\0\0\x03".to_vec(), 0, 0),
            (Vec::new(), 0, 3),
        ];
        assert_eq!(pieces(&mut out, usize::MAX), expected);
        assert_eq!((out.is_empty(), out.len()), (true, 0));
    }

    #[test]
    fn what_is_sent_in_bits_is_sent_once() {
        let mut out = Outgoing::empty();
        for len in 1..=20_u8 {
            let mark = out.begin();
            out.bytes.extend(std::iter::repeat_n(len, usize::from(len)));
            out.file(range(1000, 5));
            out.seal(mark).unwrap();
        }
        let sent = pieces(&mut out, 3);
        let bytes: Vec<u8> = sent.iter().flat_map(|(bytes, ..)| bytes.clone()).collect();
        let expected: Vec<u8> =
            (1..=20).flat_map(|len| [&[0, 0, 0, len + 5][..], &vec![len; usize::from(len)]].concat()).collect();
        assert_eq!(bytes, expected);
        let ranges: Vec<_> =
            sent.iter().filter(|(bytes, ..)| bytes.is_empty()).map(|&(_, at, len)| (at, len)).collect();
        assert_eq!(ranges, [(1000, 3), (1003, 2)].repeat(20));
    }

    #[test]
    fn a_frame_that_is_too_long_for_its_prefix_is_dropped() {
        let mut out = Outgoing::empty();
        let mark = out.begin();
        out.bytes.push(1);
        out.file(range(0, i32::MAX as u64));
        assert_eq!((out.seal(mark), out.is_empty(), out.len()), (Err(TooLong), true, 0));
        let mut frame = Outgoing::new();
        frame.file(range(0, 1 << 32));
        assert_eq!((out.append_frame(frame), out.is_empty()), (Err(TooLong), true));
        let mark = out.begin();
        out.file(range(0, i32::MAX as u64));
        assert_eq!(out.seal(mark), Ok(()));
    }

    #[test]
    fn an_abandoned_frame_leaves_nothing() {
        let mut out = Outgoing::empty();
        let mark = out.begin();
        out.file(range(0, 5));
        out.abandon(mark);
        assert_eq!((out.is_empty(), out.len()), (true, 0));
    }
}
