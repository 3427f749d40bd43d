//! A disk that fails under the running process: `strace` lets system calls on the files of one partition give EIO. Its log directory goes
//! offline, the other serves on, and after a start on a sound disk everything is there that was acknowledged.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use milena_testkit::batch::{Batch, Record, Stored};
use milena_testkit::client::RawClient;
use milena_testkit::server::{Options, Server};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::tools;

/// What fails: a write, what makes it durable, a read, and a read that goes to the socket at once.
const CALLS: [&str; 4] = ["pwrite64,pwritev,pwritev2", "fsync,fdatasync", READS, SENDS];
const READS: &str = "pread64,preadv,preadv2";
const SENDS: &str = "sendfile";
/// Bytes of a record that is sent from its file, and not copied.
const SENT_FROM_FILE: usize = 40 << 10;
const PARTITIONS: i32 = 4;
const KAFKA_STORAGE_ERROR: i64 = 56;

/// Lets each of the calls fail once; gives the number of checks.
pub(super) fn disks(options: &Options) -> Result<usize> {
    tools::need("strace", "strace")?;
    for calls in CALLS {
        let dir = tempfile::Builder::new().prefix("milena-failing-").tempdir()?;
        if let Err(error) = fail(options, dir.path(), calls) {
            return Err(error.context(format!("{calls} fail; the folder is {}", dir.keep().display())));
        }
    }
    Ok(CALLS.len() * (3 + PARTITIONS as usize))
}

fn fail(options: &Options, dir: &Path, calls: &str) -> Result<()> {
    let (first, second) = (dir.join("data"), dir.join("data-b"));
    let dirs = format!("{},{}", first.display(), second.display());
    let mut server = options.clone().dir(dir).set("log.dirs", &dirs).set("log.flush.interval.messages", "1").start()?;
    let mut client = server.client()?;
    super::create(&mut client, super::TOPIC, PARTITIONS)?;
    for partition in 0..PARTITIONS {
        super::produce(&mut client, partition, &batch(calls)?)?;
    }
    let is_on = |dir: &Path, partition: i32| dir.join(format!("{}-{partition}", super::TOPIC)).exists();
    let of =
        |dir: &Path| (0..PARTITIONS).find(|partition| is_on(dir, *partition)).context("a directory without partitions");
    let (sound, broken) = (of(&first)?, of(&second)?);
    let faults = inject(&server, &second.join(format!("{}-{broken}", super::TOPIC)), calls)?;
    let answer = match calls {
        READS => fetch(&mut client, broken)?.0,
        SENDS => fetch_after_a_cut(&server, broken)?,
        _ => write(&mut client, broken)?,
    };
    if answer != KAFKA_STORAGE_ERROR {
        bail!("the failing disk is told of as {answer}");
    }
    let answer = write(&mut server.client()?, sound)?;
    if answer != 0 {
        bail!("a write to the sound disk is answered with {answer}");
    }
    detach(faults)?;
    server.stop()?;
    server.start()?;
    let mut client = server.client()?;
    super::produce(&mut client, broken, &batch(calls)?)?;
    for partition in 0..PARTITIONS {
        let acknowledged = if partition == sound || partition == broken { 2 } else { 1 };
        let found = fetch(&mut client, partition)?.1;
        if found < acknowledged {
            bail!("partition {partition} has {found} of {acknowledged} batches");
        }
    }
    Ok(())
}

fn batch(calls: &str) -> Result<Vec<u8>> {
    let long = || vec![Record::text(0, 0, "key", &"x".repeat(SENT_FROM_FILE))];
    let batch = if calls == SENDS { Batch::new(super::now()?, long()) } else { Batch::of(10, super::now()?) };
    Ok(batch.build())
}

/// Lets the calls of the server on a partition's files fail from here on.
fn inject(server: &Server, partition: &Path, calls: &str) -> Result<Child> {
    let pid = server.pid().context("the server runs")?.to_string();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-q", "-o", "/dev/null", "-p", &pid, "-e", &format!("inject={calls}:error=EIO")]);
    for file in super::listed(partition)? {
        strace.arg("-P").arg(file);
    }
    let mut child = strace.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().context("strace cannot be run")?;
    for _ in 0..500 {
        if child.try_wait()?.is_some() {
            let output = child.wait_with_output()?;
            bail!("strace ends: {}", String::from_utf8_lossy(&output.stderr));
        }
        if is_traced(&pid)? {
            return Ok(child);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    bail!("strace does not attach")
}

/// Whether every thread of a process is.
fn is_traced(pid: &str) -> Result<bool> {
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(task?.path().join("status")).unwrap_or_default();
        if status.contains("TracerPid:\t0\n") {
            return Ok(false);
        }
    }
    Ok(true)
}

fn detach(mut strace: Child) -> Result<()> {
    kill_process(Pid::from_child(&strace), Signal::TERM)?;
    strace.wait()?;
    Ok(())
}

/// Writes a batch; the error code.
fn write(client: &mut RawClient, partition: i32) -> Result<i64> {
    let records = milena_testkit::wire::base64(&batch("")?);
    let topic = json!({"name": super::TOPIC, "partitionData": [{"index": partition, "records": records}]});
    let reply = client.call("Produce", 9, &json!({"acks": -1, "timeoutMs": 10000, "topicData": [topic]}))?;
    reply["responses"][0]["partitionResponses"][0]["errorCode"].as_i64().with_context(|| reply.to_string())
}

/// The error code of a read behind one that was cut: the length of an answer has gone out when its file can't be read.
fn fetch_after_a_cut(server: &Server, partition: i32) -> Result<i64> {
    if let Ok(answer) = fetch(&mut server.client()?, partition) {
        bail!("a read from the failing disk is answered with {answer:?}");
    }
    Ok(fetch(&mut server.client()?, partition)?.0)
}

/// Reads a partition: the error code, and how many batches there are.
fn fetch(client: &mut RawClient, partition: i32) -> Result<(i64, usize)> {
    let question = json!([{"partition": partition, "fetchOffset": 0, "partitionMaxBytes": 1 << 20}]);
    let topics = json!([{"topic": super::TOPIC, "partitions": question}]);
    let body = json!({"maxWaitMs": 500, "minBytes": 1, "maxBytes": 1 << 20, "topics": topics});
    let reply = client.call("Fetch", 12, &body)?;
    let answer = &reply["responses"][0]["partitions"][0];
    let records = milena_testkit::wire::from_base64(answer["records"].as_str().unwrap_or_default())?;
    Ok((answer["errorCode"].as_i64().with_context(|| reply.to_string())?, Stored::split(&records)?.len()))
}
