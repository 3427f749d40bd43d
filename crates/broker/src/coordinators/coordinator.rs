//! All engines of one internal topic: which of them a key belongs to, loading and unloading.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use arc_swap::ArcSwap;
use milena_config::BrokerConfig;
use milena_coordinator::{Engine, Loader, partition_for};
use milena_log::VerificationGuard;
use milena_metadata::Image;
use milena_protocol::ErrorCode;
use milena_records::Compression;
use parking_lot::Mutex;

use super::shard::{Answer, Shard};
use super::{HostedCoordinator, Shared, load};
use crate::partition::Partition;
use crate::replicas::Topics;
use crate::services::Live;

/// Does what an engine wants done.
pub(super) type Perform<E> = Arc<dyn Fn(&Shard<E>, <E as Engine>::Effect) + Send + Sync>;

/// An engine as the broker hosts it.
pub trait CoordinatorEngine: Engine<Reply: Send, Timer: Send, After: Send, Effect: Send> + Send + 'static {
    /// The topic that it lives on.
    const TOPIC: &'static str;

    /// An engine that knows nothing.
    fn empty() -> Self;

    /// What it takes from the broker's configuration and the cluster's metadata, as of now.
    fn settings(live: &Live) -> Self::Settings;

    /// The codec of its records.
    fn compression(config: &BrokerConfig) -> Compression;

    /// How much of a partition is read at once when it is loaded, bytes.
    fn load_buffer_bytes(config: &BrokerConfig) -> i32;

    /// What was loaded, for the log.
    fn summary(&self) -> String;

    /// The request that says that topics are gone, if that matters.
    fn topics_deleted(names: &[String]) -> Option<Self::Request<'_>>;
}

/// The engines of one topic.
pub struct Coordinator<E: CoordinatorEngine> {
    shared: Arc<Shared>,
    perform: Perform<E>,
    shards: ArcSwap<Shards<E>>,
    /// Threads that load.
    loading: Mutex<Vec<JoinHandle<()>>>,
}

/// The engines by partition, as of now.
struct Shards<E: CoordinatorEngine> {
    /// How many partitions the topic has; 0 when it does not exist.
    partitions: i32,
    by_partition: Vec<Option<Arc<Shard<E>>>>,
}

impl<E: CoordinatorEngine> Coordinator<E> {
    pub(super) fn new(shared: Arc<Shared>, perform: Perform<E>) -> Self {
        let shards = ArcSwap::from_pointee(Shards { partitions: 0, by_partition: Vec::new() });
        Self { shared, perform, shards, loading: Mutex::default() }
    }

    /// The partition that a key belongs to; `None` while there is no topic.
    pub fn partition_of(&self, key: &str) -> Option<i32> {
        let partitions = self.shards.load().partitions;
        (partitions > 0).then(|| partition_for(key, partitions))
    }

    /// What the engines take from the broker's configuration and the metadata, as of now.
    pub fn settings(&self) -> E::Settings {
        E::settings(&self.shared.live)
    }

    /// Asks the engine that a key belongs to.
    pub fn request(&self, key: &str, request: E::Request<'_>) -> Answer<E::Reply> {
        let shards = self.shards.load();
        match shards.by_partition.get(partition_for(key, shards.partitions) as usize) {
            Some(Some(shard)) => shard.request(request),
            _ => Answer::Now(Err(ErrorCode::NOT_COORDINATOR)),
        }
    }

    /// As [`request`](Self::request), with a guard of the partition for a request that begins a transaction in it.
    pub fn request_verified(
        &self,
        key: &str,
        request: E::Request<'_>,
        guard: Option<VerificationGuard>,
    ) -> Answer<E::Reply> {
        match self.shard(key) {
            Some(shard) => shard.request_verified(request, guard),
            None => Answer::Now(Err(ErrorCode::NOT_COORDINATOR)),
        }
    }

    /// The partition that a key belongs to, if it is here.
    pub fn partition(&self, key: &str) -> Option<Arc<Partition>> {
        self.shard(key).map(|shard| Arc::clone(&shard.partition))
    }

    fn shard(&self, key: &str) -> Option<Arc<Shard<E>>> {
        let shards = self.shards.load();
        shards.by_partition.get(partition_for(key, shards.partitions) as usize).cloned().flatten()
    }

    /// The engine on a partition.
    pub(super) fn shard_at(&self, partition: i32) -> Option<Arc<Shard<E>>> {
        self.shards.load().by_partition.get(usize::try_from(partition).ok()?).cloned().flatten()
    }

    /// Asks every engine that is here.
    pub fn request_all<'r>(&self, request: impl Fn() -> E::Request<'r>) -> Vec<Answer<E::Reply>> {
        self.shards.load().by_partition.iter().flatten().map(|shard| shard.request(request())).collect()
    }

    /// The engines that `topics` has partitions for: those that are there already, and new ones.
    fn shards_of(&self, topics: &Topics, partitions: i32) -> (Shards<E>, VecDeque<Arc<Shard<E>>>) {
        let before = self.shards.load();
        let mut new = VecDeque::new();
        let mut shard_of = |at: usize, partition: &Arc<Partition>| {
            let known = before.by_partition.get(at).cloned().flatten();
            known.filter(|shard| Arc::ptr_eq(&shard.partition, partition)).unwrap_or_else(|| {
                let shard = Shard::new(Arc::clone(partition), Arc::clone(&self.shared), Arc::clone(&self.perform));
                new.push_back(Arc::clone(&shard));
                shard
            })
        };
        let hosted = topics.by_name(E::TOPIC);
        let here = |at: i32| hosted.and_then(|topic| topic.partition(at));
        let by_partition = (0..partitions).map(|at| here(at).map(|here| shard_of(at as usize, here))).collect();
        (Shards { partitions, by_partition }, new)
    }

    /// Loads engines on threads of their own, which end with it, or on this one if there can be none. One without records is there at once.
    fn load(&self, mut new: VecDeque<Arc<Shard<E>>>) {
        new.retain(|shard| {
            let has_records = load::has_records(&shard.partition);
            if !has_records {
                shard.loaded(|input| Loader::new(E::empty(), load::MAX_DECOMPRESSED_BYTES).finish(input));
            }
            has_records
        });
        if new.is_empty() {
            return;
        }
        let most = usize::try_from(self.shared.live.config.load().group_coordinator_threads()).unwrap_or(1);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = most.min(cores).min(new.len()).max(1);
        let queue = Mutex::new(new);
        let run = move || {
            while let Some(shard) = { queue.lock().pop_front() } {
                load::load(&shard);
            }
        };
        let spawn =
            |number: usize, run: Run| std::thread::Builder::new().name(format!("load-{number}")).spawn(move || run());
        let started = run_on_threads(threads, Arc::new(run), spawn);
        self.loading.lock().extend(started);
    }
}

/// What several threads do together.
type Run = Arc<dyn Fn() + Send + Sync>;

/// Starts threads that `run`; if there can be none, this one does.
fn run_on_threads(
    threads: usize,
    run: Run,
    spawn: impl Fn(usize, Run) -> io::Result<JoinHandle<()>>,
) -> Vec<JoinHandle<()>> {
    let started = (0..threads).map(|number| spawn(number, Arc::clone(&run)));
    let failed = |error: &io::Error| tracing::error!(%error, "no thread can be started to load a coordinator");
    let started: Vec<_> = started.filter_map(|thread| thread.inspect_err(failed).ok()).collect();
    if started.is_empty() {
        run();
    }
    started
}

impl<E: CoordinatorEngine> HostedCoordinator for Coordinator<E> {
    fn follow(&self, topics: &Topics, image: &Image) {
        let partitions = image.topics().get(E::TOPIC).map_or(0, |topic| topic.partitions.len());
        let (shards, new) = self.shards_of(topics, i32::try_from(partitions).unwrap_or(0));
        if new.is_empty() && shards.partitions == self.shards.load().partitions {
            return;
        }
        let before = self.shards.swap(Arc::new(shards));
        for shard in before.by_partition.iter().flatten().filter(|shard| shard.partition.is_retired()) {
            shard.end();
        }
        self.load(new);
        if let Some(at) = self.fire() {
            self.shared.alarm.ring(at);
        }
    }

    fn topics_deleted(&self, names: &[String]) {
        self.shards.load().by_partition.iter().flatten().for_each(|shard| shard.topics_deleted(names));
    }

    fn fire(&self) -> Option<i64> {
        self.shards.load().by_partition.iter().flatten().filter_map(|shard| shard.fire()).min()
    }

    fn stop(&self) {
        self.shards.load().by_partition.iter().flatten().for_each(|shard| shard.end());
        for thread in self.loading.lock().drain(..) {
            // A panic in it has been printed; there is nothing more to do.
            let _ = thread.join();
        }
        self.shards.store(Arc::new(Shards { partitions: 0, by_partition: Vec::new() }));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn what_no_thread_can_be_started_for_is_done_here() {
        let done = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&done);
        let run: Run = Arc::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let none = |_, _| Err(io::ErrorKind::OutOfMemory.into());
        assert!(run_on_threads(2, Arc::clone(&run), none).is_empty());
        assert_eq!(done.load(Ordering::SeqCst), 1);
        let only_one =
            |number, run: Run| if number == 0 { Ok(std::thread::spawn(move || run())) } else { none(number, run) };
        run_on_threads(2, run, only_one).into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(done.load(Ordering::SeqCst), 2);
    }
}
