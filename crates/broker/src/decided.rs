//! Requests that the controller decides. The request is decoded and the response encoded on the controller's thread, so
//! that nothing of either is copied; the response leaves when the records are durable and the partitions follow them.
//! When they can't be made durable, everything that was asked for is refused.

use std::sync::Arc;

use milena_controller::{Records, View};
use milena_net::{Outgoing, Reply};
use milena_protocol::ErrorCode;

use crate::controller::{ControllerError, ControllerHandle};
use crate::dispatch::frame;
use crate::request::{Call, OwnedRequest, Refusal};

/// Decides one request: puts the response onto the buffer and returns the records that it promises.
///
/// # Errors
/// When the bytes are not such a request or the response can't be said; then no record is written.
pub type Decide = fn(&Call<'_>, View<'_>, &mut Outgoing) -> Result<Records, Refusal>;

/// Answers one request with an error for each thing that it asks for.
///
/// # Errors
/// As for [`Decide`].
pub type Refuse = fn(&Call<'_>, ErrorCode, &mut Outgoing) -> Result<(), Refusal>;

/// Has a request decided and answers it.
///
/// # Errors
/// Those of `decide`; [`Refusal::Controller`] when nobody is there to decide.
pub async fn answer(
    request: OwnedRequest,
    controller: ControllerHandle,
    decide: Decide,
    refuse: Refuse,
) -> Result<Reply, Refusal> {
    let request = Arc::new(request);
    let decided = Arc::clone(&request);
    let change = move |view: View<'_>| {
        let mut out = Outgoing::new();
        match decide(&decided.call(), view, &mut out) {
            Ok(records) => (records, Ok(out)),
            Err(refusal) => (Vec::new(), Err(refusal)),
        }
    };
    match controller.change(change).await {
        Err(ControllerError::Storage) => frame(|out| refuse(&request.call(), ErrorCode::KAFKA_STORAGE_ERROR, out)),
        Err(ControllerError::Undecided) => frame(|out| refuse(&request.call(), ErrorCode::UNKNOWN_SERVER_ERROR, out)),
        decided => decided?.map(Reply::frame),
    }
}

#[cfg(test)]
mod tests;
