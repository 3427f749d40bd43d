//! SyncGroup. v1: throttle time. v3: static members. v4: flexible. v5: protocol type and name, which must be those of the
//! group.

use std::sync::Arc;

use milena_coordinator::group::{Reply, Request};
use milena_net::{Outgoing, Replies};
use milena_protocol::messages::{SyncGroupRequest, SyncGroupResponse};
use milena_protocol::{ApiKey, ErrorCode};

use crate::coordinators::Answer;
use crate::registry::{Api, Handler};
use crate::request::{Call, Header, Refusal, answer};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::SYNC_GROUP, 0..=5, Handler::Either(serve));

/// First version that must name the protocol.
const FIRST_PROTOCOL_VERSION: i16 = 5;

fn serve(call: &Call<'_>, services: &Arc<Services>, replies: &mut Replies<'_>) -> Result<(), Refusal> {
    let request: SyncGroupRequest<'_> = call.request()?;
    let has_protocol = request.protocol_type.is_some() && request.protocol_name.is_some();
    let answer = if call.header.version >= FIRST_PROTOCOL_VERSION && !has_protocol {
        Answer::Now(Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL))
    } else if request.group_id.is_empty() {
        Answer::Now(Err(ErrorCode::INVALID_GROUP_ID))
    } else {
        let group = request.group_id.clone();
        services.coordinators.groups().request(&group, Request::Sync(request))
    };
    answer.send(call, replies, write)
}

fn write(header: &Header<'_>, reply: Result<Reply, ErrorCode>, out: &mut Outgoing) -> Result<(), Refusal> {
    let response = match reply {
        Ok(Reply::Sync(response)) => response,
        other => {
            let error = other.err().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR);
            SyncGroupResponse { error_code: error.0, ..Default::default() }
        }
    };
    answer(header, out, &response).map(drop)
}
