//! One producer: its epoch, its last batches, and the rules by which the next one is judged.

use milena_records::add_sequence;

use super::verification::Verification;
use super::{Content, ProducerBatch, ProducerState, Unwritten};

/// Batches of a producer that are remembered: as many as it may have in flight.
const REMEMBERED: usize = 5;
/// No sequence, no offset, no epoch.
const NONE: i8 = -1;

/// A batch that was written.
#[derive(Debug, Clone, Copy, Default)]
struct Written {
    last_sequence: i32,
    offset_delta: i32,
    last_offset: i64,
    timestamp: i64,
}

impl Written {
    fn first_sequence(&self) -> i32 {
        let first = self.last_sequence.wrapping_sub(self.offset_delta);
        // Sequences go on with 0 after the largest: without their sign bit they wrap by themselves.
        if self.last_sequence < 0 { first } else { first & i32::MAX }
    }

    fn first_offset(&self) -> i64 {
        self.last_offset - i64::from(self.offset_delta)
    }
}

/// What is known of one producer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Producer {
    epoch: i16,
    count: u8,
    coordinator_epoch: i32,
    current_txn_first_offset: i64,
    last_timestamp: i64,
    /// The first `count` of them, oldest first.
    batches: [Written; REMEMBERED],
}

impl Producer {
    /// One that has written nothing: its first batch may have any epoch and sequence.
    pub(crate) fn new() -> Self {
        Self {
            epoch: NONE.into(),
            count: 0,
            coordinator_epoch: NONE.into(),
            current_txn_first_offset: NONE.into(),
            last_timestamp: NONE.into(),
            batches: [Written::default(); REMEMBERED],
        }
    }

    fn batches(&self) -> &[Written] {
        &self.batches[..usize::from(self.count)]
    }

    /// Whether it has written in a later epoch than this one.
    pub(super) fn is_past(&self, epoch: i16) -> bool {
        epoch < self.epoch
    }

    /// First offset of the open transaction.
    pub(crate) fn open_transaction(&self) -> Option<i64> {
        (self.current_txn_first_offset >= 0).then_some(self.current_txn_first_offset)
    }

    pub(crate) fn has_open_transaction(&self, epoch: i16) -> bool {
        self.current_txn_first_offset >= 0 && self.epoch == epoch
    }

    /// Whether `batch` is none of the last ones again.
    pub(super) fn check_duplicate(&self, batch: &ProducerBatch) -> Result<(), Unwritten> {
        let sequences = (batch.base_sequence, batch.last_sequence());
        let same = |written: &&Written| (written.first_sequence(), written.last_sequence) == sequences;
        if batch.epoch == self.epoch
            && batch.has_sequences()
            && let Some(written) = self.batches().iter().find(same)
        {
            return Err(Unwritten::Duplicate { first_offset: written.first_offset(), timestamp: written.timestamp });
        }
        Ok(())
    }

    /// Whether `batch`, which is no duplicate, may follow. `verification` is the one that its transaction begins with.
    pub(super) fn judge(&self, batch: &ProducerBatch, verification: Option<&Verification>) -> Result<(), Unwritten> {
        if batch.epoch < self.epoch {
            return Err(Unwritten::InvalidProducerEpoch);
        }
        if batch.has_sequences() && !self.is_in_sequence(batch, verification) {
            return Err(Unwritten::OutOfOrderSequence);
        }
        if batch.content == Content::Plain && self.current_txn_first_offset >= 0 {
            return Err(Unwritten::InvalidTransactionState);
        }
        Ok(())
    }

    fn is_in_sequence(&self, batch: &ProducerBatch, verification: Option<&Verification>) -> bool {
        let sequence = batch.base_sequence;
        if let Some(verification) = verification {
            let must_be_first = verification.epoch_bumps && self.count == 0;
            if (must_be_first && sequence != 0) || sequence > verification.lowest_sequence {
                return false;
            }
        }
        let expected = match self.batches().last() {
            Some(last) if batch.epoch == self.epoch => add_sequence(last.last_sequence, 1),
            _ => 0,
        };
        self.epoch < 0 || sequence == expected
    }

    /// Whether a marker may end the transaction. With version 2 it has a higher epoch than the transaction had; the same one again only says
    /// what is known.
    pub(super) fn judge_marker(
        &self,
        epoch: i16,
        coordinator_epoch: i32,
        transaction_version: i16,
    ) -> Result<(), Unwritten> {
        let is_late = epoch == self.epoch && transaction_version >= 2 && self.current_txn_first_offset >= 0;
        if epoch < self.epoch || is_late {
            return Err(Unwritten::InvalidProducerEpoch);
        }
        if coordinator_epoch < self.coordinator_epoch {
            return Err(Unwritten::CoordinatorFenced);
        }
        Ok(())
    }

    /// `batch` follows, whatever [`judge`](Self::judge) would say: what stands in the log is true.
    pub(crate) fn apply(&mut self, batch: &ProducerBatch) {
        if batch.epoch != self.epoch {
            self.epoch = batch.epoch;
            self.count = 0;
        }
        self.last_timestamp = batch.timestamp;
        if let Content::End(end) = batch.content {
            self.coordinator_epoch = end.coordinator_epoch;
            self.current_txn_first_offset = NONE.into();
            return;
        }
        if usize::from(self.count) == REMEMBERED {
            self.batches.copy_within(1.., 0);
            self.count -= 1;
        }
        self.batches[usize::from(self.count)] = Written {
            last_sequence: batch.last_sequence(),
            offset_delta: batch.offset_delta(),
            last_offset: batch.last_offset,
            timestamp: batch.timestamp,
        };
        self.count += 1;
        if batch.content == Content::Transactional && self.current_txn_first_offset < 0 {
            self.current_txn_first_offset = batch.base_offset;
        }
    }

    pub(crate) fn is_expired(&self, now_ms: i64, expiration_ms: i64) -> bool {
        self.current_txn_first_offset < 0 && now_ms.saturating_sub(self.last_timestamp) >= expiration_ms
    }

    pub(crate) fn state(&self, producer_id: i64) -> ProducerState {
        let last = self.batches().last();
        ProducerState {
            producer_id,
            epoch: self.epoch,
            last_sequence: last.map_or(NONE.into(), |last| last.last_sequence),
            last_offset: last.map_or(NONE.into(), |last| last.last_offset),
            offset_delta: last.map_or(0, |last| last.offset_delta),
            timestamp: self.last_timestamp,
            coordinator_epoch: self.coordinator_epoch,
            current_txn_first_offset: self.current_txn_first_offset,
        }
    }

    /// A snapshot knows the last batch only.
    pub(crate) fn from_state(state: &ProducerState) -> Self {
        let mut producer = Self {
            epoch: state.epoch,
            coordinator_epoch: state.coordinator_epoch,
            current_txn_first_offset: state.current_txn_first_offset,
            last_timestamp: state.timestamp,
            ..Self::new()
        };
        if state.last_offset >= 0 {
            producer.count = 1;
            producer.batches[0] = Written {
                last_sequence: state.last_sequence,
                offset_delta: state.offset_delta,
                last_offset: state.last_offset,
                timestamp: state.timestamp,
            };
        }
        producer
    }
}
