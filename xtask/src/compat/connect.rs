//! Kafka Connect with Apache Kafka's connectors for files: standalone and stopped in the middle, then a cluster of one worker that is killed.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use milena_testkit::server::Server;
use milena_testkit::{oracle, ports};

use super::apps::java;
use super::program::Program;

const PATIENCE: Duration = Duration::from_secs(120);
/// Lines that are there from the beginning, and with those of each later moment.
const LINES: [usize; 4] = [2000, 3000, 4000, 5000];

const SOURCE: &str = "org.apache.kafka.connect.file.FileStreamSourceConnector";
const SINK: &str = "org.apache.kafka.connect.file.FileStreamSinkConnector";

/// Copies the lines of a file through a topic into another file, twice.
pub(super) fn copy_files(class_path: &str, server: &mut Server) -> Result<()> {
    standalone(class_path, server).context("standalone")?;
    distributed(class_path, server).context("distributed")
}

/// The settings of a worker, with further ones.
fn worker(server: &Server, port: u16, more: &[(&str, &str)]) -> String {
    let string = "org.apache.kafka.connect.storage.StringConverter";
    let (bootstrap, listener) = (server.addr().to_string(), format!("http://127.0.0.1:{port}"));
    let common = [
        ("bootstrap.servers", &*bootstrap),
        ("listeners", &*listener),
        ("key.converter", string),
        ("value.converter", string),
        ("plugin.discovery", "service_load"),
        ("offset.flush.interval.ms", "500"),
    ];
    properties(common.iter().chain(more))
}

fn properties<'p>(all: impl IntoIterator<Item = &'p (&'p str, &'p str)>) -> String {
    all.into_iter().fold(String::new(), |mut text, (key, value)| {
        let _ = writeln!(text, "{key}={value}");
        text
    })
}

/// Lines of a file.
fn lines(numbers: std::ops::Range<usize>) -> String {
    numbers.map(|number| format!("line {number}\n")).collect()
}

fn append(path: &Path, text: &str) -> Result<()> {
    Ok(std::fs::File::options().append(true).create(true).open(path)?.write_all(text.as_bytes())?)
}

/// Waits until a file has so many lines.
fn wait_for_lines(path: &Path, count: usize) -> Result<()> {
    let (until, mut seen) = (Instant::now() + PATIENCE, 0);
    while Instant::now() < until {
        seen = std::fs::read(path).unwrap_or_default().iter().filter(|byte| **byte == b'\n').count();
        if seen >= count {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("{} has {seen} lines of {count}", path.display())
}

/// Source and sink are stopped in order while lines come; each line arrives once, in its place.
fn standalone(class_path: &str, server: &Server) -> Result<()> {
    let dir = server.dir();
    let (source, sink) = (dir.join("source.txt"), dir.join("sink.txt"));
    let (source_file, sink_file) = (source.display().to_string(), sink.display().to_string());
    let offsets = dir.join("connect.offsets").display().to_string();
    let configs = [
        ("worker", worker(server, ports::free(), &[("offset.storage.file.filename", &offsets)])),
        (
            "source",
            properties(&[
                ("name", "lines-source"),
                ("connector.class", SOURCE),
                ("file", &source_file),
                ("topic", "connect-lines"),
            ]),
        ),
        (
            "sink",
            properties(&[
                ("name", "lines-sink"),
                ("connector.class", SINK),
                ("file", &sink_file),
                ("topics", "connect-lines"),
            ]),
        ),
    ];
    let mut paths = Vec::new();
    for (name, text) in &configs {
        let path = dir.join(format!("{name}.properties"));
        std::fs::write(&path, text)?;
        paths.push(path);
    }
    let start = || {
        let mut java = java(class_path);
        Program::start("standalone", java.arg("org.apache.kafka.connect.cli.ConnectStandalone").args(&paths), dir)
    };
    append(&source, &lines(0..LINES[0]))?;
    let connect = start()?;
    wait_for_lines(&sink, LINES[0])?;
    append(&source, &lines(LINES[0]..LINES[1]))?;
    wait_for_lines(&sink, LINES[0] + 1)?;
    connect.stop()?;
    append(&source, &lines(LINES[1]..LINES[2]))?;
    let connect = start()?;
    wait_for_lines(&sink, LINES[2])?;
    connect.stop()?;
    if std::fs::read(&source)? != std::fs::read(&sink)? {
        bail!("{} and {} differ", source.display(), sink.display());
    }
    println!("connect: {} lines once through a standalone worker", LINES[2]);
    Ok(())
}

/// A worker whose source writes in transactions is killed while lines come; each line is in the topic once, in its place.
fn distributed(class_path: &str, server: &mut Server) -> Result<()> {
    let dir = server.dir().to_owned();
    let source = dir.join("distributed.txt");
    let port = ports::free();
    let settings = [
        ("group.id", "connect-cluster"),
        ("exactly.once.source.support", "enabled"),
        ("offset.storage.topic", "connect-offsets"),
        ("offset.storage.replication.factor", "1"),
        ("config.storage.topic", "connect-configs"),
        ("config.storage.replication.factor", "1"),
        ("status.storage.topic", "connect-status"),
        ("status.storage.replication.factor", "1"),
        ("scheduled.rebalance.max.delay.ms", "0"),
        ("session.timeout.ms", "3000"),
        ("heartbeat.interval.ms", "300"),
    ];
    let path = dir.join("distributed.properties");
    std::fs::write(&path, worker(server, port, &settings))?;
    let start = || {
        let mut java = java(class_path);
        Program::start("distributed", java.arg("org.apache.kafka.connect.cli.ConnectDistributed").arg(&path), &dir)
    };
    append(&source, &lines(0..LINES[0]))?;
    let connect = start()?;
    let config = serde_json::json!({
        "connector.class": SOURCE,
        "file": source,
        "topic": "distributed-lines",
    });
    put(port, "/connectors/distributed-source/config", &config.to_string())?;
    let mut reader = Reader::start(server)?;
    reader.read_to(LINES[0])?;
    append(&source, &lines(LINES[0]..LINES[1]))?;
    connect.kill()?;
    server.kill()?;
    append(&source, &lines(LINES[1]..LINES[2]))?;
    server.start()?;
    let connect = start()?;
    reader.read_to(LINES[2])?;
    append(&source, &lines(LINES[2]..LINES[3]))?;
    reader.read_to(LINES[3])?;
    connect.stop()?;
    println!("connect: {} lines once through a worker that was killed", LINES[3]);
    Ok(())
}

/// A console consumer of committed records.
struct Reader {
    program: Program,
    next: usize,
}

impl Reader {
    fn start(server: &Server) -> Result<Self> {
        let mut java = java(&format!("{}/*", oracle::ensure_jars()?.display()));
        java.args(["org.apache.kafka.tools.consumer.ConsoleConsumer", "--isolation-level", "read_committed"]);
        java.args(["--topic", "distributed-lines", "--partition", "0", "--offset", "earliest", "--bootstrap-server"]);
        let program = Program::start("reader", java.arg(server.addr().to_string()), server.dir())?;
        Ok(Self { program, next: 0 })
    }

    /// Reads on up to a line; none is missing, and none comes twice.
    fn read_to(&mut self, end: usize) -> Result<()> {
        while self.next < end {
            let line = self.program.wait_for("the next line", |line| Some(line.to_owned()))?;
            if line != format!("line {}", self.next) {
                bail!("{line} is where line {} should be", self.next);
            }
            self.next += 1;
        }
        Ok(())
    }
}

/// Puts JSON to a worker, as soon as it takes it.
fn put(port: u16, path: &str, body: &str) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    let mut answer = String::new();
    while Instant::now() < until {
        answer = put_once(port, path, body).unwrap_or_else(|error| error.to_string());
        if answer.starts_with("HTTP/1.1 20") {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    bail!("PUT {path}: {answer}")
}

fn put_once(port: u16, path: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "PUT {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
