//! `milena offsets`: where partitions begin and end.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{Context, Result};
use milena_client::Admin;
use milena_client::admin::{ListedOffset, OffsetSpec, Outcomes, TopicPartition};
use serde_json::json;

use super::Tally;
use crate::connect;
use crate::failure::usage;
use crate::output::{Output, Table};
use crate::reset;

/// Arguments of `milena offsets`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    at: connect::Arguments,
    /// Topics, or topic:partition; all topics when none is given.
    #[arg(value_name = "TOPIC[:PARTITION]")]
    topics: Vec<String>,
    /// The offset of the first record from this time on instead: 2026-12-01T10:15:30Z, or a time ago: PT15M
    #[arg(long, value_name = "TIME")]
    time: Option<String>,
}

/// Shows offsets.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let output = arguments.at.output();
    let time = arguments.time.as_deref().map(|text| {
        let ago = text.starts_with('P').then(|| reset::ago(text));
        ago.unwrap_or_else(|| reset::datetime(text)).map_err(|why| usage!("--time: {why}"))
    });
    let time = time.transpose()?;
    arguments.at.ask(async |admin| {
        let partitions = partitions(admin, &arguments.topics).await?;
        match time {
            Some(time) => at_time(admin, output, partitions, time).await,
            None => bounds(admin, output, partitions).await,
        }
    })
}

async fn partitions(admin: &Admin, topics: &[String]) -> Result<Vec<TopicPartition>> {
    let mut partitions = BTreeSet::new();
    let mut missing: BTreeSet<&String> = topics.iter().collect();
    let named: Vec<(&String, TopicPartition)> =
        topics.iter().filter_map(|text| Some((text, super::partition(text).ok()?))).collect();
    for (text, partition) in named {
        missing.remove(text);
        partitions.insert(partition);
    }
    if topics.is_empty() || !missing.is_empty() {
        for topic in admin.list_topics().await.context("listing topics")? {
            if missing.remove(&topic.name) || (topics.is_empty() && !topic.internal) {
                partitions.extend((0..).take(topic.partitions).map(|number| TopicPartition::new(&*topic.name, number)));
            }
        }
    }
    match missing.first() {
        Some(topic) => {
            let unknown = milena_client::Error::from(milena_protocol::ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
            Err(anyhow::Error::from(unknown).context(format!("topic {topic}")))
        }
        None => Ok(partitions.into_iter().collect()),
    }
}

async fn listed(
    admin: &Admin,
    partitions: &[TopicPartition],
    spec: OffsetSpec,
) -> Outcomes<TopicPartition, ListedOffset> {
    admin.list_offsets(partitions.iter().map(|partition| (partition.clone(), spec)).collect()).await
}

async fn bounds(admin: &Admin, output: Output, partitions: Vec<TopicPartition>) -> Result<ExitCode> {
    let starts = listed(admin, &partitions, OffsetSpec::Earliest).await;
    let ends = listed(admin, &partitions, OffsetSpec::Latest).await;
    let mut table = Table::new(["topic", "partition", "start", "end", "records"]);
    let mut tally = Tally::new("listed");
    for ((partition, start), (_, end)) in starts.into_iter().zip(ends) {
        match start.and_then(|start| Ok((start.offset, end?.offset))) {
            Err(error) => tally.add(output, &format!("partition {partition}"), Err(error)),
            Ok((start, end)) => {
                // An upper bound where records were compacted away.
                let records = start.zip(end).map(|(start, end)| end - start);
                table.row([
                    json!(&*partition.topic),
                    json!(partition.partition),
                    json!(start),
                    json!(end),
                    json!(records),
                ]);
            }
        }
    }
    output.table(&table);
    Ok(tally.code())
}

async fn at_time(admin: &Admin, output: Output, partitions: Vec<TopicPartition>, time: i64) -> Result<ExitCode> {
    let mut table = Table::new(["topic", "partition", "offset", "timestamp"]);
    let mut tally = Tally::new("listed");
    for (partition, found) in listed(admin, &partitions, OffsetSpec::Timestamp(time)).await {
        match found {
            Err(error) => tally.add(output, &format!("partition {partition}"), Err(error)),
            Ok(found) => table.row([
                json!(&*partition.topic),
                json!(partition.partition),
                json!(found.offset),
                json!(found.timestamp),
            ]),
        }
    }
    output.table(&table);
    Ok(tally.code())
}
