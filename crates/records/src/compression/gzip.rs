//! Gzip members around raw deflate streams. Header and trailer are read here, so that the inflater can be reused and the checksum is
//! computed with the processor's help. A further member is decoded as part of the body, anything else behind a member is ignored.

use super::decompressor::Output;
use super::{CompressionError, four_bytes};
use crate::Compression;
use flate2::{Compress, Decompress, FlushCompress, FlushDecompress, Status};

pub(super) const DEFAULT_LEVEL: i32 = -1;
/// The level that zlib takes for -1.
const ZLIB_DEFAULT: u32 = 6;

const PIECE: usize = 64 << 10;
const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
const HEADER: usize = 10;
const TRAILER: usize = 8;
const HEADER_CRC: u8 = 0x02;
const EXTRA: u8 = 0x04;
const NAME: u8 = 0x08;
const COMMENT: u8 = 0x10;
const OS_UNKNOWN: u8 = 0xff;

fn malformed(what: &'static str) -> CompressionError {
    CompressionError::Malformed { codec: Compression::Gzip, what }
}

/// The inflater and the checksum of its output, made at first use.
#[derive(Debug, Default)]
pub(super) struct GzipContext(Option<Member>);

#[derive(Debug)]
struct Member {
    inflate: Decompress,
    crc: crc_fast::Digest,
}

/// A body on its way through the inflater, up to 64 KiB a piece.
#[derive(Debug)]
pub(crate) struct GzipStream<'a> {
    member: &'a mut Member,
    input: &'a [u8],
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Member,
    End,
}

impl<'a> GzipStream<'a> {
    pub(super) fn new(context: &'a mut GzipContext, input: &'a [u8]) -> GzipStream<'a> {
        let member = context.0.get_or_insert_with(|| Member {
            inflate: Decompress::new(false),
            crc: crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32IsoHdlc),
        });
        GzipStream { member, input, state: State::Start }
    }

    pub(super) fn next_piece(&mut self, output: &mut Output) -> Result<bool, CompressionError> {
        if self.state == State::Start {
            let length = header_length(self.input).ok_or(malformed("no gzip header"))?;
            self.begin_member(length);
        }
        if self.state == State::End {
            return Ok(false);
        }
        let Member { inflate, crc } = &mut *self.member;
        let (read, written) = (inflate.total_in(), inflate.total_out());
        let space = output.space(PIECE);
        let status = inflate
            .decompress(self.input, space, FlushDecompress::None)
            .map_err(|_| malformed("deflate stream is broken"))?;
        // One call moves no more than the lengths of two slices.
        let (read, written) = ((inflate.total_in() - read) as usize, (inflate.total_out() - written) as usize);
        self.input = &self.input[read..];
        crc.update(&space[..written]);
        output.advance(written)?;
        match status {
            Status::StreamEnd => self.end_member()?,
            _ if read == 0 && written == 0 => return Err(malformed("deflate stream is cut")),
            _ => {}
        }
        Ok(true)
    }

    fn begin_member(&mut self, header: usize) {
        self.input = &self.input[header..];
        self.member.inflate.reset(false);
        self.member.crc.reset();
        self.state = State::Member;
    }

    fn end_member(&mut self) -> Result<(), CompressionError> {
        let (Some(crc), Some(size)) = (four_bytes(self.input, 0), four_bytes(self.input, 4)) else {
            return Err(malformed("trailer is cut"));
        };
        if u64::from(u32::from_le_bytes(crc)) != self.member.crc.finalize() {
            return Err(malformed("checksum does not fit"));
        }
        if u32::from_le_bytes(size) != self.member.inflate.total_out() as u32 {
            return Err(malformed("length in the trailer does not fit"));
        }
        self.input = &self.input[TRAILER..];
        match header_length(self.input) {
            Some(length) => self.begin_member(length),
            None => self.state = State::End,
        }
        Ok(())
    }
}

/// Length of the member header that `bytes` begin with; `None` if it is none.
fn header_length(bytes: &[u8]) -> Option<usize> {
    if bytes.get(..3)? != MAGIC {
        return None;
    }
    let flags = *bytes.get(3)?;
    let mut length = HEADER;
    if flags & EXTRA != 0 {
        let field = bytes.get(length..length + 2)?;
        length += 2 + usize::from(u16::from_le_bytes([field[0], field[1]]));
    }
    for _ in 0..(flags & NAME).count_ones() + (flags & COMMENT).count_ones() {
        length += 1 + bytes.get(length..)?.iter().position(|byte| *byte == 0)?;
    }
    if flags & HEADER_CRC != 0 {
        let stored = bytes.get(length..length + 2)?;
        let computed = crc_fast::crc32_iso_hdlc(&bytes[..length]).to_le_bytes();
        if stored != &computed[..2] {
            return None;
        }
        length += 2;
    }
    (bytes.len() >= length).then_some(length)
}

/// The deflater and its level, made at first use and made again for another level.
#[derive(Debug, Default)]
pub(super) struct Deflater(Option<(i32, Compress)>);

impl Deflater {
    /// Appends one member with `input`.
    pub(super) fn compress(&mut self, input: &[u8], level: i32, out: &mut Vec<u8>) -> Result<(), CompressionError> {
        let failed = CompressionError::Failed { codec: Compression::Gzip };
        let deflate = self.at_level(level);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[0, 0, 0, 0, 0, 0, OS_UNKNOWN]);
        let start = out.len();
        out.resize(start + deflate_bound(input.len()), 0);
        let status = deflate.compress(input, &mut out[start..], FlushCompress::Finish).map_err(|_| failed)?;
        if status != Status::StreamEnd {
            return Err(failed);
        }
        let length = usize::try_from(deflate.total_out()).map_err(|_| failed)?;
        out.truncate(start + length);
        out.extend_from_slice(&crc_fast::crc32_iso_hdlc(input).to_le_bytes());
        out.extend_from_slice(&(input.len() as u32).to_le_bytes());
        Ok(())
    }

    fn at_level(&mut self, level: i32) -> &mut Compress {
        if self.0.as_ref().is_none_or(|(made_for, _)| *made_for != level) {
            let zlib = u32::try_from(level).unwrap_or(ZLIB_DEFAULT).min(9);
            self.0 = Some((level, Compress::new(flate2::Compression::new(zlib), false)));
        }
        let (_, deflate) = self.0.as_mut().expect("made above if it was not there");
        deflate.reset();
        deflate
    }
}

/// More than a raw deflate stream of `length` bytes can take: stored blocks cost 5 bytes each, the fixed code at most a ninth bit a byte.
fn deflate_bound(length: usize) -> usize {
    length + length / 8 + 256
}
