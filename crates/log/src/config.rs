//! The settings of a topic that a log obeys. Where their values come from is the broker's business.

/// A log's settings, by Kafka's names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// `segment.bytes`: a segment's `.log` grows to at most this.
    pub segment_bytes: u64,
    /// `segment.ms`: a segment is rolled when a batch is this much younger than its first one, ms.
    pub segment_ms: i64,
    /// `segment.jitter.ms`: up to this much less than `segment_ms`, differently for each segment, ms.
    pub segment_jitter_ms: i64,
    /// `preallocate`: a new segment's `.log` has its full length from the start.
    pub preallocate: bool,
    /// `segment.index.bytes`: a segment's `.index` and `.timeindex` grow to at most this each.
    pub segment_index_bytes: u64,
    /// `index.interval.bytes`: an index entry is due when more than this was appended since the last one.
    pub index_interval_bytes: u64,
    /// `cleanup.policy` contains `compact`: offsets may be missing between batches.
    pub compact: bool,
    /// `flush.messages`: so many records that are not durable make a flush due. The log only keeps the number; who appends looks at it.
    pub flush_messages: i64,
    /// `flush.ms`: a flush is due so long after the last one, ms.
    pub flush_ms: i64,
    /// `cleanup.policy` contains `delete`: the two limits below hold.
    pub delete: bool,
    /// `retention.ms`: segments whose largest timestamp is older go, ms; negative without limit.
    pub retention_ms: i64,
    /// `retention.bytes`: the oldest segments go while the others have this much, bytes; negative without limit.
    pub retention_bytes: i64,
    /// `producer.id.expiration.ms`: a producer that has written nothing for this long may be forgotten, ms.
    pub producer_id_expiration_ms: i64,
    /// `transaction.partition.verification.enable`: a transaction begins here only with its coordinator's consent.
    pub transaction_verification: bool,
}

impl LogConfig {
    /// Length of a new `.log` file, bytes.
    pub(crate) fn new_length(&self) -> u64 {
        if self.preallocate { self.segment_bytes } else { 0 }
    }
}

impl Default for LogConfig {
    /// Kafka's defaults of a topic.
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 60 * 60 * 1000,
            segment_jitter_ms: 0,
            preallocate: false,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            compact: false,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            delete: true,
            retention_ms: 7 * 24 * 60 * 60 * 1000,
            retention_bytes: -1,
            producer_id_expiration_ms: 24 * 60 * 60 * 1000,
            transaction_verification: true,
        }
    }
}
