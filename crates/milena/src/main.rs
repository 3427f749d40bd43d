//! The `milena` command. Arguments are read here; each command has its own file.

#![allow(unreachable_pub)] // Nothing of a binary is reachable; `pub` says what a module offers to the others.

mod commands;
mod settings;

use std::io::Write;
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
    /// Looks into the files of a log directory.
    #[command(subcommand)]
    Log(commands::log::Command),
    /// Prepares and inspects data directories.
    #[command(subcommand)]
    Storage(commands::storage::Command),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Start(arguments) => commands::start::run(&arguments),
        Command::Log(command) => commands::log::run(&command),
        Command::Storage(command) => commands::storage::run(&command),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "milena: {}", message(&error));
            ExitCode::FAILURE
        }
    }
}

/// The error and its causes in one line. Many an error says its cause itself; it is not said twice.
fn message(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| match said.as_str() {
        "" => cause,
        before if before.contains(&cause) => said,
        before => format!("{before}: {cause}"),
    })
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, Error};

    use super::*;

    #[test]
    fn a_cause_that_an_error_says_itself_is_not_said_twice() {
        let full = || Error::msg("No space left on device");
        assert_eq!(
            message(&full().context("writing a: No space left on device")),
            "writing a: No space left on device"
        );
        assert_eq!(message(&full().context("writing a")), "writing a: No space left on device");
        let nested = Err::<(), _>(full()).context("writing a: No space left on device").context("starting");
        assert_eq!(message(&nested.unwrap_err()), "starting: writing a: No space left on device");
    }
}
