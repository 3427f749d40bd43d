//! `cargo xtask oracle`: Apache Kafka on loopback, for looking at what it does.

use std::io::Read;
use std::path::PathBuf;

use anyhow::Result;
use milena_testkit::oracle;
use milena_testkit::server::{Kind, Options};

/// Options of `cargo xtask oracle`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Fetch the jars and end
    #[arg(long)]
    fetch_only: bool,
    /// Keep the data in this folder instead of a temporary one
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Settings of the broker
    #[arg(long = "override", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

/// Runs until its standard input ends or a signal arrives.
pub(crate) fn run(args: &Args) -> Result<()> {
    let libs = oracle::ensure_jars()?;
    println!("Apache Kafka {} is in {}", oracle::VERSION, libs.display());
    if args.fetch_only {
        return Ok(());
    }
    let mut options = Options::new(Kind::Kafka(libs));
    if let Some(dir) = &args.dir {
        options = options.dir(dir);
    }
    for setting in &args.overrides {
        if let Some((key, value)) = setting.split_once('=') {
            options = options.set(key, value);
        }
    }
    let mut server = options.start()?;
    println!(
        "listening on {}, data in {}, pid {}",
        server.addr(),
        server.data_dir().display(),
        server.pid().unwrap_or(0)
    );
    println!("end of input stops it");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.stop()?;
    Ok(())
}
