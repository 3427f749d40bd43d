//! A server in a box: Apache Kafka or Milena, started on free loopback ports in a folder of its own, waited for, stopped,
//! killed and started again on the same folder. Its output goes to a file that is kept when a test fails.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::{client::RawClient, oracle, ports};

/// The cluster id that every server under test is formatted with.
pub const CLUSTER_ID: &str = "milenatestclusterAAAAg";

/// Which server a test is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Apache Kafka; the folder holds its jars.
    Kafka(PathBuf),
    /// Milena; the file is its binary.
    Milena(PathBuf),
}

impl Kind {
    /// `kafka` or `milena`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Kafka(_) => "kafka",
            Self::Milena(_) => "milena",
        }
    }
}

/// How a server is started.
#[derive(Debug, Clone)]
pub struct Options {
    kind: Kind,
    overrides: Vec<(String, String)>,
    features: Vec<String>,
    dir: Option<PathBuf>,
    under: Vec<String>,
    java_args: Vec<String>,
    heap_mib: u32,
    quick: bool,
}

impl Options {
    /// A single node with the settings that tests share.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            overrides: Vec::new(),
            features: Vec::new(),
            dir: None,
            under: Vec::new(),
            java_args: Vec::new(),
            heap_mib: 512,
            quick: true,
        }
    }

    /// Which server is started.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Adds a setting, or replaces one.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.overrides.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Begins the cluster with another level of a feature, as in `transaction.version=1`.
    #[must_use]
    pub fn feature(mut self, level: &str) -> Self {
        self.features.push(level.to_owned());
        self
    }

    /// Uses this folder, which outlives the server, instead of a temporary one.
    #[must_use]
    pub fn dir(mut self, dir: &Path) -> Self {
        self.dir = Some(dir.to_owned());
        self
    }

    /// Pins the server to one CPU from its start.
    #[must_use]
    pub fn cpu(self, cpu: usize) -> Self {
        self.under(&["taskset", "-c", &cpu.to_string()])
    }

    /// Has another program, with these arguments, run the server's command line.
    #[must_use]
    pub fn under(mut self, program: &[&str]) -> Self {
        self.under = program.iter().map(|a| (*a).to_owned()).collect();
        self
    }

    /// Runs the server as one would in production: default intervals, and for a JVM the full compiler, this heap and
    /// these flags.
    #[must_use]
    pub fn production(mut self, heap_mib: u32, args: &[&str]) -> Self {
        self.quick = false;
        self.heap_mib = heap_mib;
        self.java_args = args.iter().map(|a| (*a).to_owned()).collect();
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    /// When it ends, or does not answer within a minute; the tail of its log is in the error.
    pub fn start(self) -> Result<Server> {
        let (dir, temp) = match &self.dir {
            Some(dir) => (dir.clone(), None),
            None => {
                let temp = tempfile::Builder::new().prefix("milena-test-").tempdir()?;
                (temp.path().to_owned(), Some(temp))
            }
        };
        let mut server =
            Server { addr: SocketAddr::from(([127, 0, 0, 1], ports::free())), dir, temp, options: self, child: None };
        server.write_config()?;
        server.start()?;
        Ok(server)
    }
}

/// A running or stopped server; dropping it kills the process.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    dir: PathBuf,
    temp: Option<tempfile::TempDir>,
    options: Options,
    child: Option<Child>,
}

impl Server {
    /// A server that somebody else started, stops, and keeps the folder of: all that is known is where clients connect.
    #[must_use]
    pub fn of_another(addr: SocketAddr, dir: &Path) -> Self {
        let options = Options::new(Kind::Milena(PathBuf::new()));
        Self { addr, dir: dir.to_owned(), temp: None, options, child: None }
    }

    /// Where clients connect.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The folder with the configuration, the log directory `data` and the captured output.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The log directory.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Which server this is.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.options.kind
    }

    /// The process id while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// A new connection.
    ///
    /// # Errors
    /// When the server does not listen.
    pub fn client(&self) -> Result<RawClient> {
        RawClient::connect(self.addr)
    }

    /// Starts a stopped or killed server again on the same folder and port, and waits until it answers.
    ///
    /// # Errors
    /// As [`Options::start`].
    pub fn start(&mut self) -> Result<()> {
        if !self.data_dir().join("meta.properties").exists() {
            match &self.options.kind {
                Kind::Kafka(libs) => oracle::format_storage(libs, &self.config(), CLUSTER_ID, &self.options.features)?,
                Kind::Milena(binary) => format_storage(binary, &self.config(), &self.options.features)?,
            }
        }
        let log = File::options().create(true).append(true).open(self.log_path())?;
        let mut command = self.command();
        command.current_dir(&self.dir).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = Some(command.spawn().with_context(|| format!("{command:?}"))?);
        self.wait_until_it_answers(Duration::from_secs(60))
    }

    /// SIGTERM, then waits for the end.
    ///
    /// # Errors
    /// When it is not running or does not end within half a minute.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        self.end(Signal::TERM)
    }

    /// SIGKILL, then waits for the end.
    ///
    /// # Errors
    /// When it is not running.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        self.end(Signal::KILL)
    }

    /// The last lines that the server printed.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        let log = std::fs::read_to_string(self.log_path()).unwrap_or_default();
        let all: Vec<_> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Everything that the server printed since the folder was made.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Keeps the temporary folder after the server is gone, for looking into.
    pub fn keep(&mut self) {
        if let Some(temp) = self.temp.take() {
            let _ = temp.keep();
        }
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    fn config(&self) -> PathBuf {
        self.dir.join("server.properties")
    }

    fn write_config(&self) -> Result<()> {
        std::fs::create_dir_all(&self.dir)?;
        let (broker, controller) = (self.addr.port(), ports::free());
        let mut settings = vec![
            ("num.partitions".to_owned(), "1".to_owned()),
            ("process.roles".to_owned(), "broker,controller".to_owned()),
            ("node.id".to_owned(), "1".to_owned()),
            ("controller.quorum.voters".to_owned(), format!("1@127.0.0.1:{controller}")),
            ("listeners".to_owned(), format!("PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}")),
            ("advertised.listeners".to_owned(), format!("PLAINTEXT://127.0.0.1:{broker}")),
            ("controller.listener.names".to_owned(), "CONTROLLER".to_owned()),
            ("log.dirs".to_owned(), self.data_dir().display().to_string()),
            ("offsets.topic.replication.factor".to_owned(), "1".to_owned()),
            ("transaction.state.log.replication.factor".to_owned(), "1".to_owned()),
            ("transaction.state.log.min.isr".to_owned(), "1".to_owned()),
            ("share.coordinator.state.topic.replication.factor".to_owned(), "1".to_owned()),
            ("share.coordinator.state.topic.min.isr".to_owned(), "1".to_owned()),
            ("group.initial.rebalance.delay.ms".to_owned(), "0".to_owned()),
        ];
        if self.options.quick {
            // Retention and compaction are seen within a test's patience; a bench has the defaults.
            settings.push(("log.cleaner.backoff.ms".to_owned(), "500".to_owned()));
            settings.push(("log.retention.check.interval.ms".to_owned(), "1000".to_owned()));
            settings.push(("log.initial.task.delay.ms".to_owned(), "500".to_owned()));
        }
        for (key, value) in &self.options.overrides {
            settings.retain(|(k, _)| k != key);
            settings.push((key.clone(), value.clone()));
        }
        let text: String = settings.iter().map(|(k, v)| format!("{k}={v}\n")).collect();
        std::fs::write(self.config(), text)?;
        Ok(())
    }

    fn command(&self) -> Command {
        let program = match &self.options.kind {
            Kind::Milena(binary) => {
                let mut command = Command::new(binary);
                command.arg("start").arg("--config").arg(self.config());
                command
            }
            Kind::Kafka(libs) if self.options.quick => {
                let mut command = oracle::java(libs, self.options.heap_mib);
                command.arg("kafka.Kafka").arg(self.config());
                command
            }
            Kind::Kafka(libs) => {
                let mut command = Command::new("java");
                command.arg(format!("-Xmx{0}m", self.options.heap_mib)).args(&self.options.java_args);
                command.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn");
                command.arg("-cp").arg(format!("{}/*", libs.display())).arg("kafka.Kafka").arg(self.config());
                command
            }
        };
        let [runner, args @ ..] = &self.options.under[..] else { return program };
        let mut command = Command::new(runner);
        command.args(args).arg(program.get_program()).args(program.get_args());
        command
    }

    fn wait_until_it_answers(&mut self, limit: Duration) -> Result<()> {
        let until = Instant::now() + limit;
        while Instant::now() < until {
            if let Some(status) = self.child.as_mut().and_then(|c| c.try_wait().transpose()).transpose()? {
                self.child = None;
                bail!("{} ended with {status}:\n{}", self.kind().name(), self.log_tail(30));
            }
            if self.answers() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let tail = self.log_tail(30);
        let _ = self.kill();
        bail!("{} does not answer within {limit:?}:\n{tail}", self.kind().name())
    }

    fn answers(&self) -> bool {
        let Ok(mut client) = self.client() else { return false };
        client.patience = Duration::from_secs(5);
        client.call("ApiVersions", 0, &json!({})).is_ok()
    }

    fn end(&mut self, signal: Signal) -> Result<ExitStatus> {
        let mut child = self.child.take().context("the server is not running")?;
        let pid = Pid::from_child(&child);
        kill_process(pid, signal)?;
        let until = Instant::now() + Duration::from_secs(30);
        while Instant::now() < until {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = child.kill();
        let _ = child.wait();
        bail!("{} did not end within 30 s after {signal:?}:\n{}", self.kind().name(), self.log_tail(20))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Formats the directories named in a `server.properties` file with Milena's own command.
fn format_storage(binary: &Path, config: &Path, features: &[String]) -> Result<()> {
    let mut command = Command::new(binary);
    command.args(["storage", "format", "-t", CLUSTER_ID, "-c"]).arg(config);
    command.args(features.iter().flat_map(|level| ["--feature", level]));
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("storage format failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
