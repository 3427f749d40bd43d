//! Zstandard frames: any number of them, skippable ones included. A body of moderate size is decompressed in one go into the output
//! buffer, which needs no window of its own; a larger one in pieces.

use super::CompressionError;
use super::decompressor::Output;
use crate::Compression;
use zstd_safe::{CCtx, CParameter, DCtx, InBuffer, OutBuffer, ResetDirective};

pub(super) const DEFAULT_LEVEL: i32 = 3;
pub(super) const MIN_LEVEL: i32 = -131_072;

const PIECE: usize = 128 << 10;
/// Up to here one call without a window is faster; beyond, both cost the same and pieces need less memory.
const ONE_CALL: usize = 2 << 20;
/// A context whose window has grown beyond this is dropped after use.
const RETAINED_CONTEXT: usize = 16 << 20;

fn malformed(what: &'static str) -> CompressionError {
    CompressionError::Malformed { codec: Compression::Zstd, what }
}

/// The decompression context, made at first use.
#[derive(Default)]
pub(super) struct ZstdContext(Option<DCtx<'static>>);

impl std::fmt::Debug for ZstdContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ZstdContext").field(&self.0.as_ref().map(|context| context.sizeof())).finish()
    }
}

/// A body on its way through the decoder.
#[derive(Debug)]
pub(crate) struct ZstdStream<'a> {
    context: &'a mut ZstdContext,
    input: &'a [u8],
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    /// Within a frame, or before one that must begin if bytes are left.
    Pieces {
        within_frame: bool,
    },
    End,
}

impl<'a> ZstdStream<'a> {
    pub(super) fn new(context: &'a mut ZstdContext, input: &'a [u8]) -> ZstdStream<'a> {
        ZstdStream { context, input, state: State::Start }
    }

    pub(super) fn next_piece(&mut self, output: &mut Output) -> Result<bool, CompressionError> {
        match self.state {
            State::Start => self.start(output),
            State::Pieces { within_frame } => self.piece(within_frame, output),
            State::End => Ok(false),
        }
    }

    fn start(&mut self, output: &mut Output) -> Result<bool, CompressionError> {
        if self.context.0.as_ref().is_some_and(|context| context.sizeof() > RETAINED_CONTEXT) {
            self.context.0 = None;
        }
        let context = match &mut self.context.0 {
            Some(context) => context,
            none => none.insert(DCtx::try_create().ok_or(CompressionError::Failed { codec: Compression::Zstd })?),
        };
        let bound = zstd_safe::decompress_bound(self.input).ok().and_then(|bound| usize::try_from(bound).ok());
        let Some(bound) = bound.filter(|bound| *bound <= ONE_CALL.min(output.room())) else {
            context.reset(ResetDirective::SessionOnly).map_err(|_| malformed("context cannot be reset"))?;
            self.state = State::Pieces { within_frame: false };
            return Ok(true);
        };
        let written = context
            .decompress(output.space(bound), self.input)
            .map_err(|_| malformed("frame cannot be decompressed"))?;
        output.advance(written)?;
        self.state = State::End;
        Ok(true)
    }

    fn piece(&mut self, within_frame: bool, output: &mut Output) -> Result<bool, CompressionError> {
        if self.input.is_empty() && !within_frame {
            return Ok(false);
        }
        let context = self.context.0.as_mut().expect("made by start, which comes first");
        let mut input = InBuffer::around(self.input);
        let mut space = OutBuffer::around(output.space(PIECE));
        let hint =
            context.decompress_stream(&mut space, &mut input).map_err(|_| malformed("frame cannot be decompressed"))?;
        let (read, written) = (input.pos(), space.pos());
        self.input = &self.input[read..];
        output.advance(written)?;
        if read == 0 && written == 0 && hint != 0 {
            return Err(malformed("frame is cut"));
        }
        self.state = State::Pieces { within_frame: hint != 0 };
        Ok(true)
    }
}

/// The compression context and the level it is set to, made at first use.
#[derive(Default)]
pub(super) struct ZstdCompressor(Option<(i32, CCtx<'static>)>);

impl std::fmt::Debug for ZstdCompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ZstdCompressor").field(&self.0.as_ref().map(|(level, _)| level)).finish()
    }
}

impl ZstdCompressor {
    /// Appends one frame with `input`.
    pub(super) fn compress(&mut self, input: &[u8], level: i32, out: &mut Vec<u8>) -> Result<(), CompressionError> {
        let failed = CompressionError::Failed { codec: Compression::Zstd };
        if self.0.as_ref().is_none_or(|(set_to, _)| *set_to != level) {
            let mut context = CCtx::try_create().ok_or(failed)?;
            context.set_parameter(CParameter::CompressionLevel(level)).map_err(|_| failed)?;
            self.0 = Some((level, context));
        }
        let (_, context) = self.0.as_mut().expect("made above if it was not there");
        let at = out.len();
        out.resize(at + zstd_safe::compress_bound(input.len()), 0);
        let length = context.compress2(&mut out[at..], input).map_err(|_| failed)?;
        out.truncate(at + length);
        Ok(())
    }
}
