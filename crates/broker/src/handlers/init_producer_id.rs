//! InitProducerId. v2: flexible. v3: the producer's id and epoch so far. v4: PRODUCER_FENCED. v5: transactions of
//! version 2.

use std::sync::Arc;

use milena_net::{LocalBoxFuture, Reply};
use milena_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};
use milena_protocol::{ApiKey, ErrorCode};

use crate::dispatch::frame;
use crate::ports::Ports;
use crate::registry::Api;
use crate::request::{OwnedRequest, Refusal};

/// The registry's line.
pub const API: Api = Api::later(ApiKey::INIT_PRODUCER_ID, 0..=5, handle);

fn handle(request: OwnedRequest, ports: Arc<Ports>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    Box::pin(async move {
        let call = request.call();
        let asked: InitProducerIdRequest<'_> = call.request()?;
        let longest = ports.config().transaction_max_timeout_ms();
        let given = match check(&asked, longest) {
            Ok(()) => ports.producer_ids.next(ports.node.id, &ports.controller).await,
            Err(error) => Err(error),
        };
        let response = match given {
            Ok(producer_id) => InitProducerIdResponse { producer_id, producer_epoch: 0, ..Default::default() },
            Err(error) => refused(error),
        };
        frame(|out| call.answer(out, &response))
    })
}

/// Checks a request in Kafka's order. `longest` is the longest timeout of a transaction, ms.
///
/// # Errors
/// What a request is answered with that gets no new id. Transactional producers are asked to come back: no coordinator
/// runs here.
fn check(asked: &InitProducerIdRequest<'_>, longest: i32) -> Result<(), ErrorCode> {
    if (asked.producer_id == -1) != (asked.producer_epoch == -1) {
        return Err(ErrorCode::INVALID_REQUEST);
    }
    match asked.transactional_id.as_deref() {
        None => Ok(()),
        Some("") => Err(ErrorCode::INVALID_REQUEST),
        Some(_) if !(1..=longest).contains(&asked.transaction_timeout_ms) => {
            Err(ErrorCode::INVALID_TRANSACTION_TIMEOUT)
        }
        Some(_) => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
    }
}

fn refused(error: ErrorCode) -> InitProducerIdResponse {
    InitProducerIdResponse { error_code: error.0, producer_id: -1, producer_epoch: -1, ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_of(id: Option<&'static str>, timeout: i32, producer: (i64, i16)) -> Result<(), ErrorCode> {
        let asked = InitProducerIdRequest {
            transactional_id: id.map(Into::into),
            transaction_timeout_ms: timeout,
            producer_id: producer.0,
            producer_epoch: producer.1,
            ..Default::default()
        };
        check(&asked, 900_000)
    }

    #[test]
    fn without_a_transactional_id_only_half_a_producer_is_refused() {
        assert_eq!(check_of(None, -5, (-1, -1)), Ok(()));
        assert_eq!(check_of(None, 0, (7, 3)), Ok(()));
        for half in [(7, -1), (-1, 3)] {
            assert_eq!(check_of(None, 0, half), Err(ErrorCode::INVALID_REQUEST));
        }
    }

    #[test]
    fn a_transactional_id_is_not_empty_and_its_timeout_is_1_to_the_longest() {
        assert_eq!(check_of(Some(""), 0, (-1, -1)), Err(ErrorCode::INVALID_REQUEST));
        for timeout in [0, -1, 900_001] {
            assert_eq!(check_of(Some("x"), timeout, (-1, -1)), Err(ErrorCode::INVALID_TRANSACTION_TIMEOUT));
        }
        assert_eq!(check_of(Some("x"), 900_000, (-1, -1)), Err(ErrorCode::COORDINATOR_NOT_AVAILABLE));
    }
}
