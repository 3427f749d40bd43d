use milena_records::{BatchBuilder, BatchMut, ControlType};

use super::*;
use crate::topic_partition::TopicPartition;

/// A batch with records at these offsets.
fn batch(builder: BatchBuilder, base: i64, count: i64) -> Vec<u8> {
    let mut builder = builder;
    for number in 0..count {
        builder.push(number, None, Some(&[b'x'; 1000]), &[]);
    }
    placed(builder.build().unwrap(), base)
}

fn placed(mut bytes: Vec<u8>, base: i64) -> Vec<u8> {
    BatchMut::parse(&mut bytes).unwrap().set_base_offset(base);
    bytes
}

fn transactional(producer: i64) -> BatchBuilder {
    BatchBuilder::new().producer(producer, 0, 0).transactional(true)
}

fn marker(producer: i64, committed: bool, base: i64) -> Vec<u8> {
    let end = EndTransaction { committed, coordinator_epoch: 0 };
    placed(end.marker(producer, 0, 0).build().unwrap(), base)
}

fn range(pieces: &[Vec<u8>], aborted: Option<&[AbortedTransaction]>) -> (Range, End) {
    Range::new(pieces.concat().into(), aborted).unwrap().unwrap()
}

/// First offset and number of records of each portion.
fn portions(range: &mut Range, from: i64, max_records: usize) -> Vec<(i64, usize)> {
    let mut decoder = Decoder::new(true, max_records, 1 << 20);
    let mut portions = Vec::new();
    while let Some(portion) = range.next(from, &mut decoder).unwrap() {
        let first = portion.index.first().map_or(-1, |entry| entry.offset);
        portions.push((first, portion.index.len()));
        drop(decoder.finish(portion, TopicPartition::new("t", 0)));
    }
    portions
}

#[test]
fn a_batch_that_is_cut_off_is_left_out_and_records_before_the_position_are_passed_over() {
    let (first, second) = (batch(BatchBuilder::new(), 0, 10), batch(BatchBuilder::new(), 10, 10));
    let (mut range, end) = range(&[first.clone(), second[..500].to_vec()], None);
    assert_eq!(end.offset, 10);
    assert_eq!(portions(&mut range, 4, usize::MAX), [(4, 6)]);
    assert_eq!(range.len(), 0);
    assert!(Range::new(Bytes::new(), None).unwrap().is_none());
    assert!(Range::new(Bytes::from(first[..70].to_vec()), None).is_err());
}

#[test]
fn portions_have_whole_batches_of_one_kind_and_not_many_more_bytes_than_wanted() {
    let plain = |base| batch(BatchBuilder::new(), base, 100);
    let packed = |base| batch(BatchBuilder::new().compression(Compression::Lz4, 1), base, 100);
    let (mut all, _) =
        range(&[plain(0), plain(100), plain(200), plain(300), packed(400), packed(500), plain(600)], None);
    assert_eq!(portions(&mut all, 0, usize::MAX), [(0, 300), (300, 100), (400, 200), (600, 100)]);
    let (mut few, _) = range(&[plain(0), plain(100), plain(200)], None);
    assert_eq!(portions(&mut few, 0, 150), [(0, 100), (100, 100), (200, 100)]);
}

#[test]
fn a_batch_with_more_records_than_are_wanted_at_once_is_given_in_pieces() {
    let compressed = BatchBuilder::new().compression(Compression::Lz4, 1);
    let mut emptied = BatchBuilder::new();
    emptied.push(0, None, None, &[]);
    emptied.set_last_offset_delta(9);
    let pieces = [batch(BatchBuilder::new(), 0, 7), batch(compressed, 7, 5), placed(emptied.build().unwrap(), 12)];
    let (mut range, _) = range(&pieces, None);
    let mut decoder = Decoder::new(true, 3, 1 << 20);
    let (mut given, mut from) = (Vec::new(), 2);
    while let Some(portion) = range.next(from, &mut decoder).unwrap() {
        let records = decoder.finish(portion, TopicPartition::new("t", 0));
        assert!(records.iter().all(|record| record.value.is_none_or(|value| value == [b'x'; 1000])));
        from = records.next_offset();
        given.push((records.iter().map(|record| record.offset).collect::<Vec<_>>(), from));
    }
    let expected = [(vec![2, 3, 4], 5), (vec![5, 6], 7), (vec![7, 8, 9], 10), (vec![10, 11], 12), (vec![12], 22)];
    assert_eq!(given, expected);
}

#[test]
fn records_of_aborted_transactions_are_left_out_and_the_position_moves_past_them() {
    let mut emptied = BatchBuilder::new();
    emptied.set_last_offset_delta(9);
    let pieces = [
        batch(transactional(1), 0, 2),
        batch(transactional(2), 2, 2),
        marker(1, false, 4),
        batch(transactional(1), 5, 2),
        marker(1, true, 7),
        marker(2, true, 8),
        placed(emptied.build().unwrap(), 9),
    ];
    let aborted = [AbortedTransaction { producer_id: 1, first_offset: 0 }];
    let mut decoder = Decoder::new(true, usize::MAX, 1 << 20);
    let (mut committed, end) = range(&pieces, Some(&aborted));
    assert_eq!(end.offset, 19);
    let portion = committed.next(0, &mut decoder).unwrap().unwrap();
    assert_eq!(portion.index.iter().map(|entry| entry.offset).collect::<Vec<_>>(), [2, 3, 5, 6]);
    assert_eq!(portion.end.offset, 19);
    let (mut all, _) = range(&pieces, None);
    assert_eq!(portions(&mut all, 0, usize::MAX), [(0, 6)]);
}

#[test]
fn control_batches_give_no_record_to_anybody() {
    let mut leader_change = BatchBuilder::new().control(true);
    leader_change.push_control(0, ControlType::LeaderChange, &[0; 6]);
    let (mut range, _) = range(&[placed(leader_change.build().unwrap(), 0)], None);
    assert_eq!(portions(&mut range, 0, usize::MAX), [(-1, 0)]);
}

#[test]
fn an_error_comes_after_what_is_good_and_stays() {
    let mut bad = batch(BatchBuilder::new(), 10, 10);
    bad[200] ^= 1;
    let (mut range, _) = range(&[batch(BatchBuilder::new(), 0, 10), bad], None);
    let mut decoder = Decoder::new(true, usize::MAX, 1 << 20);
    assert_eq!(range.next(0, &mut decoder).unwrap().unwrap().index.len(), 10);
    for _ in 0..2 {
        assert!(matches!(range.next(10, &mut decoder), Err(Corruption::Batch(_))));
    }
}
