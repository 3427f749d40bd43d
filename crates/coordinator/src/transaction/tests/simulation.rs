//! Random lives of transactions. Producers follow the protocol, are killed, fence each other, and speak old and new
//! versions. Requests and answers are lost, late and doubled, writes fail or are not committed, clocks jump, markers can't be
//! written, and the process dies at any moment. Whatever happens:
//!
//! - no transaction is committed here and aborted there, and none has records of another;
//! - how it ended is what its producer was told, in every partition that acknowledged a record of it;
//! - in the end no transaction is open anywhere;
//! - a group's offsets are those of the last transaction that was committed.

mod client;
mod partition;
mod server;

use std::collections::{BTreeMap, BTreeSet};

use client::{Answer, Ask, Client, Request};
use server::Server;

use super::*;

const IDS: [&str; 3] = ["a", "b", "c"];
const STEPS: usize = 10_000;
const RUNS: u64 = 40;
/// Of a hundred requests or answers, so many are lost, and so many doubled.
const LOST: u32 = 8;
const DOUBLED: u32 = 8;

struct World {
    server: Server,
    rng: fastrand::Rng,
    clients: Vec<Client>,
    requests: Vec<Request>,
    answers: Vec<Answer>,
    /// How transactions ended, as their producers were told, by number.
    promised: BTreeMap<u64, bool>,
    /// Partitions that have acknowledged records of a transaction.
    acknowledged: BTreeSet<(u64, usize)>,
    next_transaction: u64,
    next_request: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let server = Server::new(&mut rng);
        Self {
            server,
            rng,
            clients: Vec::new(),
            requests: Vec::new(),
            answers: Vec::new(),
            promised: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            next_transaction: 0,
            next_request: 0,
        }
    }

    fn step(&mut self) {
        let id = IDS[self.rng.usize(..IDS.len())];
        match self.rng.u32(..1000) {
            0..2 => self.succeed(id),
            2..250 => self.act(id),
            250..520 => self.deliver_request(),
            520..800 => self.deliver_answer(),
            800..960 => self.server.work(&mut self.rng, true),
            960..964 => self.server.let_time_pass(&mut self.rng),
            964..968 => self.server.toggle_faults(&mut self.rng),
            968..970 => self.restart(),
            970 => self.server.jump(&mut self.rng),
            _ => {}
        }
        self.collect_answers();
    }

    /// A new client takes an id over; the one before may not be dead.
    fn succeed(&mut self, id: &'static str) {
        let dies = self.rng.bool();
        self.clients.iter_mut().filter(|client| client.id == id && dies).for_each(|client| client.is_dead = true);
        let version = if self.server.version == 0 || self.rng.u32(..4) == 0 { 0 } else { 2 };
        self.clients.push(Client::new(id, version));
    }

    /// A client sends something: what it does next, or again what was not answered.
    fn act(&mut self, id: &'static str) {
        let living = self.clients.iter().enumerate().filter(|(_, client)| client.id == id && !client.is_dead);
        let Some(at) = self.rng.choice(living.map(|(at, _)| at).collect::<Vec<_>>()) else { return self.succeed(id) };
        let client = &mut self.clients[at];
        let ask = match client.waiting.clone() {
            // It is patient.
            Some((number, _)) if number > 0 && self.rng.u32(..32) > 0 => return,
            Some((_, ask)) => ask,
            None => client.next(&mut self.rng, &mut self.next_transaction),
        };
        self.next_request += 1;
        client.waiting = Some((self.next_request, ask.clone()));
        // Before version 2 nothing tells what comes late from what belongs to the next transaction.
        if client.version < 2 {
            self.requests.retain(|request| request.client != at);
            self.server.forget(at);
        }
        self.requests.push(Request {
            client: at,
            number: self.next_request,
            id: client.id,
            version: client.version,
            ask,
        });
    }

    fn deliver_request(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.requests.len());
        let request = match self.rng.u32(..100) {
            chance if chance < LOST => {
                self.requests.swap_remove(at);
                return;
            }
            chance if chance < LOST + DOUBLED => self.requests[at].clone(),
            _ => self.requests.swap_remove(at),
        };
        self.server.take(request);
    }

    fn collect_answers(&mut self) {
        self.answers.extend(self.server.take_answers());
    }

    fn deliver_answer(&mut self) {
        if self.answers.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.answers.len());
        let answer = self.answers.swap_remove(at);
        if self.rng.u32(..100) < LOST {
            return;
        }
        let client = &mut self.clients[answer.client];
        let Some((_, ask)) = client.waiting.take_if(|(number, _)| *number == answer.number && !client.is_dead) else {
            return;
        };
        match (&ask, answer.outcome) {
            (Ask::Write { transaction, partition, .. }, Ok(_)) => {
                self.acknowledged.insert((*transaction, *partition));
            }
            (Ask::End { transaction, committed, .. }, Ok(_)) => {
                let before = self.promised.insert(*transaction, *committed);
                assert_eq!(before, None, "transaction {transaction} has ended twice");
            }
            _ => {}
        }
        client.learn(&ask, answer.outcome);
    }

    /// The process dies and another one begins. What was on its way to and from it is lost.
    fn restart(&mut self) {
        self.requests.clear();
        self.answers.clear();
        self.server.restart(&mut self.rng);
    }

    /// All faults end, nobody sends any more, and enough time passes for everything to end.
    fn heal(&mut self) {
        self.requests.clear();
        self.server.heal(&mut self.rng);
    }

    fn check(&mut self) {
        let ends = self.server.ends();
        let mut by_transaction: BTreeMap<u64, BTreeSet<bool>> = BTreeMap::new();
        for ((transaction, _), committed) in &ends {
            by_transaction.entry(*transaction).or_default().insert(*committed);
        }
        for (transaction, ends) in by_transaction {
            assert_eq!(ends.len(), 1, "transaction {transaction} is torn");
        }
        for (transaction, partition) in &self.acknowledged {
            let end = ends.get(&(*transaction, *partition));
            assert!(end.is_some(), "transaction {transaction} has lost its records in partition {partition}");
            if let Some(promised) = self.promised.get(transaction) {
                assert_eq!(
                    end,
                    Some(promised),
                    "transaction {transaction} in partition {partition} did not end as was said"
                );
            }
        }
        self.server.check();
    }
}

#[test]
fn no_transaction_is_torn_lost_or_open_for_ever() {
    let seeds = match std::env::var("MILENA_SEED") {
        Ok(seed) => vec![seed.parse().expect("MILENA_SEED is a number")],
        Err(_) => (0..RUNS * milena_testkit::rounds()).collect(),
    };
    let (mut committed, mut aborted) = (0, 0);
    for seed in seeds {
        println!("MILENA_SEED={seed}");
        let mut world = World::new(seed);
        (0..STEPS).for_each(|_| world.step());
        world.heal();
        world.check();
        committed += world.promised.values().filter(|committed| **committed).count();
        aborted += world.promised.values().filter(|committed| !**committed).count();
    }
    assert!(committed > 0 && aborted > 0, "{committed} committed and {aborted} aborted transactions are too few");
}
