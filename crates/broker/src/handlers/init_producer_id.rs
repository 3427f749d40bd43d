//! InitProducerId. v2: flexible. v3: the producer's id and epoch so far. v4: PRODUCER_FENCED. v5: transactions of
//! version 2. v6, which is not final: transactions that are prepared elsewhere, in two phases (KIP-939).

use std::sync::Arc;

use milena_coordinator::transaction::{Init, Producer, Reply as TransactionReply, Request};
use milena_net::{LocalBoxFuture, Reply};
use milena_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};
use milena_protocol::{ApiKey, ErrorCode};

use super::end_txn::fenced;
use crate::dispatch::frame;
use crate::registry::{Api, Handler};
use crate::request::{OwnedRequest, Refusal};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::INIT_PRODUCER_ID, 0..=5, Handler::Later(handle)).unfinished(6);

/// First version that tells a fenced producer so.
const FIRST_FENCED_VERSION: i16 = 4;

fn handle(request: OwnedRequest, services: Arc<Services>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    Box::pin(async move {
        let call = request.call();
        let asked: InitProducerIdRequest<'_> = call.request()?;
        let limits = Limits {
            longest_ms: services.config().transaction_max_timeout_ms(),
            two_phases: services.config().transaction_two_phase_commit_enable(),
        };
        let given = match check(&asked, &limits) {
            Ok(None) => services.next_producer_id().await.map(|id| Producer { id, epoch: 0 }),
            Ok(Some(init)) => ask(init, &services).await,
            Err(error) => Err(error),
        };
        let response = match given {
            Ok(Producer { id, epoch }) => {
                InitProducerIdResponse { producer_id: id, producer_epoch: epoch, ..Default::default() }
            }
            Err(error) => refused(fenced(error, call.header.version, FIRST_FENCED_VERSION)),
        };
        frame(|out| call.answer(out, &response))
    })
}

/// Asks the coordinator, a second time if it needs an id that no producer ever had.
async fn ask(mut init: Init<'_>, services: &Services) -> Result<Producer, ErrorCode> {
    loop {
        match services.coordinators.transactions().request(init.id, Request::Init(init)).get().await? {
            TransactionReply::Producer(given) => return given,
            TransactionReply::ProducerIdWanted if init.fresh_id.is_none() => {
                init.fresh_id = Some(services.next_producer_id().await?);
            }
            _ => return Err(ErrorCode::UNKNOWN_SERVER_ERROR),
        }
    }
}

/// What is allowed.
struct Limits {
    /// Longest timeout of a transaction, ms.
    longest_ms: i32,
    /// Transactions may be prepared elsewhere; they have no timeout.
    two_phases: bool,
}

/// Checks a request in Kafka's order; what the coordinator is asked if it has a transactional id.
///
/// # Errors
/// What a request is answered with that gets no id.
fn check<'r>(asked: &'r InitProducerIdRequest<'r>, limits: &Limits) -> Result<Option<Init<'r>>, ErrorCode> {
    if (asked.producer_id == -1) != (asked.producer_epoch == -1) {
        return Err(ErrorCode::INVALID_REQUEST);
    }
    match asked.transactional_id.as_deref() {
        None => Ok(None),
        Some("") => Err(ErrorCode::INVALID_REQUEST),
        Some(_) if asked.enable2_pc && !limits.two_phases => Err(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        // As in Kafka, which does not know how yet.
        Some(_) if asked.keep_prepared_txn => Err(ErrorCode::UNSUPPORTED_VERSION),
        Some(_) if !asked.enable2_pc && !(1..=limits.longest_ms).contains(&asked.transaction_timeout_ms) => {
            Err(ErrorCode::INVALID_TRANSACTION_TIMEOUT)
        }
        Some(id) => {
            let expected = Producer { id: asked.producer_id, epoch: asked.producer_epoch };
            let expected = (asked.producer_id != -1).then_some(expected);
            let timeout_ms = if asked.enable2_pc { i32::MAX } else { asked.transaction_timeout_ms };
            Ok(Some(Init { id, timeout_ms, expected, fresh_id: None }))
        }
    }
}

fn refused(error: ErrorCode) -> InitProducerIdResponse {
    InitProducerIdResponse { error_code: error.0, producer_id: -1, producer_epoch: -1, ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the coordinator is asked, and what the producer believes to be.
    fn check_of(
        id: Option<&'static str>,
        timeout: i32,
        producer: (i64, i16),
    ) -> Result<(bool, Option<i64>), ErrorCode> {
        let asked = InitProducerIdRequest {
            transactional_id: id.map(Into::into),
            transaction_timeout_ms: timeout,
            producer_id: producer.0,
            producer_epoch: producer.1,
            ..Default::default()
        };
        let checked = check(&asked, &Limits { longest_ms: 900_000, two_phases: false })?;
        Ok((checked.is_some(), checked.and_then(|init| init.expected).map(|expected| expected.id)))
    }

    #[test]
    fn without_a_transactional_id_only_half_a_producer_is_refused() {
        assert_eq!(check_of(None, -5, (-1, -1)), Ok((false, None)));
        assert_eq!(check_of(None, 0, (7, 3)), Ok((false, None)));
        for half in [(7, -1), (-1, 3)] {
            assert_eq!(check_of(None, 0, half), Err(ErrorCode::INVALID_REQUEST));
        }
    }

    #[test]
    fn transactions_in_two_phases_are_asked_for_where_they_may_be_and_never_kept() {
        let checked = |enable2_pc, keep_prepared_txn, two_phases| {
            let asked = InitProducerIdRequest {
                transactional_id: Some("x".into()),
                transaction_timeout_ms: 0,
                enable2_pc,
                keep_prepared_txn,
                ..Default::default()
            };
            let init = check(&asked, &Limits { longest_ms: 900_000, two_phases })?;
            Ok(init.map(|init| init.timeout_ms))
        };
        assert_eq!(checked(true, true, false), Err(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED));
        assert_eq!(checked(true, false, true), Ok(Some(i32::MAX)));
        assert_eq!([checked(true, true, true), checked(false, true, true)], [Err(ErrorCode::UNSUPPORTED_VERSION); 2]);
        assert_eq!(checked(false, false, true), Err(ErrorCode::INVALID_TRANSACTION_TIMEOUT));
    }

    #[test]
    fn a_transactional_id_is_not_empty_and_its_timeout_is_1_to_the_longest() {
        assert_eq!(check_of(Some(""), 0, (-1, -1)), Err(ErrorCode::INVALID_REQUEST));
        for timeout in [0, -1, 900_001] {
            assert_eq!(check_of(Some("x"), timeout, (-1, -1)), Err(ErrorCode::INVALID_TRANSACTION_TIMEOUT));
        }
        assert_eq!(check_of(Some("x"), 900_000, (-1, -1)), Ok((true, None)));
        assert_eq!(check_of(Some("x"), 1, (7, 3)), Ok((true, Some(7))));
    }
}
