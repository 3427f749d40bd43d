//! LeaveGroup. v1: throttle time. v3: several members, static ones by their names. v4: flexible. v5: reason.

use std::sync::Arc;

use milena_coordinator::group::{Reply, Request};
use milena_net::{Outgoing, Replies};
use milena_protocol::messages::leave_group_request::{LeaveGroupRequest, MemberIdentity};
use milena_protocol::messages::leave_group_response::LeaveGroupResponse;
use milena_protocol::{ApiKey, ErrorCode};

use crate::coordinators::Answer;
use crate::registry::{Api, Handler};
use crate::request::{Call, Header, Refusal, answer};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::LEAVE_GROUP, 0..=5, Handler::Either(serve));

/// First version with a list of members.
const FIRST_MEMBERS_VERSION: i16 = 3;

fn serve(call: &Call<'_>, services: &Arc<Services>, replies: &mut Replies<'_>) -> Result<(), Refusal> {
    let mut request: LeaveGroupRequest<'_> = call.request()?;
    if call.header.version < FIRST_MEMBERS_VERSION {
        let member_id = std::mem::take(&mut request.member_id);
        request.members = vec![MemberIdentity { member_id, ..Default::default() }];
    }
    let answer = if request.group_id.is_empty() {
        Answer::Now(Err(ErrorCode::INVALID_GROUP_ID))
    } else {
        let group = request.group_id.clone();
        services.coordinators.groups().request(&group, Request::Leave(request))
    };
    answer.send(call, replies, write)
}

fn write(header: &Header<'_>, reply: Result<Reply, ErrorCode>, out: &mut Outgoing) -> Result<(), Refusal> {
    let mut response = match reply {
        Ok(Reply::Leave(response)) => response,
        other => {
            let error = other.err().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR);
            LeaveGroupResponse { error_code: error.0, ..Default::default() }
        }
    };
    if header.version < FIRST_MEMBERS_VERSION {
        // What happened to the one member is what happened.
        let members = std::mem::take(&mut response.members);
        if let Some(member) = members.first().filter(|_| response.error_code == 0) {
            response.error_code = member.error_code;
        }
    }
    answer(header, out, &response).map(drop)
}
