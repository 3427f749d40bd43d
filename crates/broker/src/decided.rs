//! Requests that the controller decides. The request is decoded and the response encoded on the controller's thread, so
//! that nothing of either is copied; the response leaves when the records are durable and the partitions follow them.

use milena_controller::{Records, View};
use milena_net::{Outgoing, Reply};

use crate::controller::ControllerHandle;
use crate::request::{Call, OwnedRequest, Refusal};

/// Decides one request: puts the response onto the buffer and returns the records that it promises.
///
/// # Errors
/// When the bytes are not such a request or the response can't be said; then no record is written.
pub type Decide = fn(&Call<'_>, View<'_>, &mut Outgoing) -> Result<Records, Refusal>;

/// Has a request decided and answers it.
///
/// # Errors
/// Those of `decide`; [`Refusal::Controller`] when the records could not be made durable.
pub async fn answer(request: OwnedRequest, controller: ControllerHandle, decide: Decide) -> Result<Reply, Refusal> {
    let change = move |view: View<'_>| {
        let mut out = Outgoing::new();
        match decide(&request.call(), view, &mut out) {
            Ok(records) => (records, Ok(out)),
            Err(refusal) => (Vec::new(), Err(refusal)),
        }
    };
    controller.change(change).await?.map(Reply::frame)
}

#[cfg(test)]
mod tests;
