//! UpdateFeatures. v1: which way a level may go, and dry runs. v2: one error for all features.

use milena_controller::{ApiError, Records, View, refuse_features, update_features};
use milena_net::Outgoing;
use milena_protocol::messages::UpdateFeaturesRequest;
use milena_protocol::{ApiKey, ErrorCode};

use crate::registry::{Api, Handler};
use crate::request::{Call, Refusal};

/// The registry's line.
pub const API: Api = Api::new(ApiKey::UPDATE_FEATURES, 0..=2, Handler::Decided(decide, refuse));

fn decide(call: &Call<'_>, view: View<'_>, out: &mut Outgoing) -> Result<Records, Refusal> {
    let request: UpdateFeaturesRequest<'_> = call.request()?;
    let (records, response) = update_features(view, &request, call.header.version);
    call.answer(out, &response)?;
    Ok(records)
}

fn refuse(call: &Call<'_>, error: ErrorCode, out: &mut Outgoing) -> Result<(), Refusal> {
    call.answer(out, &refuse_features(ApiError::code(error)))
}
