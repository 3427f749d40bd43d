//! Alterations against the answers of an Apache Kafka 4.4.0 node, in the order they were asked.

use std::collections::HashMap;
use std::path::Path;

use milena_config::alter::{self, Edit, Operation, Resource};
use milena_config::{AlterError, BrokerConfig, Overrides, Settings, client_metrics, dynamic, group, topic};

const STATICS: &str = "process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:27191,CONTROLLER://127.0.0.1:27192
advertised.listeners=PLAINTEXT://127.0.0.1:27191
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
controller.quorum.bootstrap.servers=127.0.0.1:27192
log.dirs=/data
foo.bar=1
listener.name.plaintext.max.connections=99
log.cleanup.policy=delete, compact
log.retention.hours=24";

struct Node {
    config: BrokerConfig,
    resources: HashMap<String, Overrides>,
}

impl Node {
    fn new() -> Self {
        let mut settings = Settings::new();
        settings.file(Path::new("server.properties"), STATICS).unwrap();
        Self { config: BrokerConfig::load(&settings).unwrap(), resources: HashMap::new() }
    }

    fn alter(&mut self, kind: &str, name: &str, edits: &[Edit<'_>]) -> Result<(), AlterError> {
        let resource = match kind {
            "TOPIC" => Resource::Topic,
            "BROKER" => Resource::Broker,
            "GROUP" => Resource::Group,
            _ => Resource::ClientMetrics,
        };
        let existing = self.resources.get(&format!("{kind} {name}")).cloned().unwrap_or_default();
        if resource == Resource::Broker {
            alter::check_shape(edits)?;
            dynamic::check_alter(&self.config, name != "-", edits)?;
        }
        let new = alter::apply(&existing, &alter::incremental(resource, &existing, edits)?);
        match resource {
            Resource::Topic => topic::validate(&self.config, &new, &existing)?,
            Resource::Group => group::validate(&self.config, &new)?,
            Resource::ClientMetrics => client_metrics::validate(name, &new)?,
            Resource::Broker => {
                let mut dynamic = self.config.dynamic().clone();
                *if name == "-" { &mut dynamic.default } else { &mut dynamic.broker } = new.clone();
                let (config, ignored) = self.config.with_dynamic(dynamic);
                assert!(ignored.is_empty(), "{ignored:?}");
                self.config = config;
            }
        }
        self.resources.insert(format!("{kind} {name}"), new);
        Ok(())
    }
}

fn edit(text: &str) -> Edit<'_> {
    let (operation, text) = match text.split_at(1) {
        ("+", rest) => (Operation::Append, rest),
        ("-", rest) => (Operation::Subtract, rest),
        ("!", rest) => (Operation::Delete, rest),
        _ => (Operation::Set, text),
    };
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    Edit { name, operation, value: Some(value) }
}

#[test]
fn alterations_are_answered_as_kafka_answers_them() {
    let mut node = Node::new();
    let mut wrong = Vec::new();
    for line in include_str!("data/alter.tsv").lines() {
        let cells: Vec<&str> = line.split('\t').collect();
        if cells[0] == "@session" {
            node = Node::new();
            continue;
        }
        let edits: Vec<Edit<'_>> = cells[2].split(';').map(edit).collect();
        let got = match node.alter(cells[0], cells[1], &edits) {
            Ok(()) => "ok".to_owned(),
            Err(error) => format!("{}\t{error}", error.code()),
        };
        let expected = cells[3..].join("\t");
        if got != expected {
            wrong.push(format!("{} {} {}\n  expected {expected}\n  got      {got}", cells[0], cells[1], cells[2]));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
