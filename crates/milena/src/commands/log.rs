//! `milena log`: looking into the files of a log directory, and mending what can be mended.

mod dump;
mod rebuild_index;
mod verify;

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

/// What to do.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Prints the content of segments, indexes and snapshots, exactly as kafka-dump-log does.
    Dump(dump::Arguments),
    /// Checks logs, indexes, snapshots and checkpoints; changes nothing
    Verify(verify::Arguments),
    /// Makes index files anew; the broker must be stopped
    RebuildIndex(rebuild_index::Arguments),
}

/// Runs one of the log commands.
pub fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Dump(arguments) => dump::run(arguments),
        Command::Verify(arguments) => verify::run(arguments),
        Command::RebuildIndex(arguments) => rebuild_index::run(arguments),
    }
}

/// A bar for so many bytes on a terminal, nothing elsewhere.
fn bar(total: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    ProgressBar::new(total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
