//! ConsumerGroupDescribe. v1: the protocol that each member speaks.

use std::sync::Arc;

use milena_coordinator::group::{Reply as GroupReply, Request};
use milena_net::{LocalBoxFuture, Reply};
use milena_protocol::messages::consumer_group_describe_request::ConsumerGroupDescribeRequest;
use milena_protocol::messages::consumer_group_describe_response::{
    Assignment, ConsumerGroupDescribeResponse, DescribedGroup, Member, TopicPartitions,
};
use milena_protocol::{ApiKey, ErrorCode, Str};

use crate::authorized_operations;
use crate::dispatch::frame;
use crate::registry::{Api, Handler};
use crate::request::{OwnedRequest, Refusal, Room, Turns};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::CONSUMER_GROUP_DESCRIBE, 0..=1, Handler::Later(handle));

fn handle(request: OwnedRequest, services: Arc<Services>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    Box::pin(async move {
        let call = request.call();
        let asked: ConsumerGroupDescribeRequest<'_> = call.request()?;
        let mut groups = Vec::with_capacity(asked.group_ids.len());
        let (mut room, mut turns) = (Room::default(), Turns::default());
        for id in &asked.group_ids {
            turns.part().await;
            let mut group = describe(id, &services).await;
            if group.error_code == 0 {
                group.authorized_operations = authorized_operations::group(asked.include_authorized_operations);
            }
            room.take(bytes_of(&group))?;
            groups.push(group);
        }
        frame(|out| call.answer(out, &ConsumerGroupDescribeResponse { groups, ..Default::default() }))
    })
}

/// What a group takes in memory.
fn bytes_of(group: &DescribedGroup<'_>) -> usize {
    let topic = |topic: &TopicPartitions<'_>| {
        size_of::<TopicPartitions<'_>>() + topic.topic_name.len() + size_of_val(&*topic.partitions)
    };
    let assignment = |assigned: &Assignment<'_>| assigned.topic_partitions.iter().map(topic).sum::<usize>();
    let member = |member: &Member<'_>| {
        let names: usize = member.subscribed_topic_names.iter().map(|name| size_of_val(name) + name.len()).sum();
        let regex = member.subscribed_topic_regex.as_ref().map_or(0, |regex| regex.len());
        let texts = member.member_id.len() + member.client_id.len() + member.client_host.len() + regex;
        let assigned = assignment(&member.assignment) + assignment(&member.target_assignment);
        size_of::<Member<'_>>() + texts + names + assigned
    };
    size_of::<DescribedGroup<'_>>() + group.members.iter().map(member).sum::<usize>()
}

async fn describe<'r>(id: &'r Str<'r>, services: &Services) -> DescribedGroup<'r> {
    let answer = if !services.coordinators.speaks_consumer() {
        Err(ErrorCode::UNSUPPORTED_VERSION)
    } else if id.is_empty() {
        Err(ErrorCode::INVALID_GROUP_ID)
    } else {
        services.coordinators.groups().request(id, Request::DescribeConsumers(id)).get().await
    };
    match answer {
        Ok(GroupReply::DescribeConsumers(group)) => group,
        other => {
            let error = other.err().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR);
            DescribedGroup { group_id: id.as_ref().into(), error_code: error.0, ..Default::default() }
        }
    }
}
