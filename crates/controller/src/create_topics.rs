//! CreateTopics: what is checked, in Kafka's order, and the records of a new topic. Placement and manual assignments have
//! their own modules.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use milena_config::describe::{self, Options};
use milena_config::{Overrides, topic};
use milena_io::Rng;
use milena_protocol::messages::create_topics_request::CreatableTopic;
use milena_protocol::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use milena_protocol::messages::{ConfigRecord, CreateTopicsRequest, CreateTopicsResponse, TopicRecord};
use milena_protocol::{ErrorCode, Uuid};

use crate::assignment::{Replicas, check_manual, nobody_leads, partition_record};
use crate::config_records::{MAX_VALUE_LENGTH, clear_elr_records, value_too_long};
use crate::error::ApiError;
use crate::limits::{check_partitions, check_records};
use crate::name::{has_collision_characters, unified, validate_topic_name};
use crate::placement::place;
use crate::repeated::Repeated;
use crate::view::{Records, View};

/// The topic that the quorum keeps for itself.
const METADATA_TOPIC: &str = "__cluster_metadata";

/// Decides a CreateTopics request: each topic is created or refused on its own; a request that is too large or too late
/// is refused as a whole.
///
/// Names that occur twice get one answer, behind the others.
pub fn create_topics<'a>(
    view: View<'_>,
    request: &CreateTopicsRequest<'a>,
    rng: &mut dyn Rng,
) -> (Records, CreateTopicsResponse<'a>) {
    let (records, topics) = decide(view, request, rng).unwrap_or_else(|error| {
        let refused = request.topics.iter().map(|topic| refused(&topic.name, &error));
        (Vec::new(), refused.collect())
    });
    (records, CreateTopicsResponse { topics, ..CreateTopicsResponse::default() })
}

/// Makes the records of one of `topics` after the other, each checked by the same rules as the only one of a request; the
/// errors are what the response would say.
pub(crate) fn creator(
    view: View<'_>,
    topics: &[CreatableTopic<'_>],
) -> impl Fn(&CreatableTopic<'_>, &mut dyn Rng) -> Result<Records, ApiError> {
    let existing = ExistingNames::new(view, topics.iter().map(|topic| &*topic.name));
    move |topic, rng| {
        if topic.name == METADATA_TOPIC {
            return Err(prohibited());
        }
        check_partition_count(view, &[topic])?;
        let mut records = Records::new();
        NewTopic::check(view, topic, &existing, rng)?.create(view, topic, &mut records, rng);
        check_records(&records)?;
        Ok(records)
    }
}

fn prohibited() -> ApiError {
    let message = format!("Creation of internal topic {METADATA_TOPIC} is prohibited.");
    ApiError::new(ErrorCode::INVALID_REQUEST, message)
}

fn decide<'a>(
    view: View<'_>,
    request: &CreateTopicsRequest<'a>,
    rng: &mut dyn Rng,
) -> Result<(Records, Vec<CreatableTopicResult<'a>>), ApiError> {
    let repeated = Repeated::of(request.topics.iter().map(|topic| &topic.name).filter(|name| *name != METADATA_TOPIC));
    let wanted = |t: &&CreatableTopic<'a>| t.name != METADATA_TOPIC && !repeated.contains(&t.name);
    let wanted: Vec<&CreatableTopic<'a>> = request.topics.iter().filter(wanted).collect();
    let mut records = Vec::new();
    let mut results = Vec::with_capacity(request.topics.len());
    if !wanted.is_empty() {
        if request.timeout_ms <= 0 {
            return Err(ApiError::code(ErrorCode::REQUEST_TIMED_OUT));
        }
        check_partition_count(view, &wanted)?;
        let existing = ExistingNames::new(view, wanted.iter().map(|topic| &*topic.name));
        for topic in wanted {
            match NewTopic::check(view, topic, &existing, rng) {
                Ok(new) => results.push(new.create(view, topic, &mut records, rng)),
                Err(error) => results.push(refused(&topic.name, &error)),
            }
            check_records(&records)?;
        }
    }
    for name in repeated.in_order {
        results.push(refused(name, &ApiError::new(ErrorCode::INVALID_REQUEST, "Duplicate topic name.")));
    }
    if let Some(topic) = request.topics.iter().find(|t| t.name == METADATA_TOPIC) {
        results.push(refused(&topic.name, &prohibited()));
    }
    if request.validate_only {
        records.clear();
    }
    Ok((records, results))
}

fn check_partition_count(view: View<'_>, topics: &[&CreatableTopic<'_>]) -> Result<(), ApiError> {
    let count = |topic: &&CreatableTopic<'_>| match topic.num_partitions {
        _ if !topic.assignments.is_empty() => topic.assignments.len() as u64,
        -1 => u64::from(view.config.num_partitions().unsigned_abs()),
        count => u64::try_from(count).unwrap_or(0),
    };
    check_partitions(topics.iter().map(count).sum(), "partitions")
}

fn refused<'a>(name: &Cow<'a, str>, error: &ApiError) -> CreatableTopicResult<'a> {
    CreatableTopicResult {
        name: name.clone(),
        error_code: error.code.0,
        error_message: error.message.clone(),
        ..CreatableTopicResult::default()
    }
}

/// Names of existing topics that new ones may collide with, by their unified form.
struct ExistingNames(HashMap<String, String>);

impl ExistingNames {
    fn new<'n>(view: View<'_>, mut wanted: impl Iterator<Item = &'n str>) -> Self {
        if !wanted.any(has_collision_characters) {
            return Self(HashMap::new());
        }
        let names = view.image.topics().iter().map(|t| &*t.name).filter(|name| has_collision_characters(name));
        Self(names.map(|name| (unified(name), name.to_owned())).collect())
    }

    fn check(&self, view: View<'_>, name: &str) -> Result<(), ApiError> {
        if view.image.topics().get(name).is_some() {
            return Err(ApiError::new(ErrorCode::TOPIC_ALREADY_EXISTS, format!("Topic '{name}' already exists.")));
        }
        validate_topic_name(name)?;
        match self.0.get(&unified(name)).filter(|_| has_collision_characters(name)) {
            Some(other) => {
                let message = format!("Topic '{name}' collides with existing topic: {other}");
                Err(ApiError::new(ErrorCode::INVALID_TOPIC_EXCEPTION, message))
            }
            None => Ok(()),
        }
    }
}

/// A topic that passed every check.
struct NewTopic {
    overrides: Overrides,
    partitions: Vec<Replicas>,
}

impl NewTopic {
    fn check(
        view: View<'_>,
        topic: &CreatableTopic<'_>,
        existing: &ExistingNames,
        rng: &mut dyn Rng,
    ) -> Result<Self, ApiError> {
        existing.check(view, &topic.name)?;
        let overrides = check_configs(view, topic)?;
        let partitions =
            if topic.assignments.is_empty() { assigned(view, topic, rng)? } else { manually_assigned(view, topic)? };
        Ok(Self { overrides, partitions })
    }

    /// The topic's records go behind `records`: itself, its configurations, its partitions.
    fn create<'a>(
        self,
        view: View<'_>,
        topic: &CreatableTopic<'a>,
        records: &mut Records,
        rng: &mut dyn Rng,
    ) -> CreatableTopicResult<'a> {
        let topic_id = Uuid::random(|bytes| rng.fill(bytes));
        let result = CreatableTopicResult {
            name: topic.name.clone(),
            topic_id,
            error_message: None,
            // The count was checked to be at most 10,000, and replicas are distinct brokers.
            num_partitions: i32::try_from(self.partitions.len()).unwrap_or(i32::MAX),
            replication_factor: i16::try_from(self.partitions[0].assigned.len()).unwrap_or(i16::MAX),
            configs: Some(effective_configs(view, &self.overrides)),
            ..CreatableTopicResult::default()
        };
        records.push(TopicRecord { name: Cow::Owned(topic.name.to_string()), topic_id }.into());
        let configs = records.len();
        records.extend(config_names(topic).map(|name| {
            let value = self.overrides.get(name).cloned().map(Cow::Owned);
            let resource_name = Cow::Owned(topic.name.to_string());
            ConfigRecord { resource_type: 2, resource_name, name: Cow::Owned(name.to_owned()), value }.into()
        }));
        let clear = clear_elr_records(view.image, &records[configs..]);
        records.extend(clear);
        for (index, replicas) in (0..).zip(self.partitions) {
            records.push(partition_record(view.image, topic_id, index, replicas));
        }
        result
    }
}

/// Names of a topic's configurations in the order of the request, each once.
fn config_names<'t>(topic: &'t CreatableTopic<'_>) -> impl Iterator<Item = &'t str> {
    let mut seen = HashSet::new();
    topic.configs.iter().map(|c| &*c.name).filter(move |name| seen.insert(*name))
}

fn check_configs(view: View<'_>, topic: &CreatableTopic<'_>) -> Result<Overrides, ApiError> {
    let nulls: Vec<&str> = topic.configs.iter().filter(|c| c.value.is_none()).map(|c| &*c.name).collect();
    if !nulls.is_empty() {
        let message = format!("Null value not supported for topic configs: {}", nulls.join(","));
        return Err(ApiError::new(ErrorCode::INVALID_CONFIG, message));
    }
    let set = topic.configs.iter().filter_map(|c| Some((c.name.to_string(), c.value.as_deref()?.to_owned())));
    let overrides: Overrides = set.collect();
    if overrides.values().any(|value| value.len() > MAX_VALUE_LENGTH) {
        return Err(value_too_long());
    }
    topic::validate(view.config, &overrides, &Overrides::new())?;
    Ok(overrides)
}

fn manually_assigned(view: View<'_>, topic: &CreatableTopic<'_>) -> Result<Vec<Replicas>, ApiError> {
    let not_default = match (topic.replication_factor, topic.num_partitions) {
        (-1, -1) => None,
        (-1, _) => Some("numPartitions"),
        _ => Some("replication factor"),
    };
    if let Some(field) = not_default {
        let message = format!("A manual partition assignment was specified, but {field} was not set to -1.");
        return Err(ApiError::new(ErrorCode::INVALID_REQUEST, message));
    }
    let refuse = |message: String| ApiError::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, message);
    let mut by_index = std::collections::BTreeMap::new();
    let mut replication_factor = None;
    for assignment in &topic.assignments {
        let index = assignment.partition_index;
        if by_index.contains_key(&index) {
            return Err(refuse(format!("Found multiple manual partition assignments for partition {index}")));
        }
        check_manual(view.image, &assignment.broker_ids, replication_factor)?;
        replication_factor = Some(assignment.broker_ids.len());
        let replicas = Replicas::new(view.image, assignment.broker_ids.to_vec());
        if !replicas.has_leader() {
            return Err(nobody_leads(index));
        }
        by_index.insert(index, replicas);
    }
    if by_index.keys().copied().ne((0..).take(by_index.len())) {
        return Err(refuse("partitions should be a consecutive 0-based integer sequence".to_owned()));
    }
    Ok(by_index.into_values().collect())
}

fn assigned(view: View<'_>, topic: &CreatableTopic<'_>, rng: &mut dyn Rng) -> Result<Vec<Replicas>, ApiError> {
    let replication_factor = match topic.replication_factor {
        -1 => i16::try_from(view.config.default_replication_factor()).unwrap_or(i16::MAX),
        factor => factor,
    };
    if topic.replication_factor < -1 || topic.replication_factor == 0 {
        let message = "Replication factor must be larger than 0, or -1 to use the default value.";
        return Err(ApiError::new(ErrorCode::INVALID_REPLICATION_FACTOR, message));
    }
    let partitions = if topic.num_partitions == -1 { view.config.num_partitions() } else { topic.num_partitions };
    let partitions = usize::try_from(partitions).ok().filter(|n| *n > 0);
    let partitions = partitions.ok_or_else(|| {
        let message = "Number of partitions was set to an invalid non-positive value.";
        ApiError::new(ErrorCode::INVALID_PARTITIONS, message)
    })?;
    let refuse = |reason: String| {
        let message = format!("Unable to replicate the partition {replication_factor} time(s): {reason}");
        ApiError::new(ErrorCode::INVALID_REPLICATION_FACTOR, message)
    };
    let placed = place(view.image, partitions, replication_factor, rng).map_err(|e| refuse(e.to_string()))?;
    Ok(placed.into_iter().map(|replicas| Replicas::new(view.image, replicas)).collect())
}

/// What the topic's configuration is. Values that were given are told as they were written, not as they are understood.
fn effective_configs(view: View<'_>, overrides: &Overrides) -> Vec<CreatableTopicConfigs<'static>> {
    let entries = describe::topic(view.config, overrides, Options::default()).into_iter();
    let configs = entries.map(|entry| CreatableTopicConfigs {
        value: overrides.get(&entry.name).cloned().or(entry.value).map(Cow::Owned),
        name: Cow::Owned(entry.name),
        read_only: entry.read_only,
        config_source: entry.source.code(),
        is_sensitive: entry.sensitive,
    });
    configs.collect()
}

#[cfg(test)]
mod tests;
