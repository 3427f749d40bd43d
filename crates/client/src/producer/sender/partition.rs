//! A partition as the sender sees it: what is on its way, what waits to be sent again, and the sequences.

use std::collections::VecDeque;

use tokio::time::Instant;

use crate::producer::batch::SealedBatch;
use crate::producer::sequences::{Identity, Sequences};

#[derive(Debug, Default)]
pub(super) struct Partition {
    /// Batches to be sent again, by number.
    pub(super) again: VecDeque<SealedBatch>,
    /// When they may be.
    pub(super) not_before: Option<Instant>,
    /// Failures in a row.
    pub(super) failures: u32,
    /// Batches on their way, and the broker that they go to.
    on_their_way: usize,
    broker: i32,
    pub(super) sequences: Sequences,
}

impl Partition {
    /// Whether a batch may be sent to this broker: what went wrong before is sent again first, when nothing of the partition
    /// is on its way any more, and a new leader waits until the old one has answered.
    pub(super) fn may_send(&self, broker: i32, again: bool, now: Instant) -> bool {
        let idle = self.on_their_way == 0;
        if again {
            return idle && self.not_before.is_none_or(|not_before| not_before <= now);
        }
        self.again.is_empty() && (idle || self.broker == broker)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.on_their_way == 0
    }

    /// A batch leaves for this broker.
    pub(super) fn sending(&mut self, broker: i32) {
        self.on_their_way += 1;
        self.broker = broker;
    }

    /// A batch has come back; it was the first of those on their way.
    pub(super) fn came_back(&mut self) {
        self.on_their_way -= 1;
    }

    /// Whether a batch that has come back is the first of all that are not written.
    pub(super) fn is_first(&self, batch: &SealedBatch) -> bool {
        self.again.front().is_none_or(|first| batch.order < first.order)
    }

    /// A batch waits to be sent again, in its place.
    pub(super) fn send_again(&mut self, batch: SealedBatch) {
        let place = self.again.partition_point(|other| other.order < batch.order);
        self.again.insert(place, batch);
    }

    /// Before the first batch after a pause: brings the sequences in order. `false` when a new epoch is needed for that.
    pub(super) fn settle(&mut self, current: Identity) -> bool {
        if self.sequences.needs_epoch(self.again.is_empty()) && self.sequences.identity() == Some(current) {
            return false;
        }
        if self.sequences.needs_renumbering(current) {
            self.sequences.restart(current);
            for batch in &mut self.again {
                let sequence = self.sequences.assign(batch.records);
                batch.place(current, sequence);
            }
        }
        true
    }
}
