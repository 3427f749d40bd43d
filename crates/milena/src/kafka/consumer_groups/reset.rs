//! `--reset-offsets`: where groups shall read on. Nothing is changed without `--execute`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use milena_client::Admin;
use milena_client::admin::{CommittedOffset, OffsetSpec, TopicPartition};
use milena_protocol::ErrorCode;

use super::super::options::Options;
use super::super::{Ended, Thrown, java, refuse};
use crate::output::{print, print_error};
use crate::reset::{self, Goal};

/// The options of which one says where to.
const SCENARIOS: [&str; 8] =
    ["to-offset", "shift-by", "to-datetime", "by-duration", "to-earliest", "to-latest", "to-current", "from-file"];

/// New offsets of each group.
type Plan = BTreeMap<String, BTreeMap<TopicPartition, i64>>;

/// Checks the options of this action.
pub fn check(options: &Options) -> Result<(), Ended> {
    if options.has("dry-run") && options.has("execute") {
        let message = "Option [reset-offsets] only accepts one of [execute] and [dry-run]";
        return Err(Ended::Usage(message.to_owned()));
    }
    if !options.has("dry-run") && !options.has("execute") {
        print_error(
            "WARN: No action will be performed as the --execute option is missing. In a future major release, the default \
             behavior of this command will be to prompt the user before executing the reset rather than doing a dry run. \
             You should add the --dry-run option explicitly if you are scripting this command and want to keep the \
             current default behavior without prompting.\n",
        );
    }
    for scenario in SCENARIOS {
        let others: Vec<&str> = SCENARIOS.into_iter().filter(|other| *other != scenario).collect();
        refuse(options, scenario, &others)?;
    }
    Ok(())
}

/// Runs the action.
pub async fn run(admin: &Admin, options: &Options) -> Result<(), Ended> {
    let groups = super::chosen(admin, options).await?;
    let mut plan = Plan::new();
    for (group, described) in admin.describe_groups(&groups).await? {
        let state = match described {
            Ok(described) => described.state,
            Err(error) if error.code() == Some(ErrorCode::GROUP_ID_NOT_FOUND) => "Dead".to_owned(),
            Err(error) => return Err(error.into()),
        };
        let offsets = if ["Empty", "Dead"].contains(&state.as_str()) {
            of_group(admin, options, &group).await?
        } else {
            print(&format!(
                "\nError: Assignments can only be reset if the group '{group}' is inactive, but the current state is \
                 {state}.\n"
            ));
            BTreeMap::new()
        };
        plan.insert(group, offsets);
    }
    let single = options.values("group").len() == 1;
    print(&if options.has("export") { csv(&plan, single) } else { table(&plan) });
    Ok(())
}

/// The new offsets of a group, which with `--execute` it has then.
async fn of_group(admin: &Admin, options: &Options, group: &str) -> Result<BTreeMap<TopicPartition, i64>, Ended> {
    let partitions = partitions(admin, options, group).await?;
    check_exist(admin, &partitions).await?;
    let goal = goal(options, group)?;
    let outcome = reset::plan(admin, group, partitions, &goal).await.map_err(|refused| match refused {
        reset::Refused::NeverCommitted(partition) => Ended::from(Thrown::argument(format!(
            "Cannot shift offset for partition {partition} since there is no current committed offset"
        ))),
        reset::Refused::Client(error) => error.into(),
    })?;
    for partition in &outcome.empty {
        print(&format!(
            "\nWarn: Partition {} from topic {} is empty. Falling back to latest known offset.\n",
            partition.partition, partition.topic
        ));
    }
    if options.has("execute") {
        let offsets: Vec<(TopicPartition, CommittedOffset)> = outcome
            .offsets
            .iter()
            .map(|(partition, offset)| (partition.clone(), CommittedOffset::at(*offset)))
            .collect();
        for (_, changed) in admin.alter_offsets(group, &offsets).await? {
            changed?;
        }
    }
    Ok(outcome.offsets)
}

async fn partitions(admin: &Admin, options: &Options, group: &str) -> Result<Vec<TopicPartition>, Ended> {
    if options.has("all-topics") {
        let committed = admin.committed_offsets(group).await?;
        return Ok(committed.into_iter().map(|(partition, _)| partition).collect());
    }
    if !options.has("topic") && !options.has("from-file") {
        let message = "One of the reset scopes should be defined: --all-topics, --topic.";
        return Err(Ended::Usage(message.to_owned()));
    }
    let mut partitions = BTreeSet::new();
    for topic in options.values("topic") {
        partitions.extend(partitions_of(admin, topic).await?);
    }
    Ok(partitions.into_iter().collect())
}

/// The partitions that `topic` or `topic:0,1` names.
pub async fn partitions_of(admin: &Admin, text: &str) -> Result<Vec<TopicPartition>, Ended> {
    let Some((topic, numbers)) = text.split_once(':') else {
        let mut described = admin.describe_topics(&[text.to_owned()]).await?;
        let Some((_, topic)) = described.pop() else { return Ok(Vec::new()) };
        let topic = topic?;
        return Ok(topic.partitions.iter().map(|known| TopicPartition::new(text, known.partition)).collect());
    };
    if numbers.is_empty() || numbers.contains(':') {
        let message = format!("Invalid topic arg '{text}', expected topic name and partitions");
        return Err(Thrown::argument(message).into());
    }
    let parse = |number: &str| {
        let message = format!("Invalid partition '{number}' specified in topic arg '{text}''");
        number.parse().map(|number| TopicPartition::new(topic, number)).map_err(|_| Thrown::argument(message).into())
    };
    numbers.split(',').map(parse).collect()
}

async fn check_exist(admin: &Admin, partitions: &[TopicPartition]) -> Result<(), Ended> {
    let topics: BTreeSet<String> = partitions.iter().map(|partition| partition.topic.to_string()).collect();
    let topics: Vec<String> = topics.into_iter().collect();
    let mut known = BTreeMap::new();
    for (topic, described) in admin.describe_topics(&topics).await? {
        known.insert(topic, described?.partitions);
    }
    let find = |asked: &TopicPartition| known[&*asked.topic].iter().find(|known| known.partition == asked.partition);
    let names = |chosen: Vec<&TopicPartition>| chosen.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let missing: Vec<_> = partitions.iter().filter(|partition| find(partition).is_none()).collect();
    if !missing.is_empty() {
        let message = format!("The partitions \"{}\" do not exist", names(missing));
        return Err(Thrown::new(java::UNKNOWN_TOPIC, message).into());
    }
    let leaderless = |partition: &&TopicPartition| find(partition).is_some_and(|known| known.leader.is_none());
    let leaderless: Vec<_> = partitions.iter().filter(leaderless).collect();
    if !leaderless.is_empty() {
        let message = format!("The partitions \"{}\" have no leader", names(leaderless));
        return Err(Thrown::new(java::LEADER_NOT_AVAILABLE, message).into());
    }
    Ok(())
}

fn goal(options: &Options, group: &str) -> Result<Goal, Ended> {
    let scenario = SCENARIOS.into_iter().find(|scenario| options.has(scenario));
    let text = |name: &str| Ok::<_, Ended>(options.value(name)?.unwrap_or_default());
    let bad = |message: String| Ended::from(Thrown::new(java::PARSE_EXCEPTION, message));
    Ok(match scenario {
        Some("to-offset") => Goal::Offset(options.number("to-offset")?.unwrap_or_default()),
        Some("shift-by") => Goal::Shift(options.number("shift-by")?.unwrap_or_default()),
        Some("to-datetime") => Goal::Timestamp(reset::datetime(text("to-datetime")?).map_err(bad)?),
        Some("by-duration") => Goal::Timestamp(reset::ago(text("by-duration")?).map_err(bad)?),
        Some("to-earliest") => Goal::Listed(OffsetSpec::Earliest),
        Some("to-latest") => Goal::Listed(OffsetSpec::Latest),
        Some("to-current") => Goal::Current,
        Some(_) => Goal::Given(from_file(text("from-file")?, options, group)?),
        None => {
            let all: Vec<String> = SCENARIOS.iter().map(|scenario| format!("[{scenario}]")).collect();
            let message =
                format!("Option '[reset-offsets]' requires one of the following scenarios: [{}]", all.join(", "));
            return Err(Ended::Usage(message));
        }
    })
}

/// Lines of `topic,partition,offset`, or with the group in front.
fn from_file(path: &str, options: &Options, group: &str) -> Result<BTreeMap<TopicPartition, i64>, Ended> {
    let text = std::fs::read_to_string(path).map_err(|error| Thrown::new(java::IO_EXCEPTION, error.to_string()))?;
    let single = options.values("group").len() == 1;
    let plan = read_csv(&text, single.then_some(group))
        .ok_or_else(|| Thrown::new(java::IO_EXCEPTION, format!("{path} has lines that are no offsets")))?;
    let found = plan.get(group);
    if found.is_none() {
        print(&format!("\nError: No reset plan for group {group} found.\n"));
    }
    Ok(found.cloned().unwrap_or_default())
}

fn read_csv(text: &str, group: Option<&str>) -> Option<Plan> {
    let mut plan = Plan::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let fields: Vec<&str> = line.split(',').map(|field| field.trim_matches('"')).collect();
        let (group, topic, partition, offset) = match (&fields[..], group) {
            (&[topic, partition, offset], Some(group)) => (group, topic, partition, offset),
            (&[group, topic, partition, offset], _) => (group, topic, partition, offset),
            _ => return None,
        };
        let partition = TopicPartition::new(topic, partition.parse().ok()?);
        plan.entry(group.to_owned()).or_default().insert(partition, offset.parse().ok()?);
    }
    Some(plan)
}

fn csv(plan: &Plan, single: bool) -> String {
    let mut text = String::new();
    for (group, offsets) in plan {
        let group =
            if group.contains(['"', ',', ' ']) { format!("\"{}\"", group.replace('"', "\"\"")) } else { group.clone() };
        for (partition, offset) in offsets {
            if !single {
                let _ = write!(text, "{group},");
            }
            let _ = writeln!(text, "{},{},{offset}", partition.topic, partition.partition);
        }
    }
    text.push('\n');
    text
}

fn table(plan: &Plan) -> String {
    let length = |text: &str| text.chars().count();
    let group_width = plan.keys().map(|group| length(group)).max().unwrap_or(0).max(15);
    let topics = plan.values().flat_map(|offsets| offsets.keys().map(|partition| length(&partition.topic)));
    let topic_width = topics.max().unwrap_or(0).max(15);
    let mut text = String::new();
    let mut line = |[group, topic, partition, offset]: [&str; 4]| {
        let _ = write!(text, "\n{group:<group_width$} {topic:<topic_width$} {partition:<10} {offset}");
    };
    if !plan.is_empty() {
        line(["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]);
    }
    for (group, offsets) in plan {
        for (partition, offset) in offsets {
            line([group, &partition.topic, &partition.partition.to_string(), &offset.to_string()]);
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan::from([("g-simple".to_owned(), BTreeMap::from([(TopicPartition::new("t-none", 0), 10)]))])
    }

    #[test]
    fn a_plan_is_a_table_of_new_offsets() {
        let expected =
            "\nGROUP           TOPIC           PARTITION  NEW-OFFSET\ng-simple        t-none          0          10\n";
        assert_eq!(table(&plan()), expected);
        assert_eq!(table(&Plan::new()), "\n");
    }

    #[test]
    fn an_exported_plan_can_be_read() {
        assert_eq!(csv(&plan(), true), "t-none,0,10\n\n");
        assert_eq!(csv(&plan(), false), "g-simple,t-none,0,10\n\n");
        assert_eq!(read_csv(&csv(&plan(), true), Some("g-simple")), Some(plan()));
        assert_eq!(read_csv(&csv(&plan(), false), None), Some(plan()));
        assert_eq!(read_csv("a,b\n", Some("g")), None);
        assert_eq!(read_csv("a,b,c\n", Some("g")), None);
    }
}
