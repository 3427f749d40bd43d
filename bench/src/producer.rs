//! The role of a producing connection.

use std::collections::VecDeque;

use anyhow::{Result, ensure};

use crate::batch;
use crate::conn::Conn;
use crate::messages::{self, ProduceFrame};
use crate::reactor::Role;
use crate::world::World;

/// With acks=0 nothing comes back: a connection stops at so many unsent bytes.
const UNSENT_LIMIT: usize = 1 << 20;
/// Frames sent in one turn at most, so that other connections get theirs.
const TURN: usize = 128;

/// When requests are due in an open loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Intended send time of the next request, in ns since the run began.
    pub next: u64,
    /// Time between two requests, in ns.
    pub interval: u64,
}

/// An idempotent producer's identity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    /// Producer id.
    pub id: i64,
    /// Its epoch.
    pub epoch: i16,
}

/// What a producing connection sends.
pub(crate) struct ProducerSpec {
    /// Produce version of the frames.
    pub version: i16,
    /// Whether replies come (acks other than 0).
    pub acked: bool,
    /// Requests in flight at most.
    pub depth: usize,
    /// The frames, sent in turn.
    pub frames: Vec<ProduceFrame>,
    /// Records of each batch in them.
    pub records_per_batch: u32,
    /// Open loop if set, closed loop otherwise.
    pub pace: Option<Pace>,
    /// Stamps sequence numbers if set.
    pub identity: Option<Identity>,
}

/// Sends prebuilt Produce frames in turn, and checks each reply.
pub(crate) struct Producer {
    version: i16,
    acked: bool,
    depth: usize,
    frames: Vec<ProduceFrame>,
    records_per_batch: u32,
    pace: Option<Pace>,
    identity: Option<Identity>,
    /// Times that each frame has been sent.
    rounds: Vec<u32>,
    /// The next frame.
    cursor: usize,
    /// Correlation id of the last request.
    correlation: i32,
    /// Requests that await their reply: intended send time in ns, frame.
    waiting: VecDeque<(u64, usize)>,
}

impl Producer {
    /// A producer that has sent nothing yet.
    pub(crate) fn new(spec: ProducerSpec) -> Self {
        Self {
            version: spec.version,
            acked: spec.acked,
            depth: spec.depth,
            rounds: vec![0; spec.frames.len()],
            frames: spec.frames,
            records_per_batch: spec.records_per_batch,
            pace: spec.pace,
            identity: spec.identity,
            cursor: 0,
            correlation: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Intended send time of a request that may go out now.
    fn due(&self, now: u64, conn: &mut Conn) -> Result<Option<u64>> {
        let room =
            if self.acked { self.waiting.len() < self.depth } else { conn.unsent() < UNSENT_LIMIT || conn.flush()? };
        let intended = self.pace.map_or(now, |pace| pace.next);
        Ok((room && intended <= now).then_some(intended))
    }

    fn send(&mut self, intended: u64, conn: &mut Conn, world: &mut World) -> Result<()> {
        let at = self.cursor;
        let frame = &mut self.frames[at];
        self.correlation = self.correlation.wrapping_add(1);
        messages::set_correlation(&mut frame.bytes, self.correlation);
        if let Some(identity) = self.identity {
            // Sequence numbers wrap from the largest 32-bit integer to zero.
            let sequence = u64::from(self.rounds[at]) * u64::from(self.records_per_batch) % (1 << 31);
            for (_, place) in &frame.batches {
                batch::stamp(&mut frame.bytes[place.clone()], identity.id, identity.epoch, sequence as i32);
            }
        }
        conn.send(&frame.bytes)?;
        for (partition, _) in &frame.batches {
            world.ledgers[*partition as usize].send(intended);
        }
        self.rounds[at] += 1;
        self.cursor = (at + 1) % self.frames.len();
        if let Some(pace) = &mut self.pace {
            pace.next += pace.interval;
        }
        if self.acked {
            self.waiting.push_back((intended, at));
        } else {
            self.count(at, world);
        }
        Ok(())
    }

    /// Counts a frame as produced, in the steady window.
    fn count(&self, at: usize, world: &mut World) {
        if !world.recording {
            return;
        }
        let batches = &self.frames[at].batches;
        world.stats.produce_requests += 1;
        world.stats.produced_records += batches.len() as u64 * u64::from(self.records_per_batch);
        world.stats.produced_bytes += batches.iter().map(|(_, place)| place.len() as u64).sum::<u64>();
    }
}

impl Role for Producer {
    fn pump(&mut self, now: u64, conn: &mut Conn, world: &mut World) -> Result<Option<u64>> {
        for _ in 0..TURN {
            let Some(intended) = self.due(now, conn)? else {
                return Ok(self.pace.map(|pace| pace.next).filter(|&next| next > now));
            };
            self.send(intended, conn, world)?;
        }
        Ok(Some(now))
    }

    fn reply(&mut self, now: u64, reply: &[u8], world: &mut World) -> Result<()> {
        let correlation = self.correlation.wrapping_sub(self.waiting.len() as i32 - 1);
        let body = messages::open_reply(reply, correlation)?;
        let (intended, at) = self.waiting.pop_front().ok_or_else(|| anyhow::anyhow!("a reply to nothing"))?;
        let mut answered = 0;
        messages::read_produce(body, self.version, |partition, base| {
            answered += 1;
            let ledger = world.ledgers.get_mut(partition as usize);
            ledger.ok_or_else(|| anyhow::anyhow!("no partition {partition}"))?.acknowledge(base)
        })?;
        ensure!(answered == self.frames[at].batches.len(), "a reply for {answered} partitions");
        self.count(at, world);
        if world.recording {
            world.stats.produce_latency.add(now - intended);
            world.stats.stalls.note(intended, now);
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }
}
