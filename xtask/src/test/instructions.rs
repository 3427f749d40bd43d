//! What a request costs in instructions, and whether its records are copied, counted with callgrind and not timed. What the kernel
//! does is not part of it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use milena_testkit::server::{Options, Server};

use super::Outcome;
use super::turns::{self, LONG, Turn};
use crate::tools;

/// Turns that count.
const TURNS: u64 = 200;

/// Instructions of a turn: a fifth more than were counted, for what other compilers make of the same code.
fn most(turn: &str) -> u64 {
    match turn {
        "ApiVersions" => 4_500,
        "a small Produce request" => 11_000,
        "64 small Produce requests at once" => 360_000,
        "a Produce request for 10 partitions" => 47_000,
        "a Produce request with 100 records" => 38_000,
        // Most of them are the checksum's.
        "a Produce request with 100 kB" => 51_000,
        "a fetch of small records" => 11_500,
        "a fetch of 100 kB" => 12_000,
        _ => 0,
    }
}

/// What the server did in one turn.
struct Counted {
    instructions: u64,
    /// Instructions that write to memory.
    stores: u64,
}

/// Counts the instructions of every turn.
pub(super) fn check(options: Options) -> Result<Outcome> {
    let dir = tempfile::Builder::new().prefix("milena-callgrind-").tempdir()?;
    let file = format!("--callgrind-out-file={}", dir.path().join("out").display());
    let server = turns::server(options.under(&["valgrind", "--tool=callgrind", "--cache-sim=yes", &file]))?;
    let mut outcome = Outcome::default();
    for (number, turn) in turns::all()?.iter().enumerate() {
        let dumped = dir.path().join(format!("out.{}", number + 1));
        let Counted { instructions, stores } = count(&server, turn, &dumped)?;
        let (name, most) = (turn.name, most(turn.name));
        println!("          {name}: {instructions}, {stores} of them stores");
        if instructions > most {
            outcome.failures.push(format!("{name}: {instructions} instructions a turn, not {most}"));
        } else if name.contains("100 kB") && stores > LONG as u64 / 32 {
            // The widest store has 32 bytes.
            outcome.failures.push(format!("{name}: {stores} stores a turn: its records are copied"));
        } else {
            outcome.passed += 1;
        }
    }
    Ok(outcome)
}

fn count(server: &Server, turn: &Turn, dumped: &Path) -> Result<Counted> {
    let mut stream = turn.warmed_up(server)?;
    control(server, "--zero")?;
    turn.repeat(&mut stream, TURNS)?;
    control(server, "--dump")?;
    let text = std::fs::read_to_string(dumped).context("callgrind has dumped nothing")?;
    let line = |start: &str| text.lines().find_map(|line| line.strip_prefix(start)).map(str::split_whitespace);
    let events = line("events:").context("no events")?;
    let totals = line("totals:").context("no totals")?.map(|total| total.parse::<u64>().unwrap_or(0));
    let of =
        |name| events.clone().zip(totals.clone()).find(|(event, _)| *event == name).map(|(_, total)| total / TURNS);
    Ok(Counted { instructions: of("Ir").context("no Ir")?, stores: of("Dw").context("no Dw")? })
}

/// Has callgrind do something, and waits until it has.
fn control(server: &Server, what: &str) -> Result<()> {
    let pid = server.pid().context("the server runs")?.to_string();
    tools::run(Command::new("callgrind_control").args([what, &pid]))
}
