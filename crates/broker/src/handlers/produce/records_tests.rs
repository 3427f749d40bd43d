//! Each rule on records, on a batch that breaks it.

use milena_records::{BatchBuilder, crc32c};

use super::*;

const NOW: i64 = 1_700_000_000_000;
const HOUR: i64 = 3_600_000;

fn rules() -> RecordRules {
    RecordRules {
        keyed: false,
        timestamp_type: TimestampType::CreateTime,
        before_max_ms: i64::MAX,
        after_max_ms: HOUR,
        codec: None,
        level: 0,
        max_batch_bytes: 1 << 20,
        max_record_bytes: i32::MAX,
        trust_headers: false,
    }
}

fn keyed() -> RecordRules {
    RecordRules { keyed: true, ..rules() }
}

fn append_time() -> RecordRules {
    RecordRules { timestamp_type: TimestampType::LogAppendTime, ..rules() }
}

fn to(codec: Compression) -> RecordRules {
    RecordRules { codec: Some(codec), level: codec.default_level(), ..rules() }
}

/// Records of these keys and stamps.
fn batch_of(codec: Compression, records: &[(Option<&[u8]>, i64)]) -> Vec<u8> {
    let mut builder = BatchBuilder::new().compression(codec, codec.default_level());
    for (key, timestamp) in records {
        builder.push(*timestamp, *key, Some(b"value"), &[]);
    }
    builder.build().unwrap()
}

/// Three records with keys, stamped now.
fn good(codec: Compression) -> Vec<u8> {
    batch_of(codec, &[(Some(b"a"), NOW), (Some(b"b"), NOW + 1), (Some(b"c"), NOW + 2)])
}

/// Sets a byte and the checksum that fits it.
fn with_byte(mut bytes: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    bytes[at] = byte;
    BatchMut::parse(&mut bytes).unwrap().update_crc();
    bytes
}

fn with_attributes(bytes: Vec<u8>, bits: u8) -> Vec<u8> {
    let byte = bytes[22] | bits;
    with_byte(bytes, 22, byte)
}

fn accept_now(bytes: &mut [u8], rules: &RecordRules) -> Result<Accepted, Rejection> {
    accept(bytes, rules, NOW, &mut Tools::new())
}

/// The bytes that are stored of a batch that must be accepted.
fn stored(mut bytes: Vec<u8>, rules: &RecordRules) -> Vec<u8> {
    let accepted = accept_now(&mut bytes, rules).unwrap();
    let stored = accepted.rebuilt.unwrap_or(bytes);
    Batch::parse(&stored).unwrap().verify_crc().unwrap();
    stored
}

/// Error and places of the records to blame; the bytes must be as they were.
fn refusal(bytes: Vec<u8>, rules: &RecordRules) -> (ErrorCode, Vec<i32>) {
    let mut after = bytes.clone();
    let rejection = accept_now(&mut after, rules).unwrap_err();
    assert_eq!(bytes, after, "a refused batch is not changed");
    assert_eq!(rejection.message.is_some(), !rejection.records.is_empty());
    (rejection.error, rejection.records.iter().map(|record| record.index).collect())
}

#[test]
fn a_good_batch_of_any_codec_is_stored_as_it_came() {
    for codec in Compression::ALL {
        for rules in [rules(), keyed(), to(codec)] {
            let mut bytes = good(codec);
            assert_eq!(accept_now(&mut bytes, &rules), Ok(Accepted::default()));
            assert_eq!(bytes, good(codec));
        }
    }
}

#[test]
fn another_level_of_the_same_codec_rebuilds_nothing() {
    let rules = RecordRules { level: 9, ..to(Compression::Gzip) };
    assert_eq!(stored(good(Compression::Gzip), &rules), good(Compression::Gzip));
}

#[test]
fn another_codec_rebuilds_the_batch() {
    for (from, target) in Compression::ALL.into_iter().flat_map(|from| Compression::ALL.map(|to| (from, to))) {
        assert_eq!(stored(good(from), &to(target)), good(target), "{from:?} to {target:?}");
    }
}

#[test]
fn a_batch_that_is_too_large_after_rebuilding_is_refused() {
    let mut builder = BatchBuilder::new().compression(Compression::Gzip, 6);
    builder.push(NOW, None, Some(&[b'z'; 50_000]), &[]);
    let bytes = builder.build().unwrap();
    let rules = RecordRules { max_batch_bytes: 10_000, ..to(Compression::None) };
    assert!(bytes.len() < 10_000);
    assert_eq!(refusal(bytes, &rules), (ErrorCode::MESSAGE_TOO_LARGE, vec![]));
}

#[test]
fn records_that_do_not_read_well_are_refused_without_a_list() {
    for (at, byte) in [(61, 0xff), (61, 0), (65, 40), (60, 4)] {
        assert_eq!(
            refusal(with_byte(good(Compression::None), at, byte), &rules()),
            (ErrorCode::INVALID_RECORD, vec![])
        );
    }
}

#[test]
fn a_payload_that_can_not_be_decompressed_is_refused() {
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let bytes = with_byte(good(codec), 61, 0);
        let last = bytes.len() - 1;
        for rules in [rules(), to(Compression::None)] {
            assert_eq!(refusal(bytes.clone(), &rules).0, ErrorCode::INVALID_RECORD, "{codec:?}");
            if codec != Compression::Snappy {
                assert_eq!(
                    refusal(with_byte(bytes.clone(), last, 9), &rules).0,
                    ErrorCode::INVALID_RECORD,
                    "{codec:?}"
                );
            }
        }
    }
}

#[test]
fn unknown_codecs_are_refused() {
    for codec in 5..8 {
        let bytes = with_attributes(good(Compression::None), codec);
        assert_eq!(refusal(bytes, &rules()), (ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, vec![]));
    }
}

#[test]
fn inner_offsets_must_count_up_in_a_compressed_batch_only() {
    for (codec, taken) in [(Compression::None, true), (Compression::Lz4, false)] {
        let mut builder = BatchBuilder::new().compression(codec, codec.default_level());
        for delta in [0, 2, 1] {
            builder.push_at(delta, NOW, None, None, &[]);
        }
        builder.set_last_offset_delta(2);
        let mut bytes = builder.build().unwrap();
        assert_eq!(accept_now(&mut bytes, &rules()).is_ok(), taken);
    }
}

#[test]
fn a_compacted_topic_refuses_every_record_without_a_key() {
    for codec in Compression::ALL {
        let bytes = batch_of(codec, &[(None, NOW), (Some(b"k"), NOW), (None, NOW), (None, NOW), (None, NOW)]);
        assert_eq!(refusal(bytes.clone(), &keyed()), (ErrorCode::INVALID_RECORD, vec![0, 2, 3, 4]));
        assert_eq!(stored(bytes.clone(), &rules()), bytes);
    }
}

#[test]
fn stamps_outside_of_the_window_are_refused() {
    let window = RecordRules { before_max_ms: 1000, after_max_ms: 10, ..rules() };
    for codec in Compression::ALL {
        let bytes = batch_of(
            codec,
            &[(None, NOW - 1000), (None, NOW - 1001), (None, NOW + 10), (None, NOW + 11), (None, -1), (None, 0)],
        );
        assert_eq!(refusal(bytes, &window), (ErrorCode::INVALID_TIMESTAMP, vec![1, 3, 5]));
    }
}

#[test]
fn an_absent_stamp_is_in_every_window() {
    let window = RecordRules { before_max_ms: 1000, ..rules() };
    let bytes = batch_of(Compression::None, &[(None, -1)]);
    assert_eq!(stored(bytes.clone(), &window), bytes);
}

#[test]
fn by_default_old_stamps_pass_and_those_an_hour_ahead_do_not() {
    for (timestamp, taken) in [(NOW + 59 * 60_000, true), (NOW + 61 * 60_000, false), (0, true), (i64::MAX, false)] {
        let mut bytes = batch_of(Compression::None, &[(None, timestamp)]);
        assert_eq!(accept_now(&mut bytes, &rules()).is_ok(), taken, "{timestamp}");
    }
}

#[test]
fn a_stamp_whose_sum_overflows_is_refused() {
    for delta in [i64::MAX, i64::MIN] {
        let bytes = batch_of(Compression::Gzip, &[(None, NOW - 60_000), (None, (NOW - 60_000).wrapping_add(delta))]);
        assert_eq!(refusal(bytes, &rules()), (ErrorCode::INVALID_TIMESTAMP, vec![1]));
    }
}

#[test]
fn a_bad_key_hides_a_bad_stamp_of_its_record_only() {
    let far = NOW + 2 * HOUR;
    let one = batch_of(Compression::None, &[(None, far)]);
    assert_eq!(refusal(one, &keyed()), (ErrorCode::INVALID_RECORD, vec![0]));
    let two = batch_of(Compression::None, &[(None, NOW), (Some(b"k"), far)]);
    assert_eq!(refusal(two, &keyed()), (ErrorCode::INVALID_TIMESTAMP, vec![0, 1]));
}

#[test]
fn a_largest_stamp_that_is_wrong_in_the_header_is_corrected() {
    let mut bytes = good(Compression::Zstd);
    BatchMut::parse(&mut bytes).unwrap().set_max_timestamp(TimestampType::CreateTime, 5);
    assert_eq!(stored(bytes, &rules()), good(Compression::Zstd));
    let negative = stored(batch_of(Compression::None, &[(None, -1_000_000)]), &rules());
    let batch = Batch::parse(&negative).unwrap();
    assert_eq!((batch.base_timestamp(), batch.max_timestamp()), (-1_000_000, -1));
}

#[test]
fn the_append_time_replaces_the_stamps_in_the_header_alone() {
    let received = batch_of(Compression::Lz4, &[(None, 4_000_000_000_000), (None, -5)]);
    let mut bytes = received.clone();
    let accepted = accept_now(&mut bytes, &append_time()).unwrap();
    assert_eq!(accepted, Accepted { rebuilt: None, append_time: Some(NOW) });
    let batch = Batch::parse(&bytes).unwrap();
    batch.verify_crc().unwrap();
    assert_eq!((batch.timestamp_type(), batch.max_timestamp()), (TimestampType::LogAppendTime, NOW));
    assert_eq!((batch.base_timestamp(), batch.body()), (4_000_000_000_000, &received[61..]));
}

#[test]
fn a_rebuilt_batch_gets_the_append_time_too() {
    let rules = RecordRules { codec: Some(Compression::Lz4), level: 9, ..append_time() };
    let stored = stored(good(Compression::Gzip), &rules);
    let batch = Batch::parse(&stored).unwrap();
    assert_eq!((batch.compression(), batch.base_timestamp()), (Some(Compression::Lz4), NOW));
    assert_eq!((batch.timestamp_type(), batch.max_timestamp()), (TimestampType::LogAppendTime, NOW));
}

#[test]
fn an_append_time_from_the_client_is_dropped_or_refused() {
    let bytes = with_attributes(good(Compression::Gzip), 8);
    assert_eq!(stored(bytes.clone(), &rules()), good(Compression::Gzip));
    assert_eq!(refusal(bytes, &append_time()), (ErrorCode::INVALID_TIMESTAMP, vec![0, 1, 2]));
    let absent = with_attributes(batch_of(Compression::None, &[(None, -1)]), 8);
    assert_eq!(refusal(absent, &rules()), (ErrorCode::INVALID_TIMESTAMP, vec![0]));
}

#[test]
fn other_attribute_bits_are_stored_as_they_came() {
    let bytes = with_attributes(good(Compression::None), 0xc0);
    assert_eq!(stored(bytes.clone(), &rules()), bytes);
}

#[test]
fn a_decompressed_record_may_be_as_long_as_the_topic_says() {
    let rules = RecordRules { max_record_bytes: 12, ..rules() };
    assert!(accept_now(&mut good(Compression::Zstd), &rules).is_ok());
    let rules = RecordRules { max_record_bytes: 11, ..rules };
    assert_eq!(refusal(good(Compression::Zstd), &rules), (ErrorCode::INVALID_RECORD, vec![]));
    assert!(accept_now(&mut good(Compression::None), &rules).is_ok());
}

#[test]
fn a_decompression_bomb_is_refused() {
    let mut builder = BatchBuilder::new().compression(Compression::Zstd, 1);
    let value = vec![0; 1 << 20];
    for _ in 0..257 {
        builder.push(NOW, None, Some(&value), &[]);
    }
    let bytes = builder.build().unwrap();
    assert!(bytes.len() < 100_000);
    assert_eq!(refusal(bytes, &rules()), (ErrorCode::MESSAGE_TOO_LARGE, vec![]));
}

#[test]
fn batches_that_come_together_share_what_may_be_decompressed() {
    let mut builder = BatchBuilder::new().compression(Compression::Zstd, 1);
    builder.push(NOW, None, Some(&vec![0; 100 << 20]), &[]);
    let bytes = builder.build().unwrap();
    let mut tools = Tools::new();
    let mut of = |received: usize, count: usize| {
        tools.begin(received);
        assert!(!tools.have_worked_long());
        let errors =
            (0..count).map(|_| accept(&mut bytes.clone(), &rules(), NOW, &mut tools).err().map(|why| why.error));
        let errors: Vec<_> = errors.collect();
        assert!(tools.have_worked_long());
        errors
    };
    assert_eq!(
        of(bytes.len(), 4),
        [None, None, Some(ErrorCode::MESSAGE_TOO_LARGE), Some(ErrorCode::MESSAGE_TOO_LARGE)]
    );
    assert_eq!(of(10 << 20, 3), [None, None, None]);
}

#[test]
fn the_first_batch_may_be_as_long_as_its_topic_says() {
    let mut builder = BatchBuilder::new().compression(Compression::Zstd, 1);
    builder.push(NOW, None, Some(&vec![0; MAX_DECOMPRESSED_BYTES]), &[]);
    let bytes = builder.build().unwrap();
    assert_eq!(refusal(bytes.clone(), &rules()).0, ErrorCode::MESSAGE_TOO_LARGE);
    let rules = RecordRules { max_batch_bytes: MAX_DECOMPRESSED_BYTES + 1000, ..rules() };
    let mut tools = Tools::new();
    tools.begin(bytes.len());
    assert!(accept(&mut bytes.clone(), &rules, NOW, &mut tools).is_ok());
    assert!(accept(&mut good(Compression::Zstd), &rules, NOW, &mut tools).is_err());
}

#[test]
fn a_list_of_rejected_records_ends_somewhere() {
    let records = vec![(None, NOW); MAX_REJECTED_RECORDS + 5];
    let (error, listed) = refusal(batch_of(Compression::Zstd, &records), &keyed());
    assert_eq!((error, listed.len()), (ErrorCode::INVALID_RECORD, MAX_REJECTED_RECORDS));
}

#[test]
fn lists_of_rejected_records_that_come_together_end_somewhere() {
    let mut tools = Tools::new();
    let mut bytes = batch_of(Compression::None, &vec![(None, NOW); MAX_REJECTED_RECORDS - 3000]);
    let mut listed = || {
        let rejection = accept(&mut bytes, &keyed(), NOW, &mut tools).unwrap_err();
        assert_eq!((rejection.error, rejection.message), (ErrorCode::INVALID_RECORD, Some(RECORDS_REJECTED)));
        rejection.records.len()
    };
    assert_eq!([listed(), listed(), listed()], [MAX_REJECTED_RECORDS - 3000, 3000, 0]);
    tools.begin(bytes.len());
    assert_eq!(accept(&mut bytes, &keyed(), NOW, &mut tools).unwrap_err().records.len(), MAX_REJECTED_RECORDS - 3000);
}

#[test]
fn trusted_headers_are_believed_where_nothing_must_be_known_of_the_records() {
    let trusting = RecordRules { trust_headers: true, ..rules() };
    let broken = with_byte(good(Compression::None), 61, 0xff);
    assert_eq!(stored(broken.clone(), &trusting), broken);
    for rules in [
        RecordRules { keyed: true, ..trusting.clone() },
        RecordRules { after_max_ms: 0, ..trusting.clone() },
        RecordRules { codec: Some(Compression::Zstd), level: 3, ..trusting.clone() },
    ] {
        assert_eq!(refusal(broken.clone(), &rules).0, ErrorCode::INVALID_RECORD);
    }
    assert_eq!(refusal(with_attributes(broken, 8), &trusting).0, ErrorCode::INVALID_RECORD);
}

#[test]
fn the_checksum_stays_where_nothing_changes() {
    let bytes = stored(good(Compression::None), &rules());
    assert_eq!(Batch::parse(&bytes).unwrap().crc(), crc32c(&good(Compression::None)[21..]));
}

#[test]
fn whatever_is_damaged_is_refused_or_stays_readable() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut tools = Tools::new();
    let mut taken = 0;
    for round in 0..20_000 {
        let codec = Compression::ALL[round % 5];
        let mut bytes = good(codec);
        for _ in 0..=random.usize(..2) {
            // Codec and payload; lengths and counts of the header are checked before.
            let at = if random.u8(..8) == 0 { 22 } else { random.usize(61..bytes.len()) };
            bytes[at] = random.u8(..);
        }
        BatchMut::parse(&mut bytes).unwrap().update_crc();
        let rules = match random.u8(..4) {
            0 => rules(),
            1 => keyed(),
            2 => append_time(),
            _ => to(Compression::ALL[random.usize(..5)]),
        };
        let before = bytes.clone();
        match accept(&mut bytes, &rules, NOW, &mut tools) {
            Err(_) => assert_eq!(bytes, before),
            Ok(accepted) => {
                taken += 1;
                let stored = accepted.rebuilt.unwrap_or(bytes);
                let batch = Batch::parse(&stored).unwrap();
                batch.verify_crc().unwrap();
                walk(&batch, &mut tools.decompressor).unwrap();
                assert_eq!(batch.size(), stored.len());
            }
        }
    }
    assert!((1000..19_000).contains(&taken), "{taken}");
}
