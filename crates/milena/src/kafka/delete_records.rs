//! kafka-delete-records.

use std::collections::BTreeMap;
use std::process::ExitCode;

use milena_client::admin::TopicPartition;
use serde_json::Value;

use super::options::Flag;
use super::{Ended, Thrown, ask, end, java, need, read};
use crate::output::{print, print_error};

const ABOUT: &str = "This tool helps to delete records of the given partitions down to the specified offset.";

const FLAGS: &[Flag] = &[
    Flag::value("bootstrap-server", "REQUIRED: The server to connect to."),
    Flag::value("command-config", "A property file containing configs to be passed to Admin Client."),
    Flag::switch("help", "Print usage information."),
    Flag::value(
        "offset-json-file",
        "REQUIRED: {\"partitions\": [{\"topic\": \"foo\", \"partition\": 1, \"offset\": 1}], \"version\":1}",
    ),
    Flag::switch("version", "Display Kafka version."),
];

/// Runs the tool.
pub fn run(arguments: &[String]) -> ExitCode {
    end(execute(arguments), FLAGS, |thrown| {
        print_error(&format!("Exception in thread \"main\" {}\n", thrown.text()));
        1
    })
}

fn execute(arguments: &[String]) -> Result<(), Ended> {
    let options = read(FLAGS, ABOUT, arguments)?;
    need(&options, &["bootstrap-server", "offset-json-file"])?;
    let file = options.value("offset-json-file")?.unwrap_or_default();
    let text = std::fs::read_to_string(file).map_err(|_| Thrown::new(java::NO_SUCH_FILE, file))?;
    let wanted = parse(&text)?;
    ask(&options, async |admin| {
        print("Executing records delete operation\n");
        let outcomes = admin.delete_records(wanted).await;
        print("Records delete operation completed:\n");
        for (partition, outcome) in outcomes {
            match outcome {
                Ok(start) => print(&format!("partition: {partition}\tlow_watermark: {start}\n")),
                Err(error) => print(&format!("partition: {partition}\terror: {}\n", java::thrown(&error).text())),
            }
        }
        Ok(())
    })
}

fn parse(text: &str) -> Result<Vec<(TopicPartition, i64)>, Thrown> {
    let bad = |message: &str| Thrown::new(java::ADMIN_OPERATION, message);
    let json: Value = serde_json::from_str(text).map_err(|_| bad("The input string is not a valid JSON"))?;
    match json.get("version").map_or(Some(1), Value::as_i64) {
        Some(1) => {}
        other => return Err(bad(&format!("Not supported version field value {}", other.unwrap_or_default()))),
    }
    let partitions = json.get("partitions").ok_or_else(|| bad("Missing partitions field"))?;
    let mut wanted = BTreeMap::new();
    let mut twice = Vec::new();
    for entry in partitions.as_array().into_iter().flatten() {
        let field = |name: &str| entry.get(name).ok_or_else(|| bad(&format!("No such field exists: `{name}`")));
        let topic = field("topic")?.as_str().ok_or_else(|| bad("topic is not a string"))?;
        let partition = field("partition")?.as_i64().and_then(|number| i32::try_from(number).ok());
        let partition = TopicPartition::new(topic, partition.ok_or_else(|| bad("partition is not a number"))?);
        let offset = field("offset")?.as_i64().ok_or_else(|| bad("offset is not a number"))?;
        if wanted.insert(partition.clone(), offset).is_some() {
            twice.push(partition.to_string());
        }
    }
    if twice.is_empty() {
        return Ok(wanted.into_iter().collect());
    }
    let message = format!("Offset json file contains duplicate topic partitions: {}", twice.join(","));
    Err(Thrown::new(java::ADMIN_COMMAND_FAILED, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_offsets_of_partitions() {
        let parsed = parse(r#"{"partitions":[{"topic":"a","partition":1,"offset":7}],"version":1}"#);
        assert_eq!(parsed, Ok(vec![(TopicPartition::new("a", 1), 7)]));
        let message = |text| parse(text).unwrap_err().message;
        assert_eq!(message("nothing"), "The input string is not a valid JSON");
        assert_eq!(message(r#"{"version":2}"#), "Not supported version field value 2");
        assert_eq!(message("{}"), "Missing partitions field");
        let twice = r#"{"partitions":[{"topic":"a","partition":1,"offset":7},{"topic":"a","partition":1,"offset":8}]}"#;
        assert_eq!(message(twice), "Offset json file contains duplicate topic partitions: a-1");
    }
}
