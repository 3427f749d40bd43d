//! IncrementalAlterConfigs. v1: flexible.

use std::sync::Arc;

use milena_controller::{Records, View, incremental_alter_configs};
use milena_net::{LocalBoxFuture, Outgoing, Reply};
use milena_protocol::ApiKey;
use milena_protocol::messages::IncrementalAlterConfigsRequest;

use crate::decided;
use crate::ports::Ports;
use crate::registry::Api;
use crate::request::{Call, OwnedRequest, Refusal};

/// The registry's line.
pub const API: Api = Api::later(ApiKey::INCREMENTAL_ALTER_CONFIGS, 0..=1, handle);

fn handle(request: OwnedRequest, ports: Arc<Ports>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    decided::answer(request, &ports, decide)
}

pub(crate) fn decide(call: &Call<'_>, view: View<'_>, out: &mut Outgoing) -> Result<Records, Refusal> {
    let request: IncrementalAlterConfigsRequest<'_> = call.request()?;
    let (records, response) = incremental_alter_configs(view, &request);
    call.answer(out, &response)?;
    Ok(records)
}
