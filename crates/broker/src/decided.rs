//! Requests that the controller decides. The request is decoded and the response encoded on the controller's thread, so
//! that nothing of either is copied; the response leaves when the records are durable and the partitions follow them.

use milena_controller::{Records, View};
use milena_net::{LocalBoxFuture, Outgoing, Reply};

use crate::ports::Ports;
use crate::request::{Call, OwnedRequest, Refusal};

/// Decides one request: puts the response onto the buffer and returns the records that it promises.
///
/// # Errors
/// When the bytes are not such a request or the response can't be said; then no record is written.
pub type Decide = fn(&Call<'_>, View<'_>, &mut Outgoing) -> Result<Records, Refusal>;

/// Has a request decided and answers it.
pub fn answer(request: OwnedRequest, ports: &Ports, decide: Decide) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    let controller = ports.controller.clone();
    Box::pin(async move {
        let change = move |view: View<'_>| {
            let mut out = Outgoing::new();
            match decide(&request.call(), view, &mut out) {
                Ok(records) => (records, Ok(out)),
                Err(refusal) => (Vec::new(), Err(refusal)),
            }
        };
        let decided = controller.change(change).await.map_err(|_| Refusal::Stopping)?;
        decided.map(Reply::frame)
    })
}

#[cfg(test)]
mod tests;
