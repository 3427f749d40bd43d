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

/// Half of the most bytes before the log end that count as recent.
const RECENT_BYTES: u64 = 16 << 20;

/// The last appends, the last read's start and the last end of a read.
#[derive(Debug)]
pub(super) struct Recent {
    appends: [Option<Start>; APPENDS],
    next: usize,
    found: Mutex<[Option<Start>; 2]>,
    /// Where what is recent begins, and where it will when [`RECENT_BYTES`] have come since.
    from: [i64; 2],
    /// Bytes since the second of them.
    since: u64,
}

impl Default for Recent {
    fn default() -> Self {
        let (appends, next, found) = Default::default();
        Self { appends, next, found, from: [i64::MAX; 2], since: 0 }
    }
}

/// Which of a read's ends a lookup is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    First,
    Last,
}

impl Recent {
    /// An append of so many bytes began here.
    pub(super) fn appended(&mut self, start: Start, bytes: u64) {
        if self.since >= RECENT_BYTES {
            self.from = [self.from[1], start.offset];
            self.since = 0;
        }
        // Behind a truncation the log goes on below.
        self.from = self.from.map(|from| from.min(start.offset));
        self.since += bytes;
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

    /// Offset of the first batch that was appended lately.
    pub(super) fn from(&self) -> i64 {
        self.from[0]
    }

    /// Forgets where batches begin.
    pub(super) fn clear(&mut self) {
        *self = Self { from: self.from, since: self.since, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(recent: &mut Recent, offset: i64, bytes: u64) -> i64 {
        recent.appended(Start { offset, segment: 0, position: 0, size: bytes }, bytes);
        recent.from()
    }

    #[test]
    fn what_is_recent_begins_one_to_two_times_the_bytes_before_the_end() {
        let mut recent = Recent::default();
        assert_eq!(recent.from(), i64::MAX);
        let begins = (100..).map(|offset| append(&mut recent, offset, RECENT_BYTES / 2)).take(7);
        assert_eq!(begins.collect::<Vec<_>>(), [100, 100, 100, 100, 102, 102, 104]);
        recent.clear();
        assert_eq!(recent.from(), 104);
        assert_eq!(append(&mut recent, 50, 1), 50, "the log was cut");
    }
}
