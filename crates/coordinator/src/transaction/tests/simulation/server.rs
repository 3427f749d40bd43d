//! The process that has everything: the coordinator, the partitions, and the coordinator of a group that keeps its offsets
//! in one of them.

use std::collections::{BTreeMap, VecDeque};

use milena_protocol::ErrorCode;
use milena_protocol::messages::OffsetCommitRequest;
use milena_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use milena_records::{Batch, BatchMut, EndTransaction};

use super::client::{Answer, Ask, Request as Asked};
use super::partition::{GROUP, NO_SEQUENCE, PARTITIONS, Partition as Data, Write};
use super::*;
use crate::engine::Ticket;
use crate::group::{self, Groups};
use crate::transaction::Request;
use crate::transaction::state::{LAST_EPOCH, State, Transaction};

/// What is in the middle of being answered.
enum Pending {
    /// The coordinator has it.
    Coordinator(Ticket),
    /// The coordinator has said that the partition belongs to the transaction; the write is next.
    Append(Option<u64>),
}

/// The process.
pub(super) struct Server {
    pub(super) version: i16,
    bench: Option<Partition>,
    group: Option<Bench<Groups>>,
    partitions: [Data; PARTITIONS],
    /// Requests that are not answered.
    pending: Vec<(Asked, Pending)>,
    answers: Vec<Answer>,
    /// Markers that are to be written.
    effects: VecDeque<Effect>,
    next_producer_id: i64,
    /// So many batches of the coordinator's log are sure to be committed.
    committed: usize,
    /// Offsets that open transactions would commit, by producer id: whose, and what.
    uncommitted_offsets: BTreeMap<i64, BTreeMap<&'static str, u64>>,
    offsets: BTreeMap<&'static str, u64>,
}

impl Server {
    /// With the level of transactions that chance gives it; producers may have few epochs left.
    pub(super) fn new(rng: &mut fastrand::Rng) -> Self {
        let version = [0, 2, 2][rng.usize(..3)];
        let mut bench = bench(version);
        if rng.u32(..3) == 0 {
            bench = exhausted(bench, LAST_EPOCH - rng.i16(0..6));
        }
        Self {
            version,
            committed: bench.log.batches.len(),
            bench: Some(bench),
            group: Some(Bench::load(TestLog::new(), group::tests::settings())),
            partitions: Default::default(),
            pending: Vec::new(),
            answers: Vec::new(),
            effects: VecDeque::new(),
            next_producer_id: 100,
            uncommitted_offsets: BTreeMap::new(),
            offsets: BTreeMap::new(),
        }
    }

    fn bench(&mut self) -> &mut Partition {
        self.bench.as_mut().expect("it is only away during a restart")
    }

    fn group(&mut self) -> &mut Bench<Groups> {
        self.group.as_mut().expect("it is only away during a restart")
    }

    fn fresh_id(&mut self) -> i64 {
        self.next_producer_id += 1;
        self.next_producer_id
    }

    /// Takes a request.
    pub(super) fn take(&mut self, asked: Asked) {
        let Asked { id, version, .. } = asked;
        let fresh_id = Some(self.fresh_id());
        let ticket = match asked.ask {
            Ask::Init { expected } => {
                self.bench().send(Request::Init(Init { id, timeout_ms: TIMEOUT_MS, expected, fresh_id }))
            }
            Ask::Add { producer, partition } => {
                let partitions = [name(partition)];
                self.bench().send(Request::Add { id, producer, partitions: &partitions, client_version: 0 })
            }
            Ask::End { producer, committed, .. } => {
                self.bench().send(Request::End(End { id, producer, committed, client_version: version, fresh_id }))
            }
            Ask::Write { producer, partition, .. } => {
                let Some(guard) = self.partitions[partition].begin(producer) else {
                    return self.pending.push((asked, Pending::Append(None)));
                };
                let allowed = self.verify(&asked, producer, partition);
                return match allowed {
                    Ok(()) => self.pending.push((asked, Pending::Append(Some(guard)))),
                    Err(error) => self.answer(&asked, Err(error)),
                };
            }
        };
        self.pending.push((asked, Pending::Coordinator(ticket)));
        self.settle();
    }

    /// Whether a transaction may begin in a partition.
    fn verify(&mut self, asked: &Asked, producer: Producer, partition: usize) -> Result<(), ErrorCode> {
        let (id, partitions) = (asked.id, [name(partition)]);
        let request = match asked.version {
            2 => Request::Add { id, producer, partitions: &partitions, client_version: 2 },
            _ => Request::Verify { id, producer, partitions: &partitions },
        };
        let ticket = self.bench().send(request);
        match self.bench().reply(ticket) {
            Some(Reply::Done(outcome)) => outcome,
            Some(Reply::Verified(verified)) if verified[0] == ErrorCode::NONE => Ok(()),
            Some(Reply::Verified(verified)) => Err(verified[0]),
            Some(other) => panic!("{other:?}"),
            None => Err(ErrorCode::CONCURRENT_TRANSACTIONS),
        }
    }

    fn answer(&mut self, asked: &Asked, outcome: Result<Producer, ErrorCode>) {
        self.answers.push(Answer { client: asked.client, number: asked.number, outcome });
    }

    /// Takes in what the coordinator has answered and wants done.
    fn settle(&mut self) {
        let bench = self.bench.as_mut().expect("it is only away during a restart");
        self.effects.extend(bench.effects.drain(..));
        if bench.log.commits {
            self.committed = bench.log.batches.len();
        }
        let pending = std::mem::take(&mut self.pending);
        for (asked, how) in pending {
            let Pending::Coordinator(ticket) = how else {
                self.pending.push((asked, how));
                continue;
            };
            match self.bench().reply(ticket) {
                Some(Reply::Producer(outcome)) => self.answer(&asked, outcome),
                Some(Reply::Done(outcome)) => self.answer(&asked, outcome.map(|()| at(-1, -1))),
                Some(other) => panic!("{other:?}"),
                None => self.pending.push((asked, Pending::Coordinator(ticket))),
            }
        }
    }

    pub(super) fn take_answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.answers)
    }

    /// Forgets what a client has asked for.
    pub(super) fn forget(&mut self, client: usize) {
        self.pending.retain(|(asked, _)| asked.client != client);
    }

    /// Goes on with something: a write, or markers.
    pub(super) fn work(&mut self, rng: &mut fastrand::Rng, may_fail: bool) {
        let writes: Vec<_> =
            (0..self.pending.len()).filter(|at| matches!(self.pending[*at].1, Pending::Append(_))).collect();
        match rng.choice(writes) {
            Some(at) if rng.bool() => self.append(at),
            _ => self.perform(rng, may_fail),
        }
        self.settle();
    }

    fn append(&mut self, index: usize) {
        let (asked, Pending::Append(guard)) = self.pending.swap_remove(index) else { return };
        let Ask::Write { producer, transaction, partition, sequence } = asked.ask else { return };
        let sequence = if partition == GROUP { NO_SEQUENCE } else { sequence };
        let outcome = self.partitions[partition].append(&Write { producer, transaction, sequence }, guard);
        if partition == GROUP && outcome.is_ok() {
            self.commit_offset(asked.id, producer, transaction);
        }
        self.answer(&asked, outcome.map(|_| at(-1, -1)));
    }

    /// The group's offset of a partition that has the transactional id's number becomes that of the transaction.
    fn commit_offset(&mut self, id: &'static str, producer: Producer, transaction: u64) {
        let request = OffsetCommitRequest {
            group_id: "g".into(),
            generation_id_or_member_epoch: -1,
            topics: vec![OffsetCommitRequestTopic {
                name: "t".into(),
                partitions: vec![OffsetCommitRequestPartition {
                    partition_index: partition_of(id),
                    committed_offset: transaction as i64,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        self.group().ask(group::Request::CommitInTransaction { request, version: 5, producer });
        self.uncommitted_offsets.entry(producer.id).or_default().insert(id, transaction);
    }

    /// Does what the coordinator wants done first.
    fn perform(&mut self, rng: &mut fastrand::Rng, may_fail: bool) {
        let ended = match self.effects.pop_front() {
            Some(Effect::WriteMarkers(ended)) => ended,
            Some(Effect::ProducerIdWanted(id)) => {
                let fresh_id = self.fresh_id();
                self.bench().send(Request::Abort { id: &id, fresh_id });
                return;
            }
            None => return,
        };
        let mut done = Vec::new();
        for (topic, partition) in &ended.partitions {
            if may_fail && rng.u32(..4) == 0 {
                continue;
            }
            self.mark(*partition as usize, &ended);
            done.push((topic.as_str().into(), *partition));
        }
        if may_fail && rng.u32(..6) == 0 {
            // The word gets lost with the process.
            return self.restart(rng);
        }
        self.bench().send(Request::Marked { id: &ended.id, producer: ended.producer, partitions: &done });
    }

    /// Writes a marker. One that is refused is not needed: the transaction is over there.
    fn mark(&mut self, partition: usize, ended: &Ended) {
        if !self.partitions[partition].mark(ended) || partition != GROUP {
            return;
        }
        let Producer { id, epoch } = ended.producer;
        let end = EndTransaction { committed: ended.committed, coordinator_epoch: 0 };
        let mut batch = end.marker(id, epoch, 0).build().expect("a marker");
        let bench = self.group();
        BatchMut::parse(&mut batch).expect("a marker").set_base_offset(bench.log.end_offset());
        bench.log.batches.push(batch);
        let end_offset = bench.log.end_offset();
        bench.runtime.transaction_ended(id, ended.committed, end_offset);
        bench.drive();
        let offsets = self.uncommitted_offsets.remove(&id).unwrap_or_default();
        if ended.committed {
            self.offsets.extend(offsets);
        }
    }

    pub(super) fn let_time_pass(&mut self, rng: &mut fastrand::Rng) {
        let ms = [1, RETRY_MS, 2 * TIMEOUTS_INTERVAL_MS][rng.usize(..3)];
        self.bench().advance(ms);
        self.settle();
    }

    /// The wall clock is set.
    pub(super) fn jump(&mut self, rng: &mut fastrand::Rng) {
        let ms = [-2_000_000, -1_500, 1_500, 2_000_000][rng.usize(..4)];
        self.bench().log.now.wall_ms += ms;
    }

    pub(super) fn toggle_faults(&mut self, rng: &mut fastrand::Rng) {
        let (fails, commits) = (rng.u32(..3) == 0, rng.u32(..3) > 0);
        self.settle();
        let log = &mut self.bench().log;
        log.failure = fails.then_some(ErrorCode::KAFKA_STORAGE_ERROR);
        log.commits = commits;
        self.bench().drive();
        self.settle();
    }

    /// Only what is committed is sure to survive.
    pub(super) fn restart(&mut self, rng: &mut fastrand::Rng) {
        self.pending.clear();
        self.answers.clear();
        self.effects.clear();
        self.partitions.iter_mut().for_each(Data::restart);
        self.group = self.group.take().map(Bench::restart);
        let mut bench = self.bench.take().expect("there is one restart at a time");
        let written = bench.log.batches.len();
        let sure = if bench.log.commits { written } else { self.committed };
        bench.log.batches.truncate(rng.usize(sure..=written));
        bench.log.failure = None;
        self.bench = Some(bench.restart());
        self.settle();
    }

    /// All faults end, and enough time passes for everything to end.
    pub(super) fn heal(&mut self, rng: &mut fastrand::Rng) {
        self.pending.clear();
        let log = &mut self.bench().log;
        (log.failure, log.commits) = (None, true);
        self.bench().drive();
        for _ in 0..6 {
            self.settle();
            while !self.effects.is_empty() {
                self.perform(rng, false);
                self.settle();
            }
            // Also a clock that was set back reaches the end of every transaction.
            self.bench().log.now.wall_ms += 4_000_000;
            self.bench().advance(2 * TIMEOUTS_INTERVAL_MS);
        }
    }

    /// How transactions ended, by number and partition.
    pub(super) fn ends(&self) -> BTreeMap<(u64, usize), bool> {
        let of = |(at, partition): (usize, &Data)| {
            partition.ends.iter().map(|(transaction, end)| ((*transaction, at), *end)).collect::<Vec<_>>()
        };
        self.partitions.iter().enumerate().flat_map(of).collect()
    }

    /// Nothing is open, and the group has the offsets of what was committed, also for the next process.
    pub(super) fn check(&mut self) {
        for (at, partition) in self.partitions.iter().enumerate() {
            let open = partition.open();
            assert!(open.is_empty(), "transactions {open:?} are open for ever in partition {at}");
        }
        for _ in 0..2 {
            for id in IDS {
                let expected = self.offsets.get(id).map_or(-1, |transaction| *transaction as i64);
                let offset = group::tests::fetch(self.group(), partition_of(id));
                assert_eq!(offset, expected, "the offset of {id}");
            }
            self.group = self.group.take().map(Bench::restart);
        }
    }
}

fn name(partition: usize) -> (milena_protocol::Str<'static>, i32) {
    ("t".into(), partition as i32)
}

/// Number of a transactional id.
fn partition_of(id: &str) -> i32 {
    IDS.iter().position(|known| *known == id).map_or(-1, |at| at as i32)
}

/// With producers that have this epoch already.
fn exhausted(mut bench: Partition, epoch: i16) -> Partition {
    for (number, id) in (0..).zip(IDS) {
        let known = Transaction {
            producer: at(number, epoch),
            timeout_ms: TIMEOUT_MS,
            ..Transaction::unborn(number).next(State::CompleteCommit, 1_000_000)
        };
        let mut records = crate::Records::new(0, 1 << 20);
        records.put(&crate::transaction::key(id), &known.value(1), 1);
        for mut batch in records.finish().expect("a short record") {
            let end = bench.log.batches.last().map_or(0, |batch| Batch::parse(batch).expect("a batch").next_offset());
            BatchMut::parse(&mut batch).expect("a batch").set_base_offset(end);
            bench.log.batches.push(batch);
        }
    }
    bench.restart()
}
