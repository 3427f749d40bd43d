//! EndTxn. v1: throttle time. v2: PRODUCER_FENCED. v3: flexible. v4: TRANSACTION_ABORTABLE. v5: transactions of version 2:
//! the producer's id and epoch from now on.

use std::sync::Arc;

use milena_coordinator::transaction::{End, Producer, Reply as TransactionReply, Request};
use milena_net::{LocalBoxFuture, Reply};
use milena_protocol::messages::{EndTxnRequest, EndTxnResponse};
use milena_protocol::{ApiKey, ErrorCode};

use crate::dispatch::frame;
use crate::registry::{Api, Handler};
use crate::request::{OwnedRequest, Refusal};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::END_TXN, 0..=5, Handler::Later(handle));

/// First version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn that tells a fenced producer so.
pub(super) const FIRST_FENCED_VERSION: i16 = 2;
/// First version of clients that get a new epoch with every transaction.
const FIRST_EPOCH_BUMP_VERSION: i16 = 5;
/// Version of transactions that such clients speak.
const EPOCH_BUMP: i16 = 2;

fn handle(request: OwnedRequest, services: Arc<Services>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    Box::pin(async move {
        let call = request.call();
        let asked: EndTxnRequest<'_> = call.request()?;
        let version = call.header.version;
        let client_version = if version >= FIRST_EPOCH_BUMP_VERSION { EPOCH_BUMP } else { 0 };
        let end = End {
            id: &asked.transactional_id,
            producer: Producer { id: asked.producer_id, epoch: asked.producer_epoch },
            committed: asked.committed,
            client_version,
            fresh_id: None,
        };
        let mut response = EndTxnResponse { producer_id: -1, producer_epoch: -1, ..Default::default() };
        match ask(end, &services).await {
            Ok(_) if client_version == 0 => {}
            Ok(Producer { id, epoch }) => (response.producer_id, response.producer_epoch) = (id, epoch),
            Err(error) => response.error_code = fenced(error, version, FIRST_FENCED_VERSION).0,
        }
        frame(|out| call.answer(out, &response))
    })
}

/// Asks the coordinator, a second time if it needs an id that no producer ever had.
async fn ask(mut end: End<'_>, services: &Services) -> Result<Producer, ErrorCode> {
    if end.id.is_empty() {
        return Err(ErrorCode::INVALID_REQUEST);
    }
    loop {
        match services.coordinators.transactions().request(end.id, Request::End(end)).get().await? {
            TransactionReply::Producer(given) => return given,
            TransactionReply::ProducerIdWanted if end.fresh_id.is_none() => {
                end.fresh_id = Some(services.next_producer_id().await?);
            }
            _ => return Err(ErrorCode::UNKNOWN_SERVER_ERROR),
        }
    }
}

/// An error as clients of a version know it.
pub(super) fn fenced(error: ErrorCode, version: i16, first_fenced_version: i16) -> ErrorCode {
    match error {
        ErrorCode::PRODUCER_FENCED if version < first_fenced_version => ErrorCode::INVALID_PRODUCER_EPOCH,
        error => error,
    }
}
