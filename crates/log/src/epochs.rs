//! Which leader epoch wrote which offsets: `leader-epoch-checkpoint` and its cache.
//!
//! Changes stay in memory until the next flush, roll or close. That loses nothing: entries at and above the recovery point are rebuilt from
//! the batches, and the recovery point only passes an entry after the file has it.

use std::path::Path;

use crate::error::Result;
use crate::text::{format_checkpoint, parse_checkpoint};

/// Answer to "where did this leader epoch end".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEnd {
    /// Largest known epoch that is not above the asked one; the asked one if it is older than all; -1 when undefined.
    pub epoch: i32,
    /// First offset after that epoch; -1 when undefined.
    pub end_offset: i64,
}

impl EpochEnd {
    /// The epoch is unknown here, or newer than all that are known.
    pub const UNDEFINED: EpochEnd = EpochEnd { epoch: -1, end_offset: -1 };
}

/// A leader epoch and its first offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEntry {
    /// The epoch.
    pub epoch: i32,
    /// Offset of its first record.
    pub start_offset: i64,
}

/// Epochs and start offsets, both strictly increasing.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct EpochCache {
    entries: Vec<EpochEntry>,
    /// Counts the changes since the file was read.
    version: u64,
}

impl EpochCache {
    /// The cache of a file's text.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self> {
        let entries = parse_checkpoint(path, text, |fields| {
            let &[epoch, start_offset] = fields else { return None };
            Some(EpochEntry { epoch: epoch.parse().ok()?, start_offset: start_offset.parse().ok()? })
        })?;
        let mut cache = Self::default();
        for entry in entries {
            cache.assign(entry.epoch, entry.start_offset);
        }
        cache.version = 0;
        Ok(cache)
    }

    /// The file's text.
    pub(crate) fn format(&self) -> String {
        format_checkpoint(self.entries.iter().map(|entry| format!("{} {}", entry.epoch, entry.start_offset)))
    }

    pub(crate) fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    /// Counts the changes since the file was read.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The file says the same: nothing counts as changed.
    pub(crate) fn is_as_in_file(&mut self) {
        self.version = 0;
    }

    pub(crate) fn latest(&self) -> Option<i32> {
        self.entries.last().map(|entry| entry.epoch)
    }

    /// `epoch` begins at `start_offset`; entries that contradict it go.
    pub(crate) fn assign(&mut self, epoch: i32, start_offset: i64) {
        if epoch < 0 || start_offset < 0 {
            return;
        }
        if let Some(last) = self.entries.last()
            && last.epoch == epoch
            && start_offset >= last.start_offset
        {
            return;
        }
        self.entries.retain(|entry| entry.epoch < epoch && entry.start_offset < start_offset);
        self.entries.push(EpochEntry { epoch, start_offset });
        self.version += 1;
    }

    /// Forgets the epochs that begin at or above `end_offset`.
    pub(crate) fn truncate_from_end(&mut self, end_offset: i64) {
        let keep = self.entries.partition_point(|entry| entry.start_offset < end_offset);
        if keep < self.entries.len() {
            self.entries.truncate(keep);
            self.version += 1;
        }
    }

    /// Forgets the epochs that end at or below `start_offset`; the one that holds it begins there now.
    pub(crate) fn truncate_from_start(&mut self, start_offset: i64) {
        let below = self.entries.partition_point(|entry| entry.start_offset <= start_offset);
        let Some(holder) = below.checked_sub(1) else { return };
        self.version += u64::from(holder > 0 || self.entries[holder].start_offset != start_offset);
        self.entries.drain(..holder);
        self.entries[0].start_offset = start_offset;
    }

    pub(crate) fn clear(&mut self) {
        self.version += u64::from(!self.entries.is_empty());
        self.entries.clear();
    }

    /// The epoch that wrote `offset`.
    pub(crate) fn epoch_of(&self, offset: i64) -> Option<i32> {
        let after = self.entries.partition_point(|entry| entry.start_offset <= offset);
        after.checked_sub(1).map(|at| self.entries[at].epoch)
    }

    /// Where `epoch` ended, as a leader answers it.
    pub(crate) fn end_offset_for(&self, epoch: i32, log_end_offset: i64) -> EpochEnd {
        if epoch == EpochEnd::UNDEFINED.epoch {
            return EpochEnd::UNDEFINED;
        }
        if self.latest() == Some(epoch) {
            return EpochEnd { epoch, end_offset: log_end_offset };
        }
        let higher = self.entries.partition_point(|entry| entry.epoch <= epoch);
        let Some(next) = self.entries.get(higher) else { return EpochEnd::UNDEFINED };
        let floor = higher.checked_sub(1).map_or(epoch, |at| self.entries[at].epoch);
        EpochEnd { epoch: floor, end_offset: next.start_offset }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: &[(i32, i64)]) -> EpochCache {
        let mut cache = EpochCache::default();
        for &(epoch, start_offset) in entries {
            cache.assign(epoch, start_offset);
        }
        cache
    }

    fn pairs(cache: &EpochCache) -> Vec<(i32, i64)> {
        cache.entries.iter().map(|entry| (entry.epoch, entry.start_offset)).collect()
    }

    #[test]
    fn an_epoch_ends_where_the_next_one_begins() {
        let cache = cache(&[(2, 10), (4, 20), (7, 30)]);
        let end = |epoch| {
            let end = cache.end_offset_for(epoch, 44);
            (end.epoch, end.end_offset)
        };
        assert_eq!([end(-1), end(1), end(2), end(3)], [(-1, -1), (1, 10), (2, 20), (2, 20)]);
        assert_eq!([end(4), end(6), end(7), end(8)], [(4, 30), (4, 30), (7, 44), (-1, -1)]);
        assert_eq!(EpochCache::default().end_offset_for(0, 5), EpochEnd::UNDEFINED);
    }

    #[test]
    fn assigning_drops_what_contradicts_it_and_repeats_change_nothing() {
        let mut cache = cache(&[(1, 0), (2, 10), (3, 20)]);
        let version = cache.version();
        cache.assign(3, 25);
        assert_eq!(cache.version(), version);
        cache.assign(4, 10);
        assert_eq!(pairs(&cache), [(1, 0), (4, 10)]);
        cache.assign(3, 15);
        assert_eq!(pairs(&cache), [(1, 0), (3, 15)]);
        cache.assign(-1, 16);
        assert_eq!(pairs(&cache), [(1, 0), (3, 15)]);
    }

    #[test]
    fn truncation_keeps_the_epochs_of_the_offsets_that_stay() {
        let mut cache = cache(&[(1, 0), (2, 10), (3, 20)]);
        cache.truncate_from_end(20);
        assert_eq!(pairs(&cache), [(1, 0), (2, 10)]);
        cache.truncate_from_start(12);
        assert_eq!((pairs(&cache), cache.epoch_of(12), cache.epoch_of(11)), (vec![(2, 12)], Some(2), None));
    }

    #[test]
    fn the_file_is_a_text_checkpoint() {
        let cache = cache(&[(0, 0), (3, 7)]);
        assert_eq!(cache.format(), "0\n2\n0 0\n3 7\n");
        let path = Path::new("leader-epoch-checkpoint");
        assert_eq!(pairs(&EpochCache::parse(path, &cache.format()).unwrap()), [(0, 0), (3, 7)]);
        assert_eq!(EpochCache::parse(path, "").unwrap(), EpochCache::default());
        for text in ["1\n0\n", "0\n", "0\n2\n0 0\n", "0\n1\n0\n", "0\n1\nx 0\n"] {
            assert!(EpochCache::parse(path, text).is_err(), "{text:?}");
        }
    }
}
