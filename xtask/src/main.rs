//! The project's own commands, run as `cargo xtask NAME`: tests, comparisons with Apache Kafka, benches.

mod bench;
mod oracle;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Development commands of Milena.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compares CPU time, latency and memory of Milena, Apache Kafka and the practical floor
    Bench(bench::Args),
    /// Fetches Apache Kafka and runs it on free loopback ports until Ctrl-C
    Oracle(oracle::Args),
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::Oracle(args) => oracle::run(&args),
    }
}
