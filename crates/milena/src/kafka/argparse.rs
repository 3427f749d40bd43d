//! Tools whose first word is a command with options of its own.

use std::process::ExitCode;

use super::options::{Flag, Options, usage};
use super::{Ended, Thrown, VERSION};
use crate::output::{print, print_error};

/// A command of a tool.
pub struct Command {
    /// Its name.
    pub name: &'static str,
    /// One line about it.
    pub help: &'static str,
    /// Its options.
    pub flags: &'static [Flag],
    /// Those that must be there.
    pub required: &'static [&'static str],
}

/// Wants exactly one of the two ways to say where the cluster is, servers or controllers; what is wrong otherwise.
pub fn check_bootstrap(options: &Options, names: [&str; 2]) -> Result<(), String> {
    let [server, controller] = names;
    let ways = ["bootstrap-server", "bootstrap-controller"];
    let given: Vec<&str> =
        options.names().filter_map(|given| ways.iter().position(|way| *way == given).map(|at| names[at])).collect();
    match given[..] {
        [] => Err(format!("one of the arguments {server} {controller} is required")),
        [first, .., last] if first != last => Err(format!("argument {last}: not allowed with argument {first}")),
        _ => Ok(()),
    }
}

/// Runs a tool: `common` are the options in front of the command, `thrown` prints an exception.
pub fn run(
    tool: &str,
    common: &'static [Flag],
    commands: &'static [Command],
    arguments: &[String],
    execute: impl FnOnce(&str, &Options) -> Result<(), Ended>,
    thrown: impl FnOnce(&Thrown),
) -> ExitCode {
    let names = commands.iter().map(|command| command.name).collect::<Vec<_>>().join(",");
    let refuse = |message: &str| {
        print_error(&format!("usage: {tool} [-h] {{{names}}} ...\n{tool}: error: {message}\n"));
        ExitCode::FAILURE
    };
    let front = match Options::parse_front(common, arguments) {
        Ok((front, _)) if front.has("help") => {
            print(&help(tool, common, commands));
            return ExitCode::FAILURE;
        }
        Ok((front, _)) if front.has("version") => {
            print(&format!("{VERSION} (Commit:unknown)\n"));
            return ExitCode::SUCCESS;
        }
        Ok(front) => front,
        Err(misuse) => return refuse(&misuse.message),
    };
    let (front, rest) = front;
    let Some((name, rest)) = rest.split_first() else { return refuse("too few arguments") };
    let Some(command) = commands.iter().find(|command| command.name == name) else {
        return refuse(&format!("invalid choice: '{name}' (choose from {names})"));
    };
    let options = match Options::parse(command.flags, rest) {
        Ok(options) if options.has("help") => {
            print(&format!("usage: {tool} {name}\n\n{}\n\n{}", command.help, usage(command.flags)));
            return ExitCode::FAILURE;
        }
        Ok(options) => options.and(front),
        Err(misuse) => return refuse(&misuse.message),
    };
    if let Some(missing) = command.required.iter().find(|required| !options.has(required)) {
        return refuse(&format!("argument --{missing} is required"));
    }
    match execute(name, &options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Ended::Usage(message)) => refuse(&message),
        Err(Ended::Version) => ExitCode::SUCCESS,
        Err(Ended::Thrown(exception)) => {
            thrown(&exception);
            ExitCode::FAILURE
        }
        Err(Ended::Stopped(signal)) => signal.code().into(),
    }
}

fn help(tool: &str, common: &[Flag], commands: &[Command]) -> String {
    let width = commands.iter().map(|command| command.name.len()).max().unwrap_or(0);
    let lines: String =
        commands.iter().map(|command| format!("  {:<width$}  {}\n", command.name, command.help)).collect();
    format!("usage: {tool} [options] <command> [options]\n\n{}\nCommands:\n{lines}", usage(common))
}
