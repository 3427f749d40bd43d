//! The role of a consuming connection.

use anyhow::{Result, bail, ensure};

use crate::batch;
use crate::conn::Conn;
use crate::messages::{self, FetchLimits, Session, Topic};
use crate::reactor::Role;
use crate::world::{ReaderKind, World};

const FETCH_SESSION_ID_NOT_FOUND: i16 = 70;
const INVALID_FETCH_SESSION_EPOCH: i16 = 71;

/// Fetches one topic's partitions, one request at a time as Kafka's clients do, and checks what comes.
pub(crate) struct Consumer {
    kind: ReaderKind,
    version: i16,
    topic: Topic,
    limits: FetchLimits,
    check_crc: bool,
    /// Time of the first request, in ns since the run began.
    start_at: u64,
    positions: Vec<Position>,
    /// By partition: its place in `positions`.
    place_of: Vec<Option<usize>>,
    /// Keeps a fetch session if set.
    session: Option<Session>,
    /// Places whose offset the session does not know yet.
    changed: Vec<usize>,
    correlation: i32,
    waiting: bool,
    finished: bool,
}

struct Position {
    partition: u32,
    offset: i64,
    at_end: bool,
}

/// How a consumer reads.
pub(crate) struct ConsumerSpec {
    /// What it's there for.
    pub kind: ReaderKind,
    /// Fetch version.
    pub version: i16,
    /// Topic.
    pub topic: Topic,
    /// Its partitions.
    pub partitions: Vec<u32>,
    /// Limits of each request.
    pub limits: FetchLimits,
    /// Whether to check each batch's CRC.
    pub check_crc: bool,
    /// Whether to use a fetch session.
    pub sessions: bool,
    /// Time of the first request, in ns since the run began.
    pub start_at: u64,
}

impl Consumer {
    /// A consumer that starts at offset 0 of each of its partitions.
    pub(crate) fn new(spec: ConsumerSpec) -> Self {
        let mut place_of = vec![None; spec.topic.partitions as usize];
        for (place, &partition) in spec.partitions.iter().enumerate() {
            place_of[partition as usize] = Some(place);
        }
        let positions = spec.partitions.iter();
        Self {
            kind: spec.kind,
            version: spec.version,
            topic: spec.topic,
            limits: spec.limits,
            check_crc: spec.check_crc,
            start_at: spec.start_at,
            positions: positions.map(|&partition| Position { partition, offset: 0, at_end: false }).collect(),
            place_of,
            session: spec.sessions.then(Session::default),
            changed: Vec::new(),
            correlation: 0,
            waiting: false,
            finished: false,
        }
    }

    /// The next request: whole, or in a session only what changed.
    fn request(&mut self) -> Vec<u8> {
        let Self { version, topic, limits, positions, changed, .. } = self;
        let tell = |place: usize| (positions[place].partition, positions[place].offset);
        let mut frame = match &mut self.session {
            Some(session) if session.id != 0 => {
                session.epoch = session.epoch.checked_add(1).unwrap_or(1);
                messages::fetch(*version, topic, limits, *session, changed.iter().map(|&place| tell(place)))
            }
            session => {
                let epoch = if session.is_some() { 0 } else { -1 };
                let whole = (0..positions.len()).map(tell);
                messages::fetch(*version, topic, limits, Session { id: 0, epoch }, whole)
            }
        };
        changed.clear();
        self.correlation = self.correlation.wrapping_add(1);
        messages::set_correlation(&mut frame, self.correlation);
        frame
    }

    /// Takes in one partition of a reply.
    fn take(&mut self, now: u64, part: &messages::Fetched<'_>, world: &mut World) -> Result<u64> {
        messages::check_code(part.code, "Fetch of a partition")?;
        let Some(place) = self.place_of.get(part.partition as usize).copied().flatten() else {
            bail!("partition {} was not asked for", part.partition);
        };
        let position = &mut self.positions[place];
        let World { recording, ledgers, stats, .. } = world;
        let timed = *recording && self.kind == ReaderKind::Tail;
        let found = batch::walk(part.records, position.offset, self.check_crc, |base| {
            if timed && let Some(sent) = ledgers.get(part.partition as usize).and_then(|ledger| ledger.sent_at(base)) {
                stats.end_to_end.add(now.saturating_sub(sent));
            }
        })?;
        if *recording {
            let counters = &mut stats.readers[self.kind as usize];
            counters.records += found.records;
            counters.bytes += found.bytes;
        }
        position.offset = found.next_offset;
        position.at_end = found.next_offset >= part.high_watermark;
        if self.kind == ReaderKind::Replay && position.at_end {
            position.offset = 0;
        }
        if found.records > 0 {
            self.changed.push(place);
        }
        Ok(found.records)
    }
}

impl Role for Consumer {
    fn pump(&mut self, now: u64, conn: &mut Conn, _world: &mut World) -> Result<Option<u64>> {
        if now < self.start_at {
            return Ok(Some(self.start_at));
        }
        if !self.waiting && !self.finished {
            let frame = self.request();
            conn.send(&frame)?;
            self.waiting = true;
        }
        Ok(None)
    }

    fn reply(&mut self, now: u64, reply: &[u8], world: &mut World) -> Result<()> {
        ensure!(std::mem::take(&mut self.waiting), "a reply to nothing");
        let body = messages::open_reply(reply, self.correlation)?;
        let mut records = 0;
        let version = self.version;
        let (code, id) = messages::read_fetch(body, version, |part| {
            records += self.take(now, &part, world)?;
            Ok(())
        })?;
        match code {
            // The server dropped the session: the next request is whole again.
            FETCH_SESSION_ID_NOT_FOUND | INVALID_FETCH_SESSION_EPOCH => {
                self.session = self.session.map(|_| Session::default());
            }
            code => messages::check_code(code, "Fetch")?,
        }
        if let Some(session) = &mut self.session
            && code == 0
            && session.id != id
        {
            *session = Session { id, epoch: 0 };
        }
        if world.recording {
            let counters = &mut world.stats.readers[self.kind as usize];
            counters.requests += 1;
            counters.empty += u64::from(records == 0);
        }
        if self.kind == ReaderKind::Cold && self.positions.iter().all(|position| position.at_end) {
            self.finished = true;
            world.cold_left -= 1;
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        usize::from(self.waiting)
    }

    fn is_frugal(&self) -> bool {
        self.kind == ReaderKind::Idle
    }
}
