//! The steps of `cargo xtask test`.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};
use milena_testkit::differential::cases as recorded_cases;
use milena_testkit::differential::requests;
use milena_testkit::differential::runner::{self, Judged, Verdict};
use milena_testkit::server::{Kind, Options};
use milena_testkit::{cache, hostile as harm, oracle as kafka};

use super::Outcome;
use crate::{bench, compat as clients, files as on_disk, tools};

fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(cache::repository());
    command
}

/// A cargo command that passes or fails as a whole.
fn whole(args: &[&str]) -> Result<Outcome> {
    let output = cargo(args).output()?;
    if output.status.success() {
        return Ok(Outcome::passed(1));
    }
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    Ok(Outcome { failures: vec![tail(&text, 60)], ..Outcome::default() })
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

pub(super) fn fmt() -> Result<Outcome> {
    whole(&["fmt", "--all", "--check"])
}

pub(super) fn clippy() -> Result<Outcome> {
    whole(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

/// The build that the later steps test.
pub(super) fn build() -> Result<Outcome> {
    whole(&["build", "--quiet", "--package", "milena"])
}

/// Unit and model tests, golden vectors and transcripts, bounded fuzzing, the tidy test: all that needs nothing but Rust and a C compiler.
pub(super) fn tests() -> Result<Outcome> {
    counted(&mut cargo(&["test", "--workspace", "--no-fail-fast"]))
}

/// A run of tests, each of which passes or fails.
fn counted(command: &mut Command) -> Result<Outcome> {
    let output = command.env("RUST_BACKTRACE", "0").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut outcome = Outcome::default();
    for line in text.lines() {
        if let Some(result) = line.strip_prefix("test result: ") {
            let count =
                result.split(". ").nth(1).and_then(|r| r.split(' ').next()).and_then(|n| n.parse::<usize>().ok());
            outcome.passed += count.unwrap_or(0);
        }
        if line.starts_with("test ") && line.ends_with("... FAILED") {
            outcome.failures.push(line.to_owned());
        }
    }
    if !output.status.success() {
        let panics: Vec<_> = text.split("\n---- ").skip(1).map(|part| tail(part, 20)).collect();
        let errors = String::from_utf8_lossy(&output.stderr);
        outcome.failures.push(format!("{}\n{}", panics.join("\n"), tail(&errors, 30)));
    } else if outcome.passed == 0 {
        outcome.failures.push("there is no such test".to_owned());
    }
    Ok(outcome)
}

/// The binary that [`build`] made.
fn milena() -> Result<Options> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| cache::repository().join("target"), PathBuf::from);
    let binary = target.join("debug").join("milena");
    if !binary.exists() {
        bail!("{} was not built", binary.display());
    }
    Ok(Options::new(Kind::Milena(binary)))
}

/// The jars, or why they cannot be had.
fn apache_kafka() -> Result<PathBuf, String> {
    let got = tools::need("java", "openjdk-17-jdk-headless")
        .and_then(|()| tools::need("mvn", "maven"))
        .and_then(|()| kafka::ensure_jars());
    got.map_err(|error| format!("Apache Kafka cannot be had: {error:#}"))
}

fn skipped(why: String) -> Outcome {
    Outcome { skipped: vec![why], ..Outcome::default() }
}

/// The recorded cases against Milena.
pub(super) fn cases() -> Result<Outcome> {
    recorded(milena()?)
}

/// The recorded cases against Apache Kafka, which shows that they ask what was recorded.
pub(super) fn oracle() -> Result<Outcome> {
    match apache_kafka() {
        Ok(libs) => recorded(Options::new(Kind::Kafka(libs))),
        Err(why) => Ok(skipped(why)),
    }
}

fn recorded(options: Options) -> Result<Outcome> {
    let mut server = options.start()?;
    let all = runner::run(&server, recorded_cases::all()?, &[], |_| {})?;
    let mut outcome = Outcome::default();
    for judged in &all {
        match &judged.verdict {
            Verdict::Agrees | Verdict::Known(_) => outcome.passed += 1,
            _ if judged.is_bad() => outcome.failures.push(describe(judged)),
            _ => {}
        }
    }
    if !outcome.failures.is_empty() {
        server.keep();
        outcome.failures.push(format!("the server's folder is {}", server.dir().display()));
    }
    println!("          {}: {}", server.kind().name(), runner::summary(&all));
    Ok(outcome)
}

fn describe(judged: &Judged) -> String {
    let got = match &judged.verdict {
        Verdict::Differs(value) => value.to_string(),
        other => format!("{other:?}"),
    };
    format!("{}: {}\n  expected {}\n  got      {got}", judged.case.id, judged.case.text, judged.case.outcome)
}

/// The table of requests against both servers.
pub(super) fn requests() -> Result<Outcome> {
    let libs = match apache_kafka() {
        Ok(libs) => libs,
        Err(why) => return Ok(skipped(why)),
    };
    let theirs = Options::new(Kind::Kafka(libs)).start()?;
    let ours = milena()?.start()?;
    let compared = requests::compare(&theirs, &ours, &[])?;
    let failures = compared.iter().filter(|c| c.is_bad()).map(ToString::to_string).collect::<Vec<_>>();
    Ok(Outcome { passed: compared.len() - failures.len(), failures, skipped: Vec::new() })
}

/// The broker's transcripts, asked of Apache Kafka byte by byte.
pub(super) fn answers() -> Result<Outcome> {
    if let Err(why) = apache_kafka() {
        return Ok(skipped(why));
    }
    let test = "transcripts::apache_kafka_has_the_same_transcripts";
    counted(&mut cargo(&["test", "--package", "milena-broker", "--test", "suite", "--", "--exact", test, "--ignored"]))
}

/// The client's tests, which `tests` has run against Milena, against Apache Kafka.
pub(super) fn client() -> Result<Outcome> {
    let libs = match apache_kafka() {
        Ok(libs) => libs,
        Err(why) => return Ok(skipped(why)),
    };
    let server = Options::new(Kind::Kafka(libs)).start()?;
    let mut command = cargo(&["test", "--package", "milena", "--test", "client", "--no-fail-fast"]);
    counted(command.env("MILENA_TEST_BOOTSTRAP", server.addr().to_string()))
}

/// Clients that mean harm.
pub(super) fn hostile() -> Result<Outcome> {
    // Connections come faster than a backlog of 50 has room for.
    let options = milena()?.set("socket.listen.backlog.size", "4096");
    let mut server = harm::LIMITS.into_iter().fold(options, |options, (key, value)| options.set(key, value)).start()?;
    let mut outcome = Outcome::default();
    for (name, check) in harm::CHECKS {
        let started = Instant::now();
        let checked = check(&server);
        println!("          {name}: {:.1} s", started.elapsed().as_secs_f64());
        match checked {
            Ok(()) => outcome.passed += 1,
            Err(error) => outcome.failures.push(format!("{name}: {error:#}")),
        }
    }
    if server.log().contains("panicked") {
        outcome.failures.push(format!("a panic: {}", server.log_tail(5)));
    }
    if !outcome.failures.is_empty() {
        server.keep();
        outcome.failures.push(format!("the server's folder is {}", server.dir().display()));
    }
    Ok(outcome)
}

/// Real clients and applications.
pub(super) fn compat() -> Result<Outcome> {
    let done = clients::all(&milena()?)?;
    let skipped = done.missing.into_iter().map(|m| format!("{}: {}", m.name, m.why)).collect();
    Ok(Outcome { passed: done.phases, failures: Vec::new(), skipped })
}

/// Apache Kafka's tools and broker on the files that Milena left, and Milena's on Kafka's.
pub(super) fn files() -> Result<Outcome> {
    let libs = match apache_kafka() {
        Ok(libs) => libs,
        Err(why) => return Ok(skipped(why)),
    };
    let untraced = tools::need("strace", "strace").err();
    let only = untraced.is_some().then_some("left,dump,hops,compacted,tools,faces,damaged,broken");
    let checked = on_disk::check(milena()?, &libs, only)?;
    let skipped = untraced.map(|why| format!("failing disks: {why:#}")).into_iter().collect();
    Ok(Outcome { passed: checked, failures: Vec::new(), skipped })
}

/// What a request costs in system calls.
pub(super) fn syscalls() -> Result<Outcome> {
    match tools::need("strace", "strace") {
        Ok(()) => super::syscalls::check(milena()?),
        Err(why) => Ok(skipped(format!("{why:#}"))),
    }
}

/// The fuzz targets, each for so many times ten seconds as there are rounds.
pub(super) fn fuzz() -> Result<Outcome> {
    let fuzzer = |args: &[&str]| {
        let mut command = Command::new("cargo");
        command.args(["+nightly", "fuzz"]).args(args).current_dir(cache::repository());
        command
    };
    let listed = match fuzzer(&["list"]).output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        _ => return Ok(skipped("cargo-fuzz and a nightly toolchain are not there".to_owned())),
    };
    let time = format!("-max_total_time={}", 10 * milena_testkit::rounds());
    let mut outcome = Outcome::default();
    for target in listed.lines() {
        let output = fuzzer(&["run", target, "--", &time, "-rss_limit_mb=1024"]).output()?;
        if output.status.success() {
            outcome.passed += 1;
        } else {
            outcome.failures.push(format!("{target}\n{}", tail(&String::from_utf8_lossy(&output.stderr), 40)));
        }
    }
    Ok(outcome)
}

/// What a request costs in instructions, of the program that people run.
pub(super) fn instructions() -> Result<Outcome> {
    match tools::need("valgrind", "valgrind") {
        Ok(()) => {
            let optimised = bench::build(&cache::repository(), "milena")?;
            super::instructions::check(Options::new(Kind::Milena(optimised)))
        }
        Err(why) => Ok(skipped(format!("{why:#}"))),
    }
}
