//! What a consumer gives: [`ConsumerRecords`], and a view of each of them.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use milena_records::{Headers, Output, TimestampType};
use parking_lot::Mutex;

use crate::topic_partition::TopicPartition;

/// A record as it was written, borrowed from the bytes that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerRecord<'a> {
    /// Its offset in the partition.
    pub offset: i64,
    /// Its stamp, ms since 1970.
    pub timestamp: i64,
    /// Whose stamp that is.
    pub timestamp_type: TimestampType,
    /// Epoch of the leader that wrote it; `None` where the server does not tell.
    pub leader_epoch: Option<i32>,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value; `None` in a tombstone.
    pub value: Option<&'a [u8]>,
    /// Its headers, which are decoded as they are looked at.
    pub headers: Headers<'a>,
}

/// Where a record lies in the bytes, and what its batch says of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) offset: i64,
    pub(super) timestamp: i64,
    pub(super) key: Field,
    pub(super) value: Field,
    pub(super) headers_at: u32,
    pub(super) headers: u32,
    pub(super) leader_epoch: i32,
    pub(super) timestamp_type: TimestampType,
}

/// A part of the bytes; null when its length is negative.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    at: u32,
    len: i32,
}

impl Field {
    /// The place of `part` in `data`, of which it is a part. No data is as long as 4 GiB.
    pub(super) fn of(part: Option<&[u8]>, data: &[u8]) -> Self {
        part.map_or(Self { at: 0, len: -1 }, |part| Self { at: place(part, data), len: part.len() as i32 })
    }

    fn get(self, data: &[u8]) -> Option<&[u8]> {
        let (at, len) = (self.at as usize, usize::try_from(self.len).ok()?);
        Some(&data[at..at + len])
    }
}

/// Where `part` begins in `data`, of which it is a part.
pub(super) fn place(part: &[u8], data: &[u8]) -> u32 {
    (part.as_ptr().addr() - data.as_ptr().addr()) as u32
}

/// The bytes of records.
#[derive(Debug)]
pub(super) enum Data {
    /// As they came.
    Fetched(Bytes),
    /// Decompressed; there may be several who have a part of the records each.
    Decompressed(Arc<Output>),
}

impl Data {
    /// The same bytes once more.
    pub(super) fn share(&self) -> Self {
        match self {
            Self::Fetched(bytes) => Self::Fetched(bytes.clone()),
            Self::Decompressed(output) => Self::Decompressed(Arc::clone(output)),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Fetched(bytes) => bytes,
            Self::Decompressed(output) => output.filled(),
        }
    }
}

/// Records of one partition, in their order. There is at least one.
///
/// The records are views: nothing was copied or allocated for any of them. As long as this is kept, so is the response
/// that they came in.
///
/// ```no_run
/// # async fn example(mut consumer: milena_client::Consumer) -> Result<(), milena_client::Error> {
/// let records = consumer.recv().await?;
/// println!("{} of {}", records.len(), records.topic_partition());
/// for record in &records {
///     println!("{}: {:?}", record.offset, record.value);
/// }
/// # Ok(())
/// # }
/// ```
pub struct ConsumerRecords {
    pub(super) partition: TopicPartition,
    pub(super) data: Data,
    pub(super) index: Vec<Entry>,
    pub(super) next_offset: i64,
    pub(super) pool: Arc<Pool>,
}

impl ConsumerRecords {
    /// The partition that the records are of.
    pub fn topic_partition(&self) -> &TopicPartition {
        &self.partition
    }

    /// Its topic.
    pub fn topic(&self) -> &str {
        &self.partition.topic
    }

    /// Its number.
    pub fn partition(&self) -> i32 {
        self.partition.partition
    }

    /// The offset to go on at after these records. It may be larger than the last one's plus one, where records were
    /// compacted away, or are those of an aborted transaction.
    pub fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// How many there are.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// One of them, counted from 0.
    pub fn get(&self, place: usize) -> Option<ConsumerRecord<'_>> {
        Some(view(self.index.get(place)?, self.data.bytes()))
    }

    /// All of them.
    pub fn iter(&self) -> ConsumerRecordIter<'_> {
        ConsumerRecordIter { entries: self.index.iter(), data: self.data.bytes() }
    }
}

impl fmt::Debug for ConsumerRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.index.first().map(|entry| entry.offset);
        f.debug_struct("ConsumerRecords")
            .field("partition", &format_args!("{}", self.partition))
            .field("first_offset", &first)
            .field("len", &self.index.len())
            .field("next_offset", &self.next_offset)
            .finish_non_exhaustive()
    }
}

impl Drop for ConsumerRecords {
    fn drop(&mut self) {
        self.pool.put_index(std::mem::take(&mut self.index));
        self.pool.put_data(std::mem::replace(&mut self.data, Data::Fetched(Bytes::new())));
    }
}

impl<'a> IntoIterator for &'a ConsumerRecords {
    type Item = ConsumerRecord<'a>;
    type IntoIter = ConsumerRecordIter<'a>;

    fn into_iter(self) -> ConsumerRecordIter<'a> {
        self.iter()
    }
}

/// Iterator of [`ConsumerRecords`].
#[derive(Debug, Clone)]
pub struct ConsumerRecordIter<'a> {
    entries: std::slice::Iter<'a, Entry>,
    data: &'a [u8],
}

impl<'a> Iterator for ConsumerRecordIter<'a> {
    type Item = ConsumerRecord<'a>;

    #[inline]
    fn next(&mut self) -> Option<ConsumerRecord<'a>> {
        Some(view(self.entries.next()?, self.data))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl DoubleEndedIterator for ConsumerRecordIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(view(self.entries.next_back()?, self.data))
    }
}

impl ExactSizeIterator for ConsumerRecordIter<'_> {}
impl std::iter::FusedIterator for ConsumerRecordIter<'_> {}

#[inline]
fn view<'a>(entry: &Entry, data: &'a [u8]) -> ConsumerRecord<'a> {
    ConsumerRecord {
        offset: entry.offset,
        timestamp: entry.timestamp,
        timestamp_type: entry.timestamp_type,
        leader_epoch: (entry.leader_epoch >= 0).then_some(entry.leader_epoch),
        key: entry.key.get(data),
        value: entry.value.get(data),
        headers: Headers::new(entry.headers as usize, &data[entry.headers_at as usize..]),
    }
}

/// Memory of records that are gone, for those to come.
#[derive(Debug, Default)]
pub(super) struct Pool {
    indexes: Mutex<Vec<Vec<Entry>>>,
    outputs: Mutex<Vec<Arc<Output>>>,
}

/// Pieces of memory of a kind that are kept.
const KEPT: usize = 4;
/// A larger piece is given back to the system.
const MOST_KEPT: usize = 4 << 20;

impl Pool {
    /// An empty index.
    pub(super) fn index(&self) -> Vec<Entry> {
        self.indexes.lock().pop().unwrap_or_default()
    }

    /// An empty output.
    pub(super) fn output(&self) -> Arc<Output> {
        self.outputs.lock().pop().unwrap_or_default()
    }

    pub(super) fn put_index(&self, mut index: Vec<Entry>) {
        index.clear();
        let size = index.capacity() * size_of::<Entry>();
        put(&self.indexes, index, size);
    }

    /// Takes the memory of what was decompressed back, if nobody else has a part of it.
    pub(super) fn put_data(&self, data: Data) {
        let Data::Decompressed(mut output) = data else { return };
        if let Some(of_nobody) = Arc::get_mut(&mut output) {
            of_nobody.clear();
            let size = output.capacity();
            put(&self.outputs, output, size);
        }
    }
}

fn put<T>(pieces: &Mutex<Vec<T>>, piece: T, size: usize) {
    let mut pieces = pieces.lock();
    if size > 0 && size <= MOST_KEPT && pieces.len() < KEPT {
        pieces.push(piece);
    }
}
