//! Static settings against what Apache Kafka 4.4.0 says about them at its start.

use std::path::Path;

use milena_config::{BrokerConfig, Settings};

/// A combined node; a case removes (`-name`) or sets (`name=value`) keys of it.
const BASE: [&str; 5] = [
    "process.roles=broker,controller",
    "node.id=1",
    "listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names=CONTROLLER",
    "controller.quorum.bootstrap.servers=localhost:9093",
];

fn outcome(case: &str) -> String {
    let removed = |line: &str| case.split('|').any(|c| c.strip_prefix('-') == line.split('=').next());
    let base = BASE.iter().copied().filter(|line| !removed(line));
    let lines: Vec<&str> = base.chain(case.split('|').filter(|c| !c.starts_with('-') && c.contains('='))).collect();
    let mut settings = Settings::new();
    settings.file(Path::new("server.properties"), &lines.join("\n")).unwrap();
    match BrokerConfig::load(&settings) {
        Ok(_) => "ok".to_owned(),
        Err(errors) => errors[0].error.to_string(),
    }
}

#[test]
fn settings_are_accepted_and_refused_as_kafka_does_it() {
    let mut wrong = Vec::new();
    for line in include_str!("data/start.tsv").lines() {
        let (case, expected) = line.split_once('\t').unwrap();
        let got = outcome(case);
        if got != expected {
            wrong.push(format!("{case}\n  expected {expected}\n  got      {got}"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
