//! The event loop: one thread, any number of connections, each with a role.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;

use anyhow::{Result, bail};
use rustix::event::{Timespec, epoll};

use crate::conn::Conn;
use crate::world::World;

/// What a connection sends, and what it makes of the replies. Times are in ns since the run began.
pub(crate) trait Role {
    /// Sends what may go out at `now`. Returns when to be asked again if no reply comes before.
    fn pump(&mut self, now: u64, conn: &mut Conn, world: &mut World) -> Result<Option<u64>>;

    /// Takes in one reply, without its length prefix.
    fn reply(&mut self, now: u64, reply: &[u8], world: &mut World) -> Result<()>;

    /// Requests that await their reply.
    fn in_flight(&self) -> usize;

    /// Whether the connection is to be closed now, and another one begun in its place.
    fn ends_connection(&mut self) -> bool {
        false
    }

    /// Whether the connection is one of so many that it should keep no buffer between replies.
    fn is_frugal(&self) -> bool {
        false
    }
}

struct Slot {
    conn: Conn,
    role: Box<dyn Role>,
    wants_write: bool,
    /// When the one timer that counts for this slot fires; [`NEVER`] without one.
    armed: u64,
}

const NEVER: u64 = u64::MAX;

/// The event loop.
pub(crate) struct Reactor {
    epoll: OwnedFd,
    slots: Vec<Slot>,
    timers: BinaryHeap<Reverse<(u64, usize)>>,
    events: Vec<epoll::Event>,
}

impl Reactor {
    /// An event loop without connections.
    pub(crate) fn new() -> Result<Self> {
        // Timers fire within 1 µs of their time, not within the usual 50.
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            slots: Vec::new(),
            timers: BinaryHeap::new(),
            events: Vec::with_capacity(1024),
        })
    }

    /// Adds a connection, which starts at its first turn in [`Self::run_until`].
    pub(crate) fn add(&mut self, conn: Conn, role: Box<dyn Role>) -> Result<()> {
        let (at, conn) = (self.slots.len(), conn.frugal(role.is_frugal()));
        epoll::add(&self.epoll, conn.stream(), epoll::EventData::new_u64(at as u64), epoll::EventFlags::IN)?;
        self.slots.push(Slot { conn, role, wants_write: false, armed: 0 });
        self.timers.push(Reverse((0, at)));
        Ok(())
    }

    /// Runs until the time `end` or until `done` says so.
    pub(crate) fn run_until(&mut self, world: &mut World, end: u64, done: impl Fn(&World) -> bool) -> Result<()> {
        while !done(world) {
            let now = world.now();
            if now >= end {
                break;
            }
            self.fire_timers(now, world)?;
            let wake = self.timers.peek().map_or(end, |Reverse((at, _))| end.min(*at));
            self.wait(wake.saturating_sub(world.now()), world)?;
        }
        Ok(())
    }

    /// Lets every request in flight come back, for at most `limit` ns.
    pub(crate) fn drain(&mut self, world: &mut World, limit: u64) -> Result<()> {
        world.stopping = true;
        let end = world.now() + limit;
        while self.slots.iter().any(|slot| slot.role.in_flight() > 0 || slot.conn.unsent() > 0) {
            let now = world.now();
            if now >= end {
                bail!("some replies are still missing {} s after the end", limit / 1_000_000_000);
            }
            self.wait((end - now).min(10_000_000), world)?;
        }
        Ok(())
    }

    fn fire_timers(&mut self, now: u64, world: &mut World) -> Result<()> {
        while let Some(&Reverse((at, slot))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            if self.slots[slot].armed == at {
                self.slots[slot].armed = NEVER;
                self.pump(slot, now, world)?;
            }
        }
        Ok(())
    }

    /// Waits for at most `ns` and serves the sockets that are ready.
    fn wait(&mut self, ns: u64, world: &mut World) -> Result<()> {
        let timeout = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
        self.events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        for at in 0..self.events.len() {
            let event = self.events[at];
            self.serve(event.data.u64() as usize, event.flags, world)?;
        }
        Ok(())
    }

    fn serve(&mut self, at: usize, flags: epoll::EventFlags, world: &mut World) -> Result<()> {
        let now = world.now();
        if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            let Slot { conn, role, .. } = &mut self.slots[at];
            conn.receive(|reply| role.reply(now, reply, world))?;
            if role.ends_connection() && !world.stopping {
                *conn = conn.again()?;
                let data = epoll::EventData::new_u64(at as u64);
                epoll::add(&self.epoll, conn.stream(), data, epoll::EventFlags::IN)?;
            }
        }
        self.pump(at, now, world)
    }

    fn pump(&mut self, at: usize, now: u64, world: &mut World) -> Result<()> {
        let slot = &mut self.slots[at];
        if !world.stopping
            && let Some(again) = slot.role.pump(now, &mut slot.conn, world)?
            && again < slot.armed
        {
            slot.armed = again;
            self.timers.push(Reverse((again, at)));
        }
        let wants_write = !slot.conn.flush()?;
        if wants_write != slot.wants_write {
            slot.wants_write = wants_write;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, wants_write);
            epoll::modify(&self.epoll, slot.conn.stream(), epoll::EventData::new_u64(at as u64), flags)?;
        }
        Ok(())
    }
}
