use super::*;
use crate::BatchMut;

fn empty_batch() -> Vec<u8> {
    let mut bytes = vec![0; BATCH_OVERHEAD];
    bytes[8..12].copy_from_slice(&49i32.to_be_bytes());
    bytes[16] = 2;
    let mut batch = BatchMut::parse(&mut bytes).unwrap();
    batch.set_producer(7, 3, i32::MAX - 1);
    batch.update_crc();
    bytes
}

#[test]
fn setting_offset_and_epoch_leaves_the_checksum_valid() {
    let mut bytes = empty_batch();
    let mut batch = BatchMut::parse(&mut bytes).unwrap();
    batch.set_base_offset(42);
    batch.set_partition_leader_epoch(5);
    let batch = batch.as_batch();
    assert_eq!((batch.base_offset(), batch.last_offset(), batch.next_offset()), (42, 42, 43));
    assert_eq!(batch.partition_leader_epoch(), 5);
    assert_eq!((batch.producer_id(), batch.producer_epoch(), batch.base_sequence()), (7, 3, i32::MAX - 1));
    assert_eq!(batch.verify_crc(), Ok(()));
}

#[test]
fn log_append_time_sets_the_bit_and_the_stamp_and_the_checksum() {
    let mut bytes = empty_batch();
    let mut batch = BatchMut::parse(&mut bytes).unwrap();
    let before = batch.as_batch().crc();
    assert!(batch.set_max_timestamp(TimestampType::LogAppendTime, 1000));
    assert!(!batch.set_max_timestamp(TimestampType::LogAppendTime, 1000));
    assert_eq!(batch.as_batch().attributes(), 0x08);
    assert_eq!(batch.as_batch().max_timestamp(), 1000);
    assert_ne!(batch.as_batch().crc(), before);
    assert_eq!(batch.as_batch().verify_crc(), Ok(()));
    assert!(batch.set_max_timestamp(TimestampType::CreateTime, 0));
    assert_eq!(batch.as_batch().crc(), before);
}

#[test]
fn a_changed_byte_behind_the_checksum_is_found() {
    let mut bytes = empty_batch();
    let stored = Batch::parse(&bytes).unwrap().crc();
    bytes[60] ^= 1;
    let batch = Batch::parse(&bytes).unwrap();
    assert_eq!(batch.verify_crc(), Err(BatchError::Crc { stored, computed: batch.computed_crc() }));
}

#[test]
fn bytes_behind_the_one_batch_are_refused() {
    let mut bytes = empty_batch();
    bytes.push(0);
    assert_eq!(Batch::parse(&bytes), Err(BatchError::TrailingBytes { expected: 61, available: 62 }));
}

#[test]
fn sequences_go_from_the_largest_to_zero() {
    assert_eq!(add_sequence(i32::MAX, 0), i32::MAX);
    assert_eq!(add_sequence(i32::MAX, 1), 0);
    assert_eq!(add_sequence(i32::MAX - 1, 3), 1);
    assert_eq!(add_sequence(4, 3), 7);
}

#[test]
fn a_codec_has_its_id_and_name_and_the_unused_ids_have_none() {
    for (id, codec) in (0..).zip(Compression::ALL) {
        assert_eq!(
            (codec.id(), Compression::from_id(id), Compression::from_name(codec.name())),
            (id, Some(codec), Some(codec))
        );
    }
    assert_eq!([5, 6, 7, -1].map(Compression::from_id), [None; 4]);
}
