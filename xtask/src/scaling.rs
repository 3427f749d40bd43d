//! `cargo xtask scaling`: what a request costs when one reactor serves one load, and when more serve as many. What reactors share
//! (locks, cache lines, wake-ups of one another) shows in the difference.

use std::path::Path;

use anyhow::Result;
use milena_testkit::cache;
use milena_testkit::server::{Kind, Options};

use crate::bench::{build, figures, load};

/// Loads, as kbench's arguments.
const LOADS: &[(&str, &str)] = &[
    ("small-c16-d5", "produce --connections 16 --depth 5 --record-bytes 100 --records 1"),
    ("small-c16-d64", "produce --connections 16 --depth 64 --record-bytes 100 --records 1"),
    ("1k-lz4", "produce --connections 4 --spread 3 --depth 5 --idempotent --record-bytes 1024 --codec lz4"),
    ("txn-10", "transact --connections 16 --records 10 --record-bytes 100"),
    ("fanout-4", "mix --connections 1 --spread 12 --records 8 --rate 20000 --fanout 4"),
];

/// Options of `cargo xtask scaling`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Reactors, and loads, of the larger run
    #[arg(long, default_value_t = 2)]
    reactors: usize,
    /// Rounds; the medians are printed
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// Builds, measures everything and prints the table.
pub(crate) fn run(args: &Args) -> Result<()> {
    let repository = cache::repository();
    let (kbench, milena) = (build(&repository, "kbench")?, build(&repository, "milena")?);
    println!("| load | reactors | µs/request | reactors | µs/request | ratio |\n|---|--:|--:|--:|--:|--:|");
    for (name, arguments) in LOADS {
        let mut rounds = Vec::new();
        for _ in 0..args.rounds {
            let one = cost(1, arguments, &kbench, &milena)?;
            let all = cost(args.reactors, arguments, &kbench, &milena)?;
            rounds.push((all / one, one, all));
        }
        rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (ratio, one, all) = rounds[rounds.len() / 2];
        println!("| {name} | 1 | {one:.2} | {} | {all:.2} | {ratio:.2} |", args.reactors);
    }
    Ok(())
}

/// The server's CPU time for each request, µs, of a server with so many reactors under as many loads at once. Nothing is pinned.
fn cost(reactors: usize, arguments: &str, kbench: &Path, milena: &Path) -> Result<f64> {
    let options = Options::new(Kind::Milena(milena.to_owned())).production(0, &[]);
    let server = options.set("num.network.threads", &reactors.to_string()).start()?;
    let arguments = format!("{arguments} --warmup 2");
    let loads = (0..reactors).map(|_| load(kbench, &arguments, &server)).collect::<Result<Vec<_>>>()?;
    let runs = loads.into_iter().map(figures).collect::<Result<Vec<_>>>()?;
    let sum = |field: &str| runs.iter().filter_map(|run| run[field].as_f64()).sum::<f64>();
    // Each load counts its own requests, and the CPU time of the whole server in about the same seconds.
    Ok(sum("server_cpu_s") / runs.len() as f64 / sum("requests") * 1e6)
}
