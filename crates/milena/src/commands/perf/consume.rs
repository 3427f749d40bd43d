//! `milena perf consume`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use milena_client::{Consumer, SeekTo};
use tokio::time::Instant;

use super::super::consume::{Ends, partitions};
use super::{Progress, report};
use crate::connect::{self, run_client};
use crate::perf::Latencies;
use crate::signal::Signal;

/// How long is waited before it is looked whether the end is reached.
const LOOK: Duration = Duration::from_millis(100);
/// How long the end of the consumer is waited for.
const CLOSING: Duration = Duration::from_secs(1);

/// Arguments of `milena perf consume`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Topics, or topic:partition
    #[arg(required = true, value_name = "TOPIC[:PARTITION]")]
    topics: Vec<String>,
    /// At most so many records; without it all that are there
    #[arg(long, short = 'n', value_name = "COUNT")]
    records: Option<u64>,
    /// Leaves out records of transactions that are not committed
    #[arg(long)]
    committed: bool,
    /// A setting of the consumer by Kafka's name; can be given many times
    #[arg(long, short = 'X', value_name = "NAME=VALUE")]
    property: Vec<String>,
}

/// What was measured.
struct Figures {
    records: u64,
    bytes: u64,
    waits: Latencies,
    progress: Progress,
}

/// Measures.
pub fn run(at: &connect::Arguments, arguments: &Arguments) -> Result<ExitCode> {
    let mut properties = super::super::assignments(&arguments.property)?;
    if arguments.committed {
        properties.push(("isolation.level".to_owned(), "read_committed".to_owned()));
    }
    let connection = at.connection(properties.clone())?;
    run_client(&connection, async |client| {
        let mut known = client.consumer();
        super::super::check_known(&properties, "a consumer", |key, value| known.property(key, value))?;
        let mut consumer = client.consumer().properties(connection.properties())?.build()?;
        let partitions = partitions(client, &arguments.topics).await?;
        let mut ends = Ends::of(&mut consumer, &partitions).await?;
        let mut there = 0;
        for (partition, start) in consumer.beginning_offsets(&partitions).await {
            let start = start.with_context(|| format!("partition {partition}"))?;
            there += u64::try_from(ends.of_partition(&partition).saturating_sub(start)).unwrap_or(0);
        }
        consumer.assign(partitions.iter().cloned());
        partitions.iter().try_for_each(|partition| consumer.seek(partition, SeekTo::Beginning))?;
        let most = arguments.records.unwrap_or(u64::MAX);
        let progress = Progress::new(there.min(most));
        let mut figures = Figures { records: 0, bytes: 0, waits: Latencies::new(), progress };
        let start = Instant::now();
        let outcome = tokio::select! {
            outcome = measure(&mut consumer, &mut ends, most, &mut figures) => outcome,
            _ = Signal::to_end() => Ok(()),
        };
        let took = start.elapsed();
        figures.progress.end();
        report(at.output(), figures.records, figures.bytes, took, &figures.waits);
        let closed = consumer.close(CLOSING).await;
        outcome?;
        Ok(closed.map(|()| ExitCode::SUCCESS)?)
    })
}

async fn measure(consumer: &mut Consumer, ends: &mut Ends, most: u64, figures: &mut Figures) -> Result<()> {
    let mut since = Instant::now();
    while figures.records < most && !ends.reached(consumer).await? {
        let Some(records) = consumer.poll(LOOK).await? else { continue };
        figures.waits.add(since.elapsed());
        let length = |bytes: Option<&[u8]>| bytes.map_or(0, |bytes| bytes.len() as u64);
        let count = (records.len() as u64).min(most - figures.records);
        let counted = records.iter().take(count as usize);
        figures.bytes += counted.map(|record| length(record.key) + length(record.value)).sum::<u64>();
        figures.records += count;
        figures.progress.add(count);
        since = Instant::now();
    }
    Ok(())
}
