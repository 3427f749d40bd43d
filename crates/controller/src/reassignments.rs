//! AlterPartitionReassignments and ListPartitionReassignments. Nothing is copied between brokers, so replicas can be put into
//! another order or taken away, but none can be added.

use std::borrow::Cow;

use milena_metadata::{Image, Partition, Topic};
use milena_protocol::messages::alter_partition_reassignments_request::ReassignablePartition;
use milena_protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use milena_protocol::messages::list_partition_reassignments_request::ListPartitionReassignmentsTopics;
use milena_protocol::messages::list_partition_reassignments_response::{
    OngoingPartitionReassignment, OngoingTopicReassignment,
};
use milena_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse, PartitionChangeRecord,
};
use milena_protocol::{ErrorCode, Uuid};

use crate::assignment::check_manual;
use crate::error::{ApiError, Messages};
use crate::limits::{MAX_RECORDS, check_records};
use crate::name::shown;
use crate::view::{Records, View};

type Change = PartitionChangeRecord<'static>;

/// Decides an AlterPartitionReassignments request: each partition is changed or refused on its own.
pub fn alter_partition_reassignments<'a>(
    view: View<'_>,
    request: &AlterPartitionReassignmentsRequest<'a>,
) -> (Records, AlterPartitionReassignmentsResponse<'a>) {
    if request.topics.is_empty() {
        return (Vec::new(), AlterPartitionReassignmentsResponse::default());
    }
    if request.timeout_ms <= 0 {
        return (Vec::new(), refuse_reassignments(request, &ApiError::code(ErrorCode::REQUEST_TIMED_OUT)));
    }
    let same_factor = !request.allow_replication_factor_change;
    let mut records = Records::new();
    let responses = respond(request, |topic, partition| {
        let change = alter(view.image, topic, partition, same_factor)?;
        // Beyond that nothing is changed, however often a partition is named.
        if records.len() <= MAX_RECORDS {
            records.extend(change.map(Into::into));
        }
        Ok(())
    });
    if let Err(error) = check_records(&records) {
        return (Vec::new(), refuse_reassignments(request, &error));
    }
    let allow_replication_factor_change = request.allow_replication_factor_change;
    let response = AlterPartitionReassignmentsResponse {
        allow_replication_factor_change,
        error_message: None,
        responses,
        ..Default::default()
    };
    (records, response)
}

/// The answer that has this error for everything that is asked for.
pub fn refuse_reassignments<'a>(
    request: &AlterPartitionReassignmentsRequest<'a>,
    error: &ApiError,
) -> AlterPartitionReassignmentsResponse<'a> {
    AlterPartitionReassignmentsResponse {
        error_code: error.code.0,
        error_message: error.message.clone(),
        responses: respond(request, |_, _| Err(error.clone())),
        ..Default::default()
    }
}

fn respond<'a>(
    request: &AlterPartitionReassignmentsRequest<'a>,
    mut outcome: impl FnMut(&str, &ReassignablePartition<'a>) -> Result<(), ApiError>,
) -> Vec<ReassignableTopicResponse<'a>> {
    let mut messages = Messages::new();
    let mut respond = |topic: &str, partition: &ReassignablePartition<'a>| {
        let error = outcome(topic, partition).err();
        ReassignablePartitionResponse {
            partition_index: partition.partition_index,
            error_code: error.as_ref().map_or(ErrorCode::NONE, |error| error.code).0,
            error_message: error.and_then(|error| messages.of(&error)),
        }
    };
    let topics = request.topics.iter().map(|topic| ReassignableTopicResponse {
        name: topic.name.clone(),
        partitions: topic.partitions.iter().map(|partition| respond(&topic.name, partition)).collect(),
    });
    topics.collect()
}

/// What changes a partition as asked; `None` when it is so already.
fn alter(
    image: &Image,
    name: &str,
    asked: &ReassignablePartition<'_>,
    same_factor: bool,
) -> Result<Option<Change>, ApiError> {
    let unknown = |what: String| ApiError::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, what);
    let topic =
        image.topics().get(name).ok_or_else(|| unknown(format!("Unable to find a topic named {}.", shown(name))))?;
    let index = asked.partition_index;
    let partition = topic.partition(index);
    let partition = partition.ok_or_else(|| unknown(format!("Unable to find partition {name}:{index}.")))?;
    let to = match asked.replicas.as_deref() {
        Some(target) => {
            check_manual(image, target, None)?;
            check_factor(partition, target, same_factor)?;
            target.to_vec()
        }
        None => before(partition).ok_or(ApiError::code(ErrorCode::NO_REASSIGNMENT_IN_PROGRESS))?,
    };
    let refuse = |message: String| Err(ApiError::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, message));
    if let Some(new) = to.iter().find(|id| !partition.replicas.contains(id)) {
        return refuse(format!(
            "Nothing is copied between brokers, and broker {new} has no replica of {name}-{index}."
        ));
    }
    if !to.contains(&partition.leader) {
        return refuse(format!("Nothing is copied between brokers, so the leader of {name}-{index} has to stay."));
    }
    Ok(change(topic, index, partition, to))
}

fn check_factor(partition: &Partition, target: &[i32], same_factor: bool) -> Result<(), ApiError> {
    let current = before(partition).map_or(partition.replicas.len(), |before| before.len());
    if !same_factor || current == target.len() {
        return Ok(());
    }
    let message = format!("The replication factor is changed from {current} to {}", target.len());
    Err(ApiError::new(ErrorCode::INVALID_REPLICATION_FACTOR, message))
}

/// The replicas before the reassignment that is under way; `None` when there is none.
fn before(partition: &Partition) -> Option<Vec<i32>> {
    let before = partition.replicas.iter().copied().filter(|id| !partition.adding_replicas.contains(id));
    is_reassigning(partition).then(|| before.collect())
}

fn is_reassigning(partition: &Partition) -> bool {
    !partition.adding_replicas.is_empty() || !partition.removing_replicas.is_empty()
}

/// Leaves these of the replicas, in this order, and ends what was under way.
fn change(topic: &Topic, partition_id: i32, partition: &Partition, to: Vec<i32>) -> Option<Change> {
    let of = |list: &[i32]| list.iter().copied().filter(|id| to.contains(id)).collect::<Vec<i32>>();
    let kept = |list: &[i32]| Some(of(list)).filter(|kept| kept != list).map(Cow::Owned);
    let emptied = |list: &[i32]| (!list.is_empty()).then(|| Cow::Owned(Vec::new()));
    let directories: Vec<Uuid> = to.iter().filter_map(|id| partition.directory_of(*id)).collect();
    let mut record = Change { partition_id, topic_id: topic.id, ..Change::default() };
    let unchanged = record.clone();
    if to != partition.replicas {
        record.directories = (directories != partition.directories).then_some(directories.into());
        record.replicas = Some(to.clone().into());
    }
    // Those that are taken away must not be taken for followers.
    if partition.replicas.iter().any(|id| !to.contains(id)) {
        record.leader = partition.leader;
    }
    record.isr = kept(&partition.isr);
    record.eligible_leader_replicas = kept(&partition.eligible_leader_replicas);
    record.last_known_elr = kept(&partition.last_known_elr);
    record.removing_replicas = emptied(&partition.removing_replicas);
    record.adding_replicas = emptied(&partition.adding_replicas);
    (record != unchanged).then_some(record)
}

/// Answers a ListPartitionReassignments request; without a list it is about all topics.
pub fn list_partition_reassignments<'a>(
    image: &'a Image,
    request: &ListPartitionReassignmentsRequest<'a>,
) -> ListPartitionReassignmentsResponse<'a> {
    let topics = match &request.topics {
        None => image.topics().iter().filter_map(|topic| ongoing(topic, 0..topic.partitions.len() as i32)).collect(),
        Some(asked) => {
            let of = |asked: &ListPartitionReassignmentsTopics<'_>| {
                ongoing(image.topics().get(&asked.name)?, asked.partition_indexes.iter().copied())
            };
            asked.iter().filter_map(of).collect()
        }
    };
    ListPartitionReassignmentsResponse { error_message: None, topics, ..Default::default() }
}

/// What is under way in a topic; `None` when nothing is.
fn ongoing(topic: &Topic, indexes: impl Iterator<Item = i32>) -> Option<OngoingTopicReassignment<'_>> {
    let one = |partition_index| {
        let partition = topic.partition(partition_index).filter(|partition| is_reassigning(partition))?;
        Some(OngoingPartitionReassignment {
            partition_index,
            replicas: Cow::Borrowed(&partition.replicas),
            adding_replicas: Cow::Borrowed(&partition.adding_replicas),
            removing_replicas: Cow::Borrowed(&partition.removing_replicas),
        })
    };
    let partitions: Vec<_> = indexes.filter_map(one).collect();
    (!partitions.is_empty()).then(|| OngoingTopicReassignment { name: (&*topic.name).into(), partitions })
}

#[cfg(test)]
mod tests {
    use milena_protocol::MetadataRecord;
    use milena_protocol::messages::alter_partition_reassignments_request::ReassignableTopic;
    use milena_protocol::messages::{PartitionRecord, TopicRecord};

    use super::*;
    use crate::testing::{Node, broker, image};

    const REFUSED: i16 = ErrorCode::INVALID_REPLICA_ASSIGNMENT.0;

    /// Brokers 1, 2 and 3; broker 1 leads the partitions of `t`, which have these replicas, the first so many of which a
    /// reassignment adds.
    fn node(partitions: &[(&[i32], usize)]) -> Node {
        let mut node = Node { image: image([broker(1), broker(2), broker(3)]), ..Node::new() };
        let topic_id = Uuid::from_bytes([7; 16]);
        let mut records: Records = vec![TopicRecord { name: "t".into(), topic_id }.into()];
        for (partition_id, (replicas, adding)) in (0..).zip(partitions) {
            let directories: Vec<Uuid> = replicas.iter().map(|&id| broker(id).directories[0]).collect();
            let record = PartitionRecord {
                partition_id,
                topic_id,
                replicas: replicas.to_vec().into(),
                isr: replicas.to_vec().into(),
                adding_replicas: replicas[..*adding].to_vec().into(),
                leader: 1,
                leader_epoch: 0,
                directories: directories.into(),
                ..PartitionRecord::default()
            };
            records.push(record.into());
        }
        node.commit(&records);
        node
    }

    fn alter(
        node: &Node,
        name: &'static str,
        partition_index: i32,
        target: Option<&[i32]>,
        factor_may_change: bool,
    ) -> (Records, i16, String) {
        let replicas = target.map(|target| target.to_vec().into());
        let partitions = vec![ReassignablePartition { partition_index, replicas }];
        let topics = vec![ReassignableTopic { name: name.into(), partitions }];
        let allow_replication_factor_change = factor_may_change;
        let request = AlterPartitionReassignmentsRequest { topics, allow_replication_factor_change, timeout_ms: 1 };
        let (records, response) = alter_partition_reassignments(node.view(), &request);
        let answer = response.responses.into_iter().next().unwrap().partitions.into_iter().next().unwrap();
        (records, answer.error_code, answer.error_message.map(Cow::into_owned).unwrap_or_default())
    }

    fn listed(node: &Node, topics: Option<Vec<ListPartitionReassignmentsTopics<'static>>>) -> Vec<(String, Vec<i32>)> {
        let request = ListPartitionReassignmentsRequest { topics, timeout_ms: 1 };
        let response = list_partition_reassignments(&node.image, &request);
        let indexes =
            |topic: &OngoingTopicReassignment<'_>| topic.partitions.iter().map(|p| p.partition_index).collect();
        response.topics.iter().map(|topic| (topic.name.to_string(), indexes(topic))).collect()
    }

    #[test]
    fn replicas_that_stay_where_they_are_change_nothing() {
        assert_eq!(alter(&node(&[(&[1], 0)]), "t", 0, Some(&[1]), true), (vec![], 0, String::new()));
    }

    #[test]
    fn replicas_are_taken_away_and_put_into_another_order() {
        let mut node = node(&[(&[2, 1, 3], 0)]);
        let (records, code, message) = alter(&node, "t", 0, Some(&[1, 2]), true);
        assert_eq!((records.len(), code, message), (1, 0, String::new()));
        node.commit(&records);
        let partition = node.image.topics().get("t").unwrap().partition(0).unwrap();
        assert_eq!((&partition.replicas[..], &partition.isr[..], partition.leader), (&[1, 2][..], &[2, 1][..], 1));
        assert_eq!(partition.directories, [broker(1).directories[0], broker(2).directories[0]]);
        assert_eq!(partition.leader_epoch, 1);
        assert_eq!(alter(&node, "t", 0, Some(&[1]), false).1, ErrorCode::INVALID_REPLICATION_FACTOR.0);
        let (records, ..) = alter(&node, "t", 0, Some(&[2, 1]), false);
        let MetadataRecord::PartitionChange(change) = &records[0] else { panic!("{records:?}") };
        assert_eq!((change.replicas.as_deref(), change.leader, &change.isr), (Some(&[2, 1][..]), -2, &None));
    }

    #[test]
    fn what_cannot_be_reached_is_refused() {
        let node = node(&[(&[1, 2], 0)]);
        for (name, index, target, code, message) in [
            ("no", 0, Some(&[1][..]), 3, "Unable to find a topic named no."),
            ("t", 9, Some(&[1]), 3, "Unable to find partition t:9."),
            ("t", 0, None, 85, ""),
            ("t", 0, Some(&[]), REFUSED, "The manual partition assignment includes an empty replica list."),
            ("t", 0, Some(&[1, 3]), REFUSED, "Nothing is copied between brokers, and broker 3 has no replica of t-0."),
            ("t", 0, Some(&[2]), REFUSED, "Nothing is copied between brokers, so the leader of t-0 has to stay."),
        ] {
            assert_eq!(alter(&node, name, index, target, true), (vec![], code, message.to_owned()));
        }
    }

    #[test]
    fn what_is_under_way_is_listed_until_it_is_taken_back() {
        let mut node = node(&[(&[1], 0), (&[2, 1], 1), (&[3, 1], 1)]);
        assert_eq!(listed(&node, None), [("t".to_owned(), vec![1, 2])]);
        let asked = |name: &'static str, partitions: &[i32]| {
            let partition_indexes = partitions.to_vec().into();
            ListPartitionReassignmentsTopics { name: name.into(), partition_indexes }
        };
        let some = vec![asked("t", &[0, 2, 9]), asked("no", &[1])];
        assert_eq!(listed(&node, Some(some)), [("t".to_owned(), vec![2])]);
        let (records, code, _) = alter(&node, "t", 1, None, true);
        assert_eq!((records.len(), code), (1, 0));
        node.commit(&records);
        let partition = node.image.topics().get("t").unwrap().partition(1).unwrap();
        assert_eq!((&partition.replicas[..], &partition.isr[..]), (&[1][..], &[1][..]));
        assert_eq!(listed(&node, None), [("t".to_owned(), vec![2])]);
    }
}
