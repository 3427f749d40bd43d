//! The transactions that a walk over the log is in: which batches belong to an aborted one, and when a marker has nothing left to mark.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use milena_records::{Batch, ControlType};

use crate::aborted::AbortedTxn;

/// Follows a walk in the order of the offsets.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    /// Producers with a transaction of which batches were met and that was not aborted.
    committed: HashSet<i64>,
    /// Producers with an aborted transaction under way, and whether a batch of it was met.
    aborted: HashMap<i64, (AbortedTxn, bool)>,
    /// Aborted transactions that the walk has not reached, the nearest one last.
    ahead: Vec<AbortedTxn>,
    /// Aborted transactions whose markers stay because batches of theirs were met.
    kept: Vec<AbortedTxn>,
}

impl Transactions {
    /// At the beginning of a walk, which meets these aborted transactions.
    pub(super) fn new(mut aborted: Vec<AbortedTxn>) -> Self {
        aborted.sort_unstable_by_key(|aborted| Reverse(aborted.first_offset));
        Self { ahead: aborted, ..Self::default() }
    }

    fn begin_up_to(&mut self, offset: i64) {
        while let Some(aborted) = self.ahead.pop_if(|next| next.first_offset <= offset) {
            self.aborted.entry(aborted.producer_id).or_insert((aborted, false));
        }
    }

    /// A batch of records. True: it belongs to an aborted transaction.
    pub(super) fn batch(&mut self, batch: &Batch<'_>) -> bool {
        self.begin_up_to(batch.last_offset());
        if !batch.is_transactional() {
            return false;
        }
        if let Some((_, met)) = self.aborted.get_mut(&batch.producer_id()) {
            *met = true;
            return true;
        }
        self.committed.insert(batch.producer_id());
        false
    }

    /// A control batch, whose record has `kind`; `None` for one without a record. True: nothing is left of what it marks.
    pub(super) fn marker(&mut self, batch: &Batch<'_>, kind: Option<ControlType>) -> bool {
        self.begin_up_to(batch.last_offset());
        match kind {
            None => true,
            Some(ControlType::Abort) => match self.aborted.remove(&batch.producer_id()) {
                Some((aborted, true)) => {
                    self.kept.push(aborted);
                    false
                }
                _ => true,
            },
            Some(ControlType::Commit) => !self.committed.remove(&batch.producer_id()),
            Some(_) => false,
        }
    }

    /// The aborted transactions whose markers stay, since the last time: the transaction index of what was written.
    pub(super) fn take_kept(&mut self) -> Vec<AbortedTxn> {
        std::mem::take(&mut self.kept)
    }
}
