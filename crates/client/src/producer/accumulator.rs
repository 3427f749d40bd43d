//! Records that wait to be sent, in batches by partition. Whoever sends a record writes it straight into the batch under
//! construction; the sender takes batches away when they are full or have waited long enough.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use milena_records::{BATCH_OVERHEAD, BatchBuilder, Compression};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::config::ProducerConfig;
use super::delivery::{Completion, Delivery, Outcome};
use super::partitioner::{self, Sticky};
use super::record::Record;
use crate::error::Error;
use crate::metadata::Topic;
use crate::metrics::ProducerMetrics;

/// A topic of the accumulator, by its place, and a partition of it.
pub(super) type Key = (usize, i32);

/// How much more than estimated a compressed batch may take.
const ESTIMATE_MARGIN: f32 = 1.05;
/// How fast the estimate of compression follows what is seen: quickly to the worse, slowly to the better.
const RATIO_WORSE: f32 = 0.05;
const RATIO_BETTER: f32 = 0.005;

/// Why a record was not taken at once.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The topic, or the partition asked for, is not known.
    Unknown,
    /// `buffer.memory` is used up.
    NoRoom,
    /// It never will be.
    Failed(Error),
}

/// A batch under construction, or waiting.
#[derive(Debug)]
pub(super) struct OpenBatch {
    /// Batches are numbered as they are begun.
    pub(super) number: u64,
    pub(super) key: Key,
    pub(super) builder: BatchBuilder,
    pub(super) completion: Arc<Completion>,
    pub(super) begun: Instant,
}

#[derive(Debug)]
pub(super) struct Accumulator {
    config: Arc<ProducerConfig>,
    template: BatchBuilder,
    pub(super) metrics: ProducerMetrics,
    state: Mutex<State>,
    /// The sender has something to do.
    pub(super) work: Notify,
    /// There may be room again.
    room: Notify,
}

#[derive(Debug, Default)]
struct State {
    topics: Vec<TopicState>,
    names: FxHashMap<Arc<str>, usize>,
    /// Partitions that have batches.
    active: Vec<Key>,
    /// Bytes of all batches that have not ended.
    used: usize,
    /// Somebody waits for room, so that every batch is sent as it is.
    starved: bool,
    /// Why no more records are taken.
    ended: Option<Error>,
    next_number: u64,
    /// Batches before this number are sent as they are.
    flush_before: u64,
    unfinished: BTreeMap<u64, Arc<Completion>>,
    /// When the sender looks again by itself.
    sender_looks_at: Option<Instant>,
}

#[derive(Debug)]
struct TopicState {
    topic: Arc<Topic>,
    queues: Vec<Queue>,
    sticky: Sticky,
    /// Compressed bytes for each byte, as far as is known.
    ratio: f32,
}

#[derive(Debug, Default)]
struct Queue {
    batches: VecDeque<OpenBatch>,
    is_active: bool,
}

/// What the sender found.
#[derive(Debug, Default)]
pub(super) struct Ready {
    pub(super) batches: Vec<OpenBatch>,
    /// When a batch that was not yet ready will be.
    pub(super) look_at: Option<Instant>,
}

impl Accumulator {
    pub(super) fn new(config: Arc<ProducerConfig>, metrics: ProducerMetrics) -> Self {
        let template = BatchBuilder::new()
            .compression(config.compression, config.level)
            .transactional(config.transactional_id.is_some());
        Self { config, template, metrics, state: Mutex::default(), work: Notify::new(), room: Notify::new() }
    }

    /// Writes a record into its batch.
    pub(super) fn append(&self, record: &Record<'_>, timestamp: i64) -> Result<Delivery, Refusal> {
        let size = record.size_bound();
        self.check_size(size)?;
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if let Some(error) = &state.ended {
            return Err(Refusal::Failed(error.clone()));
        }
        let place = *state.names.get(record.topic).ok_or(Refusal::Unknown)?;
        if state.used + size + BATCH_OVERHEAD > self.config.buffer_memory {
            state.starved = true;
            drop(guard);
            self.work.notify_one();
            return Err(Refusal::NoRoom);
        }
        let (partition, sticky) = self.partition(&mut state.topics[place], record)?;
        let (begun, full) = self.ensure_batch(state, (place, partition), size);
        let topic = &mut state.topics[place];
        let batch = topic.queues[partition as usize].batches.back_mut().expect("there is one with room");
        let before = if begun { 0 } else { batch.builder.uncompressed_size() };
        let index = batch.builder.count();
        batch.builder.push_named(timestamp, record.key, record.value, record.headers);
        let delivery = Delivery::new(Arc::clone(&batch.completion), index, timestamp);
        let added = batch.builder.uncompressed_size() - before;
        let now_full = topic.ratio * batch.builder.uncompressed_size() as f32 >= self.config.batch_size as f32;
        let linger_ends = batch.begun + self.config.linger;
        let number = batch.number;
        if sticky {
            topic.sticky.added(added, self.config.batch_size, now_full || full);
        }
        state.used += added;
        let at_once = now_full || full || state.starved || number < state.flush_before;
        let wake = (begun || at_once) && state.wakes_sender(if at_once { None } else { Some(linger_ends) });
        drop(guard);
        if wake {
            self.work.notify_one();
        }
        Ok(delivery)
    }

    fn check_size(&self, size: usize) -> Result<(), Refusal> {
        let size = size + BATCH_OVERHEAD;
        for (limit, key) in
            [(self.config.max_request_size, "max.request.size"), (self.config.buffer_memory, "buffer.memory")]
        {
            if size > limit {
                return Err(Refusal::Failed(Error::RecordTooLarge { size, limit, key }));
            }
        }
        Ok(())
    }

    /// The record's partition, and whether nothing but the producer chose it.
    fn partition(&self, topic: &mut TopicState, record: &Record<'_>) -> Result<(i32, bool), Refusal> {
        let count = topic.topic.partitions.len();
        if count == 0 {
            return Err(Refusal::Unknown);
        }
        if let Some(partition) = record.partition {
            let exists = usize::try_from(partition).is_ok_and(|partition| partition < count);
            return if exists { Ok((partition, false)) } else { Err(Refusal::Unknown) };
        }
        if let Some(partitioner) = &self.config.partitioner {
            if let Some(partition) = partitioner.partition(&topic.topic, record.key, record.value) {
                let exists = usize::try_from(partition).is_ok_and(|partition| partition < count);
                let no_such = || Error::NoSuchPartition { partition, of: count };
                return if exists { Ok((partition, false)) } else { Err(Refusal::Failed(no_such())) };
            }
        } else if let Some(key) = record.key.filter(|_| !self.config.ignore_keys) {
            return Ok((partitioner::partition_of_key(key, count), false));
        }
        let TopicState { topic, queues, sticky, .. } = topic;
        let led = topic.partitions.iter().zip(&*queues).filter(|(partition, _)| partition.leader.is_some());
        let waiting =
            led.map(|(partition, queue)| (partition.index, if self.config.adaptive { queue.batches.len() } else { 0 }));
        let choose = || {
            let chosen = partitioner::weighted(waiting, |total| fastrand::usize(..total));
            chosen.unwrap_or_else(|| fastrand::i32(0..count as i32))
        };
        Ok((sticky.current(choose), true))
    }

    /// Sees to it that the partition's last batch has room. Whether it was begun now, and whether one became full by that.
    fn ensure_batch(&self, state: &mut State, key: Key, size: usize) -> (bool, bool) {
        let topic = &mut state.topics[key.0];
        let margin = if self.config.compression == Compression::None { 1.0 } else { ESTIMATE_MARGIN };
        let queue = &mut topic.queues[key.1 as usize];
        if let Some(batch) = queue.batches.back() {
            let then = (batch.builder.uncompressed_size() + size) as f32 * topic.ratio * margin;
            if then <= self.config.batch_size as f32 {
                return (false, false);
            }
        }
        let full = !queue.batches.is_empty();
        let completion = Arc::new(Completion::new(Arc::clone(&topic.topic.name), key.1));
        let number = state.next_number;
        state.next_number += 1;
        state.unfinished.insert(number, Arc::clone(&completion));
        let mut builder = self.template.clone();
        // A busy partition fills its batches: no need to grow them step by step.
        builder.reserve(if full { self.config.batch_size.max(size + BATCH_OVERHEAD) } else { size + BATCH_OVERHEAD });
        queue.batches.push_back(OpenBatch { number, key, builder, completion, begun: Instant::now() });
        if !queue.is_active {
            queue.is_active = true;
            state.active.push(key);
        }
        (true, full)
    }

    /// Learns of a topic, or what is new of it. A topic keeps its place, and partitions that are gone keep their batches.
    pub(super) fn put_topic(&self, topic: Arc<Topic>) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let place = *state.names.entry(Arc::clone(&topic.name)).or_insert_with(|| {
            let new =
                TopicState { topic: Arc::clone(&topic), queues: Vec::new(), sticky: Sticky::default(), ratio: 1.0 };
            state.topics.push(new);
            state.topics.len() - 1
        });
        let known = &mut state.topics[place];
        let partitions = known.queues.len().max(topic.partitions.len());
        known.queues.resize_with(partitions, Queue::default);
        known.topic = topic;
    }

    /// A topic by its place.
    pub(super) fn topic(&self, place: usize) -> Arc<Topic> {
        Arc::clone(&self.state.lock().topics[place].topic)
    }

    /// Where batches begin from.
    pub(super) fn template(&self) -> &BatchBuilder {
        &self.template
    }

    /// Topics with a partition that this broker leads.
    pub(super) fn topics_led_by(&self, broker: i32) -> Vec<(usize, Arc<Topic>)> {
        let state = self.state.lock();
        let led = state
            .topics
            .iter()
            .enumerate()
            .filter(|(_, known)| known.topic.partitions.iter().any(|partition| partition.leader == Some(broker)));
        led.map(|(place, known)| (place, Arc::clone(&known.topic))).collect()
    }

    /// Takes batches that are ready and that `may_take` wants, at most one a partition. What is asked is the batch's place,
    /// what is known of its topic, and its size before compression.
    pub(super) fn take_ready(&self, now: Instant, mut may_take: impl FnMut(Key, &Arc<Topic>, usize) -> bool) -> Ready {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let mut ready = Ready::default();
        let (starved, flush_before) = (state.starved || state.ended.is_some(), state.flush_before);
        let topics = &mut state.topics;
        state.active.retain(|&key| {
            let topic = &mut topics[key.0];
            let queue = &mut topic.queues[key.1 as usize];
            let Some(first) = queue.batches.front() else {
                queue.is_active = false;
                return false;
            };
            let size = first.builder.uncompressed_size();
            let full = queue.batches.len() > 1 || topic.ratio * size as f32 >= self.config.batch_size as f32;
            let linger_ends = first.begun + self.config.linger;
            if full || starved || first.number < flush_before || linger_ends <= now {
                if may_take(key, &topic.topic, size) {
                    ready.batches.extend(queue.batches.pop_front());
                    if let Some(next) = queue.batches.front() {
                        ready.sooner(next.begun + self.config.linger);
                    }
                }
            } else {
                ready.sooner(linger_ends);
            }
            true
        });
        // The same partitions must not always come first.
        if let Some(middle) = state.active.len().checked_sub(1).filter(|last| *last > 0) {
            state.active.rotate_left(1 + fastrand::usize(..middle));
        }
        state.sender_looks_at = None;
        self.show_room(state);
        ready
    }

    /// The sender waits, and looks again at this time if nobody wakes it.
    pub(super) fn sender_waits(&self, until: Instant) {
        self.state.lock().sender_looks_at = Some(until);
    }

    /// A batch was compressed: from so many bytes to so many.
    pub(super) fn note_ratio(&self, place: usize, from: usize, to: usize) {
        let seen = to as f32 / from.max(1) as f32;
        let topic = &mut self.state.lock().topics[place];
        topic.ratio = if seen > topic.ratio {
            (topic.ratio + RATIO_WORSE).max(seen)
        } else {
            (topic.ratio - RATIO_BETTER).max(seen)
        };
    }

    /// Batches of this topic are too large for the broker: nothing is hoped of compression.
    pub(super) fn forget_ratio(&self, place: usize) {
        let ratio = &mut self.state.lock().topics[place].ratio;
        *ratio = ratio.max(1.0);
    }

    /// A number for a part of a batch that was split.
    pub(super) fn number_part(&self, completion: &Arc<Completion>) -> u64 {
        let mut state = self.state.lock();
        let number = state.next_number;
        state.next_number += 1;
        state.unfinished.insert(number, Arc::clone(completion));
        number
    }

    /// A batch has ended, and gives back so many bytes.
    pub(super) fn finished(&self, number: u64, memory: usize) {
        let mut state = self.state.lock();
        state.unfinished.remove(&number);
        state.used -= memory;
        self.show_room(&state);
        let waited_for = std::mem::take(&mut state.starved);
        drop(state);
        if waited_for {
            self.room.notify_waiters();
        }
    }

    fn show_room(&self, state: &State) {
        self.metrics.buffer_available_bytes.set(self.config.buffer_memory.saturating_sub(state.used) as f64);
    }

    /// Ends batches that were begun before `oldest` and not yet taken.
    pub(super) fn take_older_than(&self, oldest: Instant) -> Vec<OpenBatch> {
        let mut state = self.state.lock();
        let State { active, topics, .. } = &mut *state;
        let mut old = Vec::new();
        for (place, partition) in active.iter() {
            let batches = &mut topics[*place].queues[*partition as usize].batches;
            while batches.front().is_some_and(|batch| batch.begun <= oldest) {
                old.extend(batches.pop_front());
            }
        }
        old
    }

    /// Takes all batches of some partitions.
    pub(super) fn take_where(&self, which: impl Fn(&Key) -> bool) -> Vec<OpenBatch> {
        let mut state = self.state.lock();
        let State { active, topics, .. } = &mut *state;
        let which = active.iter().filter(|key| which(key));
        which
            .flat_map(|(place, partition)| std::mem::take(&mut topics[*place].queues[*partition as usize].batches))
            .collect()
    }

    /// When the oldest batch that was not yet taken was begun.
    pub(super) fn oldest(&self) -> Option<Instant> {
        let state = self.state.lock();
        let first = |&(place, partition): &Key| state.topics[place].queues[partition as usize].batches.front();
        state.active.iter().filter_map(first).map(|batch| batch.begun).min()
    }

    /// Waits until [`append`](Self::append) may find room. To be made before the append that finds none.
    pub(super) fn room(&self) -> tokio::sync::futures::Notified<'_> {
        self.room.notified()
    }

    /// Sends what is there as it is; the ends of all batches so far.
    pub(super) fn flush(&self) -> Vec<Arc<Completion>> {
        let mut state = self.state.lock();
        state.flush_before = state.next_number;
        let unfinished = state.unfinished.values().cloned().collect();
        drop(state);
        self.work.notify_one();
        unfinished
    }

    /// Takes no more records: those who try are told this. What is there is sent as it is.
    pub(super) fn end(&self, error: Error) {
        self.state.lock().ended.get_or_insert(error);
        self.room.notify_waiters();
        self.work.notify_one();
    }

    /// Nobody sends any more: all batches end with this error.
    pub(super) fn abandon(&self, error: &Error) {
        self.end(error.clone());
        let unfinished = std::mem::take(&mut self.state.lock().unfinished);
        for completion in unfinished.values() {
            completion.complete(Outcome::Failed { error: error.clone(), records: None });
        }
    }

    /// Whether there are batches without an end.
    pub(super) fn has_unfinished(&self) -> bool {
        !self.state.lock().unfinished.is_empty()
    }

    /// Whether no more records come and all batches have ended.
    pub(super) fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.ended.is_some() && state.unfinished.is_empty()
    }
}

impl State {
    /// Whether the sender must be woken to do something at `at`, or at once.
    fn wakes_sender(&mut self, at: Option<Instant>) -> bool {
        // It may have looked already and be about to wait.
        let Some(looks_at) = self.sender_looks_at else { return true };
        if at.is_some_and(|at| at >= looks_at) {
            return false;
        }
        self.sender_looks_at = None;
        true
    }
}

impl Ready {
    fn sooner(&mut self, at: Instant) {
        self.look_at = Some(self.look_at.map_or(at, |before| before.min(at)));
    }
}
