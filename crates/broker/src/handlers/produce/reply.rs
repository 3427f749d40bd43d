//! Answers of Produce.

use std::borrow::Cow;

use milena_net::{Outgoing, Replies, Reply};
use milena_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, ProduceResponse, TopicProduceResponse,
};
use milena_protocol::{ApiKey, ErrorCode};

use super::check::FIRST_TOPIC_ID_VERSION;
use super::plan::{Part, Plan, Request, Topic};
use crate::dispatch::frame;
use crate::request::{Header, Refusal, answer as put_answer};

/// Answers one request, or stays silent for acks=0.
///
/// # Errors
/// [`Refusal::SilentFailure`] when a request that wants no answer failed: closing tells its client.
pub(super) fn answer(request: &Request, plan: &Plan, replies: &mut Replies<'_>) -> Result<(), Refusal> {
    if request.acks == 0 {
        silence(request, plan)?;
        replies.none();
        return Ok(());
    }
    replies.try_ready(|out| put(request, plan, out))
}

/// The same for an answer that comes later.
pub(super) fn later(request: &Request, plan: &Plan) -> Reply {
    let reply = if request.acks == 0 {
        silence(request, plan).map(|()| Reply::none())
    } else {
        frame(|out| put(request, plan, out))
    };
    reply.unwrap_or_else(|refusal| Reply::close(refusal.to_string()))
}

fn silence(request: &Request, plan: &Plan) -> Result<(), Refusal> {
    let mut parts = plan.topics(request).iter().flat_map(|topic| &plan.parts[topic.parts.clone()]);
    let failed = parts.find(|part| part.error != ErrorCode::NONE && !part.replaced);
    failed.map_or(Ok(()), |part| Err(Refusal::SilentFailure(part.error.name())))
}

fn put(request: &Request, plan: &Plan, out: &mut Outgoing) -> Result<(), Refusal> {
    let responses = topic_responses(plan.topics(request), &plan.parts, request.version);
    let response = ProduceResponse { responses, ..Default::default() };
    let header = Header::new(ApiKey::PRODUCE, request.version, request.correlation_id, None);
    put_answer(&header, out, &response).map(|_| ())
}

fn topic_responses<'p>(topics: &'p [Topic], parts: &'p [Part], version: i16) -> Vec<TopicProduceResponse<'p>> {
    let mut responses = Vec::with_capacity(topics.len());
    for topic in topics {
        if topic.answer == responses.len() {
            responses.push(TopicProduceResponse {
                name: Cow::Borrowed(if version < FIRST_TOPIC_ID_VERSION { topic.name.as_str() } else { "" }),
                topic_id: topic.id,
                partition_responses: Vec::with_capacity(topic.parts.len()),
            });
        }
        let answered = parts[topic.parts.clone()].iter().filter(|part| !part.replaced);
        responses[topic.answer].partition_responses.extend(answered.map(partition_response));
    }
    responses
}

fn partition_response(part: &Part) -> PartitionProduceResponse<'_> {
    let record_errors = part.rejected.iter().map(|record| BatchIndexAndErrorMessage {
        batch_index: record.index,
        batch_index_error_message: Some(Cow::Borrowed(record.reason)),
    });
    PartitionProduceResponse {
        index: part.index,
        error_code: part.error.0,
        base_offset: part.base_offset,
        log_append_time_ms: part.append_time,
        log_start_offset: part.log_start_offset,
        record_errors: record_errors.collect(),
        error_message: part.message.map(Cow::Borrowed),
        ..Default::default()
    }
}
