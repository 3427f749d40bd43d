//! ElectLeaders: partitions get their preferred leader, or, where nobody leads, one that may lack records.

use milena_metadata::{Image, LeaderRecoveryState, NO_LEADER, Partition, Topic};
use milena_protocol::ErrorCode;
use milena_protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use milena_protocol::messages::{ElectLeadersRequest, ElectLeadersResponse, PartitionChangeRecord};

use crate::error::{ApiError, Messages};
use crate::limits::{MAX_RECORDS, check_records};
use crate::name::shown;
use crate::view::{Records, View};

type Change = PartitionChangeRecord<'static>;

/// What `ElectionType` asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Preferred,
    Unclean,
}

/// Decides an ElectLeaders request of `version`. Without a list all partitions are meant, and those that need no election are not in
/// the answer.
pub fn elect_leaders<'a>(
    view: View<'a>,
    request: &ElectLeadersRequest<'a>,
    version: i16,
) -> (Records, ElectLeadersResponse<'a>) {
    decide(view, request).unwrap_or_else(|error| (Vec::new(), refuse_elections(request, &error, version)))
}

/// The answer that has this error for everything that is asked for. Version 0 has none for the whole request.
pub fn refuse_elections<'a>(
    request: &ElectLeadersRequest<'a>,
    error: &ApiError,
    version: i16,
) -> ElectLeadersResponse<'a> {
    let mut messages = Messages::new();
    let topics = request.topic_partitions.iter().flatten();
    let refused = topics.map(|topic| ReplicaElectionResult {
        topic: topic.topic.clone(),
        partition_result: topic.partitions.iter().map(|&index| result(index, Err(error), &mut messages)).collect(),
    });
    let replica_election_results = refused.collect();
    let error_code = if version == 0 { ErrorCode::NONE } else { error.code }.0;
    ElectLeadersResponse { error_code, replica_election_results, ..Default::default() }
}

fn decide<'a>(
    view: View<'a>,
    request: &ElectLeadersRequest<'a>,
) -> Result<(Records, ElectLeadersResponse<'a>), ApiError> {
    if request.topic_partitions.as_ref().is_some_and(Vec::is_empty) {
        return Ok(Default::default());
    }
    if request.timeout_ms <= 0 {
        return Err(ApiError::code(ErrorCode::REQUEST_TIMED_OUT));
    }
    let kind = match request.election_type {
        0 => Kind::Preferred,
        1 => Kind::Unclean,
        other => return Err(ApiError::new(ErrorCode::INVALID_REQUEST, format!("Unknown election type {other}"))),
    };
    let (mut records, mut results, mut messages) = (Records::new(), Vec::new(), Messages::new());
    let mut elect = |index: i32, change: Result<Change, ApiError>| {
        let answer = result(index, change.as_ref().map(|_| ()), &mut messages);
        // Beyond that nothing is changed, however often a partition is named.
        if records.len() <= MAX_RECORDS {
            records.extend(change.ok().map(Into::into));
        }
        answer
    };
    if let Some(topics) = &request.topic_partitions {
        for asked in topics {
            let change = |index| change_in(view.image, &asked.topic, index, kind);
            let partition_result = asked.partitions.iter().map(|&index| elect(index, change(index))).collect();
            results.push(ReplicaElectionResult { topic: asked.topic.clone(), partition_result });
        }
    } else {
        for topic in view.image.topics().iter() {
            let mut partition_result = Vec::new();
            for (index, partition) in (0..).zip(&topic.partitions) {
                let change = change(view.image, topic, index, partition, kind);
                if !is_not_needed(&change) {
                    partition_result.push(elect(index, change));
                }
            }
            results.push(ReplicaElectionResult { topic: (&*topic.name).into(), partition_result });
        }
    }
    check_records(&records)?;
    Ok((records, ElectLeadersResponse { replica_election_results: results, ..Default::default() }))
}

fn result(partition_id: i32, outcome: Result<(), &ApiError>, messages: &mut Messages) -> PartitionResult<'static> {
    PartitionResult {
        partition_id,
        error_code: outcome.err().map_or(ErrorCode::NONE, |error| error.code).0,
        error_message: outcome.err().and_then(|error| messages.of(error)),
    }
}

fn is_not_needed(change: &Result<Change, ApiError>) -> bool {
    matches!(change, Err(error) if error.code == ErrorCode::ELECTION_NOT_NEEDED)
}

fn change_in(image: &Image, name: &str, index: i32, kind: Kind) -> Result<Change, ApiError> {
    let unknown = |what: String| ApiError::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, what);
    let topic = image.topics().get(name).ok_or_else(|| unknown(format!("No such topic as {}", shown(name))))?;
    let partition = topic.partition(index).ok_or_else(|| unknown(format!("No such partition as {name}-{index}")))?;
    change(image, topic, index, partition, kind)
}

/// What makes somebody else the leader.
fn change(
    image: &Image,
    topic: &Topic,
    partition_id: i32,
    partition: &Partition,
    kind: Kind,
) -> Result<Change, ApiError> {
    let preferred = partition.replicas.first().copied();
    let is_done = match kind {
        Kind::Preferred => Some(partition.leader) == preferred,
        Kind::Unclean => partition.leader != NO_LEADER,
    };
    if is_done {
        let message = "Leader election not needed for topic partition.";
        return Err(ApiError::new(ErrorCode::ELECTION_NOT_NEEDED, message));
    }
    let can_lead = |id: &i32| {
        let online = |directory| image.cluster().broker(*id).is_some_and(|broker| broker.has_online(directory));
        image.cluster().is_active(*id) && partition.directory_of(*id).is_some_and(online)
    };
    let record = Change { partition_id, topic_id: topic.id, ..Change::default() };
    let mut candidates = partition.replicas.iter().copied().filter(can_lead);
    match kind {
        Kind::Preferred => {
            let leader = preferred.filter(|id| can_lead(id) && partition.isr.contains(id));
            let message = "The preferred leader was not available.";
            let leader = leader.ok_or(ApiError::new(ErrorCode::PREFERRED_LEADER_NOT_AVAILABLE, message))?;
            Ok(Change { leader, ..record })
        }
        Kind::Unclean => {
            let clean = candidates.clone().find(|id| partition.isr.contains(id));
            let message = "Eligible topic partition leaders are not available.";
            let leader = clean.or_else(|| candidates.next());
            let leader = leader.ok_or(ApiError::new(ErrorCode::ELIGIBLE_LEADERS_NOT_AVAILABLE, message))?;
            Ok(if clean.is_some() { Change { leader, ..record } } else { unclean(leader, partition, record) })
        }
    }
}

/// A leader that is not known to have every acknowledged record is the only one in sync.
fn unclean(leader: i32, partition: &Partition, record: Change) -> Change {
    let emptied = |list: &[i32]| (!list.is_empty()).then(|| Vec::new().into());
    Change {
        leader,
        isr: Some(vec![leader].into()),
        leader_recovery_state: LeaderRecoveryState::Recovering.value(),
        eligible_leader_replicas: emptied(&partition.eligible_leader_replicas),
        last_known_elr: emptied(&partition.last_known_elr),
        ..record
    }
}

#[cfg(test)]
mod tests {
    use milena_protocol::MetadataRecord;
    use milena_protocol::Uuid;
    use milena_protocol::messages::elect_leaders_request::TopicPartitions;
    use milena_protocol::messages::{PartitionRecord, TopicRecord};

    use super::*;
    use crate::testing::{Node, broker, image};

    const NONE: i16 = 0;
    const NOT_NEEDED: i16 = ErrorCode::ELECTION_NOT_NEEDED.0;

    /// Broker 1 is there, broker 2 is fenced; each partition has its replicas, in-sync replicas and leader.
    fn node(partitions: &[(&[i32], &[i32], i32)]) -> Node {
        let fenced = milena_metadata::Broker { fenced: true, ..broker(2) };
        let mut node = Node { image: image([broker(1), fenced]), ..Node::new() };
        let topic_id = Uuid::from_bytes([7; 16]);
        let mut records: Records = vec![TopicRecord { name: "t".into(), topic_id }.into()];
        for (partition_id, (replicas, isr, leader)) in (0..).zip(partitions) {
            let directories: Vec<Uuid> = replicas.iter().map(|&id| broker(id).directories[0]).collect();
            let record = PartitionRecord {
                partition_id,
                topic_id,
                replicas: replicas.to_vec().into(),
                isr: isr.to_vec().into(),
                leader: *leader,
                directories: directories.into(),
                ..PartitionRecord::default()
            };
            records.push(record.into());
        }
        node.commit(&records);
        node
    }

    fn elect(node: &Node, kind: i8, partitions: Option<&[i32]>) -> (Vec<Change>, Vec<(i32, i16)>) {
        let topic = |partitions: &[i32]| TopicPartitions { topic: "t".into(), partitions: partitions.to_vec().into() };
        let topic_partitions = partitions.map(|partitions| vec![topic(partitions)]);
        let request = ElectLeadersRequest { election_type: kind, topic_partitions, timeout_ms: 1 };
        let (records, answer) = elect_leaders(node.view(), &request, 1);
        let changes = records.into_iter().map(|record| match record {
            MetadataRecord::PartitionChange(change) => change,
            other => panic!("{other:?}"),
        });
        let results = answer.replica_election_results.iter().flat_map(|topic| &topic.partition_result);
        (changes.collect(), results.map(|result| (result.partition_id, result.error_code)).collect())
    }

    #[test]
    fn the_preferred_leader_takes_over_if_it_is_in_sync_and_there() {
        let node = node(&[(&[1, 2], &[1], 1), (&[1, 2], &[1, 2], 2), (&[2, 1], &[1, 2], 1), (&[1, 2], &[2], 2)]);
        let unavailable = ErrorCode::PREFERRED_LEADER_NOT_AVAILABLE.0;
        let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0;
        let (changes, results) = elect(&node, 0, Some(&[0, 1, 2, 3, 4]));
        assert_eq!(results, [(0, NOT_NEEDED), (1, NONE), (2, unavailable), (3, unavailable), (4, unknown)]);
        let change = |change: &Change| (change.partition_id, change.leader, change.isr.is_none());
        assert_eq!(changes.iter().map(change).collect::<Vec<_>>(), [(1, 1, true)]);
        assert_eq!(elect(&node, 0, None).1, [(1, NONE), (2, unavailable), (3, unavailable)]);
    }

    #[test]
    fn an_unclean_leader_is_one_that_is_there_and_the_only_one_in_sync() {
        let node = node(&[(&[2, 1], &[2], 2), (&[2, 1], &[2], -1), (&[2], &[2], -1), (&[2, 1], &[1, 2], -1)]);
        let (changes, results) = elect(&node, 1, Some(&[0, 1, 2, 3]));
        assert_eq!(results, [(0, NOT_NEEDED), (1, NONE), (2, ErrorCode::ELIGIBLE_LEADERS_NOT_AVAILABLE.0), (3, NONE)]);
        let of =
            |change: &Change| (change.leader, change.isr.as_deref().map(<[i32]>::to_vec), change.leader_recovery_state);
        assert_eq!(changes.iter().map(of).collect::<Vec<_>>(), [(1, Some(vec![1]), 1), (1, None, -1)]);
    }

    #[test]
    fn a_partition_that_is_named_too_often_elects_nobody() {
        let node = node(&[(&[1, 2], &[1, 2], 2)]);
        let (changes, results) = elect(&node, 0, Some(&[0; 2 * MAX_RECORDS]));
        assert_eq!((changes.len(), results[0]), (0, (0, ErrorCode::POLICY_VIOLATION.0)));
    }

    #[test]
    fn the_answer_to_very_many_partitions_stays_small() {
        let partitions = vec![0; 50_000];
        let topics = vec![TopicPartitions { topic: "x".repeat(30_000).into(), partitions: partitions.into() }];
        let request = ElectLeadersRequest { topic_partitions: Some(topics), election_type: 0, timeout_ms: 1 };
        let node = node(&[]);
        let (_, answer) = elect_leaders(node.view(), &request, 1);
        let results = &answer.replica_election_results[0].partition_result;
        assert!(results.iter().all(|result| result.error_code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0));
        let told = results.iter().filter_map(|result| result.error_message.as_deref().map(str::len)).sum::<usize>();
        assert!(told < 300_000, "{told} bytes");
    }

    #[test]
    fn nothing_and_what_does_not_exist_elect_nobody() {
        let node = node(&[(&[1, 2], &[1, 2], 2)]);
        assert_eq!(elect(&node, 7, Some(&[0])), (vec![], vec![(0, ErrorCode::INVALID_REQUEST.0)]));
        let request = ElectLeadersRequest { topic_partitions: Some(vec![]), election_type: 7, timeout_ms: 1 };
        assert_eq!(elect_leaders(node.view(), &request, 1), (vec![], ElectLeadersResponse::default()));
    }
}
