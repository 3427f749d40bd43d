//! What a request costs in system calls, counted with strace and not timed: reading, writing the log, answering, waiting, and nothing
//! else.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use milena_testkit::server::{Options, Server};
use rustix::process::{Pid, Signal, kill_process};

use super::Outcome;
use super::turns::{self, Turn};

/// Turns that count.
const TURNS: u64 = 400;

/// What a turn may cost.
fn most(turn: &str) -> u64 {
    match turn {
        // Wait, receive, answer.
        "ApiVersions" => 3,
        // One write for each partition.
        "a Produce request for 10 partitions" => 3 + 10,
        // Received in two pieces.
        "a Produce request with 100 kB" => 6,
        // Long records go from the file, between what stands before and after them.
        "a fetch of 100 kB" => 5,
        // A write, or the read of records that are sent with the answer.
        _ => 4,
    }
}

/// Counts the calls of every turn.
pub(super) fn check(options: Options) -> Result<Outcome> {
    let server = turns::server(options)?;
    let mut outcome = Outcome::default();
    for turn in turns::all()? {
        let calls = count(&server, &turn)?;
        // Each name is rounded: what threads in the background call now and then is no part of a turn.
        let each: u64 = calls.values().map(|calls| (calls + TURNS / 2) / TURNS).sum();
        let (name, most) = (turn.name, most(turn.name));
        println!("          {name}: {each}");
        if each <= most {
            outcome.passed += 1;
        } else {
            let text = format!("{name}: {each} system calls a turn, not {most}; in {TURNS} turns {calls:?}");
            outcome.failures.push(text);
        }
    }
    Ok(outcome)
}

/// All calls of the server during the turns, by name.
fn count(server: &Server, turn: &Turn) -> Result<BTreeMap<String, u64>> {
    let mut stream = turn.warmed_up(server)?;
    let table = server.dir().join("strace.txt");
    let pid = server.pid().context("the server runs")?.to_string();
    let mut command = Command::new("strace");
    command.args(["-f", "-c", "-o"]).arg(&table).args(["-p", &pid]);
    let mut strace = command.stderr(Stdio::piped()).spawn().context("strace")?;
    let mut said = BufReader::new(strace.stderr.take().context("it is piped")?);
    let mut line = String::new();
    said.read_line(&mut line)?;
    let attached = line.contains("attached");
    let turned = if attached { turn.repeat(&mut stream, TURNS) } else { Ok(()) };
    let _ = kill_process(Pid::from_child(&strace), Signal::INT);
    strace.wait()?;
    ensure!(attached, "strace: {}", line.trim());
    turned?;
    calls(&table)
}

/// The calls in strace's table: the fourth column is their number, the last one their name.
fn calls(table: &Path) -> Result<BTreeMap<String, u64>> {
    let text = std::fs::read_to_string(table)?;
    let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let counted = rows.filter_map(|row| Some((row.last()?.to_string(), row.get(3)?.parse().ok()?)));
    let calls: BTreeMap<_, _> = counted.filter(|(name, _)| name != "total").collect();
    if calls.is_empty() {
        bail!("strace has counted nothing:\n{text}");
    }
    Ok(calls)
}
