//! kafka-reassign-partitions: options and actions. What a file says is in `plan`, new placements are in `generate`, moves
//! between log directories in `log_dirs`, and limits of what moves in `throttle`.

mod generate;
mod log_dirs;
mod plan;
mod throttle;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Duration;

use milena_client::Admin;
use milena_client::admin::{Outcomes, Reassignment, TopicPartition};
use milena_protocol::ErrorCode;

use self::plan::Plan;
use super::options::{Flag, Options};
use super::{Ended, Thrown, ask, end, java, need, read};
use crate::output::print;

const ABOUT: &str = "This tool helps to move topic partitions between replicas.";

const FLAGS: &[Flag] = &[
    Flag::switch("additional", "Execute this reassignment in addition to any other ongoing ones."),
    Flag::value("bootstrap-controller", "The controller(s) to use for --cancel and --list."),
    Flag::value("bootstrap-server", "The server(s) to use for bootstrapping."),
    Flag::value("broker-list", "The list of brokers to move to in the form \"0,1,2\", with --generate."),
    Flag::switch("cancel", "Cancel an active reassignment."),
    Flag::value("command-config", "Property file containing configs to be passed to Admin Client."),
    Flag::switch("disable-rack-aware", "Disable rack aware replica assignment"),
    Flag::switch(
        "disallow-replication-factor-change",
        "Denies the ability to change a partition's replication factor.",
    ),
    Flag::switch("execute", "Kick off the reassignment as specified by the --reassignment-json-file option."),
    Flag::switch("generate", "Generate a candidate partition reassignment configuration; it is not executed."),
    Flag::switch("help", "Print usage information."),
    Flag::switch("list", "List all active partition reassignments."),
    Flag::switch("preserve-throttles", "Do not modify broker or topic throttles."),
    Flag::value(
        "reassignment-json-file",
        "{\"partitions\": [{\"topic\": \"foo\", \"partition\": 1, \"replicas\": [1,2], \"log_dirs\": [\"any\",\"/dir\"]}], \
         \"version\":1}; \"log_dirs\" is optional.",
    ),
    Flag::value("replica-alter-log-dirs-throttle", "Bytes a second at most between log directories of a broker."),
    Flag::value("throttle", "Bytes a second at most between brokers."),
    Flag::value("timeout", "How long to wait for moves between log directories to begin, milliseconds."),
    Flag::value("topics-to-move-json-file", "{\"topics\": [{\"topic\": \"foo\"}], \"version\":1}, with --generate."),
    Flag::switch("verify", "Verify if the reassignment completed; then throttles are removed."),
    Flag::switch("version", "Display Kafka version."),
];

/// An action, what it needs, and what it may have beside that.
const ACTIONS: [(&str, &[&str], &[&str]); 5] = [
    ("generate", &["topics-to-move-json-file", "broker-list"], &["disable-rack-aware"]),
    (
        "execute",
        &["reassignment-json-file"],
        &["additional", "throttle", "replica-alter-log-dirs-throttle", "timeout", "disallow-replication-factor-change"],
    ),
    ("verify", &["reassignment-json-file"], &["preserve-throttles"]),
    ("cancel", &["reassignment-json-file"], &["preserve-throttles", "timeout", "bootstrap-controller"]),
    ("list", &[], &["bootstrap-controller"]),
];

const EXISTING: &str = "Cannot execute because there is an existing partition assignment.  Use --additional to override \
    this and create a new partition assignment in addition to the existing one. The --additional flag can also be used to \
    change the throttle by resubmitting the current reassignment.";

/// Partitions and the brokers of their replicas.
type Assignment = BTreeMap<TopicPartition, Vec<i32>>;

/// Runs the tool.
pub fn run(arguments: &[String]) -> ExitCode {
    end(execute(arguments), FLAGS, |thrown| {
        print(&match &thrown {
            Thrown { class, message, .. } if class == TERSE => format!("{message}\n"),
            _ => {
                let (message, text) = thrown.caught();
                let cause = if thrown.of_future { format!("Caused by: {}\n", thrown.text()) } else { String::new() };
                format!("Error: {message}\n{text}\n{cause}\n")
            }
        });
        1
    })
}

/// The exception of which only the message is told.
const TERSE: &str = "org.apache.kafka.tools.TerseException";

fn terse(message: String) -> Ended {
    Thrown::new(TERSE, message).into()
}

fn execute(arguments: &[String]) -> Result<(), Ended> {
    let options = read(FLAGS, ABOUT, arguments)?;
    let given: Vec<_> = ACTIONS.iter().filter(|(action, ..)| options.has(action)).collect();
    let [(action, needed, allowed)] = given[..] else {
        let all: Vec<String> = ACTIONS.iter().map(|(action, ..)| format!("--{action}")).collect();
        return Err(Ended::Usage(format!("Command must include exactly one action: {}", all.join(", "))));
    };
    match (options.has("bootstrap-server"), options.has("bootstrap-controller")) {
        (false, false) => {
            let message = "Please specify either --bootstrap-server or --bootstrap-controller";
            return Err(Ended::Usage(message.to_owned()));
        }
        (true, true) => {
            let message = "Please don't specify both --bootstrap-server and --bootstrap-controller";
            return Err(Ended::Usage(message.to_owned()));
        }
        _ => {}
    }
    need(&options, needed)?;
    let common = [action, "bootstrap-server", "command-config"];
    let fits = |name: &&'static str| common.contains(name) || needed.contains(name) || allowed.contains(name);
    if let Some(name) = options.names().find(|name| !fits(name)) {
        return Err(Ended::Usage(format!("Option \"[{name}]\" can't be used with action \"[{action}]\"")));
    }
    match *action {
        "generate" => {
            let topics = file(&options, "topics-to-move-json-file")?;
            let brokers = options.value("broker-list")?.unwrap_or_default().to_owned();
            let racks = !options.has("disable-rack-aware");
            ask(&options, async |admin| generate::generate(admin, &topics, &brokers, racks).await)
        }
        "list" => ask(&options, async |admin| {
            print(&listed(&admin.list_reassignments().await?));
            Ok(())
        }),
        "execute" => {
            let text = file(&options, "reassignment-json-file")?;
            ask(&options, async |admin| start(admin, &Plan::to_execute(&text)?, &options).await)
        }
        "verify" => {
            let text = file(&options, "reassignment-json-file")?;
            ask(&options, async |admin| verify(admin, &Plan::parse(&text)?, &options).await)
        }
        _ => {
            let text = file(&options, "reassignment-json-file")?;
            ask(&options, async |admin| cancel(admin, &Plan::parse(&text)?, &options).await)
        }
    }
}

fn file(options: &Options, name: &str) -> Result<String, Ended> {
    let path = options.value(name)?.unwrap_or_default();
    let unread = |_| Thrown::new(java::IO_EXCEPTION, format!("Unable to read file {path}"));
    Ok(std::fs::read_to_string(path).map_err(unread)?)
}

/// `1,2,3`.
fn commas<T: ToString>(things: impl IntoIterator<Item = T>) -> String {
    things.into_iter().map(|thing| thing.to_string()).collect::<Vec<_>>().join(",")
}

fn plural<T>(things: &[T]) -> &'static str {
    if things.len() == 1 { "" } else { "s" }
}

fn listed(reassignments: &[Reassignment]) -> String {
    let mut sorted: Vec<&Reassignment> = reassignments.iter().collect();
    sorted.sort_by_key(|moving| (&moving.topic, moving.partition));
    let line = |moving: &&Reassignment| {
        let part = |what: &str, brokers: &[i32]| match brokers {
            [] => String::new(),
            brokers => format!(" {what}: {}.", commas(brokers)),
        };
        let Reassignment { topic, partition, replicas, adding, removing } = moving;
        let (adding, removing) = (part("adding", adding), part("removing", removing));
        format!("{topic}-{partition}: replicas: {}.{adding}{removing}\n", commas(replicas))
    };
    if sorted.is_empty() {
        return "No partition reassignments found.\n".to_owned();
    }
    format!("Current partition reassignments:\n{}", sorted.iter().map(line).collect::<String>())
}

/// The brokers of the replicas of topics, by partition.
async fn assignment_of(admin: &Admin, topics: &[String]) -> Result<Assignment, Ended> {
    let mut found = Assignment::new();
    for (name, described) in admin.describe_topics(topics).await? {
        let described = match described {
            Err(error) if error.code() == Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) => {
                let message = format!("Topic {name} not found.");
                return Err(Thrown { of_future: true, ..Thrown::new(java::UNKNOWN_TOPIC, message) }.into());
            }
            other => other?,
        };
        let partition = |it: milena_client::admin::PartitionDescription| {
            (TopicPartition::new(name.as_str(), it.partition), it.replicas)
        };
        found.extend(described.partitions.into_iter().map(partition));
    }
    Ok(found)
}

async fn start(admin: &Admin, plan: &Plan, options: &Options) -> Result<(), Ended> {
    let going_on = admin.list_reassignments().await?;
    if !options.has("additional") && !going_on.is_empty() {
        return Err(terse(EXISTING.to_owned()));
    }
    let wanted: Assignment = plan.partitions.iter().cloned().collect();
    let existing: BTreeSet<i32> = admin.describe_cluster().await?.brokers.iter().map(|broker| broker.id).collect();
    if let Some(unknown) = wanted.values().flatten().find(|broker| !existing.contains(broker)) {
        return Err(Thrown::new(java::TOOL_COMMAND_FAILED, format!("Unknown broker id {unknown}")).into());
    }
    let mut now = assignment_of(admin, &plan.topics()).await?;
    now.retain(|partition, _| wanted.contains_key(partition));
    let missing: Vec<&TopicPartition> = wanted.keys().filter(|partition| !now.contains_key(partition)).collect();
    if !missing.is_empty() {
        let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
        let message = format!("Unable to find partition: {}", missing.join(", "));
        return Err(Thrown { of_future: true, ..Thrown::new(java::UNKNOWN_TOPIC, message) }.into());
    }
    print(&format!(
        "Current partition replica assignment\n\n{}\n\nSave this to use as the --reassignment-json-file option during \
         rollback\n",
        plan::json(&now, &log_dirs::of(admin, &now).await?)
    ));
    let limits = throttle::Limits {
        between_brokers: options.number("throttle")?.filter(|limit| *limit >= 0),
        between_dirs: options.number("replica-alter-log-dirs-throttle")?.filter(|limit| *limit >= 0),
    };
    throttle::set(admin, limits, &going_on, &wanted, &now, &plan.log_dirs).await?;
    let moves = wanted.iter().map(|(partition, replicas)| (partition.clone(), Some(replicas.clone()))).collect();
    let may_change_factor = !options.has("disallow-replication-factor-change");
    let failed = refused(admin.alter_reassignments(&moves, may_change_factor).await?);
    if !failed.is_empty() {
        return Err(terse(format!("Error reassigning partition(s):\n{failed}")));
    }
    let names: Vec<String> = wanted.keys().map(ToString::to_string).collect();
    print(&format!("Successfully started partition reassignment{} for {}\n", plural(&names), names.join(",")));
    log_dirs::start(admin, plan.log_dirs.clone(), timeout(options)?).await
}

fn timeout(options: &Options) -> Result<Duration, Ended> {
    let timeout: i64 = options.number("timeout")?.unwrap_or(10_000);
    Ok(Duration::from_millis(u64::try_from(timeout).unwrap_or(0)))
}

/// One line for each partition that was refused.
fn refused(outcomes: Outcomes<TopicPartition, ()>) -> String {
    let mut outcomes = outcomes;
    outcomes.sort_by(|(one, _), (other, _)| one.cmp(other));
    let lines = outcomes.into_iter().filter_map(|(partition, outcome)| {
        outcome.err().map(|error| format!("{partition}: {}", java::thrown(&error).message))
    });
    lines.collect::<Vec<_>>().join("\n")
}

async fn verify(admin: &Admin, plan: &Plan, options: &Options) -> Result<(), Ended> {
    let going_on = admin.list_reassignments().await?;
    let is_moving = |partition: &TopicPartition| {
        going_on.iter().any(|moving| *moving.topic == *partition.topic && moving.partition == partition.partition)
    };
    let mut now = BTreeMap::new();
    for (name, described) in admin.describe_topics(&plan.topics()).await? {
        match described {
            Ok(topic) => drop(now.insert(name, topic.partitions)),
            Err(error) if error.code() == Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut text = "Status of partition reassignment:\n".to_owned();
    for (partition, wanted) in plan.partitions.iter().cloned().collect::<Assignment>() {
        if is_moving(&partition) {
            text += &format!("Reassignment of partition {partition} is still in progress.\n");
            continue;
        }
        let index = usize::try_from(partition.partition).unwrap_or(usize::MAX);
        let found = now.get(&*partition.topic).and_then(|partitions| partitions.get(index));
        let replicas = found.map(|found| found.replicas.clone()).unwrap_or_default();
        text += &if replicas == wanted {
            format!("Reassignment of partition {partition} is completed.\n")
        } else {
            format!(
                "There is no active reassignment of partition {partition}, but replica set is {} rather than {}.\n",
                commas(&replicas),
                commas(&wanted)
            )
        };
    }
    print(&text);
    let all_there = log_dirs::verify(admin, &plan.log_dirs).await?;
    if going_on.is_empty() && all_there && !options.has("preserve-throttles") {
        throttle::clear(admin, plan).await?;
    }
    Ok(())
}

async fn cancel(admin: &Admin, plan: &Plan, options: &Options) -> Result<(), Ended> {
    let wanted: BTreeSet<&TopicPartition> = plan.partitions.iter().map(|(partition, _)| partition).collect();
    let mut moving = BTreeMap::new();
    for found in admin.list_reassignments().await? {
        let partition = TopicPartition::new(found.topic, found.partition);
        if wanted.contains(&partition) {
            moving.insert(partition, None);
        }
    }
    if moving.is_empty() {
        print("None of the specified partition reassignments are active.\n");
    } else {
        let names: Vec<String> = moving.keys().map(ToString::to_string).collect();
        let failed = refused(admin.alter_reassignments(&moving, true).await?);
        if !failed.is_empty() {
            let plural = plural(&failed.lines().collect::<Vec<_>>());
            return Err(terse(format!("Error cancelling partition reassignment{plural} for:\n{failed}")));
        }
        let s = plural(&names);
        print(&format!("Successfully cancelled partition reassignment{s} for: {}\n", names.join(",")));
    }
    log_dirs::cancel(admin, &plan.log_dirs, timeout(options)?).await?;
    if !options.has("preserve-throttles") {
        throttle::clear(admin, plan).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_listed_in_order_with_what_comes_and_goes() {
        assert_eq!(listed(&[]), "No partition reassignments found.\n");
        let moving = |partition, adding: &[i32]| Reassignment {
            topic: "t".to_owned(),
            partition,
            replicas: vec![1, 2],
            adding: adding.to_vec(),
            removing: vec![],
        };
        let expected = "Current partition reassignments:\nt-0: replicas: 1,2.\nt-1: replicas: 1,2. adding: 2.\n";
        assert_eq!(listed(&[moving(1, &[2]), moving(0, &[])]), expected);
    }

    #[test]
    fn an_action_takes_only_what_goes_with_it() {
        let run = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            match execute(&words) {
                Err(Ended::Usage(message)) => message,
                other => panic!("{other:?}"),
            }
        };
        let all = "Command must include exactly one action: --generate, --execute, --verify, --cancel, --list";
        assert_eq!(run("--list --cancel"), all);
        assert_eq!(
            run("--list --bootstrap-server a --throttle 1"),
            "Option \"[throttle]\" can't be used with action \"[list]\""
        );
        assert_eq!(run("--verify --bootstrap-server a"), "Missing required argument \"[reassignment-json-file]\"");
    }
}
