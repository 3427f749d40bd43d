//! Received bytes of one connection that are not served yet. An idle connection holds none and no buffer; one that is
//! in the middle of a short frame holds little more than the bytes it got.

use crate::frames::{Head, PREFIX_BYTES};
use crate::pool::{MAX_KEPT_BYTES, Pool, WAKE_BYTES};

/// So few bytes are kept between wake-ups in a buffer of just their length.
const STASH_BYTES: usize = 16 << 10;
/// How much longer than what has arrived a buffer may become, when the frame is longer than a wake-up's buffer.
const GROWTH: usize = 4;

/// Received bytes.
#[derive(Debug, Default)]
pub(crate) struct Received {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Length with prefix of the last frame longer than a wake-up's buffer, while such frames keep coming: the peer
    /// has shown that it fills buffers of this length.
    usual: usize,
}

impl Received {
    /// Bytes not served yet.
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    /// What they begin with.
    pub(crate) fn head(&self, max_frame_bytes: usize) -> Head {
        Head::of(&self.buffer[self.start..self.end], max_frame_bytes)
    }

    /// Bytes not served yet.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// The first `bytes` bytes are served; they held `frames` frames.
    pub(crate) fn served(&mut self, bytes: usize, frames: usize) {
        debug_assert!(bytes <= self.len());
        self.start += bytes;
        if frames > 1 || bytes <= WAKE_BYTES {
            self.usual = 0;
        } else {
            self.usual = bytes.min(MAX_KEPT_BYTES);
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Room to read into, at least one byte.
    pub(crate) fn room(&mut self, pool: &mut Pool, max_frame_bytes: usize) -> &mut [u8] {
        let len = self.len();
        let need = match self.head(max_frame_bytes) {
            Head::Partial(frame) | Head::Complete(frame) => frame + PREFIX_BYTES,
            Head::Unknown | Head::Hostile(_) => PREFIX_BYTES,
        };
        // A buffer never gets much longer than what has arrived, whatever the prefix says.
        let allowed = len.saturating_mul(GROWTH).max(self.usual).max(WAKE_BYTES);
        let wanted = need.max(self.usual).clamp(WAKE_BYTES, allowed).max(len + 1);
        if self.buffer.len() < wanted {
            let mut longer = pool.take(wanted);
            longer[..len].copy_from_slice(&self.buffer[self.start..self.end]);
            pool.put(std::mem::replace(&mut self.buffer, longer));
            (self.start, self.end) = (0, len);
        } else if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, len);
        }
        &mut self.buffer[self.end..]
    }

    /// `count` bytes were read into the room.
    pub(crate) fn filled(&mut self, count: usize) {
        self.end += count;
        debug_assert!(self.end <= self.buffer.len());
    }

    /// The wake-up ends: gives back what is not needed until the next one.
    pub(crate) fn settle(&mut self, pool: &mut Pool) {
        if self.buffer.len() < WAKE_BYTES && self.len() > 0 {
            return;
        }
        if self.len() <= STASH_BYTES {
            let stash = self.buffer[self.start..self.end].to_vec();
            (self.start, self.end) = (0, stash.len());
            pool.put(std::mem::replace(&mut self.buffer, stash));
        }
    }

    /// Bytes of memory held between wake-ups.
    pub(crate) fn held(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// Whether the frame that has begun fits into the memory held for it.
    pub(crate) fn fits(&self, max_frame_bytes: usize) -> bool {
        match self.head(max_frame_bytes) {
            Head::Partial(frame) => frame + PREFIX_BYTES <= self.buffer.len(),
            Head::Unknown | Head::Complete(_) | Head::Hostile(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 100 << 20;

    /// Receives `bytes` in one wake-up, and serves whole frames.
    fn receive(received: &mut Received, pool: &mut Pool, mut bytes: &[u8]) -> usize {
        let mut frames = 0;
        while !bytes.is_empty() {
            let room = received.room(pool, MAX);
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            received.filled(count);
            while let Head::Complete(len) = received.head(MAX) {
                received.served(len + PREFIX_BYTES, 1);
                frames += 1;
            }
        }
        received.settle(pool);
        frames
    }

    fn framed(len: usize) -> Vec<u8> {
        let mut bytes = (len as u32).to_be_bytes().to_vec();
        bytes.resize(PREFIX_BYTES + len, 7);
        bytes
    }

    #[test]
    fn nothing_is_held_between_frames() {
        let (mut received, mut pool) = (Received::default(), Pool::default());
        assert_eq!(receive(&mut received, &mut pool, &framed(100).repeat(3)), 3);
        assert_eq!((received.held(), received.len()), (0, 0));
    }

    #[test]
    fn a_frame_that_trickles_in_holds_what_it_got() {
        let (mut received, mut pool) = (Received::default(), Pool::default());
        let frame = framed(100);
        for (index, byte) in frame.iter().enumerate().take(100) {
            assert_eq!(receive(&mut received, &mut pool, &[*byte]), 0);
            assert_eq!(received.held(), index as u64 + 1);
        }
        assert_eq!(receive(&mut received, &mut pool, &frame[100..]), 1);
        assert_eq!(received.held(), 0);
    }

    #[test]
    fn a_long_frame_that_has_only_begun_holds_next_to_nothing() {
        let (mut received, mut pool) = (Received::default(), Pool::default());
        receive(&mut received, &mut pool, &framed(MAX)[..7]);
        assert_eq!(received.held(), 7);
        assert!(!received.fits(MAX));
    }

    #[test]
    fn a_buffer_grows_with_what_arrives() {
        let (mut received, mut pool) = (Received::default(), Pool::default());
        let frame = framed(20 << 20);
        let mut arrived = 0;
        for piece in frame.chunks(64 << 10) {
            receive(&mut received, &mut pool, piece);
            arrived += piece.len();
            let limit = (arrived * GROWTH).next_power_of_two().max(WAKE_BYTES);
            assert!(received.held() <= limit as u64, "{} bytes for {arrived}", received.held());
        }
        assert_eq!((received.held(), received.len()), (0, 0));
    }

    #[test]
    fn who_sends_long_frames_again_and_again_gets_long_buffers_at_once() {
        let (mut received, mut pool) = (Received::default(), Pool::default());
        let frame = framed(1 << 20);
        receive(&mut received, &mut pool, &frame);
        assert!(received.room(&mut pool, MAX).len() >= frame.len());
        received.settle(&mut pool);
        receive(&mut received, &mut pool, &framed(100));
        assert_eq!(received.room(&mut pool, MAX).len(), WAKE_BYTES);
    }
}
