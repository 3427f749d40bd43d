//! Buffers of one reactor that no connection holds now. They are whole-length vectors, so that reading into them needs
//! no uninitialised memory.

/// Bytes of the buffer that a wake-up reads into.
pub(crate) const WAKE_BYTES: usize = 256 << 10;
/// Longest buffer kept, in bytes.
pub(crate) const MAX_KEPT_BYTES: usize = 4 << 20;
/// Buffers kept of `WAKE_BYTES`; of those longer; of those for output.
const MAX_KEPT: [usize; 3] = [16, 4, 4];
/// Largest capacity of an output buffer that is kept, in bytes.
const MAX_KEPT_OUTPUT_BYTES: usize = 1 << 20;

/// Free buffers.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    wake: Shelf,
    large: Shelf,
    output: Shelf,
}

/// Free buffers of one kind, the one used last at the end.
#[derive(Debug, Default)]
struct Shelf {
    free: Vec<Vec<u8>>,
    /// Fewest free buffers since the last trim.
    fewest: usize,
}

impl Shelf {
    fn take(&mut self, min_len: usize) -> Option<Vec<u8>> {
        let index = self.free.iter().rposition(|buffer| buffer.len() >= min_len)?;
        let buffer = self.free.remove(index);
        self.fewest = self.fewest.min(self.free.len());
        Some(buffer)
    }

    fn put(&mut self, buffer: Vec<u8>, max_kept: usize) {
        if self.free.len() < max_kept {
            self.free.push(buffer);
        }
    }

    /// Frees what nobody needed since the last trim, but `keep` buffers.
    fn trim(&mut self, keep: usize) {
        let unused = self.fewest.min(self.free.len().saturating_sub(keep));
        self.free.drain(..unused);
        self.fewest = self.free.len();
    }
}

impl Pool {
    /// A buffer for at least `len` received bytes.
    pub(crate) fn take(&mut self, len: usize) -> Vec<u8> {
        if len <= WAKE_BYTES {
            return self.wake.take(0).unwrap_or_else(|| vec![0; WAKE_BYTES]);
        }
        let rounded = if len <= MAX_KEPT_BYTES { len.next_power_of_two() } else { len };
        self.large.take(len).unwrap_or_else(|| vec![0; rounded])
    }

    /// Takes a receive buffer back.
    pub(crate) fn put(&mut self, buffer: Vec<u8>) {
        match buffer.len() {
            WAKE_BYTES => self.wake.put(buffer, MAX_KEPT[0]),
            len if len > WAKE_BYTES && len <= MAX_KEPT_BYTES => self.large.put(buffer, MAX_KEPT[1]),
            _ => {}
        }
    }

    /// An empty buffer for output.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        self.output.take(0).unwrap_or_default()
    }

    /// Takes an output buffer back, emptied.
    pub(crate) fn put_output(&mut self, buffer: Vec<u8>) {
        debug_assert!(buffer.is_empty());
        if buffer.capacity() > 0 && buffer.capacity() <= MAX_KEPT_OUTPUT_BYTES {
            self.output.put(buffer, MAX_KEPT[2]);
        }
    }

    /// Frees what was not needed since the last call.
    pub(crate) fn trim(&mut self) {
        self.wake.trim(1);
        self.large.trim(0);
        self.output.trim(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_and_are_freed_when_nobody_needs_them() {
        let mut pool = Pool::default();
        let held: Vec<_> = (0..3).map(|_| pool.take(100)).collect();
        assert!(held.iter().all(|buffer| buffer.len() == WAKE_BYTES));
        held.into_iter().for_each(|buffer| pool.put(buffer));
        pool.trim();
        assert_eq!(pool.wake.free.len(), 3, "they were in use since the last trim");
        pool.trim();
        assert_eq!(pool.wake.free.len(), 1);
    }

    #[test]
    fn a_longer_buffer_is_rounded_up_and_kept_unless_it_is_huge() {
        let mut pool = Pool::default();
        let buffer = pool.take(WAKE_BYTES + 1);
        assert_eq!(buffer.len(), 2 * WAKE_BYTES);
        pool.put(buffer);
        assert_eq!(pool.take(WAKE_BYTES + 1).len(), 2 * WAKE_BYTES);
        let huge = pool.take(MAX_KEPT_BYTES + 1);
        assert_eq!(huge.len(), MAX_KEPT_BYTES + 1);
        pool.put(huge);
        assert!(pool.large.free.is_empty());
    }
}
