//! kafka-leader-election.

use std::collections::BTreeSet;
use std::process::ExitCode;

use milena_client::admin::{ElectionType, TopicPartition};
use milena_client::{Admin, Error};
use milena_protocol::ErrorCode;
use serde_json::Value;

use super::json::Json;
use super::options::{Flag, Options};
use super::{Ended, Thrown, ask, end, java, read, refuse};
use crate::output::{print, print_error};

const ABOUT: &str = "This tool attempts to elect a new leader for a set of topic partitions. The type of elections \
    supported are preferred replicas and unclean replicas.";

const FLAGS: &[Flag] = &[
    Flag::value("admin.config", "(DEPRECATED) Configuration properties files to pass to the admin client."),
    Flag::switch("all-topic-partitions", "Perform election on all of the eligible topic partitions."),
    Flag::value("bootstrap-server", "REQUIRED. A hostname and port for the broker to connect to."),
    Flag::value("command-config", "Config properties file to pass to the admin client."),
    Flag::value("election-type", "REQUIRED. Type of election to attempt: \"preferred\" or \"unclean\"."),
    Flag::switch("help", "Print usage information."),
    Flag::value("partition", "Partition id for which to perform an election. REQUIRED if --topic is specified."),
    Flag::value(
        "path-to-json-file",
        "The JSON file with the list of partitions: {\"partitions\": [{\"topic\": \"foo\", \"partition\": 1}]}",
    ),
    Flag::value("topic", "Name of topic for which to perform an election."),
    Flag::switch("version", "Display Kafka version."),
];

/// Runs the tool.
pub fn run(arguments: &[String]) -> ExitCode {
    end(execute(arguments), FLAGS, |thrown| {
        print_error(&format!("{}\n", thrown.caught().0));
        1
    })
}

fn failed(message: impl Into<String>) -> Ended {
    Thrown::new(java::TOOL_COMMAND_FAILED, message).into()
}

fn execute(arguments: &[String]) -> Result<(), Ended> {
    let options = read(FLAGS, ABOUT, arguments)?;
    let kind = match options.value("election-type")? {
        None => None,
        Some(text) if text.eq_ignore_ascii_case("preferred") => Some(ElectionType::Preferred),
        Some(text) if text.eq_ignore_ascii_case("unclean") => Some(ElectionType::Unclean),
        Some(text) => {
            let message = format!("Cannot parse argument '{text}' of option election-type");
            return Err(Thrown::new("joptsimple.OptionArgumentConversionException", message).into());
        }
    };
    check(&options)?;
    let partitions = partitions(&options)?;
    if options.has("admin.config") {
        print(
            "Option --admin.config has been deprecated and will be removed in a future version. Use --command-config \
             instead.\n",
        );
    }
    let kind = kind.unwrap_or(ElectionType::Preferred);
    ask(&options, async |admin| elect(admin, kind, partitions.as_deref()).await)
}

fn check(options: &Options) -> Result<(), Ended> {
    let missing: Vec<&str> =
        ["bootstrap-server", "election-type"].into_iter().filter(|name| !options.has(name)).collect();
    if !missing.is_empty() {
        return Err(failed(format!("Missing required option(s): {}", missing.join(", "))));
    }
    refuse(options, "admin.config", &["command-config"])?;
    let ways = ["topic", "all-topic-partitions", "path-to-json-file"];
    if ways.iter().filter(|way| options.has(way)).count() != 1 {
        return Err(failed(format!("One and only one of the following options is required: {}", ways.join(", "))));
    }
    match (options.has("topic"), options.has("partition")) {
        (true, false) => Err(failed("Missing required option(s): partition")),
        (false, true) => Err(failed("Option partition is only allowed if topic is used")),
        _ => Ok(()),
    }
}

/// The partitions that are named; `None` for all of them.
fn partitions(options: &Options) -> Result<Option<Vec<TopicPartition>>, Ended> {
    if let Some(path) = options.value("path-to-json-file")? {
        let text = std::fs::read_to_string(path);
        let text = text
            .map_err(|_| Thrown::new(java::RUNTIME, format!("{}: Unable to read file {path}", java::IO_EXCEPTION)))?;
        return Ok(Some(parse(&text)?));
    }
    let partition: Option<i32> = options.number("partition")?;
    let named = options.value("topic")?.zip(partition);
    Ok(named.map(|(topic, partition)| vec![TopicPartition::new(topic, partition)]))
}

fn parse(text: &str) -> Result<Vec<TopicPartition>, Thrown> {
    let bad = |message: String| Thrown::new(java::TOOL_OPERATION, message);
    // What the tool does not expect it wraps.
    let wrapped = |thrown: Thrown| Thrown::new(java::RUNTIME, thrown.text());
    let file: Value = serde_json::from_str(text).map_err(|_| bad("Replica election data is empty".to_owned()))?;
    let listed = Json(&file).object().map_err(wrapped)?.get("partitions");
    let listed = listed.ok_or_else(|| bad("Replica election data is missing \"partitions\" field".to_owned()))?;
    let (mut partitions, mut twice) = (BTreeSet::new(), BTreeSet::new());
    for entry in listed.array().map_err(wrapped)? {
        let partition = partition(entry).map_err(wrapped)?;
        if !partitions.insert(partition.clone()) {
            twice.insert(partition.to_string());
        }
    }
    if twice.is_empty() {
        return Ok(partitions.into_iter().collect());
    }
    let twice = twice.into_iter().collect::<Vec<_>>().join(", ");
    Err(bad(format!("Replica election data contains duplicate partitions: [{twice}]")))
}

fn partition(entry: Json<'_>) -> Result<TopicPartition, Thrown> {
    let entry = entry.object()?;
    Ok(TopicPartition::new(entry.need("topic")?.text()?, entry.need("partition")?.int()?))
}

async fn elect(admin: &Admin, kind: ElectionType, partitions: Option<&[TopicPartition]>) -> Result<(), Ended> {
    let name = match kind {
        ElectionType::Preferred => "PREFERRED",
        ElectionType::Unclean => "UNCLEAN",
    };
    let outcomes = match admin.elect_leaders(kind, partitions).await {
        Err(Error::Timeout { .. }) => return Err(told("Timeout waiting for election results")),
        Err(error) if error.code() == Some(ErrorCode::CLUSTER_AUTHORIZATION_FAILED) => {
            return Err(told("Not authorized to perform leader election"));
        }
        Err(error) => {
            let (_, text) = java::thrown(&error).caught();
            return Err(Thrown::new(java::RUNTIME, text).into());
        }
        Ok(outcomes) => outcomes,
    };
    let (mut elected, mut right, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for (partition, outcome) in outcomes {
        match outcome {
            Ok(()) => elected.push(partition.to_string()),
            Err(error) if error.code() == Some(ErrorCode::ELECTION_NOT_NEEDED) => right.push(partition.to_string()),
            Err(error) => refused.push((partition, error)),
        }
    }
    if !elected.is_empty() {
        let all = elected.join(", ");
        print(&format!("Successfully completed leader election ({name}) for partitions {all}\n"));
    }
    if !right.is_empty() {
        print(&format!("Valid replica already elected for partitions {}\n", right.join(", ")));
    }
    for (partition, error) in &refused {
        let why = java::thrown(error).text();
        print(&format!("Error completing leader election ({name}) for partition: {partition}: {why}\n"));
    }
    if refused.is_empty() {
        return Ok(());
    }
    Err(failed(format!("{} replica(s) could not be elected", refused.len())))
}

/// Says on standard output too why nothing was done.
fn told(message: &str) -> Ended {
    print(&format!("{message}\n"));
    failed(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_partitions_each_once() {
        let parsed = parse(r#"{"partitions":[{"topic":"b","partition":1},{"topic":"a","partition":0}]}"#).unwrap();
        assert_eq!(parsed, [TopicPartition::new("a", 0), TopicPartition::new("b", 1)]);
        let message = |text| parse(text).unwrap_err().message;
        assert_eq!(message("nothing"), "Replica election data is empty");
        assert_eq!(message("{}"), "Replica election data is missing \"partitions\" field");
        let twice = r#"{"partitions":[{"topic":"b","partition":1},{"topic":"b","partition":1}]}"#;
        assert_eq!(message(twice), "Replica election data contains duplicate partitions: [b-1]");
    }
}
