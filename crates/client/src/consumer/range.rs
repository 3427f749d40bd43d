//! Batches of a partition that came in one response, and the records in them: checksums, codecs, control batches and
//! transactions that were aborted. Knows nothing of brokers and requests.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use milena_protocol::messages::fetch_response::AbortedTransaction;
use milena_records::{Batch, Compression, Decompressor, EndTransaction, Output, RecordError, batches};

use super::records::{ConsumerRecords, Data, Entry, Field, Pool, place};
use crate::error::Corruption;
use crate::topic_partition::TopicPartition;

/// Bytes of records that are given at once, if a batch is not longer. So what is decompressed or looked at for its checksum
/// is still in the processor's cache when the records are read.
const PORTION: usize = 256 << 10;

/// Whole batches of a partition, as they came.
#[derive(Debug)]
pub(super) struct Range {
    bytes: Bytes,
    /// Where the next batch begins.
    at: usize,
    /// `None` where uncommitted records are wanted too.
    aborted: Option<Aborted>,
    /// What was taken out and is too much to be given at once.
    rest: Option<Rest>,
}

/// Where a range ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    /// The offset that follows.
    pub(super) offset: i64,
    /// Leader epoch of the last batch.
    pub(super) leader_epoch: i32,
}

/// What a range holds in one piece.
#[derive(Debug)]
pub(super) struct Portion {
    pub(super) data: Data,
    pub(super) index: Vec<Entry>,
    /// Bytes of the batches with these records.
    size: usize,
    pub(super) end: End,
}

/// Records of a large batch, which are given piece by piece.
#[derive(Debug)]
struct Rest {
    data: Data,
    index: Vec<Entry>,
    /// How many were given.
    given: usize,
    end: End,
}

impl Rest {
    fn new(portion: Portion) -> Self {
        let Portion { data, index, end, .. } = portion;
        Self { data, index, given: 0, end }
    }

    fn is_empty(&self) -> bool {
        self.given == self.index.len()
    }

    /// The next of them, so many at most.
    fn next(&mut self, most: usize, pool: &Pool) -> Portion {
        let piece = &self.index[self.given..];
        let piece = &piece[..piece.len().min(most)];
        self.given += piece.len();
        let mut index = pool.index();
        index.extend_from_slice(piece);
        let end = match piece.last().filter(|_| !self.is_empty()) {
            Some(last) => End { offset: last.offset.saturating_add(1), leader_epoch: last.leader_epoch },
            None => self.end,
        };
        Portion { data: self.data.share(), index, size: 0, end }
    }
}

impl Range {
    /// The whole batches that `bytes` begin with, and where they end; a batch that is cut off will be fetched again. `None`
    /// when there is not a byte.
    ///
    /// # Errors
    /// When there are bytes, but no whole batch.
    pub(super) fn new(bytes: Bytes, aborted: Option<&[AbortedTransaction]>) -> Result<Option<(Self, End)>, Corruption> {
        let mut all = batches(&bytes);
        let mut end = None;
        for batch in all.by_ref() {
            match batch {
                Ok(batch) => {
                    end = Some(End { offset: batch.next_offset(), leader_epoch: batch.partition_leader_epoch() });
                }
                // What is wrong behind whole batches will be seen at the beginning of a later range.
                Err(_) if end.is_some() => break,
                Err(error) => return Err(error.into()),
            }
        }
        let Some(end) = end else { return Ok(None) };
        let whole = all.position();
        let bytes = bytes.slice(..whole);
        Ok(Some((Self { bytes, at: 0, aborted: aborted.map(Aborted::new), rest: None }, end)))
    }

    /// Bytes that are not decoded yet.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next records with offsets from `from` on; none where all that follows is not for a consumer. `None` at the end.
    ///
    /// # Errors
    /// When the next batch can't be read. It stays the next one.
    pub(super) fn next(&mut self, from: i64, decoder: &mut Decoder) -> Result<Option<Portion>, Corruption> {
        if self.rest.is_some() {
            return Ok(self.next_of_rest(decoder));
        }
        let mut portion: Option<Portion> = None;
        while let Some(batch) = batches(&self.bytes[self.at..]).next().transpose()? {
            let filling = portion.get_or_insert_with(|| decoder.begin(&batch, &self.bytes, from));
            if decoder.is_full(filling, &batch) {
                break;
            }
            match decoder.read(&batch, self.aborted.as_mut(), from, filling) {
                Ok(()) => self.at += batch.size(),
                // What came before is good; the error comes next.
                Err(_) if !filling.index.is_empty() => break,
                Err(error) => {
                    decoder.give_back(portion);
                    return Err(error);
                }
            }
        }
        match portion {
            Some(large) if large.index.len() > decoder.max_records => {
                self.rest = Some(Rest::new(large));
                Ok(self.next_of_rest(decoder))
            }
            portion => Ok(portion),
        }
    }

    fn next_of_rest(&mut self, decoder: &Decoder) -> Option<Portion> {
        let rest = self.rest.as_mut()?;
        let portion = rest.next(decoder.max_records, &decoder.pool);
        if rest.is_empty() {
            decoder.pool.put_index(std::mem::take(&mut rest.index));
            self.rest = None;
        }
        Some(portion)
    }
}

/// How records are taken out of ranges; one for a consumer.
#[derive(Debug)]
pub(super) struct Decoder {
    decompressor: Decompressor,
    check_crcs: bool,
    max_records: usize,
    pool: Arc<Pool>,
}

impl Decoder {
    /// `limit` is of the bytes that a batch may have when it is decompressed.
    pub(super) fn new(check_crcs: bool, max_records: usize, limit: usize) -> Self {
        Self { decompressor: Decompressor::new(limit), check_crcs, max_records, pool: Arc::default() }
    }

    /// A portion as its reader gets it.
    pub(super) fn finish(&self, portion: Portion, partition: TopicPartition) -> ConsumerRecords {
        let Portion { data, index, end, .. } = portion;
        ConsumerRecords { partition, data, index, next_offset: end.offset, pool: Arc::clone(&self.pool) }
    }

    /// The memory of a portion that nobody gets.
    pub(super) fn give_back(&self, portion: Option<Portion>) {
        let Some(portion) = portion else { return };
        self.pool.put_index(portion.index);
        self.pool.put_data(portion.data);
    }

    fn begin(&self, batch: &Batch<'_>, bytes: &Bytes, from: i64) -> Portion {
        let data =
            if is_compressed(batch) { Data::Decompressed(self.pool.output()) } else { Data::Fetched(bytes.clone()) };
        Portion { data, index: self.pool.index(), size: 0, end: End { offset: from, leader_epoch: -1 } }
    }

    /// Whether a batch has to wait for the next portion.
    fn is_full(&self, portion: &Portion, batch: &Batch<'_>) -> bool {
        let count = batch.count().unsigned_abs() as usize;
        let other_kind = is_compressed(batch) != matches!(portion.data, Data::Decompressed(_));
        let enough = portion.size >= PORTION || portion.index.len() + count > self.max_records;
        !batch.is_control() && (other_kind || (enough && !portion.index.is_empty()))
    }

    /// Adds a batch's records to a portion, or nothing of it.
    fn read(
        &mut self,
        batch: &Batch<'_>,
        aborted: Option<&mut Aborted>,
        from: i64,
        portion: &mut Portion,
    ) -> Result<(), Corruption> {
        if self.check_crcs {
            batch.verify_crc()?;
        }
        let is_aborted = aborted.is_some_and(|aborted| aborted.has(batch));
        let end =
            End { offset: batch.next_offset().max(portion.end.offset), leader_epoch: batch.partition_leader_epoch() };
        if !is_aborted && !batch.is_control() && batch.next_offset() > from {
            self.add_records(batch, from, portion)?;
        }
        portion.end = end;
        Ok(())
    }

    fn add_records(&mut self, batch: &Batch<'_>, from: i64, portion: &mut Portion) -> Result<(), Corruption> {
        let before = portion.index.len();
        let added = match &mut portion.data {
            Data::Fetched(bytes) => {
                portion.size += batch.size();
                index(batch, batch.body(), bytes, from, &mut portion.index)
            }
            Data::Decompressed(output) => {
                let output = Arc::get_mut(output).expect("nobody else has it before it is given");
                let start = output.filled().len();
                let added = self.decompress(batch, output).and_then(|()| {
                    let data = output.filled();
                    index(batch, &data[start..], data, from, &mut portion.index)
                });
                if added.is_err() {
                    output.truncate(start);
                }
                portion.size = output.filled().len();
                added
            }
        };
        if added.is_err() {
            portion.index.truncate(before);
        }
        Ok(added?)
    }

    fn decompress(&mut self, batch: &Batch<'_>, output: &mut Output) -> Result<(), RecordError> {
        let codec = batch.compression().ok_or(RecordError::UnknownCodec(batch.attributes() & 0x07))?;
        Ok(self.decompressor.append(codec, batch.body(), output)?)
    }
}

fn is_compressed(batch: &Batch<'_>) -> bool {
    batch.compression() != Some(Compression::None)
}

/// Adds the records of a batch's body, which is a part of `data`, to an index.
fn index(batch: &Batch<'_>, body: &[u8], data: &[u8], from: i64, index: &mut Vec<Entry>) -> Result<(), RecordError> {
    let (timestamp_type, leader_epoch) = (batch.timestamp_type(), batch.partition_leader_epoch());
    for record in batch.records_of(body)? {
        let record = record?;
        let offset = record.offset(batch);
        if offset < from {
            continue;
        }
        index.push(Entry {
            offset,
            timestamp: record.timestamp(batch),
            key: Field::of(record.key, data),
            value: Field::of(record.value, data),
            headers_at: place(record.headers.encoded(), data),
            headers: record.headers.len() as u32,
            leader_epoch,
            timestamp_type,
        });
    }
    Ok(())
}

/// Transactions that were aborted, as they begin and end along the batches of a range.
#[derive(Debug)]
struct Aborted {
    /// Producer and first offset, the last to come first.
    to_come: Vec<(i64, i64)>,
    /// Producers whose batches are skipped.
    producers: HashSet<i64>,
}

impl Aborted {
    fn new(told: &[AbortedTransaction]) -> Self {
        let mut to_come: Vec<_> = told.iter().map(|aborted| (aborted.producer_id, aborted.first_offset)).collect();
        to_come.sort_unstable_by_key(|(_, first)| std::cmp::Reverse(*first));
        Self { to_come, producers: HashSet::new() }
    }

    /// Whether the next batch is of a transaction that was aborted.
    fn has(&mut self, batch: &Batch<'_>) -> bool {
        if !batch.has_producer_id() {
            return false;
        }
        while let Some((producer, _)) = self.to_come.pop_if(|(_, first)| *first <= batch.last_offset()) {
            self.producers.insert(producer);
        }
        if batch.is_control() {
            if EndTransaction::of(batch).is_some_and(|end| !end.committed) {
                self.producers.remove(&batch.producer_id());
            }
            return false;
        }
        batch.is_transactional() && self.producers.contains(&batch.producer_id())
    }
}

#[cfg(test)]
#[path = "range_tests.rs"]
mod tests;
