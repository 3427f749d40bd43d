//! Every key against the verdicts of Apache Kafka 4.4.0 on a set of raw values.

use milena_config::definition::{self, Catalog, ConfigType};

fn unescape(text: &str) -> String {
    text.replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\")
}

#[test]
fn every_key_judges_raw_values_as_kafka_does() {
    let mut catalog: &Catalog = definition::broker();
    let mut names: Vec<&str> = Vec::new();
    let mut wrong = Vec::new();
    let mut judged = 0;
    for line in include_str!("data/validation.tsv").lines() {
        let cells: Vec<&str> = line.split('\t').collect();
        if let Some(kind) = cells[0].strip_prefix('@') {
            catalog = match kind {
                "topic" => definition::topic(),
                "group" => definition::group(),
                "client-metrics" => definition::client_metrics(),
                _ => definition::broker(),
            };
            names = cells[1].split(',').collect();
            continue;
        }
        let (raw, verdict, text) = (unescape(cells[0]), cells[1], unescape(cells[2]));
        for name in &names {
            let definition = catalog.get(name).unwrap_or_else(|| panic!("no definition of {name}"));
            let outcome = match definition.parse(&raw) {
                Ok(_) if definition.kind == ConfigType::Password => ("ok", "[hidden]".to_owned()),
                Ok(value) => ("ok", value.text().unwrap_or_default()),
                Err(error) => ("error", error.to_string()),
            };
            judged += 1;
            let expected = (verdict, text.replace("{name}", name));
            if outcome != expected {
                wrong.push(format!("{name}={raw:?}\n  expected {expected:?}\n  got      {outcome:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {judged} wrong:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
    assert!(judged > 13_000, "{judged}");
}
