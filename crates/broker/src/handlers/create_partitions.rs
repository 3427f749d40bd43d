//! CreatePartitions. v2: flexible. v3: quota errors.

use std::sync::Arc;

use milena_controller::{Records, View, create_partitions};
use milena_io::RealRng;
use milena_net::{LocalBoxFuture, Outgoing, Reply};
use milena_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use milena_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};
use milena_protocol::{ApiKey, ErrorCode};

use crate::decided;
use crate::ports::Ports;
use crate::registry::Api;
use crate::request::{Call, OwnedRequest, Refusal};

/// The registry's line.
pub const API: Api = Api::later(ApiKey::CREATE_PARTITIONS, 0..=3, handle);

fn handle(request: OwnedRequest, ports: Arc<Ports>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    decided::answer(request, &ports, decide, refuse)
}

pub(crate) fn decide(call: &Call<'_>, view: View<'_>, out: &mut Outgoing) -> Result<Records, Refusal> {
    let request: CreatePartitionsRequest<'_> = call.request()?;
    let (records, response) = create_partitions(view, &request, &mut RealRng);
    call.answer(out, &response)?;
    Ok(records)
}

pub(crate) fn refuse(call: &Call<'_>, error: ErrorCode, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: CreatePartitionsRequest<'_> = call.request()?;
    let refused = |name| CreatePartitionsTopicResult { name, error_code: error.0, ..Default::default() };
    let results = request.topics.into_iter().map(|topic| refused(topic.name)).collect();
    call.answer(out, &CreatePartitionsResponse { results, ..Default::default() })
}
