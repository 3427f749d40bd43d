//! Transactional ids that had no transaction for a long time are forgotten.

use super::state::{State, Transaction};
use super::{After, Timer, TransactionCx, Transactions, key};

impl Transactions {
    pub(super) fn schedule_expiry(cx: &mut TransactionCx<'_, '_>) {
        let interval = cx.settings().expiry_interval_ms;
        cx.set_timer(Timer::Expiry, interval.into());
    }

    pub(super) fn expire(&self, cx: &mut TransactionCx<'_, '_>) {
        let kept_since = cx.now().wall_ms.saturating_sub(cx.settings().id_expiration_ms.into());
        let is_expired = |known: &Transaction| {
            let is_idle = known.pending.is_none() && !known.state.is_decided() && known.state != State::Ongoing;
            is_idle && known.updated_ms <= kept_since
        };
        let mut records = cx.records().without_sequences().splittable();
        for (id, _) in self.all.iter().filter(|(_, known)| is_expired(known)) {
            records.remove(&key(id));
        }
        if !records.is_empty() {
            cx.write(records, After::Expired);
        }
        Self::schedule_expiry(cx);
    }
}
