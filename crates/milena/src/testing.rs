//! A broker inside a test: on a free port, in a folder of its own, gone when it is dropped.
//!
//! ```
//! use milena::testing::Broker;
//! use milena_client::{Client, Error, Record};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! let broker = Broker::start();
//! let client = Client::builder().bootstrap_servers(&broker.bootstrap_servers()).build()?;
//! let producer = client.producer().build()?;
//! let written = producer.send(&Record::to("orders").key("42").value("apples")).await?.await?;
//! assert_eq!(written.offset, Some(0));
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use milena_broker::broker::{Broker as Node, controller_listener};
use milena_config::{BrokerConfig, Settings};
use milena_io::{Clock, Disk, RealClock, RealDisk, RealRng};
use milena_quorum::{FormatOptions, QuorumMode};
use milena_raft::VoterEndpoint;
use tempfile::TempDir;

/// What a test wants otherwise than a server: small, quick, and nothing that happens because time passes.
const SETTINGS: [(&str, &str); 5] = [
    ("num.network.threads", "1"),
    ("offsets.topic.num.partitions", "1"),
    ("transaction.state.log.num.partitions", "1"),
    ("group.initial.rebalance.delay.ms", "0"),
    ("log.initial.task.delay.ms", "3600000"),
];

/// Settings of a broker that is about to start.
#[derive(Debug, Default)]
pub struct Options {
    overrides: Vec<(String, String)>,
    features: BTreeMap<String, i16>,
    in_memory: bool,
}

impl Options {
    /// The level of a feature of the cluster, such as `transaction.version`, instead of the newest.
    #[must_use]
    pub fn feature(mut self, name: &str, level: i16) -> Self {
        self.features.insert(name.to_owned(), level);
        self
    }

    /// A broker's setting by Kafka's name.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.overrides.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Keeps the folder in memory (`/dev/shm`), where the system has that.
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.in_memory = true;
        self
    }

    /// Starts the broker.
    ///
    /// # Panics
    /// When it does not start, with the reason: a test without its broker has failed.
    #[must_use]
    pub fn start(self) -> Broker {
        let memory = Path::new("/dev/shm");
        let place = if self.in_memory && memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let dir = TempDir::with_prefix_in("milena-", place).unwrap_or_else(|error| panic!("no folder: {error}"));
        let mut broker = Broker { node: None, listen: "127.0.0.1:0".to_owned(), overrides: self.overrides, dir };
        if !self.features.is_empty() {
            broker.format(self.features);
        }
        broker.start_again();
        broker
    }
}

/// A running broker. It stops when it is dropped, and its folder is removed.
pub struct Broker {
    node: Option<Node>,
    listen: String,
    overrides: Vec<(String, String)>,
    dir: TempDir,
}

impl Broker {
    /// Starts a broker: one line is all that a test needs.
    ///
    /// # Panics
    /// As [`Options::start`].
    #[must_use]
    pub fn start() -> Self {
        Options::default().start()
    }

    /// Settings first.
    ///
    /// ```
    /// let broker = milena::testing::Broker::options().set("num.partitions", "3").in_memory().start();
    /// ```
    #[must_use]
    pub fn options() -> Options {
        Options::default()
    }

    /// What clients have in `bootstrap.servers`.
    #[must_use]
    pub fn bootstrap_servers(&self) -> String {
        self.listen.clone()
    }

    /// `log.dirs`.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Stops in order, as SIGTERM does; [`start_again`](Self::start_again) goes on.
    ///
    /// # Panics
    /// When it can't leave its files in order.
    pub fn stop(&mut self) {
        if let Some(node) = self.node.take() {
            node.stop().unwrap_or_else(|error| panic!("the broker does not stop in order: {error}"));
        }
    }

    /// Starts a stopped broker again, on the same folder and port.
    ///
    /// # Panics
    /// As [`Options::start`].
    pub fn start_again(&mut self) {
        self.stop();
        let node =
            Node::start(self.config(), true).unwrap_or_else(|error| panic!("the broker does not start: {error}"));
        let addresses: Vec<SocketAddr> = node.addresses().map(|(_, address)| address).collect();
        self.listen = addresses[0].to_string();
        self.node = Some(node);
    }

    fn format(&self, features: BTreeMap<String, i16>) {
        let controller = controller_listener(&self.config());
        let endpoint = VoterEndpoint { name: controller.name, host: controller.host, port: controller.port };
        let options = FormatOptions {
            cluster_id: "milena-testing".to_owned(),
            node_id: 1,
            dirs: vec![self.data_dir()],
            metadata_dir: self.data_dir(),
            is_controller: true,
            mode: QuorumMode::Standalone { endpoint },
            release: None,
            features,
            ignore_formatted: false,
            scram: Vec::new(),
        };
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::new());
        let formatted = milena_quorum::format(&disk, &options, &mut RealRng, RealClock::new().now_ms());
        formatted.unwrap_or_else(|error| panic!("no folder to start on: {error}"));
    }

    fn config(&self) -> BrokerConfig {
        let mut settings = Settings::new();
        settings.data_dir_flag(&self.data_dir().display().to_string());
        settings.listen_flag(&self.listen).unwrap();
        let own = SETTINGS.iter().map(|&(key, value)| (key, value));
        let given = self.overrides.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        for (key, value) in own.chain(given) {
            let set = settings.override_flag(&format!("{key}={value}"));
            set.unwrap_or_else(|error| panic!("{key}={value}: {error}"));
        }
        BrokerConfig::load(&settings).unwrap_or_else(|errors| panic!("{errors:?}"))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            // A folder that is removed need not be in order.
            let _ = node.stop();
        }
    }
}
