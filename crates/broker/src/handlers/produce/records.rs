//! What the records of a produced batch must satisfy, and in which form it is stored: as it came, with another header, or
//! rebuilt with another codec. The partition's lock is not held meanwhile. Headers and checksums are `check`'s business.

use std::cell::RefCell;

use milena_protocol::ErrorCode;
use milena_records::validate::{RecordShape, walk, walk_each};
use milena_records::{
    Batch, BatchMut, Compression, CompressionError, Compressor, Decompressor, NO_PRODUCER_EPOCH, NO_PRODUCER_ID,
    RebuildError, RebuildTarget, RecordError, TimestampType, rebuild,
};

use crate::settings::{MAX_DECOMPRESSED_BYTES, RecordRules};

/// Most records that the refusals of requests taken together list.
const MAX_REJECTED_RECORDS: usize = 10_000;
/// How many bytes may be decompressed for each that was received.
const MAX_RATIO: usize = 32;
/// After so many decompressed bytes, others' requests come first.
const LONG_WORK: u64 = 16 << 20;
/// The stamp of a record that has none.
const NO_TIMESTAMP: i64 = -1;

const NULL_KEY: &str = "A compacted topic needs a key in every record";
const OUT_OF_WINDOW: &str = "The timestamp is too far from the broker's clock";
const APPEND_TIME_SET: &str = "Only the broker sets the append time";
const RECORDS_REJECTED: &str = "Some records were rejected; the batch is not stored";

/// Contexts that are reused from batch to batch, and what the requests that are taken together may still cost: batches of a
/// few kilobytes can be very long.
pub(super) struct Tools {
    decompressor: Decompressor,
    compressor: Compressor,
    /// Most decompressed bytes.
    budget: u64,
    /// What the decompressor had produced before.
    produced_before: u64,
    /// How many more rejected records are listed.
    listed_left: usize,
}

impl Tools {
    pub(super) fn new() -> Self {
        Self {
            decompressor: Decompressor::new(0),
            compressor: Compressor::new(),
            budget: MAX_DECOMPRESSED_BYTES as u64,
            produced_before: 0,
            listed_left: MAX_REJECTED_RECORDS,
        }
    }

    /// From now on batches belong to other requests, which are so long together.
    pub(super) fn begin(&mut self, bytes: usize) {
        self.budget = MAX_DECOMPRESSED_BYTES.max(bytes.saturating_mul(MAX_RATIO)) as u64;
        self.produced_before = self.decompressor.produced();
        self.listed_left = MAX_REJECTED_RECORDS;
    }

    /// Whether the requests have taken long.
    pub(super) fn have_worked_long(&self) -> bool {
        self.produced() >= LONG_WORK
    }

    fn produced(&self) -> u64 {
        self.decompressor.produced() - self.produced_before
    }

    /// Most decompressed bytes of the next batch: the first may be as long as its topic says, the others share what it leaves.
    fn limit(&self, rules: &RecordRules) -> usize {
        let most = rules.max_decompressed_bytes();
        match self.produced() {
            0 => most,
            produced => most.min(usize::try_from(self.budget.saturating_sub(produced)).unwrap_or(most)),
        }
    }

    /// Runs `work` with this thread's tools.
    pub(super) fn with<R>(work: impl FnOnce(&mut Self) -> R) -> R {
        thread_local!(static TOOLS: RefCell<Tools> = RefCell::new(Tools::new()));
        TOOLS.with_borrow_mut(work)
    }
}

/// A batch that may be stored.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Accepted {
    /// What is stored in place of the received bytes; `None` stores those.
    pub rebuilt: Option<Vec<u8>>,
    /// The append time that its records have now, ms; `None` when they keep their own stamps.
    pub append_time: Option<i64>,
}

/// A batch that is not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rejection {
    /// What to answer.
    pub error: ErrorCode,
    /// Why, for people; `None` where Kafka gives no reason.
    pub message: Option<&'static str>,
    /// The records to blame, when it is single ones.
    pub records: Vec<RejectedRecord>,
}

/// A record that keeps its batch from being stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RejectedRecord {
    /// Its place in the batch, from 0.
    pub index: i32,
    /// Why, for people.
    pub reason: &'static str,
}

impl Rejection {
    fn of_batch(error: ErrorCode) -> Self {
        Self { error, message: None, records: Vec::new() }
    }
}

impl From<RecordError> for Rejection {
    fn from(error: RecordError) -> Self {
        Self::of_batch(match error {
            RecordError::Compression(CompressionError::LimitExceeded { .. }) => ErrorCode::MESSAGE_TOO_LARGE,
            RecordError::UnknownCodec(_) => ErrorCode::UNSUPPORTED_COMPRESSION_TYPE,
            _ => ErrorCode::INVALID_RECORD,
        })
    }
}

impl From<RebuildError> for Rejection {
    fn from(error: RebuildError) -> Self {
        match error {
            RebuildError::Records(error) => error.into(),
            RebuildError::Build(_) => Self::of_batch(ErrorCode::MESSAGE_TOO_LARGE),
        }
    }
}

/// Checks the records of `bytes`, a whole batch with a sound header, and gives it the form in which it is stored. `now` is
/// the broker's clock, ms.
///
/// # Errors
/// [`Rejection`]; the bytes are then as they were.
pub(super) fn accept(
    bytes: &mut [u8],
    rules: &RecordRules,
    now: i64,
    tools: &mut Tools,
) -> Result<Accepted, Rejection> {
    let Ok(batch) = Batch::parse(bytes) else { return Err(Rejection::of_batch(ErrorCode::INVALID_RECORD)) };
    let source = batch.compression().ok_or(Rejection::of_batch(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE))?;
    let target = rules.codec.unwrap_or(source);
    let newest = if source == target && trusted(&batch, rules, now) {
        batch.max_timestamp()
    } else {
        check(&batch, source == target, rules, now, tools)?
    };
    let append_time = (rules.timestamp_type == TimestampType::LogAppendTime).then_some(now);
    let rebuilt = if source == target {
        None
    } else {
        let target = RebuildTarget { compression: target, level: rules.level, append_time };
        Some(rebuilt(&batch, target, rules, tools)?)
    };
    Ok(stamped(bytes, rebuilt, newest, append_time))
}

/// Whether the header's word is taken for the records.
fn trusted(batch: &Batch<'_>, rules: &RecordRules, now: i64) -> bool {
    rules.trust_headers
        && !rules.keyed
        && batch.timestamp_type() == TimestampType::CreateTime
        && (rules.timestamp_type == TimestampType::LogAppendTime
            || all_in_window(batch.base_timestamp(), batch.max_timestamp(), rules, now))
}

/// Checks the records; returns their newest stamp, at least [`NO_TIMESTAMP`]. When the batch is not stored `as_it_is`, its
/// records are counted anew, so that their own offsets do not matter.
fn check(
    batch: &Batch<'_>,
    as_it_is: bool,
    rules: &RecordRules,
    now: i64,
    tools: &mut Tools,
) -> Result<i64, Rejection> {
    let limit = tools.limit(rules);
    let decompressor = &mut tools.decompressor;
    decompressor.set_limit(limit);
    decompressor.set_max_record_size(rules.max_record_bytes);
    let summary = walk(batch, decompressor)?;
    let is_compressed = batch.compression() != Some(Compression::None);
    if as_it_is && is_compressed && !summary.offsets_sequential {
        return Err(Rejection::of_batch(ErrorCode::INVALID_RECORD));
    }
    // An append time from the client hides the records' own stamps.
    let (oldest, newest) = match batch.timestamp_type() {
        TimestampType::CreateTime => (summary.min_timestamp, summary.max_timestamp),
        TimestampType::LogAppendTime => (batch.max_timestamp(), batch.max_timestamp()),
    };
    let keys_fit = !rules.keyed || summary.first_null_key.is_none();
    let stamps_fit = match rules.timestamp_type {
        TimestampType::CreateTime => all_in_window(oldest, newest, rules, now) && !is_append_time(batch, newest, rules),
        TimestampType::LogAppendTime => batch.timestamp_type() == TimestampType::CreateTime,
    };
    if !(keys_fit && stamps_fit) {
        refuse_offenders(batch, rules, now, tools)?;
    }
    // Kafka builds no batch with such stamps or such a producer, though it stores one that it need not build.
    if !as_it_is && (oldest < NO_TIMESTAMP || !is_producer_whole(batch)) {
        return Err(Rejection::of_batch(ErrorCode::UNKNOWN_SERVER_ERROR));
    }
    Ok(newest.max(NO_TIMESTAMP))
}

/// The batch has an id with epoch and sequence, or none and is of no transaction.
fn is_producer_whole(batch: &Batch<'_>) -> bool {
    match batch.producer_id() {
        NO_PRODUCER_ID => !batch.is_transactional(),
        _ => batch.producer_epoch() != NO_PRODUCER_EPOCH && batch.base_sequence() >= 0,
    }
}

/// All stamps from `oldest` to `newest` surely lie within the topic's window around the clock.
fn all_in_window(oldest: i64, newest: i64, rules: &RecordRules, now: i64) -> bool {
    oldest >= now.saturating_sub(rules.before_max_ms) && newest <= now.saturating_add(rules.after_max_ms)
}

/// A stamp lies within the topic's window around the clock. Differences wrap, as they do in Kafka.
fn in_window(timestamp: i64, rules: &RecordRules, now: i64) -> bool {
    let behind = now.wrapping_sub(timestamp);
    behind <= rules.before_max_ms && behind.wrapping_neg() <= rules.after_max_ms
}

/// The stamp is an append time that the client has set, and none that passes for a record's own.
fn is_append_time(batch: &Batch<'_>, timestamp: i64, rules: &RecordRules) -> bool {
    batch.timestamp_type() == TimestampType::LogAppendTime
        && (rules.timestamp_type == TimestampType::LogAppendTime || timestamp == NO_TIMESTAMP)
}

/// Looks for the records to blame; there may be none.
#[cold]
fn refuse_offenders(batch: &Batch<'_>, rules: &RecordRules, now: i64, tools: &mut Tools) -> Result<(), Rejection> {
    let mut records = Vec::new();
    let (mut any, mut bad_stamps) = (false, false);
    let base_timestamp = batch.base_timestamp();
    let fault = |record: &RecordShape| {
        let timestamp = match batch.timestamp_type() {
            TimestampType::CreateTime => base_timestamp.wrapping_add(record.timestamp_delta),
            TimestampType::LogAppendTime => batch.max_timestamp(),
        };
        if rules.keyed && record.key_length.is_none() {
            return Some(NULL_KEY);
        }
        if is_append_time(batch, timestamp, rules) {
            return Some(APPEND_TIME_SET);
        }
        let checked = rules.timestamp_type == TimestampType::CreateTime && timestamp != NO_TIMESTAMP;
        (checked && !in_window(timestamp, rules, now)).then_some(OUT_OF_WINDOW)
    };
    walk_each(batch, &mut tools.decompressor, |record| {
        if let Some(reason) = fault(record) {
            any = true;
            bad_stamps |= reason != NULL_KEY;
            if records.len() < tools.listed_left {
                records.push(RejectedRecord { index: record.index, reason });
            }
        }
    })?;
    if !any {
        return Ok(());
    }
    tools.listed_left -= records.len();
    let error = if bad_stamps { ErrorCode::INVALID_TIMESTAMP } else { ErrorCode::INVALID_RECORD };
    Err(Rejection { error, message: Some(RECORDS_REJECTED), records })
}

fn rebuilt(
    batch: &Batch<'_>,
    target: RebuildTarget,
    rules: &RecordRules,
    tools: &mut Tools,
) -> Result<Vec<u8>, Rejection> {
    let mut out = Vec::with_capacity(batch.size());
    let size = rebuild(batch, target, &mut tools.decompressor, &mut tools.compressor, &mut out)?;
    if size > rules.max_batch_bytes {
        return Err(Rejection::of_batch(ErrorCode::MESSAGE_TOO_LARGE));
    }
    Ok(out)
}

/// Writes timestamp type and newest stamp into the header of what is stored; the checksum follows where they are new.
fn stamped(bytes: &mut [u8], mut rebuilt: Option<Vec<u8>>, newest: i64, append_time: Option<i64>) -> Accepted {
    let stored = rebuilt.as_deref_mut().unwrap_or(bytes);
    let mut header = BatchMut::parse(stored).expect("both are whole batches: one was parsed, one was built");
    match append_time {
        Some(now) => header.set_max_timestamp(TimestampType::LogAppendTime, now),
        None => header.set_max_timestamp(TimestampType::CreateTime, newest),
    };
    Accepted { rebuilt, append_time }
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
