//! CreatePartitions: more partitions for topics that exist.

use milena_io::Rng;
use milena_metadata::Topic;
use milena_protocol::messages::create_partitions_request::{CreatePartitionsAssignment, CreatePartitionsTopic};
use milena_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use milena_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};
use milena_protocol::{ErrorCode, Str};

use crate::assignment::{Replicas, check_manual, nobody_leads, partition_record};
use crate::error::ApiError;
use crate::limits::{check_partitions, check_records};
use crate::placement::place;
use crate::repeated::Repeated;
use crate::view::{Records, View};

/// Decides a CreatePartitions request: topics grow or are refused on their own; a request that is too large or too late
/// is refused as a whole.
///
/// Names that occur twice get one answer, before the others.
pub fn create_partitions<'a>(
    view: View<'_>,
    request: &CreatePartitionsRequest<'a>,
    rng: &mut dyn Rng,
) -> (Records, CreatePartitionsResponse<'a>) {
    let (records, results) = decide(view, request, rng).unwrap_or_else(|error| {
        (Vec::new(), request.topics.iter().map(|topic| result(&topic.name, Err(&error))).collect())
    });
    (records, CreatePartitionsResponse { results, ..CreatePartitionsResponse::default() })
}

fn decide<'a>(
    view: View<'_>,
    request: &CreatePartitionsRequest<'a>,
    rng: &mut dyn Rng,
) -> Result<(Records, Vec<CreatePartitionsTopicResult<'a>>), ApiError> {
    let repeated = Repeated::of(request.topics.iter().map(|topic| &topic.name));
    let twice = ApiError::new(ErrorCode::INVALID_REQUEST, "Duplicate topic name.");
    let mut results: Vec<_> = repeated.in_order.iter().map(|name| result(name, Err(&twice))).collect();
    let wanted = request.topics.iter().filter(|topic| !repeated.contains(&topic.name));
    let wanted: Vec<&CreatePartitionsTopic<'a>> = wanted.collect();
    if wanted.is_empty() {
        return Ok((Vec::new(), results));
    }
    if request.timeout_ms <= 0 {
        return Err(ApiError::code(ErrorCode::REQUEST_TIMED_OUT));
    }
    check_partition_count(view, &wanted)?;
    let mut records = Vec::new();
    for topic in wanted {
        let made = grow(view, topic, rng);
        results.push(result(&topic.name, made.as_ref().map(|_| ())));
        records.extend(made.unwrap_or_default());
        check_records(&records)?;
    }
    if request.validate_only {
        records.clear();
    }
    Ok((records, results))
}

fn result<'a>(name: &Str<'a>, outcome: Result<(), &ApiError>) -> CreatePartitionsTopicResult<'a> {
    CreatePartitionsTopicResult {
        name: name.clone(),
        error_code: outcome.err().map_or(ErrorCode::NONE, |error| error.code).0,
        error_message: outcome.err().and_then(|error| error.message.clone()),
    }
}

fn check_partition_count(view: View<'_>, topics: &[&CreatePartitionsTopic<'_>]) -> Result<(), ApiError> {
    let additional = |topic: &&CreatePartitionsTopic<'_>| {
        let present = view.image.topics().get(&topic.name)?.partitions.len();
        u64::try_from(topic.count).ok()?.checked_sub(present as u64)
    };
    check_partitions(topics.iter().filter_map(additional).sum(), "additional partitions")
}

/// The records of a topic's new partitions.
fn grow(view: View<'_>, request: &CreatePartitionsTopic<'_>, rng: &mut dyn Rng) -> Result<Records, ApiError> {
    let topic = view.image.topics().get(&request.name);
    let topic = topic.ok_or(ApiError::code(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION))?;
    let present = topic.partitions.len();
    let count = usize::try_from(request.count).unwrap_or(0);
    if count <= present {
        let message = if count == present {
            format!("Topic already has {present} partition(s).")
        } else {
            let (name, count) = (&topic.name, request.count);
            format!("The topic {name} currently has {present} partition(s); {count} would not be an increase.")
        };
        return Err(ApiError::new(ErrorCode::INVALID_PARTITIONS, message));
    }
    let additional = match &request.assignments {
        Some(assignments) => manually_assigned(view, topic, assignments, count - present)?,
        None => assigned(view, topic, count - present, rng)?,
    };
    let first = partition_index(topic);
    let record = |(index, replicas)| partition_record(view.image, topic.id, index, replicas);
    Ok((first..).zip(additional).map(record).collect())
}

/// Index of the first new partition.
fn partition_index(topic: &Topic) -> i32 {
    i32::try_from(topic.partitions.len()).expect("partitions have indexes that are int32")
}

/// Replicas that each partition of the topic has.
fn replication_factor(topic: &Topic) -> usize {
    topic.partitions.first().map_or(0, |partition| partition.replicas.len())
}

fn manually_assigned(
    view: View<'_>,
    topic: &Topic,
    assignments: &[CreatePartitionsAssignment<'_>],
    additional: usize,
) -> Result<Vec<Replicas>, ApiError> {
    if assignments.len() != additional {
        let message = format!(
            "Attempted to add {additional} additional partition(s), but only {} assignment(s) were specified.",
            assignments.len()
        );
        return Err(ApiError::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, message));
    }
    let check = |(index, assignment): (i32, &CreatePartitionsAssignment<'_>)| {
        check_manual(view.image, &assignment.broker_ids, Some(replication_factor(topic)))?;
        let replicas = Replicas::new(view.image, assignment.broker_ids.to_vec());
        if replicas.has_leader() { Ok(replicas) } else { Err(nobody_leads(index)) }
    };
    (partition_index(topic)..).zip(assignments).map(check).collect()
}

fn assigned(view: View<'_>, topic: &Topic, additional: usize, rng: &mut dyn Rng) -> Result<Vec<Replicas>, ApiError> {
    let factor = i16::try_from(replication_factor(topic)).unwrap_or(i16::MAX);
    let placed = place(view.image, additional, factor, rng)
        .map_err(|error| ApiError::new(ErrorCode::INVALID_REPLICATION_FACTOR, error.to_string()))?;
    Ok(placed.into_iter().map(|replicas| Replicas::new(view.image, replicas)).collect())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use milena_io::SimRng;
    use milena_protocol::MetadataRecord;

    use super::*;
    use crate::auto_create::create_topics_automatically;
    use crate::testing::{Node, config};

    /// A node that has the topics `t` with 2 partitions and `u` with 2.
    fn node() -> Node {
        let mut node = Node { config: config("num.partitions=2"), ..Node::new() };
        for (seed, name) in [(1, "t"), (2, "u")] {
            let records = create_topics_automatically(node.view(), [name], &mut SimRng::new(seed)).0;
            node.commit(&records);
        }
        node
    }

    fn to(name: &'static str, count: i32) -> CreatePartitionsTopic<'static> {
        CreatePartitionsTopic { name: name.into(), count, assignments: None }
    }

    fn assigned_to(count: i32, assignments: &[&[i32]]) -> CreatePartitionsTopic<'static> {
        let assignment = |ids: &&[i32]| CreatePartitionsAssignment { broker_ids: Cow::Owned(ids.to_vec()) };
        CreatePartitionsTopic { assignments: Some(assignments.iter().map(assignment).collect()), ..to("t", count) }
    }

    fn decide_on(
        node: &Node,
        topics: Vec<CreatePartitionsTopic<'static>>,
        timeout_ms: i32,
    ) -> (Records, Vec<(String, i16, String)>) {
        let request = CreatePartitionsRequest { topics, timeout_ms, validate_only: false };
        let (records, response) = create_partitions(node.view(), &request, &mut SimRng::new(1));
        let answer = |r: CreatePartitionsTopicResult<'_>| {
            (r.name.into_owned(), r.error_code, r.error_message.map(Cow::into_owned).unwrap_or_default())
        };
        (records, response.results.into_iter().map(answer).collect())
    }

    #[test]
    fn a_topic_grows_by_the_partitions_behind_its_last_one() {
        let mut node = node();
        let (records, answers) = decide_on(&node, vec![to("t", 4), assigned_to(3, &[&[1]])], 1);
        assert_eq!((records.len(), answers[0].1), (0, 42));
        let (records, answers) = decide_on(&node, vec![to("t", 4)], 1);
        assert_eq!(answers, [("t".to_owned(), 0, String::new())]);
        let index = |r: &MetadataRecord<'_>| if let MetadataRecord::Partition(p) = r { p.partition_id } else { -1 };
        assert_eq!(records.iter().map(index).collect::<Vec<_>>(), [2, 3]);
        node.commit(&records);
        assert_eq!(node.image.topics().get("t").unwrap().partitions.len(), 4);
    }

    #[test]
    fn counts_and_assignments_are_checked_with_kafkas_messages() {
        let start = "The manual partition assignment includes";
        let few = |n| format!("Attempted to add 2 additional partition(s), but only {n} assignment(s) were specified.");
        let uneven = "a partition with 2 replica(s), but this is not consistent with previous partitions";
        for (topic, code, message) in [
            (to("t", 2), 37, "Topic already has 2 partition(s).".to_owned()),
            (to("t", 1), 37, "The topic t currently has 2 partition(s); 1 would not be an increase.".to_owned()),
            (to("t", -1), 37, "The topic t currently has 2 partition(s); -1 would not be an increase.".to_owned()),
            (to("no", 3), 3, String::new()),
            (to("t", 10_001), 0, String::new()),
            (assigned_to(4, &[&[1]]), 39, few(1)),
            (assigned_to(4, &[]), 39, few(0)),
            (assigned_to(4, &[&[1], &[1], &[1]]), 39, few(3)),
            (assigned_to(3, &[&[]]), 39, format!("{start} an empty replica list.")),
            (assigned_to(3, &[&[9]]), 39, format!("{start} broker 9, but no such broker is registered.")),
            (assigned_to(3, &[&[1]]), 0, String::new()),
        ] {
            let (records, answers) = decide_on(&node(), vec![topic.clone()], 1);
            assert_eq!((answers[0].1, &answers[0].2), (code, &message), "{topic:?}");
            assert_eq!(records.is_empty(), code != 0, "{topic:?}");
        }
        let image = crate::testing::image([crate::testing::broker(1), crate::testing::broker(2)]);
        let mut two = Node { image, ..node() };
        let records = create_topics_automatically(two.view(), ["t"], &mut SimRng::new(1)).0;
        two.commit(&records);
        let (_, answers) = decide_on(&two, vec![assigned_to(3, &[&[1, 2]])], 1);
        assert!(answers[0].1 == 39 && answers[0].2.starts_with(&format!("{start} {uneven}")), "{answers:?}");
    }

    #[test]
    fn a_repeated_name_is_refused_once_and_the_others_grow() {
        let (records, answers) = decide_on(&node(), vec![to("t", 3), to("u", 3), to("t", 4), to("t", 5)], 1);
        let refused = ("t".to_owned(), 42, "Duplicate topic name.".to_owned());
        assert_eq!((records.len(), answers), (1, vec![refused, ("u".to_owned(), 0, String::new())]));
    }

    #[test]
    fn a_request_that_is_too_late_or_too_large_is_refused_as_a_whole() {
        let (records, answers) = decide_on(&node(), vec![to("t", 3), to("no", 3)], 0);
        assert!(records.is_empty() && answers.iter().all(|a| a.1 == 7 && a.2.is_empty()), "{answers:?}");
        let (records, answers) = decide_on(&node(), vec![to("t", 5003), to("u", 5002)], 1);
        let message = "Excessively large number of additional partitions per request.";
        assert!(records.is_empty() && answers.iter().all(|a| a.1 == 44 && a.2 == message), "{answers:?}");
    }

    #[test]
    fn validate_only_makes_no_records() {
        let topics = vec![to("t", 3)];
        let request = CreatePartitionsRequest { topics, timeout_ms: 1, validate_only: true };
        let (records, response) = create_partitions(node().view(), &request, &mut SimRng::new(1));
        assert_eq!((records.len(), response.results[0].error_code), (0, 0));
    }
}
