//! Which offset a key was written at last: the map that a cleaning is made with. Open addressing over a table of fixed size; of the keys
//! only their hashes are kept.

use siphasher::sip128::{Hash128, SipHasher13};

/// Bytes of an entry: a 128-bit hash and an offset. Kafka's entries have the same size, so that the same memory holds as many keys.
const ENTRY: usize = 24;
/// Kafka's tables are arrays of Java.
const MOST_MEMORY: u64 = i32::MAX as u64;
/// Length of the first table.
const FIRST: usize = 1024;
/// Of a table that is being replaced, so many entries are given back at once.
const GIVE_BACK: usize = 64 << 10;

/// Keys and the last offset of each. It grows with the keys, so that few of them, however often they are written, stay within the processor's
/// caches.
///
/// Two keys with the same hash would count as one. The hashes are 128 bits long and made with a secret that lasts as long as the map, so
/// that neither chance nor intent brings that about.
#[derive(Debug)]
pub(super) struct OffsetMap {
    hasher: SipHasher13,
    /// Both halves of the hash, and the offset plus one; a slot of zeros is empty.
    slots: Vec<[u64; 3]>,
    most_slots: usize,
    keys: usize,
    most_keys: usize,
    latest_offset: i64,
}

impl OffsetMap {
    /// A map that takes at most `memory` bytes, of which the part `load_factor` is filled.
    pub(super) fn new(memory: u64, load_factor: f64) -> Self {
        let most_slots = (memory.min(MOST_MEMORY) / ENTRY as u64) as usize;
        // A search ends at an empty slot, so one is left.
        let most_keys = ((most_slots as f64 * load_factor) as usize).min(most_slots.saturating_sub(1));
        let secret = std::hash::RandomState::new();
        let half = |number: u8| std::hash::BuildHasher::hash_one(&secret, number);
        Self {
            hasher: SipHasher13::new_with_keys(half(0), half(1)),
            slots: vec![[0; 3]; most_slots.clamp(1, FIRST)],
            most_slots,
            keys: 0,
            most_keys,
            latest_offset: -1,
        }
    }

    fn find(&self, key: &[u8]) -> (usize, [u64; 2]) {
        let Hash128 { h1, h2 } = self.hasher.hash(key);
        (self.slot_of([h1, h2]), [h1, h2])
    }

    /// The slot that has this hash, or the empty one where it belongs.
    fn slot_of(&self, [h1, h2]: [u64; 2]) -> usize {
        let mut at = ((u128::from(h1) * self.slots.len() as u128) >> 64) as usize;
        while self.slots[at][2] != 0 && (self.slots[at][0], self.slots[at][1]) != (h1, h2) {
            at += 1;
            if at == self.slots.len() {
                at = 0;
            }
        }
        at
    }

    /// Notes that `key` stands at `offset`; false, and nothing is noted, when the map is full.
    pub(super) fn put(&mut self, key: &[u8], offset: i64) -> bool {
        // Kafka does not take a key that it has either: which batch is the first that does not fit must not depend on the keys in it.
        if self.keys >= self.most_keys {
            return false;
        }
        if self.keys >= self.slots.len() / 4 * 3 && self.slots.len() < self.most_slots {
            self.grow();
        }
        let (at, [h1, h2]) = self.find(key);
        self.keys += usize::from(self.slots[at][2] == 0);
        self.slots[at] = [h1, h2, offset.cast_unsigned() + 1];
        true
    }

    /// A table of twice the length, as far as it may be that long.
    fn grow(&mut self) {
        let len = (self.slots.len() * 2).min(self.most_slots);
        let mut old = std::mem::replace(&mut self.slots, vec![[0; 3]; len]);
        while let Some(slot) = old.pop() {
            if slot[2] != 0 {
                let at = self.slot_of([slot[0], slot[1]]);
                self.slots[at] = slot;
            }
            // Both are filled from the end on: together they take hardly more memory than the new one.
            if old.len().is_multiple_of(GIVE_BACK) {
                old.shrink_to_fit();
            }
        }
    }

    /// The last offset of `key`; `None` when it is not there.
    pub(super) fn get(&self, key: &[u8]) -> Option<i64> {
        let (at, _) = self.find(key);
        self.slots[at][2].checked_sub(1).map(u64::cast_signed)
    }

    /// The map covers everything up to this offset; it is -1 at first and never goes back.
    pub(super) fn latest_offset(&self) -> i64 {
        self.latest_offset
    }

    /// The map covers everything up to `offset` now.
    pub(super) fn cover(&mut self, offset: i64) {
        self.latest_offset = self.latest_offset.max(offset);
    }

    /// How full the map is, of all the keys that it may take.
    pub(super) fn utilization(&self) -> f64 {
        if self.most_keys == 0 { 1.0 } else { self.keys as f64 / self.most_keys as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_offset_of_each_key_is_found_and_others_are_not() {
        let mut map = OffsetMap::new(1 << 20, 0.9);
        for offset in 0..10_000i64 {
            assert!(map.put(format!("key-{}", offset % 3000).as_bytes(), offset));
        }
        for key in 0..3000i64 {
            let last = (0..10_000).rev().find(|offset| offset % 3000 == key);
            assert_eq!(map.get(format!("key-{key}").as_bytes()), last);
        }
        assert_eq!((map.get(b""), map.get(b"key-3000")), (None, None));
    }

    #[test]
    fn a_full_map_takes_as_many_keys_as_kafkas_and_says_so() {
        let mut map = OffsetMap::new(2400, 0.9);
        let taken = (0..1000i64).take_while(|key| map.put(&key.to_be_bytes(), *key)).count();
        assert_eq!((taken, map.utilization()), (90, 1.0));
        assert!(!map.put(&0i64.to_be_bytes(), 5000));
        assert_eq!(map.get(&0i64.to_be_bytes()), Some(0));
        for (memory, factor) in [(0, 0.9), (24, 0.9), (48, 5.0)] {
            let mut map = OffsetMap::new(memory, factor);
            for key in 0..10i64 {
                map.put(&key.to_be_bytes(), key);
            }
            assert_eq!(map.get(b"other"), None, "{memory} bytes");
        }
    }

    #[test]
    fn it_grows_with_its_keys_and_not_with_their_records() {
        let mut map = OffsetMap::new(128 << 20, 0.9);
        for offset in 0..100_000i64 {
            assert!(map.put(&(offset % 700).to_be_bytes(), offset));
        }
        assert_eq!(map.slots.len(), FIRST);
        for offset in 0..300_000i64 {
            assert!(map.put(&offset.to_be_bytes(), offset));
        }
        assert_eq!(map.slots.len(), 512 << 10);
        assert!((0..300_000i64).all(|offset| map.get(&offset.to_be_bytes()) == Some(offset)));
        let mut map = OffsetMap::new(24 * 5000, 0.9);
        assert_eq!((0..).take_while(|key: &i64| map.put(&key.to_be_bytes(), *key)).count(), 4500);
        assert_eq!(map.slots.len(), 5000);
    }
}
