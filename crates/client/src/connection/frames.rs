//! Responses out of a stream of bytes: the size in front of each, checked before memory is taken for it.
//!
//! Whoever gets a response keeps its bytes as long as needed. A buffer that nobody looks at any more is read into again: memory
//! that is new for each response would cost more than the copy out of the socket.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

/// Buffers are multiples of this.
const UNIT: usize = 64 << 10;
/// Room without which a response is not begun.
const LEAST: usize = 4 << 10;
/// Bytes for which memory is taken at once while a large response comes in.
const MOST_AHEAD: usize = 1 << 20;
/// Bytes of all buffers that wait to be read into again.
const MOST_KEPT: usize = 32 << 20;

/// What has been read and not yet been handed on.
#[derive(Debug)]
pub(crate) struct Frames {
    buffer: BytesMut,
    /// Bytes of the whole buffer, of which a part may have been handed on.
    size: usize,
    /// Earlier buffers with their sizes, empty: read into again when nobody looks at what came in them.
    kept: VecDeque<(BytesMut, usize)>,
    /// Bytes of the last response: the next one is likely to be no larger.
    expected: usize,
    max: usize,
}

/// A response larger than the client takes, or of no size at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a response of {size} bytes, where at most {max} are taken (receive.message.max.bytes)")]
pub(crate) struct BadSize {
    size: i32,
    max: usize,
}

impl Frames {
    pub(crate) fn new(max: usize) -> Self {
        Self { buffer: BytesMut::new(), size: 0, kept: VecDeque::new(), expected: LEAST, max }
    }

    /// Where to read to: there is room.
    pub(crate) fn room(&mut self) -> &mut BytesMut {
        let come = self.buffer.len();
        let more = self.size().map_or(self.expected, |size| {
            let missing = (4 + size.unsigned_abs() as usize).saturating_sub(come);
            // As much again as has come, so that a size alone takes no memory.
            missing.clamp(1, MOST_AHEAD.max(come))
        });
        if !self.buffer.try_reclaim(more) {
            self.change_buffer(come + more);
        }
        &mut self.buffer
    }

    /// Goes on in a buffer of this size at least: one that was kept and is free again, or a new one.
    fn change_buffer(&mut self, least: usize) {
        let least = least.next_multiple_of(UNIT);
        // The last one to come free is the one that the processor's caches may still have.
        let free = self.kept.iter_mut().rposition(|(kept, _)| kept.try_reclaim(least));
        let free = free.and_then(|place| self.kept.remove(place));
        let (mut buffer, size) = free.unwrap_or_else(|| (BytesMut::with_capacity(least), least));
        buffer.extend_from_slice(&self.buffer);
        let mut before = std::mem::replace(&mut self.buffer, buffer);
        before.clear();
        let size_before = std::mem::replace(&mut self.size, size);
        if size_before > 0 {
            self.kept.push_back((before, size_before));
        }
        while self.kept.iter().map(|(_, size)| size).sum::<usize>() > MOST_KEPT {
            self.kept.pop_front();
        }
    }

    /// The size in front of the next response, if it is there.
    fn size(&self) -> Option<i32> {
        self.buffer.first_chunk::<4>().map(|size| i32::from_be_bytes(*size))
    }

    /// The next whole response, without its size.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, BadSize> {
        let Some(size) = self.size() else { return Ok(None) };
        let Some(len) = usize::try_from(size).ok().filter(|len| *len <= self.max) else {
            return Err(BadSize { size, max: self.max });
        };
        if self.buffer.len() - 4 < len {
            return Ok(None);
        }
        self.buffer.advance(4);
        self.expected = (4 + len).clamp(LEAST, MOST_KEPT);
        if self.expected == LEAST {
            // Large responses no longer come: what was kept for them goes, one by one.
            self.kept.pop_front();
        }
        Ok(Some(self.buffer.split_to(len).freeze()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn fed(bytes: &[u8], max: usize) -> Frames {
        let mut frames = Frames::new(max);
        frames.room().extend_from_slice(bytes);
        frames
    }

    #[test]
    fn whole_responses_come_out_and_the_rest_waits() {
        let mut frames = fed(&[0, 0, 0, 2, 7, 8, 0, 0, 0, 0, 0, 0, 0, 3, 1], 10);
        assert_eq!(frames.next().unwrap().unwrap(), [7, 8][..]);
        assert_eq!(frames.next().unwrap().unwrap(), [][..]);
        assert_eq!(frames.next().unwrap(), None);
        frames.room().extend_from_slice(&[2, 3]);
        assert_eq!(frames.next().unwrap().unwrap(), [1, 2, 3][..]);
    }

    /// Reads one response of so many bytes in pieces, as a socket gives them.
    fn response(frames: &mut Frames, len: usize) -> Bytes {
        let mut left = [&u32::try_from(len).unwrap().to_be_bytes()[..], &vec![7; len]].concat();
        loop {
            if let Some(frame) = frames.next().unwrap() {
                assert!(left.is_empty() && frame.len() == len && frame.iter().all(|byte| *byte == 7));
                return frame;
            }
            let room = frames.room();
            let taken = (room.capacity() - room.len()).min(left.len()).min(100_000);
            assert_ne!(taken, 0);
            room.extend_from_slice(&left[..taken]);
            left.drain(..taken);
        }
    }

    #[test]
    fn a_buffer_is_read_into_again_when_nobody_looks_at_it_and_not_before() {
        let mut frames = Frames::new(10 << 20);
        let mut held = VecDeque::new();
        let mut places = HashSet::new();
        for number in 0..50 {
            // Three at a time are looked at; sizes differ a little.
            let frame = response(&mut frames, (1 << 20) + number % 7 * 100);
            assert!(held.iter().all(|other: &Bytes| other.as_ptr() != frame.as_ptr()));
            if number >= 10 {
                places.insert(frame.as_ptr());
            }
            held.push_back(frame);
            if held.len() == 3 {
                held.pop_front();
            }
        }
        assert!(places.len() <= 4, "{} places", places.len());
        assert!(held.iter().flatten().all(|byte| *byte == 7));
    }

    #[test]
    fn what_is_kept_is_bounded_and_goes_when_only_small_responses_come() {
        let mut frames = Frames::new(10 << 20);
        let held: Vec<_> = (0..100).map(|_| response(&mut frames, 1 << 20)).collect();
        assert!(frames.kept.iter().map(|(_, size)| size).sum::<usize>() <= MOST_KEPT);
        assert!(frames.kept.len() > 10);
        drop(held);
        for _ in 0..100 {
            response(&mut frames, 100);
        }
        assert!(frames.kept.is_empty());
    }

    #[test]
    fn small_responses_share_a_buffer() {
        let mut frames = Frames::new(1000);
        let held: Vec<_> = (0..100).map(|_| response(&mut frames, 100)).collect();
        assert!(held.windows(2).all(|pair| pair[1].as_ptr().addr() - pair[0].as_ptr().addr() == 104));
    }

    #[test]
    fn a_size_beyond_the_limit_is_refused_and_takes_no_memory() {
        assert_eq!(fed(&[0, 0, 0, 11], 10).next(), Err(BadSize { size: 11, max: 10 }));
        assert_eq!(fed(&[0xff; 4], 10).next(), Err(BadSize { size: -1, max: 10 }));
        let mut frames = fed(&i32::MAX.to_be_bytes(), i32::MAX as usize);
        assert_eq!(frames.next(), Ok(None));
        assert!(frames.room().capacity() <= 2 * MOST_AHEAD);
    }
}
