//! `milena txn`.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use milena_client::Admin;
use milena_client::admin::TransactionFilter;
use milena_io::{Clock, RealClock};
use serde_json::json;

use super::Tally;
use crate::connect;
use crate::output::{Output, Table};

/// Arguments of `milena txn`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    at: connect::Arguments,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Lists transactional ids.
    #[command(visible_alias = "ls")]
    List {
        /// Only those in this state, such as Ongoing; can be given many times.
        #[arg(long)]
        state: Vec<String>,
        /// Only transactions that have been going on for longer, milliseconds.
        #[arg(long, value_name = "MS")]
        longer_than: Option<i64>,
        /// Only ids that this regular expression matches as a whole.
        #[arg(long, value_name = "REGEX")]
        matching: Option<String>,
    },
    /// Shows transactions and what they have written to.
    Describe {
        /// Transactional ids.
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Shows who writes to a partition, and whose transaction is open there.
    Producers {
        /// The partition.
        #[arg(value_name = "TOPIC:PARTITION")]
        partition: String,
    },
    /// Ends a transaction that hangs on a partition.
    Abort {
        /// The partition.
        #[arg(value_name = "TOPIC:PARTITION")]
        partition: String,
        /// Where the transaction begins; `milena txn producers` shows it.
        #[arg(long, value_name = "OFFSET")]
        start_offset: i64,
    },
}

/// Runs one of the transaction commands.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let output = arguments.at.output();
    arguments.at.ask(async |admin| match &arguments.command {
        Command::List { state, longer_than, matching } => {
            let filter = TransactionFilter {
                states: state.clone(),
                longer_than: *longer_than,
                id_pattern: matching.clone(),
                ..TransactionFilter::default()
            };
            list(admin, output, &filter).await.context("listing transactions")
        }
        Command::Describe { ids } => describe(admin, output, ids).await,
        Command::Producers { partition } => {
            producers(admin, output, partition).await.with_context(|| format!("producers of {partition}"))
        }
        Command::Abort { partition, start_offset } => abort(admin, output, partition, *start_offset).await,
    })
}

async fn list(admin: &Admin, output: Output, filter: &TransactionFilter) -> Result<ExitCode> {
    let mut transactions = admin.list_transactions(filter).await?;
    transactions.sort_by(|one, other| one.id.cmp(&other.id));
    let mut table = Table::new(["transactional_id", "state", "producer_id", "coordinator"]);
    for listed in transactions {
        table.row([json!(listed.id), json!(listed.state), json!(listed.producer_id), json!(listed.coordinator)]);
    }
    output.table(&table);
    Ok(ExitCode::SUCCESS)
}

async fn describe(admin: &Admin, output: Output, ids: &[String]) -> Result<ExitCode> {
    let columns =
        ["transactional_id", "state", "running_ms", "timeout_ms", "producer_id", "producer_epoch", "partitions"];
    let mut table = Table::new(columns).and_for_programs(&["started_ms", "coordinator"]);
    let mut tally = Tally::new("described");
    let now = RealClock::new().now_ms();
    for (id, found) in admin.describe_transactions(ids).await? {
        match found {
            Err(error) => tally.add(output, &format!("transactional id {id}"), Err(error)),
            Ok(found) => {
                let partitions: Vec<String> = found.partitions.iter().map(ToString::to_string).collect();
                table.row([
                    json!(found.id),
                    json!(found.state),
                    json!(found.started.map(|started| now - started)),
                    json!(found.timeout),
                    json!(found.producer_id),
                    json!(found.producer_epoch),
                    json!(partitions),
                    json!(found.started),
                    json!(found.coordinator),
                ]);
            }
        }
    }
    output.table(&table);
    Ok(tally.code())
}

async fn producers(admin: &Admin, output: Output, partition: &str) -> Result<ExitCode> {
    let partition = super::partition(partition)?;
    let columns = ["producer_id", "producer_epoch", "last_sequence", "last_timestamp", "transaction_start"];
    let mut table = Table::new(columns).and_for_programs(&["coordinator_epoch"]);
    for producer in admin.describe_producers(&partition, None).await? {
        table.row([
            json!(producer.id),
            json!(producer.epoch),
            json!(producer.last_sequence),
            json!(producer.last_timestamp),
            json!(producer.transaction_start),
            json!(producer.coordinator_epoch),
        ]);
    }
    output.table(&table);
    Ok(ExitCode::SUCCESS)
}

async fn abort(admin: &Admin, output: Output, text: &str, start: i64) -> Result<ExitCode> {
    let partition = super::partition(text)?;
    let producers = admin.describe_producers(&partition, None).await.with_context(|| format!("producers of {text}"))?;
    let found = producers.into_iter().find(|producer| producer.transaction_start == Some(start));
    let Some(found) = found else {
        bail!(
            "no transaction begins at offset {start} of {text}; `milena txn producers {text}` shows those that are open"
        )
    };
    let epoch = i16::try_from(found.epoch).context("the producer's epoch is none")?;
    let coordinator = found.coordinator_epoch.unwrap_or(0);
    let mut tally = Tally::new("aborted");
    let aborted = admin.abort_transaction(&partition, found.id, epoch, coordinator).await;
    tally.add(output, &format!("transaction of producer {} on {text}", found.id), aborted);
    Ok(tally.end(output))
}
