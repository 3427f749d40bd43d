//! `cargo xtask bench`: Apache Kafka, the practical floor and Milena under the same load, in turn, each with a folder of
//! its own and pinned to one CPU. The load tool and the comparison are in `bench/`. With `--clients`, clients instead of servers.

mod clients;

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use milena_testkit::server::{Kind, Options, Server};
use milena_testkit::{cache, oracle, ports};
use serde_json::Value;

/// Kafka as its own start script runs it, apart from the heap.
const JVM: &[&str] = &[
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Xms1g",
];

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Compares Milena's client, librdkafka and the Java client against Milena, instead of servers
    #[arg(long, conflicts_with_all = ["servers", "fill_scale", "no_warm", "out"])]
    clients: bool,
    /// Cells of bench/cells.toml, or those of `--clients`, with commas between them; all without it
    #[arg(long)]
    cells: Option<String>,
    /// The binary of Milena, instead of building it
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Rounds that count
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Servers to compare, with commas between them; ratios are to the last one. With a `+` behind its name one writes its
    /// checkpoints and looks for what to delete and to compact all the time
    #[arg(long, default_value = "floor,milena,kafka")]
    servers: String,
    /// Part of their size that the topics get which cells read or recover, for a quick look
    #[arg(long, default_value_t = 1.0)]
    fill_scale: f64,
    /// Do not warm up first (for a quick look: a JVM without warm-up is slow)
    #[arg(long)]
    no_warm: bool,
    /// Where the data directories go
    #[arg(long)]
    dir: Option<PathBuf>,
    /// File to which each run's JSON is added
    #[arg(long, default_value = "target/bench-runs.jsonl")]
    out: PathBuf,
    /// CPU of the servers
    #[arg(long, default_value_t = 0)]
    server_cpu: usize,
    /// CPU of the load
    #[arg(long, default_value_t = 1)]
    client_cpu: usize,
}

/// What a server with a `+` behind its name does more often than others.
const BUSY: &[(&str, &str)] = &[
    ("log.cleaner.backoff.ms", "250"),
    ("log.flush.offset.checkpoint.interval.ms", "250"),
    ("log.flush.start.offset.checkpoint.interval.ms", "250"),
    ("log.initial.task.delay.ms", "250"),
    ("log.retention.check.interval.ms", "250"),
    ("replica.high.watermark.checkpoint.interval.ms", "250"),
];

enum Running {
    Server(Server),
    Floor { child: Child, addr: SocketAddr, dir: PathBuf },
}

impl Running {
    /// The server as compare.py wants it named.
    fn argument(&self, name: &str) -> String {
        match self {
            Self::Server(server) => {
                format!("{name}={},{},{}", server.addr(), server.pid().unwrap_or(0), server.data_dir().display())
            }
            Self::Floor { child, addr, dir } => format!("{name}={addr},{},{}", child.id(), dir.display()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Self::Floor { child, .. } = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Builds, starts the servers, measures and prints the table.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.clients {
        return clients::run(args);
    }
    let repository = cache::repository();
    let kbench = build(&repository, "kbench")?;
    let temp = tempfile::Builder::new().prefix("milena-bench-").tempdir()?;
    let root = args.dir.clone().unwrap_or_else(|| temp.path().to_owned());
    let mut running = Vec::new();
    for name in args.servers.split(',') {
        let dir = root.join(name);
        // A topic's files go right after its run, as the floor's do, and not during a later one.
        let options = |kind| {
            let options = Options::new(kind).dir(&dir).cpu(args.server_cpu).production(1024, JVM);
            let options = options.set("log.segment.delete.delay.ms", "100");
            let busy = BUSY.iter().filter(|_| name.ends_with('+'));
            busy.fold(options, |options, (key, value)| options.set(key, value))
        };
        running.push((
            name,
            match name.trim_end_matches('+') {
                "kafka" => {
                    let kind = Kind::Kafka(oracle::ensure_jars()?);
                    Running::Server(options(kind).start()?)
                }
                "milena" => Running::Server(options(milena(args, &repository)?).start()?),
                "floor" => floor(&kbench, &dir, args.server_cpu)?,
                other => bail!("no server named {other}: floor, milena and kafka exist"),
            },
        ));
    }
    let mut compare = Command::new("python3");
    compare.arg(repository.join("bench/compare.py")).arg("run").arg("--kbench").arg(&kbench);
    for (name, server) in &running {
        compare.arg("--server").arg(server.argument(name));
    }
    compare.args(["--rounds", &args.rounds.to_string(), "--server-cpu", &args.server_cpu.to_string()]);
    compare.args(["--client-cpu", &args.client_cpu.to_string(), "--out"]).arg(&args.out);
    compare.args(["--fill-scale", &args.fill_scale.to_string()]);
    if let Some(cells) = &args.cells {
        compare.args(["--only", cells]);
    }
    if !args.no_warm {
        compare.arg("--warm");
    }
    if !compare.status().context("python3 cannot be run")?.success() {
        bail!("bench/compare.py failed");
    }
    Ok(())
}

/// Milena as it was asked for, or built.
fn milena(args: &Args, repository: &Path) -> Result<Kind> {
    let binary = args.binary.as_deref().map(std::path::absolute).transpose()?;
    Ok(Kind::Milena(binary.map_or_else(|| build(repository, "milena"), Ok)?))
}

/// A kbench that puts a load, its arguments, on a server that runs; what it says is on its standard output.
pub(crate) fn load(kbench: &Path, arguments: &str, server: &Server) -> Result<Child> {
    let pid = server.pid().context("the server runs")?.to_string();
    let mut command = Command::new(kbench);
    command.args(arguments.split(' ')).args(["--addr", &server.addr().to_string(), "--pid", &pid]);
    command.stdout(Stdio::piped()).spawn().context("kbench cannot be run")
}

/// What a kbench says at its end.
pub(crate) fn figures(load: Child) -> Result<Value> {
    let output = load.wait_with_output()?;
    if !output.status.success() {
        bail!("kbench failed");
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Builds a package's program with the release profile and gives its path.
pub(crate) fn build(repository: &Path, package: &str) -> Result<PathBuf> {
    Ok(release(repository, &["--package", package])?.join(package))
}

/// Builds with the release profile what the arguments say, and gives the folder of programs.
fn release(repository: &Path, arguments: &[&str]) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).current_dir(repository).args(["build", "--release"]).args(arguments).status()?;
    if !status.success() {
        bail!("{} does not build", arguments.join(" "));
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository.join("target"), PathBuf::from);
    Ok(target.join("release"))
}

fn floor(kbench: &Path, dir: &Path, cpu: usize) -> Result<Running> {
    std::fs::create_dir_all(dir)?;
    let addr = SocketAddr::from(([127, 0, 0, 1], ports::free()));
    let child = Command::new("taskset")
        .args(["-c", &cpu.to_string()])
        .arg(kbench)
        .args(["floor", "--listen", &addr.to_string(), "--dir"])
        .arg(dir)
        .spawn()
        .context("taskset cannot be run")?;
    let running = Running::Floor { child, addr, dir: dir.to_owned() };
    let until = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(addr).is_err() {
        if Instant::now() > until {
            bail!("the floor does not listen on {addr}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(running)
}
