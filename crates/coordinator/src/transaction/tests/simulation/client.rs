//! Producers, as they follow the protocol: one request at a time, sent again until it is answered.

use std::collections::BTreeSet;

use milena_protocol::ErrorCode;

use super::super::{Producer, at};
use super::partition::{GROUP, PARTITIONS};

/// What a client asks for.
#[derive(Debug, Clone)]
pub(super) enum Ask {
    /// A producer of its transactional id.
    Init { expected: Option<Producer> },
    /// Before version 2: a partition is to belong to the transaction.
    Add { producer: Producer, partition: usize },
    /// A record, or an offset of the group.
    Write { producer: Producer, transaction: u64, partition: usize, sequence: i32 },
    /// The end.
    End { producer: Producer, transaction: u64, committed: bool },
}

/// A request on its way.
#[derive(Debug, Clone)]
pub(super) struct Request {
    /// Who asks.
    pub(super) client: usize,
    /// Names the request; asking again is another one.
    pub(super) number: u64,
    pub(super) id: &'static str,
    /// Version of transactions that the client speaks.
    pub(super) version: i16,
    pub(super) ask: Ask,
}

/// An answer on its way.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) client: usize,
    pub(super) number: u64,
    /// What the producer is from now on; of no meaning where that does not change.
    pub(super) outcome: Result<Producer, ErrorCode>,
}

/// A producer.
pub(super) struct Client {
    pub(super) id: &'static str,
    pub(super) version: i16,
    pub(super) is_dead: bool,
    /// The request that is not answered.
    pub(super) waiting: Option<(u64, Ask)>,
    producer: Option<Producer>,
    /// Number of the open transaction.
    transaction: Option<u64>,
    /// Partitions that were added to it.
    added: BTreeSet<usize>,
    /// Next sequence in each partition.
    sequences: [i32; PARTITIONS],
    /// It can only be aborted.
    must_abort: bool,
}

impl Client {
    pub(super) fn new(id: &'static str, version: i16) -> Self {
        Self {
            id,
            version,
            is_dead: false,
            waiting: None,
            producer: None,
            transaction: None,
            added: BTreeSet::new(),
            sequences: [0; PARTITIONS],
            must_abort: false,
        }
    }

    /// What it does next.
    pub(super) fn next(&mut self, rng: &mut fastrand::Rng, next_transaction: &mut u64) -> Ask {
        let Some(producer) = self.producer else { return Ask::Init { expected: None } };
        let transaction = *self.transaction.get_or_insert_with(|| {
            *next_transaction += 1;
            *next_transaction
        });
        if rng.u32(..20) == 0 {
            // A producer that has lost its way begins anew, and says who it was.
            return Ask::Init { expected: Some(producer) };
        }
        if self.must_abort || (!self.added.is_empty() && rng.u32(..4) == 0) {
            let committed = !self.must_abort && rng.u32(..3) > 0;
            return Ask::End { producer, transaction, committed };
        }
        let partition = rng.usize(..PARTITIONS);
        if self.version < 2 && !self.added.contains(&partition) {
            return Ask::Add { producer, partition };
        }
        Ask::Write { producer, transaction, partition, sequence: self.sequences[partition] }
    }

    /// What an answer changes.
    pub(super) fn learn(&mut self, ask: &Ask, outcome: Result<Producer, ErrorCode>) {
        let error = match outcome {
            Ok(producer) => return self.succeed(ask, producer),
            Err(error) => error,
        };
        match error {
            // It asks again later.
            ErrorCode::CONCURRENT_TRANSACTIONS
            | ErrorCode::NOT_COORDINATOR
            | ErrorCode::NOT_ENOUGH_REPLICAS
            | ErrorCode::KAFKA_STORAGE_ERROR => self.waiting = Some((0, ask.clone())),
            ErrorCode::TRANSACTION_ABORTABLE | ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER
                if !matches!(ask, Ask::End { .. }) =>
            {
                self.must_abort = true;
            }
            _ => self.is_dead = true,
        }
    }

    fn succeed(&mut self, ask: &Ask, producer: Producer) {
        match ask {
            Ask::Init { .. } => self.begin(producer),
            Ask::Add { partition, .. } => _ = self.added.insert(*partition),
            Ask::Write { partition, .. } => {
                self.added.insert(*partition);
                if *partition != GROUP {
                    self.sequences[*partition] += 1;
                }
            }
            Ask::End { .. } => {
                self.begin(if self.version < 2 { self.producer.unwrap_or(at(-1, -1)) } else { producer })
            }
        }
    }

    /// Begins a transaction. Sequences begin anew with another epoch.
    fn begin(&mut self, producer: Producer) {
        if self.producer != Some(producer) {
            self.sequences = [0; PARTITIONS];
        }
        self.producer = Some(producer);
        self.transaction = None;
        self.added.clear();
        self.must_abort = false;
    }
}
