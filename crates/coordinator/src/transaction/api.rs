//! What a partition's transactions are asked, what they answer, and what they want done.

use std::collections::BTreeSet;
use std::sync::Arc;

use milena_protocol::messages::describe_transactions_response::TransactionState as Described;
use milena_protocol::messages::list_transactions_response::TransactionState as Listed;
use milena_protocol::{ErrorCode, Str};

/// What transactions take from the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionSettings {
    /// Level of the feature `transaction.version`.
    pub version: i16,
    /// How often transactions that take too long are looked for, ms
    /// (`transaction.abort.timed.out.transaction.cleanup.interval.ms`).
    pub timeouts_interval_ms: i32,
    /// How long a transactional id without transactions is kept, ms (`transactional.id.expiration.ms`).
    pub id_expiration_ms: i32,
    /// How often such ids are looked for, ms (`transaction.remove.expired.transaction.cleanup.interval.ms`).
    pub expiry_interval_ms: i32,
}

/// A producer, as its id and epoch name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Producer {
    /// Its id.
    pub id: i64,
    /// Its epoch.
    pub epoch: i16,
}

/// Partitions, each a topic and a number.
pub type TopicPartitions<'r> = &'r [(Str<'r>, i32)];

/// InitProducerId with a transactional id.
#[derive(Debug, Clone, Copy)]
pub struct Init<'r> {
    /// The transactional id.
    pub id: &'r str,
    /// How long its transactions may take, ms; [`i32::MAX`] for ever.
    pub timeout_ms: i32,
    /// What the producer believes to be.
    pub expected: Option<Producer>,
    /// An id that no producer ever had, if one is at hand.
    pub fresh_id: Option<i64>,
}

/// EndTxn.
#[derive(Debug, Clone, Copy)]
pub struct End<'r> {
    /// The transactional id.
    pub id: &'r str,
    /// Whose transaction.
    pub producer: Producer,
    /// Committed; otherwise aborted.
    pub committed: bool,
    /// Version of transactions that the client speaks: with 2 each end raises its epoch.
    pub client_version: i16,
    /// An id that no producer ever had, if one is at hand.
    pub fresh_id: Option<i64>,
}

/// Which transactions ListTransactions names.
pub struct ListFilter<'r> {
    /// States; an empty set admits all.
    pub states: &'r BTreeSet<&'r str>,
    /// Producers' ids; an empty set admits all.
    pub producer_ids: &'r BTreeSet<i64>,
    /// Those that have been running for longer, ms; a negative number admits all.
    pub longer_than_ms: i64,
    /// Whether a transactional id is one of those asked for.
    pub admits: &'r dyn Fn(&str) -> bool,
}

/// A request to one partition's transactions.
pub enum Request<'r> {
    /// InitProducerId.
    Init(Init<'r>),
    /// AddPartitionsToTxn, AddOffsetsToTxn, and what Produce and TxnOffsetCommit add by themselves.
    Add {
        /// The transactional id.
        id: &'r str,
        /// Whose transaction.
        producer: Producer,
        /// What belongs to it from now on.
        partitions: TopicPartitions<'r>,
        /// Version of transactions that the client speaks.
        client_version: i16,
    },
    /// Whether partitions belong to a transaction.
    Verify {
        /// The transactional id.
        id: &'r str,
        /// Whose transaction.
        producer: Producer,
        /// The partitions.
        partitions: TopicPartitions<'r>,
    },
    /// EndTxn.
    End(End<'r>),
    /// The id that [`Effect::ProducerIdWanted`] asked for.
    Abort {
        /// The transactional id.
        id: &'r str,
        /// An id that no producer ever had.
        fresh_id: i64,
    },
    /// What has come of [`Effect::WriteMarkers`].
    Marked {
        /// The transactional id.
        id: &'r str,
        /// Of the markers.
        producer: Producer,
        /// Those that need no marker any more; the others are asked for again.
        partitions: TopicPartitions<'r>,
    },
    /// ListTransactions.
    List(ListFilter<'r>),
    /// DescribeTransactions of one transactional id.
    Describe(&'r str),
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// To [`Request::Init`] and [`Request::End`]: what the producer is from now on.
    Producer(Result<Producer, ErrorCode>),
    /// To [`Request::Init`] and [`Request::End`]: to be asked again with an id that no producer ever had.
    ProducerIdWanted,
    /// To [`Request::Add`], [`Request::Abort`] and [`Request::Marked`].
    Done(Result<(), ErrorCode>),
    /// To [`Request::Verify`]: for each partition, in their order.
    Verified(Vec<ErrorCode>),
    /// To [`Request::List`].
    Listed(Vec<Listed<'static>>),
    /// To [`Request::Describe`].
    Described(Box<Described<'static>>),
}

/// What transactions want done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The partitions of a transaction are to get its marker; [`Request::Marked`] tells what came of it.
    WriteMarkers(Ended),
    /// An overdue transaction can be aborted only with a new producer id: [`Request::Abort`].
    ProducerIdWanted(Arc<str>),
}

/// A transaction whose end is decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The transactional id.
    pub id: Arc<str>,
    /// As the markers name it.
    pub producer: Producer,
    /// Committed; otherwise aborted.
    pub committed: bool,
    /// Version of the transactions.
    pub version: i16,
    /// The partitions without a marker.
    pub partitions: Vec<(String, i32)>,
}
