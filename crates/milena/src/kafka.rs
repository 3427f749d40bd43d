//! Kafka's own tools, by their names, with their options, output and exit codes, so that scripts go on working. A tool is asked
//! for by the name that the binary is called by, with or without `.sh`, or as the first argument.
//!
//! One file for each tool. Here is what they share: which there are, how an error of the cluster is called in Java, and
//! how a tool ends.

mod api_versions;
mod argparse;
mod arguments;
mod cluster;
mod configs;
mod console_consumer;
mod console_producer;
mod consumer_groups;
mod consumer_perf;
mod delete_records;
mod e2e_latency;
mod features;
mod get_offsets;
mod groups;
mod java;
mod json;
mod leader_election;
mod line_reader;
mod log_dirs;
mod metadata_quorum;
mod metrics;
mod options;
mod own;
mod producer_perf;
mod random;
mod reassign_partitions;
mod table;
mod topics;
mod transactions;
mod verifiable_producer;

use std::borrow::Cow;
use std::path::Path;
use std::process::ExitCode;

use milena_client::{Admin, Error};
use milena_io::{Clock, RealClock};

use self::options::{Flag, Misuse, Options};
use crate::connect::{self, Connection, Properties, properties_in};
use crate::output::{print, print_error};
use crate::signal::Signal;

/// The version of Kafka whose tools these are.
const VERSION: &str = "4.4.0";

/// A tool of Kafka.
pub struct Tool {
    /// As its script is called, without `.sh`.
    pub name: &'static str,
    /// Runs it with the arguments behind its name.
    pub run: fn(&[String]) -> ExitCode,
}

/// All tools, by name.
pub const TOOLS: &[Tool] = &[
    Tool { name: "kafka-broker-api-versions", run: api_versions::run },
    Tool { name: "kafka-cluster", run: cluster::run },
    Tool { name: "kafka-configs", run: configs::run },
    Tool { name: "kafka-console-consumer", run: console_consumer::run },
    Tool { name: "kafka-console-producer", run: console_producer::run },
    Tool { name: "kafka-consumer-groups", run: consumer_groups::run },
    Tool { name: "kafka-consumer-perf-test", run: consumer_perf::run },
    Tool { name: "kafka-delete-records", run: delete_records::run },
    Tool { name: "kafka-dump-log", run: own::dump_log },
    Tool { name: "kafka-e2e-latency", run: e2e_latency::run },
    Tool { name: "kafka-features", run: features::run },
    Tool { name: "kafka-get-offsets", run: get_offsets::run },
    Tool { name: "kafka-groups", run: groups::run },
    Tool { name: "kafka-leader-election", run: leader_election::run },
    Tool { name: "kafka-log-dirs", run: log_dirs::run },
    Tool { name: "kafka-metadata-quorum", run: metadata_quorum::run },
    Tool { name: "kafka-producer-perf-test", run: producer_perf::run },
    Tool { name: "kafka-reassign-partitions", run: reassign_partitions::run },
    Tool { name: "kafka-storage", run: own::storage },
    Tool { name: "kafka-topics", run: topics::run },
    Tool { name: "kafka-transactions", run: transactions::run },
    Tool { name: "kafka-verifiable-producer", run: verifiable_producer::run },
];

/// Runs the tool that a whole command line, program name and all, asks for; `None` when it asks for none.
pub fn called(line: &[String]) -> Option<ExitCode> {
    let find = |name: &str| {
        let name = Path::new(name).file_name()?.to_str()?;
        let name = name.strip_suffix(".sh").unwrap_or(name);
        TOOLS.iter().find(|tool| tool.name == name)
    };
    let by_name = line.first().and_then(|program| find(program)).map(|tool| (tool, 1));
    let (tool, skipped) = by_name.or_else(|| Some((find(line.get(1)?)?, 2)))?;
    Some((tool.run)(&line[skipped..]))
}

/// Why a tool ends before its work is done.
#[derive(Debug)]
enum Ended {
    /// Wrong usage: the message and the options are on standard error.
    Usage(String),
    /// The version was asked for.
    Version,
    /// An exception in Java.
    Thrown(Thrown),
    /// A signal asked for it, and the rest was done in order.
    Stopped(Signal),
}

/// An exception: its class and message.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Thrown {
    class: Cow<'static, str>,
    message: String,
    /// Whether it comes out of an admin client's future, within the future's own exception.
    of_future: bool,
}

impl Thrown {
    fn new(class: &'static str, message: impl Into<String>) -> Self {
        Self { class: Cow::Borrowed(class), message: message.into(), of_future: false }
    }

    /// An argument that makes no sense.
    fn argument(message: impl Into<String>) -> Self {
        Self::new(java::ILLEGAL_ARGUMENT, message)
    }

    /// As Java's `toString`.
    fn text(&self) -> String {
        format!("{}: {}", self.class, self.message)
    }

    /// The message, and the text, of what the tool catches.
    fn caught(&self) -> (String, String) {
        if self.of_future {
            (self.text(), format!("{}: {}", java::EXECUTION_EXCEPTION, self.text()))
        } else {
            (self.message.clone(), self.text())
        }
    }
}

impl From<Thrown> for Ended {
    fn from(thrown: Thrown) -> Self {
        Self::Thrown(thrown)
    }
}

impl From<Misuse> for Ended {
    fn from(misuse: Misuse) -> Self {
        Self::Thrown(Thrown::new(misuse.class, misuse.message))
    }
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Thrown(java::thrown(&error))
    }
}

/// Reads the options; without any, or with `--help` or `--version`, there is nothing to be done.
fn read(flags: &'static [Flag], about: &str, arguments: &[String]) -> Result<Options, Ended> {
    let options = Options::parse(flags, arguments)?;
    if arguments.is_empty() || options.has("help") {
        return Err(Ended::Usage(about.to_owned()));
    }
    if options.has("version") {
        return Err(Ended::Version);
    }
    Ok(options)
}

/// As [`read`], for a tool that has `required` options and prints the usage with whatever is wrong.
fn read_with(required: &[&str], flags: &'static [Flag], about: &str, arguments: &[String]) -> Result<Options, Ended> {
    let options = match read(flags, about, arguments) {
        Err(Ended::Thrown(misuse)) => return Err(Ended::Usage(misuse.message)),
        other => other?,
    };
    let missing: Vec<&str> = required.iter().filter(|name| !options.has(name)).copied().collect();
    match missing[..] {
        [] => Ok(options),
        _ => Err(Ended::Usage(format!("Missing required option(s) [{}]", missing.join(", ")))),
    }
}

/// Refuses servers that are not host:port, as the tools do that send and receive records.
fn check_servers(servers: Option<&str>) -> Result<(), Ended> {
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_server = |text: &str| text.rsplit_once(':').is_some_and(|(_, port)| is_port(port));
    match servers.filter(|servers| !servers.trim().is_empty()) {
        None => Err(Ended::Usage("Error while validating the bootstrap address\n".to_owned())),
        Some(servers) if servers.split(',').all(is_server) => Ok(()),
        Some(_) => Err(Ended::Usage("Please provide valid host:port like host1:9091,host2:9092\n".to_owned())),
    }
}

/// Settings from the files and values of options.
fn properties(options: &Options, files: &[&str], values: &[&str]) -> Result<Properties, Ended> {
    let mut properties = Properties::new();
    for name in files {
        if let Some(path) = options.value(name)? {
            properties.extend(properties_in(Path::new(path)).map_err(|error| java::config(&error))?);
        }
    }
    properties.extend(values.iter().flat_map(|name| pairs(&options.values(name))));
    Ok(properties)
}

/// `key=value`, each; a value that is missing is empty.
fn pairs(texts: &[&str]) -> Properties {
    let pair = |text: &&str| {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        (key.to_owned(), value.to_owned())
    };
    texts.iter().map(pair).collect()
}

/// Refuses options that are missing.
fn need(options: &Options, names: &[&str]) -> Result<(), Ended> {
    match names.iter().find(|name| !options.has(name)) {
        Some(name) => Err(Ended::Usage(format!("Missing required argument \"[{name}]\""))),
        None => Ok(()),
    }
}

/// Refuses all but exactly one of two options.
fn one_of(options: &Options, [one, other]: [&str; 2]) -> Result<(), Ended> {
    match options.has(one) == options.has(other) {
        true => Err(Ended::Usage(format!("Exactly one of the following arguments is required: [{one}], [{other}]"))),
        false => Ok(()),
    }
}

/// Refuses options beside one that they do not go with.
fn refuse(options: &Options, used: &str, others: &[&str]) -> Result<(), Ended> {
    match others.iter().find(|other| options.has(used) && options.has(other)) {
        Some(other) => Err(Ended::Usage(format!("Option \"[{used}]\" can't be used with option \"[{other}]\""))),
        None => Ok(()),
    }
}

/// Ends a tool: `thrown` prints an exception as this tool does, and gives the exit code.
fn end(outcome: Result<(), Ended>, flags: &[Flag], thrown: impl FnOnce(Thrown) -> u8) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Ended::Usage(message)) => {
            print_error(&format!("{message}\n{}", options::usage(flags)));
            ExitCode::FAILURE
        }
        Err(Ended::Version) => {
            print(&format!("{VERSION}\n"));
            ExitCode::SUCCESS
        }
        Err(Ended::Thrown(exception)) => thrown(exception).into(),
        Err(Ended::Stopped(signal)) => signal.code().into(),
    }
}

/// The system's time, milliseconds since 1970.
fn now_ms() -> i64 {
    RealClock::new().now_ms()
}

/// Asks the cluster that `--bootstrap-server`, or `--bootstrap-controller`, and `--command-config` name.
fn ask<T>(options: &Options, work: impl AsyncFnOnce(&Admin) -> Result<T, Ended>) -> Result<T, Ended> {
    let file = options.value("command-config")?.or(options.value("admin.config")?);
    ask_with(options, file, work)
}

/// As [`ask`], with the settings in this file.
fn ask_with<T>(
    options: &Options,
    file: Option<&str>,
    work: impl AsyncFnOnce(&Admin) -> Result<T, Ended>,
) -> Result<T, Ended> {
    let bootstrap = match options.value("bootstrap-controller")? {
        Some(controllers) => ("bootstrap.controllers", controllers),
        None => ("bootstrap.servers", options.value("bootstrap-server")?.unwrap_or_default()),
    };
    let file = file.map(Path::new);
    let connection = Connection::of_tool(bootstrap, file).map_err(|error| java::config(&error))?;
    connect::run(&connection, work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_have_the_names_of_kafkas_scripts_in_order() {
        assert!(TOOLS.is_sorted_by_key(|tool| tool.name));
        assert!(TOOLS.iter().all(|tool| tool.name.starts_with("kafka-")));
    }

    #[test]
    fn the_page_about_the_command_line_names_them_all() {
        let page = include_str!("../../../docs/cli.md");
        for Tool { name, .. } in TOOLS {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn another_name_is_no_tool() {
        for line in [vec![], vec!["milena"], vec!["milena", "start"], vec!["/usr/bin/milena", "topic", "kafka-topics"]]
        {
            assert_eq!(called(&line.into_iter().map(str::to_owned).collect::<Vec<_>>()), None);
        }
    }
}
