//! How long a server takes to start, and dropping its files from the page cache.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::admin;
use crate::procstat::{self, Sample};

/// Longest that a server may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts `command`, times it until the server at `addr` answers ApiVersions, and stops it.
pub(crate) fn time_start(addr: SocketAddr, settle_s: f64, keep: bool, command: &[String]) -> Result<Value> {
    ensure!(!admin::is_up(addr), "something answers at {addr} already");
    let started = Instant::now();
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("starting {}", command[0]))?;
    let pid = child.id();
    while !admin::is_up(addr) {
        if let Some(status) = child.try_wait()? {
            bail!("the server ended while it started: {status}");
        }
        ensure!(started.elapsed() < PATIENCE, "the server does not answer");
        std::thread::sleep(Duration::from_millis(1));
    }
    let ready_ms = started.elapsed().as_secs_f64() * 1e3;
    let at_ready = procstat::memory(pid)?;
    let cpu_s = Sample::take(pid)?.cpu_s();
    std::thread::sleep(Duration::from_secs_f64(settle_s));
    let settled = procstat::memory(pid)?;
    if !keep {
        kill_process(Pid::from_child(&child), Signal::TERM)?;
        child.wait()?;
    }
    Ok(json!({
        "pid": pid,
        "ready_ms": (ready_ms * 10.0).round() / 10.0,
        "cpu_s_at_ready": (cpu_s * 1e4).round() / 1e4,
        "rss_mib_at_ready": at_ready.rss.round(),
        "rss_mib_settled": settled.rss.round(),
    }))
}

/// Writes back each file under `dir` and drops it from the page cache; returns how many.
pub(crate) fn evict(dir: &Path) -> Result<u64> {
    let mut count = 0;
    for entry in std::fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            count += evict(&entry.path())?;
        } else if kind.is_file() {
            let file = std::fs::File::open(entry.path())?;
            file.sync_data()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
            count += 1;
        }
    }
    Ok(count)
}
