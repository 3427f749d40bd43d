//! DescribeGroups. v1: throttle time. v3: authorized operations. v4: static members. v5: flexible. v6: a group that does not
//! exist is an error.

use std::sync::Arc;

use milena_controller::ApiError;
use milena_coordinator::group::{Reply as GroupReply, Request};
use milena_net::{LocalBoxFuture, Reply};
use milena_protocol::messages::describe_groups_request::DescribeGroupsRequest;
use milena_protocol::messages::describe_groups_response::{
    DescribeGroupsResponse, DescribedGroup, DescribedGroupMember,
};
use milena_protocol::{ApiKey, ErrorCode, Str};

use crate::authorized_operations;
use crate::dispatch::frame;
use crate::registry::{Api, Handler};
use crate::request::{OwnedRequest, Refusal, Room, Turns};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::DESCRIBE_GROUPS, 0..=6, Handler::Later(handle));

/// First version in which a group that does not exist is an error.
const FIRST_NOT_FOUND_VERSION: i16 = 6;
/// State of a group that does not exist.
const DEAD: &str = "Dead";

fn handle(request: OwnedRequest, services: Arc<Services>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    Box::pin(async move {
        let call = request.call();
        let asked: DescribeGroupsRequest<'_> = call.request()?;
        let version = call.header.version;
        let mut groups = Vec::with_capacity(asked.groups.len());
        let (mut room, mut turns) = (Room::default(), Turns::default());
        for id in &asked.groups {
            turns.part().await;
            let answer = services.coordinators.groups().request(id, Request::Describe(id)).get().await;
            let group = described(id, answer, asked.include_authorized_operations, version);
            room.take(bytes_of(&group))?;
            groups.push(group);
        }
        frame(|out| call.answer(out, &DescribeGroupsResponse { groups, ..Default::default() }))
    })
}

/// What a group takes in memory.
fn bytes_of(group: &DescribedGroup<'_>) -> usize {
    let member = |member: &DescribedGroupMember<'_>| {
        let texts = member.member_id.len() + member.client_id.len() + member.client_host.len();
        size_of::<DescribedGroupMember<'_>>() + texts + member.member_metadata.len() + member.member_assignment.len()
    };
    size_of::<DescribedGroup<'_>>() + group.members.iter().map(member).sum::<usize>()
}

fn described<'r>(
    id: &'r Str<'r>,
    answer: Result<GroupReply, ErrorCode>,
    asked_for_operations: bool,
    version: i16,
) -> DescribedGroup<'r> {
    let mut group = match answer {
        Ok(GroupReply::Describe(group)) => group,
        other => {
            let error = other.err().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR);
            return DescribedGroup { group_id: id.as_ref().into(), error_code: error.0, ..Default::default() };
        }
    };
    if version >= FIRST_NOT_FOUND_VERSION && group.group_state == DEAD {
        let error = ApiError::new(ErrorCode::GROUP_ID_NOT_FOUND, format!("Group {id} not found."));
        (group.error_code, group.error_message) = (error.code.0, error.message);
    } else {
        group.authorized_operations = authorized_operations::group(asked_for_operations);
    }
    group
}
