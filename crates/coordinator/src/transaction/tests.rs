//! Scenarios of transactions over a log in memory and a clock that stands still until it is moved.

mod ends;
mod producers;
mod simulation;

use std::sync::Arc;

use milena_protocol::ErrorCode;

use super::{Effect, End, Ended, Init, ListFilter, Producer, Reply, Request, TransactionSettings, Transactions};
use crate::test_log::{Bench, TestLog};

type Partition = Bench<Transactions>;

const TIMEOUT_MS: i32 = 1_000;
/// How often transactions that take too long are looked for.
const TIMEOUTS_INTERVAL_MS: i64 = 10_000;
const RETRY_MS: i64 = 500;

fn settings(version: i16) -> TransactionSettings {
    TransactionSettings {
        version,
        timeouts_interval_ms: 10_000,
        id_expiration_ms: 1_000_000,
        expiry_interval_ms: 100_000,
    }
}

fn bench(version: i16) -> Partition {
    Bench::load(TestLog::new(), settings(version))
}

fn producer_of(reply: Reply) -> Result<Producer, ErrorCode> {
    match reply {
        Reply::Producer(producer) => producer,
        other => panic!("{other:?}"),
    }
}

fn at(id: i64, epoch: i16) -> Producer {
    Producer { id, epoch }
}

fn init(bench: &mut Partition, expected: Option<Producer>, fresh_id: Option<i64>) -> Reply {
    bench.ask(Request::Init(Init { id: "x", timeout_ms: TIMEOUT_MS, expected, fresh_id }))
}

/// A producer with a new transactional id: 7, in epoch 0.
fn new_producer(bench: &mut Partition) -> Producer {
    let producer = producer_of(init(bench, None, Some(7)));
    assert_eq!(producer, Ok(at(7, 0)));
    producer.unwrap()
}

fn add(bench: &mut Partition, producer: Producer, partition: i32) -> Result<(), ErrorCode> {
    let partitions = [("t".into(), partition)];
    match bench.ask(Request::Add { id: "x", producer, partitions: &partitions, client_version: 2 }) {
        Reply::Done(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

fn verify(bench: &mut Partition, producer: Producer, partition: i32) -> ErrorCode {
    let partitions = [("t".into(), partition)];
    match bench.ask(Request::Verify { id: "x", producer, partitions: &partitions }) {
        Reply::Verified(verified) => verified[0],
        other => panic!("{other:?}"),
    }
}

fn end_of(producer: Producer, committed: bool, client_version: i16) -> Request<'static> {
    Request::End(End { id: "x", producer, committed, client_version, fresh_id: None })
}

fn end(bench: &mut Partition, producer: Producer, committed: bool) -> Result<Producer, ErrorCode> {
    producer_of(bench.ask(end_of(producer, committed, 2)))
}

/// The only effect, which is to write markers.
fn markers(bench: &mut Partition) -> Ended {
    assert_eq!(bench.effects.len(), 1, "{:?}", bench.effects);
    match bench.effects.remove(0) {
        Effect::WriteMarkers(ended) => ended,
        other => panic!("{other:?}"),
    }
}

/// Says that all markers of a transaction are written.
fn write(bench: &mut Partition, ended: &Ended) {
    let partitions: Vec<_> = ended.partitions.iter().map(|(topic, at)| (topic.as_str().into(), *at)).collect();
    bench.ask(Request::Marked { id: &ended.id, producer: ended.producer, partitions: &partitions });
}

/// State, epoch and partitions, as DescribeTransactions tells them.
fn describe(bench: &mut Partition) -> (String, i16, Vec<i32>) {
    let Reply::Described(told) = bench.ask(Request::Describe("x")) else { panic!("another answer") };
    let partitions = told.topics.iter().flat_map(|topic| topic.partitions.iter().copied()).collect();
    (told.transaction_state.to_string(), told.producer_epoch, partitions)
}

fn state(bench: &mut Partition) -> String {
    describe(bench).0
}

/// The ids that ListTransactions names.
fn list(bench: &mut Partition, states: &[&str], producer_ids: &[i64], longer_than_ms: i64) -> Vec<String> {
    let (states, producer_ids) = (states.iter().copied().collect(), producer_ids.iter().copied().collect());
    let filter = ListFilter { states: &states, producer_ids: &producer_ids, longer_than_ms, admits: &|_| true };
    let Reply::Listed(listed) = bench.ask(Request::List(filter)) else { panic!("another answer") };
    listed.iter().map(|one| one.transactional_id.to_string()).collect()
}

fn id() -> Arc<str> {
    "x".into()
}
