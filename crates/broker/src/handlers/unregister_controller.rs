//! UnregisterController.

use milena_controller::{ApiError, Records, View, refuse_controller_unregistration, unregister_controller};
use milena_net::Outgoing;
use milena_protocol::{ApiKey, ErrorCode};

use crate::registry::{Api, Handler};
use crate::request::{Call, Refusal};

/// The registry's line.
pub const API: Api = Api::new(ApiKey::UNREGISTER_CONTROLLER, 0..=0, Handler::Decided(decide, refuse));

fn decide(call: &Call<'_>, view: View<'_>, out: &mut Outgoing) -> Result<Records, Refusal> {
    let (records, response) = unregister_controller(view, &call.request()?);
    call.answer(out, &response)?;
    Ok(records)
}

fn refuse(call: &Call<'_>, error: ErrorCode, out: &mut Outgoing) -> Result<(), Refusal> {
    call.answer(out, &refuse_controller_unregistration(ApiError::code(error)))
}
