//! EndTxn, and the end of transactions that take too long or whose producer has a successor.
//!
//! With transactions of version 2 every end raises the producer's epoch, so that what comes late from an ended transaction is
//! told by its epoch. A producer that has used up its epochs gets another id.

use std::sync::Arc;

use milena_protocol::ErrorCode;

use super::api::{Effect, End, Producer, Reply};
use super::state::{LAST_EPOCH, NO_EPOCH, NO_PRODUCER_ID, State, Transaction};
use super::{After, Timer, TransactionCx, Transactions};
use crate::engine::Ticket;

/// First version in which an end raises the epoch.
const FIRST_EPOCH_BUMP: i16 = 2;

/// Who is told that an end is decided.
#[derive(Debug, Clone, Copy)]
pub enum Asker {
    /// The producer.
    Producer(Ticket),
    /// Who wants to be the producer, and has to come again.
    Successor(Ticket),
}

/// What an EndTxn leads to.
enum Verdict {
    /// The end is decided. A transaction without partitions begins and ends at once.
    Decide { begins: bool },
    /// It was decided that way already: the request is a repetition.
    Known,
}

impl Transactions {
    pub(super) fn end(&mut self, ticket: Ticket, end: &End<'_>, cx: &mut TransactionCx<'_, '_>) {
        let Some((id, known)) = self.all.get_key_value(end.id) else {
            return cx.reply(ticket, Reply::Producer(Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING)));
        };
        let bumps = end.client_version >= FIRST_EPOCH_BUMP;
        let verdict = if bumps { judge(end, known) } else { judge_without_bump(end, known) };
        let begins = match verdict {
            Ok(Verdict::Decide { begins }) => begins,
            Ok(Verdict::Known) => return cx.reply(ticket, Reply::Producer(Ok(known.producer))),
            Err(error) => return cx.reply(ticket, Reply::Producer(Err(error))),
        };
        if bumps && known.is_exhausted() && end.fresh_id.is_none() {
            return cx.reply(ticket, Reply::ProducerIdWanted);
        }
        let state = if end.committed { State::PrepareCommit } else { State::PrepareAbort };
        let mut next = decided(known, state, bumps, end.fresh_id, cx.now().wall_ms);
        if begins {
            next.started_ms = next.updated_ms;
        }
        let id = Arc::clone(id);
        self.write(&id, next, After::Decided(Some(Asker::Producer(ticket)), Arc::clone(&id)), cx);
    }

    /// Aborts an open transaction that its producer has not ended; it is fenced. Its end has the version of the cluster,
    /// whatever the client speaks.
    pub(super) fn abort(
        &mut self,
        id: &Arc<str>,
        asker: Option<Asker>,
        fresh_id: Option<i64>,
        cx: &mut TransactionCx<'_, '_>,
    ) {
        let Some(known) = self.all.get(id) else { return };
        let bumps = cx.settings().version >= FIRST_EPOCH_BUMP;
        if bumps && known.is_exhausted() && fresh_id.is_none() {
            return match asker {
                Some(Asker::Producer(ticket) | Asker::Successor(ticket)) => cx.reply(ticket, Reply::ProducerIdWanted),
                None => cx.effect(Effect::ProducerIdWanted(Arc::clone(id))),
            };
        }
        let mut next = decided(known, State::PrepareAbort, bumps, fresh_id, cx.now().wall_ms);
        if !bumps {
            next.producer.epoch += 1;
            next.last_epoch = NO_EPOCH;
        }
        self.write(id, next, After::Decided(asker, Arc::clone(id)), cx);
    }

    pub(super) fn schedule_timeouts(cx: &mut TransactionCx<'_, '_>) {
        let interval = cx.settings().timeouts_interval_ms;
        cx.set_timer(Timer::Timeouts, interval.into());
    }

    pub(super) fn abort_all_overdue(&mut self, cx: &mut TransactionCx<'_, '_>) {
        let now_ms = cx.now().wall_ms;
        let overdue = self.all.iter().filter(|(_, known)| known.is_overdue(now_ms));
        let overdue: Vec<_> = overdue.map(|(id, _)| Arc::clone(id)).collect();
        overdue.iter().for_each(|id| self.abort(id, None, None, cx));
        Self::schedule_timeouts(cx);
    }

    pub(super) fn abort_overdue(&mut self, ticket: Ticket, id: &str, fresh_id: i64, cx: &mut TransactionCx<'_, '_>) {
        let now_ms = cx.now().wall_ms;
        let overdue = self.all.get_key_value(id).filter(|(_, known)| known.is_overdue(now_ms));
        if let Some(id) = overdue.map(|(id, _)| Arc::clone(id)) {
            self.abort(&id, None, Some(fresh_id), cx);
        }
        cx.reply(ticket, Reply::Done(Ok(())));
    }

    /// The decision is committed, or could not be written.
    pub(super) fn decided(
        &mut self,
        asker: Option<Asker>,
        id: &Arc<str>,
        outcome: Result<(), ErrorCode>,
        cx: &mut TransactionCx<'_, '_>,
    ) {
        self.written(id);
        if outcome.is_ok() {
            self.write_markers(id, cx);
        }
        let producer = self.all.get(id).map(Transaction::final_producer).ok_or(ErrorCode::UNKNOWN_SERVER_ERROR);
        match asker {
            Some(Asker::Producer(ticket)) => cx.reply(ticket, Reply::Producer(outcome.and(producer))),
            Some(Asker::Successor(ticket)) => {
                let error = outcome.err().unwrap_or(ErrorCode::CONCURRENT_TRANSACTIONS);
                cx.reply(ticket, Reply::Producer(Err(error)));
            }
            None => {}
        }
    }
}

/// The transaction with its end decided.
fn decided(known: &Transaction, state: State, bumps: bool, fresh_id: Option<i64>, now_ms: i64) -> Transaction {
    let mut next = known.next(state, now_ms);
    (next.next_id, next.client_version) = (NO_PRODUCER_ID, 0);
    if bumps {
        next.client_version = FIRST_EPOCH_BUMP;
        next.last_epoch = known.producer.epoch;
        next.producer.epoch += 1;
        if known.is_exhausted() {
            next.next_id = fresh_id.unwrap_or(NO_PRODUCER_ID);
        }
    }
    next
}

impl Transaction {
    /// What its producer is when the transaction is complete.
    pub(super) fn final_producer(&self) -> Producer {
        if self.next_id == NO_PRODUCER_ID { self.producer } else { Producer { id: self.next_id, epoch: 0 } }
    }
}

/// Judges an EndTxn by the rules of version 2, with which a repetition has the epoch before.
fn judge(end: &End<'_>, known: &Transaction) -> Result<Verdict, ErrorCode> {
    if known.is_busy() {
        return Err(ErrorCode::CONCURRENT_TRANSACTIONS);
    }
    let Producer { id, epoch } = end.producer;
    let has_new_id = known.previous_id == id && epoch == LAST_EPOCH && known.producer.epoch == 0;
    if id != known.producer.id && !has_new_id {
        return Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING);
    }
    let is_current = epoch == known.producer.epoch;
    let is_repetition = has_new_id || i32::from(epoch) + 1 == i32::from(known.producer.epoch);
    let repeats = is_repetition && matches!(known.state, State::CompleteCommit | State::CompleteAbort);
    if !is_current && !repeats {
        return Err(ErrorCode::PRODUCER_FENCED);
    }
    match known.state {
        State::Ongoing => Ok(Verdict::Decide { begins: false }),
        _ if repeats && known.state.is_commit() == end.committed => Ok(Verdict::Known),
        _ if !repeats && !end.committed => Ok(Verdict::Decide { begins: true }),
        _ => Err(ErrorCode::INVALID_TXN_STATE),
    }
}

/// Judges an EndTxn by the rules before version 2.
fn judge_without_bump(end: &End<'_>, known: &Transaction) -> Result<Verdict, ErrorCode> {
    if known.is_busy() {
        return Err(ErrorCode::CONCURRENT_TRANSACTIONS);
    }
    if end.producer.id != known.producer.id {
        return Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING);
    }
    if end.producer.epoch != known.producer.epoch {
        return Err(ErrorCode::PRODUCER_FENCED);
    }
    match known.state {
        State::Ongoing => Ok(Verdict::Decide { begins: false }),
        State::CompleteCommit if end.committed => Ok(Verdict::Known),
        State::CompleteAbort if !end.committed => Ok(Verdict::Known),
        _ => Err(ErrorCode::INVALID_TXN_STATE),
    }
}
