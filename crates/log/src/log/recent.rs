//! Where recent appends and reads began, so that a reader at the end of the log and one that goes on where it was need no index and no
//! disk.

use parking_lot::Mutex;

/// Appends remembered.
const APPENDS: usize = 4;

/// A batch start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    /// The offset that was looked for: within the batch.
    pub(super) offset: i64,
    /// Base offset of the segment.
    pub(super) segment: i64,
    /// Where the batch begins in the segment, bytes.
    pub(super) position: u64,
    /// Size of the batch, bytes.
    pub(super) size: u64,
}

/// The last appends, the last read's start and the last end of a read.
#[derive(Debug, Default)]
pub(super) struct Recent {
    appends: [Option<Start>; APPENDS],
    next: usize,
    found: Mutex<[Option<Start>; 2]>,
}

/// Which of a read's ends a lookup is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    First,
    Last,
}

impl Recent {
    pub(super) fn appended(&mut self, start: Start) {
        self.appends[self.next] = Some(start);
        self.next = (self.next + 1) % APPENDS;
    }

    pub(super) fn found(&self, end: End, start: Start) {
        self.found.lock()[end as usize] = Some(start);
    }

    pub(super) fn get(&self, end: End, offset: i64) -> Option<Start> {
        let appended = self.appends.iter().flatten().find(|start| start.offset == offset).copied();
        appended.or_else(|| self.found.lock()[end as usize].filter(|start| start.offset == offset))
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
