//! ListGroups. v1: throttle time. v3: flexible. v4: by state. v5: by type.

use std::sync::Arc;

use milena_coordinator::group::{ListFilter, Reply as GroupReply, Request};
use milena_net::{LocalBoxFuture, Reply};
use milena_protocol::messages::{ListGroupsRequest, ListGroupsResponse};
use milena_protocol::{ApiKey, ErrorCode};

use crate::dispatch::frame;
use crate::ports::Ports;
use crate::registry::Api;
use crate::request::{OwnedRequest, Refusal};

/// The registry's line.
pub const API: Api = Api::later(ApiKey::LIST_GROUPS, 0..=5, handle);

fn handle(request: OwnedRequest, ports: Arc<Ports>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    Box::pin(async move {
        let call = request.call();
        let asked: ListGroupsRequest<'_> = call.request()?;
        let filter = || ListFilter { states: asked.states_filter.clone(), types: asked.types_filter.clone() };
        let answers = ports.coordinators.groups().request_all(|| Request::List(filter()));
        let mut response = ListGroupsResponse::default();
        for answer in answers {
            match answer.get().await {
                Ok(GroupReply::List(groups)) => response.groups.extend(groups),
                // It is another broker's by now.
                Err(ErrorCode::NOT_COORDINATOR) => {}
                other => {
                    let error = other.err().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR);
                    response = ListGroupsResponse { error_code: error.0, ..Default::default() };
                    break;
                }
            }
        }
        frame(|out| call.answer(out, &response))
    })
}
