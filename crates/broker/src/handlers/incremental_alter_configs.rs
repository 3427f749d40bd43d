//! IncrementalAlterConfigs. v1: flexible.

use milena_controller::{Records, View, incremental_alter_configs};
use milena_net::Outgoing;
use milena_protocol::ApiKey;
use milena_protocol::messages::IncrementalAlterConfigsRequest;

use crate::registry::Api;
use crate::request::{Call, Refusal};

/// The registry's line.
pub const API: Api = Api::decided(ApiKey::INCREMENTAL_ALTER_CONFIGS, 0..=1, decide);

fn decide(call: &Call<'_>, view: View<'_>, out: &mut Outgoing) -> Result<Records, Refusal> {
    let request: IncrementalAlterConfigsRequest<'_> = call.request()?;
    let (records, response) = incremental_alter_configs(view, &request);
    call.answer(out, &response)?;
    Ok(records)
}
