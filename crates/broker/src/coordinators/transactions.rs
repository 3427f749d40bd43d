//! Transactions as the broker hosts them, and the markers that end them: they are appended to the partitions that are
//! here, by whoever has decided the end. Where `flush.messages` wants a flush first, the rest follows after it.

use std::sync::{Arc, OnceLock, Weak};

use milena_config::BrokerConfig;
use milena_coordinator::group::Groups;
use milena_coordinator::transaction::{Effect, Ended, Request, TransactionSettings, Transactions};
use milena_log::Marker;
use milena_protocol::{ErrorCode, Str};
use milena_records::{Compression, EndTransaction, TimestampType};
use parking_lot::Mutex;

use super::coordinator::{Coordinator, CoordinatorEngine, Perform};
use super::shard::Shard;
use super::{Shared, marker_error};
use crate::partition::{CommitListener, Partition};
use crate::replicas::Replicas;
use crate::services::{Live, Services};

impl CoordinatorEngine for Transactions {
    const TOPIC: &'static str = "__transaction_state";

    fn empty() -> Self {
        Self::new()
    }

    fn settings(live: &Live) -> TransactionSettings {
        let (config, image) = (live.config.load(), live.image.load());
        let feature = image.features().iter().find(|(name, _)| *name == "transaction.version");
        TransactionSettings {
            version: feature.map_or(0, |(_, level)| level),
            timeouts_interval_ms: config.transaction_abort_timed_out_cleanup_interval_ms(),
            id_expiration_ms: config.transactional_id_expiration_ms(),
            expiry_interval_ms: config.transaction_remove_expired_cleanup_interval_ms(),
        }
    }

    fn compression(_: &BrokerConfig) -> Compression {
        Compression::None
    }

    fn load_buffer_bytes(config: &BrokerConfig) -> i32 {
        config.transaction_state_log_load_buffer_size()
    }

    fn summary(&self) -> String {
        format!("{} records of {} transactional ids", self.replayed(), self.len())
    }

    fn topics_deleted(_: &[String]) -> Option<Request<'_>> {
        None
    }
}

/// Writes the markers that end transactions.
pub struct MarkerWriter {
    shared: Arc<Shared>,
    replicas: Arc<Replicas>,
    groups: Arc<Coordinator<Groups>>,
    /// Where producer ids come from. Weak: who holds it can reach the controller, whose thread ends with the last who can.
    services: OnceLock<Weak<Services>>,
}

impl MarkerWriter {
    pub(super) fn new(shared: Arc<Shared>, replicas: Arc<Replicas>, groups: Arc<Coordinator<Groups>>) -> Self {
        Self { shared, replicas, groups, services: OnceLock::new() }
    }

    /// Tells where producer ids come from.
    pub fn take_producer_ids_from(&self, services: &Arc<Services>) {
        // There is one source, told at the start.
        let _ = self.services.set(Arc::downgrade(services));
    }

    /// What transactions want done.
    pub(super) fn perform(self: &Arc<Self>) -> Perform<Transactions> {
        let writer = Arc::clone(self);
        Arc::new(move |shard, effect| match effect {
            Effect::WriteMarkers(ended) => writer.end(shard, ended),
            Effect::ProducerIdWanted(id) => writer.give_producer_id(shard, id),
        })
    }

    /// Appends the marker that ends a transaction to a partition; returns the offset after it.
    ///
    /// # Errors
    /// As a broker answers WriteTxnMarkers.
    pub fn append(&self, topic: &str, partition: i32, marker: Marker) -> Result<(Arc<Partition>, i64), ErrorCode> {
        let topics = self.replicas.topics();
        let hosted = topics.by_name(topic).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let to = hosted.served(partition)?;
        let log_append_time = to.settings().records.timestamp_type == TimestampType::LogAppendTime;
        let (marker, now_ms) = (Marker { log_append_time, ..marker }, self.shared.clock.now_ms());
        let shard = if topic == Groups::TOPIC { self.groups.shard_at(partition) } else { None };
        let end = match shard.filter(|shard| Arc::ptr_eq(&shard.partition, to)) {
            Some(shard) => shard.append_marker(&marker, now_ms)?,
            None if topic == Groups::TOPIC => return Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
            None => {
                let appended = to.append_marker(&marker, now_ms).map_err(|_| to.failure_error())?;
                appended.map_err(marker_error)?
            }
        };
        Ok((Arc::clone(to), end))
    }

    /// Writes the markers of a transaction and tells its coordinator which partitions need none any more.
    fn end(&self, shard: &Shard<Transactions>, ended: Ended) {
        let marker = Marker {
            producer_id: ended.producer.id,
            producer_epoch: ended.producer.epoch,
            end: EndTransaction { committed: ended.committed, coordinator_epoch: shard.partition.leader_epoch() },
            transaction_version: ended.version,
            log_append_time: false,
        };
        let (mut done, mut waiting) = (Vec::new(), Vec::new());
        for (topic, index) in &ended.partitions {
            match self.append(topic, *index, marker) {
                Ok((partition, end)) => waiting.push(Awaited { at: (topic.clone(), *index), partition, end }),
                Err(error) if self.needs_no_marker(topic, *index, error) => done.push((topic.clone(), *index)),
                Err(error) => {
                    tracing::warn!(id = %ended.id, %topic, index, ?error, "a marker can't be written; it is tried again");
                }
            }
        }
        let wait =
            Arc::new(MarkerWait { shard: shard.weak(), ended, state: Mutex::new(Some(Progress { done, waiting })) });
        if !wait.committed() {
            return;
        }
        let partitions: Vec<_> = match &*wait.state.lock() {
            Some(progress) => progress.waiting.iter().map(|awaited| Arc::clone(&awaited.partition)).collect(),
            None => Vec::new(),
        };
        partitions.iter().for_each(|partition| partition.add_listener(Arc::clone(&wait) as Arc<dyn CommitListener>));
        wait.committed();
    }

    /// Whether a transaction is over in a partition that takes no marker.
    fn needs_no_marker(&self, topic: &str, partition: i32, error: ErrorCode) -> bool {
        match error {
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => {
                let image = self.shared.live.image.load();
                image.topics().get(topic).and_then(|topic| topic.partition(partition)).is_none()
            }
            // The producer, or the coordinator, has gone on there: the transaction has ended.
            ErrorCode::INVALID_PRODUCER_EPOCH | ErrorCode::TRANSACTION_COORDINATOR_FENCED => true,
            _ => false,
        }
    }

    /// Gets a producer id for a transaction that can be aborted only with one; on a thread, because it may take a write to
    /// the metadata log.
    fn give_producer_id(&self, shard: &Shard<Transactions>, id: Arc<str>) {
        let (Some(services), shard) = (self.services.get().and_then(Weak::upgrade), shard.weak()) else { return };
        let give = move || {
            let waits = tokio::runtime::Builder::new_current_thread().build();
            let fresh_id = waits.ok().and_then(|waits| waits.block_on(services.next_producer_id()).ok());
            drop(services);
            if let (Some(fresh_id), Some(shard)) = (fresh_id, shard.upgrade()) {
                shard.request(Request::Abort { id: &id, fresh_id });
            }
        };
        if let Err(error) = std::thread::Builder::new().name("producer-id".into()).spawn(give) {
            tracing::error!(%error, "no thread can be started; an overdue transaction stays open until it is looked for again");
        }
    }
}

/// A marker that is appended.
struct Awaited {
    at: (String, i32),
    partition: Arc<Partition>,
    end: i64,
}

/// The markers of one transaction until all that could be appended are committed.
struct MarkerWait {
    shard: Weak<Shard<Transactions>>,
    ended: Ended,
    /// `None` when the coordinator was told.
    state: Mutex<Option<Progress>>,
}

struct Progress {
    /// Partitions that need no marker any more.
    done: Vec<(String, i32)>,
    /// Markers that are not known to be committed.
    waiting: Vec<Awaited>,
}

impl CommitListener for MarkerWait {
    fn committed(&self) -> bool {
        let done = {
            let mut state = self.state.lock();
            let Some(Progress { done, waiting }) = &mut *state else { return false };
            waiting.retain_mut(|awaited| match awaited.partition.acknowledges(awaited.end) {
                None => true,
                Some(outcome) => {
                    if outcome.is_ok() {
                        done.push(std::mem::take(&mut awaited.at));
                    }
                    false
                }
            });
            if !waiting.is_empty() {
                return true;
            }
            let done = std::mem::take(done);
            *state = None;
            done
        };
        let Some(shard) = self.shard.upgrade() else { return false };
        let partitions: Vec<(Str<'_>, i32)> = done.iter().map(|(topic, at)| (topic.as_str().into(), *at)).collect();
        shard.request(Request::Marked { id: &self.ended.id, producer: self.ended.producer, partitions: &partitions });
        false
    }
}
