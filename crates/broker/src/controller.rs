//! The thread that owns the metadata log. A change of metadata is a function from the image to records and a response:
//! the records are made durable, the image and the partitions follow them, and only then the response leaves.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use milena_controller::{Records, View};
use milena_io::Clock;
use milena_metadata::VersionedRecord;
use milena_quorum::MetadataLog;
use tokio::sync::{mpsc, oneshot};

use crate::features::{self, Registrations};
use crate::publisher::Publisher;
use crate::replica_directories;
use crate::services::Live;
use crate::vital;

/// Most changes that wait for their turn.
const QUEUE: usize = 1000;

/// Why a change was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ControllerError {
    /// The metadata log can't be written.
    #[error("the metadata log can't be written")]
    Storage,
    /// The decision has panicked.
    #[error("the controller could not decide")]
    Undecided,
    /// The broker is stopping.
    #[error("the broker is stopping")]
    Stopping,
}

type Change = Box<dyn FnOnce(View<'_>) -> (Records, Answer) + Send>;
type Answer = Box<dyn FnOnce(bool) + Send>;

/// Gives changes to the controller.
#[derive(Clone)]
pub struct ControllerHandle {
    changes: mpsc::Sender<Change>,
}

impl ControllerHandle {
    /// Makes a change: `decide` sees the newest state; what it returns beside the records comes back when the records
    /// are durable and the image has them.
    ///
    /// # Errors
    /// [`ControllerError`]; then nothing was changed.
    pub async fn change<R: Send + 'static>(
        &self,
        decide: impl FnOnce(View<'_>) -> (Records, R) + Send + 'static,
    ) -> Result<R, ControllerError> {
        let (send, receive) = oneshot::channel();
        let change = with_answer(decide, send);
        self.changes.send(change).await.map_err(|_| ControllerError::Stopping)?;
        // While the controller runs, only a panic leaves a change without an answer.
        let unanswered =
            || if self.changes.is_closed() { ControllerError::Stopping } else { ControllerError::Undecided };
        receive.await.unwrap_or_else(|_| Err(unanswered()))
    }

    /// Makes a change that nobody waits for, unless the controller has too much to do: then false.
    pub fn try_change(&self, decide: impl FnOnce(View<'_>) -> Records + Send + 'static) -> bool {
        let (send, _) = oneshot::channel();
        self.changes.try_send(with_answer(move |view| (decide(view), ()), send)).is_ok()
    }
}

fn with_answer<R: Send + 'static>(
    decide: impl FnOnce(View<'_>) -> (Records, R) + Send + 'static,
    send: oneshot::Sender<Result<R, ControllerError>>,
) -> Change {
    Box::new(move |view| {
        let (records, response) = decide(view);
        let answer = move |committed: bool| {
            // The asker may have gone away with its connection.
            let _ = send.send(committed.then_some(response).ok_or(ControllerError::Storage));
        };
        (records, Box::new(answer) as Answer)
    })
}

/// The running controller.
pub struct Controller {
    thread: JoinHandle<MetadataLog>,
}

impl Controller {
    /// Starts the thread. It ends when the last [`ControllerHandle`] is gone.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        log: MetadataLog,
        live: Arc<Live>,
        publisher: Publisher,
        node: Registrations,
        clock: Arc<dyn Clock>,
    ) -> std::io::Result<(Self, ControllerHandle)> {
        let (changes, queue) = mpsc::channel(QUEUE);
        let failures = Arc::clone(publisher.storage.failures());
        let thread = vital::spawn(&failures, "controller", move || run(log, &live, &publisher, &node, &*clock, queue))?;
        Ok((Self { thread }, ControllerHandle { changes }))
    }

    /// Waits for the end of the thread and gives the metadata log back.
    pub fn join(self) -> Option<MetadataLog> {
        self.thread.join().ok()
    }
}

fn run(
    mut log: MetadataLog,
    live: &Live,
    publisher: &Publisher,
    node: &Registrations,
    clock: &dyn Clock,
    mut queue: mpsc::Receiver<Change>,
) -> MetadataLog {
    while let Some(change) = queue.blocking_recv() {
        let (image, config) = (live.image.load_full(), live.config.load_full());
        let view = View { image: &image, kraft_version: log.kraft_version(), config: &config };
        let Some((records, answer)) = decide(change, view) else { continue };
        let committed = records.is_empty() || commit(&mut log, records, publisher, node, clock.now_ms());
        answer(committed);
        publisher.make_missing();
        replica_directories::tell(&mut log, publisher, clock.now_ms());
        if let Err(error) = log.maybe_snapshot(clock.now_ms()) {
            tracing::error!(%error, "no snapshot of the metadata could be written");
        }
    }
    log
}

/// What a change decides; `None` when it panics. It has changed nothing then, and its asker learns that there is no
/// answer: one bad decision does not end the controller.
fn decide(change: Change, view: View<'_>) -> Option<(Records, Answer)> {
    let decided = catch_unwind(AssertUnwindSafe(|| change(view)));
    decided.inspect_err(|_| tracing::error!("a decision of the controller has panicked; nothing was changed")).ok()
}

/// Makes records durable, then visible.
fn commit(
    log: &mut MetadataLog,
    mut records: Records,
    publisher: &Publisher,
    node: &Registrations,
    now_ms: i64,
) -> bool {
    let version = log.image().features().metadata_version();
    let committed = features::raise_kraft_version(log, &mut records, publisher, node, now_ms).and_then(|()| {
        let records: Vec<_> = records.into_iter().map(|record| VersionedRecord::at(record, version)).collect();
        let appended = log.append(&records, now_ms)?;
        publisher.follow(appended.loaded);
        features::follow(log, publisher, node, version, now_ms)
    });
    let Err(error) = committed else { return true };
    tracing::error!(%error, "the metadata log can't be written");
    if error.is_disk_failure() {
        publisher.storage.metadata_failed();
    }
    false
}

#[cfg(test)]
mod tests {
    use milena_config::{BrokerConfig, Settings};
    use milena_metadata::Image;

    use super::*;

    #[test]
    fn a_decision_that_panics_has_no_records_and_no_answer() {
        let (image, config) = (Image::default(), BrokerConfig::load(&Settings::new()).unwrap());
        let (send, receive) = oneshot::channel::<Result<(), ControllerError>>();
        let change = with_answer(|_| panic!("a bad decision"), send);
        assert!(decide(change, View { image: &image, kraft_version: 0, config: &config }).is_none());
        assert!(receive.blocking_recv().is_err());
    }

    #[test]
    fn who_asked_for_a_decision_that_panics_is_not_told_of_a_stop() {
        let (changes, mut queue) = mpsc::channel(1);
        let handle = ControllerHandle { changes };
        let controller = std::thread::spawn(move || {
            let (image, config) = (Image::default(), BrokerConfig::load(&Settings::new()).unwrap());
            for _ in 0..2 {
                let change = queue.blocking_recv().unwrap();
                if let Some((_, answer)) = decide(change, View { image: &image, kraft_version: 0, config: &config }) {
                    answer(true);
                }
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let bad = |_: View<'_>| -> (Records, ()) { panic!("a bad decision") };
        assert_eq!(runtime.block_on(handle.change(bad)), Err(ControllerError::Undecided));
        assert_eq!(runtime.block_on(handle.change(|_| (Records::new(), 7))), Ok(7));
        controller.join().unwrap();
        assert_eq!(runtime.block_on(handle.change(|_| (Records::new(), 7))), Err(ControllerError::Stopping));
    }
}
