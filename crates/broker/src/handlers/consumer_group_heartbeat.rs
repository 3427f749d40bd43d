//! ConsumerGroupHeartbeat. v1: members bring their own ids, subscriptions by expression.

use std::sync::Arc;

use milena_coordinator::group::{ConsumerHeartbeat, Reply, Request};
use milena_net::{Outgoing, Replies};
use milena_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use milena_protocol::{ApiKey, ErrorCode};

use crate::coordinators::Answer;
use crate::registry::{Api, Handler};
use crate::request::{Call, Header, Refusal, answer};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::CONSUMER_GROUP_HEARTBEAT, 0..=1, Handler::Either(serve));

/// First version in which members bring their own ids.
const FIRST_OWN_ID_VERSION: i16 = 1;

fn serve(call: &Call<'_>, services: &Arc<Services>, replies: &mut Replies<'_>) -> Result<(), Refusal> {
    let request: ConsumerGroupHeartbeatRequest<'_> = call.request()?;
    if !services.coordinators.speaks_consumer() {
        return Answer::Now(Err(ErrorCode::UNSUPPORTED_VERSION)).send(call, replies, write);
    }
    let group = request.group_id.clone();
    let client_host = format!("/{}", call.peer.remote.ip());
    let heartbeat = ConsumerHeartbeat {
        request,
        client_id: call.header.client_id.as_deref().unwrap_or_default(),
        client_host: &client_host,
        requires_member_id: call.header.version >= FIRST_OWN_ID_VERSION,
    };
    services.coordinators.groups().request(&group, Request::ConsumerHeartbeat(heartbeat)).send(call, replies, write)
}

fn write(header: &Header<'_>, reply: Result<Reply, ErrorCode>, out: &mut Outgoing) -> Result<(), Refusal> {
    let response = match reply {
        Ok(Reply::ConsumerHeartbeat(response)) => response,
        other => {
            let error = other.err().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR);
            ConsumerGroupHeartbeatResponse { error_code: error.0, ..Default::default() }
        }
    };
    answer(header, out, &response).map(drop)
}
