//! IncrementalAlterConfigs. v1: flexible.

use milena_controller::{AlterOutcome, ApiError, Records, View, incremental_alter_configs};
use milena_net::Outgoing;
use milena_protocol::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};
use milena_protocol::{ApiKey, ErrorCode};

use crate::registry::{Api, Handler};
use crate::request::{Call, Refusal};

/// The registry's line.
pub const API: Api = Api::new(ApiKey::INCREMENTAL_ALTER_CONFIGS, 0..=1, Handler::Decided(decide, refuse));

fn decide(call: &Call<'_>, view: View<'_>, out: &mut Outgoing) -> Result<Records, Refusal> {
    let request: IncrementalAlterConfigsRequest<'_> = call.request()?;
    let (records, response) = incremental_alter_configs(view, &request);
    call.answer(out, &response)?;
    Ok(records)
}

fn refuse(call: &Call<'_>, error: ErrorCode, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: IncrementalAlterConfigsRequest<'_> = call.request()?;
    let refused = |kind, name| AlterOutcome { kind, name, error: ApiError::code(error) }.into();
    let responses = request.resources.into_iter().map(|it| refused(it.resource_type, it.resource_name)).collect();
    call.answer(out, &IncrementalAlterConfigsResponse { responses, ..Default::default() })
}
