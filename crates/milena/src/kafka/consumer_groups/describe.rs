//! `--describe`: offsets and lag, members, or states of groups.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use milena_client::admin::{CommittedOffset, GroupDescription, GroupMember, OffsetSpec, TopicPartition};
use milena_client::{Admin, CoordinatorKind};

use super::super::options::Options;
use super::super::{Ended, Thrown, java};
use crate::output::{print, print_error};

/// Runs the action.
pub async fn run(admin: &Admin, options: &Options) -> Result<(), Ended> {
    let ids = super::chosen(admin, options).await?;
    let mut groups = Vec::new();
    for (_, group) in admin.describe_groups(&ids).await? {
        groups.push(group?);
    }
    groups.sort_by(|one, other| one.id.cmp(&other.id));
    let verbose = options.has("verbose");
    if options.has("members") {
        for group in &groups {
            // The header stands there even for a group without members.
            let _ = has_rows(group, group.members.len())?;
            print(&members(group, verbose));
        }
    } else if options.has("state") {
        for group in &groups {
            if has_rows(group, 1)? {
                let broker = admin.client().coordinator(CoordinatorKind::Group, &group.id).await?;
                print(&state(group, &format!("{}:{}  ({})", broker.host, broker.port, broker.id), verbose));
            }
        }
    } else {
        for (group, rows) in offsets_of(admin, &groups).await? {
            if has_rows(group, rows.len())? {
                print(&offsets(&group.id, &rows, verbose));
            }
        }
    }
    Ok(())
}

/// Says what is special about a group's state; whether there is anything to be shown.
fn has_rows(group: &GroupDescription, rows: usize) -> Result<bool, Thrown> {
    let id = &group.id;
    match group.state.as_str() {
        "Dead" => {
            print(&format!("\nError: Consumer group '{id}' does not exist.\n"));
            return Ok(false);
        }
        "Empty" => print_error(&format!("\nConsumer group '{id}' has no active members.\n")),
        "PreparingRebalance" | "CompletingRebalance" | "Assigning" | "Reconciling" => {
            print_error(&format!("\nWarning: Consumer group '{id}' is rebalancing.\n"));
        }
        "Stable" => {}
        other => {
            let message = format!("Expected a valid consumer group state, but found '{other}'.");
            return Err(Thrown::new(java::KAFKA_EXCEPTION, message));
        }
    }
    Ok(rows > 0)
}

/// A partition and how far the group is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    partition: Option<TopicPartition>,
    committed: Option<CommittedOffset>,
    end: Option<i64>,
    consumer: String,
    host: String,
    client: String,
}

impl Row {
    fn lag(&self) -> Option<i64> {
        Some(self.end? - self.committed.as_ref()?.offset)
    }
}

/// The rows of each group: what its members have, those with most first, then what nobody has.
async fn offsets_of<'g>(
    admin: &Admin,
    groups: &'g [GroupDescription],
) -> Result<Vec<(&'g GroupDescription, Vec<Row>)>, Ended> {
    let mut described = Vec::new();
    for group in groups {
        let committed: BTreeMap<TopicPartition, CommittedOffset> =
            admin.committed_offsets(&group.id).await?.into_iter().collect();
        let mut rows = Vec::new();
        let mut assigned = BTreeSet::new();
        let mut members: Vec<&GroupMember> =
            group.members.iter().filter(|member| !member.assignment.is_empty()).collect();
        members.sort_by_key(|member| std::cmp::Reverse(member.assignment.len()));
        let row = |partition: &TopicPartition, consumer: &str, host: &str, client: &str| Row {
            partition: Some(partition.clone()),
            committed: committed.get(partition).cloned(),
            end: None,
            consumer: consumer.to_owned(),
            host: host.to_owned(),
            client: client.to_owned(),
        };
        for member in members {
            let partitions: BTreeSet<&TopicPartition> = member.assignment.iter().collect();
            rows.extend(partitions.iter().map(|partition| row(partition, &member.id, &member.host, &member.client_id)));
            assigned.extend(partitions);
        }
        let free = committed.keys().filter(|partition| !assigned.contains(partition));
        rows.extend(free.map(|partition| row(partition, "-", "-", "-")));
        described.push((group, rows));
    }
    let partitions: BTreeSet<TopicPartition> =
        described.iter().flat_map(|(_, rows)| rows.iter().filter_map(|row| row.partition.clone())).collect();
    let asked = partitions.into_iter().map(|partition| (partition, OffsetSpec::Latest)).collect();
    let mut ends = BTreeMap::new();
    for (partition, found) in admin.list_offsets(asked).await {
        match found {
            Ok(listed) => drop(ends.insert(partition, listed.offset)),
            // Shown without an end.
            Err(error) if error.code() == Some(milena_protocol::ErrorCode::LEADER_NOT_AVAILABLE) => {}
            Err(error) => return Err(error.into()),
        }
    }
    for row in described.iter_mut().flat_map(|(_, rows)| rows) {
        row.end = row.partition.as_ref().and_then(|partition| *ends.get(partition)?);
    }
    Ok(described)
}

fn number<T: ToString>(number: Option<T>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

fn widest<'t>(least: usize, texts: impl Iterator<Item = &'t str>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0).max(least)
}

fn offsets(group: &str, rows: &[Row], verbose: bool) -> String {
    let topic = |row: &Row| row.partition.as_ref().map_or("-".to_owned(), |partition| partition.topic.to_string());
    let topics: Vec<String> = rows.iter().map(topic).collect();
    let group_width = widest(15, [group].into_iter());
    let topic_width = widest(15, topics.iter().map(String::as_str));
    let consumer_width = widest(15, rows.iter().map(|row| row.consumer.as_str()));
    let host_width = widest(15, rows.iter().map(|row| row.host.as_str()));
    let mut text = String::new();
    let mut line = |cells: [&str; 10]| {
        let [group, topic, partition, epoch, offset, end, lag, consumer, host, client] = cells;
        let epoch = if verbose { format!("{epoch:<15} ") } else { String::new() };
        let _ = write!(
            text,
            "\n{group:<group_width$} {topic:<topic_width$} {partition:<10} {epoch}{offset:<15} {end:<15} {lag:<15} \
             {consumer:<consumer_width$} {host:<host_width$} {client}"
        );
    };
    line([
        "GROUP",
        "TOPIC",
        "PARTITION",
        "LEADER-EPOCH",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    ]);
    for (row, topic) in rows.iter().zip(&topics) {
        let committed = row.committed.as_ref();
        line([
            group,
            topic,
            &number(row.partition.as_ref().map(|partition| partition.partition)),
            &number(committed.and_then(|committed| committed.leader_epoch)),
            &number(committed.map(|committed| committed.offset)),
            &number(row.end),
            &number(row.lag()),
            &row.consumer,
            &row.host,
            &row.client,
        ]);
    }
    text.push('\n');
    text
}

fn members(group: &GroupDescription, verbose: bool) -> String {
    let all = &group.members;
    let instance = |member: &GroupMember| member.instance_id.clone().unwrap_or_default();
    let instances: Vec<String> = all.iter().map(instance).collect();
    let current: Vec<String> = all.iter().map(|member| assignment(&member.assignment)).collect();
    let target: Vec<String> =
        all.iter().map(|member| assignment(member.target.as_deref().unwrap_or_default())).collect();
    let with_instances = instances.iter().any(|instance| !instance.is_empty());
    let has = |upgraded: bool| all.iter().any(|member| member.upgraded == Some(upgraded));
    let migrating = has(true) && has(false);
    let group_width = widest(15, [group.id.as_str()].into_iter().filter(|_| !all.is_empty()));
    let id_width = widest(15, all.iter().map(|member| member.id.as_str()));
    let instance_width = widest(17, instances.iter().map(String::as_str));
    let host_width = widest(15, all.iter().map(|member| member.host.as_str()));
    let client_width = widest(15, all.iter().map(|member| member.client_id.as_str()));
    let current_width = widest(20, current.iter().map(String::as_str));
    let target_width = widest(20, target.iter().map(String::as_str));
    let mut text = "\n".to_owned();
    let mut line = |[id, member, instance, host, client, count, epoch, now, target_epoch, then, upgraded]: [&str;
                        11]| {
        let _ = write!(text, "{id:<group_width$} {member:<id_width$} ");
        if with_instances {
            let _ = write!(text, "{instance:<instance_width$} ");
        }
        let _ = write!(text, "{host:<host_width$} {client:<client_width$} {count:<15} ");
        if verbose {
            let _ = write!(text, "{epoch:<15} {now:<current_width$} {target_epoch:<15} {then:<target_width$}");
        }
        if verbose && migrating {
            let _ = write!(text, " {upgraded}");
        }
        text.push('\n');
    };
    line([
        "GROUP",
        "CONSUMER-ID",
        "GROUP-INSTANCE-ID",
        "HOST",
        "CLIENT-ID",
        "#PARTITIONS",
        "CURRENT-EPOCH",
        "CURRENT-ASSIGNMENT",
        "TARGET-EPOCH",
        "TARGET-ASSIGNMENT",
        "UPGRADED",
    ]);
    for (place, member) in all.iter().enumerate() {
        line([
            &group.id,
            &member.id,
            &instances[place],
            &member.host,
            &member.client_id,
            &member.assignment.len().to_string(),
            &number(member.epoch),
            &current[place],
            &number(group.assignment_epoch),
            &target[place],
            &number(member.upgraded),
        ]);
    }
    text
}

/// `topic:0,1;other:2`.
fn assignment(partitions: &[TopicPartition]) -> String {
    let mut topics = BTreeMap::<&str, Vec<i32>>::new();
    for partition in partitions {
        topics.entry(&partition.topic).or_default().push(partition.partition);
    }
    if topics.is_empty() {
        return "-".to_owned();
    }
    let texts = topics.into_iter().map(|(topic, mut partitions)| {
        partitions.sort_unstable();
        let numbers: Vec<String> = partitions.iter().map(ToString::to_string).collect();
        format!("{topic}:{}", numbers.join(","))
    });
    let mut texts: Vec<String> = texts.collect();
    texts.sort();
    texts.join(";")
}

fn state(group: &GroupDescription, coordinator: &str, verbose: bool) -> String {
    let group_width = widest(15, [group.id.as_str()].into_iter());
    let coordinator_width = widest(25, [coordinator].into_iter());
    let mut text = String::new();
    let mut line = |[id, coordinator, assignor, state, epoch, target, members]: [&str; 7]| {
        let _ = write!(text, "\n{id:<group_width$} {coordinator:<coordinator_width$} {assignor:<20} {state:<20} ");
        if verbose {
            let _ = write!(text, "{epoch:<15} {target:<25} ");
        }
        text.push_str(members);
    };
    line([
        "GROUP",
        "COORDINATOR (ID)",
        "ASSIGNMENT-STRATEGY",
        "STATE",
        "GROUP-EPOCH",
        "TARGET-ASSIGNMENT-EPOCH",
        "#MEMBERS",
    ]);
    line([
        &group.id,
        coordinator,
        if group.assignor.is_empty() { "-" } else { &group.assignor },
        &group.state,
        &number(group.epoch),
        &number(group.assignment_epoch),
        &group.members.len().to_string(),
    ]);
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str) -> GroupMember {
        GroupMember {
            id: id.into(),
            instance_id: None,
            client_id: "c-classic".into(),
            host: "/127.0.0.1".into(),
            epoch: None,
            assignment: [2, 0, 1].map(|partition| TopicPartition::new("t-multi", partition)).into(),
            target: None,
            upgraded: None,
        }
    }

    fn group() -> GroupDescription {
        GroupDescription {
            id: "g-classic".into(),
            kind: "classic",
            protocol_type: "consumer".into(),
            state: "Stable".into(),
            assignor: "range".into(),
            epoch: None,
            assignment_epoch: None,
            members: vec![member("c-classic-7bd75990-74ce-4c60-a850-561c02041518")],
        }
    }

    const OFFSETS: &str = "
GROUP           TOPIC           PARTITION  LEADER-EPOCH    CURRENT-OFFSET  LOG-END-OFFSET  LAG             \
         CONSUMER-ID                                    HOST            CLIENT-ID
g-classic       t-multi         0          0               42              100             58              \
         c-classic-7bd75990-74ce-4c60-a850-561c02041518 /127.0.0.1      c-classic
g-classic       t-multi         1          -               -               100             -               \
         -                                              -               -
";

    #[test]
    fn offsets_stand_in_columns() {
        let row = |partition, committed, consumer: &str, host: &str, client: &str| Row {
            partition: Some(TopicPartition::new("t-multi", partition)),
            committed,
            end: Some(100),
            consumer: consumer.into(),
            host: host.into(),
            client: client.into(),
        };
        let committed = CommittedOffset { leader_epoch: Some(0), ..CommittedOffset::at(42) };
        let member = member("c-classic-7bd75990-74ce-4c60-a850-561c02041518");
        let rows = [row(0, Some(committed), &member.id, &member.host, &member.client_id), row(1, None, "-", "-", "-")];
        assert_eq!(offsets("g-classic", &rows, true), OFFSETS);
        assert!(offsets("g-classic", &rows, false).contains("PARTITION  CURRENT-OFFSET  LOG-END-OFFSET"));
    }

    #[test]
    fn members_have_their_partitions_when_all_is_to_be_told() {
        let text = members(&group(), true);
        let line = text.lines().nth(2).unwrap();
        assert!(line.ends_with("c-classic       3               -               t-multi:0,1,2        -               -                   "), "{line}|");
        assert!(text.starts_with("\nGROUP           CONSUMER-ID  "), "{text}");
        let empty = GroupDescription { members: Vec::new(), ..group() };
        assert_eq!(
            members(&empty, false),
            format!(
                "\n{:<15} {:<15} {:<15} {:<15} {:<15} \n",
                "GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"
            )
        );
    }

    const STATE: &str = "
GROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                #MEMBERS
g-classic       127.0.0.1:29092  (1)      range                Stable               1
";

    #[test]
    fn a_state_has_its_coordinator() {
        assert_eq!(state(&group(), "127.0.0.1:29092  (1)", false), STATE);
        assert!(state(&group(), "x", true).contains("GROUP-EPOCH     TARGET-ASSIGNMENT-EPOCH   #MEMBERS"));
    }
}
