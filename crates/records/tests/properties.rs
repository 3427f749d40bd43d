//! Round trips of arbitrary batches through every codec, and hostile ones: mutated batches never panic, never produce more than the
//! limit, and the walk agrees with the record iterator.

use milena_records::{
    Batch, BatchBuilder, BatchMut, Compression, Decompressor, RecordError, RecordFault, batches, validate,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

type Bytes = Vec<u8>;

#[derive(Debug, Clone)]
struct Source {
    delta: i64,
    key: Option<Bytes>,
    value: Option<Bytes>,
    headers: Vec<(Bytes, Option<Bytes>)>,
}

fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        4 => vec(any::<u8>(), 0..20),
        2 => (any::<u8>(), 0usize..300).prop_map(|(byte, len)| vec![byte; len]),
        1 => vec(any::<u8>(), 0..40_000),
        1 => (any::<u8>(), 0usize..150_000).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn source() -> impl Strategy<Value = Source> {
    let small = vec(any::<u8>(), 0..8);
    let headers = prop_oneof![
        4 => vec((small.clone(), option::of(small.clone())), 0..3),
        1 => vec((small.clone(), option::of(small)), 0..200),
    ];
    let delta = prop_oneof![-100i64..100, Just(i64::MAX), Just(i64::MIN), any::<i64>()];
    (delta, option::of(bytes()), option::of(bytes()), headers).prop_map(|(delta, key, value, headers)| Source {
        delta,
        key,
        value,
        headers,
    })
}

fn codec() -> impl Strategy<Value = Compression> {
    (0i16..5).prop_map(|id| Compression::from_id(id).unwrap())
}

fn build(codec: Compression, sources: &[Source], base: i64) -> Bytes {
    let mut builder = BatchBuilder::new().compression(codec, codec.default_level());
    for source in sources {
        let headers: Vec<_> = source.headers.iter().map(|(key, value)| (&key[..], value.as_deref())).collect();
        builder.push(base.wrapping_add(source.delta), source.key.as_deref(), source.value.as_deref(), &headers);
    }
    builder.build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_built_is_read_back(codec in codec(), sources in vec(source(), 0..12), base: i64) {
        let built = build(codec, &sources, base);
        let batch = Batch::parse(&built).unwrap();
        prop_assert_eq!(batch.verify_crc(), Ok(()));
        let mut decompressor = Decompressor::new(8 << 20);
        let mut read = 0;
        for (record, source) in batch.records(&mut decompressor).unwrap().zip(&sources) {
            let record = record.unwrap();
            prop_assert_eq!(record.offset_delta, read);
            prop_assert_eq!(record.timestamp(&batch), base.wrapping_add(source.delta));
            prop_assert!(record.key == source.key.as_deref() && record.value == source.value.as_deref());
            prop_assert_eq!(record.headers.len(), source.headers.len());
            for (header, (key, value)) in record.headers.iter().zip(&source.headers) {
                prop_assert!(header.key == &key[..] && header.value == value.as_deref());
            }
            read += 1;
        }
        prop_assert_eq!(read as usize, sources.len());
        let summary = validate::walk(&batch, &mut decompressor).unwrap();
        prop_assert!(summary.offsets_sequential && summary.first_wrong_length.is_none());
        prop_assert_eq!(summary.max_timestamp, batch.max_timestamp());
        let null_key = sources.iter().position(|source| source.key.is_none());
        prop_assert_eq!(summary.first_null_key, null_key.map(|index| index as i32));
    }

    #[test]
    fn records_that_are_passed_over_leave_the_others_as_they_are(codec in codec(), sources in vec(source(), 0..12), pattern: u16) {
        let built = build(codec, &sources, 7);
        let batch = Batch::parse(&built).unwrap();
        let is_read = |index: usize| pattern >> index & 1 == 1;
        let mut decompressor = Decompressor::new(8 << 20);
        let mut records = batch.records(&mut decompressor).unwrap();
        for (index, source) in sources.iter().enumerate() {
            if !is_read(index) {
                records.pass_over();
                continue;
            }
            let record = records.next().unwrap().unwrap();
            prop_assert_eq!(record.offset_delta as usize, index);
            prop_assert!(record.key == source.key.as_deref() && record.value == source.value.as_deref());
        }
        records.pass_over();
        prop_assert_eq!(records.next(), None);
    }
}

/// Reads a hostile batch in both ways and compares what they say.
fn read_hostile(batch: &Batch<'_>, decompressor: &mut Decompressor, limit: usize) {
    let walked = validate::walk(batch, decompressor);
    let read = batch.records(decompressor).and_then(|records| {
        let mut bytes = 0;
        for record in records {
            let record = record?;
            bytes += record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
            assert_eq!(record.headers.iter().count(), record.headers.len());
        }
        Ok(bytes)
    });
    match (walked, read) {
        (Ok(summary), Ok(bytes)) => {
            assert_eq!(summary.first_wrong_length, None);
            assert!(bytes <= limit.max(batch.size()));
        }
        (Ok(summary), Err(_)) => assert!(summary.first_wrong_length.is_some(), "{read:?}"),
        (Err(_), Ok(_)) => panic!("walked {walked:?}, read {read:?}"),
        (Err(_), Err(_)) => {}
    }
}

#[test]
fn mutated_batches_never_panic_and_never_exceed_the_limit() {
    let limit = 1 << 20;
    let mut rng = fastrand::Rng::with_seed(0x6d69_6c65_6e61);
    let mut decompressor = Decompressor::new(limit);
    let sources: Vec<Source> = (0..40)
        .map(|i| Source {
            delta: i * 3 - 20,
            key: (i % 4 != 0).then(|| format!("key-{i}").into_bytes()),
            value: (i % 6 != 0).then(|| vec![b'a' + (i % 5) as u8; (i * i) as usize]),
            headers: vec![(b"header".to_vec(), (i % 2 == 0).then(|| b"value".to_vec())); (i % 3) as usize],
        })
        .collect();
    for codec in Compression::ALL {
        let whole = build(codec, &sources, 1_700_000_000_000);
        for _ in 0..6000 {
            let mut hostile = whole.clone();
            mutate(&mut hostile, &mut rng);
            for batch in batches(&hostile).map_while(Result::ok) {
                let _ = (batch.last_sequence(), batch.next_offset(), batch.delete_horizon(), format!("{batch:?}"));
                read_hostile(&batch, &mut decompressor, limit);
            }
        }
    }
}

/// One to four changes: a byte, a bit, a cut, a doubled part, a large length in the header or the body. The length field is put right
/// most of the time, so that the changes are met further in.
fn mutate(bytes: &mut Bytes, rng: &mut fastrand::Rng) {
    for _ in 0..rng.usize(1..5) {
        let at =
            if rng.u8(..4) == 0 { rng.usize(..bytes.len()) } else { rng.usize(bytes.len().min(61) - 1..bytes.len()) };
        match rng.u8(..7) {
            0 => bytes[at] = rng.u8(..),
            1 => bytes[at] ^= 1 << rng.u8(..8),
            2 => bytes.truncate(at.max(30)),
            3 => {
                let part = bytes[at..(at + rng.usize(..50)).min(bytes.len())].to_vec();
                bytes.splice(at..at, part);
            }
            4 => bytes[at..].iter_mut().take(5).for_each(|byte| *byte = 0xff),
            5 => bytes[at..].iter_mut().take(4).for_each(|byte| *byte = 0x80),
            _ => {
                let end = (at + rng.usize(..20)).min(bytes.len());
                bytes.drain(at..end);
                bytes.resize(bytes.len().max(30), 0);
            }
        }
    }
    if rng.u8(..10) != 0 {
        let length = bytes.len() as i32 - 12;
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[16] = 2;
    }
}

#[test]
fn random_bytes_as_a_body_are_an_error_in_every_codec() {
    let mut rng = fastrand::Rng::with_seed(7);
    let mut decompressor = Decompressor::new(1 << 16);
    for codec in Compression::ALL {
        for _ in 0..2000 {
            let mut bytes = build(codec, &[], 0);
            bytes.truncate(61);
            let length = rng.usize(1..200);
            bytes.extend(std::iter::repeat_with(|| rng.u8(..)).take(length));
            bytes[57..61].copy_from_slice(&[0, 0, 0, 9]);
            let length = bytes.len() as i32 - 12;
            bytes[8..12].copy_from_slice(&length.to_be_bytes());
            assert!(validate::walk(&Batch::parse(&bytes).unwrap(), &mut decompressor).is_err());
        }
    }
}

#[test]
fn the_checksum_finds_every_single_changed_byte() {
    let source = Source { delta: 0, key: None, value: Some(vec![7; 30]), headers: Vec::new() };
    let whole = build(Compression::None, &[source], 0);
    for at in 17..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x40;
        assert!(Batch::parse(&changed).unwrap().verify_crc().is_err(), "byte {at}");
    }
    let mut stamped = whole;
    let mut batch = BatchMut::parse(&mut stamped).unwrap();
    batch.set_base_offset(i64::MAX);
    batch.set_partition_leader_epoch(i32::MAX);
    assert_eq!(batch.as_batch().verify_crc(), Ok(()));
}

#[test]
fn an_error_ends_the_iteration() {
    let mut bytes = build(Compression::None, &[], 0);
    bytes[57..61].copy_from_slice(&5i32.to_be_bytes());
    bytes.extend_from_slice(&[0x01; 40]);
    let length = bytes.len() as i32 - 12;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let mut records = Batch::parse(&bytes).unwrap().plain_records().unwrap();
    let fault = RecordFault::NegativeLength(-1);
    assert_eq!(records.next(), Some(Err(RecordError::Malformed { index: 0, fault })));
    assert_eq!((records.next(), records.next()), (None, None));
}
