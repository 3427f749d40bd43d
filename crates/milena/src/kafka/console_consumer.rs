//! kafka-console-consumer.

mod formatter;
mod reader;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use super::options::{Flag, Options};
use super::{Ended, end, java, need, one_of, pairs, properties, read_with};
use crate::connect::{Connection, Properties, properties_in, run_client};
use crate::output::{print, print_error};
use crate::signal::Signal;
use formatter::Formatter;
use reader::{Reader, Wanted};

const ABOUT: &str = "This tool helps to read data from Kafka topics and outputs it to standard output.";

const FLAGS: &[Flag] = &[
    Flag::value("bootstrap-server", "REQUIRED: The server(s) to connect to."),
    Flag::value("command-config", "Consumer config properties file."),
    Flag::value("command-property", "Consumer config properties in the form key=value."),
    Flag::value("consumer-property", "(DEPRECATED) Use --command-property instead."),
    Flag::value("consumer.config", "(DEPRECATED) Use --command-config instead."),
    Flag::switch("enable-systest-events", "Log lifecycle events of the consumer."),
    Flag::value("formatter", "The class that formats messages for display."),
    Flag::value("formatter-config", "Config properties file to initialize the message formatter."),
    Flag::value(
        "formatter-property",
        "print.timestamp, print.key, print.offset, print.epoch, print.partition, print.headers, print.value=true|false, \
         key.separator, line.separator, headers.separator, null.literal",
    ),
    Flag::switch("from-beginning", "Start with the earliest message rather than the latest."),
    Flag::value("group", "The consumer group id of the consumer."),
    Flag::switch("help", "Print usage information."),
    Flag::value("include", "Regular expression specifying list of topics to include for consumption."),
    Flag::value("isolation-level", "read_committed or read_uncommitted. (default: read_uncommitted)"),
    Flag::value("key-deserializer", "The class that deserializes keys."),
    Flag::value("max-messages", "The maximum number of messages to consume before exiting."),
    Flag::value("offset", "The offset to consume from, or 'earliest', or 'latest'. (default: latest)"),
    Flag::value("partition", "The partition to consume from."),
    Flag::value("property", "(DEPRECATED) Use --formatter-property instead."),
    Flag::switch("skip-message-on-error", "Skip a message that can't be processed instead of halt."),
    Flag::value("timeout-ms", "Exit if no message is available for this long."),
    Flag::value("topic", "The topic to consume from."),
    Flag::value("value-deserializer", "The class that deserializes values."),
    Flag::switch("version", "Display Kafka version."),
];

/// What Kafka's tool recommends.
const HINT: &str = "The consumer rebalance protocol (KIP-848) is production-ready! Set group.protocol=consumer to try it out. \
                    See https://kafka.apache.org/documentation/#consumer_rebalance_protocol\n";
/// How long the consumer may take to commit and to leave its group.
const CLOSING: Duration = Duration::from_secs(30);

/// Runs the tool.
pub fn run(arguments: &[String]) -> ExitCode {
    end(execute(arguments), FLAGS, |thrown| {
        if thrown.class.starts_with(java::OPTIONS) {
            print_error(&format!("Exception in thread \"main\" {}\n", thrown.text()));
        } else {
            print_error(&format!("ERROR Unknown error when running consumer: {}\n", thrown.text()));
        }
        1
    })
}

fn execute(arguments: &[String]) -> Result<(), Ended> {
    let options = read_with(&[], FLAGS, ABOUT, arguments)?;
    check(&options)?;
    let renamed = [("consumer-property", "command-property"), ("consumer.config", "command-config")];
    if let Some((old, new)) = renamed.iter().find(|(old, new)| options.has(old) && options.has(new)) {
        return Err(Ended::Usage(format!("Options --{old} and --{new} cannot be specified together.")));
    }
    for (old, new) in renamed {
        if options.has(old) {
            print(&format!(
                "Option --{old} is deprecated and will be removed in a future version. Use --{new} instead.\n"
            ));
        }
    }
    let mut settings =
        properties(&options, &["command-config", "consumer.config"], &["command-property", "consumer-property"])?;
    check_group(&options, &settings)?;
    set_reset(&options, &mut settings)?;
    let wanted = Wanted::new(&options)?;
    let formatter = formatter(&options)?;
    let mut set = |key: &str, value: &str| settings.push((key.to_owned(), value.to_owned()));
    if let Some(group) = options.value("group")? {
        set("group.id", group);
    }
    set("bootstrap.servers", options.value("bootstrap-server")?.unwrap_or_default());
    if let Some(level) = options.value("isolation-level")? {
        set("isolation.level", level);
    }
    let connection = Connection::of_properties("console-consumer", settings).map_err(|error| java::config(&error))?;
    // As the tool does where it subscribes.
    let protocol = connection.properties().filter(|(key, _)| *key == "group.protocol").last();
    if !options.has("partition") && protocol.is_none_or(|(_, protocol)| !protocol.eq_ignore_ascii_case("consumer")) {
        print_error(HINT);
    }
    let mut reader = Reader::new(wanted, formatter, connection.properties());
    let outcome = run_client(&connection, async |client| {
        let mut consumer = client.consumer().properties(connection.properties())?.build()?;
        let outcome = tokio::select! {
            outcome = reader.run(client, &mut consumer) => outcome,
            signal = Signal::to_end() => Err(Ended::Stopped(signal)),
        };
        if let Err(error) = consumer.close(CLOSING).await {
            print_error(&format!("ERROR {}\n", java::send_error(&error, "").text()));
        }
        outcome
    });
    print_error(&format!("Processed a total of {} messages\n", reader.read()));
    if options.has("enable-systest-events") {
        print("shutdown_complete\n");
    }
    outcome
}

/// Refuses options that do not go together.
fn check(options: &Options) -> Result<(), Ended> {
    let usage = |message: &str| Err(Ended::Usage(message.to_owned()));
    one_of(options, ["topic", "include"])?;
    if options.has("partition") {
        if !options.has("topic") {
            return usage("The topic is required when partition is specified.");
        }
        if options.has("from-beginning") && options.has("offset") {
            return usage("Options from-beginning and offset cannot be specified together.");
        }
    } else if options.has("offset") {
        return usage("The partition is required when offset is specified.");
    }
    need(options, &["bootstrap-server"])
}

/// Refuses groups that differ, and a group beside a partition.
fn check_group(options: &Options, properties: &Properties) -> Result<(), Ended> {
    let mut groups: Vec<&str> = properties.iter().filter(|(key, _)| key == "group.id").map(|(_, id)| &**id).collect();
    groups.extend(options.value("group")?);
    groups.sort_unstable();
    groups.dedup();
    match groups[..] {
        [] => Ok(()),
        [_] if options.has("partition") => {
            Err(Ended::Usage("Options group and partition cannot be specified together.".to_owned()))
        }
        [_] => Ok(()),
        _ => {
            let ids = groups.iter().map(|id| format!("'{id}'")).collect::<Vec<_>>().join(", ");
            Err(Ended::Usage(format!(
                "The group ids provided in different places (directly using '--group', via '--consumer-property', or via \
                 '--consumer.config') do not match. Detected group ids: {ids}"
            )))
        }
    }
}

/// Sets where to begin, unless a property does.
fn set_reset(options: &Options, properties: &mut Properties) -> Result<(), Ended> {
    let from_beginning = options.has("from-beginning");
    match properties.iter().rfind(|(key, _)| key == "auto.offset.reset") {
        Some((_, reset)) if from_beginning && reset != "earliest" => Err(Ended::Usage(format!(
            "Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
        ))),
        Some(_) => Ok(()),
        None => {
            let reset = if from_beginning { "earliest" } else { "latest" };
            properties.push(("auto.offset.reset".to_owned(), reset.to_owned()));
            Ok(())
        }
    }
}

/// The formatter with its properties.
fn formatter(options: &Options) -> Result<Formatter, Ended> {
    if options.has("property") && options.has("formatter-property") {
        let message = "Options --property and --formatter-property cannot be specified together.";
        return Err(Ended::Usage(message.to_owned()));
    }
    if options.has("property") {
        print(
            "Option --property is deprecated and will be removed in a future version. Use --formatter-property instead.\n",
        );
    }
    let mut properties = Properties::new();
    if let Some(path) = options.value("formatter-config")? {
        properties.extend(properties_in(Path::new(path)).map_err(|error| java::config(&error))?);
    }
    for (option, key) in [("key-deserializer", "key.deserializer"), ("value-deserializer", "value.deserializer")] {
        properties.extend(options.value(option)?.map(|class| (key.to_owned(), class.to_owned())));
    }
    properties.extend(pairs(&options.values("formatter-property")));
    properties.extend(pairs(&options.values("property")));
    let class = options.value("formatter")?.unwrap_or(formatter::CLASS);
    Formatter::new(class, &properties).ok_or_else(|| Ended::Usage(class.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        match execute(&words) {
            Err(Ended::Usage(message)) => message,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn options_that_do_not_go_together_are_refused() {
        let one = "Exactly one of the following arguments is required: [topic], [include]";
        assert_eq!(refused("--bootstrap-server b:1"), one);
        assert_eq!(refused("--topic a --include b"), one);
        assert_eq!(refused("--include a --partition 0"), "The topic is required when partition is specified.");
        assert_eq!(refused("--topic a --offset 1"), "The partition is required when offset is specified.");
        let line = "--bootstrap-server b:1 --topic a";
        let refused = |more: &str| refused(&format!("{line} {more}"));
        assert!(refused("--partition 0 --offset soon").starts_with("The provided offset value 'soon' is incorrect."));
        let group = "Options group and partition cannot be specified together.";
        assert_eq!(refused("--partition 0 --group g"), group);
        let ids = refused("--group g --command-property group.id=h");
        assert!(ids.ends_with("Detected group ids: 'g', 'h'"), "{ids}");
        let reset = refused("--from-beginning --command-property auto.offset.reset=latest");
        assert!(reset.starts_with("Can't simultaneously specify --from-beginning"), "{reset}");
        assert_eq!(refused("--formatter none.Such"), "none.Such");
    }
}
