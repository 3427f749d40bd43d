use milena_protocol::messages::{OffsetCommitKey, OffsetCommitValue};
use milena_protocol::{DecodeError, ErrorCode};

use super::coordinator_error;
use crate::engine::{Cx, Engine, Replayed, Ticket};
use crate::test_log::{Bench, TestLog};

/// Counts its records; answers with the count.
#[derive(Default)]
struct Counter {
    replayed: usize,
    ended: Vec<(i64, bool)>,
}

enum Request {
    /// Writes so many records, of 100 bytes each.
    Write(usize),
    Read,
    Remind,
}

impl Engine for Counter {
    type Settings = ();
    type Request<'r> = Request;
    type Reply = Result<usize, ErrorCode>;
    type Timer = u8;
    type After = Ticket;
    type Effect = std::convert::Infallible;

    fn replay(&mut self, _: &Replayed<'_>) -> Result<(), DecodeError> {
        self.replayed += 1;
        Ok(())
    }

    fn replay_end_of_transaction(&mut self, producer_id: i64, committed: bool) {
        self.ended.push((producer_id, committed));
    }

    fn loaded(&mut self, _: &mut Cx<'_, '_, Self>) {}

    fn handle(&mut self, ticket: Ticket, request: Request, cx: &mut Cx<'_, '_, Self>) {
        match request {
            Request::Write(count) => {
                let mut records = cx.records();
                let key = OffsetCommitKey { group: "g".repeat(100).into(), topic: "t".into(), partition: 0 };
                (0..count).for_each(|_| records.put(&key, &OffsetCommitValue::default(), 4));
                cx.write(records, ticket);
            }
            Request::Read => cx.reply_when_committed(ticket, Ok(self.replayed)),
            Request::Remind => cx.set_timer(7, 50),
        }
    }

    fn fire(&mut self, _: u8, cx: &mut Cx<'_, '_, Self>) {
        cx.reply(Ticket(0), Ok(self.replayed));
    }

    fn settle(&mut self, ticket: Ticket, outcome: Result<(), ErrorCode>, cx: &mut Cx<'_, '_, Self>) {
        cx.reply(ticket, outcome.map(|()| self.replayed));
    }
}

fn bench() -> Bench<Counter> {
    Bench::load(TestLog::new(), ())
}

#[test]
fn a_write_is_one_batch_that_is_replayed_and_then_answered() {
    let mut bench = bench();
    assert_eq!(bench.ask(Request::Write(3)), Ok(3));
    assert_eq!((bench.log.batches.len(), bench.log.end_offset()), (1, 3));
    assert_eq!(bench.ask(Request::Write(0)), Ok(3));
    assert_eq!(bench.log.batches.len(), 1);
}

#[test]
fn answers_wait_for_what_they_rest_on_to_be_committed() {
    let mut bench = bench();
    bench.log.commits = false;
    let (write, read) = (bench.send(Request::Write(1)), bench.send(Request::Read));
    assert_eq!((bench.reply(write), bench.reply(read)), (None, None));
    bench.log.commits = true;
    bench.drive();
    assert_eq!((bench.reply(write), bench.reply(read)), (Some(Ok(1)), Some(Ok(1))));
}

#[test]
fn a_write_that_fails_changes_nothing_and_is_told_in_the_coordinators_words() {
    let mut bench = bench();
    bench.log.failure = Some(ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!(bench.ask(Request::Write(2)), Err(ErrorCode::NOT_COORDINATOR));
    assert_eq!((bench.ask(Request::Read), bench.log.end_offset()), (Ok(0), 0));
    bench.log.failure = None;
    assert_eq!(bench.ask(Request::Write(20_000)), Err(ErrorCode::UNKNOWN_SERVER_ERROR));
    assert_eq!(bench.ask(Request::Write(1)), Ok(1));
}

#[test]
fn a_restart_replays_what_was_written() {
    let mut bench = bench();
    bench.log.commits = false;
    bench.send(Request::Write(2));
    bench.send(Request::Write(1));
    let mut bench = bench.restart();
    assert_eq!((bench.runtime.engine().replayed, bench.ask(Request::Read)), (3, Ok(3)));
}

#[test]
fn timers_fire_at_their_time() {
    let mut bench = bench();
    bench.send(Request::Remind);
    bench.advance(49);
    assert_eq!(bench.reply(Ticket(0)), None);
    bench.advance(1);
    assert_eq!(bench.reply(Ticket(0)), Some(Ok(0)));
}

#[test]
fn markers_end_transactions() {
    let mut log = TestLog::new();
    for kind in [milena_records::ControlType::Commit, milena_records::ControlType::Abort] {
        let mut marker = milena_records::BatchBuilder::new().producer(9, 1, -1).transactional(true).control(true);
        marker.push_control(0, kind, &milena_records::end_transaction_marker(0));
        log.batches.push(marker.base_offset(log.end_offset()).build().unwrap());
    }
    let bench: Bench<Counter> = Bench::load(log, ());
    assert_eq!(bench.runtime.engine().ended, [(9, true), (9, false)]);
}

#[test]
fn errors_of_the_log_have_the_coordinators_names() {
    assert_eq!(coordinator_error(ErrorCode::NOT_LEADER_OR_FOLLOWER), ErrorCode::NOT_COORDINATOR);
    assert_eq!(coordinator_error(ErrorCode::NOT_ENOUGH_REPLICAS), ErrorCode::COORDINATOR_NOT_AVAILABLE);
    assert_eq!(coordinator_error(ErrorCode::INVALID_PRODUCER_EPOCH), ErrorCode::INVALID_PRODUCER_EPOCH);
}
