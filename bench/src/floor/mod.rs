//! The practical floor: one thread, epoll, pooled receive buffers, one vectored write a partition
//! and one send a connection in each wake-up, sendfile for what is read.
//!
//! It keeps a true log and answers truly, so that the load tool's checks hold for it; beyond that
//! it does nothing a real server must do: no CRC check, no replication, no index on disk, no fsync,
//! no recovery, no quota, no security, no metric. A server can't well use less CPU than this.

mod answer;
mod conn;
mod log;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{ErrorKind, IoSlice};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use rustix::event::{Timespec, epoll};

use answer::{Broker, Intake};
use conn::{Conn, Pool};
use log::{Log, PartitionId, Pending};

/// The listener's number among the epoll events.
const LISTENER: u64 = u64::MAX;

struct Server {
    epoll: OwnedFd,
    listener: TcpListener,
    conns: Vec<Option<Conn>>,
    pool: Pool,
    broker: Broker,
    started: Instant,
    /// Deadlines of waiting fetches: time in ns, connection. Those answered before stay until due.
    deadlines: BinaryHeap<Reverse<(u64, usize)>>,
    /// Connections with work in this wake-up.
    touched: Vec<usize>,
}

/// Serves until killed.
pub(crate) fn serve(listen: SocketAddr, dir: &Path) -> Result<()> {
    let listener = TcpListener::bind(listen).with_context(|| format!("listening at {listen}"))?;
    Server::new(listener, dir)?.run()
}

impl Server {
    fn new(listener: TcpListener, dir: &Path) -> Result<Self> {
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        Ok(Self {
            epoll,
            listener,
            conns: Vec::new(),
            pool: Pool::default(),
            broker: Broker { log: Log::create(dir)?, intake: Intake::default(), port, now: 0 },
            started: Instant::now(),
            deadlines: BinaryHeap::new(),
            touched: Vec::new(),
        })
    }

    fn run(mut self) -> Result<()> {
        let mut events = Vec::with_capacity(1024);
        loop {
            let timeout = self.timeout();
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            self.broker.now = self.started.elapsed().as_nanos() as u64;
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    number => self.read(number as usize, event.flags),
                }
            }
            self.write_batches()?;
            self.expire();
            self.finish();
        }
    }

    fn timeout(&self) -> Option<Timespec> {
        let Reverse((deadline, _)) = self.deadlines.peek()?;
        let ns = deadline.saturating_sub(self.started.elapsed().as_nanos() as u64);
        Some(Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 })
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e.into()),
            };
            let number = self.conns.iter().position(Option::is_none).unwrap_or(self.conns.len());
            epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(number as u64), epoll::EventFlags::IN)?;
            if number == self.conns.len() {
                self.conns.push(None);
            }
            self.conns[number] = Some(Conn::new(stream)?);
        }
    }

    /// Reads once from a connection and handles each whole request.
    fn read(&mut self, number: usize, flags: epoll::EventFlags) {
        self.touch(number);
        if !flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            return;
        }
        let Some(conn) = &mut self.conns[number] else { return };
        let handled = conn.receive(&mut self.pool).and_then(|open| {
            while let Some(at) = conn.next_frame() {
                self.broker.handle(conn, number, at)?;
            }
            Ok(open)
        });
        self.close_unless(number, handled);
    }

    /// Appends what this wake-up took in: one vectored write a partition.
    fn write_batches(&mut self) -> Result<()> {
        for (id, batches) in std::mem::take(&mut self.broker.intake.dirty) {
            self.write_partition(id, &batches)?;
        }
        Ok(())
    }

    fn write_partition(&mut self, id: PartitionId, batches: &[Pending]) -> Result<()> {
        for batch in batches {
            if let Some(conn) = &mut self.conns[batch.conn] {
                crate::batch::set_base_offset(&mut conn.buffer[batch.range.clone()], batch.base_offset);
            }
        }
        let written: Vec<(i64, IoSlice<'_>)> = batches
            .iter()
            .filter_map(|batch| {
                let conn = self.conns[batch.conn].as_ref()?;
                Some((batch.base_offset, IoSlice::new(&conn.buffer[batch.range.clone()])))
            })
            .collect();
        let Some(partition) = self.broker.log.partition(id) else { return Ok(()) };
        partition.append(&written)?;
        for &follower in &partition.followers {
            if let Some(conn) = &mut self.conns[follower]
                && conn.fetch.is_some()
                && !std::mem::replace(&mut conn.touched, true)
            {
                self.touched.push(follower);
            }
        }
        Ok(())
    }

    /// Touches the connections whose fetch has waited long enough.
    fn expire(&mut self) {
        while let Some(&Reverse((deadline, number))) = self.deadlines.peek()
            && deadline <= self.broker.now
        {
            self.deadlines.pop();
            self.touch(number);
        }
    }

    fn touch(&mut self, number: usize) {
        if let Some(conn) = &mut self.conns[number]
            && !std::mem::replace(&mut conn.touched, true)
        {
            self.touched.push(number);
        }
    }

    /// Answers fetches, sends, and gives buffers back.
    fn finish(&mut self) {
        for number in std::mem::take(&mut self.touched) {
            let Some(conn) = &mut self.conns[number] else { continue };
            conn.touched = false;
            let done = finish_one(conn, number, &mut self.broker, &mut self.pool, &self.epoll);
            if let (Ok(()), Some(fetch)) = (&done, &conn.fetch)
                && conn.armed != fetch.deadline
            {
                conn.armed = fetch.deadline;
                self.deadlines.push(Reverse((fetch.deadline, number)));
            }
            self.close_unless(number, done.map(|()| true));
        }
    }

    /// Closes a connection whose client has gone or broken the protocol.
    fn close_unless(&mut self, number: usize, open: Result<bool>) {
        match open {
            Ok(true) => return,
            Ok(false) => {}
            Err(e) => eprintln!("floor: closing a connection: {e:#}"),
        }
        // What it has sent still stands in its buffer: written before the buffer goes.
        if let Err(e) = self.write_batches() {
            eprintln!("floor: {e:#}");
        }
        if let Some(conn) = self.conns[number].take() {
            for id in conn.follows {
                if let Some(partition) = self.broker.log.partition(id) {
                    partition.followers.retain(|&follower| follower != number);
                }
            }
        }
    }
}

/// Ends a connection's part in a wake-up.
fn finish_one(conn: &mut Conn, number: usize, broker: &mut Broker, pool: &mut Pool, epoll: &OwnedFd) -> Result<()> {
    conn.tidy(pool)?;
    broker.fetch(conn, number)?;
    let wants_write = !conn.flush(&mut broker.log)?;
    if wants_write != conn.wants_write {
        conn.wants_write = wants_write;
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, wants_write);
        epoll::modify(epoll, &conn.stream, epoll::EventData::new_u64(number as u64), flags)?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Starts a floor on a thread of its own; returns its address.
    pub(crate) fn start(dir: &Path) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let dir = dir.to_owned();
        std::thread::spawn(move || Server::new(listener, &dir).unwrap().run());
        addr
    }
}
