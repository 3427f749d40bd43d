//! Responses out of a stream of bytes: the size in front of each, checked before memory is taken for it.

use bytes::{Buf, Bytes, BytesMut};

/// Bytes that one read takes at most while no large response is under way.
const READ: usize = 64 << 10;
/// Bytes for which memory is taken at once while a large response comes in.
const MOST_AHEAD: usize = 1 << 20;

/// What has been read and not yet been handed on.
#[derive(Debug)]
pub(crate) struct Frames {
    buffer: BytesMut,
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
        Self { buffer: BytesMut::new(), max }
    }

    /// Where to read to: there is room.
    pub(crate) fn room(&mut self) -> &mut BytesMut {
        let missing =
            self.size().map_or(READ, |size| (4 + size.unsigned_abs() as usize).saturating_sub(self.buffer.len()));
        // As much again as has come, so that a size alone takes no memory.
        let ahead = missing.clamp(READ, MOST_AHEAD.max(self.buffer.len()));
        self.buffer.reserve(ahead);
        &mut self.buffer
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
        Ok(Some(self.buffer.split_to(len).freeze()))
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_size_beyond_the_limit_is_refused_and_takes_no_memory() {
        assert_eq!(fed(&[0, 0, 0, 11], 10).next(), Err(BadSize { size: 11, max: 10 }));
        assert_eq!(fed(&[0xff; 4], 10).next(), Err(BadSize { size: -1, max: 10 }));
        let mut frames = fed(&i32::MAX.to_be_bytes(), i32::MAX as usize);
        assert_eq!(frames.next(), Ok(None));
        assert!(frames.room().capacity() <= 2 * MOST_AHEAD);
    }
}
