//! OffsetCommit. v2 to v4: how long the offsets are kept. v3: throttle time. v6: leader epochs. v7: static members. v8:
//! flexible. v9: members of either protocol, GROUP_ID_NOT_FOUND. v10: topics by id.
//!
//! What does not exist is refused here; the rest is one append of the group's coordinator.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use milena_coordinator::group::{Reply, Request};
use milena_metadata::{Image, Topic};
use milena_net::{Outgoing, Replies};
use milena_protocol::messages::offset_commit_request::{OffsetCommitRequest, OffsetCommitRequestTopic};
use milena_protocol::messages::offset_commit_response::{
    OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use milena_protocol::{ApiKey, ErrorCode, Uuid};

use crate::coordinators::Answer;
use crate::registry::{Api, Handler};
use crate::request::{Call, Header, Refusal, answer};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::OFFSET_COMMIT, 2..=10, Handler::Either(serve));

/// First version that names topics by id.
const FIRST_TOPIC_ID_VERSION: i16 = 10;

/// The topics of an answer.
pub(super) type Answered = Vec<OffsetCommitResponseTopic<'static>>;

fn serve(call: &Call<'_>, services: &Arc<Services>, replies: &mut Replies<'_>) -> Result<(), Refusal> {
    let mut request: OffsetCommitRequest<'_> = call.request()?;
    let version = call.header.version;
    let asked = std::mem::take(&mut request.topics);
    let (good, refused) = sort(asked, &services.image(), version >= FIRST_TOPIC_ID_VERSION);
    if good.is_empty() {
        return Answer::Now(Ok(Reply::Commit(Vec::new())))
            .send(call, replies, move |header, reply, out| write(header, reply, Vec::new(), refused, out));
    }
    let all = unanswered(&good);
    request.topics = good;
    let group = request.group_id.clone();
    let answer = services.coordinators.groups().request(&group, Request::Commit { request, version });
    answer.send(call, replies, move |header, reply, out| write(header, reply, all, refused, out))
}

/// What is answered when there is nobody to ask.
pub(super) fn unanswered(asked: &[OffsetCommitRequestTopic<'_>]) -> Answered {
    asked.iter().map(|topic| answer_topic(topic, topic.partitions.iter().map(|p| p.partition_index))).collect()
}

/// Those topics and partitions that exist, with names and ids, and the answers for the others.
pub(super) fn sort<'r>(
    asked: Vec<OffsetCommitRequestTopic<'r>>,
    image: &Image,
    by_id: bool,
) -> (Vec<OffsetCommitRequestTopic<'r>>, Answered) {
    let (mut good, mut refused) = (Vec::with_capacity(asked.len()), Gathered::default());
    for mut topic in asked {
        let (known, refusal) = match find(&topic, image, by_id) {
            Ok(found) => {
                topic.name = found.name.to_string().into();
                topic.topic_id = found.id;
                let (known, unknown): (Vec<_>, Vec<_>) = std::mem::take(&mut topic.partitions)
                    .into_iter()
                    .partition(|partition| found.partition(partition.partition_index).is_some());
                (known, (!unknown.is_empty()).then_some((unknown, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)))
            }
            Err(error) => (Vec::new(), Some((std::mem::take(&mut topic.partitions), error))),
        };
        if let Some((unknown, error)) = refusal {
            let mut answer = answer_topic(&topic, unknown.iter().map(|partition| partition.partition_index));
            answer.partitions.iter_mut().for_each(|partition| partition.error_code = error.0);
            refused.add(answer);
        }
        if !known.is_empty() {
            topic.partitions = known;
            good.push(topic);
        }
    }
    (good, refused.topics)
}

/// Answers of which each topic has one, however often it was asked for.
#[derive(Default)]
struct Gathered {
    topics: Answered,
    places: HashMap<(Uuid, String), usize>,
}

impl Gathered {
    fn add(&mut self, topic: OffsetCommitResponseTopic<'static>) {
        match self.places.entry((topic.topic_id, topic.name.to_string())) {
            Entry::Occupied(place) => self.topics[*place.get()].partitions.extend(topic.partitions),
            Entry::Vacant(place) => {
                place.insert(self.topics.len());
                self.topics.push(topic);
            }
        }
    }
}

fn find<'i>(topic: &OffsetCommitRequestTopic<'_>, image: &'i Image, by_id: bool) -> Result<&'i Arc<Topic>, ErrorCode> {
    if by_id {
        image.topics().get_by_id(topic.topic_id).ok_or(ErrorCode::UNKNOWN_TOPIC_ID)
    } else {
        image.topics().get(&topic.name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
    }
}

fn answer_topic(
    topic: &OffsetCommitRequestTopic<'_>,
    partitions: impl Iterator<Item = i32>,
) -> OffsetCommitResponseTopic<'static> {
    OffsetCommitResponseTopic {
        name: topic.name.to_string().into(),
        topic_id: topic.topic_id,
        partitions: partitions
            .map(|partition_index| OffsetCommitResponsePartition { partition_index, error_code: 0 })
            .collect(),
    }
}

fn write(
    header: &Header<'_>,
    reply: Result<Reply, ErrorCode>,
    all: Answered,
    refused: Answered,
    out: &mut Outgoing,
) -> Result<(), Refusal> {
    let topics = gathered(reply, all, refused);
    answer(header, out, &OffsetCommitResponse { topics, ..Default::default() }).map(drop)
}

/// What was refused, then what the coordinator says; `all` is what it was asked.
pub(super) fn gathered(reply: Result<Reply, ErrorCode>, mut all: Answered, refused: Answered) -> Answered {
    let answered = match reply {
        Ok(Reply::Commit(topics)) => topics,
        other => {
            let error = other.err().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR);
            let partitions = all.iter_mut().flat_map(|topic| &mut topic.partitions);
            partitions.for_each(|partition| partition.error_code = error.0);
            all
        }
    };
    if refused.is_empty() {
        return answered;
    }
    let mut gathered = Gathered::default();
    refused.into_iter().chain(answered).for_each(|topic| gathered.add(topic));
    gathered.topics
}

#[cfg(test)]
mod tests {
    use milena_protocol::messages::offset_commit_request::OffsetCommitRequestPartition;

    use super::*;

    fn topic(name: &str, id: Uuid, partitions: &[i32]) -> OffsetCommitResponseTopic<'static> {
        let asked = OffsetCommitRequestTopic { name: name.to_owned().into(), topic_id: id, ..Default::default() };
        answer_topic(&asked, partitions.iter().copied())
    }

    #[test]
    fn what_the_coordinator_says_stands_behind_what_was_refused_of_the_same_topic() {
        let refused = vec![topic("a", Uuid::ONE, &[7]), topic("b", Uuid::ZERO, &[8])];
        let said = vec![topic("b", Uuid::ONE, &[0]), topic("a", Uuid::ONE, &[1, 2])];
        let gathered = gathered(Ok(Reply::Commit(said)), Vec::new(), refused);
        let expected = [topic("a", Uuid::ONE, &[7, 1, 2]), topic("b", Uuid::ZERO, &[8]), topic("b", Uuid::ONE, &[0])];
        assert_eq!(gathered, expected);
    }

    #[test]
    fn a_topic_that_is_refused_twice_is_answered_once_and_one_without_partitions_too() {
        let asked = |name: &'static str, partitions: &[i32]| OffsetCommitRequestTopic {
            name: name.into(),
            partitions: partitions
                .iter()
                .map(|index| OffsetCommitRequestPartition { partition_index: *index, ..Default::default() })
                .collect(),
            ..Default::default()
        };
        let topics = vec![asked("a", &[7]), asked("b", &[]), asked("a", &[8])];
        let (good, refused) = sort(topics, &Image::default(), false);
        assert!(good.is_empty());
        let refused: Vec<_> = refused.iter().map(|topic| (&*topic.name, topic.partitions.len())).collect();
        assert_eq!(refused, [("a", 2), ("b", 0)]);
    }
}
