//! DeleteGroups. v1: throttle time. v2: flexible. v3: message.

use std::collections::BTreeSet;
use std::sync::Arc;

use milena_coordinator::group::{Reply as GroupReply, Request};
use milena_net::{LocalBoxFuture, Reply};
use milena_protocol::messages::delete_groups_request::DeleteGroupsRequest;
use milena_protocol::messages::delete_groups_response::{DeletableGroupResult, DeleteGroupsResponse};
use milena_protocol::{ApiKey, ErrorCode};

use crate::dispatch::frame;
use crate::registry::{Api, Handler};
use crate::request::{OwnedRequest, Refusal, Turns};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::DELETE_GROUPS, 0..=3, Handler::Later(handle));

fn handle(request: OwnedRequest, services: Arc<Services>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    Box::pin(async move {
        let call = request.call();
        let asked: DeleteGroupsRequest<'_> = call.request()?;
        let mut seen = BTreeSet::new();
        let mut results = Vec::with_capacity(asked.groups_names.len());
        let mut turns = Turns::default();
        for id in asked.groups_names.iter().filter(|id| seen.insert(&***id)) {
            turns.part().await;
            results.push(match services.coordinators.groups().request(id, Request::Delete(id)).get().await {
                Ok(GroupReply::Delete(deleted)) => deleted,
                other => {
                    let error = other.err().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR);
                    DeletableGroupResult { group_id: id.as_ref().into(), error_code: error.0, ..Default::default() }
                }
            });
        }
        frame(|out| call.answer(out, &DeleteGroupsResponse { results, ..Default::default() }))
    })
}
