//! Real applications, each beside a server of its own, all of them at once. `compat/README.md` says what each does.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use milena_testkit::server::{Options, Server};
use milena_testkit::{cache, oracle};

use super::{Done, Missing, hasty};
use crate::tools;

/// An application.
pub(super) struct App {
    pub(super) name: &'static str,
    /// Gets what it runs on: a class path, or an interpreter.
    install: fn() -> Result<String>,
    run: fn(&str, &mut Server) -> Result<()>,
}

pub(super) const APPS: [App; 4] = [
    App { name: "streams", install: class_path, run: super::streams::count },
    App { name: "connect", install: connect_class_path, run: super::connect::copy_files },
    App { name: "verifiable", install: class_path, run: super::verifiable::copy },
    App { name: "aiokafka", install: super::members::python, run: super::members::come_and_go },
];

/// Coordinators miss members and transactions sooner than they do by default.
const SOON: [(&str, &str); 2] =
    [("group.min.session.timeout.ms", "1000"), ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "500")];

/// Runs the applications of these names.
pub(super) fn run(options: &Options, names: &[&str]) -> Result<Done> {
    let (mut installed, mut missing) = (Vec::new(), Vec::new());
    for app in APPS.iter().filter(|app| names.contains(&app.name)) {
        match (app.install)() {
            Ok(ground) => installed.push((app, ground)),
            Err(error) => missing.push(Missing { name: app.name, why: format!("{error:#}") }),
        }
    }
    let one = |app: &App, ground: &str| -> Result<()> {
        let began = Instant::now();
        let options = SOON.iter().fold(hasty(options.clone()), |options, (key, value)| options.set(key, value));
        let mut server = options.start()?;
        (app.run)(ground, &mut server).with_context(|| {
            server.keep();
            format!("{}; the server's folder is {}", app.name, server.dir().display())
        })?;
        println!("{}: done ({:.1} s)", app.name, began.elapsed().as_secs_f64());
        Ok(())
    };
    let outcomes: Vec<Result<()>> = std::thread::scope(|scope| {
        let running: Vec<_> = installed.iter().map(|(app, ground)| scope.spawn(move || one(app, ground))).collect();
        running.into_iter().map(|one| one.join().expect("an application's thread panicked")).collect()
    });
    let failed: Vec<_> = outcomes.into_iter().filter_map(|one| Some(format!("{:#}", one.err()?))).collect();
    if failed.is_empty() { Ok(Done { phases: installed.len(), missing }) } else { bail!("{}", failed.join("\n")) }
}

/// Kafka's jars, and behind them those of the applications.
fn class_path() -> Result<String> {
    tools::need("java", "openjdk-17-jdk-headless")?;
    let (libs, apps) = (oracle::ensure_jars()?, oracle::ensure_app_jars()?);
    Ok(format!("{}/*:{}/*", libs.display(), apps.display()))
}

fn connect_class_path() -> Result<String> {
    tools::need("java", "openjdk-17-jdk-headless")?;
    Ok(format!("{}/*", oracle::ensure_connect_jars()?.display()))
}

/// A JVM that starts quickly, ready for the main class.
pub(super) fn java(class_path: &str) -> Command {
    let mut command = oracle::java(&oracle::libs(), 256);
    command.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", class_path]);
    command
}

/// Compiles a program of `compat/apps` into a folder.
pub(super) fn compile(program: &str, class_path: &str, dir: &Path) -> Result<()> {
    let source = cache::repository().join("compat/apps").join(program);
    tools::run(Command::new("javac").args(["-cp", class_path, "-d"]).arg(dir).arg(source))
}
