//! CreateTopics. v4: -1 partitions and replicas mean the defaults. v5: flexible, size and configurations in the response.
//! v6: quota errors. v7: topic ids.

use milena_controller::{Records, View, create_topics};
use milena_io::RealRng;
use milena_net::Outgoing;
use milena_protocol::messages::create_topics_response::CreatableTopicResult;
use milena_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};
use milena_protocol::{ApiKey, ErrorCode};

use crate::registry::{Api, Handler};
use crate::request::{Call, Refusal};

/// The registry's line.
pub const API: Api = Api::new(ApiKey::CREATE_TOPICS, 2..=7, Handler::Decided(decide, refuse));

fn decide(call: &Call<'_>, view: View<'_>, out: &mut Outgoing) -> Result<Records, Refusal> {
    let request: CreateTopicsRequest<'_> = call.request()?;
    let (records, response) = create_topics(view, &request, &mut RealRng);
    call.answer(out, &response)?;
    Ok(records)
}

fn refuse(call: &Call<'_>, error: ErrorCode, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: CreateTopicsRequest<'_> = call.request()?;
    let refused = |topic| CreatableTopicResult { name: topic, error_code: error.0, ..Default::default() };
    let topics = request.topics.into_iter().map(|topic| refused(topic.name)).collect();
    call.answer(out, &CreateTopicsResponse { topics, ..Default::default() })
}
