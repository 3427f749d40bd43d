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
        is_control: false,
        is_transactional: false,
    }
}

/// Judges and writes batches one after the other, at consecutive offsets.
fn outcomes(given: &[(i16, i32, i64)]) -> Vec<Result<i64, Unwritten>> {
    let (mut producers, mut next) = (Producers::default(), 0);
    let mut outcomes = Vec::new();
    for &(epoch, sequence, count) in given {
        let batch = sent(epoch, sequence, count, next);
        outcomes.push(producers.judge(&batch).map(|()| {
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
    assert_eq!(producers.judge(&sent(0, 1, 1, 2)), Err(Unwritten::Duplicate { first_offset: 1, timestamp: 1001 }));
    assert_eq!(producers.judge(&sent(0, 2, 1, 2)), Ok(()));
    producers.begin_append();
    assert_eq!(producers.judge(&sent(0, 2, 1, 1)), Err(Unwritten::OutOfOrderSequence));
}

#[test]
fn a_producer_expires_by_its_last_batch_unless_its_transaction_is_open() {
    let mut producers = Producers::default();
    producers.apply(&sent(0, 0, 1, 0));
    producers.apply(&ProducerBatch { producer_id: 8, is_transactional: true, ..sent(0, 0, 1, 1) });
    producers.expire(1099, 100);
    assert_eq!(producers.states().count(), 2);
    producers.expire(1100, 100);
    assert_eq!(producers.states().map(|state| state.producer_id).collect::<Vec<_>>(), [8]);
    assert_eq!(producers.judge(&sent(0, 44, 1, 2)), Ok(()), "forgotten");
}

#[test]
fn a_snapshot_knows_the_last_batch_of_each_producer() {
    let mut producers = Producers::default();
    (0..3).for_each(|at| producers.apply(&sent(2, at * 2, 2, i64::from(at) * 2)));
    let restored = Producers::from_states(producers.states());
    assert_eq!(restored.states().collect::<Vec<_>>(), producers.states().collect::<Vec<_>>());
    assert_eq!(restored.judge(&sent(2, 4, 2, 6)), Err(Unwritten::Duplicate { first_offset: 4, timestamp: 1004 }));
    assert_eq!(restored.judge(&sent(2, 2, 2, 6)), Err(Unwritten::OutOfOrderSequence));
    assert_eq!(restored.judge(&sent(2, 6, 1, 6)), Ok(()));
}

#[test]
fn nothing_is_allocated_while_there_are_no_producers() {
    let producers = Producers::default();
    assert_eq!((producers.all.len(), producers.ahead.capacity()), (0, 0));
    assert!(size_of::<Producers>() <= 48 && size_of::<Producer>() <= 152);
}
