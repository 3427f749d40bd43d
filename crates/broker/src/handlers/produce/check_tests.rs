//! Each rule on requests and batch headers, on a request that breaks it.

use std::borrow::Cow;

use milena_protocol::messages::RequestHeader;
use milena_protocol::messages::produce_request::PartitionProduceData;
use milena_protocol::{ApiKey, Writer, request_header_version};
use milena_records::{BatchBuilder, BatchMut};

use super::*;
use crate::test_partitions::topic;

/// An offset of log start that tells that the request came as far as the log.
const AT_LOG: i64 = 0;
const BEFORE_LOG: i64 = -1;

/// A request for partitions 0, 1, … of the topic `t`.
struct Asked<'a> {
    version: i16,
    acks: i16,
    transactional_id: Option<&'a str>,
    records: &'a [&'a [u8]],
}

impl Default for Asked<'_> {
    fn default() -> Self {
        Self { version: 9, acks: -1, transactional_id: None, records: &[] }
    }
}

impl Asked<'_> {
    fn frame(&self) -> Vec<u8> {
        let partition_data = (0..)
            .zip(self.records)
            .map(|(index, records)| PartitionProduceData { index, records: Some(Records::Bytes(records)) });
        let data =
            TopicProduceData { name: "t".into(), partition_data: partition_data.collect(), ..Default::default() };
        let request = ProduceRequest {
            transactional_id: self.transactional_id.map(Cow::Borrowed),
            acks: self.acks,
            timeout_ms: 1000,
            topic_data: vec![data],
        };
        let header = RequestHeader {
            request_api_key: ApiKey::PRODUCE.0,
            request_api_version: self.version,
            correlation_id: 1,
            ..Default::default()
        };
        let mut writer = Writer::new();
        let header_version = request_header_version(ApiKey::PRODUCE, self.version).unwrap();
        header.encode(&mut writer, header_version).unwrap();
        request.encode(&mut writer, self.version).unwrap();
        writer.buf
    }

    /// Error and log start offset of each partition; there are two.
    fn outcome(&self) -> Vec<(ErrorCode, i64)> {
        let replicas = topic(&[&[], &[]]);
        let mut plan = Plan::default();
        request(&self.frame(), &replicas.topics(), &mut plan).unwrap();
        plan.parts.iter().map(|part| (part.error, part.log_start_offset)).collect()
    }
}

/// The outcome of one batch with acks=all.
fn outcome(records: &[u8]) -> (ErrorCode, i64) {
    Asked { records: &[records], ..Default::default() }.outcome()[0]
}

fn built(builder: BatchBuilder) -> Vec<u8> {
    let mut builder = builder;
    builder.push(5, Some(b"k"), Some(b"v"), &[]).push(6, None, Some(b"v"), &[]);
    builder.build().unwrap()
}

fn good() -> Vec<u8> {
    built(BatchBuilder::new())
}

/// The good batch with bytes replaced, and the checksum that fits them.
fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut batch = good();
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    if at > 20 {
        BatchMut::parse(&mut batch).unwrap().update_crc();
    }
    batch
}

#[test]
fn a_good_batch_passes_with_every_acks_and_with_a_torn_rest() {
    for acks in [-1, 0, 1] {
        let asked = Asked { acks, records: &[&good(), &[&good()[..], &good()[..40]].concat()], ..Default::default() };
        assert_eq!(asked.outcome(), [(ErrorCode::NONE, BEFORE_LOG); 2]);
    }
}

#[test]
fn anything_but_one_whole_batch_is_refused() {
    let corrupt = (ErrorCode::CORRUPT_MESSAGE, BEFORE_LOG);
    let invalid = (ErrorCode::INVALID_RECORD, BEFORE_LOG);
    assert_eq!(outcome(&[]), invalid);
    assert_eq!(outcome(&good()[..good().len() - 1]), invalid);
    assert_eq!(outcome(&[good(), good()].concat()), invalid);
    assert_eq!(outcome(&with(16, &[1])), invalid);
    assert_eq!(outcome(&[good(), vec![0; 16]].concat()), corrupt);
    assert_eq!(outcome(&with(8, &48_i32.to_be_bytes())), corrupt);
}

#[test]
fn an_unreadable_first_header_fails_the_whole_request() {
    for bad in [with(16, &[3]), with(8, &13_i32.to_be_bytes())] {
        let asked = Asked { records: &[&good(), &bad], ..Default::default() };
        assert_eq!(asked.outcome(), [(ErrorCode::CORRUPT_MESSAGE, BEFORE_LOG); 2]);
    }
}

#[test]
fn a_transactional_batch_needs_a_transactional_id() {
    let batch = built(BatchBuilder::new().transactional(true).producer(1, 0, 0));
    assert_eq!(outcome(&batch), (ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED, BEFORE_LOG));
}

#[test]
fn unknown_partitions_are_refused_beside_good_ones() {
    let asked = Asked { records: &[&good(), &good(), &good()], ..Default::default() };
    let codes: Vec<_> = asked.outcome().iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, [ErrorCode::NONE, ErrorCode::NONE, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION]);
}

#[test]
fn other_acks_win_over_what_is_wrong_in_the_header() {
    let asked = Asked { acks: 2, records: &[&with(0, &[1])], ..Default::default() };
    assert_eq!(asked.outcome(), [(ErrorCode::INVALID_REQUIRED_ACKS, BEFORE_LOG)]);
}

#[test]
fn the_base_offset_wins_over_the_size_and_the_size_over_the_checksum() {
    let mut large = BatchBuilder::new();
    large.push(5, None, Some(&[0; 1_048_588]), &[]);
    let mut large = large.build().unwrap();
    large[17] ^= 1;
    assert_eq!(outcome(&large), (ErrorCode::MESSAGE_TOO_LARGE, BEFORE_LOG));
    large[7] = 5;
    assert_eq!(outcome(&large), (ErrorCode::INVALID_RECORD, AT_LOG));
}

#[test]
fn a_wrong_checksum_is_refused() {
    assert_eq!(outcome(&with(17, &[1, 2, 3, 4])), (ErrorCode::CORRUPT_MESSAGE, BEFORE_LOG));
}

#[test]
fn the_count_must_be_that_of_the_offsets() {
    for (at, number) in [(23, 0_i32), (23, 2), (23, -1), (57, 1), (57, 3), (57, -1), (57, i32::MAX)] {
        assert_eq!(outcome(&with(at, &number.to_be_bytes())), (ErrorCode::INVALID_RECORD, AT_LOG), "{at} {number}");
    }
    let none = [with(23, &(-1_i32).to_be_bytes())[..57].to_vec(), vec![0; 4]].concat();
    assert_eq!(outcome(&none).0, ErrorCode::INVALID_RECORD);
}

#[test]
fn clients_write_no_control_batches() {
    assert_eq!(outcome(&built(BatchBuilder::new().control(true))), (ErrorCode::INVALID_RECORD, AT_LOG));
}

#[test]
fn a_producer_id_needs_a_sequence_and_a_sequence_no_producer_id() {
    for (producer, taken) in
        [((7, 0, -1), false), ((7, -1, -1), false), ((7, 0, -5), false), ((7, -1, 0), true), ((-1, -1, 3), true)]
    {
        let (id, epoch, sequence) = producer;
        let batch = built(BatchBuilder::new().producer(id, epoch, sequence));
        let expected = if taken { (ErrorCode::NONE, BEFORE_LOG) } else { (ErrorCode::INVALID_RECORD, AT_LOG) };
        assert_eq!(outcome(&batch), expected, "{producer:?}");
    }
}

#[test]
fn zstd_needs_version_7_and_spares_the_other_partition() {
    let zstd = built(BatchBuilder::new().compression(Compression::Zstd, 3));
    for (version, code) in [(6, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE), (7, ErrorCode::NONE)] {
        let asked = Asked { version, records: &[&zstd, &good()], ..Default::default() };
        assert_eq!(asked.outcome(), [(code, BEFORE_LOG), (ErrorCode::NONE, BEFORE_LOG)]);
    }
}
