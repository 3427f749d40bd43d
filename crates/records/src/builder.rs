//! Building batches: records are encoded as they come, the header and the compression follow at the end. For the metadata log, control
//! records, rebuilt batches, clients and tests; a produced batch that is stored as it came never comes here.

use crate::layout::{
    ATTRIBUTES_AT, BASE_SEQUENCE_AT, BASE_TIMESTAMP_AT, CONTROL_BIT, COUNT_AT, DELETE_HORIZON_BIT,
    LAST_OFFSET_DELTA_AT, LEADER_EPOCH_AT, LENGTH_AT, LOG_APPEND_TIME_BIT, LOG_OVERHEAD, MAGIC, MAGIC_AT,
    MAX_TIMESTAMP_AT, PRODUCER_EPOCH_AT, PRODUCER_ID_AT, TRANSACTIONAL_BIT,
};
use crate::varint::{size_of_varlong, write_varint, write_varlong};
use crate::{
    BATCH_OVERHEAD, Batch, BatchMut, Compression, CompressionError, Compressor, ControlType, NO_PRODUCER_ID, Record,
};

/// A header to write: its key and its value.
pub type HeaderSource<'a> = (&'a [u8], Option<&'a [u8]>);

/// A batch that cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The body cannot be compressed.
    #[error(transparent)]
    Compression(#[from] CompressionError),
    /// The batch is longer than its 32-bit length field can say.
    #[error("batch is longer than its length field can say")]
    TooLong,
}

/// Builds one batch after the other; every setting stays until it is changed, the records are used up by [`finish`](Self::finish).
///
/// The first record's stamp is the base timestamp, the largest one the maximum timestamp.
#[derive(Debug, Clone)]
pub struct BatchBuilder {
    compression: Compression,
    level: i32,
    base_offset: i64,
    leader_epoch: i32,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    flags: i16,
    append_time: i64,
    base_timestamp: Option<i64>,
    max_timestamp: i64,
    last_offset_delta: i32,
    count: i32,
    /// Room for the header, then the records; empty without records.
    batch: Vec<u8>,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        BatchBuilder {
            compression: Compression::None,
            level: 0,
            base_offset: 0,
            leader_epoch: -1,
            producer_id: NO_PRODUCER_ID,
            producer_epoch: -1,
            base_sequence: -1,
            flags: 0,
            append_time: -1,
            base_timestamp: None,
            max_timestamp: -1,
            last_offset_delta: -1,
            count: 0,
            batch: Vec::new(),
        }
    }
}

impl BatchBuilder {
    /// A builder of batches as a plain producer sends them: base offset 0, no leader epoch, no producer id, no compression.
    pub fn new() -> BatchBuilder {
        BatchBuilder::default()
    }

    /// Codec and level of the body; see [`Compression::levels`].
    #[must_use]
    pub fn compression(mut self, codec: Compression, level: i32) -> BatchBuilder {
        (self.compression, self.level) = (codec, level);
        self
    }

    /// Offset of the record with offset delta 0.
    #[must_use]
    pub fn base_offset(mut self, offset: i64) -> BatchBuilder {
        self.base_offset = offset;
        self
    }

    /// Epoch of the leader that writes the batch.
    #[must_use]
    pub fn leader_epoch(mut self, epoch: i32) -> BatchBuilder {
        self.leader_epoch = epoch;
        self
    }

    /// Id, epoch and sequence of the first record of an idempotent producer.
    #[must_use]
    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> BatchBuilder {
        (self.producer_id, self.producer_epoch, self.base_sequence) = (id, epoch, base_sequence);
        self
    }

    /// Marks the batch as part of a transaction.
    #[must_use]
    pub fn transactional(self, on: bool) -> BatchBuilder {
        self.flag(TRANSACTIONAL_BIT, on)
    }

    /// Marks the batch as one of control records.
    #[must_use]
    pub fn control(self, on: bool) -> BatchBuilder {
        self.flag(CONTROL_BIT, on)
    }

    /// Stamps the batch with its append time, ms since 1970; the records keep theirs as deltas.
    #[must_use]
    pub fn log_append_time(mut self, now: i64) -> BatchBuilder {
        self.append_time = now;
        self.flag(LOG_APPEND_TIME_BIT, true)
    }

    /// Puts a delete horizon, ms since 1970, in the base timestamp's place; stamps count from it. Before the first record.
    #[must_use]
    pub fn delete_horizon(mut self, horizon: i64) -> BatchBuilder {
        self.base_timestamp = Some(horizon);
        self.flag(DELETE_HORIZON_BIT, true)
    }

    /// Takes codec, flags, producer fields, base offset and leader epoch of `batch`, and of a LogAppendTime batch the append time too:
    /// for a batch whose records are written again.
    #[must_use]
    pub fn like(mut self, batch: &Batch<'_>) -> BatchBuilder {
        if let Some(codec) = batch.compression()
            && codec != self.compression
        {
            self = self.compression(codec, codec.default_level());
        }
        self.flags = batch.attributes() & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT);
        self.append_time = batch.max_timestamp();
        self.base_offset(batch.base_offset()).leader_epoch(batch.partition_leader_epoch()).producer(
            batch.producer_id(),
            batch.producer_epoch(),
            batch.base_sequence(),
        )
    }

    fn flag(mut self, bit: i16, on: bool) -> BatchBuilder {
        self.flags = if on { self.flags | bit } else { self.flags & !bit };
        self
    }

    /// Sets the base offset of the next batch of a builder that is in use.
    pub fn set_base_offset(&mut self, offset: i64) {
        self.base_offset = offset;
    }

    /// Sets the sequence of the next batch's first record of a builder that is in use.
    pub fn set_base_sequence(&mut self, sequence: i32) {
        self.base_sequence = sequence;
    }

    /// Sets id, epoch and sequence of the first record of the next batch of a builder that is in use.
    pub fn set_producer(&mut self, id: i64, epoch: i16, base_sequence: i32) {
        (self.producer_id, self.producer_epoch, self.base_sequence) = (id, epoch, base_sequence);
    }

    /// Takes memory for so many bytes of a batch at once.
    pub fn reserve(&mut self, bytes: usize) {
        self.batch.reserve(bytes);
    }

    /// Sets the offset delta of the batch's end, when records that followed are gone; before [`finish`](Self::finish).
    pub fn set_last_offset_delta(&mut self, delta: i32) {
        self.last_offset_delta = delta;
    }

    /// Number of records so far.
    pub fn count(&self) -> i32 {
        self.count
    }

    /// No records yet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Size of the batch so far without compression, bytes.
    pub fn uncompressed_size(&self) -> usize {
        self.batch.len().max(BATCH_OVERHEAD)
    }

    /// Appends a record behind the last one; its stamp in ms since 1970.
    pub fn push(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[HeaderSource<'_>],
    ) -> &mut BatchBuilder {
        self.push_at(self.last_offset_delta + 1, timestamp, key, value, headers)
    }

    /// Appends a control record.
    pub fn push_control(&mut self, timestamp: i64, kind: ControlType, value: &[u8]) -> &mut BatchBuilder {
        self.push(timestamp, Some(&kind.key()), Some(value), &[])
    }

    /// Appends a record with the offset delta given; deltas that are left out stay free.
    pub fn push_at(
        &mut self,
        offset_delta: i32,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[HeaderSource<'_>],
    ) -> &mut BatchBuilder {
        self.push_any(offset_delta, timestamp, key, value, headers)
    }

    /// Appends a record behind the last one, with headers whose keys are text.
    pub fn push_named(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&str, Option<&[u8]>)],
    ) -> &mut BatchBuilder {
        self.push_any(self.last_offset_delta + 1, timestamp, key, value, headers)
    }

    fn push_any<K: AsRef<[u8]>>(
        &mut self,
        offset_delta: i32,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(K, Option<&[u8]>)],
    ) -> &mut BatchBuilder {
        let headers_size: usize =
            headers.iter().map(|(key, value)| size_of_field(Some(key.as_ref())) + size_of_field(*value)).sum();
        self.begin_record(offset_delta, timestamp, key, value, headers.len(), headers_size);
        for (key, value) in headers {
            write_field(&mut self.batch, Some(key.as_ref()));
            write_field(&mut self.batch, *value);
        }
        self
    }

    /// Appends `record` of another batch with the offset delta and stamp given.
    pub fn push_record(&mut self, offset_delta: i32, timestamp: i64, record: &Record<'_>) -> &mut BatchBuilder {
        let encoded = record.headers.encoded();
        self.begin_record(offset_delta, timestamp, record.key, record.value, record.headers.len(), encoded.len());
        self.batch.extend_from_slice(encoded);
        self
    }

    fn begin_record(
        &mut self,
        offset_delta: i32,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: usize,
        headers_size: usize,
    ) {
        let delta = timestamp.wrapping_sub(*self.base_timestamp.get_or_insert(timestamp));
        let size = 1
            + size_of_varlong(delta)
            + size_of_varlong(i64::from(offset_delta))
            + size_of_field(key)
            + size_of_field(value)
            + size_of_varlong(headers as i64)
            + headers_size;
        let out = &mut self.batch;
        if out.is_empty() {
            out.resize(BATCH_OVERHEAD, 0);
        }
        write_varlong(out, size as i64);
        out.push(0);
        write_varlong(out, delta);
        write_varint(out, offset_delta);
        write_field(out, key);
        write_field(out, value);
        write_varlong(out, headers as i64);
        self.max_timestamp = if self.count == 0 { timestamp } else { self.max_timestamp.max(timestamp) };
        self.last_offset_delta = offset_delta;
        self.count += 1;
    }

    /// Appends the batch to `out` and forgets its records; the settings stay. Returns its size in bytes.
    ///
    /// A batch without records is one too: compaction keeps the header for its producer state.
    ///
    /// # Errors
    /// [`BuildError`]; `out` is then as it was before.
    pub fn finish(&mut self, compressor: &mut Compressor, out: &mut Vec<u8>) -> Result<usize, BuildError> {
        let start = out.len();
        out.resize(start + BATCH_OVERHEAD, 0);
        let records = self.batch.get(BATCH_OVERHEAD..).unwrap_or_default();
        let body = compressor.compress(self.compression, self.level, records, out).map_err(BuildError::from);
        let length = body.and_then(|()| {
            let length = out.len() - start - LOG_OVERHEAD;
            i32::try_from(length).map_err(|_| BuildError::TooLong)
        });
        match length {
            Ok(length) => self.write_header(length, &mut out[start..]),
            Err(error) => {
                out.truncate(start);
                return Err(error);
            }
        }
        self.batch.clear();
        self.forget_records();
        Ok(out.len() - start)
    }

    /// The batch as bytes of its own, and the records forgotten. Without compression, it is the memory that the records were
    /// appended to, and nothing is copied.
    ///
    /// # Errors
    /// [`BuildError`]; the records are then still there.
    pub fn take(&mut self, compressor: &mut Compressor) -> Result<Vec<u8>, BuildError> {
        if self.compression != Compression::None || self.batch.is_empty() {
            let mut out = Vec::new();
            self.finish(compressor, &mut out)?;
            return Ok(out);
        }
        let length = i32::try_from(self.batch.len() - LOG_OVERHEAD).map_err(|_| BuildError::TooLong)?;
        let mut batch = std::mem::take(&mut self.batch);
        self.write_header(length, &mut batch);
        self.forget_records();
        Ok(batch)
    }

    fn forget_records(&mut self) {
        (self.base_timestamp, self.max_timestamp, self.last_offset_delta, self.count) = (None, -1, -1, 0);
        self.flags &= !DELETE_HORIZON_BIT;
    }

    /// The batch alone, built with a compressor of its own; for places that build few.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build(mut self) -> Result<Vec<u8>, BuildError> {
        let mut out = Vec::with_capacity(self.uncompressed_size());
        self.finish(&mut Compressor::new(), &mut out)?;
        Ok(out)
    }

    fn write_header(&self, length: i32, batch: &mut [u8]) {
        let mut put = |at: usize, field: &[u8]| batch[at..at + field.len()].copy_from_slice(field);
        let max_timestamp = if self.flags & LOG_APPEND_TIME_BIT == 0 { self.max_timestamp } else { self.append_time };
        put(0, &self.base_offset.to_be_bytes());
        put(LENGTH_AT, &length.to_be_bytes());
        put(LEADER_EPOCH_AT, &self.leader_epoch.to_be_bytes());
        put(MAGIC_AT, &MAGIC.to_be_bytes());
        put(ATTRIBUTES_AT, &(self.flags | self.compression.id()).to_be_bytes());
        put(LAST_OFFSET_DELTA_AT, &self.last_offset_delta.to_be_bytes());
        put(BASE_TIMESTAMP_AT, &self.base_timestamp.unwrap_or(-1).to_be_bytes());
        put(MAX_TIMESTAMP_AT, &max_timestamp.to_be_bytes());
        put(PRODUCER_ID_AT, &self.producer_id.to_be_bytes());
        put(PRODUCER_EPOCH_AT, &self.producer_epoch.to_be_bytes());
        put(BASE_SEQUENCE_AT, &self.base_sequence.to_be_bytes());
        put(COUNT_AT, &self.count.to_be_bytes());
        BatchMut::of_checked(batch).update_crc();
    }
}

fn size_of_field(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| size_of_varlong(bytes.len() as i64) + bytes.len())
}

fn write_field(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => write_varint(out, -1),
        Some(bytes) => {
            write_varlong(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
#[path = "builder_tests.rs"]
mod tests;
