//! Which transactions hold back the readers of committed records.

use std::collections::{BTreeMap, BTreeSet};

/// The transactions of one partition whose outcome is not known, or not known to be replicated.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    /// First offsets of those without a marker.
    open: BTreeSet<i64>,
    /// Offsets of the markers of those that have ended, by first offset.
    ended: BTreeMap<i64, i64>,
}

impl Transactions {
    pub(super) fn begin(&mut self, first_offset: i64) {
        self.open.insert(first_offset);
    }

    /// The transaction that began at `first_offset` ends with a marker. Returns the last stable offset behind it: where the next transaction
    /// began that is still open, or the offset after the marker.
    pub(super) fn end(&mut self, first_offset: i64, marker: i64) -> i64 {
        self.open.remove(&first_offset);
        self.ended.insert(first_offset, marker);
        self.open.first().copied().unwrap_or(marker + 1)
    }

    pub(super) fn replicated_to(&mut self, high_watermark: i64) {
        if !self.ended.is_empty() {
            self.ended.retain(|_, marker| *marker >= high_watermark);
        }
    }

    pub(super) fn first_unstable_offset(&self) -> Option<i64> {
        let ended = self.ended.first_key_value().map(|(first, _)| first);
        self.open.first().into_iter().chain(ended).min().copied()
    }
}
