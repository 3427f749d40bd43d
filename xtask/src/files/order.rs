//! The order in which the running process writes, syncs and renames, as `strace` sees it while segments are rolled, records deleted and
//! checkpoints written, up to the stop. What `docs/storage.md` says of it holds in each thread by itself, whatever the others do meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use milena_testkit::batch::Batch;
use milena_testkit::server::{Kind, Options};
use serde_json::json;

use crate::tools;

/// Batches, each of which rolls a segment.
const BATCHES: i64 = 20;
/// How long something may take to be seen.
const PATIENCE: Duration = Duration::from_secs(30);
/// What is traced.
const CALLS: &str = "pwritev,pwrite64,fsync,fdatasync,syncfs,rename,ftruncate,unlink";

/// Looks; gives the number of calls that it has looked at.
pub(super) fn of_calls(options: &Options) -> Result<usize> {
    tools::need("strace", "strace")?;
    let dir = tempfile::Builder::new().prefix("milena-order-").tempdir()?;
    let trace = dir.path().join("trace");
    let wrapper = dir.path().join("traced");
    let binary = super::binary(options)?.display().to_string();
    // The tracer is a grandchild: signals go to the process itself.
    let script =
        format!("#!/bin/sh\nexec strace -D -f -q -Y -y -o {} -e trace={CALLS} {binary} \"$@\"\n", trace.display());
    fs::write(&wrapper, script)?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
    work(&wrapper, dir.path())?;
    let text = whole(&trace)?;
    let threads = by_thread(&text)?;
    threads.values().try_for_each(|calls| in_order(calls))?;
    let all = threads.values().map(Vec::len).sum();
    ensure!(all > 100, "{all} calls were traced");
    Ok(all)
}

/// Lets a server do all of it, and stops it.
fn work(binary: &Path, dir: &Path) -> Result<()> {
    let mut server = Options::new(Kind::Milena(binary.to_owned()))
        .dir(dir)
        .set("log.initial.task.delay.ms", "0")
        .set("log.flush.offset.checkpoint.interval.ms", "1")
        .set("log.flush.start.offset.checkpoint.interval.ms", "1")
        .start()?;
    let mut client = server.client()?;
    let configs = json!([{"name": "segment.ms", "value": "1000"}, {"name": "retention.ms", "value": "-1"}]);
    let topic = json!({"name": super::TOPIC, "numPartitions": 1, "replicationFactor": 1, "configs": configs});
    client.call("CreateTopics", 7, &json!({"topics": [topic], "timeoutMs": 30000}))?;
    let begun = super::now()? - 1_000_000;
    for number in 0..BATCHES {
        super::produce(&mut client, 0, &Batch::of(2, begun + number * 2000).build())?;
    }
    let partitions = json!([{"partitionIndex": 0, "offset": BATCHES}]);
    let topics = json!([{"name": super::TOPIC, "partitions": partitions}]);
    let reply = client.call("DeleteRecords", 2, &json!({"topics": topics, "timeoutMs": 30000}))?;
    ensure!(reply["topics"][0]["partitions"][0]["errorCode"] == 0, "{reply}");
    let began = Instant::now();
    let path = dir.join("data/recovery-point-offset-checkpoint");
    let line = format!("{} 0 ", super::TOPIC);
    while !fs::read_to_string(&path)?.lines().any(|it| it.strip_prefix(&line).is_some_and(|offset| offset != "0")) {
        ensure!(began.elapsed() < PATIENCE, "{} names no recovery point", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
    let status = server.stop()?;
    ensure!(status.success(), "the stop gives {status}");
    Ok(())
}

/// The trace, when the tracer has written all of it.
fn whole(trace: &Path) -> Result<String> {
    let began = Instant::now();
    loop {
        let text = fs::read_to_string(trace)?;
        if text.trim_end().ends_with("+++ exited with 0 +++") {
            return Ok(text);
        }
        ensure!(began.elapsed() < PATIENCE, "the trace does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A call, and the file that it is about.
#[derive(Debug)]
struct Call<'t> {
    thread: &'t str,
    name: &'t str,
    path: &'t str,
}

impl Call<'_> {
    fn syncs(&self) -> bool {
        matches!(self.name, "fsync" | "fdatasync" | "syncfs")
    }
}

/// The calls of each thread in their order.
fn by_thread(text: &str) -> Result<BTreeMap<&str, Vec<Call<'_>>>> {
    let mut threads: BTreeMap<&str, Vec<Call<'_>>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.contains(" resumed>") && !line.contains("+++")) {
        let (id, rest) = line.split_once('<').with_context(|| line.to_owned())?;
        let (thread, call) = rest.split_once('>').with_context(|| line.to_owned())?;
        let Some((name, arguments)) = call.trim_start().split_once('(') else { continue };
        let path = match arguments.starts_with('"') {
            true => arguments.split('"').nth(1),
            false => arguments.split_once('<').and_then(|(_, rest)| rest.split('>').next()),
        };
        threads.entry(id).or_default().push(Call { thread, name, path: path.with_context(|| line.to_owned())? });
    }
    Ok(threads)
}

fn in_order(calls: &[Call<'_>]) -> Result<()> {
    for (at, call) in calls.iter().enumerate() {
        if call.thread.starts_with("reactor") && (call.syncs() || call.name == "unlink") {
            bail!("a thread that serves connections waits for the disk: {call:?}");
        }
        // What a snapshot of producers says is told by an older one and the batches too.
        if call.name != "rename" || !call.path.ends_with(".tmp") || call.path.ends_with(".snapshot.tmp") {
            continue;
        }
        let about = |it: &&Call<'_>| it.path == call.path;
        let before =
            calls[..at].iter().rev().find(about).with_context(|| format!("{call:?} of a file never written"))?;
        ensure!(before.syncs(), "{call:?} comes before its file is synced, after {before:?}");
        let directory = Path::new(call.path).parent().context("a directory")?;
        let synced =
            calls[at..].iter().any(|it| it.syncs() && (Path::new(it.path) == directory || it.name == "syncfs"));
        ensure!(synced, "{call:?} is not made durable");
    }
    Ok(())
}
