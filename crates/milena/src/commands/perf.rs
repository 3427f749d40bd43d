//! `milena perf`: measures what a cluster does.

mod consume;
mod e2e;
mod produce;

use std::io::{IsTerminal, stderr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use indicatif::{HumanCount, ProgressBar, ProgressFinish, ProgressStyle};
use milena_io::{RealRng, Rng};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::connect;
use crate::output::{Output, Table, print_error};
use crate::perf::Latencies;

/// How long there is nothing to read where no bar is shown.
const INTERVAL: Duration = Duration::from_secs(5);

/// Bytes from which payloads are cut.
const STOCK: usize = 1 << 20;
/// How far the next payload begins behind the one before.
const STRIDE: usize = 61;

/// Arguments of `milena perf`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    at: connect::Arguments,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Writes records, as fast as possible or at a pace, and tells how long each took to be written.
    Produce(produce::Arguments),
    /// Reads the records that are there, as fast as possible, and tells how long each lot of them was waited for.
    Consume(consume::Arguments),
    /// Sends records one after the other, and tells how long each took to be written and to come back.
    E2e(e2e::Arguments),
}

/// Runs one of the measurements.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Command::Produce(produce) => produce::run(&arguments.at, produce),
        Command::Consume(consume) => consume::run(&arguments.at, consume),
        Command::E2e(e2e) => e2e::run(&arguments.at, e2e),
    }
}

/// Payloads of one size, no two of a batch alike.
struct Stock {
    bytes: Vec<u8>,
    size: usize,
    at: usize,
}

impl Stock {
    fn new(size: usize) -> Self {
        let mut bytes = vec![0; STOCK + size];
        RealRng.fill(&mut bytes);
        // Letters, which compress as text does that says nothing.
        bytes.iter_mut().for_each(|byte| *byte = b'A' + *byte % 26);
        Self { bytes, size, at: 0 }
    }

    fn next(&mut self) -> &[u8] {
        let payload = &self.bytes[self.at..self.at + self.size];
        self.at = (self.at + STRIDE) % STOCK;
        payload
    }
}

/// Says how far a measurement is: a bar on a terminal, a line now and then elsewhere.
struct Progress {
    bar: ProgressBar,
    total: u64,
    done: u64,
    said: (u64, Instant),
}

impl Progress {
    /// For so many records.
    fn new(total: u64) -> Self {
        let bar = if stderr().is_terminal() {
            let style = ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} {per_sec} {eta}");
            ProgressBar::new(total)
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
                .with_finish(ProgressFinish::AndClear)
        } else {
            ProgressBar::hidden()
        };
        Self { bar, total, done: 0, said: (0, Instant::now()) }
    }

    /// So many more are done.
    fn add(&mut self, more: u64) {
        self.done += more;
        self.bar.inc(more);
        let (before, since) = self.said;
        if self.bar.is_hidden() && since.elapsed() >= INTERVAL {
            let rate = (self.done - before) as f64 / since.elapsed().as_secs_f64();
            let (done, total, rate) = (HumanCount(self.done), HumanCount(self.total), HumanCount(rate as u64));
            print_error(&format!("{done} of {total} records, {rate}/s\n"));
            self.said = (self.done, Instant::now());
        }
    }

    /// Nothing more comes.
    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// Refuses a pace at which nothing would ever be sent; without one it is as fast as possible.
fn pace(rate: Option<f64>) -> Result<f64> {
    match rate {
        Some(rate) if rate.is_nan() || rate <= 0.0 => bail!("--rate: nothing would ever be sent"),
        rate => Ok(rate.unwrap_or(-1.0)),
    }
}

/// Prints how many records there were, their rates, and latencies.
fn report(output: Output, records: u64, bytes: u64, took: Duration, latencies: &Latencies) {
    let seconds = took.as_secs_f64();
    let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
    let columns = [
        "records",
        "records_per_second",
        "mib_per_second",
        "mean_ms",
        "p50_ms",
        "p95_ms",
        "p99_ms",
        "p999_ms",
        "max_ms",
    ];
    let mut table = Table::new(columns);
    let percentile = |percent: f64| json!(rounded(latencies.percentile(percent)));
    table.row([
        json!(records),
        json!((records as f64 / seconds).round() as u64),
        json!(rounded(bytes as f64 / seconds / (1 << 20) as f64)),
        json!(rounded(latencies.mean())),
        percentile(50.0),
        percentile(95.0),
        percentile(99.0),
        percentile(99.9),
        json!(rounded(latencies.max())),
    ]);
    match table.value() {
        Value::Array(rows) if !output.is_table() => rows.iter().for_each(|row| output.value(row)),
        _ => output.table(&table),
    }
}
