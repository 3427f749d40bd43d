//! kafka-topics.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use milena_client::Admin;
use milena_client::admin::{
    ConfigEntry, ConfigResource, NewPartitions, NewTopic, PartitionDescription, Reassignment, TopicDescription,
};
use milena_protocol::{ErrorCode, Uuid};

use super::options::{Flag, Options};
use super::{Ended, Thrown, ask, end, java, need, read, refuse};
use crate::output::{print, print_error};

const ABOUT: &str = "This tool helps to create, delete, describe, or change a topic.";
const ACTIONS: [&str; 5] = ["list", "describe", "create", "alter", "delete"];

const FLAGS: &[Flag] = &[
    Flag::switch("alter", "Alter the number of partitions and replica assignment."),
    Flag::switch(
        "at-min-isr-partitions",
        "Describe only partitions whose isr count is equal to the configured minimum.",
    ),
    Flag::value("bootstrap-server", "REQUIRED: The Kafka server to connect to."),
    Flag::value("command-config", "Property file containing configs to be passed to Admin Client."),
    Flag::value("config", "name=value, a configuration override for the topic being created."),
    Flag::switch("create", "Create a new topic."),
    Flag::switch("delete", "Delete a topic."),
    Flag::value("delete-config", "This option is no longer supported and has been deprecated since 4.0"),
    Flag::switch("describe", "List details for the given topics."),
    Flag::switch("exclude-internal", "Exclude internal topics when listing or describing topics."),
    Flag::switch("help", "Print usage information."),
    Flag::switch("if-exists", "Alter, delete or describe only if the topic exists."),
    Flag::switch("if-not-exists", "Do not fail if the topic to be created exists already."),
    Flag::switch("list", "List all available topics."),
    Flag::value("partition-size-limit-per-response", "Maximum number of partitions in one response."),
    Flag::value("partitions", "The number of partitions for the topic being created or altered."),
    Flag::value("replica-assignment", "broker_id_for_part1_replica1:broker_id_for_part1_replica2,..."),
    Flag::value("replication-factor", "The replication factor of the topic being created."),
    Flag::value("topic", "The topic; a regular expression, except for --create."),
    Flag::value("topic-id", "The topic-id to describe."),
    Flag::switch("topics-with-overrides", "Describe only topics that have overridden configs."),
    Flag::switch("unavailable-partitions", "Describe only partitions whose leader is not available."),
    Flag::switch("under-min-isr-partitions", "Describe only partitions whose isr count is less than the minimum."),
    Flag::switch("under-replicated-partitions", "Describe only under-replicated partitions."),
    Flag::switch("version", "Display Kafka version."),
];

/// Runs the tool.
pub fn run(arguments: &[String]) -> ExitCode {
    let options = match read(FLAGS, ABOUT, arguments).and_then(|options| check(&options).map(|()| options)) {
        Ok(options) => options,
        refused => {
            return end(refused.map(drop), FLAGS, |thrown| {
                print_error(&format!("{}\n", thrown.message));
                1
            });
        }
    };
    end(execute(&options), FLAGS, |thrown| {
        print(&format!("Error while executing topic command : {}\n", thrown.message));
        1
    })
}

fn execute(options: &Options) -> Result<(), Ended> {
    ask(options, async |admin| match ACTIONS.iter().find(|action| options.has(action)) {
        Some(&"list") => list(admin, options).await,
        Some(&"describe") => describe(admin, options).await,
        Some(&"create") => create(admin, options).await,
        Some(&"alter") => alter(admin, options).await,
        _ => delete(admin, options).await,
    })
}

fn check(options: &Options) -> Result<(), Ended> {
    if ACTIONS.iter().filter(|action| options.has(action)).count() != 1 {
        let message =
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete".to_owned();
        return Err(Ended::Usage(message));
    }
    if options.has("delete-config") {
        print_error(
            "delete-config option is no longer supported and deprecated since version 4.0. The config will be fully \
             removed in future releases.\n",
        );
    }
    if !options.has("bootstrap-server") {
        return Err(Thrown::argument("--bootstrap-server must be specified").into());
    }
    if options.has("describe") && options.has("if-exists") {
        match (options.has("topic"), options.has("topic-id")) {
            (false, false) => {
                return Err(Ended::Usage("--topic or --topic-id is required to describe a topic".to_owned()));
            }
            (true, true) => print(
                "Only topic id will be used when both --topic and --topic-id are specified and topicId is not \
                 Uuid.ZERO_UUID\n",
            ),
            _ => {}
        }
    }
    if !options.has("list") && !options.has("describe") {
        need(options, &["topic"])?;
    }
    if options.has("alter") {
        need(options, &["partitions"])?;
    }
    check_invalid(options)
}

/// Options that go with certain actions only.
fn check_invalid(options: &Options) -> Result<(), Ended> {
    let only_with = |option: &str, allowed: &[&str]| {
        let others: Vec<&str> = ACTIONS.into_iter().filter(|action| !allowed.contains(action)).collect();
        refuse(options, option, &others)
    };
    only_with("config", &["create"])?;
    only_with("partitions", &["alter", "create"])?;
    only_with("replication-factor", &["create"])?;
    only_with("replica-assignment", &["alter", "create"])?;
    if options.has("create") {
        refuse(options, "replica-assignment", &["partitions", "replication-factor"])?;
    }
    let reports =
        ["under-replicated-partitions", "under-min-isr-partitions", "at-min-isr-partitions", "unavailable-partitions"];
    for report in reports {
        refuse(options, report, &["topics-with-overrides"])?;
        only_with(report, &["describe"])?;
    }
    only_with("topics-with-overrides", &["describe"])?;
    only_with("if-exists", &["alter", "delete", "describe"])?;
    only_with("if-not-exists", &["create"])?;
    only_with("exclude-internal", &["list", "describe"])
}

/// The topics that the options name, in order.
async fn topics(admin: &Admin, options: &Options) -> Result<Vec<String>, Ended> {
    let pattern = options.value("topic")?.map(java::topic_filter).transpose()?;
    let exclude_internal = options.has("exclude-internal");
    let mut names: Vec<String> = admin
        .list_topics()
        .await?
        .into_iter()
        .filter(|topic| !(exclude_internal && topic.internal))
        .map(|topic| topic.name)
        .filter(|name| pattern.as_ref().is_none_or(|pattern| pattern.is_match(name)))
        .collect();
    names.sort();
    Ok(names)
}

/// The same, at least one unless `--if-exists` is given.
async fn existing(admin: &Admin, options: &Options) -> Result<Vec<String>, Ended> {
    let topics = topics(admin, options).await?;
    match options.value("topic")? {
        Some(asked) if !asked.is_empty() && topics.is_empty() && !options.has("if-exists") => {
            Err(Thrown::argument(format!("Topic '{asked}' does not exist as expected")).into())
        }
        _ => Ok(topics),
    }
}

async fn list(admin: &Admin, options: &Options) -> Result<(), Ended> {
    print(&format!("{}\n", topics(admin, options).await?.join("\n")));
    Ok(())
}

async fn create(admin: &Admin, options: &Options) -> Result<(), Ended> {
    let topic = new_topic(options)?;
    if topic.name.contains(['.', '_']) {
        print(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could \
             collide. To avoid issues it is best to use either, but not both.\n",
        );
    }
    let name = topic.name.clone();
    for (_, created) in admin.create_topics(vec![topic], false).await? {
        match created {
            Ok(_) => print(&format!("Created topic {name}.\n")),
            Err(error) if error.code() == Some(ErrorCode::TOPIC_ALREADY_EXISTS) && options.has("if-not-exists") => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn new_topic(options: &Options) -> Result<NewTopic, Ended> {
    let configs: Option<Vec<(String, String)>> = options
        .values("config")
        .into_iter()
        .map(|text| match text.split('=').collect::<Vec<_>>()[..] {
            [name, value] if !value.is_empty() => Some((name.trim().to_owned(), value.trim().to_owned())),
            _ => None,
        })
        .collect();
    let configs = configs.ok_or_else(|| {
        let message = "requirement failed: Invalid topic config: all configs to be added must be in the format \
                       \"key=val\".";
        Thrown::argument(message)
    })?;
    let replication_factor: Option<i32> = options.number("replication-factor")?;
    if replication_factor.is_some_and(|factor| !(1..=i32::from(i16::MAX)).contains(&factor)) {
        let message = format!("The replication factor must be between 1 and {} inclusive", i16::MAX);
        return Err(Thrown::argument(message).into());
    }
    let partitions: Option<i32> = options.number("partitions")?;
    if partitions.is_some_and(|partitions| partitions < 1) {
        return Err(Thrown::argument("The partitions must be greater than 0").into());
    }
    let name = options.value("topic")?.unwrap_or_default();
    let assignments = options.value("replica-assignment")?.map(replica_assignment).transpose()?.unwrap_or_default();
    Ok(NewTopic {
        name: name.to_owned(),
        partitions,
        replication_factor: replication_factor.and_then(|factor| i16::try_from(factor).ok()),
        assignments,
        configs,
    })
}

/// `1:2,2:1`: the brokers of each partition.
fn replica_assignment(text: &str) -> Result<Vec<Vec<i32>>, Thrown> {
    let mut partitions: Vec<Vec<i32>> = Vec::new();
    for (partition, brokers) in text.split(',').filter(|part| !part.is_empty()).enumerate() {
        let parse = |broker: &str| {
            let number = broker.trim().parse::<i32>();
            number.map_err(|_| Thrown::new(java::NUMBER_FORMAT, format!("For input string: \"{}\"", broker.trim())))
        };
        let brokers = brokers.split(':').map(parse).collect::<Result<Vec<_>, _>>()?;
        let twice: Vec<String> = (1..brokers.len())
            .filter(|&place| brokers[..place].contains(&brokers[place]))
            .map(|place| brokers[place].to_string())
            .collect();
        if !twice.is_empty() {
            let message = format!("Partition replica lists may not contain duplicate entries: {}", twice.join(","));
            return Err(Thrown::new(java::ADMIN_COMMAND_FAILED, message));
        }
        if partitions.first().is_some_and(|first| first.len() != brokers.len()) {
            let message = format!("Partition {partition} has different replication factor: {brokers:?}");
            return Err(Thrown::new(java::ADMIN_OPERATION, message));
        }
        partitions.push(brokers);
    }
    Ok(partitions)
}

async fn alter(admin: &Admin, options: &Options) -> Result<(), Ended> {
    let topics = existing(admin, options).await?;
    if topics.is_empty() {
        return Ok(());
    }
    let count: i32 = options.number("partitions")?.unwrap_or_default();
    let assignment = options.value("replica-assignment")?.map(replica_assignment).transpose()?;
    let mut changes = Vec::new();
    for name in topics {
        let assignments = match &assignment {
            Some(all) => {
                let existing = described(admin, std::slice::from_ref(&name)).await?;
                let existing = existing.first().map_or(0, |topic| topic.partitions.len());
                Some(all.iter().skip(existing).cloned().collect())
            }
            None => None,
        };
        changes.push((name, NewPartitions { count, assignments }));
    }
    for (_, changed) in admin.create_partitions(changes, false).await? {
        changed?;
    }
    Ok(())
}

async fn delete(admin: &Admin, options: &Options) -> Result<(), Ended> {
    let topics = existing(admin, options).await?;
    if topics.is_empty() {
        return Ok(());
    }
    for (_, deleted) in admin.delete_topics(&topics).await? {
        deleted?;
    }
    Ok(())
}

async fn described(admin: &Admin, names: &[String]) -> Result<Vec<TopicDescription>, Ended> {
    let described = admin.describe_topics(names).await?;
    Ok(described.into_iter().map(|(_, topic)| topic).collect::<Result<_, _>>()?)
}

/// What to describe: by id, or by name.
async fn asked(admin: &Admin, options: &Options) -> Result<Vec<TopicDescription>, Ended> {
    let id = options.value("topic-id")?.map(|text| {
        text.parse::<Uuid>().map_err(|_| Thrown::argument(format!("Input string with prefix `{text}` is not an id")))
    });
    match id.transpose()?.filter(|id| !id.is_zero()) {
        None => {
            let names = existing(admin, options).await?;
            if names.is_empty() { Ok(Vec::new()) } else { described(admin, &names).await }
        }
        Some(id) => {
            let found = admin.list_topics().await?.into_iter().find(|topic| topic.id == id);
            match found.filter(|topic| !(topic.internal && options.has("exclude-internal"))) {
                Some(topic) => described(admin, &[topic.name]).await,
                None if options.has("if-exists") => Ok(Vec::new()),
                None => Err(Thrown::argument(format!("TopicId '{id}' does not exist as expected")).into()),
            }
        }
    }
}

async fn describe(admin: &Admin, options: &Options) -> Result<(), Ended> {
    let topics = asked(admin, options).await?;
    if topics.is_empty() {
        return Ok(());
    }
    let resources = topics.iter().map(|topic| ConfigResource::topic(&topic.name)).collect();
    let mut configs = BTreeMap::new();
    for (resource, described) in admin.describe_configs(resources, false).await? {
        let mut entries = described?;
        java::hash_order(&mut entries, |entry| &entry.name);
        configs.insert(resource.name, entries);
    }
    let live = if options.has("unavailable-partitions") {
        admin.describe_cluster().await?.brokers.iter().map(|broker| broker.id).collect()
    } else {
        Vec::new()
    };
    let moving = admin.list_reassignments().await?;
    let report = Report::new(options);
    let mut text = String::new();
    for topic in &topics {
        let configs = configs.get(&topic.name).map_or(&[][..], Vec::as_slice);
        report.topic(&mut text, topic, configs, &live, &moving);
    }
    print(&text);
    Ok(())
}

/// What a description shows.
struct Report {
    under_replicated: bool,
    unavailable: bool,
    under_min_isr: bool,
    at_min_isr: bool,
    overrides: bool,
}

impl Report {
    fn new(options: &Options) -> Self {
        Self {
            under_replicated: options.has("under-replicated-partitions"),
            unavailable: options.has("unavailable-partitions"),
            under_min_isr: options.has("under-min-isr-partitions"),
            at_min_isr: options.has("at-min-isr-partitions"),
            overrides: options.has("topics-with-overrides"),
        }
    }

    fn is_whole(&self) -> bool {
        !(self.under_replicated || self.unavailable || self.under_min_isr || self.at_min_isr)
    }

    fn topic(
        &self,
        text: &mut String,
        topic: &TopicDescription,
        configs: &[ConfigEntry],
        live: &[i32],
        moving: &[Reassignment],
    ) {
        let own: Vec<String> = configs
            .iter()
            .filter(|entry| !entry.is_default())
            .map(|entry| format!("{}={}", entry.name, entry.value.as_deref().unwrap_or("null")))
            .collect();
        let move_of =
            |partition: i32| moving.iter().find(|moving| moving.topic == topic.name && moving.partition == partition);
        if self.is_whole() && !(self.overrides && own.is_empty()) {
            let factor =
                topic.partitions.first().map_or(0, |first| replication_factor(first, move_of(first.partition)));
            let _ = write!(text, "Topic: {}", topic.name);
            if !topic.id.is_zero() {
                let _ = write!(text, "\tTopicId: {}", topic.id);
            }
            let _ = writeln!(
                text,
                "\tPartitionCount: {}\tReplicationFactor: {factor}\tConfigs: {}",
                topic.partitions.len(),
                own.join(",")
            );
        }
        let min_isr = configs.iter().find(|entry| entry.name == "min.insync.replicas");
        let min_isr = min_isr.and_then(|entry| entry.value.as_deref()?.parse().ok()).unwrap_or(1);
        for partition in topic.partitions.iter().filter(|_| !self.overrides) {
            if self.is_whole() || self.shows(partition, move_of(partition.partition), min_isr, live) {
                text.push_str(&partition_line(&topic.name, partition, move_of(partition.partition)));
            }
        }
    }

    fn shows(
        &self,
        partition: &PartitionDescription,
        moving: Option<&Reassignment>,
        min_isr: usize,
        live: &[i32],
    ) -> bool {
        let in_sync = partition.in_sync.len();
        (self.under_replicated && replication_factor(partition, moving) > in_sync)
            || (self.unavailable && partition.leader.is_none_or(|leader| !live.contains(&leader)))
            || (self.under_min_isr && (partition.leader.is_none() || in_sync < min_isr))
            || (self.at_min_isr && in_sync == min_isr)
    }
}

/// Replicas that are being added do not count.
fn replication_factor(partition: &PartitionDescription, moving: Option<&Reassignment>) -> usize {
    let changing = |id: &i32| moving.is_some_and(|moving| moving.adding.contains(id) || moving.removing.contains(id));
    match moving.filter(|_| partition.replicas.iter().any(changing)) {
        Some(moving) => moving.replicas.len().saturating_sub(moving.adding.len()),
        None => partition.replicas.len(),
    }
}

fn partition_line(topic: &str, partition: &PartitionDescription, moving: Option<&Reassignment>) -> String {
    let list = |ids: &[i32]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let known = |ids: &Option<Vec<i32>>| ids.as_deref().map_or_else(|| "N/A".to_owned(), list);
    let leader = partition.leader.map_or_else(|| "none".to_owned(), |leader| leader.to_string());
    let moving = moving.map_or_else(String::new, |moving| {
        format!("\tAdding Replicas: {}\tRemoving Replicas: {}", list(&moving.adding), list(&moving.removing))
    });
    format!(
        "\tTopic: {topic}\tPartition: {}\tLeader: {leader}\tReplicas: {}\tIsr: {}{moving}\tElr: {}\tLastKnownElr: {}\n",
        partition.partition,
        list(&partition.replicas),
        list(&partition.in_sync),
        known(&partition.eligible_leaders),
        known(&partition.last_known_eligible),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition() -> PartitionDescription {
        PartitionDescription {
            partition: 0,
            leader: Some(1),
            leader_epoch: 0,
            replicas: vec![1, 2],
            in_sync: vec![1],
            offline: Vec::new(),
            eligible_leaders: Some(Vec::new()),
            last_known_eligible: None,
        }
    }

    #[test]
    fn a_partition_is_a_line_of_tabs() {
        let expected = "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1\tElr: \tLastKnownElr: N/A\n";
        assert_eq!(partition_line("t", &partition(), None), expected);
        let moving = Reassignment {
            topic: "t".into(),
            partition: 0,
            replicas: vec![1, 2, 3],
            adding: vec![3],
            removing: vec![2],
        };
        let line = partition_line("t", &partition(), Some(&moving));
        assert!(line.contains("\tIsr: 1\tAdding Replicas: 3\tRemoving Replicas: 2\tElr: "), "{line}");
        assert_eq!(replication_factor(&partition(), Some(&moving)), 2);
    }

    #[test]
    fn an_assignment_names_each_partitions_brokers() {
        assert_eq!(replica_assignment("1:2,2:1"), Ok(vec![vec![1, 2], vec![2, 1]]));
        let message = |text| replica_assignment(text).unwrap_err().message;
        assert_eq!(message("1:1"), "Partition replica lists may not contain duplicate entries: 1");
        assert_eq!(message("1,1:2"), "Partition 1 has different replication factor: [1, 2]");
        assert_eq!(message("a"), "For input string: \"a\"");
    }
}
