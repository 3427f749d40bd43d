//! ListGroups. v1: throttle time. v3: flexible. v4: by state. v5: by type.

use std::collections::BTreeSet;
use std::sync::Arc;

use milena_coordinator::group::{ListFilter, Reply as GroupReply, Request};
use milena_net::{LocalBoxFuture, Reply};
use milena_protocol::messages::{ListGroupsRequest, ListGroupsResponse};
use milena_protocol::{ApiKey, ErrorCode, Str};

use crate::dispatch::frame;
use crate::registry::{Api, Handler};
use crate::request::{OwnedRequest, Refusal};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::LIST_GROUPS, 0..=5, Handler::Later(handle));

fn handle(request: OwnedRequest, services: Arc<Services>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    Box::pin(async move {
        let call = request.call();
        let asked: ListGroupsRequest<'_> = call.request()?;
        let (states, types) = (lower_case(&asked.states_filter), lower_case(&asked.types_filter));
        let filter = || ListFilter { states: &states, types: &types };
        let answers = services.coordinators.groups().request_all(|| Request::List(filter()));
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

/// Names in the case that does not matter.
fn lower_case(names: &[Str<'_>]) -> BTreeSet<String> {
    names.iter().map(|name| name.trim().to_ascii_lowercase()).collect()
}
