//! ListPartitionReassignments: what a reassignment is adding to partitions and taking away.

use milena_controller::list_partition_reassignments;
use milena_net::Outgoing;
use milena_protocol::ApiKey;

use crate::registry::{Api, Handler};
use crate::request::{Call, Refusal};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::LIST_PARTITION_REASSIGNMENTS, 0..=0, Handler::Now(handle));

fn handle(call: &Call<'_>, services: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    call.answer(out, &list_partition_reassignments(&services.image(), &call.request()?))
}
