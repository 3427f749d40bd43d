//! ElectLeaders. v1: which kind of election, and an error for the whole request. v2: flexible.

use milena_controller::{ApiError, Records, View, elect_leaders, refuse_elections};
use milena_net::Outgoing;
use milena_protocol::messages::ElectLeadersRequest;
use milena_protocol::{ApiKey, ErrorCode};

use crate::registry::{Api, Handler};
use crate::request::{Call, Refusal, Room};

/// The registry's line.
pub const API: Api = Api::new(ApiKey::ELECT_LEADERS, 0..=2, Handler::Decided(decide, refuse));

fn decide(call: &Call<'_>, view: View<'_>, out: &mut Outgoing) -> Result<Records, Refusal> {
    let request: ElectLeadersRequest<'_> = call.request()?;
    let mut room = Room::default();
    for topic in request.topic_partitions.iter().flatten() {
        room.take_with_name(topic.partitions.len(), &topic.topic)?;
    }
    let (records, response) = elect_leaders(view, &request, call.header.version);
    call.answer(out, &response)?;
    Ok(records)
}

fn refuse(call: &Call<'_>, error: ErrorCode, out: &mut Outgoing) -> Result<(), Refusal> {
    call.answer(out, &refuse_elections(&call.request()?, &ApiError::code(error), call.header.version))
}
