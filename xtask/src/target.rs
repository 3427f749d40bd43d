//! Which server a command is about.

use std::path::PathBuf;

use anyhow::{Result, bail};
use milena_testkit::server::{Kind, Options};
use milena_testkit::{cache, oracle};

/// The options that choose a server.
#[derive(clap::Args)]
pub(crate) struct Target {
    /// `milena` or `kafka`
    #[arg(long, default_value = "milena")]
    server: String,
    /// The binary of Milena, instead of building it
    #[arg(long)]
    binary: Option<PathBuf>,
}

impl Target {
    /// Fetches or builds the server, and gives the options to start it.
    pub(crate) fn options(&self) -> Result<Options> {
        let kind = match (self.server.as_str(), &self.binary) {
            ("kafka", _) => Kind::Kafka(oracle::ensure_jars()?),
            ("milena", Some(binary)) => Kind::Milena(std::path::absolute(binary)?),
            ("milena", None) => Kind::Milena(crate::bench::build(&cache::repository(), "milena")?),
            (other, _) => bail!("no server named {other}: milena and kafka exist"),
        };
        Ok(Options::new(kind))
    }
}
