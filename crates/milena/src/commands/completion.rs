//! `milena completion`.

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::output::print;

/// Arguments of `milena completion`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The shell.
    shell: Shell,
}

/// Prints what the shell is to read.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::Arguments::command(), "milena", &mut script);
    print(&String::from_utf8(script)?);
    Ok(ExitCode::SUCCESS)
}
