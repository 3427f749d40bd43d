//! What a producer is given, and what it gives back.

use std::sync::Arc;

/// A header of a record: its key and its value.
pub type Header<'a> = (&'a str, Option<&'a [u8]>);

/// A record to send. Everything is borrowed: its bytes are copied once, into the batch.
///
/// ```
/// use milena_client::Record;
///
/// let record = Record::to("orders").key(b"42").value(b"three apples").headers(&[("trace", Some(b"abc"))]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use = "a record is sent by a producer"]
pub struct Record<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: Option<i32>,
    pub(crate) timestamp: Option<i64>,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) headers: &'a [Header<'a>],
}

impl<'a> Record<'a> {
    /// A record of a topic, with neither key nor value.
    pub fn to(topic: &'a str) -> Self {
        Self { topic, ..Self::default() }
    }

    /// The partition. Without one, the key decides, or the producer if there is none.
    pub fn partition(mut self, partition: i32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// The stamp, ms since 1970. Without one, it is the time at which the record is given to the producer.
    pub fn timestamp(mut self, timestamp: i64) -> Self {
        self.timestamp = Some(timestamp);
        self
    }

    /// The key.
    pub fn key<B: AsRef<[u8]> + ?Sized>(mut self, key: &'a B) -> Self {
        self.key = Some(key.as_ref());
        self
    }

    /// The value.
    pub fn value<B: AsRef<[u8]> + ?Sized>(mut self, value: &'a B) -> Self {
        self.value = Some(value.as_ref());
        self
    }

    /// The headers, in their order.
    pub fn headers(mut self, headers: &'a [Header<'a>]) -> Self {
        self.headers = headers;
        self
    }

    /// At least as many bytes as the record takes in a batch, that of the batch's header not counted.
    pub(crate) fn size_bound(&self) -> usize {
        let field = |bytes: Option<&[u8]>| MAX_VARINT + bytes.map_or(0, <[u8]>::len);
        let headers = self.headers.iter().map(|(key, value)| field(Some(key.as_bytes())) + field(*value));
        MAX_OVERHEAD + field(self.key) + field(self.value) + headers.sum::<usize>()
    }
}

const MAX_VARINT: usize = 5;
/// Most bytes of size, attributes, timestamp delta, offset delta and number of headers.
const MAX_OVERHEAD: usize = 5 + 1 + 10 + 5 + 5;

/// Where a record was written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordMetadata {
    /// Its topic.
    pub topic: Arc<str>,
    /// Its partition.
    pub partition: i32,
    /// Its offset; `None` when the broker does not tell: with `acks=0`, and for a record that it had already.
    pub offset: Option<i64>,
    /// Its stamp, ms since 1970: the record's own, or the broker's where the topic wants that.
    pub timestamp: i64,
}
