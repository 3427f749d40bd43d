//! `milena config`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use milena_client::Admin;
use milena_client::admin::{ConfigChange, ConfigEntry, ConfigResource, ResourceType};
use serde_json::{Value, json};

use super::Tally;
use crate::connect;
use crate::failure::usage;
use crate::output::{Output, Table};

/// Arguments of `milena config`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    at: connect::Arguments,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Shows configurations that somebody has set.
    #[command(visible_alias = "get")]
    Describe {
        #[command(flatten)]
        of: Of,
        /// Those too that nobody has set.
        #[arg(long)]
        all: bool,
    },
    /// Sets configurations.
    Set {
        #[command(flatten)]
        of: Of,
        /// The new values.
        #[arg(required = true, value_name = "NAME=VALUE")]
        values: Vec<String>,
        /// Only says whether that is possible.
        #[arg(long)]
        dry_run: bool,
    },
    /// Takes configurations back to their defaults.
    Unset {
        #[command(flatten)]
        of: Of,
        /// Names of configurations.
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Only says whether that is possible.
        #[arg(long)]
        dry_run: bool,
    },
}

/// Whose configurations.
#[derive(clap::Args)]
struct Of {
    /// What it is.
    #[arg(value_enum, value_name = "TYPE")]
    kind: Kind,
    /// Its name: a topic, a broker's id or `default` for all brokers, a group, a metrics subscription.
    #[arg(value_name = "OF")]
    name: String,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Kind {
    Topic,
    Broker,
    Logger,
    Group,
    ClientMetrics,
}

impl Of {
    fn resource(&self) -> Result<ConfigResource> {
        let kind = match self.kind {
            Kind::Topic => ResourceType::Topic,
            Kind::Broker => ResourceType::Broker,
            Kind::Logger => ResourceType::BrokerLogger,
            Kind::Group => ResourceType::Group,
            Kind::ClientMetrics => ResourceType::ClientMetrics,
        };
        let is_broker = matches!(self.kind, Kind::Broker | Kind::Logger);
        let name = match self.name.as_str() {
            "default" if matches!(self.kind, Kind::Broker) => String::new(),
            name if is_broker && name.parse::<i32>().is_err() => {
                return Err(usage!("broker {name}: a broker is named by its id; `milena cluster` shows them"));
            }
            name => name.to_owned(),
        };
        Ok(ConfigResource { kind, name })
    }

    fn label(&self) -> String {
        let kind = match self.kind {
            Kind::Topic => "topic",
            Kind::Broker => "broker",
            Kind::Logger => "loggers of broker",
            Kind::Group => "group",
            Kind::ClientMetrics => "metrics subscription",
        };
        format!("{kind} {}", self.name)
    }
}

/// Runs one of the config commands.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let output = arguments.at.output();
    arguments.at.ask(async |admin| match &arguments.command {
        Command::Describe { of, all } => describe(admin, output, of, *all).await.with_context(|| of.label()),
        Command::Set { of, values, dry_run } => {
            let set = |(name, value)| ConfigChange::Set(name, value);
            let changes = super::assignments(values)?.into_iter().map(set).collect();
            alter(admin, output, of, changes, *dry_run).await
        }
        Command::Unset { of, names, dry_run } => {
            let changes = names.iter().cloned().map(ConfigChange::Delete).collect();
            alter(admin, output, of, changes, *dry_run).await
        }
    })
}

async fn describe(admin: &Admin, output: Output, of: &Of, all: bool) -> Result<ExitCode> {
    let mut table = Table::new(["name", "value", "source"]).and_for_programs(&["read_only", "sensitive", "synonyms"]);
    for (_, entries) in admin.describe_configs(vec![of.resource()?], true).await? {
        let mut entries = entries?;
        entries.retain(|entry| all || !entry.is_default());
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        for entry in &entries {
            table.row(row(entry));
        }
    }
    output.table(&table);
    Ok(ExitCode::SUCCESS)
}

fn row(entry: &ConfigEntry) -> [Value; 6] {
    let synonyms: Vec<Value> = entry
        .synonyms
        .iter()
        .map(|synonym| json!({ "name": synonym.name, "value": synonym.value, "source": synonym.source.name() }))
        .collect();
    [
        json!(entry.name),
        json!(entry.value),
        json!(entry.source.name()),
        json!(entry.read_only),
        json!(entry.sensitive),
        json!(synonyms),
    ]
}

async fn alter(admin: &Admin, output: Output, of: &Of, changes: Vec<ConfigChange>, dry_run: bool) -> Result<ExitCode> {
    let mut tally = Tally::new(if dry_run { "can be changed" } else { "changed" });
    for (_, changed) in admin.alter_configs(vec![(of.resource()?, changes)], dry_run).await? {
        tally.add(output, &of.label(), changed);
    }
    Ok(tally.end(output))
}
