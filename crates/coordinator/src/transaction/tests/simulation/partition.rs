//! Partitions with the rules by which a log takes batches and markers; who is written down survives a restart.

use std::collections::BTreeMap;

use milena_protocol::ErrorCode;

use super::super::{Ended, Producer};

/// Partitions that transactions write to.
pub(super) const PARTITIONS: usize = 4;
/// The one of them that has a group's offsets.
pub(super) const GROUP: usize = PARTITIONS - 1;
/// What a coordinator writes has no sequence.
pub(super) const NO_SEQUENCE: i32 = -1;

/// A batch of a transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write {
    pub(super) producer: Producer,
    pub(super) transaction: u64,
    pub(super) sequence: i32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    epoch: i16,
    /// Batches of this epoch.
    count: i32,
    /// Number of the open transaction.
    open: Option<u64>,
}

/// One partition.
#[derive(Debug, Default)]
pub(super) struct Partition {
    known: BTreeMap<i64, Known>,
    /// Proofs that a transaction may begin, by producer id; they do not survive.
    guards: BTreeMap<i64, u64>,
    next_guard: u64,
    /// How the transactions in it ended, by number.
    pub(super) ends: BTreeMap<u64, bool>,
}

impl Partition {
    /// The guard that a batch needs if its transaction is not open here.
    pub(super) fn begin(&mut self, producer: Producer) -> Option<u64> {
        let is_open =
            self.known.get(&producer.id).is_some_and(|known| known.open.is_some() && known.epoch == producer.epoch);
        if is_open {
            return None;
        }
        self.next_guard += 1;
        let next = self.next_guard;
        Some(*self.guards.entry(producer.id).or_insert(next))
    }

    /// Appends a batch. `Ok(false)`: it is there already.
    pub(super) fn append(&mut self, write: &Write, guard: Option<u64>) -> Result<bool, ErrorCode> {
        let Write { producer: Producer { id, epoch }, transaction, sequence } = *write;
        let known = self.known.get(&id).copied();
        let count = known.filter(|known| known.epoch == epoch).map_or(0, |known| known.count);
        if sequence != NO_SEQUENCE && sequence < count {
            return Ok(false);
        }
        let open = known.filter(|known| known.epoch == epoch).and_then(|known| known.open);
        if open.is_none() && (guard.is_none() || self.guards.get(&id).copied() != guard) {
            return Err(ErrorCode::INVALID_TXN_STATE);
        }
        if known.is_some_and(|known| known.epoch > epoch) {
            return Err(ErrorCode::INVALID_PRODUCER_EPOCH);
        }
        if sequence > count {
            return Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
        }
        if let Some(open) = open {
            assert_eq!(open, transaction, "records of two transactions are in one");
        }
        let count = count + i32::from(sequence != NO_SEQUENCE);
        self.known.insert(id, Known { epoch, count, open: Some(transaction) });
        self.guards.remove(&id);
        Ok(true)
    }

    /// Appends a marker; false if it may not be written.
    pub(super) fn mark(&mut self, ended: &Ended) -> bool {
        let Producer { id, epoch } = ended.producer;
        let known = self.known.entry(id).or_insert(Known { epoch, ..Known::default() });
        if epoch < known.epoch || (epoch == known.epoch && ended.version >= 2 && known.open.is_some()) {
            return false;
        }
        if let Some(transaction) = known.open.take() {
            let before = self.ends.insert(transaction, ended.committed);
            assert_eq!(before, None, "transaction {transaction} has ended twice");
        }
        if known.epoch != epoch {
            (known.epoch, known.count) = (epoch, 0);
        }
        self.guards.remove(&id);
        true
    }

    /// The process has died.
    pub(super) fn restart(&mut self) {
        self.guards.clear();
    }

    /// Transactions that are open.
    pub(super) fn open(&self) -> Vec<u64> {
        self.known.values().filter_map(|known| known.open).collect()
    }
}
