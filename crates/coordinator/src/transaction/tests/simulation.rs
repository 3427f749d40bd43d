//! Random lives of transactions: producers and their zombies, writes that fail or are not committed, markers that can't be
//! written, and a restart at any moment. Whatever happens, no transaction is committed here and aborted there, what was
//! answered is true, and in the end no partition has an open transaction.

use std::collections::{BTreeMap, BTreeSet};

use milena_protocol::ErrorCode;

use super::*;

const IDS: [&str; 3] = ["a", "b", "c"];
const PARTITIONS: i32 = 4;
const STEPS: usize = 300;
const RUNS: u64 = 40;

/// What a client of a transactional id believes.
#[derive(Clone, Copy)]
struct Client {
    producer: Producer,
    /// Number of its transaction.
    transaction: u64,
}

struct World {
    bench: Option<Partition>,
    rng: fastrand::Rng,
    version: i16,
    clients: BTreeMap<&'static str, Client>,
    /// Clients that have a successor and do not know it.
    zombies: Vec<(&'static str, Client)>,
    /// Open transactions of each partition, by producer id: epoch and number.
    open: BTreeMap<(i32, i64), (i16, u64)>,
    /// How transactions ended, by number.
    ends: BTreeMap<u64, BTreeSet<bool>>,
    /// Ends that were answered.
    promised: BTreeMap<u64, bool>,
    next_transaction: u64,
    next_producer_id: i64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let version = [0, 2][rng.usize(..2)];
        Self {
            bench: Some(bench(version)),
            rng,
            version,
            clients: BTreeMap::new(),
            zombies: Vec::new(),
            open: BTreeMap::new(),
            ends: BTreeMap::new(),
            promised: BTreeMap::new(),
            next_transaction: 0,
            next_producer_id: 0,
        }
    }

    fn bench(&mut self) -> &mut Partition {
        self.bench.as_mut().expect("it is only away during a restart")
    }

    fn step(&mut self) {
        match self.rng.u32(..100) {
            0..10 => self.init(),
            10..55 => self.produce(),
            55..75 => self.end(),
            75..80 => self.let_time_pass(),
            80..85 => self.toggle_faults(),
            85..90 => self.restart(),
            _ => {}
        }
        if self.rng.u32(..3) > 0 {
            self.do_effects(true);
        }
    }

    fn answer(&mut self, request: Request<'_>) -> Option<Reply> {
        let bench = self.bench();
        let ticket = bench.send(request);
        bench.reply(ticket)
    }

    fn init(&mut self) {
        let id = IDS[self.rng.usize(..IDS.len())];
        let before = self.clients.get(id).copied();
        let expected = before.filter(|_| self.rng.bool()).map(|client| client.producer);
        self.next_producer_id += 1;
        let fresh_id = Some(self.next_producer_id);
        let request = Request::Init(Init { id, timeout_ms: TIMEOUT_MS, expected, fresh_id });
        if let Some(Reply::Producer(Ok(producer))) = self.answer(request) {
            self.zombies.extend(before.map(|client| (id, client)));
            self.begin(id, producer);
        }
    }

    fn begin(&mut self, id: &'static str, producer: Producer) {
        self.next_transaction += 1;
        self.clients.insert(id, Client { producer, transaction: self.next_transaction });
    }

    /// A client, which may be one that has a successor.
    fn client(&mut self) -> Option<(&'static str, Client)> {
        if !self.zombies.is_empty() && self.rng.u32(..4) == 0 {
            return Some(self.zombies[self.rng.usize(..self.zombies.len())]);
        }
        let id = IDS[self.rng.usize(..IDS.len())];
        self.clients.get(id).map(|client| (id, *client))
    }

    /// A batch is written if its transaction is open in the partition already, or the coordinator knows of it.
    fn produce(&mut self) {
        let Some((id, Client { producer, transaction })) = self.client() else { return };
        let partition = self.rng.i32(..PARTITIONS);
        let place = (partition, producer.id);
        if self.open.contains_key(&place) {
            return;
        }
        let partitions = [("t".into(), partition)];
        let request = Request::Add { id, producer, partitions: &partitions, client_version: self.version };
        let is_added = match self.rng.bool() {
            true => matches!(self.answer(request), Some(Reply::Done(Ok(())))),
            false => {
                let request = Request::Verify { id, producer, partitions: &partitions };
                self.answer(request) == Some(Reply::Verified(vec![ErrorCode::NONE]))
            }
        };
        if is_added {
            self.open.insert(place, (producer.epoch, transaction));
        }
    }

    fn end(&mut self) {
        let Some((id, client)) = self.client() else { return };
        let committed = self.rng.bool();
        let producer = client.producer;
        let request = End { id, producer, committed, client_version: self.version, fresh_id: None };
        let Some(Reply::Producer(Ok(producer))) = self.answer(Request::End(request)) else { return };
        let is_current = self.clients.get(id).is_some_and(|known| known.transaction == client.transaction);
        if is_current {
            self.promised.insert(client.transaction, committed);
            self.begin(id, producer);
        }
    }

    fn let_time_pass(&mut self) {
        let ms = [1, RETRY_MS, 2 * TIMEOUTS_INTERVAL_MS][self.rng.usize(..3)];
        self.bench().advance(ms);
    }

    fn toggle_faults(&mut self) {
        let (fails, commits) = (self.rng.u32(..3) == 0, self.rng.bool());
        let log = &mut self.bench().log;
        log.failure = fails.then_some(ErrorCode::KAFKA_STORAGE_ERROR);
        log.commits = commits;
        self.bench().drive();
    }

    fn restart(&mut self) {
        self.bench = self.bench.take().map(Bench::restart);
    }

    fn do_effects(&mut self, may_fail: bool) {
        for effect in std::mem::take(&mut self.bench().effects) {
            let Effect::WriteMarkers(ended) = effect else { continue };
            let mut done = Vec::new();
            for (topic, partition) in &ended.partitions {
                if may_fail && self.rng.u32(..3) == 0 {
                    continue;
                }
                self.mark(*partition, &ended);
                done.push((topic.as_str().into(), *partition));
            }
            let request = Request::Marked { id: &ended.id, producer: ended.producer, partitions: &done };
            if !may_fail || self.rng.u32(..5) > 0 {
                self.answer(request);
            } else {
                // The word gets lost with the process.
                self.restart();
                return;
            }
        }
    }

    /// A marker ends what is open, unless that is a later transaction than its own.
    fn mark(&mut self, partition: i32, ended: &Ended) {
        let place = (partition, ended.producer.id);
        let Some((epoch, transaction)) = self.open.get(&place).copied() else { return };
        if epoch < ended.producer.epoch || (ended.version < 2 && epoch == ended.producer.epoch) {
            self.open.remove(&place);
            self.ends.entry(transaction).or_default().insert(ended.committed);
        }
    }

    /// All faults end, and enough time passes for everything to end.
    fn heal(&mut self) {
        let log = &mut self.bench().log;
        (log.failure, log.commits) = (None, true);
        self.bench().drive();
        for _ in 0..4 {
            self.do_effects(false);
            self.bench().advance(2 * TIMEOUTS_INTERVAL_MS);
        }
        self.do_effects(false);
    }

    fn check(&self) {
        assert!(self.open.is_empty(), "transactions are open for ever: {:?}", self.open);
        for (transaction, ends) in &self.ends {
            assert_eq!(ends.len(), 1, "transaction {transaction} is torn");
            if let Some(promised) = self.promised.get(transaction) {
                assert!(ends.contains(promised), "transaction {transaction} did not end as was said");
            }
        }
    }
}

#[test]
fn no_transaction_is_torn_lost_or_open_for_ever() {
    let seeds = match std::env::var("TRANSACTIONS_SEED") {
        Ok(seed) => vec![seed.parse().expect("TRANSACTIONS_SEED is a number")],
        Err(_) => (0..RUNS).collect(),
    };
    let mut ended = 0;
    for seed in seeds {
        println!("TRANSACTIONS_SEED={seed}");
        let mut world = World::new(seed);
        (0..STEPS).for_each(|_| world.step());
        world.heal();
        world.check();
        ended += world.ends.len();
    }
    assert!(ended > 0, "nothing was tried");
}
