//! From flags, environment and file to a cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use milena_client::{Admin, Client, ClientBuilder, Error, Target};
use milena_config::properties;

use crate::failure::usage;
use crate::output::{Format, Output};

/// Names the brokers when no flag does.
pub const VARIABLE: &str = "MILENA_BOOTSTRAP_SERVERS";
/// Where a broker is when nobody says otherwise.
const LOCAL: &str = "localhost:9092";
/// How long an ending command waits for its connections to end.
const PARTING: Duration = Duration::from_millis(100);

/// Where the cluster is, and how to print what it says. Flags win over the environment, the environment over the file.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Arguments {
    /// Brokers to begin with [default: $MILENA_BOOTSTRAP_SERVERS, or localhost:9092]
    #[arg(long, short = 'b', value_name = "HOST:PORT", global = true, alias = "bootstrap-servers")]
    bootstrap_server: Option<String>,
    /// A properties file with a client's settings, by Kafka's names
    #[arg(long, value_name = "FILE", global = true)]
    command_config: Option<PathBuf>,
    /// How long to wait for the cluster, seconds
    #[arg(long, value_name = "SECONDS", global = true, default_value_t = 15.0)]
    timeout: f64,
    /// How to print
    #[arg(long, short, value_enum, global = true, default_value_t)]
    output: Format,
}

/// Settings by Kafka's names; a later one wins.
pub type Properties = Vec<(String, String)>;

/// How to reach a cluster.
#[derive(Debug)]
pub struct Connection {
    builder: ClientBuilder,
    /// What was set, the settings of producers and consumers among it.
    properties: Properties,
    /// Whether a cluster that is not there is waited for.
    waits: bool,
}

impl Connection {
    /// As Kafka's tools connect: what the command line says of `bootstrap`, servers or controllers, wins over the file, and a
    /// cluster that is not there is waited for.
    ///
    /// # Errors
    /// What is wrong with the servers or the file.
    pub fn of_tool(bootstrap: (&str, &str), file: Option<&Path>) -> Result<Self> {
        let mut properties = file.map(properties_in).transpose()?.unwrap_or_default();
        properties.push((bootstrap.0.to_owned(), bootstrap.1.to_owned()));
        Self::of_properties("milena-tool", properties)
    }

    /// As Kafka's tools connect that are given properties.
    ///
    /// # Errors
    /// A value that a property can't have.
    pub fn of_properties(client_id: &str, properties: Properties) -> Result<Self> {
        let builder = Client::builder().client_id(client_id).properties(pairs(&properties))?;
        Ok(Self { builder, properties, waits: true })
    }

    /// What was set.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &str)> {
        pairs(&self.properties)
    }
}

impl Arguments {
    /// Where results go.
    pub fn output(&self) -> Output {
        Output::new(self.output)
    }

    /// How to print.
    pub fn format(&self) -> Format {
        self.output
    }

    /// How long to wait for the cluster.
    ///
    /// # Errors
    /// What is no time.
    pub fn timeout(&self) -> Result<Duration> {
        let Ok(timeout) = Duration::try_from_secs_f64(self.timeout) else {
            return Err(usage!("--timeout {}: is no time that can be waited", self.timeout));
        };
        Ok(timeout)
    }

    /// How to reach the cluster, with `further` settings, which win over the file's.
    ///
    /// # Errors
    /// What is wrong with a flag, the file or a setting.
    pub fn connection(&self, further: Properties) -> Result<Connection> {
        let builder = Client::builder().bootstrap_servers(LOCAL).client_id("milena");
        let mut builder = builder.default_api_timeout(self.timeout()?);
        let mut properties = Properties::new();
        if let Some(path) = &self.command_config {
            properties = properties_in(path)?;
            builder = builder.properties(pairs(&properties)).with_context(|| path.display().to_string())?;
        }
        builder = builder.properties(pairs(&further))?;
        properties.extend(further);
        let variable = std::env::var(VARIABLE).ok().filter(|servers| !servers.is_empty());
        if let Some(servers) = self.bootstrap_server.clone().or(variable) {
            builder = builder.bootstrap_servers(&servers);
        }
        Ok(Connection { builder, properties, waits: false })
    }

    /// Has `work` ask the cluster.
    ///
    /// # Errors
    /// Those of `work`; that the cluster is not there.
    pub fn ask<T>(&self, work: impl AsyncFnOnce(&Admin) -> Result<T>) -> Result<T> {
        run(&self.connection(Properties::new())?, work)
    }
}

/// The settings in a file.
///
/// # Errors
/// What is wrong with it.
pub fn properties_in(path: &Path) -> Result<Properties> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let read = properties::parse(&text).with_context(|| format!("reading {}", path.display()))?;
    Ok(read.into_iter().map(|property| (property.name, property.value)).collect())
}

fn pairs(properties: &Properties) -> impl Iterator<Item = (&str, &str)> {
    properties.iter().map(|(key, value)| (&**key, &**value))
}

/// Has `work` ask a cluster, and ends the connections.
///
/// # Errors
/// Those of `work`; that the cluster is not there.
pub fn run<T, E: From<Error>>(connection: &Connection, work: impl AsyncFnOnce(&Admin) -> Result<T, E>) -> Result<T, E> {
    run_client(connection, async |client| work(&client.admin()).await)
}

/// Has `work` use a client of a cluster, and ends its connections.
///
/// # Errors
/// Those of `work`; that the cluster is not there.
pub fn run_client<T, E: From<Error>>(
    connection: &Connection,
    work: impl AsyncFnOnce(&Client) -> Result<T, E>,
) -> Result<T, E> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime on the current thread needs a few descriptors only");
    let outcome = runtime.block_on(async {
        let client = connection.builder.clone().build()?;
        if !connection.waits {
            // Once: whoever sits there can try again.
            client.connection(Target::Any).await?;
        }
        let outcome = work(&client).await;
        client.close(PARTING).await;
        outcome
    });
    // Whoever reads standard input may do so for ever.
    runtime.shutdown_background();
    outcome
}
