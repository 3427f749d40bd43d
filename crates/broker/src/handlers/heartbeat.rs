//! Heartbeat. v1: throttle time. v3: static members. v4: flexible.

use std::sync::Arc;

use milena_coordinator::group::{Reply, Request};
use milena_net::{Outgoing, Replies};
use milena_protocol::messages::{HeartbeatRequest, HeartbeatResponse};
use milena_protocol::{ApiKey, ErrorCode};

use crate::coordinators::Answer;
use crate::registry::{Api, Handler};
use crate::request::{Call, Header, Refusal, answer};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::HEARTBEAT, 0..=4, Handler::Either(serve));

fn serve(call: &Call<'_>, services: &Arc<Services>, replies: &mut Replies<'_>) -> Result<(), Refusal> {
    let request: HeartbeatRequest<'_> = call.request()?;
    let answer = if request.group_id.is_empty() {
        Answer::Now(Err(ErrorCode::INVALID_GROUP_ID))
    } else {
        let group = request.group_id.clone();
        services.coordinators.groups().request(&group, Request::Heartbeat(request))
    };
    answer.send(call, replies, write)
}

fn write(header: &Header<'_>, reply: Result<Reply, ErrorCode>, out: &mut Outgoing) -> Result<(), Refusal> {
    let response = match reply {
        Ok(Reply::Heartbeat(response)) => response,
        // Who the members are is not known yet, so that each may be one.
        Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS) => HeartbeatResponse::default(),
        other => {
            let error = other.err().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR);
            HeartbeatResponse { error_code: error.0, ..Default::default() }
        }
    };
    answer(header, out, &response).map(drop)
}
