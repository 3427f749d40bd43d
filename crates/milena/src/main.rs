//! The `milena` command. Arguments are read here; each command has its own file.

#![allow(unreachable_pub)] // Nothing of a binary is reachable; `pub` says what a module offers to the others.

mod commands;
mod settings;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Apache Kafka, translated into Rust.
#[derive(Parser)]
#[command(name = "milena", version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a broker until Ctrl-C or SIGTERM.
    Start(commands::start::Arguments),
    /// Prepares and inspects data directories.
    #[command(subcommand)]
    Storage(commands::storage::Command),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Start(arguments) => commands::start::run(&arguments),
        Command::Storage(command) => commands::storage::run(&command),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("milena: {error:#}");
            ExitCode::FAILURE
        }
    }
}
