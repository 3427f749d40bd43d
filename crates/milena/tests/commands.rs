//! Commands and tools that go on until somebody stops them: what they have done by then, and what they leave.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use milena_testkit::server::{Kind, Options, Server};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn server() -> Server {
    Options::new(Kind::Milena(env!("CARGO_BIN_EXE_milena").into())).start().expect("a broker")
}

/// A command line, in which `{at}` is where the broker is.
fn command(server: &Server, line: &str) -> Command {
    let address = server.addr().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_milena"));
    command.env("MILENA_BOOTSTRAP_SERVERS", &address);
    command.args(line.replace("{at}", &format!("--bootstrap-server {address}")).split_whitespace());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What a command that ends by itself prints.
fn run(server: &Server, line: &str) -> String {
    let output = command(server, line).output().expect("the binary was built");
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// A topic with one record for each line.
fn topic(server: &Server, name: &str, partitions: u32, lines: &str) {
    run(server, &format!("topic create {name} -p {partitions}"));
    produce(server, &format!("{name} -p 0"), lines);
}

fn produce(server: &Server, arguments: &str, lines: &str) {
    let mut child = command(server, &format!("produce {arguments}")).stdin(Stdio::piped()).spawn().expect("built");
    child.stdin.take().expect("a pipe").write_all(lines.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
}

/// The first lines that a command prints; it goes on.
fn lines(child: &mut Child, count: usize) -> Vec<String> {
    let mut out = child.stdout.take().expect("a pipe");
    let mut text = BufReader::with_capacity(1, &mut out);
    let lines = (0..count).map(|_| {
        let mut line = String::new();
        text.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    });
    let lines = lines.collect();
    child.stdout = Some(out);
    lines
}

fn terminate(child: Child) -> Output {
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::TERM).expect("it runs");
    child.wait_with_output().expect("it ends")
}

/// The committed offset of the only partition of a group, and how many members it has.
fn group(server: &Server, name: &str) -> (Value, usize) {
    let told = run(server, &format!("group describe {name} -o json"));
    let told: Value = serde_json::from_str(&told).expect("JSON");
    (told[0]["offsets"][0]["committed"].clone(), told[0]["members"].as_array().expect("a list").len())
}

#[test]
fn a_console_consumer_that_is_terminated_commits_and_leaves_its_group() {
    let server = server();
    topic(&server, "t", 1, "one\ntwo\nthree\n");
    let line = "kafka-console-consumer {at} --topic t --group g --from-beginning --enable-systest-events";
    let mut consumer = command(&server, line).spawn().expect("built");
    assert_eq!(lines(&mut consumer, 3), ["one", "two", "three"]);
    let output = terminate(consumer);
    assert_eq!(output.status.code(), Some(143), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "shutdown_complete\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Processed a total of 3 messages\n"), "{output:?}");
    assert_eq!(group(&server, "g"), (3.into(), 0));
}

#[test]
fn a_consumer_that_is_terminated_commits_and_leaves_its_group() {
    let server = server();
    topic(&server, "t", 1, "one\ntwo\n");
    let mut consumer = command(&server, "consume t -g g --from beginning").spawn().expect("built");
    assert_eq!(lines(&mut consumer, 2), ["one", "two"]);
    assert!(terminate(consumer).status.success());
    assert_eq!(group(&server, "g"), (2.into(), 0));
}

#[test]
fn what_nobody_read_from_standard_output_is_not_committed() {
    let server = server();
    topic(&server, "t", 1, "one\ntwo\n");
    for (name, line) in [
        ("g", "consume t -g g --from beginning"),
        ("h", "kafka-console-consumer {at} --topic t --group h --from-beginning"),
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = command(&server, line).stdout(writer).status().expect("built");
        assert!(ended.success());
        assert_eq!(group(&server, name), (0.into(), 0), "{line}");
    }
}

#[test]
fn a_message_that_cannot_be_printed_is_the_last_that_is_committed() {
    let server = server();
    topic(&server, "t", 1, "12345678\nfour\n12345678\n");
    let line = "kafka-console-consumer {at} --topic t --group g --from-beginning \
                --value-deserializer org.apache.kafka.common.serialization.LongDeserializer";
    let output = command(&server, line).output().expect("built");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "3544952156018063160\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Processed a total of 2 messages\n"), "{output:?}");
    assert_eq!(group(&server, "g"), (2.into(), 0));
}

#[test]
fn a_console_producer_that_is_terminated_writes_what_it_has_read() {
    let server = server();
    topic(&server, "t", 1, "");
    // A batch that is full goes out; the last line waits for more.
    let line = "kafka-console-producer {at} --topic t --timeout 600000 --batch-size 1000";
    let mut producer = command(&server, line).stdin(Stdio::piped()).spawn().expect("built");
    let mut input = producer.stdin.take().expect("a pipe");
    let long = "x".repeat(900);
    input.write_all(format!("{long}\n{long}\n").as_bytes()).expect("it reads");
    while run(&server, "kafka-get-offsets {at} --topic t") != "t:0:1\n" {
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = terminate(producer);
    assert_eq!(output.status.code(), Some(143), "{output:?}");
    assert_eq!(run(&server, "kafka-get-offsets {at} --topic t"), "t:0:2\n");
}

#[test]
fn a_console_consumer_without_group_finds_partitions_and_topics_that_are_new() {
    let server = server();
    topic(&server, "t1", 1, "one\n");
    let often = "--from-beginning --command-property metadata.max.age.ms=200";
    let mut one =
        command(&server, &format!("kafka-console-consumer {{at}} --topic t1 {often}")).spawn().expect("built");
    let mut all =
        command(&server, &format!("kafka-console-consumer {{at}} --include t.* {often}")).spawn().expect("built");
    assert_eq!((lines(&mut one, 1), lines(&mut all, 1)), (vec!["one".to_owned()], vec!["one".to_owned()]));
    run(&server, "topic alter t1 -p 2");
    produce(&server, "t1 -p 1", "two\n");
    assert_eq!((lines(&mut one, 1), lines(&mut all, 1)), (vec!["two".to_owned()], vec!["two".to_owned()]));
    topic(&server, "t2", 1, "three\n");
    assert_eq!(lines(&mut all, 1), ["three"]);
    for consumer in [one, all] {
        assert_eq!(terminate(consumer).status.code(), Some(143));
    }
}

#[test]
fn a_producer_that_is_interrupted_says_what_it_wrote() {
    let server = server();
    topic(&server, "t", 1, "");
    let mut producer = command(&server, "produce t -X linger.ms=600000 -X batch.size=1000")
        .stdin(Stdio::piped())
        .spawn()
        .expect("built");
    let mut input = producer.stdin.take().expect("a pipe");
    let long = "x".repeat(900);
    input.write_all(format!("{long}\n{long}\n").as_bytes()).expect("it reads");
    while run(&server, "kafka-get-offsets {at} --topic t") != "t:0:1\n" {
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = terminate(producer);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2 records written to t\n");
}

#[test]
fn measurements_tell_records_and_times() {
    let server = server();
    topic(&server, "t", 2, "one\ntwo\nthree\n");
    let told = |line: &str| -> Value { serde_json::from_str(&run(&server, line)).expect("JSON") };
    let read = told("perf consume t -o json");
    assert_eq!(read["records"], 3, "{read}");
    assert!(read["max_ms"].as_f64() > Some(0.0), "{read}");
    assert_eq!(told("perf consume t:1 -o json")["records"], 0);
    let back = told("perf e2e t -n 20 -s 0 -o json");
    assert_eq!(back["records"], 20, "{back}");
    assert!(back["p50_ms"].as_f64() <= back["p99_ms"].as_f64(), "{back}");
    assert_eq!(told("perf produce t -n 10 -o json")["records"], 10);
    assert_eq!(told("perf consume t -o json")["records"], 33);
}

#[test]
fn a_setting_that_does_not_exist_is_refused() {
    let server = server();
    topic(&server, "t", 1, "");
    for line in ["produce t", "consume t -e", "perf produce t -n 1", "perf consume t", "perf e2e t -n 1"] {
        let output = command(&server, &format!("{line} -X linger.mss=5")).output().expect("built");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && told.starts_with("milena: --property linger.mss: is no setting of"),
            "{told}"
        );
    }
    run(&server, "perf e2e t -n 1 -X linger.ms=1 -X fetch.max.wait.ms=10");
}

#[test]
fn a_measurement_that_is_stopped_tells_what_it_has() {
    let server = server();
    topic(&server, "t", 1, "");
    for line in ["perf produce t -r 20 -o json", "perf e2e t -r 20 -o json"] {
        let before = run(&server, "kafka-get-offsets {at} --topic t");
        let measurement = command(&server, line).spawn().expect("built");
        while run(&server, "kafka-get-offsets {at} --topic t") == before {
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = terminate(measurement);
        assert!(output.status.success(), "{output:?}");
        let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert!(told["records"].as_u64().is_some(), "{told}");
    }
}

#[test]
fn every_alias_is_the_tool_that_it_is_named_after() {
    let dir = tempfile::tempdir().expect("a folder");
    let binary = env!("CARGO_BIN_EXE_milena");
    let installed = Command::new(binary).arg("install-aliases").arg(dir.path()).output().expect("built");
    assert!(installed.status.success(), "{installed:?}");
    let help = |command: &mut Command| {
        let Output { stdout, stderr, status } = command.arg("--help").output().expect("built");
        (status.code(), stdout, stderr)
    };
    let (mut plain, mut scripts) = (0, 0);
    for alias in std::fs::read_dir(dir.path()).expect("a folder") {
        let alias = alias.expect("a link");
        let name = alias.file_name().into_string().expect("text");
        let tool = name.strip_suffix(".sh").unwrap_or(&name);
        if tool == name {
            plain += 1
        } else {
            scripts += 1
        }
        assert_eq!(help(&mut Command::new(alias.path())), help(Command::new(binary).arg(tool)), "{name}");
    }
    assert_eq!((plain, scripts), (22, 22));
}

#[test]
fn the_exit_code_tells_what_makes_no_sense_from_what_does_not_exist() {
    let server = server();
    topic(&server, "t", 1, "one\n");
    for (code, lines) in [
        (
            2,
            &[
                "consume t --from soon",
                "consume t -e -f %z",
                "consume t --last -1",
                "consume t -X retries",
                "consume t -X none.such=1",
                "consume t -g g --from 5",
                "consume t --from end -X auto.offset.reset=earliest",
                "offsets t --time x",
                "config set topic t retention",
                "config describe broker x",
                "topic delete-records t",
                "produce t -z none-such",
                "produce t -a 2",
                "txn producers t",
                "topic list --timeout -1",
            ][..],
        ),
        (
            4,
            &[
                "consume t:9 -e",
                "config describe broker 9",
                "config describe topic none",
                "topic describe none",
                "group describe none",
                "cluster unregister 5",
            ],
        ),
    ] {
        for line in lines {
            let output = command(&server, line).output().expect("built");
            assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
            assert!(
                output.stderr.starts_with(b"milena: ") || output.stderr.starts_with(b"error: "),
                "{line}: {output:?}"
            );
        }
    }
}

#[test]
fn a_group_without_commits_begins_where_its_own_setting_says() {
    let server = server();
    topic(&server, "t", 1, "one\ntwo\n");
    assert_eq!(run(&server, "consume t -g g -X auto.offset.reset=earliest -c 2"), "one\ntwo\n");
    assert_eq!(run(&server, "consume t -X auto.offset.reset=earliest -e"), "one\ntwo\n");
}

#[test]
fn what_finds_no_room_on_standard_output_is_an_error() {
    let server = server();
    topic(&server, "t", 1, "one\ntwo\n");
    for line in
        ["topic list", "topic list -o json", "consume t --from beginning -e", "consume t -g g --from beginning -c 2"]
    {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
        let output = command(&server, line).stdout(full).output().expect("built");
        assert_eq!(output.status.code(), Some(1), "{line}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("No space left on device"), "{line}: {output:?}");
    }
    assert_eq!(group(&server, "g"), (0.into(), 0));
}
