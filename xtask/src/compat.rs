//! `cargo xtask compat`: real clients and applications against a server. What they write and read is in `compat/README.md`.

mod apps;
mod connect;
mod members;
mod program;
mod streams;
mod verifiable;

mod recorded;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use milena_testkit::server::{Options, Server};
use milena_testkit::{cache, oracle};

use crate::tools;

/// Options of `cargo xtask compat`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Clients and applications, with commas between them; all without it
    #[arg(long)]
    clients: Option<String>,
    #[command(flatten)]
    server: crate::target::Target,
}

/// A client that is installed.
struct Client {
    name: &'static str,
    command: Vec<String>,
    dir: PathBuf,
    /// Writes the set that all clients read.
    shared: bool,
}

/// A client that cannot be had here.
pub(crate) struct Missing {
    /// Its name.
    pub(crate) name: &'static str,
    /// Why.
    pub(crate) why: String,
}

const NAMES: [&str; 5] = ["java", "python", "go", "node", "kcat"];
/// Those that know the consumer protocol of groups.
const CONSUMER_PROTOCOL: [&str; 3] = ["java", "python", "go"];
/// The coordinator tells members how often to be heard of, and they hear of changes then.
const PATIENCE: [(&str, &str); 3] = [
    ("group.consumer.min.heartbeat.interval.ms", "200"),
    ("group.consumer.heartbeat.interval.ms", "200"),
    ("group.consumer.assignment.interval.ms", "100"),
];

/// Runs the clients; fails if one does, or if one is missing although it was asked for by name.
pub(crate) fn run(args: &Args) -> Result<()> {
    let names = args.clients.as_deref().map_or_else(|| every_name(), |list| list.split(',').collect());
    let missing = both(&args.server.options()?, &names)?.missing;
    for one in &missing {
        println!("skipped {}: {}", one.name, one.why);
    }
    if args.clients.is_some() && !missing.is_empty() {
        bail!("{} of the clients are missing", missing.len());
    }
    Ok(())
}

/// What the clients did.
#[derive(Default)]
pub(crate) struct Done {
    /// Phases that passed: writing, and each reading.
    pub(crate) phases: usize,
    /// Clients that were not tried.
    pub(crate) missing: Vec<Missing>,
}

/// Starts servers with these options and runs all clients and applications that can be had.
pub(crate) fn all(options: &Options) -> Result<Done> {
    both(options, &every_name())
}

fn every_name() -> Vec<&'static str> {
    NAMES.into_iter().chain(apps::APPS.iter().map(|app| app.name)).collect()
}

/// Runs the clients of these names, then the applications.
fn both(options: &Options, names: &[&str]) -> Result<Done> {
    let every = every_name();
    if let Some(unknown) = names.iter().find(|name| !every.contains(name)) {
        bail!("no client named {unknown}");
    }
    let mut done = Done::default();
    let clients: Vec<&str> = NAMES.into_iter().filter(|name| names.contains(name)).collect();
    if !clients.is_empty() {
        let hasty = hasty(options.clone());
        let mut server = hasty.clone().start()?;
        done = suite(&mut server, &hasty, &clients).inspect_err(|_| {
            server.keep();
            eprintln!("the server's folder is {}", server.dir().display());
        })?;
    }
    let apps = apps::run(options, names)?;
    done.phases += apps.phases;
    done.missing.extend(apps.missing);
    Ok(done)
}

fn hasty(options: Options) -> Options {
    PATIENCE.iter().fold(options, |options, (key, value)| options.set(key, value))
}

fn suite(server: &mut Server, options: &Options, names: &[&'static str]) -> Result<Done> {
    let (mut clients, mut missing) = (Vec::new(), Vec::new());
    for name in names {
        match install(name) {
            Ok(client) => clients.push(client),
            Err(error) => missing.push(Missing { name, why: format!("{error:#}") }),
        }
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
    let base = (now - 3_600_000).to_string();
    at_once(&clients, |client| phase(client, server, &["produce"], &base, &[]))?;
    read_all(&clients, server, &base)?;
    at_once(clients.iter().filter(|client| client.shared), |client| hold_and_die(client, server, &base))?;
    take_turns(&clients, server, &base, "0")?;
    server.stop()?;
    server.start()?;
    println!("restarted");
    read_all(&clients, server, &base)?;
    take_turns(&clients, server, &base, "1")?;
    server.kill()?;
    server.start()?;
    println!("killed and started again");
    read_all(&clients, server, &base)?;
    take_turns(&clients, server, &base, "2")?;
    let mut phases = 7 * clients.len() + 3 * CONSUMER_PROTOCOL.len();
    for client in &clients {
        let (usual, programs) = long_programs(client);
        for own in programs {
            run_and_kill(client, usual, own, server)?;
            phases += 1;
        }
        if client.name == "java" {
            phases += recorded::check(client, server, options)?;
        }
    }
    Ok(Done { phases, missing })
}

/// Programs of a client that run for a while: the name of its usual one, and theirs.
fn long_programs(client: &Client) -> (&'static str, &'static [&'static str]) {
    match client.name {
        "java" => ("Compat.java", &["Transactions.java", "Migration.java"]),
        "python" => ("compat.py", &["transactions.py"]),
        _ => ("", &[]),
    }
}

/// Runs a client's longer program, and kills the server when it says that it is halfway.
fn run_and_kill(client: &Client, usual: &str, own: &str, server: &mut Server) -> Result<()> {
    let started = Instant::now();
    let arguments = client.command[1..].iter().map(|argument| argument.replace(usual, own));
    let mut child = Command::new(&client.command[0])
        .args(arguments)
        .arg(server.addr().to_string())
        .current_dir(&client.dir)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| client.command[0].clone())?;
    for line in BufReader::new(child.stdout.take().context("its output is piped")?).lines() {
        let line = line?;
        if line == "halfway" {
            server.kill()?;
            server.start()?;
            println!("{}: killed and started again in the middle of {own}", client.name);
        } else {
            println!("{line} ({:.1} s)", started.elapsed().as_secs_f64());
        }
    }
    let status = child.wait()?;
    if status.success() { Ok(()) } else { bail!("{} {own}: {status}", client.name) }
}

/// Every client takes its group through a turn.
fn take_turns(clients: &[Client], server: &Server, base: &str, turn: &str) -> Result<()> {
    let with = |protocol| move |client: &Client| phase(client, server, &["group"], base, &[turn, protocol]);
    at_once(clients, with("classic"))?;
    at_once(clients.iter().filter(|client| CONSUMER_PROTOCOL.contains(&client.name)), with("consumer"))
}

/// What clients mostly wait in is done at once.
fn at_once<'c>(
    clients: impl IntoIterator<Item = &'c Client>,
    each: impl Fn(&'c Client) -> Result<()> + Sync,
) -> Result<()> {
    let each = &each;
    std::thread::scope(|scope| {
        let running: Vec<_> = clients.into_iter().map(|client| scope.spawn(move || each(client))).collect();
        let outcomes: Vec<_> = running.into_iter().map(|one| one.join().expect("a client's thread panicked")).collect();
        outcomes.into_iter().collect()
    })
}

/// Starts the only member of the client's group, and kills it once it has its partitions.
fn hold_and_die(client: &Client, server: &Server, base: &str) -> Result<()> {
    let mut command = command(client, server, &["hold"], base);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut said = String::new();
    let stdout = child.stdout.take().context("its output is piped")?;
    BufReader::new(stdout).read_line(&mut said)?;
    let _ = child.kill();
    let output = child.wait_with_output()?;
    if said.trim_end() != "holding" {
        bail!("{} hold: {said}{}", client.name, String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Every client reads what every client wrote.
fn read_all(clients: &[Client], server: &Server, base: &str) -> Result<()> {
    let writers: Vec<_> = clients.iter().filter(|c| c.shared).map(|c| c.name).collect();
    at_once(clients, |client| phase(client, server, &["verify"], base, &[&writers.join(",")]))
}

fn phase(client: &Client, server: &Server, phase: &[&str], base: &str, more: &[&str]) -> Result<()> {
    let started = Instant::now();
    let output = command(client, server, phase, base).args(more).output().with_context(|| client.command[0].clone())?;
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{} ({:.1} s)", said.trim_end(), started.elapsed().as_secs_f64());
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let tail: Vec<_> = errors.lines().rev().take(20).collect();
        let tail: Vec<_> = tail.into_iter().rev().collect();
        bail!("{} {}: {}\n{}", client.name, phase[0], output.status, tail.join("\n"));
    }
    Ok(())
}

fn command(client: &Client, server: &Server, phase: &[&str], base: &str) -> Command {
    let mut command = Command::new(&client.command[0]);
    command.args(&client.command[1..]).args(phase).arg(server.addr().to_string()).arg(base).current_dir(&client.dir);
    command
}

fn install(name: &'static str) -> Result<Client> {
    let dir = cache::repository().join("compat").join(name);
    let (command, dir) = match name {
        "java" => java(dir)?,
        "python" => python(dir)?,
        "go" => go(dir)?,
        "node" => node(&dir)?,
        _ => {
            tools::need("kcat", "kcat")?;
            (vec!["python3".to_owned(), dir.join("compat.py").display().to_string()], dir)
        }
    };
    Ok(Client { name, command, dir, shared: name != "kcat" })
}

fn java(dir: PathBuf) -> Result<(Vec<String>, PathBuf)> {
    tools::need("java", "openjdk-17-jdk-headless")?;
    let libs = oracle::ensure_jars()?;
    let program = dir.join("Compat.java").display().to_string();
    let quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error".to_owned();
    let class_path = format!("{}/*", libs.display());
    let mut command = vec!["java".to_owned(), "-Xmx256m".to_owned(), quiet];
    command.extend(["-XX:TieredStopAtLevel=1".to_owned(), "-cp".to_owned(), class_path, program]);
    Ok((command, dir))
}

fn python(dir: PathBuf) -> Result<(Vec<String>, PathBuf)> {
    let python = python_with("confluent-kafka")?;
    Ok((vec![python, dir.join("compat.py").display().to_string()], dir))
}

/// An interpreter that has a package.
fn python_with(package: &str) -> Result<String> {
    tools::need("python3", "python3-venv")?;
    let venv = cache::dir().join("venv");
    let python = venv.join("bin/python");
    if !python.exists() {
        tools::run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    }
    let import = format!("import {}", package.replace('-', "_"));
    if !Command::new(&python).args(["-c", &import]).output()?.status.success() {
        tools::run(Command::new(&python).args(["-m", "pip", "install", "-q", package]))?;
    }
    Ok(python.display().to_string())
}

fn go(dir: PathBuf) -> Result<(Vec<String>, PathBuf)> {
    tools::need("go", "golang-go")?;
    let program = cache::dir().join("go").join("compat");
    tools::run(Command::new("go").arg("build").arg("-o").arg(&program).arg(".").current_dir(&dir))?;
    Ok((vec![program.display().to_string()], dir))
}

/// npm writes beside its package file, so that the sources are copied into the cache first.
fn node(dir: &Path) -> Result<(Vec<String>, PathBuf)> {
    tools::need("node", "nodejs")?;
    tools::need("npm", "npm")?;
    let copy = cache::dir().join("node");
    std::fs::create_dir_all(&copy)?;
    for file in ["package.json", "package-lock.json", ".npmrc", "compat.js"] {
        std::fs::copy(dir.join(file), copy.join(file)).with_context(|| file.to_owned())?;
    }
    let lock = std::fs::read(copy.join("package-lock.json"))?;
    let stamp = copy.join("installed-lock.json");
    if std::fs::read(&stamp).ok().as_ref() != Some(&lock) {
        tools::run(Command::new("npm").args(["ci", "--silent"]).current_dir(&copy))?;
        std::fs::write(&stamp, &lock)?;
    }
    Ok((vec!["node".to_owned(), copy.join("compat.js").display().to_string()], copy))
}
