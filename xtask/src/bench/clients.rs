//! `cargo xtask bench --clients`: what producing and consuming cost with Milena's client, librdkafka and the Java client, against one
//! Milena. The programs are in `bench/clients/` and `crates/client/examples/measure.rs`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use milena_testkit::server::{Options, Server};
use milena_testkit::{cache, oracle};
use serde_json::json;

use super::{Args, milena, release};
use crate::tools;

/// A client's name, and its program with what comes before the command.
type Program = (&'static str, Vec<String>);

/// What is measured.
struct Cell {
    name: &'static str,
    command: &'static str,
    /// Records that count, or the rate of a paced one.
    count: u32,
    /// Records before these, or seconds.
    before: u32,
    size: u32,
    settings: &'static [&'static str],
}

/// Java's defaults, which are set for all.
const PRODUCER: [&str; 3] = ["acks=all", "enable.idempotence=true", "batch.size=16384"];
const CONSUMER: [&str; 4] =
    ["check.crcs=true", "fetch.min.bytes=1", "fetch.max.bytes=52428800", "max.partition.fetch.bytes=1048576"];

const LINGER: &str = "linger.ms=5";
const LZ4: &str = "compression.type=lz4";

const CELLS: [Cell; 8] = [
    cell("produce-100b", "produce", (2_000_000, 1_000_000), 100, &[LINGER]),
    cell("produce-100b-lz4", "produce", (2_000_000, 1_000_000), 100, &[LINGER, LZ4]),
    cell("produce-1k", "produce", (300_000, 200_000), 1024, &[LINGER]),
    cell("consume-100b", "consume", (4_000_000, 2_000_000), 100, &[]),
    cell("consume-100b-lz4", "consume", (4_000_000, 2_000_000), 100, &[LZ4]),
    cell("consume-1k", "consume", (600_000, 300_000), 1024, &[]),
    cell("p99-linger-5", "pace", (10_000, 10), 100, &[LINGER]),
    cell("p99-linger-0", "pace", (10_000, 10), 100, &["linger.ms=0"]),
];

const fn cell(
    name: &'static str,
    command: &'static str,
    (count, before): (u32, u32),
    size: u32,
    settings: &'static [&'static str],
) -> Cell {
    Cell { name, command, count, before, size, settings }
}

/// Builds, starts Milena, measures in turn, prints the table.
pub(super) fn run(args: &Args) -> Result<()> {
    let repository = cache::repository();
    let programs = programs(&repository)?;
    let options = Options::new(milena(args, &repository)?).cpu(args.server_cpu).production(0, &[]);
    let options = options.set("log.segment.delete.delay.ms", "100");
    let server = args.dir.as_deref().map_or(options.clone(), |dir| options.dir(dir)).start()?;
    let unit = |cell: &Cell| if cell.command == "pace" { "µs" } else { "ns/record" };
    println!("| what | unit | milena | librdkafka | java | milena / librdkafka | milena / java |");
    println!("|---|---|--:|--:|--:|--:|--:|");
    let wanted = |cell: &&Cell| args.cells.as_deref().is_none_or(|list| list.split(',').any(|one| cell.name == one));
    for cell in CELLS.iter().filter(wanted) {
        let rounds = rounds(cell, &programs, &server, args)?;
        let columns: Vec<_> = (0..programs.len()).map(|at| median(rounds.iter().map(|round| round[at]))).collect();
        let ratios: Vec<_> =
            (1..programs.len()).map(|at| range(rounds.iter().map(|round| round[0] / round[at]))).collect();
        let columns: Vec<_> = columns.iter().map(|figure| format!("{figure:.0}")).collect();
        println!("| {} | {} | {} | {} |", cell.name, unit(cell), columns.join(" | "), ratios.join(" | "));
    }
    Ok(())
}

fn programs(repository: &Path) -> Result<Vec<Program>> {
    let example =
        release(repository, &["--package", "milena-client", "--example", "measure"])?.join("examples/measure");
    let sources = repository.join("bench/clients");
    let library = cache::dir().join("measure-librdkafka");
    tools::need("cc", "gcc")?;
    tools::need_header("librdkafka/rdkafka.h", "librdkafka-dev")?;
    tools::run(
        Command::new("cc").arg("-O2").arg("-o").arg(&library).arg(sources.join("librdkafka.c")).arg("-lrdkafka"),
    )?;
    tools::need("java", "openjdk-17-jdk-headless")?;
    let class_path = format!("{}/*", oracle::ensure_jars()?.display());
    let java = ["java", "-Xms512m", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", &class_path];
    let java = java.iter().map(|text| (*text).to_owned()).chain([sources.join("Measure.java").display().to_string()]);
    Ok(vec![
        ("milena", vec![example.display().to_string()]),
        ("librdkafka", vec![library.display().to_string()]),
        ("java", java.collect()),
    ])
}

/// The figures of each round, one for each program.
fn rounds(cell: &Cell, programs: &[Program], server: &Server, args: &Args) -> Result<Vec<Vec<f64>>> {
    let topic = "measured";
    let mut rounds = Vec::new();
    if cell.command == "consume" {
        create(server, topic)?;
        let records = cell.count + cell.before;
        let fill = Cell { command: "produce", count: records, before: 0, ..*cell };
        measure(&fill, &programs[0], topic, server, args)?;
    }
    for round in 0..args.rounds as usize {
        let mut figures = vec![0.0; programs.len()];
        for turn in 0..programs.len() {
            // Nobody always comes first.
            let at = (round + turn) % programs.len();
            if cell.command != "consume" {
                create(server, topic)?;
            }
            figures[at] = measure(cell, &programs[at], topic, server, args)?;
            if cell.command != "consume" {
                delete(server, topic)?;
            }
        }
        rounds.push(figures);
    }
    if cell.command == "consume" {
        delete(server, topic)?;
    }
    Ok(rounds)
}

fn measure(cell: &Cell, (name, program): &Program, topic: &str, server: &Server, args: &Args) -> Result<f64> {
    let mut command = Command::new("taskset");
    command.args(["-c", &args.client_cpu.to_string()]).args(program);
    command.arg(cell.command).arg(server.addr().to_string()).arg(topic);
    command.args([cell.count.to_string(), cell.before.to_string()]);
    if cell.command == "consume" {
        command.args(CONSUMER);
    } else {
        command.arg(cell.size.to_string()).args(PRODUCER).args(cell.settings);
    }
    let output = command.output().context("taskset cannot be run")?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("{name}, {}: {}", cell.name, String::from_utf8_lossy(&output.stderr));
    }
    said.trim().parse().with_context(|| format!("{name}, {}: {said}", cell.name))
}

fn create(server: &Server, topic: &str) -> Result<()> {
    let topics = json!([{"name": topic, "numPartitions": 1, "replicationFactor": 1}]);
    let answer = server.client()?.call("CreateTopics", 5, &json!({"topics": topics, "timeoutMs": 10000}))?;
    succeeded(&answer["topics"][0])
}

fn delete(server: &Server, topic: &str) -> Result<()> {
    let answer = server.client()?.call("DeleteTopics", 4, &json!({"topicNames": [topic], "timeoutMs": 10000}))?;
    succeeded(&answer["responses"][0])
}

fn succeeded(answer: &serde_json::Value) -> Result<()> {
    if answer["errorCode"] == 0 { Ok(()) } else { bail!("refused: {answer}") }
}

fn sorted(figures: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let figures = sorted(figures);
    figures[figures.len() / 2]
}

/// The median, and between what it lies.
fn range(figures: impl Iterator<Item = f64>) -> String {
    let figures = sorted(figures);
    format!("{:.2} ({:.2} to {:.2})", figures[figures.len() / 2], figures[0], figures[figures.len() - 1])
}
