//! From flags, environment and file to a cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use milena_client::{Admin, Client, ClientBuilder, Error, Target};
use milena_config::properties;

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

/// How to reach a cluster.
#[derive(Debug)]
pub struct Connection {
    builder: ClientBuilder,
    /// Whether a cluster that is not there is waited for.
    waits: bool,
}

impl Connection {
    /// As Kafka's tools connect: the servers on the command line win over the file, and a cluster that is not there is
    /// waited for.
    ///
    /// # Errors
    /// What is wrong with the servers or the file.
    pub fn of_tool(servers: &str, file: Option<&Path>) -> Result<Self> {
        let builder = with_file(Client::builder().client_id("milena-tool"), file)?;
        Ok(Self { builder: builder.bootstrap_servers(servers), waits: true })
    }
}

impl Arguments {
    /// Where results go.
    pub fn output(&self) -> Output {
        Output::new(self.output)
    }

    fn connection(&self) -> Result<Connection> {
        let Ok(timeout) = Duration::try_from_secs_f64(self.timeout) else {
            bail!("--timeout {}: is no time that can be waited", self.timeout)
        };
        let builder = Client::builder().bootstrap_servers(LOCAL).client_id("milena").default_api_timeout(timeout);
        let builder = with_file(builder, self.command_config.as_deref())?;
        let variable = std::env::var(VARIABLE).ok().filter(|servers| !servers.is_empty());
        let builder = match self.bootstrap_server.clone().or(variable) {
            Some(servers) => builder.bootstrap_servers(&servers),
            None => builder,
        };
        Ok(Connection { builder, waits: false })
    }

    /// Has `work` ask the cluster.
    ///
    /// # Errors
    /// Those of `work`; that the cluster is not there.
    pub fn ask<T>(&self, work: impl AsyncFnOnce(&Admin) -> Result<T>) -> Result<T> {
        run(&self.connection()?, work)
    }
}

/// With a file's settings over what was set before.
fn with_file(builder: ClientBuilder, path: Option<&Path>) -> Result<ClientBuilder> {
    let Some(path) = path else { return Ok(builder) };
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let pairs = properties::parse(&text).with_context(|| format!("reading {}", path.display()))?;
    let pairs = pairs.into_iter().map(|property| (property.name, property.value));
    builder.properties(pairs).with_context(|| path.display().to_string())
}

/// Has `work` ask a cluster, and ends the connections.
///
/// # Errors
/// Those of `work`; that the cluster is not there.
pub fn run<T, E: From<Error>>(connection: &Connection, work: impl AsyncFnOnce(&Admin) -> Result<T, E>) -> Result<T, E> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime on the current thread needs a few descriptors only");
    runtime.block_on(async {
        let client = connection.builder.clone().build()?;
        if !connection.waits {
            // Once: whoever sits there can try again.
            client.connection(Target::Any).await?;
        }
        let outcome = work(&client.admin()).await;
        client.close(PARTING).await;
        outcome
    })
}
