//! `milena topic`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use milena_client::Admin;
use milena_client::admin::{
    ConfigEntry, ConfigResource, CreatedTopic, NewPartitions, NewTopic, TopicDescription, TopicPartition,
};
use milena_protocol::ErrorCode;
use serde_json::{Map, Value, json};

use super::Tally;
use crate::connect;
use crate::failure::usage;
use crate::output::{Output, Table};

/// Arguments of `milena topic`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    at: connect::Arguments,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Lists topics.
    #[command(visible_alias = "ls")]
    List {
        /// The cluster's own topics too.
        #[arg(long)]
        internal: bool,
    },
    /// Shows partitions, leaders, replicas and configurations.
    Describe {
        /// Topics; all when none is given.
        topics: Vec<String>,
    },
    /// Creates topics.
    Create(Create),
    /// Adds partitions to a topic.
    Alter {
        /// The topic.
        topic: String,
        /// How many partitions it shall have in all.
        #[arg(long, short)]
        partitions: i32,
        /// Only says whether that is possible.
        #[arg(long)]
        dry_run: bool,
    },
    /// Deletes topics with all their records.
    #[command(visible_alias = "rm")]
    Delete {
        /// The topics.
        #[arg(required = true)]
        topics: Vec<String>,
        /// Topics that do not exist are no error.
        #[arg(long)]
        if_exists: bool,
    },
    /// Deletes the records at the beginning of partitions.
    DeleteRecords {
        /// What to delete: topic:partition:offset, where the records before the offset go; -1 stands for all.
        #[arg(required = true, value_name = "TOPIC:PARTITION:OFFSET")]
        before: Vec<String>,
    },
}

#[derive(clap::Args)]
struct Create {
    /// The topics.
    #[arg(required = true)]
    topics: Vec<String>,
    /// How many partitions each; the cluster's default when not given.
    #[arg(long, short)]
    partitions: Option<i32>,
    /// How many replicas of each partition; the cluster's default when not given.
    #[arg(long, short)]
    replication_factor: Option<i16>,
    /// A configuration of the topics; can be given many times.
    #[arg(long, short, value_name = "NAME=VALUE")]
    config: Vec<String>,
    /// Topics that exist are no error.
    #[arg(long)]
    if_not_exists: bool,
    /// Only says whether that is possible.
    #[arg(long)]
    dry_run: bool,
}

/// Runs one of the topic commands.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let output = arguments.at.output();
    arguments.at.ask(async |admin| match &arguments.command {
        Command::List { internal } => list(admin, output, *internal).await.context("listing topics"),
        Command::Describe { topics } => describe(admin, output, topics).await.context("describing topics"),
        Command::Create(create) => create.run(admin, output).await.context("creating topics"),
        Command::Alter { topic, partitions, dry_run } => {
            let new = NewPartitions { count: *partitions, assignments: None };
            let mut tally = Tally::new(if *dry_run { "can be altered" } else { "altered" });
            for (name, altered) in admin.create_partitions(vec![(topic.clone(), new)], *dry_run).await? {
                tally.add(output, &format!("topic {name}"), altered.map(drop));
            }
            Ok(tally.end(output))
        }
        Command::Delete { topics, if_exists } => {
            let mut tally = Tally::new("deleted");
            for (name, deleted) in admin.delete_topics(topics).await.context("deleting topics")? {
                let forgiven = *if_exists && is(&deleted, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
                tally.add(output, &format!("topic {name}"), if forgiven { Ok(()) } else { deleted });
            }
            Ok(tally.end(output))
        }
        Command::DeleteRecords { before } => delete_records(admin, output, before).await,
    })
}

fn is<T>(outcome: &Result<T, milena_client::Error>, code: ErrorCode) -> bool {
    outcome.as_ref().is_err_and(|error| error.code() == Some(code))
}

async fn list(admin: &Admin, output: Output, internal: bool) -> Result<ExitCode> {
    let mut topics = admin.list_topics().await?;
    topics.retain(|topic| internal || !topic.internal);
    topics.sort_by(|one, other| one.name.cmp(&other.name));
    let mut table = Table::new(["topic", "partitions", "replication_factor"]).and_for_programs(&["id", "internal"]);
    for topic in topics {
        table.row([
            json!(topic.name),
            json!(topic.partitions),
            json!(topic.replication_factor),
            json!(topic.id.to_string()),
            json!(topic.internal),
        ]);
    }
    output.table(&table);
    Ok(ExitCode::SUCCESS)
}

async fn describe(admin: &Admin, output: Output, names: &[String]) -> Result<ExitCode> {
    let mut names = names.to_vec();
    if names.is_empty() {
        let listed = admin.list_topics().await?;
        names = listed.into_iter().filter(|topic| !topic.internal).map(|topic| topic.name).collect();
        names.sort();
    }
    let mut tally = Tally::new("described");
    let mut topics = Vec::new();
    for (name, topic) in admin.describe_topics(&names).await? {
        match topic {
            Ok(topic) => topics.push(topic),
            Err(error) => tally.add(output, &format!("topic {name}"), Err(error)),
        }
    }
    let resources = topics.iter().map(|topic| ConfigResource::topic(&topic.name)).collect();
    let configs = admin.describe_configs(resources, false).await?;
    let mut values = Vec::new();
    for (topic, (_, configs)) in topics.iter().zip(configs) {
        let mut configs = configs?;
        configs.retain(|entry| !entry.is_default());
        if output.is_table() {
            show(output, topic, &configs);
        }
        values.push(value(topic, &configs));
    }
    if !output.is_table() {
        output.value(&Value::Array(values));
    }
    Ok(tally.code())
}

fn partitions(topic: &TopicDescription) -> Table {
    let columns = ["partition", "leader", "replicas", "in_sync"];
    let mut table =
        Table::new(columns).and_for_programs(&["leader_epoch", "offline", "eligible_leaders", "last_known_eligible"]);
    for partition in &topic.partitions {
        table.row([
            json!(partition.partition),
            json!(partition.leader),
            json!(partition.replicas),
            json!(partition.in_sync),
            json!(partition.leader_epoch),
            json!(partition.offline),
            json!(partition.eligible_leaders),
            json!(partition.last_known_eligible),
        ]);
    }
    table
}

fn show(output: Output, topic: &TopicDescription, configs: &[ConfigEntry]) {
    let count = topic.partitions.len();
    let plural = if count == 1 { "" } else { "s" };
    output.note(&format!("topic {} ({}): {count} partition{plural}", topic.name, topic.id));
    for entry in configs {
        output.note(&format!("  {}={}", entry.name, entry.value.as_deref().unwrap_or("(secret)")));
    }
    output.table(&partitions(topic));
    output.note("");
}

fn value(topic: &TopicDescription, configs: &[ConfigEntry]) -> Value {
    let configs: Map<String, Value> = configs.iter().map(|entry| (entry.name.clone(), json!(entry.value))).collect();
    json!({
        "topic": topic.name,
        "id": topic.id.to_string(),
        "internal": topic.internal,
        "partitions": partitions(topic).value(),
        "configs": configs,
    })
}

impl Create {
    async fn run(&self, admin: &Admin, output: Output) -> Result<ExitCode> {
        let configs = super::assignments(&self.config)?;
        let topic = |name: &String| NewTopic {
            name: name.clone(),
            partitions: self.partitions,
            replication_factor: self.replication_factor,
            assignments: Vec::new(),
            configs: configs.clone(),
        };
        let topics = self.topics.iter().map(topic).collect();
        let mut tally = Tally::new(if self.dry_run { "can be created" } else { "created" });
        for (name, created) in admin.create_topics(topics, self.dry_run).await? {
            let what = match &created {
                Ok(created) if created.partitions >= 0 => {
                    let CreatedTopic { partitions, replication_factor, .. } = created;
                    format!("topic {name} (partitions: {partitions}, replication factor: {replication_factor})")
                }
                _ => format!("topic {name}"),
            };
            if self.if_not_exists && is(&created, ErrorCode::TOPIC_ALREADY_EXISTS) {
                output.note(&format!("topic {name} exists already"));
            } else {
                tally.add(output, &what, created.map(drop));
            }
        }
        Ok(tally.end(output))
    }
}

async fn delete_records(admin: &Admin, output: Output, before: &[String]) -> Result<ExitCode> {
    let mut wanted = Vec::new();
    for text in before {
        let parsed = text
            .rsplit_once(':')
            .and_then(|(partition, offset)| Some((super::partition(partition).ok()?, offset.parse().ok()?)));
        let Some(parsed): Option<(TopicPartition, i64)> = parsed else {
            return Err(usage!("`{text}`: is not topic:partition:offset, such as orders:0:1000"));
        };
        wanted.push(parsed);
    }
    let mut table = Table::new(["topic", "partition", "start_offset"]);
    let mut tally = Tally::new("cut");
    for (partition, deleted) in admin.delete_records(wanted).await {
        match deleted {
            Ok(start) => table.row([json!(&*partition.topic), json!(partition.partition), json!(start)]),
            Err(error) => tally.add(output, &format!("partition {partition}"), Err(error)),
        }
    }
    output.table(&table);
    Ok(tally.code())
}
