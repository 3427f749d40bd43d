//! kafka-consumer-groups. Here are its options and actions; what a description looks like and how offsets are reset lie below.

mod describe;
mod reset;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;

use milena_client::admin::{GroupListing, TopicPartition};
use milena_client::{Admin, Error};
use milena_protocol::ErrorCode;

use super::options::{Flag, Misuse, Options};
use super::{Ended, Thrown, ask, end, java, need, read, refuse};
use crate::output::{print, print_error};

const ABOUT: &str = "This tool helps to list all consumer groups, describe a consumer group, delete consumer group info, \
                     or reset consumer group offsets.";

const ACTIONS: [&str; 6] = ["list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex"];

const FLAGS: &[Flag] = &[
    Flag::switch("all-groups", "Apply to all consumer groups."),
    Flag::switch("all-topics", "Consider all topics assigned to a group in the reset-offsets process."),
    Flag::value("bootstrap-server", "REQUIRED (except with --validate-regex): The server(s) to connect to."),
    Flag::value("by-duration", "Reset offsets to offset by duration from current timestamp. Format: 'PnDTnHnMnS'"),
    Flag::value("command-config", "Property file containing configs to be passed to Admin Client."),
    Flag::switch("delete", "Pass in groups to delete topic partition offsets and ownership information."),
    Flag::switch("delete-offsets", "Delete offsets of consumer group. Supports one consumer group and several topics."),
    Flag::switch("describe", "Describe consumer group and list offset lag related to given group."),
    Flag::switch("dry-run", "Only show results without executing changes on consumer groups."),
    Flag::switch("execute", "Execute operation. Supported operations: reset-offsets."),
    Flag::switch("export", "Export operation execution to a CSV file. Supported operations: reset-offsets."),
    Flag::value("from-file", "Reset offsets to values defined in CSV file."),
    Flag::value("group", "The consumer group we wish to act on."),
    Flag::switch("help", "Print usage information."),
    Flag::switch("list", "List all consumer groups."),
    Flag::switch("members", "Describe members of the group."),
    Flag::switch("offsets", "Describe the group and list all topic partitions in the group along with their offsets."),
    Flag::switch("reset-offsets", "Reset offsets of consumer group."),
    Flag::value("shift-by", "Reset offsets shifting current offset by 'n', where 'n' can be positive or negative."),
    Flag::maybe("state", "With --describe, the state of the group; with --list, only groups in these states."),
    Flag::value("timeout", "The timeout in milliseconds."),
    Flag::switch("to-current", "Reset offsets to current offset."),
    Flag::value("to-datetime", "Reset offsets to offset from datetime. Format: 'YYYY-MM-DDThh:mm:ss.sss'"),
    Flag::switch("to-earliest", "Reset offsets to earliest offset."),
    Flag::switch("to-latest", "Reset offsets to latest offset."),
    Flag::value("to-offset", "Reset offsets to a specific offset."),
    Flag::value("topic", "The topic, or topic:0,1,2 for some of its partitions."),
    Flag::maybe("type", "With --list, the types of the groups, or only groups of these types."),
    Flag::value("validate-regex", "Validate that the syntax of the provided regular expression is valid."),
    Flag::switch("verbose", "Provide additional information, if any, when describing the group."),
    Flag::switch("version", "Display Kafka version."),
];

/// Options that go with certain actions only, as the library checks them.
const ONLY_WITH: [(&str, &[&str]); 5] = [
    ("members", &["describe"]),
    ("verbose", &["describe"]),
    ("offsets", &["describe"]),
    ("state", &["describe", "list"]),
    ("type", &["list"]),
];

/// Runs the tool.
pub fn run(arguments: &[String]) -> ExitCode {
    let options = match read(FLAGS, ABOUT, arguments).and_then(|options| check(&options).map(|()| options)) {
        Ok(options) => options,
        refused => {
            return end(refused.map(drop), FLAGS, |thrown| {
                print_error(&format!("Exception in thread \"main\" {}\n", thrown.text()));
                1
            });
        }
    };
    // What makes no sense is wrong usage; what goes wrong otherwise ends well, in words.
    end(execute(&options), FLAGS, |thrown| {
        let is_misuse = thrown.class == java::ILLEGAL_ARGUMENT || thrown.class.starts_with(java::OPTIONS);
        if is_misuse {
            print_error(&format!("{}\n{}", thrown.message, super::options::usage(FLAGS)));
            return 1;
        }
        let (message, text) = thrown.caught();
        print(&format!("\nError: Executing consumer group command failed due to {message}\n"));
        print_error(&format!("{text}\n"));
        0
    })
}

fn execute(options: &Options) -> Result<(), Ended> {
    if let Some(regex) = options.value("validate-regex")? {
        print(&java::validate_regex(regex));
        return Ok(());
    }
    ask(options, async |admin| match ACTIONS.iter().find(|action| options.has(action)) {
        Some(&"list") => list(admin, options).await,
        Some(&"describe") => describe::run(admin, options).await,
        Some(&"delete") => delete(admin, options).await,
        Some(&"reset-offsets") => reset::run(admin, options).await,
        _ => delete_offsets(admin, options).await,
    })
}

fn check(options: &Options) -> Result<(), Ended> {
    for (option, with) in ONLY_WITH {
        if options.has(option) && !with.iter().any(|action| options.has(action)) {
            return Err(Misuse::unavailable(option).into());
        }
    }
    if !options.has("validate-regex") {
        need(options, &["bootstrap-server"])?;
    }
    let takes = |action: &str, what: &str| Err(Ended::Usage(format!("Option [{action}] takes {what}")));
    let scoped = options.has("group") || options.has("all-groups");
    for action in ["describe", "delete", "reset-offsets"] {
        if options.has(action) && !scoped {
            return takes(action, "one of these options: [all-groups], [group]");
        }
    }
    if options.has("describe") {
        if ["members", "offsets", "state"].iter().filter(|option| options.has(option)).count() > 1 {
            return takes("describe", "at most one of these options: [members], [offsets], [state]");
        }
        if options.value("state")?.is_some() {
            return Err(Ended::Usage("Option [describe] does not take a value for [state]".to_owned()));
        }
    }
    if options.has("delete") && options.has("topic") {
        let message = "The consumer does not support topic-specific offset deletion from a consumer group.";
        return Err(Ended::Usage(message.to_owned()));
    }
    if options.has("delete-offsets") && !(options.has("group") && options.has("topic")) {
        return takes("delete-offsets", "the following options: [group], [topic]");
    }
    if options.has("reset-offsets") {
        reset::check(options)?;
    }
    refuse(options, "group", &["all-groups", "list"])?;
    refuse(options, "topic", &["list", "describe"])?;
    if ACTIONS.iter().filter(|action| options.has(action)).count() != 1 {
        let actions = ACTIONS.map(|action| format!("--{action}")).join(", ");
        return Err(Ended::Usage(format!("Command must include exactly one action: {actions}")));
    }
    Ok(())
}

/// The names of the option's values, checked against those that there are.
fn words(options: &Options, option: &str, of: &str, valid: &[&str]) -> Result<Vec<String>, Ended> {
    let Some(text) = options.value(option)?.filter(|text| !text.is_empty()) else { return Ok(Vec::new()) };
    let find = |word: &str| valid.iter().find(|valid| valid.eq_ignore_ascii_case(word.trim()));
    let words: Option<Vec<String>> = text.split(',').map(|word| find(word).map(|word| (*word).to_owned())).collect();
    words.ok_or_else(|| {
        let many = format!("{}s", of.trim_end_matches('s'));
        Thrown::argument(format!("Invalid {of} list '{text}'. Valid {many} are: {}", valid.join(", "))).into()
    })
}

/// All consumer groups, in order of their ids.
async fn consumer_groups(admin: &Admin, states: &[String], kinds: &[String]) -> Result<Vec<GroupListing>, Error> {
    let kinds = if kinds.is_empty() { vec!["classic".to_owned(), "consumer".to_owned()] } else { kinds.to_vec() };
    let kinds: Vec<String> = kinds.iter().map(|kind| kind.to_lowercase()).collect();
    let mut groups = admin.list_groups(states, &kinds).await?;
    groups.retain(|group| group.protocol_type.is_empty() || group.protocol_type == "consumer");
    Ok(groups)
}

/// The groups that the options name.
async fn chosen(admin: &Admin, options: &Options) -> Result<Vec<String>, Ended> {
    if options.has("all-groups") {
        return Ok(consumer_groups(admin, &[], &[]).await?.into_iter().map(|group| group.id).collect());
    }
    let mut groups: Vec<String> = options.values("group").into_iter().map(str::to_owned).collect();
    let mut seen = BTreeSet::new();
    groups.retain(|group| seen.insert(group.clone()));
    Ok(groups)
}

async fn list(admin: &Admin, options: &Options) -> Result<(), Ended> {
    let states = words(options, "state", "state", &java::CONSUMER_GROUP_STATES)?;
    let kinds = words(options, "type", "types", &["Classic", "Consumer"])?;
    let groups = consumer_groups(admin, &states, &kinds).await?;
    print(&listing(&groups, options.has("type"), options.has("state")));
    Ok(())
}

fn listing(groups: &[GroupListing], with_type: bool, with_state: bool) -> String {
    if !with_type && !with_state {
        return groups.iter().map(|group| format!("{}\n", group.id)).collect();
    }
    let width = groups.iter().map(|group| group.id.chars().count()).max().unwrap_or(0).max(15) + 10;
    let mut text = String::new();
    let mut line = |id: &str, kind: &str, state: &str| {
        let _ = write!(text, "{id:<width$}");
        if with_type {
            let _ = write!(text, " {kind:<20}");
        }
        if with_state {
            let _ = write!(text, " {state:<20}");
        }
        text.push('\n');
    };
    line("GROUP", "TYPE", "STATE");
    for group in groups {
        let state = if group.state.is_empty() { "Unknown" } else { &group.state };
        line(&group.id, &java::group_type(&group.kind), state);
    }
    text
}

async fn delete(admin: &Admin, options: &Options) -> Result<(), Ended> {
    let groups = chosen(admin, options).await?;
    let (mut deleted, mut failed) = (Vec::new(), String::new());
    for (group, outcome) in admin.delete_groups(&groups).await? {
        match outcome {
            Ok(()) => deleted.push(format!("'{group}'")),
            Err(error) => {
                let why = java::thrown(&error).text();
                let _ = writeln!(failed, "* Group '{group}' could not be deleted due to: {why}");
            }
        }
    }
    let deleted = deleted.join(", ");
    if failed.is_empty() {
        print(&format!("Deletion of requested consumer groups ({deleted}) was successful.\n"));
        return Ok(());
    }
    print(&format!("\nError: Deletion of some consumer groups failed:\n{failed}"));
    if !deleted.is_empty() {
        print(&format!("\nThese consumer groups were deleted successfully: {deleted}\n"));
    }
    Ok(())
}

/// What became of each partition; -1 stands for a topic whose partitions are not known.
type Deleted = BTreeMap<TopicPartition, Option<String>>;

async fn delete_offsets(admin: &Admin, options: &Options) -> Result<(), Ended> {
    let group = options.value("group")?.unwrap_or_default();
    let mut results = Deleted::new();
    let mut partitions = Vec::new();
    for topic in options.values("topic") {
        match reset::partitions_of(admin, topic).await {
            Ok(found) => partitions.extend(found),
            Err(Ended::Thrown(thrown)) if thrown.class != java::ILLEGAL_ARGUMENT => {
                results.insert(TopicPartition::new(topic, -1), Some(thrown.text()));
            }
            Err(other) => return Err(other),
        }
    }
    let mut first = None;
    match admin.delete_offsets(group, &partitions).await {
        Ok(outcomes) => {
            for (partition, outcome) in outcomes {
                let failed = outcome.err();
                first = first.or(failed.as_ref().and_then(Error::code));
                results.insert(partition, failed.map(|error| java::thrown(&error).text()));
            }
        }
        Err(error) => {
            first = Some(error.code().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR));
            let why = java::thrown(&error).text();
            results.extend(partitions.into_iter().map(|partition| (partition, Some(why.clone()))));
        }
    }
    print(&deleted_offsets(group, first, &results));
    Ok(())
}

fn deleted_offsets(group: &str, failed: Option<ErrorCode>, results: &Deleted) -> String {
    let mut text = match failed {
        None => format!("Request succeeded for deleting offsets from group {group}.\n"),
        Some(
            code @ (ErrorCode::INVALID_GROUP_ID
            | ErrorCode::GROUP_ID_NOT_FOUND
            | ErrorCode::GROUP_AUTHORIZATION_FAILED
            | ErrorCode::NON_EMPTY_GROUP),
        ) => format!("\nError: {}\n", code.text()),
        Some(
            ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC
            | ErrorCode::TOPIC_AUTHORIZATION_FAILED
            | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        ) => "\nError: Encountered some partition-level error, see the follow-up details.\n".to_owned(),
        Some(code) => format!("\nError: Encountered some unknown error: {}\n", code.name()),
    };
    let width = results.keys().map(|partition| partition.topic.chars().count()).max().unwrap_or(0).max(15);
    let mut line = |topic: &str, partition: &str, status: &str| {
        let _ = write!(text, "\n{topic:<width$} {partition:<10} {status:<15}");
    };
    line("TOPIC", "PARTITION", "STATUS");
    let mut results: Vec<_> = results.iter().collect();
    results.sort_by_key(|(partition, _)| format!("{}{}", partition.topic, partition.partition));
    for (partition, failed) in results {
        let number = if partition.partition < 0 { "-".to_owned() } else { partition.partition.to_string() };
        let status = failed.as_ref().map_or_else(|| "Successful".to_owned(), |why| format!("Error: {why}"));
        line(&partition.topic, &number, &status);
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(id: &str, kind: &str, state: &str) -> GroupListing {
        GroupListing { id: id.into(), protocol_type: "consumer".into(), state: state.into(), kind: kind.into() }
    }

    #[test]
    fn a_list_has_types_and_states_when_they_are_asked_for() {
        let groups = [group("g", "consumer", "Stable"), group("h", "classic", "")];
        assert_eq!(listing(&groups, false, false), "g\nh\n");
        let expected =
            format!("{:<25} {:<20}\n{:<25} {:<20}\n{:<25} {:<20}\n", "GROUP", "TYPE", "g", "Consumer", "h", "Classic");
        assert_eq!(listing(&groups, true, false), expected);
        assert!(listing(&groups, true, true).ends_with(&format!("h{:24} Classic{:13} Unknown{:13}\n", "", "", "")));
    }

    #[test]
    fn deleted_offsets_are_told_by_partition() {
        let results =
            Deleted::from([(TopicPartition::new("t", 0), None), (TopicPartition::new("gone", -1), Some("x".into()))]);
        let expected = format!(
            "Request succeeded for deleting offsets from group g.\n\n{:<15} {:<10} {:<15}\n{:<15} {:<10} {:<15}\n{:<15} {:<10} {:<15}\n",
            "TOPIC", "PARTITION", "STATUS", "gone", "-", "Error: x", "t", "0", "Successful"
        );
        assert_eq!(deleted_offsets("g", None, &results), expected);
        let refused = deleted_offsets("g", Some(ErrorCode::GROUP_ID_NOT_FOUND), &Deleted::new());
        assert!(refused.starts_with("\nError: The group id does not exist.\n\nTOPIC "), "{refused}");
    }

    #[test]
    fn options_have_their_actions() {
        let parse = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            match Options::parse(FLAGS, &words).map_err(Ended::from).and_then(|options| check(&options)) {
                Ok(()) => String::new(),
                Err(Ended::Usage(message)) => message,
                Err(Ended::Thrown(thrown)) => thrown.message,
                Err(Ended::Version | Ended::Stopped(_)) => unreachable!("nobody asked"),
            }
        };
        assert_eq!(parse("--bootstrap-server a --list"), "");
        assert_eq!(parse("--list"), "Missing required argument \"[bootstrap-server]\"");
        let expected = "Option(s) [members] are unavailable given other options on the command line";
        assert_eq!(parse("--bootstrap-server a --list --members"), expected);
        let expected = "Option [describe] takes one of these options: [all-groups], [group]";
        assert_eq!(parse("--bootstrap-server a --describe"), expected);
        let expected = "Option \"[group]\" can't be used with option \"[list]\"";
        assert_eq!(parse("--bootstrap-server a --list --group g"), expected);
    }
}
