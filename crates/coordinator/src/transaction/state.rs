//! What is known of one transactional id, and how it is written down.

use std::collections::{BTreeMap, BTreeSet};

use milena_protocol::messages::TransactionLogValue;
use milena_protocol::messages::transaction_log_value::PartitionsSchema;
use milena_protocol::{DecodeError, Str};

use super::api::{Producer, TopicPartitions};

/// There is no producer with this id.
pub(super) const NO_PRODUCER_ID: i64 = -1;
/// There is no producer with this epoch.
pub(super) const NO_EPOCH: i16 = -1;
/// Of a transactional id without transactions.
pub(super) const NOT_STARTED: i64 = -1;
/// The last epoch that a producer gets; the one behind it is for fencing it.
pub(super) const LAST_EPOCH: i16 = i16::MAX - 1;
/// First version of the record that is flexible.
pub(super) const FIRST_FLEXIBLE_VERSION: i16 = 1;
/// Timeout of transactions that are prepared elsewhere: they have none.
const NO_TIMEOUT: i32 = i32::MAX;

/// How far a transaction is. The numbers are those of the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// There was none yet.
    Empty = 0,
    /// It has partitions.
    Ongoing = 1,
    /// It is to be committed; markers are being written.
    PrepareCommit = 2,
    /// It is to be aborted; markers are being written.
    PrepareAbort = 3,
    /// It was committed.
    CompleteCommit = 4,
    /// It was aborted.
    CompleteAbort = 5,
}

impl State {
    const ALL: [Self; 6] = [
        Self::Empty,
        Self::Ongoing,
        Self::PrepareCommit,
        Self::PrepareAbort,
        Self::CompleteCommit,
        Self::CompleteAbort,
    ];
    /// States that Kafka has names for, though no transaction is ever seen in them.
    const UNSEEN: [&'static str; 2] = ["Dead", "PrepareEpochFence"];

    /// As records say it; `None` for others.
    fn from_id(id: i8) -> Option<Self> {
        Self::ALL.get(usize::try_from(id).ok()?).copied()
    }

    /// As people read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Ongoing => "Ongoing",
            Self::PrepareCommit => "PrepareCommit",
            Self::PrepareAbort => "PrepareAbort",
            Self::CompleteCommit => "CompleteCommit",
            Self::CompleteAbort => "CompleteAbort",
        }
    }

    /// Whether a state of this name exists.
    pub fn is_name(name: &str) -> bool {
        Self::ALL.iter().any(|state| state.name() == name) || Self::UNSEEN.contains(&name)
    }

    /// The end is decided, and markers are being written.
    pub(super) fn is_decided(self) -> bool {
        matches!(self, Self::PrepareCommit | Self::PrepareAbort)
    }

    /// To be committed, or committed.
    pub(super) fn is_commit(self) -> bool {
        matches!(self, Self::PrepareCommit | Self::CompleteCommit)
    }

    /// What follows once all markers are written.
    pub(super) fn completed(self) -> Self {
        if self.is_commit() { Self::CompleteCommit } else { Self::CompleteAbort }
    }
}

/// Partitions by topic.
pub(super) type Partitions = BTreeMap<Box<str>, BTreeSet<i32>>;

/// What is known of one transactional id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Transaction {
    /// Who may write with it.
    pub(super) producer: Producer,
    /// The id before the last change.
    pub(super) previous_id: i64,
    /// The id that the producer gets when its transaction is complete.
    pub(super) next_id: i64,
    /// The epoch that the producer had before, if a repeated request may still name it; not written down.
    pub(super) last_epoch: i16,
    pub(super) timeout_ms: i32,
    pub(super) state: State,
    /// The partitions of its transaction; once that is decided, those without a marker.
    pub(super) partitions: Partitions,
    /// ms since 1970.
    pub(super) started_ms: i64,
    /// ms since 1970.
    pub(super) updated_ms: i64,
    /// Version of transactions that its client speaks.
    pub(super) client_version: i16,
    /// A write is under way, and the `last_epoch` that it brings; not written down.
    pub(super) pending: Option<i16>,
}

impl Transaction {
    /// Of an id that nothing is written down of.
    pub(super) fn unborn(producer_id: i64) -> Self {
        Self {
            producer: Producer { id: producer_id, epoch: NO_EPOCH },
            previous_id: NO_PRODUCER_ID,
            next_id: NO_PRODUCER_ID,
            last_epoch: NO_EPOCH,
            timeout_ms: 0,
            state: State::Empty,
            partitions: Partitions::new(),
            started_ms: NOT_STARTED,
            updated_ms: 0,
            client_version: 0,
            pending: None,
        }
    }

    /// As a record says.
    ///
    /// # Errors
    /// When its state is none that is written.
    pub(super) fn from_value(value: &TransactionLogValue<'_>) -> Result<Self, DecodeError> {
        let status = value.transaction_status;
        let state = State::from_id(status).ok_or(DecodeError::UnknownRecordType(status.unsigned_abs().into()))?;
        let mut partitions = Partitions::new();
        for topic in value.transaction_partitions.iter().flatten() {
            let known: &mut BTreeSet<i32> = partitions.entry(topic.topic.as_ref().into()).or_default();
            known.extend(topic.partition_ids.iter());
        }
        Ok(Self {
            producer: Producer { id: value.producer_id, epoch: value.producer_epoch },
            previous_id: value.previous_producer_id,
            next_id: value.next_producer_id,
            last_epoch: NO_EPOCH,
            timeout_ms: value.transaction_timeout_ms,
            state,
            partitions,
            started_ms: value.transaction_start_timestamp_ms,
            updated_ms: value.transaction_last_update_timestamp_ms,
            client_version: value.client_transaction_version,
            pending: None,
        })
    }

    /// For a record of the version given; an older one has less to say.
    pub(super) fn value(&self, version: i16) -> TransactionLogValue<'_> {
        let topics = self.partitions.iter().map(|(topic, partitions)| PartitionsSchema {
            topic: Str::Owned(topic.to_string()),
            partition_ids: partitions.iter().copied().collect::<Vec<_>>().into(),
        });
        let newer = if version >= FIRST_FLEXIBLE_VERSION {
            TransactionLogValue {
                previous_producer_id: self.previous_id,
                next_producer_id: self.next_id,
                client_transaction_version: self.client_version,
                ..Default::default()
            }
        } else {
            TransactionLogValue::default()
        };
        TransactionLogValue {
            producer_id: self.producer.id,
            producer_epoch: self.producer.epoch,
            transaction_timeout_ms: self.timeout_ms,
            transaction_status: self.state as i8,
            transaction_partitions: (self.state != State::Empty).then(|| topics.collect()),
            transaction_last_update_timestamp_ms: self.updated_ms,
            transaction_start_timestamp_ms: self.started_ms,
            ..newer
        }
    }

    /// The same, on its way into another state.
    pub(super) fn next(&self, state: State, now_ms: i64) -> Self {
        Self { previous_id: self.producer.id, state, updated_ms: now_ms, pending: None, ..self.clone() }
    }

    /// No request may change it now.
    pub(super) fn is_busy(&self) -> bool {
        self.pending.is_some() || self.state.is_decided()
    }

    /// Its producer can get no further epoch.
    pub(super) fn is_exhausted(&self) -> bool {
        self.producer.epoch >= LAST_EPOCH
    }

    pub(super) fn has(&self, topic: &str, partition: i32) -> bool {
        self.partitions.get(topic).is_some_and(|partitions| partitions.contains(&partition))
    }

    pub(super) fn has_all(&self, partitions: TopicPartitions<'_>) -> bool {
        partitions.iter().all(|(topic, partition)| self.has(topic, *partition))
    }

    pub(super) fn add(&mut self, partitions: TopicPartitions<'_>) {
        for (topic, partition) in partitions {
            match self.partitions.get_mut(&**topic) {
                Some(known) => _ = known.insert(*partition),
                None => _ = self.partitions.insert((**topic).into(), BTreeSet::from([*partition])),
            }
        }
    }

    pub(super) fn remove(&mut self, partitions: TopicPartitions<'_>) {
        for (topic, partition) in partitions {
            let Some(known) = self.partitions.get_mut(&**topic) else { continue };
            known.remove(partition);
            if known.is_empty() {
                self.partitions.remove(&**topic);
            }
        }
    }

    /// Its transaction takes too long.
    pub(super) fn is_overdue(&self, now_ms: i64) -> bool {
        self.state == State::Ongoing
            && self.pending.is_none()
            && self.timeout_ms != NO_TIMEOUT
            && self.started_ms.saturating_add(i64::from(self.timeout_ms)) < now_ms
    }
}
