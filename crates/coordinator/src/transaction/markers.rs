//! Markers: every partition of a transaction whose end is decided gets one, and then the transaction is complete.

use std::sync::Arc;

use milena_protocol::ErrorCode;

use super::api::{Effect, Ended, Producer, Reply, TopicPartitions};
use super::state::{NO_PRODUCER_ID, Partitions, Transaction};
use super::{After, Timer, TransactionCx, Transactions};
use crate::engine::Ticket;

/// How long markers that could not be written wait, ms.
const RETRY_MS: i64 = 500;

impl Transactions {
    /// Has the markers written that are missing.
    pub(super) fn write_markers(&mut self, id: &Arc<str>, cx: &mut TransactionCx<'_, '_>) {
        let Some(known) = self.all.get(id).filter(|known| known.state.is_decided() && known.pending.is_none()) else {
            return;
        };
        if known.partitions.is_empty() {
            return self.complete(id, cx);
        }
        let partitions = known
            .partitions
            .iter()
            .flat_map(|(topic, partitions)| partitions.iter().map(move |partition| (topic.to_string(), *partition)));
        cx.effect(Effect::WriteMarkers(Ended {
            id: Arc::clone(id),
            producer: known.producer,
            committed: known.state.is_commit(),
            version: known.client_version,
            partitions: partitions.collect(),
        }));
    }

    pub(super) fn marked(
        &mut self,
        ticket: Ticket,
        id: &str,
        producer: Producer,
        partitions: TopicPartitions<'_>,
        cx: &mut TransactionCx<'_, '_>,
    ) {
        cx.reply(ticket, Reply::Done(Ok(())));
        let Some(id) = self.all.get_key_value(id).map(|(id, _)| Arc::clone(id)) else { return };
        let Some(known) = self.all.get_mut(&id) else { return };
        if !known.state.is_decided() || known.pending.is_some() || known.producer != producer {
            return;
        }
        known.remove(partitions);
        if known.partitions.is_empty() {
            self.complete(&id, cx);
        } else {
            cx.set_timer(Timer::Markers(id), RETRY_MS);
        }
    }

    fn complete(&mut self, id: &Arc<str>, cx: &mut TransactionCx<'_, '_>) {
        let Some(known) = self.all.get(id) else { return };
        let next = Transaction {
            producer: known.final_producer(),
            next_id: NO_PRODUCER_ID,
            partitions: Partitions::new(),
            ..known.next(known.state.completed(), cx.now().wall_ms)
        };
        self.write(id, next, After::Completed(Arc::clone(id)), cx);
    }

    pub(super) fn completed(&mut self, id: &Arc<str>, outcome: Result<(), ErrorCode>, cx: &mut TransactionCx<'_, '_>) {
        self.written(id);
        if outcome.is_err() {
            cx.set_timer(Timer::Markers(Arc::clone(id)), RETRY_MS);
        }
    }
}
