//! `milena group`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use milena_client::Admin;
use milena_client::admin::{CommittedOffset, GroupDescription, OffsetSpec, TopicPartition};
use milena_protocol::ErrorCode;
use serde_json::{Value, json};

use super::Tally;
use crate::connect;
use crate::failure::usage;
use crate::output::{Output, Table};
use crate::reset::{self, Goal};

/// Arguments of `milena group`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    at: connect::Arguments,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Lists groups.
    #[command(visible_alias = "ls")]
    List {
        /// Only groups in this state, such as Stable or Empty; can be given many times.
        #[arg(long)]
        state: Vec<String>,
        /// Only groups of this type: classic, consumer; can be given many times.
        #[arg(long = "type", value_name = "TYPE")]
        kind: Vec<String>,
    },
    /// Shows how far groups are, and how far behind.
    Describe {
        /// The groups.
        #[arg(required = true)]
        groups: Vec<String>,
        /// Their members instead.
        #[arg(long)]
        members: bool,
    },
    /// Says where a group would read on after a reset; does it with --execute.
    Reset(Reset),
    /// Deletes groups with the offsets that they have committed.
    #[command(visible_alias = "rm")]
    Delete {
        /// The groups, which must have no members.
        #[arg(required = true)]
        groups: Vec<String>,
    },
    /// Forgets a group's offsets of topics that it does not read any more.
    DeleteOffsets {
        /// The group.
        group: String,
        /// A topic, or topic:partition; can be given many times.
        #[arg(long, required = true)]
        topic: Vec<String>,
    },
}

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("goal").required(true).multiple(false))]
struct Reset {
    /// The groups, which must have no members.
    #[arg(required = true)]
    groups: Vec<String>,
    /// A topic, or topic:partition; can be given many times. All that the group has committed for when not given.
    #[arg(long)]
    topic: Vec<String>,
    /// To the first record.
    #[arg(long, group = "goal")]
    to_earliest: bool,
    /// To the end.
    #[arg(long, group = "goal")]
    to_latest: bool,
    /// To this offset.
    #[arg(long, group = "goal", value_name = "OFFSET")]
    to_offset: Option<i64>,
    /// To the first record from this time on: 2026-12-01T10:15:30Z
    #[arg(long, group = "goal", value_name = "TIME")]
    to_datetime: Option<String>,
    /// To the first record that is no older: PT15M, P1D
    #[arg(long, group = "goal", value_name = "DURATION")]
    by_duration: Option<String>,
    /// So many records on, or back when negative.
    #[arg(long, group = "goal", value_name = "RECORDS", allow_hyphen_values = true)]
    shift_by: Option<i64>,
    /// Does it.
    #[arg(long)]
    execute: bool,
}

/// Runs one of the group commands.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let output = arguments.at.output();
    arguments.at.ask(async |admin| match &arguments.command {
        Command::List { state, kind } => list(admin, output, state, kind).await.context("listing groups"),
        Command::Describe { groups, members } => describe(admin, output, groups, *members).await,
        Command::Reset(reset) => reset.run(admin, output).await,
        Command::Delete { groups } => {
            let mut tally = Tally::new("deleted");
            for (group, deleted) in admin.delete_groups(groups).await? {
                tally.add(output, &format!("group {group}"), deleted);
            }
            Ok(tally.end(output))
        }
        Command::DeleteOffsets { group, topic } => {
            let partitions = partitions(admin, topic).await?;
            let mut tally = Tally::new("forgotten");
            let tried = || format!("forgetting offsets of group {group}");
            for (partition, deleted) in admin.delete_offsets(group, &partitions).await.with_context(tried)? {
                tally.add(output, &format!("offset of {partition}"), deleted);
            }
            Ok(tally.end(output))
        }
    })
}

async fn list(admin: &Admin, output: Output, states: &[String], kinds: &[String]) -> Result<ExitCode> {
    let mut table = Table::new(["group", "type", "state", "protocol"]);
    for group in admin.list_groups(states, kinds).await? {
        table.row([json!(group.id), json!(group.kind), json!(group.state), json!(group.protocol_type)]);
    }
    output.table(&table);
    Ok(ExitCode::SUCCESS)
}

/// The partitions of topics, where they are not named themselves.
async fn partitions(admin: &Admin, topics: &[String]) -> Result<Vec<TopicPartition>> {
    let mut partitions = BTreeSet::new();
    let mut whole = Vec::new();
    for text in topics {
        match super::partition(text) {
            Ok(partition) => drop(partitions.insert(partition)),
            Err(_) => whole.push(text.clone()),
        }
    }
    for (name, topic) in admin.describe_topics(&whole).await? {
        let topic = topic.with_context(|| format!("topic {name}"))?;
        partitions.extend(topic.partitions.iter().map(|known| TopicPartition::new(&*name, known.partition)));
    }
    Ok(partitions.into_iter().collect())
}

async fn describe(admin: &Admin, output: Output, ids: &[String], members: bool) -> Result<ExitCode> {
    let mut tally = Tally::new("described");
    let mut values = Vec::new();
    for (id, group) in admin.describe_groups(ids).await? {
        let group = match group {
            Ok(group) => group,
            Err(error) => {
                tally.add(output, &format!("group {id}"), Err(error));
                continue;
            }
        };
        let people = people(&group);
        let table = if members { people.clone() } else { progress(admin, &group).await? };
        if output.is_table() {
            show(output, &group, &table, members);
        }
        let mut value = json!({
            "group": group.id,
            "type": group.kind,
            "state": group.state,
            "protocol": group.protocol_type,
            "assignor": group.assignor,
            "epoch": group.epoch,
            "members": people.value(),
        });
        if !members {
            value["offsets"] = table.value();
        }
        values.push(value);
    }
    if !output.is_table() {
        output.value(&Value::Array(values));
    }
    Ok(tally.code())
}

fn show(output: Output, group: &GroupDescription, table: &Table, members: bool) {
    let count = group.members.len();
    let plural = if count == 1 { "" } else { "s" };
    let assignor = if group.assignor.is_empty() { String::new() } else { format!(", {}", group.assignor) };
    output.note(&format!("group {} ({}): {}, {count} member{plural}{assignor}", group.id, group.kind, group.state));
    if !members {
        let behind: i64 = table.column("lag").filter_map(Value::as_i64).sum();
        output.note(&format!("  {behind} records behind"));
    }
    output.table(table);
    output.note("");
}

/// What each partition that the group reads, or has read, is at.
async fn progress(admin: &Admin, group: &GroupDescription) -> Result<Table> {
    let tried = || format!("group {}", group.id);
    let committed: BTreeMap<TopicPartition, CommittedOffset> =
        admin.committed_offsets(&group.id).await.with_context(tried)?.into_iter().collect();
    let readers: BTreeMap<&TopicPartition, &str> = group
        .members
        .iter()
        .flat_map(|member| member.assignment.iter().map(|partition| (partition, member.client_id.as_str())))
        .collect();
    let partitions: BTreeSet<&TopicPartition> = committed.keys().chain(readers.keys().copied()).collect();
    let asked = partitions.iter().map(|partition| ((*partition).clone(), OffsetSpec::Latest)).collect();
    let ends: BTreeMap<TopicPartition, i64> = admin
        .list_offsets(asked)
        .await
        .into_iter()
        .filter_map(|(partition, listed)| Some((partition, listed.ok()?.offset?)))
        .collect();
    let mut table = Table::new(["topic", "partition", "committed", "end", "lag", "client"]);
    for partition in partitions {
        let offset = committed.get(partition).map(|committed| committed.offset);
        let end = ends.get(partition).copied();
        let lag = offset.zip(end).map(|(offset, end)| end - offset);
        table.row([
            json!(&*partition.topic),
            json!(partition.partition),
            json!(offset),
            json!(end),
            json!(lag),
            json!(readers.get(partition)),
        ]);
    }
    Ok(table)
}

fn people(group: &GroupDescription) -> Table {
    let mut table =
        Table::new(["member", "client", "host", "instance", "partitions"]).and_for_programs(&["epoch", "assignment"]);
    for member in &group.members {
        let assignment: Vec<String> = member.assignment.iter().map(ToString::to_string).collect();
        table.row([
            json!(member.id),
            json!(member.client_id),
            json!(member.host),
            json!(member.instance_id),
            json!(assignment.len()),
            json!(member.epoch),
            json!(assignment),
        ]);
    }
    table
}

impl Reset {
    fn goal(&self) -> Result<Goal> {
        if self.to_earliest {
            return Ok(Goal::Listed(OffsetSpec::Earliest));
        }
        if let Some(offset) = self.to_offset {
            return Ok(Goal::Offset(offset));
        }
        if let Some(by) = self.shift_by {
            return Ok(Goal::Shift(by));
        }
        if let Some(text) = &self.to_datetime {
            return reset::datetime(text).map(Goal::Timestamp).map_err(|why| usage!("--to-datetime: {why}"));
        }
        if let Some(text) = &self.by_duration {
            return reset::ago(text).map(Goal::Timestamp).map_err(|why| usage!("--by-duration: {why}"));
        }
        Ok(Goal::Listed(OffsetSpec::Latest))
    }

    async fn run(&self, admin: &Admin, output: Output) -> Result<ExitCode> {
        let goal = self.goal()?;
        let mut table = Table::new(["group", "topic", "partition", "committed", "new"]);
        let mut tally = Tally::new("reset");
        for (group, described) in admin.describe_groups(&self.groups).await? {
            self.check(&group, described)?;
            let committed: BTreeMap<TopicPartition, CommittedOffset> =
                admin.committed_offsets(&group).await.with_context(|| format!("group {group}"))?.into_iter().collect();
            let partitions = match &self.topic[..] {
                [] if committed.is_empty() => bail!("group {group} has committed nothing; name topics with --topic"),
                [] => committed.keys().cloned().collect(),
                topics => partitions(admin, topics).await?,
            };
            let plan = reset::plan(admin, &group, partitions, &goal).await;
            let offsets = plan.map_err(anyhow::Error::from).with_context(|| format!("group {group}"))?.offsets;
            for (partition, new) in &offsets {
                let old = committed.get(partition).map(|committed| committed.offset);
                table.row([json!(group), json!(&*partition.topic), json!(partition.partition), json!(old), json!(new)]);
            }
            if self.execute {
                let offsets: Vec<_> =
                    offsets.into_iter().map(|(partition, offset)| (partition, CommittedOffset::at(offset))).collect();
                for (partition, changed) in admin.alter_offsets(&group, &offsets).await? {
                    if let Err(error) = changed {
                        tally.add(output, &format!("group {group}, partition {partition}"), Err(error));
                    }
                }
            }
        }
        output.table(&table);
        if !self.execute {
            output.note("nothing was changed; --execute does it");
        }
        Ok(tally.code())
    }

    /// A group may be new, but must not be in use.
    fn check(&self, group: &str, described: Result<GroupDescription, milena_client::Error>) -> Result<()> {
        match described {
            Ok(described) if ["Empty", "Dead"].contains(&described.state.as_str()) => Ok(()),
            Ok(described) => {
                let members = described.members.len();
                Err(anyhow::Error::from(milena_client::Error::from(ErrorCode::NON_EMPTY_GROUP))
                    .context(format!("group {group} is {} and has {members} members", described.state)))
            }
            Err(error) if error.code() == Some(ErrorCode::GROUP_ID_NOT_FOUND) && !self.topic.is_empty() => Ok(()),
            Err(error) => Err(anyhow::Error::from(error).context(format!("group {group}"))),
        }
    }
}
