//! How transactions end.

use super::*;

/// A transaction over the partitions 0 and 1.
fn open(version: i16) -> (Partition, Producer) {
    let mut bench = bench(version);
    let producer = new_producer(&mut bench);
    for partition in [0, 1] {
        assert_eq!(add(&mut bench, producer, partition), Ok(()));
    }
    (bench, producer)
}

/// A transaction that was ended that way.
fn ended(committed: bool) -> Partition {
    let (mut bench, producer) = open(2);
    assert_eq!(end(&mut bench, producer, committed), Ok(at(7, 1)));
    let told = markers(&mut bench);
    write(&mut bench, &told);
    bench
}

#[test]
fn a_transaction_is_complete_when_all_its_partitions_have_markers() {
    let (mut bench, producer) = open(2);
    assert_eq!(describe(&mut bench), ("Ongoing".into(), 0, vec![0, 1]));
    assert_eq!(end(&mut bench, producer, true), Ok(at(7, 1)));
    let told = markers(&mut bench);
    let partitions = vec![("t".to_owned(), 0), ("t".to_owned(), 1)];
    assert_eq!(told, Ended { id: id(), producer: at(7, 1), committed: true, version: 2, partitions });
    bench.ask(Request::Marked { id: "x", producer: told.producer, partitions: &[("t".into(), 1)] });
    assert_eq!(describe(&mut bench), ("PrepareCommit".into(), 1, vec![0]));
    assert_eq!(add(&mut bench, at(7, 1), 0), Err(ErrorCode::CONCURRENT_TRANSACTIONS));
    bench.advance(RETRY_MS);
    let again = markers(&mut bench);
    assert_eq!(again.partitions, [("t".to_owned(), 0)]);
    write(&mut bench, &again);
    assert_eq!(describe(&mut bench), ("CompleteCommit".into(), 1, vec![]));
}

#[test]
fn a_decision_outlives_a_restart_and_its_markers_come_again() {
    for committed in [true, false] {
        let (mut bench, producer) = open(2);
        end(&mut bench, producer, committed).unwrap();
        let before = markers(&mut bench);
        let mut bench = bench.restart();
        let after = markers(&mut bench);
        assert_eq!(after, before);
        write(&mut bench, &after);
        assert!(state(&mut bench.restart()).starts_with("Complete"));
    }
}

#[test]
fn a_decision_that_is_not_committed_has_no_markers() {
    let (mut bench, producer) = open(2);
    bench.log.commits = false;
    bench.send(end_of(producer, true, 2));
    assert!(bench.effects.is_empty());
    bench.log.commits = true;
    bench.drive();
    markers(&mut bench);
}

#[test]
fn what_is_said_of_the_markers_of_another_transaction_is_not_heard() {
    let (mut bench, producer) = open(2);
    end(&mut bench, producer, true).unwrap();
    let told = markers(&mut bench);
    write(&mut bench, &Ended { producer: at(7, 0), ..told });
    assert_eq!(state(&mut bench), "PrepareCommit");
}

#[test]
fn repetitions_and_contradictions_are_told_apart_by_the_epoch() {
    let cases = [
        // How it ended, the epoch that is named, the end that is asked for.
        ((true, 0, true), Ok(at(7, 1))),
        ((true, 0, false), Err(ErrorCode::INVALID_TXN_STATE)),
        ((true, 1, true), Err(ErrorCode::INVALID_TXN_STATE)),
        ((true, 1, false), Ok(at(7, 2))),
        ((false, 0, false), Ok(at(7, 1))),
        ((false, 0, true), Err(ErrorCode::INVALID_TXN_STATE)),
        ((false, 1, true), Err(ErrorCode::INVALID_TXN_STATE)),
        ((false, 1, false), Ok(at(7, 2))),
        ((true, 2, true), Err(ErrorCode::PRODUCER_FENCED)),
    ];
    for (case, expected) in cases {
        let (committed, epoch, asked) = case;
        assert_eq!(end(&mut ended(committed), at(7, epoch), asked), expected, "{case:?}");
    }
    assert_eq!(end(&mut ended(true), at(9, 1), true), Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING));
    assert_eq!(end(&mut bench(2), at(7, 0), true), Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING));
}

#[test]
fn a_transaction_without_partitions_can_be_aborted_but_not_committed() {
    let mut bench = bench(2);
    let producer = new_producer(&mut bench);
    assert_eq!(end(&mut bench, producer, true), Err(ErrorCode::INVALID_TXN_STATE));
    assert_eq!(end(&mut bench, producer, false), Ok(at(7, 1)));
    assert!(bench.effects.is_empty());
    assert_eq!(describe(&mut bench), ("CompleteAbort".into(), 1, vec![]));
}

#[test]
fn with_older_clients_epochs_stay() {
    for server_version in [0, 2] {
        let (mut bench, producer) = open(server_version);
        assert_eq!(producer_of(bench.ask(end_of(producer, true, 0))), Ok(producer));
        let told = markers(&mut bench);
        assert_eq!((told.producer, told.version), (producer, 0));
        write(&mut bench, &told);
        assert_eq!(producer_of(bench.ask(end_of(producer, true, 0))), Ok(producer));
        assert_eq!(producer_of(bench.ask(end_of(producer, false, 0))), Err(ErrorCode::INVALID_TXN_STATE));
        assert_eq!(producer_of(bench.ask(end_of(at(7, 1), true, 0))), Err(ErrorCode::PRODUCER_FENCED));
    }
    let mut bench = bench(0);
    let producer = new_producer(&mut bench);
    for committed in [true, false] {
        assert_eq!(producer_of(bench.ask(end_of(producer, committed, 0))), Err(ErrorCode::INVALID_TXN_STATE));
    }
}

#[test]
fn a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() {
    for version in [0, 2] {
        let (mut bench, producer) = open(version);
        bench.advance(TIMEOUTS_INTERVAL_MS);
        let told = markers(&mut bench);
        assert_eq!((told.producer, told.committed, told.version), (at(7, 1), false, version));
        write(&mut bench, &told);
        assert_eq!(state(&mut bench), "CompleteAbort");
        assert_eq!(add(&mut bench, producer, 0), Err(ErrorCode::PRODUCER_FENCED));
        assert_eq!(verify(&mut bench, producer, 0), ErrorCode::PRODUCER_FENCED);
    }
}

#[test]
fn a_transaction_without_a_timeout_stays_open() {
    let mut bench = bench(2);
    let request = Init { id: "x", timeout_ms: i32::MAX, expected: None, fresh_id: Some(7) };
    let producer = producer_of(bench.ask(Request::Init(request))).unwrap();
    add(&mut bench, producer, 0).unwrap();
    bench.advance(100 * TIMEOUTS_INTERVAL_MS);
    assert_eq!(state(&mut bench), "Ongoing");
}

#[test]
fn a_new_producer_aborts_the_open_transaction_of_its_predecessor() {
    for version in [0, 2] {
        let (mut bench, _) = open(version);
        assert_eq!(producer_of(init(&mut bench, None, None)), Err(ErrorCode::CONCURRENT_TRANSACTIONS));
        let told = markers(&mut bench);
        assert_eq!((told.producer, told.committed), (at(7, 1), false));
        assert_eq!(producer_of(init(&mut bench, None, None)), Err(ErrorCode::CONCURRENT_TRANSACTIONS));
        write(&mut bench, &told);
        assert_eq!(producer_of(init(&mut bench, None, None)), Ok(at(7, 2)));
    }
}

#[test]
fn an_end_that_can_not_be_written_down_is_tried_again() {
    let (mut bench, producer) = open(2);
    end(&mut bench, producer, true).unwrap();
    let told = markers(&mut bench);
    bench.log.failure = Some(ErrorCode::KAFKA_STORAGE_ERROR);
    write(&mut bench, &told);
    assert_eq!(state(&mut bench), "PrepareCommit");
    bench.log.failure = None;
    bench.advance(RETRY_MS);
    assert_eq!(state(&mut bench), "CompleteCommit");
}

#[test]
fn partitions_are_verified_against_those_that_were_added() {
    let (mut bench, producer) = open(2);
    let verified = |bench: &mut Partition, producer| [0, 2].map(|partition| verify(bench, producer, partition));
    assert_eq!(verified(&mut bench, producer), [ErrorCode::NONE, ErrorCode::TRANSACTION_ABORTABLE]);
    assert_eq!(verified(&mut bench, at(7, 1)), [ErrorCode::PRODUCER_FENCED; 2]);
    assert_eq!(verified(&mut bench, at(9, 0)), [ErrorCode::INVALID_PRODUCER_ID_MAPPING; 2]);
    end(&mut bench, producer, true).unwrap();
    assert_eq!(verified(&mut bench, at(7, 1)), [ErrorCode::CONCURRENT_TRANSACTIONS; 2]);
}

#[test]
fn transactions_are_listed_by_state_producer_and_age() {
    let (mut bench, _) = open(2);
    bench.advance(500);
    assert_eq!(list(&mut bench, &["Ongoing"], &[7], 499), ["x"]);
    let others: [(&[&str], &[i64], i64); 4] =
        [(&["Empty"], &[], -1), (&["Nonsense"], &[], -1), (&[], &[8], -1), (&[], &[], 500)];
    for (states, ids, age) in others {
        assert!(list(&mut bench, states, ids, age).is_empty(), "{states:?} {ids:?} {age}");
    }
}
