//! kafka-log-dirs.

use std::collections::BTreeSet;
use std::process::ExitCode;

use milena_client::Admin;
use milena_client::admin::{LogDir, ReplicaInfo, TopicPartition};
use serde_json::{Value, json};

use super::options::{Flag, Options};
use super::{Ended, Thrown, ask, end, java, need, read};
use crate::output::{print, print_error};

const ABOUT: &str = "This tool helps to query log directory usage on the specified brokers.";

const FLAGS: &[Flag] = &[
    Flag::value("bootstrap-server", "REQUIRED: the server(s) to use for bootstrapping"),
    Flag::value(
        "broker-list",
        "The list of brokers to be queried in the form \"0,1,2\". All brokers if not specified.",
    ),
    Flag::value("command-config", "Property file containing configs to be passed to Admin Client."),
    Flag::switch("describe", "Describe the specified log directories on the specified brokers."),
    Flag::switch("help", "Print usage information."),
    Flag::value("topic-list", "The list of topics to be queried in the form \"topic1,topic2,topic3\"."),
    Flag::switch("version", "Display Kafka version."),
];

/// Runs the tool.
pub fn run(arguments: &[String]) -> ExitCode {
    end(execute(arguments), FLAGS, |thrown| {
        print_error(&format!("{}\n", thrown.message));
        1
    })
}

fn execute(arguments: &[String]) -> Result<(), Ended> {
    let options = read(FLAGS, ABOUT, arguments)?;
    need(&options, &["bootstrap-server", "describe"])?;
    ask(&options, async |admin| describe(admin, &options).await)
}

fn parts<'o>(options: &'o Options, name: &str) -> Result<BTreeSet<&'o str>, Ended> {
    Ok(options.value(name)?.unwrap_or_default().split(',').filter(|part| !part.is_empty()).collect())
}

async fn describe(admin: &Admin, options: &Options) -> Result<(), Ended> {
    let topics = parts(options, "topic-list")?;
    let asked = parts(options, "broker-list")?.into_iter().map(|text| {
        text.parse::<i32>().map_err(|_| Thrown::new(java::NUMBER_FORMAT, format!("For input string: \"{text}\"")))
    });
    let asked = asked.collect::<Result<BTreeSet<i32>, _>>()?;
    let existing: BTreeSet<i32> = admin.describe_cluster().await?.brokers.iter().map(|broker| broker.id).collect();
    let list = |ids: &BTreeSet<i32>| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let missing: BTreeSet<i32> = asked.difference(&existing).copied().collect();
    if !missing.is_empty() {
        let message = format!(
            "ERROR: The given brokers do not exist from --broker-list: {}. Current existent brokers: {}",
            list(&missing),
            list(&existing)
        );
        return Err(Thrown::argument(message).into());
    }
    let brokers = if asked.is_empty() { existing } else { asked };
    print("Querying brokers for log directories information\n");
    let mut described = Vec::new();
    for (broker, dirs) in admin.describe_log_dirs(&Vec::from_iter(brokers.iter().copied())).await? {
        described.push((broker, dirs?));
    }
    print(&format!("Received log directory information from brokers {}\n", list(&brokers)));
    print(&format!("{}\n", report(&described, &topics)));
    Ok(())
}

fn report(brokers: &[(i32, Vec<LogDir>)], topics: &BTreeSet<&str>) -> Value {
    let replica = |(partition, replica): &(TopicPartition, ReplicaInfo)| {
        json!({
            "partition": partition.to_string(),
            "size": replica.size,
            "offsetLag": replica.offset_lag,
            "isFuture": replica.is_future,
        })
    };
    let dir = |dir: &LogDir| {
        let chosen =
            |(partition, _): &&(TopicPartition, ReplicaInfo)| topics.is_empty() || topics.contains(&*partition.topic);
        let partitions: Vec<Value> = dir.replicas.iter().filter(chosen).map(replica).collect();
        json!({ "partitions": partitions, "error": dir.error.map(java::class), "logDir": dir.path })
    };
    let broker = |(broker, dirs): &(i32, Vec<LogDir>)| json!({ "broker": broker, "logDirs": dirs.iter().map(dir).collect::<Vec<_>>() });
    json!({ "brokers": brokers.iter().map(broker).collect::<Vec<_>>(), "version": 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_kafkas_order_of_fields() {
        let replica =
            |topic: &str| (TopicPartition::new(topic, 0), ReplicaInfo { size: 7, offset_lag: 0, is_future: false });
        let dir = LogDir {
            path: "/data".into(),
            error: None,
            total_bytes: None,
            usable_bytes: None,
            cordoned: false,
            replicas: vec![replica("t-multi"), replica("other")],
        };
        let expected = concat!(
            r#"{"brokers":[{"broker":1,"logDirs":[{"partitions":[{"partition":"t-multi-0","size":7,"offsetLag":0,"#,
            r#""isFuture":false}],"error":null,"logDir":"/data"}]}],"version":1}"#
        );
        assert_eq!(report(&[(1, vec![dir])], &BTreeSet::from(["t-multi"])).to_string(), expected);
    }
}
