//! Who is the producer of a transactional id.

use milena_protocol::messages::{TransactionLogKey, TransactionLogValue};
use milena_protocol::{ErrorCode, Message, Reader};
use milena_records::Batch;

use super::*;
use crate::transaction::state::{LAST_EPOCH, State, Transaction};

/// A bench whose log says that the producer 7 has the epoch given.
fn bench_at(epoch: i16, state: State, version: i16) -> Partition {
    let mut bench = bench(version);
    let known = Transaction {
        producer: at(7, epoch),
        timeout_ms: TIMEOUT_MS,
        started_ms: 0,
        partitions: if state == State::Ongoing { [("t".into(), [0].into())].into() } else { [].into() },
        ..Transaction::unborn(7).next(state, 1_000_000)
    };
    let mut records = crate::Records::new(0, 1 << 20);
    records.put(&crate::transaction::key("x"), &known.value(1), 1);
    bench.log.batches.extend(records.finish().unwrap());
    bench.restart()
}

#[test]
fn a_new_transactional_id_asks_for_a_producer_id_and_keeps_it() {
    let mut bench = bench(2);
    assert_eq!(init(&mut bench, None, None), Reply::ProducerIdWanted);
    assert_eq!(producer_of(init(&mut bench, None, Some(7))), Ok(at(7, 0)));
    assert_eq!(producer_of(init(&mut bench, None, None)), Ok(at(7, 1)));
    let mut bench = bench.restart();
    assert_eq!(producer_of(init(&mut bench, None, None)), Ok(at(7, 2)));
}

#[test]
fn records_are_kafkas() {
    let mut bench = bench(2);
    new_producer(&mut bench);
    let batch = Batch::parse(&bench.log.batches[0]).unwrap();
    assert_eq!((batch.producer_id(), batch.producer_epoch(), batch.base_sequence()), (-1, -1, -1));
    let record = batch.plain_records().unwrap().next().unwrap().unwrap();
    let (key, value) = (record.key.unwrap(), record.value.unwrap());
    let id = TransactionLogKey::decode(&mut Reader::new(&key[2..]), 0).unwrap().transactional_id;
    assert_eq!((&key[..2], &*id, &value[..2]), (&[0, 0][..], "x", &[0, 1][..]));
    let value = TransactionLogValue::decode(&mut Reader::new(&value[2..]), 1).unwrap();
    let expected = TransactionLogValue {
        producer_id: 7,
        previous_producer_id: 7,
        producer_epoch: 0,
        transaction_timeout_ms: TIMEOUT_MS,
        transaction_partitions: None,
        transaction_last_update_timestamp_ms: 1_000_000,
        transaction_start_timestamp_ms: -1,
        ..Default::default()
    };
    assert_eq!(value, expected);
}

#[test]
fn without_the_feature_records_are_older_ones() {
    let mut bench = bench(0);
    new_producer(&mut bench);
    let batch = Batch::parse(&bench.log.batches[0]).unwrap();
    let record = batch.plain_records().unwrap().next().unwrap().unwrap();
    assert_eq!(record.value.unwrap()[..2], [0, 0]);
    let mut bench = bench.restart();
    assert_eq!(describe(&mut bench), ("Empty".into(), 0, vec![]));
}

#[test]
fn a_producer_goes_on_with_its_own_epoch_and_may_ask_twice() {
    let mut bench = bench(2);
    let producer = new_producer(&mut bench);
    for _ in 0..2 {
        assert_eq!(producer_of(init(&mut bench, Some(producer), None)), Ok(at(7, 1)));
    }
    assert_eq!(producer_of(init(&mut bench, Some(at(7, 1)), None)), Ok(at(7, 2)));
    for stranger in [at(7, 0), at(7, 5), at(8, 2)] {
        assert_eq!(producer_of(init(&mut bench, Some(stranger), None)), Err(ErrorCode::PRODUCER_FENCED));
    }
}

#[test]
fn a_producer_that_has_used_up_its_epochs_gets_another_id_also_when_it_asks_twice() {
    let mut bench = bench_at(LAST_EPOCH, State::Empty, 2);
    assert_eq!(init(&mut bench, Some(at(7, LAST_EPOCH)), None), Reply::ProducerIdWanted);
    assert_eq!(producer_of(init(&mut bench, Some(at(7, LAST_EPOCH)), Some(8))), Ok(at(8, 0)));
    assert_eq!(producer_of(init(&mut bench, Some(at(7, LAST_EPOCH)), Some(9))), Ok(at(8, 0)));
    assert_eq!(producer_of(init(&mut bench, None, Some(9))), Ok(at(8, 1)));
}

#[test]
fn an_end_with_the_last_epoch_brings_another_id_when_the_markers_are_written() {
    let mut bench = bench_at(LAST_EPOCH, State::Ongoing, 2);
    let last = at(7, LAST_EPOCH);
    assert_eq!(bench.ask(end_of(last, true, 2)), Reply::ProducerIdWanted);
    let request = End { id: "x", producer: last, committed: true, client_version: 2, fresh_id: Some(8) };
    assert_eq!(producer_of(bench.ask(Request::End(request))), Ok(at(8, 0)));
    let mut bench = bench.restart();
    let ended = markers(&mut bench);
    assert_eq!(ended.producer, at(7, i16::MAX));
    write(&mut bench, &ended);
    assert_eq!(end(&mut bench, last, true), Ok(at(8, 0)));
    assert_eq!(end(&mut bench, last, false), Err(ErrorCode::INVALID_TXN_STATE));
    assert_eq!(add(&mut bench, at(8, 0), 0), Ok(()));
}

#[test]
fn an_overdue_transaction_with_the_last_epoch_asks_for_another_id() {
    let mut bench = bench_at(LAST_EPOCH, State::Ongoing, 2);
    bench.advance(TIMEOUTS_INTERVAL_MS);
    assert_eq!(bench.effects, [Effect::ProducerIdWanted(id())]);
    bench.effects.clear();
    bench.ask(Request::Abort { id: "x", fresh_id: 8 });
    let ended = markers(&mut bench);
    assert_eq!((ended.producer, ended.committed), (at(7, i16::MAX), false));
    write(&mut bench, &ended);
    assert_eq!(producer_of(init(&mut bench, None, None)), Ok(at(8, 1)));
}

#[test]
fn a_transactional_id_without_transactions_is_forgotten() {
    let mut bench = bench(2);
    new_producer(&mut bench);
    bench.advance(900_000);
    assert_eq!(list(&mut bench, &[], &[], -1), ["x"]);
    bench.advance(100_000);
    assert!(bench.runtime.engine().is_empty());
    let mut bench = bench.restart();
    assert!(list(&mut bench, &[], &[], -1).is_empty());
}

#[test]
fn a_write_that_fails_leaves_no_trace() {
    let mut bench = bench(2);
    bench.log.failure = Some(ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!(producer_of(init(&mut bench, None, Some(7))), Err(ErrorCode::NOT_COORDINATOR));
    assert!(bench.runtime.engine().is_empty());
    bench.log.failure = None;
    let producer = new_producer(&mut bench);
    bench.log.failure = Some(ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!(add(&mut bench, producer, 0), Err(ErrorCode::NOT_COORDINATOR));
    assert_eq!(describe(&mut bench), ("Empty".into(), 0, vec![]));
    bench.log.failure = None;
    assert_eq!(add(&mut bench, producer, 0), Ok(()));
}

#[test]
fn while_a_write_is_not_committed_the_transactional_id_is_busy() {
    let mut bench = bench(2);
    let producer = new_producer(&mut bench);
    bench.log.commits = false;
    let partitions = [("t".into(), 0)];
    let ticket = bench.send(Request::Add { id: "x", producer, partitions: &partitions, client_version: 2 });
    assert_eq!(bench.reply(ticket), None);
    assert_eq!(add(&mut bench, producer, 1), Err(ErrorCode::CONCURRENT_TRANSACTIONS));
    assert_eq!(producer_of(init(&mut bench, None, None)), Err(ErrorCode::CONCURRENT_TRANSACTIONS));
    assert_eq!(end(&mut bench, producer, true), Err(ErrorCode::CONCURRENT_TRANSACTIONS));
    bench.log.commits = true;
    bench.drive();
    assert_eq!(bench.reply(ticket), Some(Reply::Done(Ok(()))));
}

#[test]
fn a_record_in_a_state_that_is_never_written_can_not_be_loaded() {
    let value = TransactionLogValue { transaction_status: 6, ..Default::default() };
    assert!(Transaction::from_value(&value).is_err());
}
