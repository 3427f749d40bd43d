//! One log directory, and whether it can still be used. Here, and nowhere else, a directory is found to have failed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use milena_log::{CleanMarker, LogDirectory, LogError, PartitionDir};
use milena_protocol::Uuid;
use parking_lot::Mutex;
use tokio::sync::watch;

/// One log directory.
pub struct Directory {
    pub(super) files: LogDirectory,
    /// What the clean-shutdown marker said; `None` when the last run did not stop in order.
    pub(super) clean: Mutex<Option<CleanMarker>>,
    /// Its id in the metadata; zero when its file could not be read.
    pub id: Uuid,
    /// Its place in the configuration.
    pub(super) index: usize,
    holds_metadata: bool,
    /// The partitions that [`Storage::look`](super::Storage::look) has found in it, until they are opened.
    pub(super) found: Mutex<Vec<PartitionDir>>,
    /// It is in `cordoned.log.dirs`.
    pub(super) cordoned: AtomicBool,
    /// How many partitions are in it.
    pub(super) partitions: AtomicUsize,
    /// The names or topic ids of its partitions could not be synced in this run: its stop is not a clean one.
    pub(super) unsynced: AtomicBool,
    offline: AtomicBool,
    failures: Arc<Failures>,
}

impl Directory {
    /// A directory that works, as far as is known.
    pub(crate) fn new(files: LogDirectory, id: Uuid, index: usize, failures: &Arc<Failures>) -> Self {
        let holds_metadata = failures.metadata_dir == files.path();
        failures.online.fetch_add(1, Ordering::Relaxed);
        Self {
            files,
            clean: Mutex::new(None),
            id,
            index,
            holds_metadata,
            found: Mutex::default(),
            cordoned: AtomicBool::new(false),
            partitions: AtomicUsize::new(0),
            unsynced: AtomicBool::new(false),
            offline: AtomicBool::new(false),
            failures: Arc::clone(failures),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.files.path()
    }

    /// The same for clients, who know no working directory.
    pub fn absolute_path(&self) -> PathBuf {
        std::path::absolute(self.path()).unwrap_or_else(|_| self.path().to_owned())
    }

    /// What the clean-shutdown marker said; `None` when the last run did not stop in order.
    pub(super) fn clean(&self) -> Option<CleanMarker> {
        *self.clean.lock()
    }

    /// Whether it gets no new partitions.
    pub fn is_cordoned(&self) -> bool {
        self.cordoned.load(Ordering::Relaxed)
    }

    /// Its place in the configuration.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Whether it has failed: nothing in it is read or written any more until the next start.
    pub fn is_offline(&self) -> bool {
        self.offline.load(Ordering::Relaxed)
    }

    /// To be told of every error of an operation on a file of this directory. One that says that the disk fails takes the directory offline: requests
    /// for its partitions get KAFKA_STORAGE_ERROR from now on, and the controller's thread soon takes the partitions away. Without the metadata's
    /// directory, or without any, the broker ends.
    ///
    /// A full disk is no failure, and no lack of open files either: both pass.
    pub fn note_error(&self, error: &LogError) {
        if error.is_disk_failure() {
            self.fail(error);
        }
    }

    /// Takes it offline.
    pub(super) fn fail(&self, error: &dyn std::fmt::Display) {
        if self.offline.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::error!(path = %self.path().display(), %error, "a log directory has failed; its partitions are offline");
        self.failures.noted.store(true, Ordering::Release);
        let was_last = self.failures.online.fetch_sub(1, Ordering::Relaxed) == 1;
        let fatal = if self.holds_metadata {
            Fatal::Metadata { dir: self.path().to_owned() }
        } else if was_last {
            Fatal::All { last: self.path().to_owned() }
        } else {
            return;
        };
        self.failures.end(fatal);
    }
}

/// Why a broker can't go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fatal {
    /// The directory with the metadata log has failed.
    #[error("the metadata log's directory {} has failed, the broker can't go on", dir.display())]
    Metadata {
        /// The directory.
        dir: PathBuf,
    },
    /// No log directory is left.
    #[error("all log directories have failed, {} the last, the broker can't go on", last.display())]
    All {
        /// The one that failed last.
        last: PathBuf,
    },
    /// The metadata still says that partitions of a failed directory are served here.
    #[error("the metadata could not be told for {} ms that log directories have failed, the broker can't go on", patience.as_millis())]
    Untold {
        /// `log.dir.failure.timeout.ms`.
        patience: Duration,
    },
    /// One of its threads has panicked.
    #[error("the thread {thread} has panicked, the broker can't go on; the next start recovers")]
    Panic {
        /// Its name.
        thread: &'static str,
    },
}

/// What all directories share about their failures, and what else the node can't go on with.
#[derive(Debug)]
pub(crate) struct Failures {
    metadata_dir: PathBuf,
    online: AtomicUsize,
    /// A directory has failed since [`take`](Self::take).
    noted: AtomicBool,
    /// Since when a failure can't be told.
    untold_since: Mutex<Option<Instant>>,
    fatal: watch::Sender<Option<Fatal>>,
}

impl Failures {
    /// For the directories of a node whose metadata log is in `metadata_dir`.
    pub(crate) fn new(metadata_dir: &Path) -> Arc<Self> {
        Arc::new(Self {
            metadata_dir: metadata_dir.to_owned(),
            online: AtomicUsize::new(0),
            noted: AtomicBool::new(false),
            untold_since: Mutex::new(None),
            fatal: watch::Sender::new(None),
        })
    }

    /// Whether a directory has failed that nobody has looked after yet.
    pub(super) fn has_new(&self) -> bool {
        self.noted.load(Ordering::Acquire)
    }

    /// The same, and from now on they count as looked after.
    pub(super) fn take(&self) -> bool {
        self.noted.swap(false, Ordering::AcqRel)
    }

    /// What has failed could not be told. The broker ends when that goes on for longer than `patience`.
    pub(super) fn untold(&self, patience: Duration) {
        self.noted.store(true, Ordering::Release);
        if self.untold_since.lock().get_or_insert_with(Instant::now).elapsed() >= patience {
            self.end(Fatal::Untold { patience });
        }
    }

    /// What has failed was told.
    pub(super) fn told(&self) {
        *self.untold_since.lock() = None;
    }

    /// Where the metadata log is.
    pub(super) fn metadata_dir(&self) -> &Path {
        &self.metadata_dir
    }

    /// The broker can't go on. The first reason counts.
    pub(crate) fn end(&self, fatal: Fatal) {
        self.fatal.send_if_modified(|told| {
            let first = told.is_none();
            told.get_or_insert(fatal);
            first
        });
    }

    /// Tells when and why the broker can't go on.
    pub(crate) fn fatal(&self) -> watch::Receiver<Option<Fatal>> {
        self.fatal.subscribe()
    }
}
