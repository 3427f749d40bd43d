//! The state machine of one partition of `__transaction_state`: the transactional ids that belong there, and how far the
//! transaction of each of them is.
//!
//! | module | what lives there |
//! |---|---|
//! | `api` | requests, replies, effects, settings |
//! | `state` | what is known of one transactional id, and its record |
//! | `init`, `add`, `end` | InitProducerId; AddPartitionsToTxn and AddOffsetsToTxn; EndTxn and the end at the timeout |
//! | `markers` | from the decision, which is in this log, over the markers, which are in others, to the end |
//! | `admin` | ListTransactions, DescribeTransactions |
//! | `expire` | what is no longer kept |
//!
//! A transaction is decided by one record: the one that says that it is to be committed or aborted. Markers follow it for as
//! long as it takes, also after a restart.

mod add;
mod admin;
mod api;
mod end;
mod expire;
mod init;
mod markers;
mod state;

use std::collections::BTreeMap;
use std::sync::Arc;

use milena_protocol::messages::{TransactionLogKey, TransactionLogValue};
use milena_protocol::{DecodeError, ErrorCode};

use crate::engine::{Cx, Engine, Replayed, Ticket};
use crate::records::{decode, versioned};

pub use api::{Effect, End, Ended, Init, ListFilter, Producer, Reply, Request, TopicPartitions, TransactionSettings};
pub use state::State;
use state::{FIRST_FLEXIBLE_VERSION, NO_EPOCH, Transaction};

type TransactionCx<'c, 'i> = Cx<'c, 'i, Transactions>;

/// Type of a transactional id's record.
const TRANSACTION: i16 = 0;

/// All transactional ids of one partition.
#[derive(Debug, Default)]
pub struct Transactions {
    all: BTreeMap<Arc<str>, Transaction>,
    replayed: u64,
}

/// Names the timers of transactions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Transactions that take too long are looked for.
    Timeouts,
    /// Transactional ids that are no longer kept are looked for.
    Expiry,
    /// Markers that could not be written are tried again.
    Markers(Arc<str>),
}

/// What follows the write of a transactional id.
#[derive(Debug)]
pub enum After {
    /// A producer has its id and epoch.
    Initialized(Ticket, Arc<str>),
    /// Partitions belong to the transaction.
    Added(Ticket, Arc<str>),
    /// The end is decided: markers may be written. Who is told, if anybody.
    Decided(Option<end::Asker>, Arc<str>),
    /// All markers are written.
    Completed(Arc<str>),
    /// Transactional ids are gone.
    Expired,
}

impl Transactions {
    /// No transactional ids.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many records were replayed.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    /// How many transactional ids there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// No transactional ids.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Writes what is to be known of a transactional id. Until that is committed it takes no other request.
    fn write(&mut self, id: &Arc<str>, next: Transaction, after: After, cx: &mut TransactionCx<'_, '_>) {
        let known = self.all.entry(Arc::clone(id)).or_insert_with(|| Transaction::unborn(next.producer.id));
        known.pending = Some(next.last_epoch);
        let version = if cx.settings().version > 0 { FIRST_FLEXIBLE_VERSION } else { 0 };
        let mut records = cx.records().without_sequences();
        records.put(&key(id), &next.value(version), version);
        cx.write(records, after);
    }

    /// The write of a transactional id is committed, or was not made.
    fn written(&mut self, id: &Arc<str>) {
        let Some(transaction) = self.all.get_mut(id) else { return };
        transaction.pending = None;
        if transaction.producer.epoch == NO_EPOCH {
            self.all.remove(id);
        }
    }
}

impl Engine for Transactions {
    type Settings = TransactionSettings;
    type Request<'r> = Request<'r>;
    type Reply = Reply;
    type Timer = Timer;
    type After = After;
    type Effect = Effect;

    fn replay(&mut self, record: &Replayed<'_>) -> Result<(), DecodeError> {
        if record.kind != TRANSACTION {
            return Ok(());
        }
        self.replayed += 1;
        let key: TransactionLogKey<'_> = decode(record.key, 0)?;
        let Some((version, value)) = versioned(record.value)? else {
            self.all.remove(&*key.transactional_id);
            return Ok(());
        };
        let value: TransactionLogValue<'_> = decode(value, version)?;
        let mut transaction = Transaction::from_value(&value)?;
        if let Some(before) = self.all.get(&*key.transactional_id) {
            transaction.pending = before.pending;
            transaction.last_epoch = before.pending.unwrap_or(NO_EPOCH);
        }
        self.all.insert(key.transactional_id.as_ref().into(), transaction);
        Ok(())
    }

    fn replay_end_of_transaction(&mut self, _: i64, _: bool) {}

    fn loaded(&mut self, cx: &mut TransactionCx<'_, '_>) {
        let decided: Vec<_> = self
            .all
            .iter()
            .filter(|(_, transaction)| transaction.state.is_decided())
            .map(|(id, _)| id.clone())
            .collect();
        decided.iter().for_each(|id| self.write_markers(id, cx));
        Self::schedule_timeouts(cx);
        Self::schedule_expiry(cx);
    }

    fn handle(&mut self, ticket: Ticket, request: Request<'_>, cx: &mut TransactionCx<'_, '_>) {
        match request {
            Request::Init(init) => self.init(ticket, &init, cx),
            Request::Add { id, producer, partitions, client_version } => {
                self.add(ticket, id, producer, partitions, client_version, cx);
            }
            Request::Verify { id, producer, partitions } => self.verify(ticket, id, producer, partitions, cx),
            Request::End(end) => self.end(ticket, &end, cx),
            Request::Abort { id, fresh_id } => self.abort_overdue(ticket, id, fresh_id, cx),
            Request::Marked { id, producer, partitions } => self.marked(ticket, id, producer, partitions, cx),
            Request::List(filter) => self.list(ticket, &filter, cx),
            Request::Describe(id) => self.describe(ticket, id, cx),
        }
    }

    fn fire(&mut self, timer: Timer, cx: &mut TransactionCx<'_, '_>) {
        match timer {
            Timer::Timeouts => self.abort_all_overdue(cx),
            Timer::Expiry => self.expire(cx),
            Timer::Markers(id) => self.write_markers(&id, cx),
        }
    }

    fn settle(&mut self, after: After, outcome: Result<(), ErrorCode>, cx: &mut TransactionCx<'_, '_>) {
        match after {
            After::Initialized(ticket, id) => {
                let producer = self.all.get(&id).map(|transaction| transaction.producer);
                self.written(&id);
                let producer = outcome.and(producer.ok_or(ErrorCode::UNKNOWN_SERVER_ERROR));
                cx.reply(ticket, Reply::Producer(producer));
            }
            After::Added(ticket, id) => {
                self.written(&id);
                cx.reply(ticket, Reply::Done(outcome));
            }
            After::Decided(asker, id) => self.decided(asker, &id, outcome, cx),
            After::Completed(id) => self.completed(&id, outcome, cx),
            After::Expired => {}
        }
    }
}

fn key(id: &str) -> TransactionLogKey<'_> {
    TransactionLogKey { transactional_id: id.into() }
}

#[cfg(test)]
mod tests;
