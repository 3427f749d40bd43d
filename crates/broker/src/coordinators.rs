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

mod alarm;
mod coordinator;
mod groups;
mod load;
mod shard;

use std::sync::Arc;
use std::thread::JoinHandle;

use milena_coordinator::group::Groups;
use milena_io::Clock;
use milena_metadata::Image;

pub use coordinator::Coordinator;
pub use shard::Answer;

use crate::ports::Live;
use crate::replicas::Topics;
use alarm::Alarm;

/// What a coordinator does beside answering requests.
trait Hosted: Send + Sync {
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
}

/// The running thread.
pub struct CoordinatorThread {
    coordinators: Arc<Coordinators>,
    thread: JoinHandle<()>,
}

impl Coordinators {
    /// Coordinators without partitions.
    pub fn new(live: Arc<Live>, clock: Arc<dyn Clock>) -> Self {
        let shared = Arc::new(Shared { live, clock, alarm: Alarm::default() });
        Self { groups: Arc::new(Coordinator::new(Arc::clone(&shared))), shared }
    }

    /// That of groups and their offsets.
    pub fn groups(&self) -> &Coordinator<Groups> {
        &self.groups
    }

    fn all(&self) -> [&dyn Hosted; 1] {
        [&*self.groups]
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
    pub fn start(self: &Arc<Self>) -> std::io::Result<CoordinatorThread> {
        let coordinators = Arc::clone(self);
        let run = move || {
            let shared = &coordinators.shared;
            while shared.alarm.begin() {
                let next = coordinators.all().into_iter().filter_map(Hosted::fire).min();
                shared.alarm.sleep(next.map(|at| at.saturating_sub(shared.ticks_ms())), next);
            }
        };
        let thread = std::thread::Builder::new().name("coordinator".into()).spawn(run)?;
        Ok(CoordinatorThread { coordinators: Arc::clone(self), thread })
    }
}

impl CoordinatorThread {
    /// Ends the thread and all engines: who waits for an answer is sent to another broker.
    pub fn stop(self) {
        self.coordinators.shared.alarm.stop();
        // A panic in it has been printed; there is nothing more to do.
        let _ = self.thread.join();
        self.coordinators.all().into_iter().for_each(Hosted::stop);
    }
}
