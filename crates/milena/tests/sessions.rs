//! The terminal sessions of `docs/cli.md`, run from top to bottom against a broker: what the page shows is what a person
//! sees. `UPDATE_SESSIONS=1 cargo test -p milena --test sessions` writes the page's output anew; look at the difference.

use std::io::{Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use milena_testkit::batch::Batch;
use milena_testkit::server::{Kind, Options, Server};
use serde_json::json;

/// What the sessions read.
const INPUTS: [(&str, &str); 4] = [
    ("lines.txt", "one\ntwo\nthree\n"),
    ("keyed.txt", "apples:3\npears:5\n"),
    ("mixed.txt", "apples:3\npears\n"),
    ("records.json", r#"{"key":"plums","value":{"count":7},"headers":{"trace":"abc"},"timestamp":1796119200000}"#),
];

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md")
}

/// What a command prints on both outputs, and its exit code when that is not 0.
fn run(server: &Server, line: &str) -> String {
    // The page has the port that everybody knows.
    let line = line.replace("localhost:9092", &server.addr().to_string());
    let (line, input) = line.split_once(" < ").map_or((&*line, None), |(line, name)| (line, Some(name)));
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_milena"));
    let content = |name: &str| {
        let (_, content) = INPUTS.iter().find(|(file, _)| *file == name).expect("an input of that name");
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(content.as_bytes()).and_then(|()| file.rewind()).expect("room in the file");
        file
    };
    command.stdin(input.map_or(Stdio::null(), |name| content(name).into()));
    // By the name that it is called by, as through a link.
    command.arg0(words[0]).args(&words[1..]).env("MILENA_BOOTSTRAP_SERVERS", server.addr().to_string());
    let (reader, writer) = std::io::pipe().expect("a pipe");
    command.stdout(writer.try_clone().expect("a descriptor")).stderr(writer);
    let mut child = command.spawn().expect("the binary was built");
    // The command holds the pipe's other end until it is dropped.
    drop(command);
    let mut text = std::io::read_to_string(reader).expect("text");
    let status = child.wait().expect("it ends");
    if !status.success() {
        text += &format!("[exit code {}]\n", status.code().unwrap_or(-1));
    }
    text.replace(&server.addr().to_string(), "localhost:9092")
}

/// Without what is another each time: ids, and what a disk has.
fn plain(text: &str) -> String {
    let is_id = |word: &str| {
        word.len() == 22
            && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
            && word.chars().any(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
    };
    let mut out = String::new();
    for line in text.lines() {
        for word in line.split_inclusive(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_')) {
            let end = word.trim_end_matches(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_')).len();
            let (word, behind) = word.split_at(end);
            out.push_str(if is_id(word) { "ID" } else { word });
            out.push_str(behind);
        }
        // Blanks at the end of a line do not show.
        out.truncate(out.trim_end_matches(' ').len());
        out.push('\n');
    }
    out
}

/// Records that the sessions look at.
fn prepare(server: &Server) {
    let mut client = server.client().expect("a connection");
    let topic = json!({ "name": "clicks", "numPartitions": 2, "replicationFactor": 1 });
    client.call("CreateTopics", 7, &json!({ "topics": [topic], "timeoutMs": 10_000 })).expect("a topic");
    for (partition, count) in [(0, 3), (1, 2)] {
        let records = STANDARD.encode(Batch::of(count, 1_796_119_200_000).build());
        let data = json!([{ "index": partition, "records": records }]);
        let topics = json!([{ "name": "clicks", "partitionData": data }]);
        let produce = json!({ "acks": -1, "timeoutMs": 10_000, "topicData": topics });
        let answer = client.call("Produce", 9, &produce).expect("an answer");
        assert_eq!(answer["responses"][0]["partitionResponses"][0]["errorCode"], 0, "{answer}");
    }
}

#[test]
fn the_page_shows_what_a_person_sees() {
    let server = Options::new(Kind::Milena(env!("CARGO_BIN_EXE_milena").into())).start().expect("a broker");
    prepare(&server);
    let told = std::fs::read_to_string(page()).expect("docs/cli.md");
    let mut seen = String::new();
    let mut lines = told.lines().peekable();
    let mut in_session = false;
    while let Some(line) = lines.next() {
        seen += &format!("{line}\n");
        if line.starts_with("```") {
            in_session = line == "```console";
        }
        let Some(command) = line.strip_prefix("$ ").filter(|_| in_session) else { continue };
        let mut shown = String::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with("$ ") && !line.starts_with("```")) {
            shown += &format!("{line}\n");
        }
        let got = run(&server, command);
        // What differs in ids only stays as it is.
        seen += if plain(&got) == plain(&shown) { &shown } else { &got };
    }
    if std::env::var_os("UPDATE_SESSIONS").is_some() {
        std::fs::write(page(), &seen).expect("the page can be written");
    }
    assert!(seen == told, "docs/cli.md shows something else; UPDATE_SESSIONS=1 writes it anew:\n{seen}");
}
