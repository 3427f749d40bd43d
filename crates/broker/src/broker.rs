//! A node from start to stop: the order in which its parts come and go.
//!
//! Start: bind the listeners, so that a port in use changes nothing; check the directories; lock them; load the
//! metadata; register; open the partitions; become leader; serve. Stop is the same backwards.

mod directories;
mod registration;
mod start;

pub use registration::{check_supported, controller_listener};

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use milena_io::Clock;
use milena_log::LogError;
use milena_net::{NetError, Server};
use milena_quorum::{DirectoryError, FormatError, QuorumError};

use crate::cleaner::LogCleaner;
use crate::controller::Controller;
use crate::coordinators::CoordinatorThread;
use crate::disk_threads::DiskThreads;
use crate::flusher::FlushTimer;
use crate::maintenance::Maintenance;
use crate::replicas::Replicas;
pub use crate::storage::Fatal;
use crate::storage::{OpenReport, Storage};

/// How long a stop waits for requests in flight.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// A running node.
pub struct Broker {
    server: Server,
    readers: DiskThreads,
    controller: Controller,
    maintenance: Maintenance,
    coordinators: CoordinatorThread,
    cleaner: LogCleaner,
    flush_timer: Option<FlushTimer>,
    replicas: Arc<Replicas>,
    storage: Arc<Storage>,
    clock: Arc<dyn Clock>,
    node_id: i32,
    epoch: i64,
    defaults: milena_quorum::TopicDefaults,
    report: StartReport,
}

/// What the start did.
#[derive(Debug, Clone)]
pub struct StartReport {
    /// Lines about what was formatted.
    pub formatted: Vec<String>,
    /// The partitions that were found.
    pub found: OpenReport,
    /// Whether the last stop was in order.
    pub clean: bool,
}

/// Why a node does not start, or does not stop in order.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// It would have to be something else than a combined node.
    #[error("process.roles must be broker,controller: a node here is both")]
    Roles,
    /// It would not be the only voter of its quorum.
    #[error("controller.quorum.voters has the nodes {voters}: only a quorum of one is served")]
    Voters {
        /// Their ids.
        voters: String,
    },
    /// A listener wants a security protocol other than plaintext.
    #[error("listener {listener} is not PLAINTEXT, which is all that is served")]
    Protocol {
        /// The listener's name.
        listener: String,
    },
    /// A setting asks for what is not there and must not be left out unnoticed.
    #[error("{name} is set, and Milena has nothing of the kind; take it out if the node may serve without it")]
    NotServed {
        /// The setting.
        name: &'static str,
    },
    /// A directory that was never formatted holds something.
    #[error(
        "{} is not empty and has no meta.properties; if it is the right one, run `milena storage format`", dir.display()
    )]
    Foreign {
        /// The directory.
        dir: std::path::PathBuf,
    },
    /// There are partitions, and nothing that tells of them.
    #[error(
        "the metadata log in {} is empty, but {} is there: it was lost; restore it, or move the partitions away",
        dir.display(), partition.display()
    )]
    MetadataLost {
        /// The metadata directory.
        dir: std::path::PathBuf,
        /// One of the partitions.
        partition: std::path::PathBuf,
    },
    /// A listener can't be opened.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The log directories can't be used.
    #[error(transparent)]
    Directories(#[from] DirectoryError),
    /// The log directories can't be formatted.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The metadata log can't be used.
    #[error(transparent)]
    Quorum(#[from] QuorumError),
    /// A partition or a log directory's own files can't be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Log directories have failed without which the node can't go on.
    #[error(transparent)]
    Fatal(#[from] Fatal),
    /// A thread can't be started.
    #[error("no thread can be started: {0}")]
    Thread(std::io::Error),
    /// The controller's thread has panicked.
    #[error("the controller has failed; the next start recovers")]
    ControllerFailed,
    /// Something has not ended that uses the log directories.
    #[error("the log directories are still in use and can't be left in order; the next start recovers")]
    StillInUse,
}

impl BrokerError {
    /// The log directory that another process has.
    pub fn locked_dir(&self) -> Option<&Path> {
        match self {
            Self::Log(LogError::Locked { dir }) => Some(dir),
            _ => None,
        }
    }

    /// Whether another socket listens where this node would.
    pub fn is_address_in_use(&self) -> bool {
        matches!(self, Self::Net(NetError::AddressInUse { .. }))
    }
}

impl Broker {
    /// Names and addresses that clients connect to.
    pub fn addresses(&self) -> impl Iterator<Item = (&str, SocketAddr)> {
        self.server.local_addrs().iter().map(|(name, address)| (&**name, *address))
    }

    /// `node.id`.
    pub fn node_id(&self) -> i32 {
        self.node_id
    }

    /// What the start did.
    pub fn report(&self) -> &StartReport {
        &self.report
    }

    /// Waits until the node can't go on, which may be for ever.
    pub fn failed(&self) -> impl Future<Output = Fatal> + use<> {
        let mut fatal = self.storage.fatal();
        async move {
            match fatal.wait_for(Option::is_some).await.ok().and_then(|fatal| fatal.clone()) {
                Some(fatal) => fatal,
                None => std::future::pending().await,
            }
        }
    }

    /// Stops serving, then leaves the directories as Kafka's clean stop does.
    ///
    /// # Errors
    /// When something can't be written; the next start then recovers.
    pub fn stop(self) -> Result<(), BrokerError> {
        self.server.stop(STOP_PATIENCE);
        self.coordinators.stop();
        self.readers.stop();
        self.cleaner.stop();
        self.storage.mover().stop();
        self.maintenance.stop();
        self.flush_timer.into_iter().for_each(FlushTimer::stop);
        self.storage.flusher().stop();
        let mut log = self.controller.join().ok_or(BrokerError::ControllerFailed)?;
        log.shut_down_broker(self.node_id, self.defaults, self.clock.now_ms())?;
        log.close()?;
        let storage = Arc::into_inner(self.storage).ok_or(BrokerError::StillInUse)?;
        Ok(storage.close(&self.replicas, self.epoch)?)
    }
}
