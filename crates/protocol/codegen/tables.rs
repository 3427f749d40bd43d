//! The tables beside the messages: API keys, error codes, metadata records, and the catalog of all messages.

use std::collections::BTreeMap;

use crate::codegen::names;
use crate::codegen::schema::Message;

/// Rows of a tab-separated file with a header line.
fn rows(tsv: &str) -> impl Iterator<Item = Vec<&str>> {
    tsv.lines().skip(1).map(|line| line.split('\t').collect())
}

/// `apis! { … }`: the constants, then one line a key from 0 upwards. What the definitions do not say is in `flags`.
pub(super) fn apis(messages: &[Message], flags: &str) -> String {
    let flags: BTreeMap<i16, Vec<&str>> = rows(flags).map(|row| (row[0].parse().expect("a key"), row)).collect();
    let requests = messages.iter().filter(|m| m.kind == "request");
    let requests: BTreeMap<i16, &Message> = requests.map(|m| (m.api_key.expect("a request has a key"), m)).collect();
    let (newest, _) = requests.last_key_value().expect("there are requests");
    let (mut constants, mut infos) = (String::new(), String::new());
    for key in 0..=*newest {
        let flags = flags.get(&key);
        let request = requests.get(&key);
        let name = request.map(|m| m.name.trim_end_matches("Request")).or(flags.map(|row| row[1]));
        let name = name.unwrap_or_else(|| panic!("key {key} has no name"));
        constants += &format!("{} {key} {name:?};\n", names::constant(name));
        infos += &request.map_or("none;\n".to_owned(), |request| {
            check_response(request, messages);
            api_info(request, name, flags)
        });
    }
    format!("apis! {{\nkeys {{\n{constants}}}\ninfos {{\n{infos}}}\n}}\n")
}

/// One table serves requests and responses, so they must agree.
fn check_response(request: &Message, messages: &[Message]) {
    let response = messages.iter().find(|m| m.kind == "response" && m.api_key == request.api_key);
    let response = response.unwrap_or_else(|| panic!("{} has no response", request.name));
    assert_eq!(request.valid, response.valid, "{}", request.name);
    assert_eq!(request.flexible_from, response.flexible_from, "{}", request.name);
}

fn api_info(request: &Message, name: &str, flags: Option<&Vec<&str>>) -> String {
    let flag = |column: usize| flags.map_or("false", |row| row[column]);
    let listener = |kind: &str| request.listeners.iter().any(|listener| listener == kind);
    format!(
        "{} {} {} {} {} {} {} {} {};\n",
        names::constant(name),
        request.valid.lo,
        request.valid.hi,
        request.flexible_from.unwrap_or(i16::MAX),
        request.latest_unstable,
        listener("broker"),
        listener("controller"),
        flag(2),
        flag(3),
    )
}

/// `requests! { … }`: every request and its response, with the lifetimes that they have.
pub(super) fn requests(messages: &[Message]) -> String {
    let response = |request: &Message| {
        let found = messages.iter().find(|m| m.kind == "response" && m.api_key == request.api_key);
        found.unwrap_or_else(|| panic!("{} has no response", request.name))
    };
    let name = |m: &Message, lifetime: &str| format!("{}{}", m.name, if m.root().borrows { lifetime } else { "" });
    let requests = messages.iter().filter(|m| m.kind == "request");
    let lines: String = requests.map(|m| format!("{} {};\n", name(m, " '_"), name(response(m), " 'r"))).collect();
    format!("requests! {{\n{lines}}}\n")
}

/// `error_codes! { … }`: one line a code.
pub(super) fn error_codes(tsv: &str) -> String {
    let line = |row: Vec<&str>| format!("{} {} {} {:?} {:?};\n", row[1], row[0], row[2], row[3], row[4]);
    let lines: String = rows(tsv).map(line).collect();
    format!("error_codes! {{\n{lines}}}\n")
}

/// The two record enums, by record type. The remote log's records have their own numbers.
pub(super) fn metadata_records(messages: &[Message]) -> String {
    let mut records: Vec<&Message> = messages.iter().filter(|m| m.kind == "metadata").collect();
    records.sort_by_key(|m| m.api_key);
    let (remote, metadata): (Vec<_>, Vec<_>) = records.into_iter().partition(|m| m.name.starts_with("Remote"));
    record_enum("MetadataRecord", "Any record of the metadata log.", &metadata)
        + &record_enum("RemoteLogRecord", "Any record of the remote log metadata topic.", &remote)
}

fn record_enum(name: &str, doc: &str, records: &[&Message]) -> String {
    let mut out = format!("records! {{\n/// {doc}\n{name}\n");
    for record in records {
        let lifetime = if record.root().borrows { " 'a" } else { "" };
        out += &format!("{} {}{lifetime};\n", record.name.trim_end_matches("Record"), record.name);
    }
    out + "}\n"
}

/// `coordinator_records! { … }`: one line a record of a coordinator's topic, by coordinator and record type.
pub(super) fn coordinator_records(messages: &[Message]) -> String {
    let mut lines = Vec::new();
    for key in messages.iter().filter(|m| m.kind == "coordinator-key") {
        let stem = key.name.trim_end_matches("Key");
        let coordinator = match stem {
            "TransactionLog" => "Transaction",
            "ShareSnapshot" | "ShareUpdate" => "Share",
            _ => "Group",
        };
        let record_type = key.api_key.expect("a coordinator's record has a type");
        lines.push((coordinator, record_type, format!("{coordinator} {record_type} {} {stem}Value;\n", key.name)));
    }
    lines.sort();
    let lines: String = lines.into_iter().map(|(.., line)| line).collect();
    format!("coordinator_records! {{\n{lines}}}\n")
}

/// `catalog! { … }`: every message by name.
pub(super) fn catalog(messages: &[Message]) -> String {
    let names: String = messages.iter().map(|m| format!("{}\n", m.name)).collect();
    format!("catalog! {{\n{names}}}\n")
}
