//! DeleteTopics. v3: an own error when deletion is disabled. v4: flexible. v5: messages. v6: topics by id.

use std::sync::Arc;

use milena_controller::{Records, View, delete_topics};
use milena_net::{LocalBoxFuture, Outgoing, Reply};
use milena_protocol::ApiKey;
use milena_protocol::messages::DeleteTopicsRequest;

use crate::decided;
use crate::ports::Ports;
use crate::registry::Api;
use crate::request::{Call, OwnedRequest, Refusal};

/// The registry's line.
pub const API: Api = Api::later(ApiKey::DELETE_TOPICS, 1..=6, handle);

fn handle(request: OwnedRequest, ports: Arc<Ports>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    decided::answer(request, &ports, decide)
}

pub(crate) fn decide(call: &Call<'_>, view: View<'_>, out: &mut Outgoing) -> Result<Records, Refusal> {
    let request: DeleteTopicsRequest<'_> = call.request()?;
    let (records, response) = delete_topics(view, &request, call.header.version);
    call.answer(out, &response)?;
    Ok(records)
}
