//! The `milena` command. Arguments are read here; each command has its own file.

#![allow(unreachable_pub)] // Nothing of a binary is reachable; `pub` says what a module offers to the others.

mod commands;
mod connect;
mod coordinator_records;
mod deliveries;
mod failure;
mod holder;
mod input;
mod java_text;
mod kafka;
mod output;
mod perf;
mod printed;
mod reset;
mod settings;
mod signal;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

const NOTES: &str = "\
Kafka's tools are here by their own names too: `milena kafka-topics …`, or links that `milena install-aliases` makes.

Exit codes: 0 done; 1 refused or failed; 2 wrong command line; 3 no answer from the cluster; 4 not there.";

/// Apache Kafka, translated into Rust.
#[derive(Parser)]
#[command(name = "milena", version, about, after_help = NOTES, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a broker until Ctrl-C or SIGTERM.
    Start(commands::start::Arguments),
    /// Lists, describes, creates, alters and deletes topics.
    Topic(commands::topic::Arguments),
    /// Reads records and prints them.
    Consume(commands::consume::Arguments),
    /// Writes records: lines, JSON objects or files.
    Produce(commands::produce::Arguments),
    /// Lists, describes, resets and deletes groups.
    Group(commands::group::Arguments),
    /// Shows and changes configurations.
    Config(commands::config::Arguments),
    /// Shows where partitions begin and end.
    Offsets(commands::offsets::Arguments),
    /// Shows the cluster: brokers, log directories, features.
    Cluster(commands::cluster::Arguments),
    /// Says what is wrong with a cluster or a data directory, and what to do.
    Doctor(commands::doctor::Arguments),
    /// Lists, describes and aborts transactions.
    Txn(commands::txn::Arguments),
    /// Measures how fast records are written, read, and come back.
    Perf(commands::perf::Arguments),
    /// Looks into the files of a log directory.
    #[command(subcommand)]
    Log(commands::log::Command),
    /// Prepares and inspects data directories.
    #[command(subcommand)]
    Storage(commands::storage::Command),
    /// Makes links by the names of Kafka's tools.
    InstallAliases(commands::install_aliases::Arguments),
    /// Prints what a shell needs to complete commands.
    Completion(commands::completion::Arguments),
}

fn main() -> ExitCode {
    let line: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    kafka::called(&line).unwrap_or_else(|| run(Arguments::parse()))
}

/// Runs a command to its end.
fn run(arguments: Arguments) -> ExitCode {
    let outcome = match arguments.command {
        Command::Start(arguments) => commands::start::run(&arguments),
        Command::Topic(arguments) => commands::topic::run(&arguments),
        Command::Consume(arguments) => commands::consume::run(&arguments),
        Command::Produce(arguments) => commands::produce::run(&arguments),
        Command::Group(arguments) => commands::group::run(&arguments),
        Command::Config(arguments) => commands::config::run(&arguments),
        Command::Offsets(arguments) => commands::offsets::run(&arguments),
        Command::Cluster(arguments) => commands::cluster::run(&arguments),
        Command::Doctor(arguments) => commands::doctor::run(&arguments),
        Command::Txn(arguments) => commands::txn::run(&arguments),
        Command::Perf(arguments) => commands::perf::run(&arguments),
        Command::Log(command) => commands::log::run(&command),
        Command::Storage(command) => commands::storage::run(&command),
        Command::InstallAliases(arguments) => commands::install_aliases::run(&arguments),
        Command::Completion(arguments) => commands::completion::run(&arguments),
    };
    outcome.unwrap_or_else(|error| {
        output::print_error(&failure::text(&error));
        failure::code(&error).into()
    })
}
