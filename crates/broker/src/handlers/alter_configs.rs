//! AlterConfigs. v2: flexible.

use milena_controller::{AlterOutcome, ApiError, Records, View, alter_configs};
use milena_net::Outgoing;
use milena_protocol::messages::{AlterConfigsRequest, AlterConfigsResponse};
use milena_protocol::{ApiKey, ErrorCode};

use crate::registry::{Api, Handler};
use crate::request::{Call, Refusal};

/// The registry's line.
pub const API: Api = Api::new(ApiKey::ALTER_CONFIGS, 0..=2, Handler::Decided(decide, refuse));

fn decide(call: &Call<'_>, view: View<'_>, out: &mut Outgoing) -> Result<Records, Refusal> {
    let request: AlterConfigsRequest<'_> = call.request()?;
    let (records, response) = alter_configs(view, &request);
    call.answer(out, &response)?;
    Ok(records)
}

fn refuse(call: &Call<'_>, error: ErrorCode, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: AlterConfigsRequest<'_> = call.request()?;
    let refused = |kind, name| AlterOutcome { kind, name, error: ApiError::code(error) }.into();
    let responses = request.resources.into_iter().map(|it| refused(it.resource_type, it.resource_name)).collect();
    call.answer(out, &AlterConfigsResponse { responses, ..Default::default() })
}
