//! A group of aiokafka: members join, leave, are killed and come back, while records are written and the server is killed.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result, bail};
use milena_testkit::cache;
use milena_testkit::server::Server;

use super::program::Program;

/// Records of each part.
const PART: u32 = 600;

/// The interpreter.
pub(super) fn python() -> Result<String> {
    super::python_with("aiokafka")
}

/// Every record is read, and committed, whoever comes and goes.
pub(super) fn come_and_go(python: &str, server: &mut Server) -> Result<()> {
    let (dir, address) = (server.dir().to_owned(), server.addr().to_string());
    let script = cache::repository().join("compat/python/members.py");
    let start = |name: &str, arguments: &[&str]| {
        let mut command = Command::new(python);
        command.arg(&script).arg(arguments[0]).arg(&address).args(&arguments[1..]);
        Program::start(name, &mut command, &dir)
    };
    let owns_something = |line: &str| line.strip_prefix("owns ").map(|_| ());
    let produce = |part: &str| start("producer", &["produce", part])?.finish();
    start("create", &["create"])?.finish()?;

    let mut read = Vec::new();
    let mut one = start("one", &["member"])?;
    one.wait_for("it owns all", |line| (line == "owns 0 1 2 3 4 5").then_some(()))?;
    produce("0")?;
    let (mut two, mut three) = (start("two", &["member"])?, start("three", &["member"])?);
    let mut seen = Vec::new();
    for member in [&mut two, &mut three] {
        member.wait_for("it owns a partition", |line| {
            seen.push(line.to_owned());
            owns_something(line)
        })?;
    }
    read.append(&mut seen);
    produce("1")?;
    read.extend(two.stop()?);
    produce("2")?;
    read.extend(three.kill()?);
    server.kill()?;
    server.start()?;
    let three = start("three", &["member"])?;
    produce("3")?;
    start("check", &["check", "4"])?.finish()?;
    read.extend(one.stop()?);
    read.extend(three.stop()?);

    let numbers = read.iter().filter_map(|line| line.strip_prefix("read ")).flat_map(str::split_whitespace);
    let numbers: BTreeSet<u32> = numbers.map(str::parse).collect::<Result<_, _>>().context("not a number")?;
    if let Some(missing) = (0..4 * PART).find(|number| !numbers.contains(number)) {
        bail!("record {missing} was never read");
    }
    println!("aiokafka: {} records read by members that came and went", numbers.len());
    Ok(())
}
