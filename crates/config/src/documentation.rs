//! What is said about each key: one line of our own (`data/documentation.tsv`, or made of what the tables say), and
//! the page `docs/configuration.md`, which a test compares with the committed one.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::LazyLock;

use crate::broker::OWN_START;
use crate::definition::{self, Catalog, Definition};

/// One line about a key, never empty.
pub fn line(definition: &Definition) -> String {
    if let Some(line) = own_line(definition) {
        return line.to_owned();
    }
    let name = definition.name;
    let topic_key = definition::topic().iter().find(|t| t.broker_key == Some(name));
    if let Some(line) = topic_key.and_then(own_line) {
        return format!("For topics without their own value: {line}");
    }
    let group_key = definition::group().iter().find(|g| g.broker_key == Some(name));
    if let Some(line) = group_key.and_then(own_line) {
        return format!("For groups without their own value: {line}");
    }
    let default = match definition.default_text() {
        Some(text) if text.is_empty() => ", empty by default".to_owned(),
        Some(text) => format!(", default {text}"),
        None if definition.required => ", required".to_owned(),
        None => ", unset by default".to_owned(),
    };
    format!("{} of type {}{default}.", name, definition.kind.name())
}

/// The line of the table, looked up by the key's own catalog: a topic's and a broker's key may share a name.
fn own_line(definition: &Definition) -> Option<&'static str> {
    static LINES: LazyLock<HashMap<(&str, &str), &str>> = LazyLock::new(|| {
        let rows = include_str!("../data/documentation.tsv").lines().skip(1);
        rows.filter_map(|row| {
            let (kind, rest) = row.split_once('\t')?;
            let (name, line) = rest.split_once('\t')?;
            Some(((kind, name), line))
        })
        .collect()
    });
    let catalogs: [(&str, &Catalog); 4] = [
        ("topic", definition::topic()),
        ("group", definition::group()),
        ("client_metrics", definition::client_metrics()),
        ("broker", definition::broker()),
    ];
    let of = |(kind, catalog): &(&'static str, &Catalog)| {
        catalog.get(definition.name).is_some_and(|d| std::ptr::eq(d, definition)).then_some(*kind)
    };
    let kind = catalogs.iter().find_map(of)?;
    LINES.get(&(kind, definition.name)).copied()
}

/// The page about all keys.
pub fn page() -> String {
    let own_start: String = OWN_START.iter().map(|(key, value)| format!("| `{key}` | `{value}` |\n")).collect();
    let mut page = include_str!("../data/configuration_head.md").replace("{own_start}\n", &own_start);
    let own = |d: &&Definition| d.name.starts_with("milena.");
    let mut section = |title: &str, definitions: Vec<&Definition>| {
        if !definitions.is_empty() {
            // Writing to a String cannot fail.
            let _ = write!(page, "\n## {title}\n\n");
            table(&mut page, &definitions);
        }
    };
    section("Milena's own keys", definition::broker().iter().filter(own).collect());
    let kafka = definition::broker().iter().filter(|d| !own(d));
    section("Broker keys that Milena acts on", kafka.filter(|d| d.effective).collect());
    section("Topic keys that Milena acts on", definition::topic().iter().filter(|d| d.effective).collect());
    section("Group keys that Milena acts on", definition::group().iter().filter(|d| d.effective).collect());
    let metrics = definition::client_metrics().iter().filter(|d| d.effective);
    section("Client metrics keys that Milena acts on", metrics.collect());
    page.push_str("\n## Keys without effect\n\nParsed, checked and described as in Kafka; nothing acts on them.\n");
    let catalogs = [
        ("Broker", definition::broker()),
        ("Topic", definition::topic()),
        ("Group", definition::group()),
        ("Client metrics", definition::client_metrics()),
    ];
    for (title, catalog) in catalogs {
        let inert = catalog.iter().filter(|d| !d.effective && !d.internal && !own(d));
        let names: Vec<String> = inert.map(|d| format!("`{}`", d.name)).collect();
        if !names.is_empty() {
            let _ = write!(page, "\n{title}: {}\n", names.join(", "));
        }
    }
    page
}

fn table(page: &mut String, definitions: &[&Definition]) {
    page.push_str("| key | type | default | allowed | changes | what it is |\n|---|---|---|---|---|---|\n");
    for d in definitions {
        let default = match d.default_text() {
            Some(text) if text.is_empty() => "empty".to_owned(),
            Some(text) => format!("`{text}`"),
            None if d.required => "required".to_owned(),
            None => "unset".to_owned(),
        };
        let allowed = d.validator.describe().unwrap_or_default();
        let (kind, mode) = (d.kind.name().to_lowercase(), d.update_mode.name());
        let _ = writeln!(page, "| `{}` | {kind} | {default} | {allowed} | {mode} | {} |", d.name, line(d));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_milena_acts_on_is_not_described_by_its_type() {
        let catalogs = [definition::broker(), definition::topic(), definition::group(), definition::client_metrics()];
        for key in catalogs.into_iter().flat_map(Catalog::iter).filter(|key| key.effective) {
            assert!(!line(key).starts_with(key.name), "{}", key.name);
        }
    }

    #[test]
    fn every_line_of_the_table_has_a_key_and_every_key_a_line() {
        let catalogs = [
            ("broker", definition::broker()),
            ("topic", definition::topic()),
            ("group", definition::group()),
            ("client_metrics", definition::client_metrics()),
        ];
        for row in include_str!("../data/documentation.tsv").lines().skip(1) {
            let cells: Vec<&str> = row.split('\t').collect();
            let catalog = catalogs.iter().find(|(kind, _)| *kind == cells[0]).unwrap().1;
            assert!(catalog.get(cells[1]).is_some() && cells[2].ends_with('.'), "{row}");
        }
        for definition in catalogs.iter().flat_map(|(_, catalog)| catalog.iter()) {
            assert!(!line(definition).is_empty(), "{}", definition.name);
        }
    }

    #[test]
    fn the_committed_page_is_current() {
        let committed = include_str!("../../../docs/configuration.md");
        assert!(committed == page(), "run: cargo run -p milena-config --example configuration_md");
    }
}
