//! kafka-dump-log and kafka-storage, which are `milena log dump` and `milena storage` under other names. What fails ends with
//! Kafka's exit code.

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use super::VERSION;
use crate::output::print;

/// kafka-dump-log.
pub fn dump_log(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|argument| argument == "--version") {
        print(&format!("{VERSION}\n"));
        return ExitCode::SUCCESS;
    }
    // Kafka's tool prints its help to say that it did nothing.
    run(&["log", "dump"], arguments, 1)
}

/// kafka-storage.
pub fn storage(arguments: &[String]) -> ExitCode {
    run(&["storage"], arguments, 0)
}

fn run(command: &[&str], arguments: &[String], help: u8) -> ExitCode {
    let line = ["milena"].iter().chain(command).map(|word| (*word).to_owned()).chain(arguments.iter().cloned());
    match crate::Arguments::try_parse_from(line) {
        Ok(arguments) => {
            if crate::run(arguments) == ExitCode::SUCCESS {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            let _ = error.print();
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            if asked { help.into() } else { ExitCode::FAILURE }
        }
    }
}
