//! `milena cluster`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use milena_client::Admin;
use milena_client::admin::Endpoints;
use milena_protocol::api_info;
use serde_json::{Value, json};

use super::Tally;
use crate::connect;
use crate::output::{Output, Table};

/// Arguments of `milena cluster`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    at: connect::Arguments,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Shows the cluster's id and its brokers; what `milena cluster` alone does.
    Describe,
    /// Shows log directories: their size, what lies in them, what is left.
    LogDirs,
    /// Shows features and their levels.
    Features,
    /// Shows the APIs that a broker serves.
    ApiVersions {
        /// The broker; the first when not given.
        broker: Option<i32>,
    },
    /// Takes a broker that is gone off the list.
    Unregister {
        /// The broker.
        broker: i32,
    },
}

/// Runs one of the cluster commands.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let output = arguments.at.output();
    arguments.at.ask(async |admin| match &arguments.command {
        None | Some(Command::Describe) => describe(admin, output).await.context("describing the cluster"),
        Some(Command::LogDirs) => log_dirs(admin, output).await.context("describing log directories"),
        Some(Command::Features) => features(admin, output).await.context("describing features"),
        Some(Command::ApiVersions { broker }) => {
            api_versions(admin, output, *broker).await.context("asking for API versions")
        }
        Some(Command::Unregister { broker }) => {
            let mut tally = Tally::new("unregistered");
            tally.add(output, &format!("broker {broker}"), admin.unregister_broker(*broker).await);
            Ok(tally.end(output))
        }
    })
}

async fn describe(admin: &Admin, output: Output) -> Result<ExitCode> {
    let cluster = match admin.describe_endpoints(Endpoints::WithFenced).await {
        Err(milena_client::Error::Request(_)) => admin.describe_cluster().await?,
        other => other?,
    };
    let mut table = Table::new(["broker", "address", "rack", "state"]);
    for broker in &cluster.brokers {
        let state = if broker.fenced { "fenced" } else { "active" };
        table.row([
            json!(broker.id),
            json!(format!("{}:{}", broker.host, broker.port)),
            json!(broker.rack),
            json!(state),
        ]);
    }
    if output.is_table() {
        let controller = cluster.controller.map_or_else(|| "unknown".to_owned(), |id| id.to_string());
        output.note(&format!("cluster {}, controller {controller}", cluster.id));
        output.table(&table);
    } else {
        let value = json!({ "cluster_id": cluster.id, "controller": cluster.controller, "brokers": table.value() });
        output.value(&value);
    }
    Ok(ExitCode::SUCCESS)
}

async fn log_dirs(admin: &Admin, output: Output) -> Result<ExitCode> {
    let brokers: Vec<i32> = admin.describe_cluster().await?.brokers.iter().map(|broker| broker.id).collect();
    let columns = ["broker", "path", "partitions", "bytes", "usable", "total", "error"];
    let mut table = Table::new(columns).and_for_programs(&["cordoned", "replicas"]);
    let mut tally = Tally::new("described");
    for (broker, dirs) in admin.describe_log_dirs(&brokers).await? {
        let dirs = match dirs {
            Ok(dirs) => dirs,
            Err(error) => {
                tally.add(output, &format!("broker {broker}"), Err(error));
                continue;
            }
        };
        for dir in dirs {
            let bytes: i64 = dir.replicas.iter().map(|(_, replica)| replica.size).sum();
            let replicas = dir.replicas.iter().map(|(partition, replica)| {
                json!({
                    "topic": &*partition.topic,
                    "partition": partition.partition,
                    "bytes": replica.size,
                    "lag": replica.offset_lag,
                    "future": replica.is_future,
                })
            });
            table.row([
                json!(broker),
                json!(dir.path),
                json!(dir.replicas.len()),
                json!(bytes),
                json!(dir.usable_bytes),
                json!(dir.total_bytes),
                json!(dir.error.map(|code| code.name())),
                json!(dir.cordoned),
                json!(replicas.collect::<Vec<Value>>()),
            ]);
        }
    }
    output.table(&table);
    Ok(tally.code())
}

async fn features(admin: &Admin, output: Output) -> Result<ExitCode> {
    let mut table = Table::new(["feature", "level", "supported_min", "supported_max"]);
    for feature in admin.describe_features().await?.features {
        table.row([
            json!(feature.name),
            json!(feature.finalized),
            json!(feature.supported_min),
            json!(feature.supported_max),
        ]);
    }
    output.table(&table);
    Ok(ExitCode::SUCCESS)
}

async fn api_versions(admin: &Admin, output: Output, broker: Option<i32>) -> Result<ExitCode> {
    let broker = match broker {
        Some(broker) => broker,
        None => admin.describe_cluster().await?.brokers.first().map_or(-1, |broker| broker.id),
    };
    let mut table = Table::new(["key", "api", "min", "max"]);
    for api in admin.api_versions(broker).await? {
        table.row([json!(api.key.0), json!(api_info(api.key).map(|info| info.name)), json!(api.min), json!(api.max)]);
    }
    output.table(&table);
    Ok(ExitCode::SUCCESS)
}
