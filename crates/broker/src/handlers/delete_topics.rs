//! DeleteTopics. v3: an own error when deletion is disabled. v4: flexible. v5: messages. v6: topics by id.

use milena_controller::{Records, View, delete_topics};
use milena_net::Outgoing;
use milena_protocol::messages::delete_topics_response::DeletableTopicResult;
use milena_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse};
use milena_protocol::{ApiKey, ErrorCode, Uuid};

use crate::registry::{Api, Handler};
use crate::request::{Call, Refusal};

/// The registry's line.
pub const API: Api = Api::new(ApiKey::DELETE_TOPICS, 1..=6, Handler::Decided(decide, refuse));

fn decide(call: &Call<'_>, view: View<'_>, out: &mut Outgoing) -> Result<Records, Refusal> {
    let request: DeleteTopicsRequest<'_> = call.request()?;
    let (records, response) = delete_topics(view, &request, call.header.version);
    call.answer(out, &response)?;
    Ok(records)
}

fn refuse(call: &Call<'_>, error: ErrorCode, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: DeleteTopicsRequest<'_> = call.request()?;
    let refused = |name, topic_id| DeletableTopicResult { name, topic_id, error_code: error.0, ..Default::default() };
    let by_name = request.topic_names.into_iter().map(|name| refused(Some(name), Uuid::ZERO));
    let topics = request.topics.into_iter().map(|topic| refused(topic.name, topic.topic_id));
    call.answer(out, &DeleteTopicsResponse { responses: by_name.chain(topics).collect(), ..Default::default() })
}
