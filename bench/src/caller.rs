//! The roles of connections that repeat one small request, and of those that stay silent.

use std::collections::VecDeque;

use anyhow::{Result, ensure};

use crate::conn::Conn;
use crate::messages;
use crate::reactor::Role;
use crate::wire::Reader;
use crate::world::World;

/// Repeats some requests in a closed loop; every reply must be as long as the first one to that request.
pub(crate) struct Caller {
    frames: Vec<Vec<u8>>,
    /// By frame.
    reply_lens: Vec<Option<usize>>,
    depth: usize,
    /// Closes the connection after the last of the frames, and begins a new one.
    anew: bool,
    /// The next frame.
    cursor: usize,
    correlation: i32,
    /// When the first of the frames went out.
    began: u64,
    /// Requests that await their reply: when the first of the frames went out, and which frame this is.
    waiting: VecDeque<(u64, usize)>,
    ends_connection: bool,
    /// Finds the error code in a reply.
    code: Option<CodeOf>,
}

/// Reads a reply's error code.
type CodeOf = fn(Reader<'_>) -> Result<i16>;

impl Caller {
    /// Repeats `frame` with at most `depth` requests in flight.
    pub(crate) fn new(frame: Vec<u8>, depth: usize) -> Self {
        Self::with(vec![frame], depth, false)
    }

    /// Repeats `frames`, each after the answer to the one before, with a new connection every time.
    pub(crate) fn anew(frames: Vec<Vec<u8>>) -> Self {
        Self::with(frames, 1, true)
    }

    fn with(frames: Vec<Vec<u8>>, depth: usize, anew: bool) -> Self {
        Self {
            reply_lens: vec![None; frames.len()],
            frames,
            depth,
            anew,
            cursor: 0,
            correlation: 0,
            began: 0,
            waiting: VecDeque::new(),
            ends_connection: false,
            code: None,
        }
    }

    /// Looks for an error code in each reply.
    pub(crate) fn checked(self, code: CodeOf) -> Self {
        Self { code: Some(code), ..self }
    }
}

impl Role for Caller {
    fn pump(&mut self, now: u64, conn: &mut Conn, _world: &mut World) -> Result<Option<u64>> {
        while self.waiting.len() < self.depth {
            let at = self.cursor;
            self.correlation = self.correlation.wrapping_add(1);
            messages::set_correlation(&mut self.frames[at], self.correlation);
            conn.send(&self.frames[at])?;
            if at == 0 {
                self.began = now;
            }
            self.waiting.push_back((self.began, at));
            self.cursor = (at + 1) % self.frames.len();
        }
        Ok(None)
    }

    fn reply(&mut self, now: u64, reply: &[u8], world: &mut World) -> Result<()> {
        let correlation = self.correlation.wrapping_sub(self.waiting.len() as i32 - 1);
        let body = messages::open_reply(reply, correlation)?;
        if let Some(code) = self.code {
            messages::check_code(code(body)?, "a call")?;
        }
        let (began, at) = self.waiting.pop_front().ok_or_else(|| anyhow::anyhow!("a reply to nothing"))?;
        let usual = *self.reply_lens[at].get_or_insert(reply.len());
        ensure!(reply.len() == usual, "a reply of {} bytes where {usual} are usual", reply.len());
        let is_last = at + 1 == self.frames.len();
        self.ends_connection = self.anew && is_last;
        if world.recording && is_last {
            world.stats.calls += 1;
            world.stats.call_latency.add(now - began);
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }

    fn ends_connection(&mut self) -> bool {
        std::mem::take(&mut self.ends_connection)
    }
}

/// Stays connected and says nothing.
pub(crate) struct Silent;

impl Role for Silent {
    fn pump(&mut self, _now: u64, _conn: &mut Conn, _world: &mut World) -> Result<Option<u64>> {
        Ok(None)
    }

    fn reply(&mut self, _now: u64, _reply: &[u8], _world: &mut World) -> Result<()> {
        anyhow::bail!("a reply to nothing")
    }

    fn in_flight(&self) -> usize {
        0
    }
}
