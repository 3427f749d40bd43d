//! Writing a produced batch again for a topic whose codec is not the batch's: the records are decoded and encoded anew, as Kafka does.
//! Whether a batch must be rebuilt is the broker's decision; a batch that need not be is stored as it came.

use crate::{Batch, BatchBuilder, BuildError, Compression, Compressor, Decompressor, RecordError};

/// What the rebuilt batch is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebuildTarget {
    /// The topic's codec.
    pub compression: Compression,
    /// The topic's level for that codec.
    pub level: i32,
    /// The append time, ms since 1970, on a LogAppendTime topic; `None` keeps the records' own stamps.
    pub append_time: Option<i64>,
}

/// A batch that cannot be rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RebuildError {
    /// Its records cannot be read.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// The new batch cannot be written.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// Appends to `out` the records of `batch` as a batch that is what `target` says. Returns its size in bytes.
///
/// Keys, values, headers, stamps and their order stay, and so do producer id, epoch, base sequence, the transactional and the control
/// bit, base offset and leader epoch. Offset deltas become 0, 1, 2; the first stamp becomes the base timestamp; other attribute bits
/// and the records' attributes become 0. The decompressed records are held in memory twice.
///
/// # Errors
/// [`RebuildError`]; `out` is then as it was before.
pub fn rebuild(
    batch: &Batch<'_>,
    target: RebuildTarget,
    decompressor: &mut Decompressor,
    compressor: &mut Compressor,
    out: &mut Vec<u8>,
) -> Result<usize, RebuildError> {
    let mut builder = BatchBuilder::new()
        .compression(target.compression, target.level)
        .transactional(batch.is_transactional())
        .control(batch.is_control())
        .producer(batch.producer_id(), batch.producer_epoch(), batch.base_sequence())
        .base_offset(batch.base_offset())
        .leader_epoch(batch.partition_leader_epoch());
    if let Some(now) = target.append_time {
        builder = builder.log_append_time(now);
    }
    for (offset_delta, record) in (0..).zip(batch.records(decompressor)?) {
        let record = record?;
        builder.push_record(offset_delta, record.timestamp(batch), &record);
    }
    Ok(builder.finish(compressor, out)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchMut, TimestampType};

    const T0: i64 = 1_700_000_000_000;

    fn source(codec: Compression) -> Vec<u8> {
        let mut builder = BatchBuilder::new()
            .compression(codec, codec.default_level())
            .producer(5, 1, 9)
            .transactional(true)
            .base_offset(50)
            .leader_epoch(2);
        builder.push(T0 + 7, Some(b"a"), Some(b"1"), &[(b"h", None), (b"h", Some(b"x"))]);
        builder.push(T0, None, Some(&[b'z'; 70_000]), &[]).push(T0 + 3, Some(b"c"), None, &[]);
        builder.build().unwrap()
    }

    fn rebuilt(bytes: &[u8], target: RebuildTarget) -> Result<Vec<u8>, RebuildError> {
        let mut out = b"before".to_vec();
        let batch = Batch::parse(bytes).unwrap();
        let size = rebuild(&batch, target, &mut Decompressor::new(1 << 20), &mut Compressor::new(), &mut out)?;
        assert_eq!(out.len(), 6 + size);
        Ok(out.split_off(6))
    }

    #[test]
    fn every_codec_is_rebuilt_into_every_other_with_all_that_must_stay() {
        for (from, compression) in Compression::ALL.into_iter().flat_map(|from| Compression::ALL.map(|to| (from, to))) {
            let target = RebuildTarget { compression, level: compression.default_level(), append_time: None };
            assert!(rebuilt(&source(from), target).unwrap() == source(compression), "{from:?} to {compression:?}");
        }
    }

    #[test]
    fn with_an_append_time_the_stamps_of_the_records_stay_below_it() {
        let target = RebuildTarget { compression: Compression::Lz4, level: 9, append_time: Some(T0 + 1000) };
        let bytes = rebuilt(&source(Compression::None), target).unwrap();
        let batch = Batch::parse(&bytes).unwrap();
        assert_eq!((batch.timestamp_type(), batch.max_timestamp()), (TimestampType::LogAppendTime, T0 + 1000));
        let mut decompressor = Decompressor::new(1 << 20);
        let deltas: Vec<i64> = batch.records(&mut decompressor).unwrap().map(|r| r.unwrap().timestamp_delta).collect();
        assert_eq!((batch.base_timestamp(), deltas), (T0 + 7, vec![0, -7, -4]));
    }

    #[test]
    fn offset_deltas_are_counted_anew_and_other_bits_are_dropped() {
        let mut builder = BatchBuilder::new();
        builder.push_at(2, T0, None, None, &[]).push_at(1, T0, None, None, &[]).push_at(0, T0, None, None, &[]);
        let mut bytes = builder.build().unwrap();
        bytes[21] = 0x7f;
        bytes[22] = 0xc0;
        BatchMut::parse(&mut bytes).unwrap().update_crc();
        let target = RebuildTarget { compression: Compression::Zstd, level: 3, append_time: None };
        let bytes = rebuilt(&bytes, target).unwrap();
        let batch = Batch::parse(&bytes).unwrap();
        assert_eq!((batch.attributes(), batch.last_offset_delta()), (4, 2));
        let mut decompressor = Decompressor::new(1 << 20);
        let deltas: Vec<i32> = batch.records(&mut decompressor).unwrap().map(|r| r.unwrap().offset_delta).collect();
        assert_eq!(deltas, [0, 1, 2]);
    }

    #[test]
    fn a_batch_that_cannot_be_read_leaves_nothing() {
        let mut bytes = source(Compression::Lz4);
        bytes[61] = 0;
        let mut out = Vec::new();
        let target = RebuildTarget { compression: Compression::None, level: 0, append_time: None };
        let batch = Batch::parse(&bytes).unwrap();
        let error = rebuild(&batch, target, &mut Decompressor::new(1 << 20), &mut Compressor::new(), &mut out);
        assert!(matches!(error, Err(RebuildError::Records(RecordError::Compression(_)))), "{error:?}");
        assert!(out.is_empty());
    }
}
