//! kafka-console-consumer.

mod formatter;

use std::io::{Write, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use milena_client::{Client, Consumer, Error, SeekTo, Topic, TopicPartition};
use regex_lite::Regex;
use tokio::signal::ctrl_c;
use tokio::time::timeout;

use super::options::{Flag, Options};
use super::{Ended, Thrown, end, java, need, pairs, properties, read_with};
use crate::connect::{Connection, Properties, properties_in, run_client};
use crate::output::{print, print_error};
use formatter::Formatter;

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
/// How long it takes until a topic that was not there is looked for again.
const RETRY: Duration = Duration::from_millis(200);

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
    let in_group = connection.properties().any(|(key, _)| key == "group.id");
    let mut reader = Reader { wanted, formatter, in_group, read: 0 };
    let outcome = run_client(&connection, async |client| {
        let mut consumer = client.consumer().properties(connection.properties())?.build()?;
        let outcome = tokio::select! {
            outcome = reader.run(client, &mut consumer) => outcome,
            _ = ctrl_c() => Ok(()),
        };
        if let Err(error) = consumer.close(CLOSING).await {
            print_error(&format!("ERROR {}\n", java::send_error(&error, "").text()));
        }
        outcome
    });
    print_error(&format!("Processed a total of {} messages\n", reader.read));
    if options.has("enable-systest-events") {
        print("shutdown_complete\n");
    }
    outcome
}

/// Refuses options that do not go together.
fn check(options: &Options) -> Result<(), Ended> {
    let usage = |message: &str| Err(Ended::Usage(message.to_owned()));
    if options.has("topic") == options.has("include") {
        return usage("Exactly one of the following arguments is required: [topic], [include]");
    }
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

/// What is to be read, and for how long.
struct Wanted {
    topics: Topics,
    partition: Option<i32>,
    offset: SeekTo,
    /// How many messages at the most.
    max: u64,
    /// How long to wait for a message.
    patience: Duration,
    /// Whether a message that can't be printed is passed over.
    skip: bool,
}

enum Topics {
    One(String),
    Matching(Regex),
}

impl Wanted {
    fn new(options: &Options) -> Result<Self, Ended> {
        let topics = match (options.value("topic")?, options.value("include")?) {
            (None, Some(pattern)) => Topics::Matching(
                Regex::new(&format!("^(?:{pattern})$"))
                    .map_err(|error| Thrown::new("java.util.regex.PatternSyntaxException", error.to_string()))?,
            ),
            (topic, _) => Topics::One(topic.unwrap_or_default().to_owned()),
        };
        let max: i32 = options.number("max-messages")?.unwrap_or(-1);
        let patience: i64 = options.number("timeout-ms")?.unwrap_or(-1);
        Ok(Self {
            topics,
            partition: options.number("partition")?,
            offset: offset(options.value("offset")?, options.has("from-beginning"))?,
            max: if max == -1 { u64::MAX } else { max.try_into().unwrap_or(0) },
            patience: u64::try_from(patience).map_or(FOREVER, Duration::from_millis),
            skip: options.has("skip-message-on-error"),
        })
    }
}

/// Longer than any program runs.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

fn offset(text: Option<&str>, from_beginning: bool) -> Result<SeekTo, Ended> {
    let Some(text) = text else { return Ok(if from_beginning { SeekTo::Beginning } else { SeekTo::End }) };
    match (text.to_lowercase().as_str(), text.parse()) {
        ("earliest", _) => Ok(SeekTo::Beginning),
        ("latest", _) => Ok(SeekTo::End),
        (_, Ok(offset)) if offset >= 0 => Ok(SeekTo::Offset(offset)),
        _ => Err(Ended::Usage(format!(
            "The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest', or a non-negative long."
        ))),
    }
}

/// One run.
struct Reader {
    wanted: Wanted,
    formatter: Formatter,
    /// Whether partitions are shared with the members of a group, rather than all of them read.
    in_group: bool,
    read: u64,
}

impl Reader {
    /// Reads and prints until it is enough. What goes wrong while it waits ends it as well.
    async fn run(&mut self, client: &Client, consumer: &mut Consumer) -> Result<(), Ended> {
        let patience = self.wanted.patience;
        if let Err(why) = self.begin(client, consumer).await {
            return terminate(&why);
        }
        let mut text = Vec::new();
        while self.read < self.wanted.max {
            let records = match consumer.poll(patience).await {
                Ok(Some(records)) => records,
                Ok(None) => return terminate(java::TIMEOUT),
                Err(error) => return terminate(&java::send_error(&error, "").text()),
            };
            text.clear();
            let mut failed = None;
            for record in records.iter() {
                if self.read == self.wanted.max {
                    // Whoever goes on for the group gets it.
                    consumer.seek(records.topic_partition(), SeekTo::Offset(record.offset))?;
                    break;
                }
                self.read += 1;
                match self.formatter.write(&records, &record, &mut text) {
                    Err(thrown) if self.wanted.skip => print_error(&format!(
                        "ERROR Error processing message, skipping this message: {}\n",
                        thrown.text()
                    )),
                    Err(thrown) => {
                        failed = Some(thrown);
                        break;
                    }
                    Ok(()) => {}
                }
            }
            let mut out = stdout().lock();
            if out.write_all(&text).and_then(|()| out.flush()).is_err() {
                print_error("Unable to write to standard out, closing consumer.\n");
                return Ok(());
            }
            if let Some(thrown) = failed {
                return Err(thrown.into());
            }
        }
        Ok(())
    }

    /// Joins the group, or takes the partitions; what keeps it from that.
    async fn begin(&self, client: &Client, consumer: &mut Consumer) -> Result<(), String> {
        let text = |error: Error| java::send_error(&error, "").text();
        match &self.wanted.topics {
            Topics::One(topic) if self.in_group => return consumer.subscribe([topic]).map_err(text),
            Topics::Matching(pattern) if self.in_group => {
                return consumer.subscribe_pattern(pattern.as_str()).map_err(text);
            }
            _ => {}
        }
        let partitions = timeout(self.wanted.patience, self.partitions(client)).await;
        consumer.assign(partitions.map_err(|_| java::TIMEOUT.to_owned())?.map_err(text)?);
        if self.wanted.partition.is_some() {
            let place = self.wanted.offset;
            consumer.assignment().iter().try_for_each(|partition| consumer.seek(partition, place)).map_err(text)?;
        }
        Ok(())
    }

    /// The partitions to read; waits until there are some.
    async fn partitions(&self, client: &Client) -> Result<Vec<TopicPartition>, Error> {
        loop {
            let found = match (&self.wanted.topics, self.wanted.partition) {
                (Topics::One(topic), Some(partition)) => {
                    return Ok(vec![TopicPartition::new(topic.as_str(), partition)]);
                }
                (Topics::One(topic), None) => client.topic(topic, true).await.map(|topic| all(&topic)),
                (Topics::Matching(pattern), _) => client.all_topics().await.map(|metadata| {
                    let topics = metadata.topics().filter(|topic| !topic.is_internal && pattern.is_match(&topic.name));
                    topics.flat_map(|topic| all(topic)).collect()
                }),
            };
            match found {
                Ok(partitions) if !partitions.is_empty() => return Ok(partitions),
                Err(error) if !error.is_retriable() => return Err(error),
                _ => tokio::time::sleep(RETRY).await,
            }
        }
    }
}

fn all(topic: &Topic) -> Vec<TopicPartition> {
    topic.partitions.iter().map(|partition| TopicPartition::new(Arc::clone(&topic.name), partition.index)).collect()
}

/// Logs why the tool ends, which is well for all that.
fn terminate(why: &str) -> Result<(), Ended> {
    print_error(&format!("ERROR Error processing message, terminating consumer process: {why}\n"));
    Ok(())
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
