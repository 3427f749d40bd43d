//! OffsetFetch. v2: all topics, an error of the whole answer. v3: throttle time. v5: leader epochs. v6: flexible. v7: offsets
//! of open transactions may be refused. v8: several groups. v9: members of consumer groups. v10: topics by id.

use std::sync::Arc;

use milena_coordinator::group::{FetchedGroup, FetchedOffset, Reply as GroupReply, Request};
use milena_metadata::Image;
use milena_net::{LocalBoxFuture, Reply};
use milena_protocol::messages::offset_fetch_request::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use milena_protocol::messages::offset_fetch_response::{
    OffsetFetchResponse, OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use milena_protocol::{ApiKey, ErrorCode};

use crate::dispatch::frame;
use crate::registry::{Api, Handler};
use crate::request::{OwnedRequest, Refusal, Room, Turns};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::OFFSET_FETCH, 1..=10, Handler::Later(handle));

/// First version with an error of the whole answer.
const FIRST_ERROR_VERSION: i16 = 2;
/// First version with several groups.
const FIRST_GROUPS_VERSION: i16 = 8;
/// First version that names topics by id.
const FIRST_TOPIC_ID_VERSION: i16 = 10;

fn handle(request: OwnedRequest, services: Arc<Services>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    Box::pin(async move {
        let call = request.call();
        let version = call.header.version;
        let asked: OffsetFetchRequest<'_> = call.request()?;
        let require_stable = asked.require_stable;
        let (mut groups, mut room, mut turns) = (Vec::new(), Room::default(), Turns::default());
        for group in in_groups(asked, version) {
            turns.part().await;
            groups.push(fetch(group, require_stable, version, &services, &mut room).await?);
        }
        let response = if version < FIRST_GROUPS_VERSION {
            of_one_group(groups.pop().unwrap_or_default())
        } else {
            OffsetFetchResponse { groups, ..Default::default() }
        };
        frame(|out| call.answer(out, &response))
    })
}

/// The groups of a request; there is one before there were several.
fn in_groups(asked: OffsetFetchRequest<'_>, version: i16) -> Vec<OffsetFetchRequestGroup<'_>> {
    if version >= FIRST_GROUPS_VERSION {
        return asked.groups;
    }
    let topics = asked.topics.map(|topics| topics.into_iter().map(with_name).collect());
    vec![OffsetFetchRequestGroup { group_id: asked.group_id, topics, ..Default::default() }]
}

fn with_name(topic: OffsetFetchRequestTopic<'_>) -> OffsetFetchRequestTopics<'_> {
    OffsetFetchRequestTopics { name: topic.name, partition_indexes: topic.partition_indexes, ..Default::default() }
}

async fn fetch<'r>(
    mut group: OffsetFetchRequestGroup<'r>,
    require_stable: bool,
    version: i16,
    services: &Services,
    room: &mut Room,
) -> Result<OffsetFetchResponseGroup<'r>, Refusal> {
    room.take(bytes_of(&group))?;
    let group_id = group.group_id.clone();
    let unknown =
        if version >= FIRST_TOPIC_ID_VERSION { name_topics(&mut group, &services.image()) } else { Vec::new() };
    let asked = group.topics.clone();
    let request = Request::Fetch { group, require_stable, most_bytes: room.left() };
    let answer = services.coordinators.groups().request(&group_id, request).get().await;
    Ok(match answer {
        Ok(GroupReply::Fetch(fetched)) if fetched.error == ErrorCode::NONE => {
            room.take(fetched.bytes())?;
            let mut topics = answered(fetched, version, &services.image());
            topics.extend(unknown);
            OffsetFetchResponseGroup { group_id, topics, error_code: 0 }
        }
        other => {
            let error = match other {
                Ok(GroupReply::Fetch(refused)) => refused.error,
                other => other.err().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR),
            };
            let topics = if version < FIRST_ERROR_VERSION {
                asked.into_iter().flatten().map(|topic| refused(topic, error)).collect()
            } else {
                Vec::new()
            };
            OffsetFetchResponseGroup { group_id, topics, error_code: error.0 }
        }
    })
}

/// What the answer for a group takes at least in memory.
fn bytes_of(asked: &OffsetFetchRequestGroup<'_>) -> usize {
    let partitions: usize = asked.topics.iter().flatten().map(|topic| topic.partition_indexes.len()).sum();
    size_of::<OffsetFetchResponseGroup<'_>>() + partitions * size_of::<OffsetFetchResponsePartitions<'_>>()
}

/// Gives the topics their names; answers for those that have none come back.
fn name_topics<'r>(group: &mut OffsetFetchRequestGroup<'r>, image: &Image) -> Vec<OffsetFetchResponseTopics<'r>> {
    let mut unknown = Vec::new();
    let Some(topics) = &mut group.topics else { return unknown };
    let mut known = Vec::with_capacity(topics.len());
    for mut topic in std::mem::take(topics) {
        match image.topics().get_by_id(topic.topic_id) {
            Some(found) => {
                topic.name = found.name.to_string().into();
                known.push(topic);
            }
            None => unknown.push(refused(topic, ErrorCode::UNKNOWN_TOPIC_ID)),
        }
    }
    *topics = known;
    unknown
}

fn refused<'r>(topic: OffsetFetchRequestTopics<'r>, error: ErrorCode) -> OffsetFetchResponseTopics<'r> {
    let partition = |partition_index: &i32| OffsetFetchResponsePartitions {
        partition_index: *partition_index,
        committed_offset: -1,
        metadata: Some("".into()),
        error_code: error.0,
        ..Default::default()
    };
    let partitions = topic.partition_indexes.iter().map(partition).collect();
    OffsetFetchResponseTopics { name: topic.name, topic_id: topic.topic_id, partitions }
}

/// The answer in the response's words. A topic that exists no more has no id that could be told.
fn answered(fetched: FetchedGroup, version: i16, image: &Image) -> Vec<OffsetFetchResponseTopics<'static>> {
    let topic = |(name, offsets): (String, Vec<FetchedOffset>)| {
        let topic_id = match image.topics().get(&name) {
            Some(topic) => topic.id,
            None if version >= FIRST_TOPIC_ID_VERSION => return None,
            None => Default::default(),
        };
        let partitions = offsets.into_iter().map(|offset| OffsetFetchResponsePartitions {
            partition_index: offset.partition,
            committed_offset: offset.offset,
            committed_leader_epoch: offset.leader_epoch,
            metadata: Some(offset.metadata.into()),
            error_code: offset.error.0,
        });
        Some(OffsetFetchResponseTopics { name: name.into(), topic_id, partitions: partitions.collect() })
    };
    fetched.topics.into_iter().filter_map(topic).collect()
}

fn of_one_group(group: OffsetFetchResponseGroup<'_>) -> OffsetFetchResponse<'_> {
    let partition = |partition: OffsetFetchResponsePartitions<'_>| OffsetFetchResponsePartition {
        partition_index: partition.partition_index,
        committed_offset: partition.committed_offset,
        committed_leader_epoch: partition.committed_leader_epoch,
        metadata: partition.metadata.map(|text| text.into_owned().into()),
        error_code: partition.error_code,
    };
    let topic = |topic: OffsetFetchResponseTopics<'_>| OffsetFetchResponseTopic {
        name: topic.name.into_owned().into(),
        partitions: topic.partitions.into_iter().map(partition).collect(),
    };
    OffsetFetchResponse {
        topics: group.topics.into_iter().map(topic).collect(),
        error_code: group.error_code,
        ..Default::default()
    }
}
