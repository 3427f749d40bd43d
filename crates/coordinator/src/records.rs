//! Records of one write: keys and values with the versions that stand before them, gathered into batches.

use milena_protocol::{DecodeError, EncodeError, Message, Reader, Writer};
use milena_records::{BatchBuilder, BuildError, Compressor};

/// A key's version; no key of a coordinator's topic has another.
const KEY_VERSION: i16 = 0;
/// What a record takes beside its key and value, at most, bytes.
const RECORD_OVERHEAD: usize = 32;

/// Why a write can't be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordsError {
    /// A field is longer than its record can say.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The batch can't be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// What must be written together is longer than a batch may be.
    #[error("the records are longer than a batch may be")]
    TooLong,
}

/// Records on their way into the log. The first mistake is kept until the end, so that adding needs no check.
#[derive(Debug)]
pub struct Records {
    builder: BatchBuilder,
    timestamp: i64,
    max_batch_bytes: usize,
    /// May become several batches.
    may_split: bool,
    full: Vec<Vec<u8>>,
    error: Option<RecordsError>,
    scratch: (Vec<u8>, Vec<u8>),
}

impl Records {
    /// No records yet; `timestamp` is that of each, ms since 1970. What does not fit into one batch is not written.
    pub fn new(timestamp: i64, max_batch_bytes: usize) -> Self {
        Self {
            // As Kafka's coordinators do it, sequences begin at 0 though there is no producer.
            builder: BatchBuilder::new().producer(-1, -1, 0),
            timestamp,
            max_batch_bytes,
            may_split: false,
            full: Vec::new(),
            error: None,
            scratch: (Vec::new(), Vec::new()),
        }
    }

    /// The records need not be written together: they may become several batches.
    #[must_use]
    pub fn splittable(mut self) -> Self {
        self.may_split = true;
        self
    }

    /// The records belong to a transaction of this producer.
    #[must_use]
    pub fn transactional(mut self, producer_id: i64, producer_epoch: i16) -> Self {
        self.builder = self.builder.producer(producer_id, producer_epoch, 0).transactional(true);
        self
    }

    /// The batches have no sequences.
    #[must_use]
    pub fn without_sequences(mut self) -> Self {
        self.builder = self.builder.producer(-1, -1, -1);
        self
    }

    /// The codec of the batches.
    #[must_use]
    pub fn compression(mut self, codec: milena_records::Compression, level: i32) -> Self {
        self.builder = self.builder.compression(codec, level);
        self
    }

    /// No records.
    pub fn is_empty(&self) -> bool {
        self.builder.is_empty() && self.full.is_empty()
    }

    /// Adds a record.
    pub fn put<'k, 'v>(&mut self, key: &impl Message<'k>, value: &impl Message<'v>, version: i16) {
        self.add(key, |writer| {
            writer.i16(version);
            value.encode(writer, version)
        });
    }

    /// Adds a tombstone.
    pub fn remove<'k>(&mut self, key: &impl Message<'k>) {
        self.add(key, |_| Ok(()));
    }

    fn add<'k, K: Message<'k>>(&mut self, key: &K, value: impl FnOnce(&mut Writer) -> Result<(), EncodeError>) {
        let (key_bytes, value_bytes) = std::mem::take(&mut self.scratch);
        let (mut key_writer, mut value_writer) = (Writer::over(key_bytes), Writer::over(value_bytes));
        key_writer.i16(K::API_KEY.expect("a record's key has a type"));
        let encoded = key.encode(&mut key_writer, KEY_VERSION).and_then(|()| value(&mut value_writer));
        let (mut key_bytes, mut value_bytes) = (key_writer.into_bytes(), value_writer.into_bytes());
        match encoded {
            // A value begins with its version, so one without bytes is none.
            Ok(()) => self.push(&key_bytes, (!value_bytes.is_empty()).then_some(&value_bytes)),
            Err(error) => self.fail(error.into()),
        }
        key_bytes.clear();
        value_bytes.clear();
        self.scratch = (key_bytes, value_bytes);
    }

    fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        let size = key.len() + value.map_or(0, <[u8]>::len) + RECORD_OVERHEAD;
        if self.may_split && !self.builder.is_empty() && self.builder.uncompressed_size() + size > self.max_batch_bytes
        {
            self.finish_batch();
        }
        self.builder.push(self.timestamp, Some(key), value, &[]);
    }

    fn finish_batch(&mut self) {
        match self.builder.take(&mut Compressor::new()) {
            Ok(batch) if batch.len() > self.max_batch_bytes => self.fail(RecordsError::TooLong),
            Ok(batch) => self.full.push(batch),
            Err(error) => self.fail(error.into()),
        }
    }

    fn fail(&mut self, error: RecordsError) {
        self.error.get_or_insert(error);
    }

    /// The batches, none when there are no records.
    ///
    /// # Errors
    /// The first mistake; then nothing may be written.
    pub fn finish(mut self) -> Result<Vec<Vec<u8>>, RecordsError> {
        if !self.builder.is_empty() {
            self.finish_batch();
        }
        self.error.map_or(Ok(self.full), Err)
    }
}

/// A key or value of the version given.
pub(crate) fn decode<'a, M: Message<'a>>(bytes: &'a [u8], version: i16) -> Result<M, DecodeError> {
    M::decode(&mut Reader::new(bytes), version)
}

/// The version in front of a value, and what follows it.
pub(crate) fn versioned(value: Option<&[u8]>) -> Result<Option<(i16, &[u8])>, DecodeError> {
    let Some(value) = value else { return Ok(None) };
    let mut reader = Reader::new(value);
    let version = reader.i16()?;
    Ok(Some((version, reader.rest())))
}

#[cfg(test)]
mod tests {
    use milena_protocol::messages::{OffsetCommitKey, OffsetCommitValue};
    use milena_records::Batch;

    use super::*;

    fn key(group: &str) -> OffsetCommitKey<'_> {
        OffsetCommitKey { group: group.into(), topic: "t".into(), partition: 1 }
    }

    #[test]
    fn a_write_is_one_batch_as_kafkas_coordinators_write_it() {
        let mut records = Records::new(7, 1000);
        records.put(&key("g"), &OffsetCommitValue::default(), 4);
        records.remove(&key("h"));
        let batches = records.finish().unwrap();
        let batch = Batch::parse(&batches[0]).unwrap();
        let header = (batch.producer_id(), batch.producer_epoch(), batch.base_sequence(), batch.attributes());
        assert_eq!((batches.len(), batch.count(), batch.max_timestamp(), header), (1, 2, 7, (-1, -1, 0, 0)));
        let records: Vec<_> = batch.plain_records().unwrap().map(Result::unwrap).collect();
        assert_eq!(records[0].key.unwrap(), [0, 1, 0, 1, b'g', 0, 1, b't', 0, 0, 0, 1]);
        assert_eq!(records[0].value.unwrap()[..2], [0, 4]);
        assert_eq!(records[1].value, None);
    }

    #[test]
    fn what_must_be_together_is_not_split_and_the_rest_is() {
        let fill = |mut records: Records| {
            (0..100).for_each(|_| records.remove(&key("g")));
            records.finish().map(|batches| batches.len())
        };
        assert_eq!(fill(Records::new(0, 500)), Err(RecordsError::TooLong));
        assert!(fill(Records::new(0, 500).splittable()).unwrap() > 2);
    }

    #[test]
    fn a_field_that_is_too_long_fails_the_whole_write() {
        let mut records = Records::new(0, 1 << 20);
        records.remove(&key("g"));
        records.remove(&key(&"x".repeat(40_000)));
        assert!(matches!(records.finish(), Err(RecordsError::Encode(_))));
    }
}
