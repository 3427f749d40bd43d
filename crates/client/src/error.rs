//! What can go wrong, as one type.

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use milena_protocol::{ApiKey, DecodeError, EncodeError, ErrorCode};
use milena_records::{BatchError, BuildError, RecordError};

use crate::topic_partition::TopicPartition;

/// Why something did not work. Cheap to clone: one cause may concern many records.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting has a value that it can't have.
    #[error("{key}: {reason}")]
    Config {
        /// Kafka's name of the setting.
        key: String,
        /// What is wrong with the value.
        reason: String,
    },
    /// No connection came about.
    #[error("no connection to {address}: {source}")]
    Connect {
        /// Where to, as host:port.
        address: Arc<str>,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The connection ended before the answer came; whether the request was carried out is not known.
    #[error("the connection to {address} was lost: {source}")]
    Disconnected {
        /// Where to, as host:port.
        address: Arc<str>,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// It was not done in time.
    #[error("{what} was not done within {} ms{}", after.as_millis(), because(last.as_deref()))]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        after: Duration,
        /// What went wrong last, before the time was up.
        last: Option<Box<Error>>,
    },
    /// The server has no version of an API that the client can use.
    #[error("{api} is needed in versions {} to {}, and the server has {}", wanted.start(), wanted.end(), versions(served))]
    UnsupportedVersion {
        /// The API.
        api: ApiKey,
        /// What the client can use.
        wanted: RangeInclusive<i16>,
        /// What the server has; `None` when it does not have the API.
        served: Option<RangeInclusive<i16>>,
    },
    /// Bytes of the server make no sense.
    #[error("the server's {what} can't be read: {source}")]
    Malformed {
        /// What they should have been.
        what: &'static str,
        /// What is wrong with them.
        source: DecodeError,
    },
    /// The request does not fit into the version that the server has.
    #[error("the request can't be written: {0}")]
    Request(#[from] EncodeError),
    /// The server refused.
    #[error("{}{}", code.name(), message.as_deref().map(|text| format!(": {text}")).unwrap_or_default())]
    Broker {
        /// Kafka's code.
        code: ErrorCode,
        /// What the server said beyond the code.
        message: Option<Arc<str>>,
    },
    /// A record takes more bytes than a setting allows.
    #[error("a record of {size} bytes, where {key} allows {limit}")]
    RecordTooLarge {
        /// Bytes of a batch with this record alone.
        size: usize,
        /// Bytes that are allowed.
        limit: usize,
        /// Kafka's name of the setting.
        key: &'static str,
    },
    /// A partitioner has chosen a partition that the topic does not have.
    #[error("the partitioner chose partition {partition} of {of}")]
    NoSuchPartition {
        /// What it chose.
        partition: i32,
        /// How many partitions there are.
        of: usize,
    },
    /// A batch can't be written.
    #[error("the batch can't be written: {0}")]
    Batch(#[from] BuildError),
    /// A transaction can't be committed, or the producer can't have any more.
    #[error("{}: {cause}", if *fatal { "the producer must be replaced" } else { "the transaction must be aborted" })]
    Transaction {
        /// Whether the producer is of no more use: another has its transactional id, or it may not have it. Otherwise the
        /// transaction is aborted, and the next can begin.
        fatal: bool,
        /// What went wrong.
        cause: Box<Error>,
    },
    /// A partition can't be read on. It is tried again later; a seek goes on elsewhere.
    #[error("{partition}{}: {cause}", offset.map(|offset| format!(" at offset {offset}")).unwrap_or_default())]
    Partition {
        /// The partition.
        partition: TopicPartition,
        /// Where the consumer is in it, if it is anywhere.
        offset: Option<i64>,
        /// What went wrong.
        cause: Box<Error>,
    },
    /// Fetched bytes are no sound records.
    #[error("the records can't be read: {0}")]
    Corrupt(#[from] Corruption),
    /// There is no offset to begin at, and `auto.offset.reset` chooses none.
    #[error("no offset is committed, and auto.offset.reset is none")]
    NoOffset,
    /// The leader no longer has what was read, and `auto.offset.reset` chooses no other offset.
    #[error("the log was truncated{}", to.map(|to| format!(" to offset {to}")).unwrap_or_default())]
    Truncated {
        /// Up to where the leader's log is as it was, if it tells.
        to: Option<i64>,
    },
    /// A consumer was asked for records, and there are no partitions that it could read.
    #[error("no partition is assigned")]
    NothingAssigned,
    /// A record was not sent because its transaction was aborted.
    #[error("the transaction was aborted")]
    Aborted,
    /// The client, or what was made of it, was closed.
    #[error("the client is closed")]
    Closed,
}

/// Why bytes are no sound records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Corruption {
    /// A batch does not hold together.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The records in a batch do not.
    #[error(transparent)]
    Records(#[from] RecordError),
}

fn because(last: Option<&Error>) -> String {
    last.map(|error| format!("; at last: {error}")).unwrap_or_default()
}

fn versions(served: &Option<RangeInclusive<i16>>) -> String {
    served.as_ref().map_or("none".to_owned(), |served| format!("{} to {}", served.start(), served.end()))
}

impl Error {
    /// Whether trying again, later or elsewhere, can help.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Disconnected { .. } | Self::Timeout { .. } => true,
            Self::Broker { code, .. } => code.is_retriable(),
            Self::Partition { cause, .. } => cause.is_retriable(),
            _ => false,
        }
    }

    /// The server's code, if it refused.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Broker { code, .. } => Some(*code),
            Self::Partition { cause, .. } => cause.code(),
            _ => None,
        }
    }

    /// Whether the connection was at fault rather than what was asked.
    pub(crate) fn is_of_connection(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Disconnected { .. } | Self::Timeout { .. })
    }

    pub(crate) fn config(key: &str, reason: impl Into<String>) -> Self {
        Self::Config { key: key.to_owned(), reason: reason.into() }
    }

    pub(crate) fn connect(address: &Arc<str>, source: io::Error) -> Self {
        Self::Connect { address: Arc::clone(address), source: Arc::new(source) }
    }

    pub(crate) fn disconnected(address: &Arc<str>, source: io::Error) -> Self {
        Self::Disconnected { address: Arc::clone(address), source: Arc::new(source) }
    }

    pub(crate) fn timeout(what: impl Into<String>, after: Duration, last: Option<Error>) -> Self {
        Self::Timeout { what: what.into(), after, last: last.map(Box::new) }
    }
}

impl From<ErrorCode> for Error {
    fn from(code: ErrorCode) -> Self {
        Self::Broker { code, message: None }
    }
}

/// The error that a response's code and message stand for; nothing for code 0.
///
/// # Errors
/// [`Error::Broker`].
pub fn check(code: i16, message: Option<&str>) -> Result<(), Error> {
    // An empty message says nothing.
    let message = message.filter(|message| !message.is_empty()).map(Into::into);
    if code == 0 { Ok(()) } else { Err(Error::Broker { code: ErrorCode(code), message }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_may_be_tried_again_when_its_code_says_so() {
        assert!(Error::from(ErrorCode::NOT_LEADER_OR_FOLLOWER).is_retriable());
        assert!(!Error::from(ErrorCode::MESSAGE_TOO_LARGE).is_retriable());
        assert!(!Error::Closed.is_retriable());
        assert!(check(0, Some("ignored")).is_ok());
        assert_eq!(check(41, Some("elsewhere")).unwrap_err().to_string(), "NOT_CONTROLLER: elsewhere");
    }

    #[test]
    fn a_timeout_says_what_went_wrong_before() {
        let refused = Error::connect(&"127.0.0.1:1".into(), io::Error::other("refused"));
        let error = Error::timeout("Metadata", Duration::from_millis(50), Some(refused));
        let text = "Metadata was not done within 50 ms; at last: no connection to 127.0.0.1:1: refused";
        assert_eq!(error.to_string(), text);
    }
}
