use super::*;
use crate::varint::{write_varint, write_varlong};
use crate::{BatchBuilder, BatchMut, Compression, Compressor};

const T0: i64 = 1_700_000_000_000;

/// A record by hand: the body that a length field counts.
fn fields(offset_delta: i32, key_length: i32, value_length: i32, header_count: i32, headers: &[u8]) -> Vec<u8> {
    let mut out = vec![0];
    write_varlong(&mut out, i64::from(offset_delta));
    write_varint(&mut out, offset_delta);
    for length in [key_length, value_length] {
        write_varint(&mut out, length);
        out.extend(std::iter::repeat_n(b'x', usize::try_from(length).unwrap_or(0).min(100)));
    }
    write_varint(&mut out, header_count);
    out.extend_from_slice(headers);
    out
}

fn record(length: i32, fields: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_varint(&mut out, length);
    out.extend_from_slice(fields);
    out
}

fn fitting(fields: &[u8]) -> Vec<u8> {
    record(fields.len() as i32, fields)
}

/// A batch around records made by hand, with the count given and a right checksum.
fn batch_of(codec: Compression, count: i32, records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = BatchBuilder::new().compression(codec, codec.default_level()).build().unwrap();
    bytes.truncate(61);
    Compressor::new().compress(codec, codec.default_level(), &records.concat(), &mut bytes).unwrap();
    let length = bytes.len() as i32 - 12;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[23..27].copy_from_slice(&(count - 1).to_be_bytes());
    bytes[57..61].copy_from_slice(&count.to_be_bytes());
    BatchMut::parse(&mut bytes).unwrap().update_crc();
    bytes
}

fn walk_and_read(bytes: &[u8]) -> (Result<WalkSummary, RecordError>, Result<usize, RecordError>) {
    let batch = Batch::parse(bytes).unwrap();
    let mut decompressor = Decompressor::new(1 << 20);
    let walked = walk(&batch, &mut decompressor);
    let read = batch
        .records(&mut decompressor)
        .and_then(|mut records| records.try_fold(0, |read, record| record.map(|_| read + 1)));
    (walked, read)
}

/// What the second of three records makes of it, without compression and with.
fn second_is(bad: Vec<u8>) -> [(Result<WalkSummary, RecordError>, Result<usize, RecordError>); 2] {
    let records = [fitting(&fields(0, 1, 1, 0, &[])), bad, fitting(&fields(2, 1, 1, 0, &[]))];
    [Compression::None, Compression::Gzip].map(|codec| walk_and_read(&batch_of(codec, 3, &records)))
}

#[test]
fn malformed_records_are_the_same_fault_compressed_and_not_walked_and_read() {
    use RecordFault::{NegativeHeaderCount, NegativeLength, NullHeaderKey, VarintTooLong};
    let six = [vec![0x80; 5], vec![0x00], fields(1, 1, 1, 0, &[])].concat();
    for (bad, fault) in [
        (record(-1, &fields(1, 1, 1, 0, &[])), NegativeLength(-1)),
        (fitting(&fields(1, 1, 1, -1, &[])), NegativeHeaderCount(-1)),
        (fitting(&fields(1, 1, 1, i32::MIN, &[])), NegativeHeaderCount(i32::MIN)),
        (fitting(&fields(1, 1, 1, 1, &[0x01, 0x00])), NullHeaderKey),
        (six, VarintTooLong),
    ] {
        for (walked, read) in second_is(bad) {
            assert_eq!(walked, Err(fault.at(1)));
            assert_eq!(read, Err(fault.at(1)));
        }
    }
}

#[test]
fn lengths_and_counts_beyond_the_bytes_are_faults_without_allocation() {
    for bad in [
        fitting(&fields(1, i32::MAX, 1, 0, &[])),
        fitting(&fields(1, 1, i32::MAX, 0, &[])),
        fitting(&fields(1, 1, 1, i32::MAX, &[])),
        fitting(&fields(1, 1, 1, 1000, &[0x02, b'h', 0x01])),
        fitting(&fields(1, 1, 1, 1, &[0x7e, b'h'])),
    ] {
        for (walked, read) in second_is(bad) {
            assert!(matches!(walked, Err(RecordError::Malformed { index: 1 | 2, .. })), "{walked:?}");
            assert_eq!(read, Err(RecordFault::Truncated.at(1)));
        }
    }
    let [plain, _] = second_is(record(i32::MAX, &fields(1, 1, 1, 0, &[])));
    assert_eq!(plain.0, plain.1.map(|_| unreachable!()));
    assert!(matches!(
        plain.0,
        Err(RecordError::Malformed { index: 1, fault: RecordFault::LengthBeyondBytes { length: i32::MAX, .. } })
    ));
}

#[test]
fn a_length_field_that_does_not_fit_is_a_fault_but_only_a_finding_when_compressed() {
    let good = fields(1, 1, 1, 0, &[]);
    for wrong in [good.len() as i32 - 1, good.len() as i32 + 3, 0] {
        let [plain, compressed] = second_is(record(wrong, &good));
        assert!(plain.0.is_err() && plain.1.is_err() && compressed.1.is_err());
        let summary = compressed.0.unwrap();
        assert_eq!((summary.count, summary.first_wrong_length), (3, Some(1)));
    }
    let mut longer = good.clone();
    longer.extend_from_slice(&[0; 4]);
    for (walked, read) in second_is(fitting(&longer)) {
        assert!(walked.is_err() && read.is_err());
    }
}

#[test]
fn a_count_that_is_not_the_number_of_records_is_an_error_however_large() {
    let records: Vec<_> = (0..3).map(|i| fitting(&fields(i, 1, 1, 0, &[]))).collect();
    for codec in Compression::ALL {
        for (count, error) in [
            (4, RecordError::Missing { index: 3, count: 4 }),
            (i32::MAX, RecordError::Missing { index: 3, count: i32::MAX }),
            (2, RecordError::LeftOver { count: 2 }),
            (0, RecordError::LeftOver { count: 0 }),
            (-1, RecordError::NegativeCount(-1)),
        ] {
            let (walked, read) = walk_and_read(&batch_of(codec, count, &records));
            assert_eq!((walked, read), (Err(error), Err(error)), "{codec:?}");
        }
        let (walked, read) = walk_and_read(&batch_of(codec, 3, &records));
        assert_eq!((walked.unwrap().count, read), (3, Ok(3)));
    }
}

#[test]
fn any_negative_length_is_a_null_and_the_first_null_key_is_told() {
    for (walked, read) in second_is(fitting(&fields(1, -2, -2, 0, &[]))) {
        assert_eq!((walked.unwrap().first_null_key, read), (Some(1), Ok(3)));
    }
}

#[test]
fn offsets_and_stamps_are_summed_up() {
    let mut builder = BatchBuilder::new().compression(Compression::Lz4, 9);
    for (delta, stamp) in [(0, T0), (1, T0 + 9), (2, T0 - 7), (3, T0 + 9)] {
        builder.push_at(delta, stamp, Some(b"k"), None, &[]);
    }
    let bytes = builder.clone().build().unwrap();
    let summary = walk(&Batch::parse(&bytes).unwrap(), &mut Decompressor::new(1000)).unwrap();
    assert_eq!((summary.offsets_sequential, summary.first_null_key), (true, None));
    assert_eq!((summary.min_timestamp, summary.max_timestamp), (T0 - 7, T0 + 9));
    assert_eq!(summary.max_timestamp_offset_delta, 1);
    builder.push_at(6, T0, None, None, &[]);
    let bytes = builder.build().unwrap();
    let summary = walk(&Batch::parse(&bytes).unwrap(), &mut Decompressor::new(1000)).unwrap();
    assert_eq!((summary.offsets_sequential, summary.first_null_key), (false, Some(4)));
}

#[test]
fn records_across_pieces_are_walked_like_any_other() {
    for codec in Compression::ALL {
        for value in [0, 1, 63, 64, 100, 8191, 8192, 65_535, 200_000] {
            let mut builder = BatchBuilder::new().compression(codec, codec.default_level());
            let count = 400_000 / (value + 10) as i64 + 1;
            for i in 0..count {
                let noise = (i as u32).wrapping_mul(2_654_435_761).to_be_bytes();
                builder.push(
                    T0 + i * 1000,
                    Some(&noise),
                    Some(&vec![noise[0]; value]),
                    &[(b"h", Some(&noise)), (b"", None)],
                );
            }
            let size = builder.uncompressed_size() - 61;
            let bytes = builder.build().unwrap();
            let batch = Batch::parse(&bytes).unwrap();
            let mut decompressor = Decompressor::new(size);
            let summary = walk(&batch, &mut decompressor).unwrap();
            assert_eq!((i64::from(summary.count), summary.records_size), (count, size as u64), "{codec:?} {value}");
            assert_eq!((summary.max_timestamp, summary.first_wrong_length), (batch.max_timestamp(), None));
            let mut shapes = 0;
            walk_each(&batch, &mut decompressor, |shape| {
                assert_eq!(
                    (shape.index, shape.offset_delta, shape.timestamp_delta),
                    (shapes, shapes, i64::from(shapes) * 1000)
                );
                assert_eq!((shape.key_length, shape.value_length, shape.header_count), (Some(4), Some(value), 2));
                shapes += 1;
            })
            .unwrap();
            decompressor.set_limit(size - 1);
            let limit = CompressionError::LimitExceeded { limit: size - 1 };
            if codec != Compression::None {
                assert_eq!(walk(&batch, &mut decompressor), Err(RecordError::Compression(limit)));
            }
        }
    }
}

#[test]
fn a_bomb_is_walked_in_a_small_window() {
    for codec in Compression::ALL.into_iter().skip(1) {
        let mut builder = BatchBuilder::new().compression(codec, codec.default_level());
        builder.push(T0, None, Some(&vec![0; 64 << 20]), &[]);
        let bytes = builder.build().unwrap();
        let batch = Batch::parse(&bytes).unwrap();
        let mut decompressor = Decompressor::new(usize::MAX);
        assert_eq!(walk(&batch, &mut decompressor).unwrap().count, 1);
        assert!(decompressor.buffer_size() <= 256 << 10, "{codec:?} {}", decompressor.buffer_size());
        decompressor.set_max_record_size(1 << 20);
        let length = (64 << 20) + 9;
        let error = RecordFault::TooLarge { length, limit: 1 << 20 }.at(0);
        assert_eq!(walk(&batch, &mut decompressor), Err(error));
    }
}

#[test]
fn unknown_codecs_are_told() {
    let mut bytes = batch_of(Compression::None, 1, &[fitting(&fields(0, 1, 1, 0, &[]))]);
    for id in 5..=7 {
        bytes[22] = id;
        let error = RecordError::UnknownCodec(i16::from(id));
        assert_eq!(walk_and_read(&bytes), (Err(error), Err(error)));
    }
}
