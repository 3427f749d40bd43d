//! The idempotent producers of a partition: what was last written by each, whether a batch may follow, which one is a repetition, and
//! which transactions are open. How the state is kept in files and read again is `restore`'s and `snapshot`'s business; who calls is the log.

mod producer;
mod restore;
mod transactions;
mod verification;

use std::collections::BTreeMap;

use milena_records::{Batch, EndTransaction};

pub(crate) use producer::Producer;
pub(crate) use restore::{Source, remove_snapshots, replay, restore, state_at, write_snapshot};
use transactions::Transactions;
use verification::Verifications;
pub use verification::{VerificationGuard, VerificationStart};

use crate::aborted::AbortedTxn;
use crate::scan::Header;

/// Entries of [`Producers::ahead`] whose memory is kept for the next append.
const AHEAD_KEPT: usize = 32;

/// Why a batch of an idempotent producer was left out of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwritten {
    /// It has the sequences of one of its producer's last five batches: it was written before.
    Duplicate {
        /// Offset of the first record of the batch that was written.
        first_offset: i64,
        /// Largest timestamp of that batch, ms.
        timestamp: i64,
    },
    /// Its first sequence is not the one that must follow.
    OutOfOrderSequence,
    /// Its producer has written with a higher epoch.
    InvalidProducerEpoch,
    /// It belongs to a transaction that is not known to be open, or to none while its producer's transaction is open.
    InvalidTransactionState,
    /// A marker of a coordinator whose successor has written one already.
    CoordinatorFenced,
}

/// What a log knows of one producer, as a snapshot keeps it and DescribeProducers answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerState {
    /// The producer.
    pub producer_id: i64,
    /// Its newest epoch.
    pub epoch: i16,
    /// Sequence of its last record; -1 without one in this epoch.
    pub last_sequence: i32,
    /// Offset of its last record; -1 without one in this epoch.
    pub last_offset: i64,
    /// How far before that its last batch began.
    pub offset_delta: i32,
    /// Largest timestamp of its last batch, ms.
    pub timestamp: i64,
    /// Epoch of the transaction coordinator that wrote its last marker; -1 without one.
    pub coordinator_epoch: i32,
    /// First offset of its open transaction; -1 without one.
    pub current_txn_first_offset: i64,
}

/// What of a batch's header concerns its producer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProducerBatch {
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
    pub(crate) base_sequence: i32,
    pub(crate) base_offset: i64,
    pub(crate) last_offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) content: Content,
}

/// What a batch has to do with transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Plain,
    Transactional,
    End(EndTransaction),
}

impl Content {
    /// `None` for a control batch that ends no transaction.
    fn of(is_control: bool, is_transactional: bool, end: Option<EndTransaction>) -> Option<Self> {
        match (is_control, is_transactional) {
            (true, _) => end.map(Self::End),
            (false, true) => Some(Self::Transactional),
            (false, false) => Some(Self::Plain),
        }
    }
}

impl ProducerBatch {
    /// `None` for a batch without a producer id, and for a control batch that ends no transaction.
    pub(crate) fn of(batch: &Batch<'_>) -> Option<Self> {
        if !batch.has_producer_id() {
            return None;
        }
        Some(Self {
            producer_id: batch.producer_id(),
            epoch: batch.producer_epoch(),
            base_sequence: batch.base_sequence(),
            base_offset: batch.base_offset(),
            last_offset: batch.last_offset(),
            timestamp: batch.max_timestamp(),
            content: Content::of(batch.is_control(), batch.is_transactional(), EndTransaction::of(batch))?,
        })
    }

    /// `end` is what the batch says if it is a control batch.
    pub(crate) fn of_header(header: &Header, end: Option<EndTransaction>) -> Option<Self> {
        if header.producer_id < 0 {
            return None;
        }
        Some(Self {
            producer_id: header.producer_id,
            epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
            base_offset: header.base_offset,
            last_offset: header.last_offset,
            timestamp: header.max_timestamp,
            content: Content::of(header.is_control(), header.is_transactional(), end)?,
        })
    }

    /// Written by a coordinator rather than a client: without sequences.
    fn has_sequences(&self) -> bool {
        self.base_sequence >= 0
    }

    fn offset_delta(&self) -> i32 {
        // Offsets of a batch are its base and a 32-bit delta; both were checked when it was parsed.
        i32::try_from(self.last_offset - self.base_offset).unwrap_or(i32::MAX)
    }

    fn last_sequence(&self) -> i32 {
        if self.has_sequences() { milena_records::add_sequence(self.base_sequence, self.offset_delta()) } else { -1 }
    }
}

/// The producers of one partition. Costs no memory of its own while there are none.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    all: BTreeMap<i64, Box<Producer>>,
    /// Producers as they will be when the batches of the append under way are written.
    ahead: Vec<(i64, Producer)>,
    transactions: Transactions,
    verifications: Verifications,
}

impl Producers {
    /// An append begins to judge its batches.
    pub(crate) fn begin_append(&mut self) {
        if self.ahead.capacity() > AHEAD_KEPT {
            self.ahead = Vec::new();
        }
        self.ahead.clear();
    }

    /// Whether a batch may be written behind what was written and [admitted](Self::admit). With `verify` one that begins a transaction needs
    /// the `guard` of a verification that has not been overtaken.
    pub(crate) fn judge(
        &self,
        batch: &ProducerBatch,
        verify: bool,
        guard: Option<VerificationGuard>,
    ) -> Result<(), Unwritten> {
        let ahead = self.ahead.iter().find(|(id, _)| *id == batch.producer_id).map(|(_, producer)| producer);
        let known = ahead.or_else(|| self.all.get(&batch.producer_id).map(|producer| &**producer));
        let producer = known.copied().unwrap_or_else(Producer::new);
        producer.check_duplicate(batch)?;
        let is_open = producer.has_open_transaction(batch.epoch);
        let verification = if is_open { None } else { self.verifications.get(batch.producer_id) };
        let begins = batch.content == Content::Transactional && !is_open;
        if verify && begins && !verification.is_some_and(|verification| Some(verification.guard) == guard) {
            return Err(Unwritten::InvalidTransactionState);
        }
        producer.judge(batch, verification)
    }

    /// Whether a marker may be written, by the rules of the transaction version.
    pub(crate) fn judge_marker(
        &self,
        producer_id: i64,
        epoch: i16,
        end: EndTransaction,
        transaction_version: i16,
    ) -> Result<(), Unwritten> {
        let known = self.all.get(&producer_id);
        known.map_or(Ok(()), |producer| producer.judge_marker(epoch, end.coordinator_epoch, transaction_version))
    }

    /// Whether a producer has a transaction open in this epoch: the coordinator knows of it.
    pub(crate) fn has_open_transaction(&self, producer_id: i64, epoch: i16) -> bool {
        self.all.get(&producer_id).is_some_and(|producer| producer.has_open_transaction(epoch))
    }

    /// Begins a verification, or joins the one under way; `None` when the transaction is open already.
    pub(crate) fn verify(&mut self, start: &VerificationStart) -> Result<Option<VerificationGuard>, Unwritten> {
        if self.all.get(&start.producer_id).is_some_and(|producer| producer.is_past(start.epoch)) {
            return Err(Unwritten::InvalidProducerEpoch);
        }
        let is_open = self.has_open_transaction(start.producer_id, start.epoch);
        Ok((!is_open).then(|| self.verifications.begin(start)))
    }

    /// The batch will be written before those that are judged next.
    pub(crate) fn admit(&mut self, batch: &ProducerBatch) {
        if let Some((_, producer)) = self.ahead.iter_mut().find(|(id, _)| *id == batch.producer_id) {
            return producer.apply(batch);
        }
        let mut producer = self.all.get(&batch.producer_id).map_or_else(Producer::new, |producer| **producer);
        producer.apply(batch);
        self.ahead.push((batch.producer_id, producer));
    }

    /// The batch stands in the log. Returns what the transaction index must say when it ends a transaction that was aborted.
    pub(crate) fn apply(&mut self, batch: &ProducerBatch) -> Option<AbortedTxn> {
        let producer = self.all.entry(batch.producer_id).or_insert_with(|| Box::new(Producer::new()));
        let before = producer.open_transaction();
        producer.apply(batch);
        let after = producer.open_transaction();
        if batch.content != Content::Plain {
            self.verifications.end(batch.producer_id);
        }
        match (before, after, batch.content) {
            (None, Some(first_offset), _) => self.transactions.begin(first_offset),
            (Some(first_offset), None, Content::End(end)) => {
                let last_stable_offset = self.transactions.end(first_offset, batch.last_offset);
                let (producer_id, last_offset) = (batch.producer_id, batch.last_offset);
                return (!end.committed).then_some(AbortedTxn {
                    producer_id,
                    first_offset,
                    last_offset,
                    last_stable_offset,
                });
            }
            _ => {}
        }
        None
    }

    /// Forgets who has written nothing for `expiration_ms` and has no open transaction.
    pub(crate) fn expire(&mut self, now_ms: i64, expiration_ms: i64) {
        self.all.retain(|_, producer| !producer.is_expired(now_ms, expiration_ms));
        self.verifications.expire(now_ms, expiration_ms);
    }

    /// Forgets the ended transactions whose markers are below the high watermark.
    pub(crate) fn replicated_to(&mut self, high_watermark: i64) {
        self.transactions.replicated_to(high_watermark);
    }

    /// First offset of a transaction that is open, or whose marker is not known to be replicated.
    pub(crate) fn first_unstable_offset(&self) -> Option<i64> {
        self.transactions.first_unstable_offset()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// In the order of their ids.
    pub(crate) fn states(&self) -> impl Iterator<Item = ProducerState> {
        self.all.iter().map(|(id, producer)| producer.state(*id))
    }

    pub(crate) fn from_states(states: impl Iterator<Item = ProducerState>) -> Self {
        let mut producers = Self::default();
        for state in states {
            if state.current_txn_first_offset >= 0 {
                producers.transactions.begin(state.current_txn_first_offset);
            }
            producers.all.insert(state.producer_id, Box::new(Producer::from_state(&state)));
        }
        producers
    }
}

#[cfg(test)]
#[path = "producers/tests.rs"]
mod tests;
