//! Whether a transaction may write to partitions (KIP-890): its coordinator must know that they belong to it, or is told
//! so now. What goes wrong is told in words that the client's version knows.

use milena_coordinator::transaction::{Producer, Reply, Request};
use milena_protocol::{ErrorCode, Str};

use super::{Answer, Coordinators};

/// What a client's version knows of transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It adds partitions itself, and knows no error of its own for one that was not added.
    Plain,
    /// It adds partitions itself, and knows TRANSACTION_ABORTABLE.
    Abortable,
    /// It leaves adding partitions to the broker.
    Implicit,
}

/// The transaction that wants to write.
#[derive(Debug, Clone, Copy)]
pub struct Begin<'r> {
    /// Its transactional id.
    pub id: &'r str,
    /// Its producer.
    pub producer: Producer,
    /// What its client knows.
    pub support: Support,
}

/// Version of transactions with which the broker adds partitions.
const IMPLICIT_VERSION: i16 = 2;

impl Coordinators {
    /// Whether a transaction may write to each of `partitions`, in their order.
    pub fn verify(&self, begin: &Begin<'_>, partitions: &[(Str<'_>, i32)]) -> Vec<ErrorCode> {
        let Begin { id, producer, support } = *begin;
        if id.is_empty() {
            return vec![ErrorCode::INVALID_REQUEST; partitions.len()];
        }
        let request = match support {
            Support::Implicit => Request::Add { id, producer, partitions, client_version: IMPLICIT_VERSION },
            Support::Plain | Support::Abortable => Request::Verify { id, producer, partitions },
        };
        let verified = match self.transactions().request(id, request) {
            Answer::Now(Ok(Reply::Verified(verified))) => verified,
            Answer::Now(Ok(Reply::Done(outcome))) => vec![outcome.err().unwrap_or(ErrorCode::NONE); partitions.len()],
            Answer::Now(Err(error)) => vec![error; partitions.len()],
            // The answer waits for a flush: the client comes again.
            Answer::Later(_) => vec![ErrorCode::CONCURRENT_TRANSACTIONS; partitions.len()],
            Answer::Now(Ok(_)) => vec![ErrorCode::UNKNOWN_SERVER_ERROR; partitions.len()],
        };
        verified.into_iter().map(|error| support.error(error)).collect()
    }
}

impl Support {
    /// The error in words that the client's version knows.
    fn error(self, error: ErrorCode) -> ErrorCode {
        match error {
            ErrorCode::PRODUCER_FENCED => ErrorCode::INVALID_PRODUCER_EPOCH,
            ErrorCode::TRANSACTION_ABORTABLE if self == Self::Plain => ErrorCode::INVALID_TXN_STATE,
            ErrorCode::CONCURRENT_TRANSACTIONS if self == Self::Implicit => error,
            // Makes every client try again, and none ask for metadata.
            ErrorCode::CONCURRENT_TRANSACTIONS
            | ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
            | ErrorCode::COORDINATOR_NOT_AVAILABLE
            | ErrorCode::NOT_COORDINATOR => ErrorCode::NOT_ENOUGH_REPLICAS,
            error => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_in_words_that_the_client_knows() {
        let told = |error| [Support::Plain, Support::Abortable, Support::Implicit].map(|support| support.error(error));
        let (abortable, concurrent) = (ErrorCode::TRANSACTION_ABORTABLE, ErrorCode::CONCURRENT_TRANSACTIONS);
        let retry = ErrorCode::NOT_ENOUGH_REPLICAS;
        assert_eq!(told(abortable), [ErrorCode::INVALID_TXN_STATE, abortable, abortable]);
        assert_eq!(told(concurrent), [retry, retry, concurrent]);
        assert_eq!(told(ErrorCode::NOT_COORDINATOR), [retry; 3]);
        assert_eq!(told(ErrorCode::PRODUCER_FENCED), [ErrorCode::INVALID_PRODUCER_EPOCH; 3]);
        assert_eq!(told(ErrorCode::INVALID_PRODUCER_ID_MAPPING), [ErrorCode::INVALID_PRODUCER_ID_MAPPING; 3]);
    }
}
