//! OffsetDelete. There is one version.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

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
    let mut refused = Vec::new();
    for topic in &mut request.topics {
        let found = image.topics().get(&topic.name);
        let exists = |partition: i32| found.is_some_and(|found| found.partition(partition).is_some());
        let unknown = topic.partitions.iter().filter(|partition| !exists(partition.partition_index));
        let unknown = unknown.map(|partition| OffsetDeleteResponsePartition {
            partition_index: partition.partition_index,
            error_code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0,
        });
        let partitions: Vec<_> = unknown.collect();
        if !partitions.is_empty() {
            refused.push(OffsetDeleteResponseTopic { name: topic.name.to_string().into(), partitions });
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

/// Puts what was refused behind what is answered, under one entry for each topic.
fn add(refused: Vec<OffsetDeleteResponseTopic<'static>>, topics: &mut Vec<OffsetDeleteResponseTopic<'static>>) {
    if refused.is_empty() {
        return;
    }
    let mut places: HashMap<String, usize> = HashMap::new();
    for (at, topic) in topics.iter().enumerate() {
        places.entry(topic.name.to_string()).or_insert(at);
    }
    for topic in refused {
        match places.entry(topic.name.to_string()) {
            Entry::Occupied(at) => topics[*at.get()].partitions.extend(topic.partitions),
            Entry::Vacant(at) => {
                at.insert(topics.len());
                topics.push(topic);
            }
        }
    }
}

fn write(
    header: &Header<'_>,
    reply: Result<Reply, ErrorCode>,
    refused: Vec<OffsetDeleteResponseTopic<'static>>,
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
        add(refused, &mut response.topics);
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
    fn what_is_refused_stands_under_its_topic() {
        let mut topics = vec![topic("a", &[0]), topic("b", &[1])];
        add(vec![topic("b", &[2]), topic("c", &[3]), topic("c", &[4])], &mut topics);
        assert_eq!(topics, [topic("a", &[0]), topic("b", &[1, 2]), topic("c", &[3, 4])]);
    }
}
