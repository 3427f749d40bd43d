//! The complete frames at the front of a receive buffer, handed out one by one as disjoint slices.

use std::cell::Cell;

/// Length of the prefix that holds a frame's length.
pub(crate) const PREFIX_BYTES: usize = 4;

/// What lies at the front of received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    /// Not even a whole prefix.
    Unknown,
    /// A frame of this many bytes has begun.
    Partial(usize),
    /// A frame of this many bytes is there.
    Complete(usize),
    /// The prefix is negative or above the limit.
    Hostile(i32),
}

impl Head {
    /// Reads the prefix at the front of `bytes`.
    pub(crate) fn of(bytes: &[u8], max_frame_bytes: usize) -> Self {
        let Some(prefix) = bytes.first_chunk::<PREFIX_BYTES>() else { return Self::Unknown };
        let prefix = i32::from_be_bytes(*prefix);
        match usize::try_from(prefix) {
            Ok(len) if len > max_frame_bytes => Self::Hostile(prefix),
            Ok(len) if bytes.len() - PREFIX_BYTES >= len => Self::Complete(len),
            Ok(len) => Self::Partial(len),
            Err(_) => Self::Hostile(prefix),
        }
    }
}

/// Shut by replies that forbid to serve further frames now; then [`Frames`] has none.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    shut: Cell<bool>,
}

impl Gate {
    pub(crate) fn shut(&self) {
        self.shut.set(true);
    }
}

/// The complete frames of one wake-up, oldest first, without their length prefixes.
///
/// It is empty as well when no further frame may be served now: after a reply that holds the connection, after
/// `close`, and when the connection has too much unsent. The frames left over come with a later call.
#[derive(Debug)]
pub struct Frames<'a> {
    rest: &'a mut [u8],
    max_frame_bytes: usize,
    gate: &'a Gate,
    taken: usize,
    taken_bytes: usize,
}

impl<'a> Frames<'a> {
    pub(crate) fn new(received: &'a mut [u8], max_frame_bytes: usize, gate: &'a Gate) -> Self {
        Self { rest: received, max_frame_bytes, gate, taken: 0, taken_bytes: 0 }
    }

    fn next_len(&self) -> Option<usize> {
        match Head::of(self.rest, self.max_frame_bytes) {
            Head::Complete(len) if !self.gate.shut.get() => Some(len),
            _ => None,
        }
    }

    /// The next frame, left in place. It may be empty or otherwise too short for a request.
    pub fn peek(&self) -> Option<&[u8]> {
        let len = self.next_len()?;
        Some(&self.rest[PREFIX_BYTES..PREFIX_BYTES + len])
    }

    /// Takes the next frame. Several taken frames can be held at once.
    pub fn take(&mut self) -> Option<&'a mut [u8]> {
        let len = self.next_len()?;
        let (frame, rest) = std::mem::take(&mut self.rest).split_at_mut(PREFIX_BYTES + len);
        self.rest = rest;
        self.taken += 1;
        self.taken_bytes += frame.len();
        Some(&mut frame[PREFIX_BYTES..])
    }

    /// Frames taken so far.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Bytes of the frames taken so far, with their prefixes.
    pub(crate) fn taken_bytes(&self) -> usize {
        self.taken_bytes
    }
}
