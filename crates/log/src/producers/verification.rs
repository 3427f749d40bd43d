//! Proof that the coordinator knows of a transaction before its first batch is written (KIP-890). Without it a batch that comes late would
//! open a transaction that nobody ends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Stands for one verification; never given out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VerificationGuard(u64);

impl VerificationGuard {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The batch that a verification is begun for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerificationStart {
    /// Its producer.
    pub producer_id: i64,
    /// Its producer's epoch.
    pub epoch: i16,
    /// Its first sequence.
    pub base_sequence: i32,
    /// Its producer gets a new epoch with every transaction, so that each begins with sequence 0 (transactions of version 2).
    pub epoch_bumps: bool,
    /// Wall clock, ms since 1970.
    pub now_ms: i64,
}

/// A verification under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Verification {
    pub(super) guard: VerificationGuard,
    /// The smallest first sequence of the batches that wait for it: a later one must not get in front of it.
    pub(super) lowest_sequence: i32,
    pub(super) epoch_bumps: bool,
    epoch: i16,
    begun_ms: i64,
}

/// The verifications of one partition, by producer id.
#[derive(Debug, Default)]
pub(super) struct Verifications(BTreeMap<i64, Verification>);

impl Verifications {
    pub(super) fn get(&self, producer_id: i64) -> Option<&Verification> {
        self.0.get(&producer_id)
    }

    /// Begins one, or joins the one under way.
    pub(super) fn begin(&mut self, start: &VerificationStart) -> VerificationGuard {
        let verification = self.0.entry(start.producer_id).or_insert_with(|| Verification {
            guard: VerificationGuard::new(),
            lowest_sequence: start.base_sequence,
            epoch_bumps: start.epoch_bumps,
            epoch: start.epoch,
            begun_ms: start.now_ms,
        });
        if start.epoch > verification.epoch {
            (verification.epoch, verification.lowest_sequence) = (start.epoch, start.base_sequence);
        } else if start.epoch == verification.epoch {
            verification.lowest_sequence = verification.lowest_sequence.min(start.base_sequence);
        }
        verification.guard
    }

    /// A batch of the transaction, or its marker, has been written.
    pub(super) fn end(&mut self, producer_id: i64) {
        self.0.remove(&producer_id);
    }

    pub(super) fn expire(&mut self, now_ms: i64, expiration_ms: i64) {
        self.0.retain(|_, verification| now_ms.saturating_sub(verification.begun_ms) < expiration_ms);
    }
}
