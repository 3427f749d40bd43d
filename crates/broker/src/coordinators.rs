//! The coordinators of this broker: one engine for each partition that is hosted here of an internal topic. A request runs
//! on the reactor that received it, under the lock of its partition's engine; the `coordinator` thread fires timers.
//!
//! | module | what lives there |
//! |---|---|
//! | `coordinator` | all engines of one topic: which of them a key belongs to, loading, unloading |
//! | `shard` | one engine with its partition: requests, writes, answers |
//! | `load` | reading a partition into an engine |
//! | `alarm` | when the thread wakes |
//! | `groups` | what groups take from the broker |
//! | `transactions` | what transactions take from the broker, and the markers that they have written |
//! | `verify` | whether a transaction may write to partitions |

mod alarm;
mod coordinator;
mod groups;
mod load;
mod shard;
mod transactions;
mod verify;

use std::sync::Arc;
use std::thread::JoinHandle;

use milena_coordinator::group::Groups;
use milena_coordinator::transaction::Transactions;
use milena_io::Clock;
use milena_log::Unwritten;
use milena_metadata::Image;
use milena_protocol::ErrorCode;

pub use coordinator::Coordinator;
pub use shard::Answer;
pub use transactions::MarkerWriter;
pub use verify::{Begin, Support};

use crate::replicas::{Replicas, Topics};
use crate::services::Live;
use crate::storage::Failures;
use crate::vital;
use alarm::Alarm;

/// What a coordinator does beside answering requests.
trait HostedCoordinator: Send + Sync {
    /// Makes the engines follow the partitions hosted here.
    fn follow(&self, topics: &Topics, image: &Image);

    /// Topics are gone.
    fn topics_deleted(&self, names: &[String]);

    /// Fires the timers that are due, and says when to come again, in ticks.
    fn fire(&self) -> Option<i64>;

    /// Ends all engines.
    fn stop(&self);
}

/// What all engines use.
struct Shared {
    live: Arc<Live>,
    clock: Arc<dyn Clock>,
    alarm: Alarm,
}

impl Shared {
    /// The clock that timers run by, ms.
    fn ticks_ms(&self) -> i64 {
        i64::try_from(self.clock.monotonic().as_millis()).unwrap_or(i64::MAX)
    }
}

/// All coordinators.
pub struct Coordinators {
    shared: Arc<Shared>,
    groups: Arc<Coordinator<Groups>>,
    markers: Arc<MarkerWriter>,
    transactions: Coordinator<Transactions>,
}

/// The running thread.
pub struct CoordinatorThread {
    coordinators: Arc<Coordinators>,
    thread: JoinHandle<()>,
}

impl Coordinators {
    /// Coordinators without partitions.
    pub fn new(live: Arc<Live>, clock: Arc<dyn Clock>, replicas: Arc<Replicas>) -> Self {
        let shared = Arc::new(Shared { live, clock, alarm: Alarm::default() });
        let groups = Arc::new(Coordinator::new(Arc::clone(&shared), Arc::new(|_, never| match never {})));
        let markers = Arc::new(MarkerWriter::new(Arc::clone(&shared), replicas, Arc::clone(&groups)));
        let perform = markers.perform();
        Self { transactions: Coordinator::new(Arc::clone(&shared), perform), groups, markers, shared }
    }

    /// That of transactions.
    pub fn transactions(&self) -> &Coordinator<Transactions> {
        &self.transactions
    }

    /// Writes the markers that end transactions.
    pub fn markers(&self) -> &MarkerWriter {
        &self.markers
    }

    /// That of groups and their offsets.
    pub fn groups(&self) -> &Coordinator<Groups> {
        &self.groups
    }

    /// Whether groups of the consumer protocol are served.
    pub fn speaks_consumer(&self) -> bool {
        groups::speaks_consumer(&self.shared.live)
    }

    /// Groups first: the markers of transactions go to their partitions.
    fn all(&self) -> [&dyn HostedCoordinator; 2] {
        [&*self.groups, &self.transactions]
    }

    /// Makes the engines follow the partitions hosted here. Only the thread that follows the metadata calls this.
    pub fn follow(&self, topics: &Topics, image: &Image) {
        self.all().into_iter().for_each(|coordinator| coordinator.follow(topics, image));
    }

    /// Topics are gone.
    pub fn topics_deleted(&self, names: &[String]) {
        self.all().into_iter().for_each(|coordinator| coordinator.topics_deleted(names));
    }

    /// Starts the thread that fires timers.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(self: &Arc<Self>, failures: &Arc<Failures>) -> std::io::Result<CoordinatorThread> {
        let coordinators = Arc::clone(self);
        let run = move || {
            let shared = &coordinators.shared;
            while shared.alarm.begin() {
                let next = coordinators.all().into_iter().filter_map(HostedCoordinator::fire).min();
                shared.alarm.sleep(next.map(|at| at.saturating_sub(shared.ticks_ms())), next);
            }
        };
        let thread = vital::spawn(failures, "coordinator", run)?;
        Ok(CoordinatorThread { coordinators: Arc::clone(self), thread })
    }
}

impl CoordinatorThread {
    /// Ends the thread and all engines: who waits for an answer is sent to another broker.
    pub fn stop(self) {
        self.coordinators.shared.alarm.stop();
        // A panic in it has been told; there is nothing more to do.
        let _ = self.thread.join();
        self.coordinators.all().into_iter().for_each(HostedCoordinator::stop);
    }
}

/// What a broker answers when a marker, or a batch of a coordinator, may not be written.
fn marker_error(why: Unwritten) -> ErrorCode {
    match why {
        Unwritten::Duplicate { .. } | Unwritten::OutOfOrderSequence => ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
        Unwritten::InvalidProducerEpoch => ErrorCode::INVALID_PRODUCER_EPOCH,
        Unwritten::InvalidTransactionState => ErrorCode::INVALID_TXN_STATE,
        Unwritten::CoordinatorFenced => ErrorCode::TRANSACTION_COORDINATOR_FENCED,
    }
}
