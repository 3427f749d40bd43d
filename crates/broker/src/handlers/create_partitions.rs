//! CreatePartitions. v2: flexible. v3: quota errors.

use milena_controller::{Records, View, create_partitions};
use milena_io::RealRng;
use milena_net::Outgoing;
use milena_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use milena_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};
use milena_protocol::{ApiKey, ErrorCode};

use crate::registry::{Api, Handler};
use crate::request::{Call, Refusal};

/// The registry's line.
pub const API: Api = Api::new(ApiKey::CREATE_PARTITIONS, 0..=3, Handler::Decided(decide, refuse));

fn decide(call: &Call<'_>, view: View<'_>, out: &mut Outgoing) -> Result<Records, Refusal> {
    let request: CreatePartitionsRequest<'_> = call.request()?;
    let (records, response) = create_partitions(view, &request, &mut RealRng);
    call.answer(out, &response)?;
    Ok(records)
}

fn refuse(call: &Call<'_>, error: ErrorCode, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: CreatePartitionsRequest<'_> = call.request()?;
    let refused = |name| CreatePartitionsTopicResult { name, error_code: error.0, ..Default::default() };
    let results = request.topics.into_iter().map(|topic| refused(topic.name)).collect();
    call.answer(out, &CreatePartitionsResponse { results, ..Default::default() })
}
