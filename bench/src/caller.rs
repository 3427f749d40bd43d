//! The roles of connections that repeat one small request, and of those that stay silent.

use std::collections::VecDeque;

use anyhow::{Result, ensure};

use crate::conn::Conn;
use crate::messages;
use crate::reactor::Role;
use crate::world::World;

/// Repeats one request in a closed loop; every reply must be as long as the first.
pub(crate) struct Caller {
    frame: Vec<u8>,
    depth: usize,
    correlation: i32,
    sent_at: VecDeque<u64>,
    reply_len: Option<usize>,
}

impl Caller {
    /// Repeats `frame` with at most `depth` requests in flight.
    pub(crate) fn new(frame: Vec<u8>, depth: usize) -> Self {
        Self { frame, depth, correlation: 0, sent_at: VecDeque::new(), reply_len: None }
    }
}

impl Role for Caller {
    fn pump(&mut self, now: u64, conn: &mut Conn, _world: &mut World) -> Result<Option<u64>> {
        while self.sent_at.len() < self.depth {
            self.correlation = self.correlation.wrapping_add(1);
            messages::set_correlation(&mut self.frame, self.correlation);
            conn.send(&self.frame)?;
            self.sent_at.push_back(now);
        }
        Ok(None)
    }

    fn reply(&mut self, now: u64, reply: &[u8], world: &mut World) -> Result<()> {
        let correlation = self.correlation.wrapping_sub(self.sent_at.len() as i32 - 1);
        messages::open_reply(reply, correlation)?;
        let sent_at = self.sent_at.pop_front().ok_or_else(|| anyhow::anyhow!("a reply to nothing"))?;
        let usual = *self.reply_len.get_or_insert(reply.len());
        ensure!(reply.len() == usual, "a reply of {} bytes where {usual} are usual", reply.len());
        if world.recording {
            world.stats.calls += 1;
            world.stats.call_latency.add(now - sent_at);
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.sent_at.len()
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
