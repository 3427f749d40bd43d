//! The project's own commands, run as `cargo xtask NAME`: tests, comparisons with Apache Kafka, benches.

mod bench;
mod compat;
mod differential;
mod files;
mod memory;
mod oracle;
mod scaling;
mod target;
mod test;
mod tools;

use std::process::ExitCode;

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
    /// Writes and reads with real clients: Java, Python, C, Go, JavaScript
    Compat(compat::Args),
    /// Asks a server the recorded questions and compares its answers with Apache Kafka's
    Differential(differential::Args),
    /// Lets Apache Kafka read the files that a server leaves
    Files(files::Args),
    /// Says what connections, partitions, sessions, members and bytes in flight cost Milena in memory
    Memory,
    /// Fetches Apache Kafka and runs it on free loopback ports until Ctrl-C
    Oracle(oracle::Args),
    /// Asks a server cases that are not recorded yet, and prints them as Apache Kafka's answers are recorded
    Record(differential::RecordArgs),
    /// Asks Apache Kafka and a server the same requests in every version and compares the answers
    Requests(differential::RequestArgs),
    /// Says what a request costs Milena with one reactor and with more
    Scaling(scaling::Args),
    /// Runs every test: format, lints, unit tests, comparisons with Apache Kafka, real clients
    Test(test::Args),
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::Compat(args) => compat::run(&args),
        Command::Differential(args) => differential::run(&args),
        Command::Files(args) => files::run(&args),
        Command::Memory => memory::run(),
        Command::Oracle(args) => oracle::run(&args),
        Command::Record(args) => differential::record(&args),
        Command::Requests(args) => differential::requests(&args),
        Command::Scaling(args) => scaling::run(&args),
        Command::Test(args) => test::run(&args),
    }
}
