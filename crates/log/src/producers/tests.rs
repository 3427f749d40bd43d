use super::*;

/// A batch of producer 7 at sequence `base_sequence`, as the next one at `base_offset`.
fn sent(epoch: i16, base_sequence: i32, count: i64, base_offset: i64) -> ProducerBatch {
    ProducerBatch {
        producer_id: 7,
        epoch,
        base_sequence,
        base_offset,
        last_offset: base_offset + count - 1,
        timestamp: 1000 + base_offset,
        content: Content::Plain,
    }
}

/// Whether a batch may follow when transactions need no verification.
fn judged(producers: &Producers, batch: &ProducerBatch) -> Result<(), Unwritten> {
    producers.judge(batch, false, None)
}

/// Judges and writes batches one after the other, at consecutive offsets.
fn outcomes(given: &[(i16, i32, i64)]) -> Vec<Result<i64, Unwritten>> {
    let (mut producers, mut next) = (Producers::default(), 0);
    let mut outcomes = Vec::new();
    for &(epoch, sequence, count) in given {
        let batch = sent(epoch, sequence, count, next);
        outcomes.push(judged(&producers, &batch).map(|()| {
            producers.apply(&batch);
            next += count;
            batch.base_offset
        }));
    }
    outcomes
}

fn duplicate(first_offset: i64) -> Result<i64, Unwritten> {
    Err(Unwritten::Duplicate { first_offset, timestamp: 1000 + first_offset })
}

const GAP: Result<i64, Unwritten> = Err(Unwritten::OutOfOrderSequence);
const FENCED: Result<i64, Unwritten> = Err(Unwritten::InvalidProducerEpoch);

#[test]
fn an_unknown_producer_may_begin_anywhere() {
    assert_eq!(outcomes(&[(3, 5, 1), (3, 6, 1), (3, 5, 3)]), [Ok(0), Ok(1), GAP]);
}

#[test]
fn the_next_sequence_must_follow_and_a_gap_changes_nothing() {
    assert_eq!(outcomes(&[(0, 0, 1), (0, 2, 1), (0, 1, 2), (0, 3, 1)]), [Ok(0), GAP, Ok(1), Ok(3)]);
}

#[test]
fn one_of_the_last_five_batches_again_is_a_duplicate_and_an_older_one_is_out_of_order() {
    let six: Vec<_> = (0..6).map(|sequence| (0, sequence, 1)).collect();
    let again = outcomes(&[&six[..], &[(0, 0, 1), (0, 1, 1), (0, 5, 1)]].concat());
    assert_eq!(again[6..], [GAP, duplicate(1), duplicate(5)]);
}

#[test]
fn overlaps_that_are_longer_or_shorter_are_out_of_order() {
    assert_eq!(outcomes(&[(0, 0, 2), (0, 0, 3), (0, 0, 1), (0, 1, 1)]), [Ok(0), GAP, GAP, GAP]);
}

#[test]
fn a_higher_epoch_begins_at_zero_and_a_lower_one_is_fenced_with_its_duplicates() {
    assert_eq!(outcomes(&[(0, 0, 1), (1, 5, 1), (1, 0, 1), (0, 0, 1), (0, 1, 1)]), [Ok(0), GAP, Ok(1), FENCED, FENCED]);
}

#[test]
fn zero_follows_the_largest_sequence_also_inside_of_a_batch() {
    assert_eq!(
        outcomes(&[(0, i32::MAX, 1), (0, 0, 1), (0, 1, 1), (0, i32::MAX, 1)]),
        [Ok(0), Ok(1), Ok(2), duplicate(0)]
    );
    assert_eq!(outcomes(&[(0, i32::MAX - 1, 4), (0, i32::MAX - 1, 4), (0, 2, 1)]), [Ok(0), duplicate(0), Ok(4)]);
}

#[test]
fn batches_of_the_same_append_count_before_they_are_written() {
    let mut producers = Producers::default();
    producers.begin_append();
    producers.apply(&sent(0, 0, 1, 0));
    producers.admit(&sent(0, 1, 1, 1));
    assert_eq!(judged(&producers, &sent(0, 1, 1, 2)), Err(Unwritten::Duplicate { first_offset: 1, timestamp: 1001 }));
    assert_eq!(judged(&producers, &sent(0, 2, 1, 2)), Ok(()));
    producers.begin_append();
    assert_eq!(judged(&producers, &sent(0, 2, 1, 1)), Err(Unwritten::OutOfOrderSequence));
}

#[test]
fn a_producer_expires_by_its_last_batch_unless_its_transaction_is_open() {
    let mut producers = Producers::default();
    producers.apply(&sent(0, 0, 1, 0));
    producers.apply(&ProducerBatch { producer_id: 8, content: Content::Transactional, ..sent(0, 0, 1, 1) });
    producers.expire(1099, 100);
    assert_eq!(producers.states().count(), 2);
    producers.expire(1100, 100);
    assert_eq!(producers.states().map(|state| state.producer_id).collect::<Vec<_>>(), [8]);
    assert_eq!(judged(&producers, &sent(0, 44, 1, 2)), Ok(()), "forgotten");
}

#[test]
fn a_snapshot_knows_the_last_batch_of_each_producer() {
    let mut producers = Producers::default();
    (0..3).for_each(|at| _ = producers.apply(&sent(2, at * 2, 2, i64::from(at) * 2)));
    let restored = Producers::from_states(producers.states());
    assert_eq!(restored.states().collect::<Vec<_>>(), producers.states().collect::<Vec<_>>());
    assert_eq!(judged(&restored, &sent(2, 4, 2, 6)), Err(Unwritten::Duplicate { first_offset: 4, timestamp: 1004 }));
    assert_eq!(judged(&restored, &sent(2, 2, 2, 6)), Err(Unwritten::OutOfOrderSequence));
    assert_eq!(judged(&restored, &sent(2, 6, 1, 6)), Ok(()));
}

#[test]
fn nothing_is_allocated_while_there_are_no_producers() {
    let producers = Producers::default();
    assert_eq!((producers.all.len(), producers.ahead.capacity()), (0, 0));
    assert!(size_of::<Producers>() <= 120 && size_of::<Producer>() <= 152);
}

/// A batch of producer `id`'s transaction at offset `at`.
fn in_transaction(id: i64, epoch: i16, base_sequence: i32, at: i64) -> ProducerBatch {
    ProducerBatch { producer_id: id, content: Content::Transactional, ..sent(epoch, base_sequence, 1, at) }
}

/// The marker of producer `id`'s transaction at offset `at`.
fn marker(id: i64, epoch: i16, committed: bool, coordinator_epoch: i32, at: i64) -> ProducerBatch {
    let content = Content::End(EndTransaction { committed, coordinator_epoch });
    ProducerBatch { producer_id: id, content, ..sent(epoch, -1, 1, at) }
}

fn ended(coordinator_epoch: i32) -> EndTransaction {
    EndTransaction { committed: true, coordinator_epoch }
}

#[test]
fn what_is_unstable_begins_with_the_first_transaction_that_is_open_or_not_replicated() {
    let mut producers = Producers::default();
    for (id, at) in [(7, 3), (8, 5), (9, 6), (8, 7)] {
        assert_eq!(producers.apply(&in_transaction(id, 0, (at == 7).into(), at)), None);
    }
    assert_eq!(producers.first_unstable_offset(), Some(3));
    let aborted = producers.apply(&marker(8, 1, false, 2, 8));
    let eight = AbortedTxn { producer_id: 8, first_offset: 5, last_offset: 8, last_stable_offset: 3 };
    assert_eq!(aborted, Some(eight));
    assert_eq!(producers.apply(&marker(7, 1, true, 2, 9)), None, "committed");
    assert_eq!(producers.first_unstable_offset(), Some(3), "its marker is not replicated");
    producers.replicated_to(9);
    assert_eq!(producers.first_unstable_offset(), Some(3), "the high watermark has not passed it");
    producers.replicated_to(10);
    assert_eq!(producers.first_unstable_offset(), Some(6));
    let nine = AbortedTxn { producer_id: 9, first_offset: 6, last_offset: 10, last_stable_offset: 11 };
    assert_eq!(producers.apply(&marker(9, 1, false, 2, 10)), Some(nine));
    assert_eq!(producers.apply(&marker(9, 1, false, 2, 11)), None, "nothing was open");
    producers.replicated_to(12);
    assert_eq!(producers.first_unstable_offset(), None);
}

#[test]
fn with_version_2_a_marker_has_a_higher_epoch_and_the_same_one_only_again() {
    let mut producers = Producers::default();
    producers.apply(&in_transaction(7, 3, 0, 0));
    let judge = |producers: &Producers, epoch, version| producers.judge_marker(7, epoch, ended(1), version);
    assert_eq!(judge(&producers, 3, 2), Err(Unwritten::InvalidProducerEpoch), "a marker of the transaction before");
    assert_eq!(judge(&producers, 2, 0), Err(Unwritten::InvalidProducerEpoch));
    for (epoch, version) in [(3, 0), (3, 1), (4, 0), (4, 2), (9, 2)] {
        assert_eq!(judge(&producers, epoch, version), Ok(()), "epoch {epoch}, version {version}");
    }
    producers.apply(&marker(7, 4, true, 1, 1));
    assert_eq!(judge(&producers, 4, 2), Ok(()), "again");
    assert_eq!(judge(&producers, 3, 2), Err(Unwritten::InvalidProducerEpoch));
    assert_eq!(producers.judge_marker(99, 0, ended(0), 2), Ok(()), "an unknown producer");
}

#[test]
fn a_coordinator_is_fenced_by_its_successor() {
    let mut producers = Producers::default();
    producers.apply(&marker(7, 0, true, 5, 0));
    let judge = |coordinator_epoch| producers.judge_marker(7, 1, ended(coordinator_epoch), 2);
    assert_eq!((judge(4), judge(5), judge(6)), (Err(Unwritten::CoordinatorFenced), Ok(()), Ok(())));
}

#[test]
fn sequences_begin_at_zero_behind_a_marker_of_a_higher_epoch_and_go_on_behind_one_of_the_same() {
    let mut producers = Producers::default();
    producers.apply(&in_transaction(7, 0, 0, 0));
    producers.apply(&marker(7, 0, true, 1, 1));
    assert_eq!(judged(&producers, &in_transaction(7, 0, 0, 2)), duplicate(0).map(|_| ()));
    assert_eq!(judged(&producers, &in_transaction(7, 0, 1, 2)), Ok(()));
    producers.apply(&in_transaction(7, 0, 1, 2));
    producers.apply(&marker(7, 1, true, 1, 3));
    assert_eq!(judged(&producers, &in_transaction(7, 1, 2, 4)), Err(Unwritten::OutOfOrderSequence));
    assert_eq!(judged(&producers, &in_transaction(7, 1, 0, 4)), Ok(()));
    assert_eq!(judged(&producers, &in_transaction(7, 0, 2, 4)), Err(Unwritten::InvalidProducerEpoch));
}

#[test]
fn a_plain_batch_is_refused_while_its_producers_transaction_is_open() {
    let mut producers = Producers::default();
    producers.apply(&in_transaction(7, 0, 0, 0));
    assert_eq!(judged(&producers, &sent(0, 1, 1, 1)), Err(Unwritten::InvalidTransactionState));
    assert_eq!(judged(&producers, &sent(0, 3, 1, 1)), Err(Unwritten::OutOfOrderSequence));
    assert_eq!(judged(&producers, &in_transaction(7, 0, 1, 1)), Ok(()));
}

#[test]
fn a_coordinators_batch_without_sequences_is_judged_by_its_epoch() {
    let mut producers = Producers::default();
    for at in 0..2 {
        assert_eq!(judged(&producers, &in_transaction(7, 1, -1, at)), Ok(()));
        producers.apply(&in_transaction(7, 1, -1, at));
    }
    assert_eq!(judged(&producers, &in_transaction(7, 0, -1, 2)), Err(Unwritten::InvalidProducerEpoch));
    assert_eq!(producers.states().next().map(|state| (state.last_sequence, state.last_offset)), Some((-1, 1)));
}

fn start(epoch: i16, base_sequence: i32) -> VerificationStart {
    VerificationStart { producer_id: 7, epoch, base_sequence, epoch_bumps: false, now_ms: 0 }
}

#[test]
fn a_transaction_begins_only_with_the_guard_of_a_verification_that_was_not_overtaken() {
    let mut producers = Producers::default();
    let first = in_transaction(7, 0, 0, 0);
    const UNVERIFIED: Result<(), Unwritten> = Err(Unwritten::InvalidTransactionState);
    assert_eq!(producers.judge(&first, true, None), UNVERIFIED);
    let stale = producers.verify(&start(0, 0)).unwrap();
    assert_eq!(producers.verify(&start(0, 0)), Ok(stale), "the same verification");
    producers.apply(&marker(7, 0, false, 0, 0));
    assert_eq!(producers.judge(&first, true, stale), UNVERIFIED, "the transaction has ended meanwhile");
    let fresh = producers.verify(&start(0, 0)).unwrap();
    assert_eq!(producers.judge(&first, true, stale), UNVERIFIED);
    assert_eq!(producers.judge(&first, true, None), UNVERIFIED);
    assert_eq!(producers.judge(&first, true, fresh), Ok(()));
    producers.apply(&in_transaction(7, 0, 0, 1));
    assert_eq!((producers.verify(&start(0, 1)), producers.has_open_transaction(7, 0)), (Ok(None), true));
    assert_eq!(producers.judge(&in_transaction(7, 0, 1, 2), true, None), Ok(()), "it is open");
    assert_eq!(producers.judge(&in_transaction(7, 1, 0, 2), true, None), UNVERIFIED, "not in this epoch");
    assert_eq!(producers.judge(&sent(0, 5, 1, 2), true, None), Err(Unwritten::OutOfOrderSequence));
}

#[test]
fn nothing_is_verified_for_an_epoch_that_is_over() {
    let mut producers = Producers::default();
    producers.apply(&marker(7, 2, false, 0, 0));
    assert_eq!(producers.verify(&start(1, 0)), Err(Unwritten::InvalidProducerEpoch));
    assert!(matches!(producers.verify(&start(2, 0)), Ok(Some(_))));
}

#[test]
fn no_batch_gets_in_front_of_an_earlier_one_that_is_being_verified() {
    let mut producers = Producers::default();
    let guard = producers.verify(&start(0, 3)).unwrap();
    assert_eq!(producers.judge(&in_transaction(7, 0, 4, 0), true, guard), Err(Unwritten::OutOfOrderSequence));
    producers.verify(&start(0, 2)).unwrap();
    assert_eq!(producers.judge(&in_transaction(7, 0, 3, 0), true, guard), Err(Unwritten::OutOfOrderSequence));
    assert_eq!(producers.judge(&in_transaction(7, 0, 2, 0), true, guard), Ok(()));
    producers.verify(&start(1, 9)).unwrap();
    assert_eq!(producers.judge(&in_transaction(7, 1, 9, 0), true, guard), Ok(()), "a new epoch counts anew");
    producers.expire(100, 100);
    assert_eq!(producers.judge(&in_transaction(7, 1, 9, 0), true, guard), Err(Unwritten::InvalidTransactionState));
}

#[test]
fn an_unknown_producer_whose_epoch_rises_with_each_transaction_begins_at_zero() {
    let mut producers = Producers::default();
    let guard = producers.verify(&VerificationStart { epoch_bumps: true, ..start(0, 5) }).unwrap();
    assert_eq!(producers.judge(&in_transaction(7, 0, 5, 0), true, guard), Err(Unwritten::OutOfOrderSequence));
    assert_eq!(producers.judge(&in_transaction(7, 0, 0, 0), true, guard), Ok(()));
}

#[test]
fn open_transactions_survive_in_a_snapshot() {
    let mut producers = Producers::default();
    producers.apply(&marker(7, 0, true, 4, 0));
    producers.apply(&in_transaction(7, 1, 0, 1));
    producers.apply(&in_transaction(8, 0, 0, 2));
    let restored = Producers::from_states(producers.states());
    assert_eq!(restored.states().collect::<Vec<_>>(), producers.states().collect::<Vec<_>>());
    assert_eq!((restored.first_unstable_offset(), restored.has_open_transaction(8, 0)), (Some(1), true));
    assert_eq!(restored.judge_marker(7, 2, ended(3), 2), Err(Unwritten::CoordinatorFenced));
}
