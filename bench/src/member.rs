//! The role of a member of a classic group: it joins, gets its assignment, and is heard of at fixed times. The leader begins
//! another rebalance now and then. A heartbeat that is not answered before the next one is due ends the run.

use anyhow::{Result, bail, ensure};

use crate::conn::Conn;
use crate::messages::{self, frame};
use crate::reactor::Role;
use crate::wire::{Put, Reader};
use crate::world::World;

const JOIN_GROUP: i16 = 11;
const HEARTBEAT: i16 = 12;
const SYNC_GROUP: i16 = 14;

const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
const NOT_COORDINATOR: i16 = 16;
const REBALANCE_IN_PROGRESS: i16 = 27;
const MEMBER_ID_REQUIRED: i16 = 79;

/// How members of a run behave; times in ns.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    /// From one heartbeat to the next.
    pub heartbeat: u64,
    /// From one rebalance of a group to the next; none without it.
    pub rebalance: Option<u64>,
    /// Session timeout, ms.
    pub session_ms: i32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Joins,
    Syncs,
    Beats,
}

/// A member.
pub(crate) struct Member {
    group: String,
    manner: Manner,
    id: String,
    generation: i32,
    stage: Stage,
    /// The members of its generation, when it leads.
    leads: Vec<String>,
    /// When the next heartbeat, or the first JoinGroup, is due.
    due: u64,
    /// When the leader begins the next rebalance.
    next_rebalance: u64,
    /// When the leader began this one.
    rebalancing_since: Option<u64>,
    /// When the request that is under way was due.
    waits_since: Option<u64>,
    correlation: i32,
}

impl Member {
    /// One that joins at `start`.
    pub(crate) fn new(group: String, manner: Manner, start: u64) -> Self {
        Self {
            group,
            manner,
            id: String::new(),
            generation: -1,
            stage: Stage::Joins,
            leads: Vec::new(),
            due: start,
            next_rebalance: u64::MAX,
            rebalancing_since: None,
            waits_since: None,
            correlation: 0,
        }
    }

    fn request(&self) -> Vec<u8> {
        match self.stage {
            Stage::Joins => join(&self.group, &self.id, self.manner.session_ms),
            Stage::Syncs => sync(&self.group, self.generation, &self.id, &self.leads),
            Stage::Beats => heartbeat(&self.group, self.generation, &self.id),
        }
    }

    fn joined(&mut self, now: u64, body: Reader<'_>) -> Result<()> {
        let joined = Joined::read(body)?;
        self.id = joined.member;
        match joined.code {
            MEMBER_ID_REQUIRED => return Ok(()),
            COORDINATOR_LOAD_IN_PROGRESS | NOT_COORDINATOR if self.generation < 0 => {
                self.due = now + 100_000_000;
                return Ok(());
            }
            _ => {}
        }
        messages::check_code(joined.code, "JoinGroup")?;
        self.generation = joined.generation;
        self.leads = if joined.leader == self.id { joined.members } else { Vec::new() };
        self.stage = Stage::Syncs;
        Ok(())
    }

    fn synced(&mut self, now: u64, mut body: Reader<'_>, world: &mut World) -> Result<()> {
        body.i32()?; // throttle, ms
        let code = body.i16()?;
        if code == REBALANCE_IN_PROGRESS {
            self.stage = Stage::Joins;
            return Ok(());
        }
        messages::check_code(code, "SyncGroup")?;
        ensure!(body.compact_bytes()? == self.id.as_bytes(), "the assignment is somebody else's");
        self.stage = Stage::Beats;
        self.due = now + self.manner.heartbeat;
        if self.leads.is_empty() {
            return Ok(());
        }
        if let (Some(since), true) = (self.rebalancing_since.take(), world.recording) {
            world.stats.rebalances += 1;
            world.stats.rebalance_latency.add(now - since);
        }
        let wait = self.manner.rebalance.unwrap_or(u64::MAX);
        if self.next_rebalance == u64::MAX && wait != u64::MAX {
            // Groups take turns rather than all rebalance at once.
            let spread = self.group.bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
            self.next_rebalance = now + spread % wait;
        } else {
            self.next_rebalance = self.next_rebalance.saturating_add(wait).max(now);
        }
        Ok(())
    }

    fn beaten(&mut self, now: u64, due: u64, mut body: Reader<'_>, world: &mut World) -> Result<()> {
        body.i32()?; // throttle, ms
        let code = body.i16()?;
        ensure!(now - due < self.manner.heartbeat, "a heartbeat was answered {} ms late", (now - due) / 1_000_000);
        self.due = due + self.manner.heartbeat;
        if world.recording {
            world.stats.call_latency.add(now - due);
        }
        if code == REBALANCE_IN_PROGRESS {
            self.stage = Stage::Joins;
            return Ok(());
        }
        messages::check_code(code, "Heartbeat")
    }
}

impl Role for Member {
    fn pump(&mut self, now: u64, conn: &mut Conn, _world: &mut World) -> Result<Option<u64>> {
        if let Some(since) = self.waits_since {
            if self.stage == Stage::Beats && now - since >= self.manner.heartbeat {
                bail!("a heartbeat is not answered for {} ms", (now - since) / 1_000_000);
            }
            return Ok((self.stage == Stage::Beats).then(|| since + self.manner.heartbeat));
        }
        if self.stage == Stage::Beats && now >= self.next_rebalance {
            self.stage = Stage::Joins;
            self.rebalancing_since = Some(now);
        } else if now < self.due && (self.stage == Stage::Beats || self.generation < 0) {
            return Ok(Some(self.due.min(self.next_rebalance)));
        }
        let mut frame = self.request();
        self.correlation = self.correlation.wrapping_add(1);
        messages::set_correlation(&mut frame, self.correlation);
        conn.send(&frame)?;
        let due = if self.stage == Stage::Beats { self.due } else { now };
        self.waits_since = Some(due);
        Ok((self.stage == Stage::Beats).then(|| due + self.manner.heartbeat))
    }

    fn reply(&mut self, now: u64, reply: &[u8], world: &mut World) -> Result<()> {
        let body = messages::open_reply(reply, self.correlation)?;
        let Some(due) = self.waits_since.take() else { bail!("a reply to nothing") };
        world.stats.calls += u64::from(world.recording);
        match self.stage {
            Stage::Joins => self.joined(now, body),
            Stage::Syncs => self.synced(now, body, world),
            Stage::Beats => self.beaten(now, due, body, world),
        }
    }

    /// A JoinGroup may wait for members that have stopped; nobody waits for its answer in the end.
    fn in_flight(&self) -> usize {
        usize::from(self.waits_since.is_some() && self.stage == Stage::Beats)
    }

    fn is_frugal(&self) -> bool {
        true
    }
}

/// JoinGroup 6.
fn join(group: &str, member: &str, session_ms: i32) -> Vec<u8> {
    frame(JOIN_GROUP, 6, |out| {
        out.compact_str(group);
        out.i32(session_ms);
        out.i32(60_000); // rebalance timeout, ms
        out.compact_str(member);
        out.compact_null(); // group instance
        out.compact_str("kbench"); // protocol type
        out.compact_len(1);
        out.compact_str("one-each");
        out.compact_str("subscription");
        out.no_tags();
        out.no_tags();
    })
}

/// SyncGroup 4; each member is assigned its own id.
fn sync(group: &str, generation: i32, member: &str, members: &[String]) -> Vec<u8> {
    frame(SYNC_GROUP, 4, |out| {
        out.compact_str(group);
        out.i32(generation);
        out.compact_str(member);
        out.compact_null(); // group instance
        out.compact_len(members.len());
        for member in members {
            out.compact_str(member);
            out.compact_str(member);
            out.no_tags();
        }
        out.no_tags();
    })
}

/// Heartbeat 4.
fn heartbeat(group: &str, generation: i32, member: &str) -> Vec<u8> {
    frame(HEARTBEAT, 4, |out| {
        out.compact_str(group);
        out.i32(generation);
        out.compact_str(member);
        out.compact_null(); // group instance
        out.no_tags();
    })
}

/// A JoinGroup 6 reply.
struct Joined {
    code: i16,
    generation: i32,
    leader: String,
    member: String,
    members: Vec<String>,
}

impl Joined {
    fn read(mut reader: Reader<'_>) -> Result<Self> {
        reader.i32()?; // throttle, ms
        let (code, generation) = (reader.i16()?, reader.i32()?);
        reader.compact_str()?; // protocol
        let (leader, member) = (reader.compact_str()?.to_owned(), reader.compact_str()?.to_owned());
        let mut members = Vec::new();
        for _ in 0..reader.compact_len()?.unwrap_or(0) {
            members.push(reader.compact_str()?.to_owned());
            reader.compact_str()?; // group instance
            reader.compact_bytes()?; // metadata
            reader.skip_tags()?;
        }
        Ok(Self { code, generation, leader, member, members })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leader_is_told_who_is_there() {
        let mut reply = Vec::new();
        reply.i32(0);
        reply.i16(0);
        reply.i32(7);
        reply.compact_str("one-each");
        reply.compact_str("a");
        reply.compact_str("a");
        reply.compact_len(2);
        for member in ["a", "b"] {
            reply.compact_str(member);
            reply.compact_null();
            reply.compact_str("subscription");
            reply.no_tags();
        }
        reply.no_tags();
        let joined = Joined::read(Reader::new(&reply)).unwrap();
        assert_eq!((joined.code, joined.generation, joined.leader == joined.member), (0, 7, true));
        assert_eq!(joined.members, ["a", "b"]);
    }

    #[test]
    fn a_heartbeat_that_is_answered_too_late_ends_the_run() {
        let manner = Manner { heartbeat: 1_000, rebalance: None, session_ms: 6_000 };
        let mut member = Member { stage: Stage::Beats, ..Member::new("g".to_owned(), manner, 0) };
        let (mut world, answer) = (World::new(Vec::new()), [0; 6]);
        member.beaten(1_999, 1_000, Reader::new(&answer), &mut world).unwrap();
        assert!(member.beaten(3_000, 2_000, Reader::new(&answer), &mut world).is_err());
    }

    #[test]
    fn a_member_whose_generation_is_over_before_it_has_its_assignment_joins_again() {
        let manner = Manner { heartbeat: 1_000, rebalance: None, session_ms: 6_000 };
        let mut member = Member { stage: Stage::Syncs, ..Member::new("g".to_owned(), manner, 0) };
        let mut answer = Vec::new();
        answer.i32(0);
        answer.i16(REBALANCE_IN_PROGRESS);
        member.synced(5, Reader::new(&answer), &mut World::new(Vec::new())).unwrap();
        assert!(member.stage == Stage::Joins);
    }
}
