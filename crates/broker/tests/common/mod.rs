//! A node inside the test's own process: started in a folder of its own, on a port that the system chooses.

#![allow(dead_code, unreachable_pub)] // Not every test file uses all of it.

pub mod child;
pub mod messages;
pub mod requests;
pub mod seeded;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use milena_broker::broker::{Broker, BrokerError, controller_listener};
use milena_config::{BrokerConfig, Settings};
use milena_io::{Disk, RealDisk, RealRng};
use milena_quorum::{FormatOptions, QuorumMode, format};
use milena_raft::VoterEndpoint;
use milena_testkit::client::RawClient;
use milena_testkit::server::{CLUSTER_ID, Server};
pub use tempfile::TempDir;

/// What every node under test is started with, as lines of `--override`. Nothing happens because time passes.
const SETTINGS: &[&str] = &["num.network.threads=2", "num.partitions=1", "log.initial.task.delay.ms=3600000"];

/// A running node, or the folder of one that was stopped.
pub struct Node {
    dir: TempDir,
    overrides: Vec<String>,
    broker: Option<Broker>,
}

impl Node {
    /// A node of the cluster that every server under test belongs to.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same, with further settings as `key=value`.
    pub fn start_with(overrides: &[&str]) -> Self {
        let dir = TempDir::with_prefix("milena-node-").unwrap();
        let overrides = SETTINGS.iter().chain(overrides).map(|&text| text.to_owned()).collect();
        let mut node = Self { dir, overrides, broker: None };
        format_directory(&node.data_dir());
        node.start_again();
        node
    }

    /// The same, with the log directories `data` and `more`.
    pub fn start_in_two_directories() -> Self {
        let dir = TempDir::with_prefix("milena-node-").unwrap();
        let (data, more) = (dir.path().join("data"), dir.path().join("more"));
        format_directories(&[data.clone(), more.clone()]);
        let dirs = format!("log.dirs={},{}", data.display(), more.display());
        let overrides = SETTINGS.iter().map(|&text| text.to_owned()).chain([dirs]).collect();
        let mut node = Self { dir, overrides, broker: None };
        node.start_again();
        node
    }

    /// The same, with the log directory `data` and the metadata log in `metadata`.
    pub fn start_with_metadata_apart() -> Self {
        let dir = TempDir::with_prefix("milena-node-").unwrap();
        let (data, metadata) = (dir.path().join("data"), dir.path().join("metadata"));
        format_directories(&[metadata.clone(), data]);
        let apart = format!("metadata.log.dir={}", metadata.display());
        let overrides = SETTINGS.iter().map(|&text| text.to_owned()).chain([apart]).collect();
        let mut node = Self { dir, overrides, broker: None };
        node.start_again();
        node
    }

    /// Starts a stopped node on its folder.
    pub fn start_again(&mut self) {
        let overrides: Vec<_> = self.overrides.iter().map(String::as_str).collect();
        self.broker = Some(start(&self.data_dir(), "127.0.0.1:0", &overrides, false).unwrap());
    }

    /// Another setting as `key=value`, from the next start on.
    pub fn set(&mut self, setting: &str) {
        self.overrides.push(setting.to_owned());
    }

    /// Stops in order.
    pub fn stop(&mut self) {
        self.broker.take().unwrap().stop().unwrap();
    }

    /// A copy of the folder as it is now, while the node runs.
    pub fn copy(&self) -> TempDir {
        let dir = TempDir::with_prefix("milena-copy-").unwrap();
        copy(&self.data_dir(), &dir.path().join("data"));
        dir
    }

    /// A node on a folder that has the formatted directory `data`.
    pub fn on(dir: TempDir) -> Self {
        let overrides = SETTINGS.iter().map(|&text| text.to_owned()).collect();
        let mut node = Self { dir, overrides, broker: None };
        node.start_again();
        node
    }

    /// The running broker.
    pub fn broker(&self) -> &Broker {
        self.broker.as_ref().unwrap()
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.broker().addresses().next().unwrap().1
    }

    /// A new connection.
    pub fn client(&self) -> RawClient {
        RawClient::connect(self.address()).unwrap()
    }

    /// The node as the recorded cases want it.
    pub fn server(&self) -> Server {
        Server::of_another(self.address(), self.dir.path())
    }

    /// `log.dirs`.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(broker) = self.broker.take() {
            let _ = broker.stop();
        }
    }
}

/// What `milena start --data-dir … --listen …` would run with.
pub fn config(data_dir: &Path, listen: &str, overrides: &[&str]) -> BrokerConfig {
    let mut settings = Settings::new();
    settings.data_dir_flag(&data_dir.display().to_string());
    settings.listen_flag(listen).unwrap();
    for text in overrides {
        settings.override_flag(text).unwrap();
    }
    BrokerConfig::load(&settings).unwrap()
}

/// Starts a broker; `may_format` is what a start without a configuration file has.
pub fn start(data_dir: &Path, listen: &str, overrides: &[&str], may_format: bool) -> Result<Broker, BrokerError> {
    Broker::start(config(data_dir, listen, overrides), may_format)
}

/// Formats a directory for node 1 of the cluster that every server under test belongs to.
pub fn format_directory(data_dir: &Path) {
    format_directories(&[data_dir.to_owned()]);
}

/// The same for several; the metadata log is in the first.
fn format_directories(dirs: &[PathBuf]) {
    let controller = controller_listener(&config(&dirs[0], "127.0.0.1:0", &[]));
    let endpoint = VoterEndpoint { name: controller.name, host: controller.host, port: controller.port };
    let options = FormatOptions {
        cluster_id: CLUSTER_ID.to_owned(),
        node_id: 1,
        dirs: dirs.to_owned(),
        metadata_dir: dirs[0].clone(),
        is_controller: true,
        mode: QuorumMode::Standalone { endpoint },
        release: None,
        features: Default::default(),
        ignore_formatted: false,
        scram: Vec::new(),
    };
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new());
    format(&disk, &options, &mut RealRng, 1_700_000_000_000).unwrap();
}

/// A line of a process's status file, in bytes.
pub fn memory(status: &str, line: &str) -> u64 {
    let status = std::fs::read_to_string(status).unwrap();
    let line = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':')).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// Copies a folder with everything in it.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
