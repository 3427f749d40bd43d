//! `milena log`: looking into the files of a log directory, and mending what can be mended.

mod dump;

use std::process::ExitCode;

use anyhow::Result;

/// What to do.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Prints the content of segments, indexes and snapshots, exactly as kafka-dump-log does.
    Dump(dump::Arguments),
}

/// Runs one of the log commands.
pub fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Dump(arguments) => dump::run(arguments),
    }
}
