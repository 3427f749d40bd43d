//! A simulated file's content: as it reads now, as it is on the platters, and the changes between the two in their order.

/// Names a file or directory of the simulated disk.
pub(super) type InodeId = usize;

/// A change that no sync has made durable yet.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Write { position: u64, bytes: Vec<u8> },
    Truncate { len: u64 },
}

impl Change {
    pub(super) fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Change::Write { bytes, .. } if bytes.is_empty() => {}
            Change::Write { position, bytes } => {
                let (start, end) = (*position as usize, *position as usize + bytes.len());
                if to.len() < end {
                    to.resize(end, 0);
                }
                to[start..end].copy_from_slice(bytes);
            }
            Change::Truncate { len } => to.resize(*len as usize, 0),
        }
    }
}

/// A file's content.
#[derive(Debug, Default, Clone)]
pub(super) struct Content {
    pub(super) live: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) pending: Vec<Change>,
    /// Changes that were pending and are not any more.
    settled: u64,
    /// When it was last written or truncated, ms since 1970.
    pub(super) modified_ms: i64,
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.live.len() as u64
    }

    pub(super) fn read(&self, buf: &mut [u8], position: u64) -> usize {
        let from = (position as usize).min(self.live.len());
        let len = buf.len().min(self.live.len() - from);
        buf[..len].copy_from_slice(&self.live[from..from + len]);
        len
    }

    /// Position of the next byte that is not zero.
    pub(super) fn skip_zeros(&self, position: u64) -> Option<u64> {
        let rest = self.live.get(position as usize..)?;
        rest.iter().position(|byte| *byte != 0).map(|zeros| position + zeros as u64)
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    pub(super) fn write(&mut self, position: u64, bytes: Vec<u8>) {
        self.change(Change::Write { position, bytes });
    }

    pub(super) fn truncate(&mut self, len: u64) {
        self.change(Change::Truncate { len });
    }

    /// Number of the last change so far.
    pub(super) fn newest(&self) -> u64 {
        self.settled + self.pending.len() as u64
    }

    pub(super) fn sync(&mut self) {
        self.sync_to(self.newest());
    }

    /// Makes the changes up to this number durable.
    pub(super) fn sync_to(&mut self, number: u64) {
        let count = number.saturating_sub(self.settled) as usize;
        if count == self.pending.len() && count > 0 {
            self.durable.clone_from(&self.live);
            self.pending.clear();
        } else {
            let durable = &mut self.durable;
            self.pending.drain(..count).for_each(|change| change.apply(durable));
        }
        self.settled += count as u64;
    }

    pub(super) fn flip_bit(&mut self, byte: usize, bit: u8) {
        self.live[byte] ^= 1 << bit;
        self.sync();
        self.durable.clone_from(&self.live);
    }
}
