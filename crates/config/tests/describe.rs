//! Descriptions of resources against those of an Apache Kafka 4.4.0 node with the same settings.

use std::path::Path;

use milena_config::broker::DynamicConfig;
use milena_config::describe::{self, Entry, Options};
use milena_config::{BrokerConfig, Overrides, Settings};

/// What a data file sets up before each description.
struct Node {
    statics: String,
    dynamic: DynamicConfig,
    overrides: Overrides,
}

impl Node {
    fn config(&self) -> BrokerConfig {
        let mut settings = Settings::new();
        settings.file(Path::new("server.properties"), &self.statics).unwrap();
        let (config, ignored) = BrokerConfig::load(&settings).unwrap().with_dynamic(self.dynamic.clone());
        assert!(ignored.is_empty(), "{ignored:?}");
        config
    }

    fn describe(&self, resource: &str) -> Vec<Entry> {
        let options = Options { synonyms: true, ..Options::default() };
        let config = self.config();
        match resource {
            "TOPIC t" => describe::topic(&config, &self.overrides, options),
            "BROKER 1" => describe::broker(&config, options),
            "BROKER -" => describe::broker_default(&config, options),
            "GROUP g" => describe::group(&config, &self.overrides, options),
            "CLIENT_METRICS c" => describe::client_metrics(&self.overrides, options),
            other => panic!("{other}"),
        }
    }
}

fn pairs(lines: &[&str]) -> Overrides {
    lines.iter().map(|l| l.split_once('=').unwrap()).map(|(n, v)| (n.to_owned(), v.to_owned())).collect()
}

fn shown(value: Option<&String>) -> String {
    value.cloned().unwrap_or_else(|| "<null>".to_owned())
}

fn line(entry: &Entry) -> String {
    let synonyms: Vec<String> =
        entry.synonyms.iter().map(|s| format!("{}:{}={}", s.source.code(), s.name, shown(s.value.as_ref()))).collect();
    [
        entry.name.clone(),
        shown(entry.value.as_ref()),
        entry.source.code().to_string(),
        entry.kind.to_string(),
        if entry.read_only { "ro" } else { "rw" }.to_owned(),
        if entry.sensitive { "S" } else { "-" }.to_owned(),
        synonyms.join(" > "),
    ]
    .join("\t")
}

fn check(data: &str) {
    let mut node = Node { statics: String::new(), dynamic: DynamicConfig::default(), overrides: Overrides::default() };
    for section in data.split('@').filter(|s| !s.is_empty()) {
        let (head, body) = section.split_once('\n').unwrap();
        let lines: Vec<&str> = body.lines().collect();
        match head {
            "static" => node.statics = lines.join("\n"),
            "default" => node.dynamic.default = pairs(&lines),
            "broker" => node.dynamic.broker = pairs(&lines),
            "overrides" => node.overrides = pairs(&lines),
            _ => {
                let resource = head.strip_prefix("describe ").unwrap();
                let mut got: Vec<String> =
                    node.describe(resource).iter().filter(|e| !e.name.starts_with("milena.")).map(line).collect();
                got.sort();
                let mut expected: Vec<String> = lines.iter().map(|l| (*l).to_owned()).collect();
                expected.sort();
                let missing: Vec<_> = expected.iter().filter(|l| !got.contains(l)).collect();
                let extra: Vec<_> = got.iter().filter(|l| !expected.contains(l)).collect();
                assert!(missing.is_empty() && extra.is_empty(), "{head}\nmissing {missing:#?}\nextra {extra:#?}");
            }
        }
    }
}

#[test]
fn a_fresh_node_is_described_as_kafka_describes_it() {
    check(include_str!("data/describe_fresh.tsv"));
}

#[test]
fn a_node_with_dynamic_settings_is_described_as_kafka_describes_it() {
    check(include_str!("data/describe_altered.tsv"));
}
