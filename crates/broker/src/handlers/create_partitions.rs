//! CreatePartitions. v2: flexible. v3: quota errors.

use milena_controller::{Records, View, create_partitions};
use milena_io::RealRng;
use milena_net::Outgoing;
use milena_protocol::ApiKey;
use milena_protocol::messages::CreatePartitionsRequest;

use crate::registry::Api;
use crate::request::{Call, Refusal};

/// The registry's line.
pub const API: Api = Api::decided(ApiKey::CREATE_PARTITIONS, 0..=3, decide);

fn decide(call: &Call<'_>, view: View<'_>, out: &mut Outgoing) -> Result<Records, Refusal> {
    let request: CreatePartitionsRequest<'_> = call.request()?;
    let (records, response) = create_partitions(view, &request, &mut RealRng);
    call.answer(out, &response)?;
    Ok(records)
}
