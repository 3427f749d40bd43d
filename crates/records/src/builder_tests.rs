use super::*;
use crate::{Decompressor, TimestampType};

const T0: i64 = 1_700_000_000_000;

fn three_records(second_delta: i64) -> BatchBuilder {
    let mut builder = BatchBuilder::new();
    builder.push(T0, Some(b"k0"), Some(b"hello-0"), &[(b"trace", Some(b"abc"))]);
    builder.push(T0 + second_delta, Some(b"k1"), Some(b"hello-1"), &[]);
    builder.push(T0 + second_delta, Some(b"k2"), Some(b"hello-2"), &[]);
    builder
}

#[test]
fn the_reference_batch_of_three_records_has_the_bytes_of_kafkas_client() {
    let bytes = three_records(26).build().unwrap();
    assert_eq!(bytes.len(), 119);
    let first = [
        0x32, 0x00, 0x00, 0x00, 0x04, 0x6b, 0x30, 0x0e, 0x68, 0x65, 0x6c, 0x6c, 0x6f, 0x2d, 0x30, 0x02, 0x0a, 0x74,
        0x72, 0x61, 0x63, 0x65, 0x06, 0x61, 0x62, 0x63,
    ];
    assert_eq!(bytes[61..61 + first.len()], first);
    let batch = Batch::parse(&bytes).unwrap();
    assert_eq!((batch.count(), batch.last_offset_delta(), batch.attributes()), (3, 2, 0));
    assert_eq!((batch.base_offset(), batch.partition_leader_epoch()), (0, -1));
    assert_eq!((batch.base_timestamp(), batch.max_timestamp()), (T0, T0 + 26));
    assert_eq!((batch.producer_id(), batch.producer_epoch(), batch.base_sequence()), (-1, -1, -1));
    assert_eq!((batch.last_sequence(), batch.has_producer_id()), (-1, false));
    assert_eq!(batch.verify_crc(), Ok(()));
}

#[test]
fn a_stamp_delta_of_108_takes_a_byte_more_than_one_of_26() {
    assert_eq!(three_records(108).build().unwrap().len(), 119 + 2);
    let mut builder = BatchBuilder::new();
    builder.push(T0, None, None, &[]).push(T0 + 108, None, None, &[]);
    let longer = builder.build().unwrap().len();
    let mut builder = BatchBuilder::new();
    builder.push(T0, None, None, &[]).push(T0 + 26, None, None, &[]);
    assert_eq!(longer, builder.build().unwrap().len() + 1);
}

#[test]
fn a_builder_is_used_again_with_its_settings_but_without_its_records() {
    let mut builder = three_records(1).producer(9, 2, 5).transactional(true).leader_epoch(4);
    let (mut compressor, mut out) = (Compressor::new(), Vec::new());
    let first = builder.finish(&mut compressor, &mut out).unwrap();
    assert!(builder.is_empty());
    builder.set_base_offset(3);
    builder.set_base_sequence(8);
    builder.push(T0 - 5, None, Some(b"v"), &[]);
    let second = builder.finish(&mut compressor, &mut out).unwrap();
    assert_eq!(out.len(), first + second);
    let batch = Batch::parse(&out[first..]).unwrap();
    assert!(batch.is_transactional() && !batch.is_control());
    assert_eq!((batch.base_offset(), batch.count(), batch.base_sequence(), batch.last_sequence()), (3, 1, 8, 8));
    assert_eq!((batch.base_timestamp(), batch.max_timestamp(), batch.partition_leader_epoch()), (T0 - 5, T0 - 5, 4));
}

#[test]
fn a_control_batch_holds_its_kind_in_the_key() {
    let mut builder = BatchBuilder::new().control(true).base_offset(7);
    builder.push_control(T0, ControlType::LeaderChange, b"value");
    let bytes = builder.build().unwrap();
    let batch = Batch::parse(&bytes).unwrap();
    assert_eq!(batch.attributes(), 0x20);
    let record = batch.plain_records().unwrap().next().unwrap().unwrap();
    assert_eq!(ControlType::from_key(record.key.unwrap()), Some(ControlType::LeaderChange));
    assert_eq!((record.value, record.offset(&batch)), (Some(&b"value"[..]), 7));
}

#[test]
fn with_log_append_time_every_record_has_the_append_time() {
    let bytes = three_records(26).log_append_time(T0 + 99).build().unwrap();
    let batch = Batch::parse(&bytes).unwrap();
    assert_eq!((batch.timestamp_type(), batch.max_timestamp()), (TimestampType::LogAppendTime, T0 + 99));
    for record in batch.plain_records().unwrap() {
        assert_eq!(record.unwrap().timestamp(&batch), T0 + 99);
    }
}

#[test]
fn records_written_again_keep_headers_offsets_and_the_batchs_end() {
    let bytes = three_records(26).base_offset(100).producer(1, 2, 3).build().unwrap();
    let source = Batch::parse(&bytes).unwrap();
    let mut builder = BatchBuilder::new().like(&source);
    let first = source.plain_records().unwrap().next().unwrap().unwrap();
    builder.push_record(first.offset_delta, first.timestamp(&source), &first);
    builder.set_last_offset_delta(source.last_offset_delta());
    let kept = builder.build().unwrap();
    let kept = Batch::parse(&kept).unwrap();
    assert_eq!((kept.base_offset(), kept.last_offset(), kept.count(), kept.producer_id()), (100, 102, 1, 1));
    assert_eq!(kept.plain_records().unwrap().next().unwrap().unwrap(), first);
}

#[test]
fn a_batch_without_records_is_a_header() {
    let mut builder = BatchBuilder::new().delete_horizon(T0);
    builder.set_last_offset_delta(4);
    let bytes = builder.build().unwrap();
    let batch = Batch::parse(&bytes).unwrap();
    assert_eq!((batch.size(), batch.count(), batch.last_offset_delta()), (61, 0, 4));
    assert_eq!(batch.delete_horizon(), Some(T0));
    assert_eq!(batch.records(&mut Decompressor::new(0)).unwrap().count(), 0);
}

#[test]
fn a_batch_is_taken_with_the_bytes_that_it_is_finished_with() {
    for codec in Compression::ALL {
        let builder = || three_records(1).compression(codec, codec.default_level()).producer(9, 2, 5);
        let mut taken = builder();
        let bytes = taken.take(&mut Compressor::new()).unwrap();
        assert_eq!(bytes, builder().build().unwrap(), "{}", codec.name());
        assert!(taken.is_empty());
        taken.set_producer(9, 2, 8);
        taken.push_named(T0, None, Some(b"v"), &[("trace", None)]);
        let again = taken.take(&mut Compressor::new()).unwrap();
        let mut same = BatchBuilder::new().compression(codec, codec.default_level()).producer(9, 2, 8);
        same.push(T0, None, Some(b"v"), &[(b"trace", None)]);
        assert_eq!(again, same.build().unwrap());
    }
}

#[test]
fn a_batch_without_records_is_taken_too() {
    let bytes = BatchBuilder::new().take(&mut Compressor::new()).unwrap();
    assert_eq!(bytes, BatchBuilder::new().build().unwrap());
}
