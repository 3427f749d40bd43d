//! AlterPartitionReassignments. v1: whether the replication factor may change.

use milena_controller::{ApiError, Records, View, alter_partition_reassignments, refuse_reassignments};
use milena_net::Outgoing;
use milena_protocol::messages::AlterPartitionReassignmentsRequest;
use milena_protocol::{ApiKey, ErrorCode};

use crate::registry::{Api, Handler};
use crate::request::{Call, Refusal, Room};

/// The registry's line.
pub const API: Api = Api::new(ApiKey::ALTER_PARTITION_REASSIGNMENTS, 0..=1, Handler::Decided(decide, refuse));

fn decide(call: &Call<'_>, view: View<'_>, out: &mut Outgoing) -> Result<Records, Refusal> {
    let request: AlterPartitionReassignmentsRequest<'_> = call.request()?;
    let mut room = Room::default();
    for topic in &request.topics {
        room.take_with_name(topic.partitions.len(), &topic.name)?;
    }
    let (records, response) = alter_partition_reassignments(view, &request);
    call.answer(out, &response)?;
    Ok(records)
}

fn refuse(call: &Call<'_>, error: ErrorCode, out: &mut Outgoing) -> Result<(), Refusal> {
    call.answer(out, &refuse_reassignments(&call.request()?, &ApiError::code(error)))
}
