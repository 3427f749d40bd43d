//! The file that says where partitions shall be.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use milena_client::admin::TopicPartition;
use serde_json::{Value, json};

use super::super::json::Json;
use super::{Assignment, Thrown, commas, java};

/// The log directory that stands for none in particular.
const ANY: &str = "any";

/// Where partitions shall be, as a file says.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// The brokers of each, in the file's order.
    pub partitions: Vec<(TopicPartition, Vec<i32>)>,
    /// Directories on brokers, where certain ones are wanted.
    pub log_dirs: Moves,
}

/// Replicas, by broker, and the log directories that they shall be in.
pub type Moves = BTreeMap<(i32, TopicPartition), String>;

impl Plan {
    /// Reads a file.
    pub fn parse(text: &str) -> Result<Self, Thrown> {
        let bad = |message: String| Thrown::new(java::TOOL_OPERATION, message);
        let file: Value = serde_json::from_str(text)
            .map_err(|error| bad(format!("com.fasterxml.jackson.core.JsonParseException: {error}")))?;
        let file = Json(&file).object()?;
        match file.get("version").map_or(Ok(1), Json::int)? {
            1 => {}
            other => return Err(bad(format!("Not supported version field value {other}"))),
        }
        let mut plan = Self::default();
        let Some(partitions) = file.get("partitions") else { return Ok(plan) };
        for entry in partitions.array()? {
            plan.add(entry)?;
        }
        Ok(plan)
    }

    fn add(&mut self, entry: Json<'_>) -> Result<(), Thrown> {
        let entry = entry.object()?;
        let topic = entry.need("topic")?.text()?;
        let partition = TopicPartition::new(topic, entry.need("partition")?.int()?);
        let replicas = entry.need("replicas")?.array()?.map(Json::int).collect::<Result<Vec<i32>, _>>()?;
        let dirs = match entry.get("log_dirs") {
            Some(dirs) => dirs.array()?.map(Json::text).collect::<Result<Vec<&str>, _>>()?,
            None => vec![ANY; replicas.len()],
        };
        if dirs.len() != replicas.len() {
            let message = format!(
                "Size of replicas list {replicas:?} is different from size of log dirs list [{}] for partition {partition}",
                dirs.join(", ")
            );
            return Err(Thrown::new(java::TOOL_COMMAND_FAILED, message));
        }
        let chosen = replicas.iter().zip(dirs).filter(|(_, dir)| *dir != ANY);
        self.log_dirs.extend(chosen.map(|(broker, dir)| ((*broker, partition.clone()), dir.to_owned())));
        self.partitions.push((partition, replicas));
        Ok(())
    }

    /// Reads a file that shall be executed: something is in it, and nothing twice.
    pub fn to_execute(text: &str) -> Result<Self, Thrown> {
        let plan = Self::parse(text)?;
        let bad = |message: String| Err(Thrown::new(java::TOOL_COMMAND_FAILED, message));
        if plan.partitions.is_empty() {
            return bad("Partition reassignment list cannot be empty".to_owned());
        }
        if plan.partitions.iter().any(|(_, replicas)| replicas.is_empty()) {
            return bad("Partition replica list cannot be empty".to_owned());
        }
        let twice = twice(plan.partitions.iter().map(|(partition, _)| partition));
        if !twice.is_empty() {
            return bad(format!("Partition reassignment contains duplicate topic partitions: {}", commas(twice)));
        }
        let repeated = plan.partitions.iter().filter_map(|(partition, replicas)| {
            let twice = self::twice(replicas);
            (!twice.is_empty()).then(|| format!("{partition} contains multiple entries for {}", commas(twice)))
        });
        let repeated: Vec<String> = repeated.collect();
        if !repeated.is_empty() {
            let message = format!("Partition replica lists may not contain duplicate entries: {}", repeated.join(". "));
            return bad(message);
        }
        Ok(plan)
    }

    /// The topics, each once.
    pub fn topics(&self) -> Vec<String> {
        let topics: BTreeSet<&str> = self.partitions.iter().map(|(partition, _)| &*partition.topic).collect();
        topics.into_iter().map(str::to_owned).collect()
    }
}

/// What is there more than once.
pub fn twice<T: Ord + Copy>(things: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    let (mut seen, mut twice) = (BTreeSet::new(), BTreeSet::new());
    for thing in things {
        if !seen.insert(thing) {
            twice.insert(thing);
        }
    }
    twice
}

/// The file that would lead to this assignment, fields in Kafka's order, with the directories that are known.
pub fn json(assignment: &Assignment, dirs: &Moves) -> String {
    let mut text = r#"{"version":1,"partitions":["#.to_owned();
    for (place, (partition, replicas)) in assignment.iter().enumerate() {
        let comma = if place > 0 { "," } else { "" };
        let dir = |broker: &i32| dirs.get(&(*broker, partition.clone())).map_or(ANY, String::as_str);
        let dirs: Vec<&str> = replicas.iter().map(dir).collect();
        let _ = write!(
            text,
            r#"{comma}{{"topic":{},"partition":{},"replicas":{},"log_dirs":{}}}"#,
            json!(&*partition.topic),
            partition.partition,
            json!(replicas),
            json!(dirs)
        );
    }
    text + "]}"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_brokers_and_directories() {
        let text =
            r#"{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","/d"]}]}"#;
        let plan = Plan::to_execute(text).unwrap();
        let partition = TopicPartition::new("t", 0);
        assert_eq!(plan.partitions, [(partition.clone(), vec![1, 2])]);
        assert_eq!(plan.log_dirs, Moves::from([((2, partition.clone()), "/d".to_owned())]));
        assert_eq!(json(&Assignment::from([(partition, vec![1, 2])]), &plan.log_dirs), text);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_kafkas_words() {
        let message = |text: &str| Plan::to_execute(text).unwrap_err().message;
        assert_eq!(message(r#"{"version":2}"#), "Not supported version field value 2");
        assert_eq!(message("{}"), "Partition reassignment list cannot be empty");
        assert_eq!(message(r#"{"partitions":[{"topic":"t"}]}"#), "No such field exists: `partition`");
        let one = |rest: &str| format!(r#"{{"partitions":[{{"topic":"t","partition":0,"replicas":{rest}}}]}}"#);
        assert_eq!(message(&one("[]")), "Partition replica list cannot be empty");
        assert_eq!(
            message(&one("[1,1]")),
            "Partition replica lists may not contain duplicate entries: t-0 contains multiple entries for 1"
        );
        assert_eq!(
            message(&one(r#"[1],"log_dirs":[]"#)),
            "Size of replicas list [1] is different from size of log dirs list [] for partition t-0"
        );
    }
}
