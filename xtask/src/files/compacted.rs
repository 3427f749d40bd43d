//! Compaction beside Apache Kafka's: of the same logs either keeps the same batches and records, at the same offsets and in the
//! same segments, and goes on cleaning what the other one left.

mod input;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use milena_testkit::batch::Stored;
use milena_testkit::client::RawClient;
use milena_testkit::server::{Kind, Options};
use serde_json::{Value, json};

use super::clients::Tools;
use input::{Input, TOPICS, Topic};

/// How long a cleaning may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// The checkpoint of the cleaners, Kafka's and ours.
const CLEANED_TO: &str = "cleaner-offset-checkpoint";

/// What Kafka's tool finds in every compacted log, also in its own: offsets are missing, and a batch that stays for its producer alone
/// has no record with the timestamp of its header.
const FOUND: [&str; 4] =
    ["Non-consecutive offsets in", " is followed by ", "Found timestamp mismatch in", "log timestamp: -1"];

/// Compares, and gives the number of comparisons.
pub(super) fn compare(options: &Options, libs: &Path) -> Result<usize> {
    let (milena, kafka) = (options.kind(), &Kind::Kafka(libs.to_owned()));
    let mut checked = 0;
    for seed in 0..super::rounds() {
        let dir = tempfile::Builder::new().prefix("milena-compacted-").tempdir()?;
        let round = Round { ours: dir.path().join("ours"), theirs: dir.path().join("theirs"), milena, kafka };
        checked += round.run(seed, libs).with_context(|| format!("seed {seed}")).inspect_err(|_| {
            let kept = dir.keep();
            eprintln!("the folder is {}", kept.display());
        })?;
    }
    Ok(checked)
}

/// Two directories with the same logs: one that Milena cleans first, one that Kafka does.
struct Round<'k> {
    ours: PathBuf,
    theirs: PathBuf,
    milena: &'k Kind,
    kafka: &'k Kind,
}

impl Round<'_> {
    fn run(&self, seed: u64, libs: &Path) -> Result<usize> {
        let mut input = Input::new(seed, super::now()? - 3_600_000);
        let fill = without_cleaner(self.kafka, &self.theirs).start()?;
        input.create(&mut fill.client()?)?;
        input.transactions(&mut fill.client()?)?;
        stop(fill)?;
        super::copy(&self.theirs, &self.ours)?;
        clean(self.milena, &self.ours)?;
        clean(self.kafka, &self.theirs)?;
        let mut checked = self.same(|_| true).context("after the first cleaning")?;
        checked += read_by_kafka(libs, &self.ours)?;
        checked += self.kept_under_another_policy()?;
        let more = input.more();
        for dir in [&self.ours, &self.theirs] {
            let server = without_cleaner(self.milena, dir).start()?;
            more.iter().try_for_each(|batch| batch.produce(&mut server.client()?).map(drop))?;
            stop(server)?;
        }
        clean(self.kafka, &self.ours)?;
        clean(self.milena, &self.theirs)?;
        // Into which segments a log goes depends on the sizes of those from before, and those on the compressor.
        checked += self.same(|topic| topic.codecs.len() == 1).context("each cleaned what the other one had cleaned")?;
        checked += read_by_kafka(libs, &self.theirs)?;
        Ok(checked)
    }

    /// Logs that were compacted once and are no longer, killed, and without a checkpoint that says how far they are durable or clean: either
    /// server takes the offsets that compaction has left out for no loss, and serves every record.
    fn kept_under_another_policy(&self) -> Result<usize> {
        let mut checked = 0;
        for kind in [self.milena, self.kafka] {
            let dir = self.ours.with_file_name(format!("kept-by-{}", kind.name()));
            super::copy(&self.ours, &dir)?;
            let mut server = without_cleaner(self.milena, &dir).start()?;
            let set = |name: &str, value: &str| json!({"name": name, "configOperation": 0, "value": value});
            let configs = [set("cleanup.policy", "delete"), set("retention.ms", "-1")];
            let resource = |topic: &Topic| json!({"resourceType": 2, "resourceName": topic.name, "configs": configs});
            let resources: Vec<_> = TOPICS.iter().map(resource).collect();
            let answer = server.client()?.call("IncrementalAlterConfigs", 1, &json!({"resources": resources}))?;
            if answer["responses"].as_array().is_none_or(|all| all.iter().any(|one| one["errorCode"] != 0)) {
                bail!("the policy is not changed: {answer}");
            }
            server.kill()?;
            for name in ["recovery-point-offset-checkpoint", CLEANED_TO] {
                fs::remove_file(dir.join("data").join(name))?;
            }
            let mut server = without_cleaner(kind, &dir).start()?;
            for topic in TOPICS {
                led(&mut server.client()?, topic.name)?;
            }
            server.kill()?;
            for topic in TOPICS {
                let [found, expected] = [Content::read(&dir, topic.name)?, Content::read(&self.ours, topic.name)?];
                if found.segments != expected.segments {
                    bail!("{} keeps other batches of {} in {}", kind.name(), topic.name, dir.display());
                }
                checked += found.segments.values().map(Vec::len).sum::<usize>();
            }
        }
        Ok(checked)
    }

    /// Both directories hold the same, and where `by_segment` says so in the same segments.
    fn same(&self, by_segment: impl Fn(&Topic) -> bool) -> Result<usize> {
        let mut batches = 0;
        for topic in TOPICS {
            let [mut ours, mut theirs] =
                [Content::read(&self.ours, topic.name)?, Content::read(&self.theirs, topic.name)?];
            if !by_segment(&topic) {
                [&mut ours, &mut theirs].into_iter().for_each(Content::forget_segments);
            }
            for (name, expected) in &theirs.segments {
                let found = ours.segments.get(name).with_context(|| format!("{} has no {name}", topic.name))?;
                for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
                    if found != expected {
                        bail!("{} {name}, batch {at}\n  is       {found}\n  expected {expected}", topic.name);
                    }
                }
                if found.len() != expected.len() {
                    bail!("{} {name} has {} batches, expected {}", topic.name, found.len(), expected.len());
                }
                batches += found.len();
            }
            if ours.files != theirs.files {
                bail!("{} has the files {:#?}\nexpected {:#?}", topic.name, ours.files, theirs.files);
            }
            if ours.aborted != theirs.aborted {
                bail!(
                    "{} has other aborted transactions: {:?}\nexpected {:?}",
                    topic.name,
                    ours.aborted,
                    theirs.aborted
                );
            }
        }
        Ok(batches)
    }
}

fn without_cleaner(kind: &Kind, dir: &Path) -> Options {
    Options::new(kind.clone())
        .dir(dir)
        .set("log.cleaner.enable", "false")
        .set("transaction.state.log.num.partitions", "1")
}

fn stop(mut server: milena_testkit::server::Server) -> Result<()> {
    let status = server.stop()?;
    // A JVM that has been told to end says so.
    if status.success() || status.code() == Some(143) { Ok(()) } else { bail!("the stop gives {status}") }
}

/// Runs a server until all logs are clean up to their last segments.
fn clean(kind: &Kind, dir: &Path) -> Result<()> {
    let mut wanted = BTreeMap::new();
    for topic in TOPICS {
        let logs = super::listed(&partition(dir, topic.name))?;
        let last = logs.iter().rfind(|path| super::has_suffix(path, "log")).context("a log has a segment")?;
        wanted.insert(format!("{} 0", topic.name), offset_of(last)?);
    }
    let server = Options::new(kind.clone()).dir(dir).set("log.cleaner.backoff.ms", "100").start()?;
    let begun = Instant::now();
    loop {
        let lines = fs::read_to_string(dir.join("data").join(CLEANED_TO)).unwrap_or_default();
        let cleaned_to = |log: &str| lines.lines().find_map(|line| line.strip_prefix(log)?.trim().parse::<i64>().ok());
        if wanted.iter().all(|(log, offset)| cleaned_to(log) == Some(*offset)) {
            return stop(server);
        }
        if begun.elapsed() > PATIENCE {
            bail!("{} has not cleaned all of {wanted:?}:\n{lines}\n{}", kind.name(), server.log_tail(30));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until the broker leads the partition of a topic: its log is open then.
fn led(client: &mut RawClient, topic: &str) -> Result<()> {
    let asked = json!([{"partitionIndex": 0, "timestamp": -1}]);
    let body = json!({"replicaId": -1, "topics": [{"name": topic, "partitions": asked}]});
    let begun = Instant::now();
    loop {
        let answer = client.call("ListOffsets", 7, &body)?;
        match answer["topics"][0]["partitions"][0]["errorCode"].as_i64() {
            Some(0) => return Ok(()),
            _ if begun.elapsed() > PATIENCE => bail!("{topic} is never led: {answer}"),
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Kafka's tool finds nothing wrong with any file.
fn read_by_kafka(libs: &Path, dir: &Path) -> Result<usize> {
    let mut tool = Tools::start(libs)?;
    let mut checked = 0;
    for topic in TOPICS {
        for (suffix, flag) in [
            ("log", "--deep-iteration"),
            ("snapshot", "--deep-iteration"),
            ("txnindex", "--deep-iteration"),
            ("index", "--verify-index-only"),
            ("timeindex", "--verify-index-only"),
        ] {
            let files = super::listed(&partition(dir, topic.name))?;
            let names: Vec<_> = files.iter().filter(|file| super::has_suffix(file, suffix)).collect();
            let text: Vec<_> = names.iter().map(|name| name.display().to_string()).collect();
            if text.is_empty() {
                continue;
            }
            let ran = tool.run("DumpLogSegments", "", &["--files".to_owned(), text.join(","), flag.to_owned()])?;
            let is_usual = |line: &str| line.is_empty() || FOUND.iter().any(|found| line.contains(found));
            if ran.code != 0 || !ran.err.lines().all(is_usual) {
                bail!("Kafka's tool on {text:?}: {}", ran.err);
            }
            super::sound(&ran.out)?;
            checked += names.len();
        }
    }
    Ok(checked)
}

/// What is in a partition's directory, without what depends on the time of day or on a compressor.
struct Content {
    /// By the file's name, the header and the records of each batch.
    segments: BTreeMap<String, Vec<Value>>,
    files: Vec<String>,
    /// The bytes of the transaction indexes.
    aborted: Vec<Vec<u8>>,
}

impl Content {
    fn read(dir: &Path, topic: &str) -> Result<Self> {
        let mut content = Self { segments: BTreeMap::new(), files: Vec::new(), aborted: Vec::new() };
        for file in super::listed(&partition(dir, topic))? {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match file.extension().and_then(|suffix| suffix.to_str()) {
                Some("deleted") => continue,
                Some("log") => {
                    let bytes = fs::read(&file)?;
                    let batches = Stored::split(&bytes)?;
                    let content_of = batches.iter().map(told).collect::<Result<_>>();
                    content.segments.insert(name.clone(), content_of.with_context(|| name.clone())?);
                }
                Some("txnindex") => content.aborted.push(fs::read(&file)?),
                _ => {}
            }
            content.files.push(name);
        }
        Ok(content)
    }

    fn forget_segments(&mut self) {
        let batches = std::mem::take(&mut self.segments).into_values().flatten().collect();
        self.segments.insert("log".to_owned(), batches);
        self.files.clear();
        self.aborted = vec![self.aborted.concat()];
    }
}

/// A batch's header and its records.
fn told(batch: &Stored<'_>) -> Result<Value> {
    let mut header = batch.fields(&[]);
    if header["crc"] == "wrong" {
        bail!("the checksum of {} is wrong", batch.brief());
    }
    if header["attrs"].as_str().unwrap_or_default().contains("deleteHorizon") {
        // The horizon depends on when it was set.
        header["baseTs"] = Value::Null;
    }
    Ok(json!([header, batch.records()?]))
}

fn partition(dir: &Path, topic: &str) -> PathBuf {
    dir.join("data").join(format!("{topic}-0"))
}

/// The base offset of a segment's file.
fn offset_of(file: &Path) -> Result<i64> {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    name.parse().with_context(|| file.display().to_string())
}
