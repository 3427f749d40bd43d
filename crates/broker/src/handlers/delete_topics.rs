//! DeleteTopics. v3: an own error when deletion is disabled. v4: flexible. v5: messages. v6: topics by id.

use milena_controller::{Records, View, delete_topics};
use milena_net::Outgoing;
use milena_protocol::ApiKey;
use milena_protocol::messages::DeleteTopicsRequest;

use crate::registry::Api;
use crate::request::{Call, Refusal};

/// The registry's line.
pub const API: Api = Api::decided(ApiKey::DELETE_TOPICS, 1..=6, decide);

fn decide(call: &Call<'_>, view: View<'_>, out: &mut Outgoing) -> Result<Records, Refusal> {
    let request: DeleteTopicsRequest<'_> = call.request()?;
    let (records, response) = delete_topics(view, &request, call.header.version);
    call.answer(out, &response)?;
    Ok(records)
}
