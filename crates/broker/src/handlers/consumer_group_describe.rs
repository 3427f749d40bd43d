//! ConsumerGroupDescribe. v1: the protocol that each member speaks.

use std::sync::Arc;

use milena_coordinator::group::{Reply as GroupReply, Request};
use milena_net::{LocalBoxFuture, Reply};
use milena_protocol::messages::consumer_group_describe_request::ConsumerGroupDescribeRequest;
use milena_protocol::messages::consumer_group_describe_response::{ConsumerGroupDescribeResponse, DescribedGroup};
use milena_protocol::{ApiKey, ErrorCode, Str};

use crate::authorized_operations;
use crate::dispatch::frame;
use crate::ports::Ports;
use crate::registry::Api;
use crate::request::{OwnedRequest, Refusal};

/// The registry's line.
pub const API: Api = Api::later(ApiKey::CONSUMER_GROUP_DESCRIBE, 0..=1, handle);

fn handle(request: OwnedRequest, ports: Arc<Ports>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    Box::pin(async move {
        let call = request.call();
        let asked: ConsumerGroupDescribeRequest<'_> = call.request()?;
        let mut groups = Vec::with_capacity(asked.group_ids.len());
        for id in &asked.group_ids {
            let mut group = describe(id, &ports).await;
            if group.error_code == 0 {
                group.authorized_operations = authorized_operations::group(asked.include_authorized_operations);
            }
            groups.push(group);
        }
        frame(|out| call.answer(out, &ConsumerGroupDescribeResponse { groups, ..Default::default() }))
    })
}

async fn describe<'r>(id: &'r Str<'r>, ports: &Ports) -> DescribedGroup<'r> {
    let answer = if id.is_empty() {
        Err(ErrorCode::INVALID_GROUP_ID)
    } else {
        let ids = std::slice::from_ref(id);
        ports.coordinators.groups().request(id, Request::DescribeConsumers(ids)).get().await
    };
    match answer {
        Ok(GroupReply::DescribeConsumers(mut groups)) if groups.len() == 1 => groups.remove(0),
        other => {
            let error = other.err().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR);
            DescribedGroup { group_id: id.as_ref().into(), error_code: error.0, ..Default::default() }
        }
    }
}
