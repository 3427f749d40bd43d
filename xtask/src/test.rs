//! `cargo xtask test`: every test of the repository, one line a step. What a step needs is installed by the ordinary
//! package clients; what cannot be had is skipped with the reason, and with `CI=true` a skip is a failure.

mod instructions;
mod steps;
mod syscalls;
mod turns;

use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these steps, with commas between them
    #[arg(long)]
    only: Option<String>,
    /// Not these steps, with commas between them
    #[arg(long)]
    without: Option<String>,
}

/// What a step found.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Things that passed: tests, cases, phases of a client.
    passed: usize,
    /// Things that failed, each in one line or more.
    failures: Vec<String>,
    /// What could not be tried, and why.
    skipped: Vec<String>,
}

impl Outcome {
    fn passed(count: usize) -> Self {
        Self { passed: count, ..Self::default() }
    }
}

struct Step {
    name: &'static str,
    run: fn() -> Result<Outcome>,
}

impl Step {
    /// Runs it, and says what came of it.
    fn take(&self) -> Outcome {
        let started = Instant::now();
        let outcome =
            (self.run)().unwrap_or_else(|error| Outcome { failures: vec![format!("{error:#}")], ..Outcome::default() });
        let seconds = started.elapsed().as_secs_f64();
        let verdict = if outcome.failures.is_empty() { "ok" } else { "FAILED" };
        let (passed, failed, skipped) = (outcome.passed, outcome.failures.len(), outcome.skipped.len());
        let mut text = format!(
            "{:<12} {verdict:<7} {seconds:>6.1} s  {passed} passed, {failed} failed, {skipped} skipped\n",
            self.name
        );
        for failure in &outcome.failures {
            text += &format!("  {}\n", failure.replace('\n', "\n  "));
        }
        print!("{text}");
        outcome
    }
}

/// The steps in their order. Those of one row run at the same time: they mostly wait for servers of their own.
const STEPS: &[&[Step]] = &[
    &[Step { name: "fmt", run: steps::fmt }],
    &[Step { name: "clippy", run: steps::clippy }],
    &[Step { name: "build", run: steps::build }],
    &[Step { name: "tests", run: steps::tests }],
    &[Step { name: "syscalls", run: steps::syscalls }],
    &[Step { name: "instructions", run: steps::instructions }],
    &[Step { name: "cases", run: steps::cases }, Step { name: "oracle", run: steps::oracle }],
    &[Step { name: "requests", run: steps::requests }, Step { name: "client", run: steps::client }],
    &[Step { name: "answers", run: steps::answers }],
    &[Step { name: "hostile", run: steps::hostile }],
    &[Step { name: "compat", run: steps::compat }],
    &[Step { name: "files", run: steps::files }],
    &[Step { name: FUZZ, run: steps::fuzz }],
];
/// The step that takes a share of a nightly run, and is otherwise only run when it is asked for.
const FUZZ: &str = "fuzz";

/// Runs the steps; fails if anything failed, or was skipped under CI.
pub(crate) fn run(args: &Args) -> Result<()> {
    let listed = |list: &Option<String>, name| list.as_deref().is_some_and(|l| l.split(',').any(|n| n == name));
    let mut named = args.only.iter().chain(&args.without).flat_map(|list| list.split(','));
    if let Some(unknown) = named.find(|name| STEPS.iter().copied().flatten().all(|step| step.name != *name)) {
        bail!("there is no step {unknown}");
    }
    let started = Instant::now();
    let is_wanted = |step: &&Step| {
        let by_itself = args.only.is_none() && (step.name != FUZZ || milena_testkit::rounds() > 1);
        (listed(&args.only, step.name) || by_itself) && !listed(&args.without, step.name)
    };
    let (mut passed, mut failed, mut skipped) = (0, 0, Vec::new());
    for row in STEPS {
        let taken: Vec<(&Step, Outcome)> = thread::scope(|scope| {
            let running = row.iter().filter(is_wanted).map(|step| (step, scope.spawn(|| step.take())));
            let running: Vec<_> = running.collect();
            running.into_iter().map(|(step, thread)| (step, thread.join().expect("a step panicked"))).collect()
        });
        for (step, outcome) in taken {
            passed += outcome.passed;
            failed += outcome.failures.len();
            skipped.extend(outcome.skipped.into_iter().map(|why| format!("{}: {why}", step.name)));
        }
    }
    for why in &skipped {
        println!("skipped {why}");
    }
    let ci = std::env::var("CI").is_ok_and(|v| v == "true");
    if ci {
        failed += skipped.len();
    }
    println!(
        "{:.0} s, {} skipped{}",
        started.elapsed().as_secs_f64(),
        skipped.len(),
        if ci { " (failures here)" } else { "" }
    );
    println!("{passed} passed, {failed} failed");
    if failed > 0 {
        bail!("{failed} failed");
    }
    Ok(())
}
