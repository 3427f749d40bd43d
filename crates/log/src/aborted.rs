//! The transaction index, `.txnindex`: the aborted transactions whose markers are in a segment. A segment without one has no file.

use crate::error::{IoContext, Result};
use crate::index::{Index, IndexEntry};
use crate::names::{Home, TXN_INDEX};
use crate::scan::field;

/// An aborted transaction, as readers of committed records must know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTxn {
    /// Whose records are not to be read.
    pub producer_id: i64,
    /// Offset of its first record.
    pub first_offset: i64,
    /// Offset of its marker.
    pub last_offset: i64,
    /// The last stable offset behind its marker.
    pub last_stable_offset: i64,
}

const VERSION: i16 = 0;

impl IndexEntry for AbortedTxn {
    const SIZE: usize = 34;
    const SUFFIX: &'static str = TXN_INDEX;

    fn encode(&self, _base_offset: i64, out: &mut Vec<u8>) {
        out.extend(VERSION.to_be_bytes());
        for number in [self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset] {
            out.extend(number.to_be_bytes());
        }
    }

    /// An entry of another version becomes one that is not [sound](AbortedTxn::is_sound).
    fn decode(_base_offset: i64, bytes: &[u8]) -> Self {
        let known = i16::from_be_bytes(field(bytes, 0)) == VERSION;
        let number = |at| i64::from_be_bytes(field(bytes, at));
        Self {
            producer_id: if known { number(2) } else { -1 },
            first_offset: number(10),
            last_offset: number(18),
            last_stable_offset: number(26),
        }
    }

    fn offset(&self) -> i64 {
        self.last_offset
    }
}

impl AbortedTxn {
    /// May stand behind an entry with the last offset `previous` in the index of a segment that ends at `end`.
    pub(crate) fn is_sound(&self, previous: i64, end: i64) -> bool {
        let began = self.producer_id >= 0 && (0..self.last_offset).contains(&self.first_offset);
        let stable = (0..=self.last_offset.saturating_add(1)).contains(&self.last_stable_offset);
        began && stable && previous < self.last_offset && self.last_offset < end
    }
}

impl Index<AbortedTxn> {
    /// The index as its file has it; `None` when an entry can't be true. `end` is the base offset of the next segment or the log end.
    pub(crate) fn load_sound(home: &Home, base_offset: i64, end: i64) -> Result<Option<Self>> {
        let index = Self::load(home, base_offset)?;
        let len = index.file(home)?.len().context_at("measuring", || home.segment_file(base_offset, TXN_INDEX))?;
        let (mut previous, mut sound) = (base_offset - 1, len == index.len() * Self::ENTRY);
        let mut check = |entry: AbortedTxn| {
            sound &= entry.is_sound(previous, end);
            previous = entry.last_offset;
            sound
        };
        index.for_each_after(home, |_| false, &mut check)?;
        Ok(sound.then_some(index))
    }

    /// Adds those that concern a reader of the offsets from `from` up to `upper` (exclusive). Returns whether later segments may have more.
    pub(crate) fn collect(&self, home: &Home, from: i64, upper: i64, found: &mut Vec<AbortedTxn>) -> Result<bool> {
        let mut more = true;
        self.for_each_after(
            home,
            |entry| entry.last_offset < from,
            |entry| {
                if entry.first_offset < upper {
                    found.push(entry);
                }
                // Who aborts later than this began at or after its last stable offset.
                more = entry.last_stable_offset < upper;
                more
            },
        )?;
        Ok(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kafkas_entry_is_read_and_written_alike() {
        let mut kafkas = vec![0, 0];
        for number in [1000i64, 4, 9, 10] {
            kafkas.extend(number.to_be_bytes());
        }
        let entry = AbortedTxn { producer_id: 1000, first_offset: 4, last_offset: 9, last_stable_offset: 10 };
        assert_eq!(AbortedTxn::decode(0, &kafkas), entry);
        let mut written = Vec::new();
        entry.encode(0, &mut written);
        assert_eq!((written.len(), written), (AbortedTxn::SIZE, kafkas));
    }

    #[test]
    fn zeros_and_entries_that_contradict_themselves_are_not_sound() {
        let sound = AbortedTxn { producer_id: 7, first_offset: 4, last_offset: 9, last_stable_offset: 3 };
        assert!(sound.is_sound(8, 10));
        assert!(!sound.is_sound(9, 10), "the entry before says so");
        assert!(!sound.is_sound(8, 9), "it ends behind the segment");
        let broken = [
            AbortedTxn { producer_id: -1, ..sound },
            AbortedTxn { first_offset: 9, ..sound },
            AbortedTxn { first_offset: -1, ..sound },
            AbortedTxn { last_stable_offset: 11, ..sound },
            AbortedTxn { last_stable_offset: -1, ..sound },
            AbortedTxn::decode(0, &[0; 34]),
            AbortedTxn::decode(0, &[1; 34]),
        ];
        for entry in broken {
            assert!(!entry.is_sound(-1, 10), "{entry:?}");
        }
    }
}
