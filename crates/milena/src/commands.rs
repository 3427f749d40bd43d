//! One file for each command.

pub mod cluster;
pub mod completion;
pub mod config;
pub mod consume;
pub mod doctor;
pub mod group;
pub mod install_aliases;
pub mod log;
pub mod offsets;
pub mod perf;
pub mod produce;
pub mod start;
pub mod storage;
pub mod topic;
pub mod txn;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use milena_client::admin::TopicPartition;
use milena_client::{Client, Error, Topic};
use serde_json::json;

use crate::connect::Properties;
use crate::failure;
use crate::failure::{Missing, usage};
use crate::output::{Output, Table, print_error};

/// What became of the things that a command was given, one by one.
struct Tally {
    done: &'static str,
    table: Table,
    failed: Option<Error>,
}

impl Tally {
    /// `done` says what becomes of a thing when all is well.
    fn new(done: &'static str) -> Self {
        Self { done, table: Table::new(["what", "done", "error"]), failed: None }
    }

    /// One thing. A failure goes to standard error at once.
    fn add(&mut self, output: Output, what: &str, outcome: Result<(), Error>) {
        let error = outcome.as_ref().err().map(ToString::to_string);
        match outcome {
            Ok(()) => output.note(&format!("{what} {}", self.done)),
            Err(error) => {
                print_error(&failure::text(&anyhow!(error.clone()).context(what.to_owned())));
                self.failed.get_or_insert(error);
            }
        }
        self.table.row([json!(what), json!(error.is_none()), json!(error)]);
    }

    /// The exit code.
    fn code(&self) -> ExitCode {
        self.failed.as_ref().map_or(ExitCode::SUCCESS, |error| failure::code_of(error).into())
    }

    /// The list for programs, and the exit code.
    fn end(&self, output: Output) -> ExitCode {
        if !output.is_table() {
            output.table(&self.table);
        }
        self.code()
    }
}

/// Waits a moment for a topic, which may have been created only now. With `create`, the cluster may create it.
async fn find_topic(client: &Client, topic: &str, create: bool) -> Result<Arc<Topic>, Error> {
    for wait in [50, 100, 200, 400] {
        match client.topic(topic, create).await {
            Err(error) if error.is_retriable() => tokio::time::sleep(Duration::from_millis(wait)).await,
            other => return other,
        }
    }
    client.topic(topic, create).await
}

/// Refuses a partition that a topic does not have.
fn check_partition(topic: &Topic, partition: i32) -> Result<()> {
    match topic.partition(partition) {
        Some(_) => Ok(()),
        None => {
            let last = topic.partitions.len() - 1;
            Err(Missing(format!("partition {partition}: topic {} has partitions 0 to {last}", topic.name)).into())
        }
    }
}

/// `topic:partition`.
fn partition(text: &str) -> Result<TopicPartition> {
    let parsed = text.rsplit_once(':').and_then(|(topic, number)| Some((topic, number.parse().ok()?)));
    let (topic, number) = parsed.ok_or_else(|| usage!("`{text}`: is not topic:partition, such as orders:0"))?;
    Ok(TopicPartition::new(topic, number))
}

/// The settings of a producer: `--property`, and the flags that win over it.
fn producer_properties(given: &[String], compression: &Option<String>, acks: &Option<String>) -> Result<Properties> {
    let mut properties = assignments(given)?;
    let flags = [("compression.type", compression), ("acks", acks)];
    properties.extend(flags.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.clone()?))));
    Ok(properties)
}

/// Refuses settings that are neither a client's nor what `set` takes.
fn check_known(
    properties: &Properties,
    what: &str,
    mut set: impl FnMut(&str, &str) -> Result<bool, Error>,
) -> Result<()> {
    let mut client = Client::builder();
    for (key, value) in properties {
        if !client.property(key, value)? && !set(key, value)? {
            return Err(usage!("--property {key}: is no setting of {what}"));
        }
    }
    Ok(())
}

/// `name=value`, each.
fn assignments(texts: &[String]) -> Result<Vec<(String, String)>> {
    let parse = |text: &String| {
        let (name, value) =
            text.split_once('=').ok_or_else(|| usage!("`{text}`: is not name=value, such as retention.ms=60000"))?;
        Ok((name.trim().to_owned(), value.to_owned()))
    };
    texts.iter().map(parse).collect()
}
