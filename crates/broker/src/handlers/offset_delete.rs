//! OffsetDelete. There is one version.

use std::sync::Arc;

use indexmap::IndexMap;
use milena_coordinator::group::{Reply, Request};
use milena_net::{Outgoing, Replies};
use milena_protocol::messages::offset_delete_request::OffsetDeleteRequest;
use milena_protocol::messages::offset_delete_response::{
    OffsetDeleteResponse, OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use milena_protocol::{ApiKey, ErrorCode};

use crate::coordinators::Answer;
use crate::registry::{Api, Handler};
use crate::request::{Call, Header, Refusal, answer};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::OFFSET_DELETE, 0..=0, Handler::Either(serve));

fn serve(call: &Call<'_>, services: &Arc<Services>, replies: &mut Replies<'_>) -> Result<(), Refusal> {
    let mut request: OffsetDeleteRequest<'_> = call.request()?;
    let image = services.image();
    let mut refused = Refused::new();
    for topic in &mut request.topics {
        let found = image.topics().get(&topic.name);
        let exists = |partition: i32| found.is_some_and(|found| found.partition(partition).is_some());
        let unknown = topic.partitions.iter().filter(|partition| !exists(partition.partition_index));
        let unknown = unknown.map(|partition| OffsetDeleteResponsePartition {
            partition_index: partition.partition_index,
            error_code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0,
        });
        let partitions: Vec<_> = unknown.collect();
        // A topic that does not exist is spoken of even where none of its partitions was named.
        if !partitions.is_empty() || found.is_none() {
            refused.entry(topic.name.to_string()).or_default().extend(partitions);
        }
        topic.partitions.retain(|partition| exists(partition.partition_index));
    }
    request.topics.retain(|topic| !topic.partitions.is_empty());
    let answer = if request.group_id.is_empty() {
        Answer::Now(Err(ErrorCode::INVALID_GROUP_ID))
    } else {
        let group = request.group_id.clone();
        services.coordinators.groups().request(&group, Request::DeleteOffsets(request))
    };
    answer.send(call, replies, move |header, reply, out| write(header, reply, refused, out))
}

/// What is not there, by topic.
type Refused = IndexMap<String, Vec<OffsetDeleteResponsePartition>>;

/// What the coordinator answers behind what was refused, each topic once; without refusals it is answered as it is.
fn gathered(
    mut refused: Refused,
    answered: Vec<OffsetDeleteResponseTopic<'static>>,
) -> Vec<OffsetDeleteResponseTopic<'static>> {
    if refused.is_empty() {
        return answered;
    }
    for topic in answered {
        refused.entry(topic.name.into_owned()).or_default().extend(topic.partitions);
    }
    let topic = |(name, partitions): (String, _)| OffsetDeleteResponseTopic { name: name.into(), partitions };
    refused.into_iter().map(topic).collect()
}

fn write(
    header: &Header<'_>,
    reply: Result<Reply, ErrorCode>,
    refused: Refused,
    out: &mut Outgoing,
) -> Result<(), Refusal> {
    let mut response = match reply {
        Ok(Reply::DeleteOffsets(response)) => response,
        other => {
            let error = other.err().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR);
            OffsetDeleteResponse { error_code: error.0, ..Default::default() }
        }
    };
    if response.error_code == 0 {
        response.topics = gathered(refused, response.topics);
    }
    answer(header, out, &response).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str, partitions: &[i32]) -> OffsetDeleteResponseTopic<'static> {
        let partition = |&partition_index: &i32| OffsetDeleteResponsePartition { partition_index, error_code: 0 };
        OffsetDeleteResponseTopic {
            name: name.to_owned().into(),
            partitions: partitions.iter().map(partition).collect(),
        }
    }

    #[test]
    fn with_refusals_each_topic_stands_once() {
        let answered = || vec![topic("b", &[1]), topic("c", &[0]), topic("c", &[0])];
        assert_eq!(gathered(Refused::new(), answered()), answered());
        let refused = [topic("a", &[]), topic("b", &[2])].map(|topic| (topic.name.to_string(), topic.partitions));
        assert_eq!(
            gathered(Refused::from(refused), answered()),
            [topic("a", &[]), topic("b", &[2, 1]), topic("c", &[0, 0])]
        );
    }
}
