//! `cargo xtask differential`: the recorded cases and the table of requests against Apache Kafka and Milena.

use std::path::PathBuf;

use anyhow::{Result, bail};
use milena_testkit::differential::runner::{self, Judged, Verdict};
use milena_testkit::differential::{cases, requests};
use milena_testkit::oracle;
use milena_testkit::server::{Kind, Options};

/// Options of `cargo xtask differential`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only cases whose ids begin with one of these
    only: Vec<String>,
    #[command(flatten)]
    server: crate::target::Target,
    /// Show cases that agree as well
    #[arg(long)]
    all: bool,
    /// A file of cases, as `record` prints them, that is run in place of the recorded ones
    #[arg(long)]
    table: Option<PathBuf>,
}

/// Options of `cargo xtask requests`.
#[derive(clap::Args)]
pub(crate) struct RequestArgs {
    /// Only requests whose ids begin with one of these
    only: Vec<String>,
    #[command(flatten)]
    server: crate::target::Target,
}

/// Options of `cargo xtask record`.
#[derive(clap::Args)]
pub(crate) struct RecordArgs {
    /// Lines of an id, a tab, and what it asks in words; or of cases that are data
    file: PathBuf,
    #[command(flatten)]
    server: crate::target::Target,
}

/// Asks a server cases that are not recorded yet, and prints them as lines of the files in `crates/testkit/data`.
pub(crate) fn record(args: &RecordArgs) -> Result<()> {
    let wanted = cases::of_file(&args.file)?;
    let server = args.server.options()?.start()?;
    runner::record(&server, wanted, |recorded| match recorded {
        Ok(case) => println!("{case}"),
        Err(why) => eprintln!("{why}"),
    })
}

/// Asks Apache Kafka and a server the table of requests, and prints what differs.
pub(crate) fn requests(args: &RequestArgs) -> Result<()> {
    let theirs = Options::new(Kind::Kafka(oracle::ensure_jars()?)).start()?;
    let ours = args.server.options()?.start()?;
    let all = requests::compare(&theirs, &ours, &args.only)?;
    let bad: Vec<_> = all.iter().filter(|c| c.is_bad()).collect();
    for compared in &bad {
        println!("{compared}");
    }
    println!("{} requests, {} differ", all.len(), bad.len());
    if bad.is_empty() { Ok(()) } else { bail!("differences that are not known") }
}

/// Runs and prints what differs; fails if anything does that is not known.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut server = args.server.options()?.start()?;
    let cases = args.table.as_deref().map_or_else(cases::all, cases::of_file)?;
    let all = runner::run(&server, cases, &args.only, |judged| print(judged, args.all))?;
    println!("{}", runner::summary(&all));
    if all.iter().any(Judged::is_bad) {
        server.keep();
        bail!("differences that are not known; the server's folder is {}", server.dir().display());
    }
    Ok(())
}

fn print(judged: &Judged, all: bool) {
    let id = &judged.case.id;
    match &judged.verdict {
        Verdict::Differs(value) => {
            println!("DIFFERS {id}: {}\n  expected {}\n  got      {value}", judged.case.text, judged.case.outcome);
        }
        Verdict::Failed(error) => {
            println!("FAILED {id}: {}\n  expected {}\n  {error}", judged.case.text, judged.case.outcome)
        }
        Verdict::Stale(reason) => println!("AGREES {id}, though it is listed as different: {reason}"),
        Verdict::Known(reason) if all => println!("known {id}: {reason}"),
        Verdict::NotServed(what) if all => println!("skipped {id}: {what}"),
        Verdict::NoCode if all => println!("no code {id}"),
        Verdict::Agrees if all => println!("agrees {id} ({} ms)", judged.millis),
        _ => {}
    }
}
