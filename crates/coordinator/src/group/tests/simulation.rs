//! Members of both protocols that come, go, crash and change their protocol, requests and answers that are lost and late, a
//! coordinator that dies with what was not committed, and a wall clock that jumps. No partition has two owners, no commit is
//! lost or comes back, and when the trouble is over every member has its share.

mod client;

use std::collections::BTreeSet;

use client::{Call, Client, Kind};

use super::consumers::over;
use super::*;
use crate::group::Migration;

const MEMBERS: usize = 3;
const PARTITIONS: usize = 7;
const SESSION_MS: i64 = 45_000;

/// A request on its way.
struct Flight {
    sent: i64,
    arrives: i64,
    /// When the client waits no longer.
    gives_up: i64,
    loses_reply: bool,
    call: Option<Call>,
    ticket: Option<Ticket>,
    commits: Option<(i32, i64)>,
}

/// What is known of the commits of one partition: the offset of each is its place in the order in which they came.
#[derive(Debug, Default)]
struct Commits {
    came: i64,
    /// Everything before this one is past: it was acknowledged, or read.
    floor: i64,
    refused: BTreeSet<i64>,
}

struct World {
    seed: u64,
    rng: fastrand::Rng,
    bench: Group,
    /// Batches that are committed, while the high watermark stands still.
    committed: Option<usize>,
    clients: Vec<Client>,
    flights: Vec<Option<Flight>>,
    /// Requests whose clients wait no longer.
    late: Vec<(i64, Call)>,
    commits: Vec<Commits>,
    /// Which protocols clients start with.
    kinds: Vec<Kind>,
    /// Requests and answers get lost, and take their time.
    trouble: bool,
}

impl World {
    fn new(seed: u64, kinds: &[Kind], migration: Migration) -> Self {
        let mut bench = over(PARTITIONS);
        bench.settings.migration = migration;
        (bench.settings.max_size, bench.settings.consumer_max_size) = (50, 50);
        let client = |number: usize| Client::new(number, (number == 0).then(|| "i".to_owned()));
        Self {
            seed,
            rng: fastrand::Rng::with_seed(seed),
            bench,
            committed: None,
            clients: (0..MEMBERS).map(client).collect(),
            flights: (0..MEMBERS).map(|_| None).collect(),
            late: Vec::new(),
            commits: (0..PARTITIONS).map(|_| Commits::default()).collect(),
            kinds: kinds.to_vec(),
            trouble: true,
        }
    }

    fn now(&self) -> i64 {
        self.bench.log.now.ticks_ms
    }

    fn step(&mut self) {
        self.bench.advance(self.rng.i64(0..4_000));
        match self.rng.u32(..100) {
            0..3 => self.restart(),
            3..5 => self.bench.log.now.wall_ms += self.rng.i64(-100_000..100_000),
            5..9 if self.committed.is_none() => {
                self.committed = Some(self.bench.log.batches.len());
                self.bench.log.commits = false;
            }
            9..30 => self.commit_all(),
            _ => {}
        }
        let at = self.rng.usize(..MEMBERS);
        self.act(at);
        self.deliver();
        self.check();
    }

    /// The coordinator dies, with what was not committed, and another one takes its place.
    fn restart(&mut self) {
        let mut bench = std::mem::replace(&mut self.bench, over(1));
        if let Some(committed) = self.committed.take() {
            bench.log.batches.truncate(committed);
        }
        self.bench = bench.restart();
        for flight in self.flights.iter_mut().flatten() {
            (flight.loses_reply, flight.ticket) = (flight.loses_reply || flight.ticket.is_some(), None);
        }
    }

    fn commit_all(&mut self) {
        self.committed = None;
        self.bench.log.commits = true;
        self.bench.drive();
    }

    fn act(&mut self, at: usize) {
        let now = self.now();
        let client = &mut self.clients[at];
        client.expire(now);
        match self.rng.u32(..100) {
            _ if !client.runs => {
                client.start(self.kinds[self.rng.usize(..self.kinds.len())]);
                self.flights[at] = None;
            }
            0..3 if self.trouble => self.end(at, false),
            3..6 if self.trouble => self.end(at, true),
            _ => {}
        }
        if self.clients[at].runs && self.flights[at].is_none() {
            let call = self.clients[at].next_call(&mut self.rng);
            let takes = if self.trouble && self.rng.u32(..4) == 0 { self.rng.i64(0..20_000) } else { 0 };
            let is_lost = self.trouble && self.rng.u32(..12) == 0;
            self.flights[at] = Some(Flight {
                sent: now,
                arrives: now + takes,
                gives_up: now + if matches!(call, Call::Join(_)) { 120_000 } else { 30_000 },
                loses_reply: self.trouble && self.rng.u32(..12) == 0,
                call: Some(call).filter(|_| !is_lost),
                ticket: None,
                commits: None,
            });
        }
    }

    /// A process ends, with or without a word.
    fn end(&mut self, at: usize, says_so: bool) {
        let word = self.clients[at].leave().filter(|_| says_so);
        self.drop_flight(at);
        if let Some(call) = word {
            // What it owned it has given up before.
            call.send(&mut self.bench);
        }
        self.clients[at].stop();
    }

    fn drop_flight(&mut self, at: usize) {
        let Some(flight) = self.flights[at].take() else { return };
        if let Some(call) = flight.call.filter(Call::may_come_late) {
            self.late.push((flight.arrives + self.rng.i64(0..60_000), call));
        }
    }

    fn deliver(&mut self) {
        let now = self.now();
        let due = |(arrives, _): &(i64, Call)| *arrives <= now;
        for (_, call) in self.late.extract_if(.., |late| due(late)).collect::<Vec<_>>() {
            self.send(call);
        }
        for at in 0..MEMBERS {
            let Some(flight) = &mut self.flights[at] else { continue };
            if flight.arrives <= now
                && let Some(call) = flight.call.take()
            {
                let (ticket, commits) = self.send(call);
                if let Some(flight) = &mut self.flights[at] {
                    (flight.ticket, flight.commits) = (Some(ticket), commits);
                }
            }
            self.hear(at);
        }
    }

    /// Gives a request to the coordinator; a commit gets the offset that is its turn.
    fn send(&mut self, call: Call) -> (Ticket, Option<(i32, i64)>) {
        let Call::Commit(partition, mut request) = call else { return (call.send(&mut self.bench), None) };
        let commits = &mut self.commits[partition as usize];
        commits.came += 1;
        request.topics[0].partitions[0].committed_offset = commits.came;
        let came = commits.came;
        (Call::Commit(partition, request).send(&mut self.bench), Some((partition, came)))
    }

    fn hear(&mut self, at: usize) {
        let now = self.now();
        let Some(flight) = &self.flights[at] else { return };
        let reply = flight.ticket.and_then(|ticket| self.bench.reply(ticket));
        if let (Some(Reply::Commit(topics)), Some((partition, offset))) = (&reply, flight.commits) {
            let commits = &mut self.commits[partition as usize];
            match topics[0].partitions[0].error_code {
                0 => commits.floor = commits.floor.max(offset),
                _ => drop(commits.refused.insert(offset)),
            }
        }
        match reply {
            Some(reply) if !flight.loses_reply => {
                let sent = flight.sent;
                self.flights[at] = None;
                self.clients[at].hear(sent, &reply);
            }
            _ if now >= flight.gives_up => self.drop_flight(at),
            _ => {}
        }
    }

    fn check(&mut self) {
        let now = self.now();
        let valid = |client: &&Client| client.runs && now - client.heard < SESSION_MS;
        let mut seen = BTreeSet::new();
        for client in self.clients.iter().filter(valid) {
            for partition in &client.owned {
                assert!(seen.insert(*partition), "seed {}: partition {partition} has two owners", self.seed);
            }
        }
        if self.committed.is_some() {
            return;
        }
        for (partition, commits) in (0..).zip(&mut self.commits) {
            let offset = fetch(&mut self.bench, partition).max(0);
            assert!(offset >= commits.floor, "seed {}: commit {} is gone for {offset}", self.seed, commits.floor);
            assert!(!commits.refused.contains(&offset), "seed {}: refused commit {offset} is there", self.seed);
            commits.floor = offset;
        }
    }

    /// Everybody is there, nothing is lost, for long enough that whoever died is dropped.
    fn settle(&mut self) {
        self.trouble = false;
        self.commit_all();
        for _ in 0..120 {
            self.bench.advance(3_000);
            for at in 0..MEMBERS {
                self.act(at);
            }
            self.deliver();
            self.check();
        }
        let mut shares: Vec<_> = self.clients.iter().map(|client| client.owned.len()).collect();
        shares.sort_unstable();
        assert_eq!(shares, [2, 2, 3], "seed {}: {:#?}", self.seed, self.clients);
    }
}

fn simulate(seed: u64, kinds: &[Kind], migration: Migration) {
    let mut world = World::new(seed, kinds, migration);
    for _ in 0..400 {
        world.step();
    }
    world.settle();
}

const CONSUMER: Kind = Kind::Consumer;
const EAGER: Kind = Kind::Classic { eager: true };
const COOPERATIVE: Kind = Kind::Classic { eager: false };
const BOTH_WAYS: Migration = Migration { upgrades: true, downgrades: true };

/// How many seeds each mix is run with.
fn seeds() -> std::ops::Range<u64> {
    0..12 * milena_testkit::rounds()
}

#[test]
fn members_of_the_consumer_protocol_share_and_commit() {
    seeds().for_each(|seed| simulate(seed, &[CONSUMER], BOTH_WAYS));
}

#[test]
fn members_of_the_classic_protocol_share_and_commit() {
    seeds().for_each(|seed| simulate(seed, &[EAGER], BOTH_WAYS));
    seeds().for_each(|seed| simulate(seed, &[COOPERATIVE], BOTH_WAYS));
}

#[test]
fn members_of_both_protocols_share_and_commit() {
    seeds().for_each(|seed| simulate(seed, &[CONSUMER, EAGER], BOTH_WAYS));
    seeds().for_each(|seed| simulate(seed, &[CONSUMER, COOPERATIVE], BOTH_WAYS));
}

#[test]
fn a_group_that_can_not_go_back_goes_on() {
    let upgrades = Migration { upgrades: true, downgrades: false };
    seeds().for_each(|seed| simulate(seed, &[CONSUMER, COOPERATIVE, COOPERATIVE], upgrades));
}
