//! `kbench recover`: what a start costs that must check every batch. Kills the server under test, starts the same command again on its
//! files, and waits until it serves every partition of a topic.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::admin::{self, Admin};
use crate::cli::{RecoverArgs, Target};
use crate::procstat::{self, Sample, Usage};
use crate::report::{self, Measured};

/// How long the server may take.
const PATIENCE: Duration = Duration::from_secs(110);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Where a log directory says from where on batches must be checked: without it, from the beginning.
const CHECKPOINT: &str = "recovery-point-offset-checkpoint";

/// Runs it.
pub(crate) fn recover(target: &Target, args: &RecoverArgs) -> Result<Value> {
    let pid = target.pid.context("the server's process must be known")?;
    let mut admin = Admin::connect(target.addr)?;
    let versions = admin.versions(target.names)?;
    let topic = admin.find_topic(&args.topic, None)?;
    let ends = admin.end_offsets(versions.fetch, &topic)?;
    drop(admin);
    let bytes = log_bytes(&args.data_dir, &args.topic)?;

    let mut command = same_command(pid)?;
    kill(pid)?;
    match fs::remove_file(args.data_dir.join(CHECKPOINT)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).context(CHECKPOINT),
        _ => {}
    }
    let me = std::process::id();
    let before = Sample::take(me)?;
    let begun = Instant::now();
    let child = command.spawn().with_context(|| format!("starting {command:?}"))?;
    let wait_for = |is_there: &mut dyn FnMut() -> bool| -> Result<f64> {
        while !is_there() {
            ensure!(begun.elapsed() < PATIENCE, "the server serves nothing after {PATIENCE:?}");
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    };
    let ready_ms = wait_for(&mut || admin::is_up(target.addr))?;
    let served = || Admin::connect(target.addr).and_then(|mut admin| admin.end_offsets(versions.fetch, &topic));
    let served_ms = wait_for(&mut || served().is_ok_and(|found| found == ends))?;
    let (cpu_s, own) = (procstat::process_cpu_s(child.id())?, Sample::take(me)?.since(&before));
    let server = Usage { cpu_s, by_name: Vec::new(), switches: 0, ..own };
    let measured = Measured {
        server: Some(server),
        memory: Some(procstat::memory(child.id())?),
        client: Sample::take(me)?.since(&before),
    };
    let records = ends.iter().sum::<i64>() as u64;
    Ok(report::recover(target, (child.id(), ready_ms, served_ms), (records, bytes), &measured))
}

/// What starts the process `pid` again: its program, arguments, environment, folder, output and CPUs.
fn same_command(pid: u32) -> Result<Command> {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let words = |file: &str| -> Result<Vec<OsString>> {
        let bytes = fs::read(proc.join(file)).with_context(|| format!("no process {pid}"))?;
        Ok(bytes
            .split_inclusive(|byte| *byte == 0)
            .map(|word| OsString::from_vec(word[..word.len() - 1].to_vec()))
            .collect())
    };
    let status = fs::read_to_string(proc.join("status"))?;
    let cpus =
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).context("no Cpus_allowed_list")?;
    let output = File::options().append(true).open(fs::read_link(proc.join("fd/1"))?)?;
    let mut command = Command::new("taskset");
    command.args(["-c", cpus.trim()]).args(words("cmdline")?).env_clear();
    for variable in words("environ")? {
        let bytes = variable.into_vec();
        let at = bytes.iter().position(|byte| *byte == b'=').context("an environment without names")?;
        command.env(OsString::from_vec(bytes[..at].to_vec()), OsString::from_vec(bytes[at + 1..].to_vec()));
    }
    command.current_dir(fs::read_link(proc.join("cwd"))?).stdin(Stdio::null());
    // It outlives this program, so it is no member of its process group.
    command.stdout(output.try_clone()?).stderr(output).process_group(0);
    Ok(command)
}

/// Kills a process and waits until its files and ports are free.
fn kill(pid: u32) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(pid)?).context("no process id")?;
    kill_process(pid, Signal::KILL).context("the server can't be killed")?;
    let begun = Instant::now();
    while test_kill_process(pid).is_ok() && !is_zombie(pid)? {
        ensure!(begun.elapsed() < PATIENCE, "the server does not end");
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Whether all of it has gone but its number, which its parent may ask for.
fn is_zombie(pid: Pid) -> Result<bool> {
    let Ok(status) = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())) else { return Ok(true) };
    Ok(status.lines().any(|line| line.starts_with("State:") && line.contains('Z')))
}

/// Bytes of the batches of a topic.
fn log_bytes(data_dir: &Path, topic: &str) -> Result<u64> {
    let mut bytes = 0;
    for partition in fs::read_dir(data_dir).with_context(|| format!("reading {}", data_dir.display()))? {
        let partition = partition?;
        let name = partition.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(topic)?.strip_prefix('-')?.parse::<u32>().ok());
        if number.is_none() {
            continue;
        }
        for file in fs::read_dir(partition.path())? {
            let file = file?;
            if file.path().extension().is_some_and(|suffix| suffix == "log") {
                bytes += file.metadata()?.len();
            }
        }
    }
    ensure!(bytes > 0, "{topic} has no records in {}", data_dir.display());
    Ok(bytes)
}
