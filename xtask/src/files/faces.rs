//! Milena's tools that have the names of Kafka's, beside Kafka's own: asked the same of two Milenas to which the same was
//! done, or of two Kafkas, they print the same lines and have the same exit codes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use milena_testkit::server::{Kind, Options};

use super::clients::{Ran, Tools, ran};
use super::tools::{Run, difference};
use super::{binary, hanging};

/// The runs, in the form that `tools.rs` tells. Behind a `?` only the exit code is compared. A run of a tool that Milena does not
/// have is the same Java program for both, and shows that the runs before it did the same.
const RUNS: &str = include_str!("../../data/faces.txt");

/// Runs against two Kafkas, after those of [`RUNS`] that are not only for Milena's server (`=`); `{controller}` is where the
/// controller is.
const RUNS_OF_KAFKA: &str = include_str!("../../data/faces_kafka.txt");

/// How often what Kafka's broker sees a moment later is asked again.
const LOOKS: u32 = 50;

/// Tools that the binary has, by Kafka's class.
const FACES: [(&str, &str); 20] = [
    ("BrokerApiVersionsCommand", "kafka-broker-api-versions"),
    ("ClusterTool", "kafka-cluster"),
    ("ConfigCommand", "kafka-configs"),
    ("ConsoleProducer", "kafka-console-producer"),
    ("ConsumerPerformance", "kafka-consumer-perf-test"),
    ("DeleteRecordsCommand", "kafka-delete-records"),
    ("EndToEndLatency", "kafka-e2e-latency"),
    ("FeatureCommand", "kafka-features"),
    ("GetOffsetShell", "kafka-get-offsets"),
    ("GroupsCommand", "kafka-groups"),
    ("LeaderElectionCommand", "kafka-leader-election"),
    ("LogDirsCommand", "kafka-log-dirs"),
    ("MetadataQuorumCommand", "kafka-metadata-quorum"),
    ("ProducerPerformance", "kafka-producer-perf-test"),
    ("TopicCommand", "kafka-topics"),
    ("TransactionsCommand", "kafka-transactions"),
    ("VerifiableProducer", "kafka-verifiable-producer"),
    ("consumer.ConsoleConsumer", "kafka-console-consumer"),
    ("consumer.group.ConsumerGroupCommand", "kafka-consumer-groups"),
    ("reassign.ReassignPartitionsCommand", "kafka-reassign-partitions"),
];

/// Runs all of them against two Milenas; gives the number of comparisons.
pub(super) fn compare(options: &Options, libs: &Path) -> Result<usize> {
    compare_on(options, binary(options)?, libs, RUNS.lines())
}

/// The same against two Kafkas.
pub(super) fn compare_on_kafka(options: &Options, libs: &Path) -> Result<usize> {
    let runs = RUNS.lines().filter(|line| !line.starts_with('=')).chain(RUNS_OF_KAFKA.lines());
    compare_on(&Options::new(Kind::Kafka(libs.to_owned())), binary(options)?, libs, runs)
}

fn compare_on(
    options: &Options,
    binary: &Path,
    libs: &Path,
    runs: impl Iterator<Item = &'static str>,
) -> Result<usize> {
    let dir = tempfile::Builder::new().prefix("milena-faces-").tempdir()?;
    let files = [
        ("lines", "one\ntwo\nthree\n"),
        ("keyed", "a:1\nb:2\na:3\n"),
        ("headed", "h1:v1,h2:\tk1\tv1\nNULL\tNULL\tNULL\r\nh:NULL\tk2\t\n"),
        ("untidy", "a:1\nno key\rh\tk\tv"),
        ("delete.json", r#"{"version":1,"partitions":[{"topic":"lines","partition":1,"offset":1}]}"#),
        ("beyond.json", r#"{"version":1,"partitions":[{"topic":"lines","partition":1,"offset":1000}]}"#),
        ("payloads", "one|two||three|"),
        ("producer.properties", "acks=all\ncompression.type=lz4\n"),
        ("reader.properties", "parse.key=true\nkey.separator=\\:\n"),
        ("offsets.csv", "lines,0,1\nlines,1,1\n"),
        ("elect.json", r#"{"partitions":[{"topic":"lines","partition":0}]}"#),
        ("topics.json", r#"{"version":1,"topics":[{"topic":"lines"}]}"#),
        ("missing.json", r#"{"version":1,"topics":[{"topic":"missing"}]}"#),
        ("reassign.json", r#"{"version":1,"partitions":[{"topic":"lines","partition":0,"replicas":[1]}]}"#),
        ("any.json", r#"{"partitions":[{"topic":"lines","partition":0,"replicas":[1],"log_dirs":["any"]}]}"#),
        ("nowhere.json", r#"{"version":1,"partitions":[{"topic":"lines","partition":0,"replicas":[9]}]}"#),
        ("unknown.json", r#"{"version":1,"partitions":[{"topic":"missing","partition":0,"replicas":[1]}]}"#),
        ("behind.json", r#"{"version":1,"partitions":[{"topic":"lines","partition":9,"replicas":[1]}]}"#),
        ("dirs.json", r#"{"partitions":[{"topic":"lines","partition":0,"replicas":[1],"log_dirs":[]}]}"#),
        ("twice.json", r#"{"partitions":[{"topic":"lines","partition":0,"replicas":[1,1]}]}"#),
        ("version.json", r#"{"version":2,"partitions":[]}"#),
        ("empty.json", "{}"),
    ];
    for (name, text) in files {
        fs::write(dir.path().join(name), text)?;
    }
    let mut tools = Tools::start(libs)?;
    let (one, other) = (options.clone().start()?, options.clone().start()?);
    [&one, &other].into_iter().try_for_each(hanging::leave)?;
    let (mut compared, mut differing) = (0, Vec::new());
    for run in runs.filter_map(|line| Run::parse(line.trim_start_matches('='), &[])) {
        let face = FACES.iter().find(|(class, _)| *class == run.tool);
        let name = face.map_or(run.tool, |(_, name)| name);
        let mut ask = || -> Result<(Ran, Ran)> {
            let theirs = run.ask(&mut tools, &one, dir.path())?;
            let Some((_, name)) = face else { return Ok((theirs, run.ask(&mut tools, &other, dir.path())?)) };
            let mut command = Command::new(binary);
            command.arg(name).args(run.arguments(&other, dir.path())).stdin(run.input(dir.path())?);
            Ok((theirs, run.without_difference(ran(&mut command)?, &other)))
        };
        let (mut theirs, mut ours) = ask()?;
        // What was changed is seen by Kafka's broker a moment later.
        let looks = if matches!(options.kind(), Kind::Kafka(_)) && run.only_asks() { LOOKS } else { 0 };
        for _ in 0..looks {
            if alike(run.flag, &theirs, &ours) {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
            (theirs, ours) = ask()?;
        }
        compared += 1;
        if !alike(run.flag, &theirs, &ours) {
            differing.push(format!("{name} {}\n{}", run.args, difference(&theirs, &ours)));
        }
    }
    if differing.is_empty() { Ok(compared) } else { bail!("{}", differing.join("\n")) }
}

/// The same lines, in whatever order hash tables give them, and the same exit code. Behind the first line of standard
/// error there are usages and traces.
fn alike(flag: Option<char>, theirs: &Ran, ours: &Ran) -> bool {
    let sorted = |text: &str| {
        // A list of objects in JSON has an order too.
        let text = text.replace(r#"{"partition""#, "\n{\"partition\"").replace("}]", "},\n]");
        // Nor do records of a coordinator stand on lines of their own.
        let text = text.replace(r#"{"key""#, "\n{\"key\"");
        // The fields of an event have the order of the methods, which is another in each JVM.
        let fields = |line: &str| {
            let mut fields: Vec<&str> = line.trim_matches(['{', '}']).split(',').collect();
            fields.sort_unstable();
            fields.join(",")
        };
        let line = |line: &str| if line.starts_with("{\"timestamp\"") { fields(line) } else { line.to_owned() };
        let mut lines: Vec<String> = text.lines().map(line).collect();
        lines.sort();
        lines
    };
    // What the program that runs many tools leaves there is not the tool's, and what Kafka's would log is not printed there.
    let said = |line: &&str| !["", "null", "Tools$Ended"].contains(line) && !line.starts_with("ERROR ");
    let first = |text: &str| text.lines().find(said).map(str::to_owned);
    let same_lines = sorted(&theirs.out) == sorted(&ours.out) && first(&theirs.err) == first(&ours.err);
    theirs.code == ours.code && (flag == Some('?') || same_lines)
}
