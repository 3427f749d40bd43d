//! InitProducerId: a producer takes a transactional id over, and whoever had it before is fenced.

use std::sync::Arc;

use milena_protocol::ErrorCode;

use super::api::{Init, Producer, Reply};
use super::end::Asker;
use super::state::{LAST_EPOCH, NO_EPOCH, NOT_STARTED, Partitions, State, Transaction};
use super::{After, TransactionCx, Transactions};
use crate::engine::Ticket;

impl Transactions {
    pub(super) fn init(&mut self, ticket: Ticket, asked: &Init<'_>, cx: &mut TransactionCx<'_, '_>) {
        let Some((id, known)) = self.all.get_key_value(asked.id) else {
            let Some(fresh_id) = asked.fresh_id else { return cx.reply(ticket, Reply::ProducerIdWanted) };
            let unborn = Transaction::unborn(fresh_id);
            let producer = Producer { id: fresh_id, epoch: 0 };
            let next = empty(&unborn, producer, NO_EPOCH, asked, cx);
            let id: Arc<str> = asked.id.into();
            return self.write(&id, next, After::Initialized(ticket, Arc::clone(&id)), cx);
        };
        let id = Arc::clone(id);
        if known.is_busy() {
            return cx.reply(ticket, Reply::Producer(Err(ErrorCode::CONCURRENT_TRANSACTIONS)));
        }
        if asked.expected.is_some_and(|expected| !may_be(expected, known)) {
            return cx.reply(ticket, Reply::Producer(Err(ErrorCode::PRODUCER_FENCED)));
        }
        if known.state == State::Ongoing {
            return self.abort(&id, Some(Asker::Successor(ticket)), asked.fresh_id, cx);
        }
        let is_its_last = asked.expected.is_none_or(|expected| expected.epoch == known.producer.epoch);
        let (producer, last_epoch) = if known.is_exhausted() && is_its_last {
            let Some(fresh_id) = asked.fresh_id else { return cx.reply(ticket, Reply::ProducerIdWanted) };
            let last_epoch = if asked.expected.is_some() { known.producer.epoch } else { NO_EPOCH };
            (Producer { id: fresh_id, epoch: 0 }, last_epoch)
        } else {
            match next_epoch(asked.expected, known) {
                Ok((epoch, last_epoch)) => (Producer { epoch, ..known.producer }, last_epoch),
                Err(error) => return cx.reply(ticket, Reply::Producer(Err(error))),
            }
        };
        let next = empty(known, producer, last_epoch, asked, cx);
        self.write(&id, next, After::Initialized(ticket, Arc::clone(&id)), cx);
    }
}

/// Without a transaction, and with another producer.
fn empty(
    known: &Transaction,
    producer: Producer,
    last_epoch: i16,
    asked: &Init<'_>,
    cx: &TransactionCx<'_, '_>,
) -> Transaction {
    Transaction {
        producer,
        last_epoch,
        timeout_ms: asked.timeout_ms,
        partitions: Partitions::new(),
        started_ms: NOT_STARTED,
        ..known.next(State::Empty, cx.now().wall_ms)
    }
}

/// Whether a producer may be the one that is known: its epoch is judged later. One that repeats a request may name the id
/// that it had before its epochs ran out.
fn may_be(expected: Producer, known: &Transaction) -> bool {
    expected.id == known.producer.id || (expected.id == known.previous_id && expected.epoch >= LAST_EPOCH)
}

/// The epoch that the producer gets, and the one that a repeated request may name.
fn next_epoch(expected: Option<Producer>, known: &Transaction) -> Result<(i16, i16), ErrorCode> {
    let current = known.producer.epoch;
    match expected.map(|expected| expected.epoch) {
        Some(epoch) if epoch == known.last_epoch && epoch != current => Ok((current, known.last_epoch)),
        Some(epoch) if epoch != current => Err(ErrorCode::PRODUCER_FENCED),
        Some(_) => Ok((current + 1, current)),
        None => Ok((current + 1, NO_EPOCH)),
    }
}
