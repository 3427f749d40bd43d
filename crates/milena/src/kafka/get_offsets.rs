//! kafka-get-offsets.

use std::fmt::Write as _;
use std::process::ExitCode;

use milena_client::Admin;
use milena_client::admin::{OffsetSpec, TopicPartition};
use regex_lite::Regex;

use super::options::{Flag, Options};
use super::{Ended, Thrown, ask, end, java, need, read};
use crate::output::{print, print_error};

const ABOUT: &str = "An interactive shell for getting topic-partition offsets.";

const FLAGS: &[Flag] = &[
    Flag::value("bootstrap-server", "REQUIRED. The server(s) to connect to in the form HOST1:PORT1,HOST2:PORT2."),
    Flag::value("command-config", "Property file containing configs to be passed to Admin Client."),
    Flag::switch("exclude-internal-topics", "By default, internal topics are included."),
    Flag::switch("help", "Print usage information."),
    Flag::value("partitions", "Comma separated list of partition ids to get the offsets for."),
    Flag::value(
        "time",
        "<timestamp> / -1 or latest / -2 or earliest / -3 or max-timestamp / -4 or earliest-local / ...",
    ),
    Flag::value("topic", "The topic to get the offsets for. It also accepts a regular expression."),
    Flag::value("topic-partitions", "topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3"),
    Flag::switch("version", "Display Kafka version."),
];

/// Runs the tool.
pub fn run(arguments: &[String]) -> ExitCode {
    end(execute(arguments), FLAGS, |thrown| {
        print_error(&format!("Error occurred: {}\n", thrown.message));
        1
    })
}

fn execute(arguments: &[String]) -> Result<(), Ended> {
    let options = read(FLAGS, ABOUT, arguments)?;
    need(&options, &["bootstrap-server"])?;
    if options.has("topic-partitions") && (options.has("topic") || options.has("partitions")) {
        return Err(Thrown::argument("--topic-partitions cannot be used with --topic or --partitions").into());
    }
    let spec = offset_spec(options.value("time")?.unwrap_or("latest"))?;
    let filters = filters(&options)?;
    ask(&options, async |admin| offsets(admin, spec, &filters, options.has("exclude-internal-topics")).await)
}

async fn offsets(admin: &Admin, spec: OffsetSpec, filters: &[Filter], own_only: bool) -> Result<(), Ended> {
    let mut asked = Vec::new();
    for topic in admin.list_topics().await?.into_iter().filter(|topic| !(own_only && topic.internal)) {
        let partitions = (0..).take(topic.partitions);
        let chosen = partitions.filter(|partition| filters.iter().any(|filter| filter.takes(&topic.name, *partition)));
        asked.extend(chosen.map(|partition| (TopicPartition::new(&*topic.name, partition), spec)));
    }
    if asked.is_empty() {
        return Err(Thrown::argument("Could not match any topic-partitions with the specified filters").into());
    }
    let mut lines = Vec::new();
    for (partition, listed) in admin.list_offsets(asked).await {
        match listed {
            Ok(listed) => lines.extend(listed.offset.map(|offset| (partition.to_string(), partition, offset))),
            Err(error) => print_error(&format!(
                "Skip getting offsets for topic-partition {partition} due to error: {}\n",
                java::thrown(&error).text()
            )),
        }
    }
    // As texts, so that partition 10 stands before 2.
    lines.sort();
    let mut text = String::new();
    for (_, partition, offset) in lines {
        let _ = writeln!(text, "{}:{}:{offset}", partition.topic, partition.partition);
    }
    print(&text);
    Ok(())
}

fn offset_spec(text: &str) -> Result<OffsetSpec, Thrown> {
    Ok(match text {
        "latest" | "-1" => OffsetSpec::Latest,
        "earliest" | "-2" => OffsetSpec::Earliest,
        "max-timestamp" | "-3" => OffsetSpec::MaxTimestamp,
        "earliest-local" | "-4" => OffsetSpec::EarliestLocal,
        "latest-tiered" | "-5" => OffsetSpec::LatestTiered,
        "earliest-pending-upload" | "-6" => OffsetSpec::EarliestPendingUpload,
        other => OffsetSpec::Timestamp(other.parse().map_err(|_| {
            Thrown::argument(format!(
                "Malformed time argument {other}. Please use -1 or latest / -2 or earliest / -3 or max-timestamp / -4 or \
                 earliest-local / -5 or latest-tiered / -6 or earliest-pending-upload, or a specified long format timestamp"
            ))
        })?),
    })
}

/// Topics by a pattern, and some of their partitions.
struct Filter {
    topic: Option<Regex>,
    partitions: Partitions,
}

/// Which partitions of a topic.
#[derive(Debug, PartialEq, Eq)]
enum Partitions {
    All,
    These(Vec<i32>),
    /// From the first to before the second.
    Between(i32, i32),
}

impl Filter {
    fn takes(&self, topic: &str, partition: i32) -> bool {
        let number = match &self.partitions {
            Partitions::All => true,
            Partitions::These(numbers) => numbers.contains(&partition),
            Partitions::Between(from, to) => (*from..*to).contains(&partition),
        };
        number && self.topic.as_ref().is_none_or(|pattern| pattern.is_match(topic))
    }
}

fn filters(options: &Options) -> Result<Vec<Filter>, Ended> {
    if let Some(list) = options.value("topic-partitions")? {
        return list.split(',').map(rule).collect();
    }
    let numbers = options.value("partitions")?.filter(|text| !text.is_empty());
    let numbers = numbers.map(|text| text.split(',').map(|number| number.parse().ok()).collect::<Option<Vec<i32>>>());
    let partitions = match numbers {
        None => Partitions::All,
        Some(Some(numbers)) => Partitions::These(numbers),
        Some(None) => {
            let message = "--partitions expects a comma separated list of numeric partition ids, but received: ";
            return Err(
                Thrown::argument(format!("{message}{}", options.value("partitions")?.unwrap_or_default())).into()
            );
        }
    };
    let topic = options.value("topic")?.map(java::topic_filter).transpose()?;
    Ok(vec![Filter { topic, partitions }])
}

/// `topic`, `topic:1`, `topic:1-3`, `topic:1-`, `topic:-3`, each also without the topic.
fn rule(text: &str) -> Result<Filter, Ended> {
    let bad = || {
        let message = format!("Invalid rule specification: {text}");
        Ended::from(Thrown::argument(message))
    };
    let (topic, numbers) = text.split_once(':').unwrap_or((text, ""));
    let topic = if topic.is_empty() { None } else { Some(java::topic_filter(topic)?) };
    let number = |text: &str, absent: i32| if text.is_empty() { Ok(absent) } else { text.parse().map_err(|_| bad()) };
    let partitions = match numbers.split_once('-') {
        None if numbers.is_empty() => Partitions::All,
        None => Partitions::These(vec![number(numbers, 0)?]),
        Some((from, to)) => Partitions::Between(number(from, 0)?, number(to, i32::MAX)?),
    };
    Ok(Filter { topic, partitions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_names_topics_and_partitions() {
        let partitions = |text: &str| rule(text).map(|filter| filter.partitions).ok();
        assert_eq!(partitions("t"), Some(Partitions::All));
        assert_eq!(partitions("t:1"), Some(Partitions::These(vec![1])));
        assert_eq!(partitions("t:1-3"), Some(Partitions::Between(1, 3)));
        assert_eq!(partitions("t:1-"), Some(Partitions::Between(1, i32::MAX)));
        assert_eq!(partitions(":-3"), Some(Partitions::Between(0, 3)));
        assert_eq!(partitions("t:x"), None);
        let filter = rule("a.*:-3").ok().unwrap();
        assert!(filter.takes("abc", 2) && !filter.takes("abc", 3) && !filter.takes("xabc", 0));
    }

    #[test]
    fn a_time_is_a_word_or_a_number() {
        assert_eq!(offset_spec("earliest"), Ok(OffsetSpec::Earliest));
        assert_eq!(offset_spec("-3"), Ok(OffsetSpec::MaxTimestamp));
        assert_eq!(offset_spec("1000"), Ok(OffsetSpec::Timestamp(1000)));
        assert!(offset_spec("soon").unwrap_err().message.starts_with("Malformed time argument soon. "));
    }
}
