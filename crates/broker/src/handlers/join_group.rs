//! JoinGroup. v1: rebalance timeout. v2: throttle time. v4: a new member is first given an id. v5: static members. v6:
//! flexible. v7: protocol type in the answer. v8: reason. v9: a leader may be told that its assignment stands.

use std::sync::Arc;

use milena_coordinator::group::{Join, Reply, Request, check_join};
use milena_net::{Outgoing, Replies};
use milena_protocol::messages::{JoinGroupRequest, JoinGroupResponse};
use milena_protocol::{ApiKey, ErrorCode};

use crate::coordinators::Answer;
use crate::registry::{Api, Handler};
use crate::request::{Call, Header, Refusal, answer};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::JOIN_GROUP, 0..=9, Handler::Either(serve));

/// First version with a rebalance timeout.
const FIRST_REBALANCE_TIMEOUT_VERSION: i16 = 1;
/// First version in which a new member must come back with the id that it is given.
const FIRST_MEMBER_ID_VERSION: i16 = 4;
/// First version in which the answer may have no protocol.
const FIRST_NULL_PROTOCOL_VERSION: i16 = 7;
/// First version that can say that an assignment stands.
const FIRST_SKIP_ASSIGNMENT_VERSION: i16 = 9;

fn serve(call: &Call<'_>, services: &Arc<Services>, replies: &mut Replies<'_>) -> Result<(), Refusal> {
    let mut request: JoinGroupRequest<'_> = call.request()?;
    let version = call.header.version;
    if version < FIRST_REBALANCE_TIMEOUT_VERSION {
        request.rebalance_timeout_ms = request.session_timeout_ms;
    }
    let groups = services.coordinators.groups();
    let client_id = call.header.client_id.as_deref().unwrap_or_default();
    if let Err(error) = check_join(&request, client_id, &groups.settings()) {
        let refused = JoinGroupResponse { member_id: request.member_id.to_string().into(), ..refused(error) };
        return Answer::Now(Ok(Reply::Join(refused))).send(call, replies, write);
    }
    let group = request.group_id.clone();
    let client_host = format!("/{}", call.peer.remote.ip());
    let join = Join {
        request,
        client_id,
        client_host: &client_host,
        requires_member_id: version >= FIRST_MEMBER_ID_VERSION,
        skips_assignment: version >= FIRST_SKIP_ASSIGNMENT_VERSION,
    };
    groups.request(&group, Request::Join(join)).send(call, replies, write)
}

fn write(header: &Header<'_>, reply: Result<Reply, ErrorCode>, out: &mut Outgoing) -> Result<(), Refusal> {
    let mut response = match reply {
        Ok(Reply::Join(response)) => response,
        other => refused(other.err().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR)),
    };
    if header.version < FIRST_NULL_PROTOCOL_VERSION {
        response.protocol_name.get_or_insert_default();
        response.protocol_type = None;
    }
    answer(header, out, &response).map(drop)
}

fn refused(error: ErrorCode) -> JoinGroupResponse<'static> {
    JoinGroupResponse { error_code: error.0, generation_id: -1, protocol_name: None, ..Default::default() }
}
