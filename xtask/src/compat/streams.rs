//! Kafka Streams with exactly-once processing, killed twice.

use std::path::Path;

use anyhow::{Context, Result};
use milena_testkit::server::Server;

use super::apps::{compile, java};
use super::program::Program;

/// Counts words with an application that is killed, and again while another one takes part and the server dies too.
pub(super) fn count(class_path: &str, server: &mut Server) -> Result<()> {
    let (dir, address) = (server.dir().to_owned(), server.addr().to_string());
    compile("WordCount.java", class_path, &dir)?;
    let class_path = format!("{class_path}:{}", dir.display());
    let start = |name: &str, command: &str, argument: &Path| {
        let mut java = java(&class_path);
        Program::start(name, java.args(["WordCount", command, &address]).arg(argument), &dir)
    };
    let feed = |half: &str| start("feed", "feed", Path::new(half))?.finish();
    let said = feed("0")?;
    let total = said.first().and_then(|line| line.strip_prefix("total ")?.parse::<u64>().ok());
    let total = total.with_context(|| format!("{said:?}"))?;
    let committed = |percent: u64| {
        move |line: &str| {
            let committed: u64 = line.strip_prefix("committed ")?.parse().ok()?;
            (100 * committed >= percent * total).then_some(())
        }
    };
    let running = |line: &str| (line == "running").then_some(());
    let (here, there) = (dir.join("here"), dir.join("there"));

    let mut first = start("first", "run", &here)?;
    first.wait_for("a fifth is committed", committed(20))?;
    first.kill()?;
    let (mut second, mut other) = (start("second", "run", &here)?, start("other", "run", &there)?);
    second.wait_for("it runs", running)?;
    other.wait_for("it runs", running)?;
    feed("1")?;
    second.wait_for("three fifths are committed", committed(60))?;
    second.kill()?;
    server.kill()?;
    server.start()?;
    other.finish()?;
    let said = start("check", "check", Path::new(""))?.finish()?;
    println!("{}", said.join("\n"));
    Ok(())
}
