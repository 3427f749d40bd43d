//! ListPartitionReassignments: what a reassignment is adding to partitions and taking away.

use milena_controller::list_partition_reassignments;
use milena_net::Outgoing;
use milena_protocol::ApiKey;

use crate::ports::Ports;
use crate::registry::{Api, Handler};
use crate::request::{Call, Refusal};

/// The registry's line.
pub const API: Api = Api::new(ApiKey::LIST_PARTITION_REASSIGNMENTS, 0..=0, Handler::Now(handle));

fn handle(call: &Call<'_>, ports: &Ports, out: &mut Outgoing) -> Result<(), Refusal> {
    call.answer(out, &list_partition_reassignments(&ports.image(), &call.request()?))
}
