//! AlterConfigs. v2: flexible.

use milena_controller::{Records, View, alter_configs};
use milena_net::Outgoing;
use milena_protocol::ApiKey;
use milena_protocol::messages::AlterConfigsRequest;

use crate::registry::Api;
use crate::request::{Call, Refusal};

/// The registry's line.
pub const API: Api = Api::decided(ApiKey::ALTER_CONFIGS, 0..=2, decide);

fn decide(call: &Call<'_>, view: View<'_>, out: &mut Outgoing) -> Result<Records, Refusal> {
    let request: AlterConfigsRequest<'_> = call.request()?;
    let (records, response) = alter_configs(view, &request);
    call.answer(out, &response)?;
    Ok(records)
}
