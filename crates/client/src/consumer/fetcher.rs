//! What reads: it puts partitions into the fetch sessions of their brokers, keeps one fetch under way at each, and takes what
//! comes apart in its turn. It is polled by whoever waits for records and has no task; what it waits for it waits for at once.

use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use milena_protocol::messages::FetchRequest;
use milena_protocol::{ApiKey, Request, Writer};
use rustc_hash::FxHashMap;
use tokio::time::{Instant, Sleep, timeout_at};

use super::config::{ConsumerConfig, IsolationLevel};
use super::group::{GroupProtocol, Identity};
use super::link::{Event, Link, Waiting};
use super::lookup::{self, Answer, Question};
use super::partitions::{Item, Partition, Partitions, Position, Slot, State};
use super::range::Decoder;
use super::records::ConsumerRecords;
use super::session::Wanted;
use crate::client::Client;
use crate::connection::Frame;
use crate::connections::Connections;
use crate::error::Error;
use crate::metadata::Topic;
use crate::metrics::ConsumerMetrics;
use crate::producer::GroupMetadata;

/// Last version of Fetch with topic names.
const TOPIC_NAMES: i16 = 12;

/// Topics, each as it was learnt or with the reason why not.
type Learnt = Vec<(Arc<str>, Result<Arc<Topic>, Error>)>;

/// Something of a partition that waits for its turn.
#[derive(Debug)]
pub(super) struct Queued {
    slot: Slot,
    reading: u32,
    item: Item,
}

pub(super) struct Fetcher {
    pub(super) client: Client,
    pub(super) config: Arc<ConsumerConfig>,
    pub(super) partitions: Partitions,
    /// Who reads, while the consumer is a member of its group.
    pub(super) member: Option<Identity>,
    connections: Connections,
    pub(super) links: FxHashMap<i32, Link>,
    queue: VecDeque<Queued>,
    /// Bytes in the queue.
    queued: usize,
    decoder: Decoder,
    pub(super) metrics: ConsumerMetrics,
    /// Partitions whose position has to be asked for, and the questions under way.
    unasked: Vec<Slot>,
    lookups: Vec<Waiting<Vec<Answer>>>,
    /// Topics to be learnt anew, and the try to do so.
    pub(super) stale: HashSet<Arc<str>>,
    learning: Option<Waiting<Learnt>>,
    learn_failures: u32,
    learn_not_before: Option<Instant>,
    /// When topics may have grown old.
    learn_at: Instant,
    /// Partitions that are not read for a while.
    backing_off: HashSet<Slot>,
    timer: Pin<Box<Sleep>>,
}

impl Fetcher {
    pub(super) fn new(client: Client, config: Arc<ConsumerConfig>) -> Self {
        let decoder = Decoder::new(config.check_crcs, config.max_records, config.decompressed_bytes);
        let max_age = client.config().metadata_max_age;
        let metrics = ConsumerMetrics::new(&client.config().client_id);
        Self {
            connections: client.own_connections(),
            client,
            config,
            partitions: Partitions::default(),
            member: None,
            links: FxHashMap::default(),
            queue: VecDeque::new(),
            queued: 0,
            decoder,
            metrics,
            unasked: Vec::new(),
            lookups: Vec::new(),
            stale: HashSet::new(),
            learning: None,
            learn_failures: 0,
            learn_not_before: None,
            learn_at: Instant::now() + max_age,
            backing_off: HashSet::new(),
            timer: Box::pin(tokio::time::sleep(max_age)),
        }
    }

    /// In whose name the group's offsets are asked for. A classic group gives them to everybody.
    fn name(&self) -> GroupMetadata {
        let member = self.member.as_ref().filter(|_| self.config.membership.protocol == GroupProtocol::Consumer);
        let nobody = || GroupMetadata::of(self.config.group.as_deref().unwrap_or_default());
        member.map_or_else(nobody, Identity::metadata)
    }

    /// The next records, or what has gone wrong. Nothing is lost when it is not asked again for a while.
    pub(super) fn poll_records(&mut self, cx: &mut Context<'_>) -> Poll<Result<ConsumerRecords, Error>> {
        loop {
            if let Some(records) = self.take() {
                // There may be room for more now.
                self.drive(cx);
                return Poll::Ready(records);
            }
            if !self.drive(cx) {
                return Poll::Pending;
            }
        }
    }

    /// Settles what has come and begins what can be begun; whether anything came.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        loop {
            let now = Instant::now();
            let mut came = self.poll_learning(cx, now);
            came |= self.poll_lookups(cx, now);
            came |= self.poll_links(cx, now);
            self.look_at_time(now);
            self.place_all(now);
            any |= came;
            // Who looks up may find that a topic has to be learnt.
            let began = self.look_up(now) | self.learn(now) | self.send(now);
            let settled = !came && !began && !self.partitions.has_dirty();
            if settled && self.set_timer(cx, now) {
                return any;
            }
        }
    }

    /// What is next in the queue.
    fn take(&mut self) -> Option<Result<ConsumerRecords, Error>> {
        loop {
            let Queued { slot, reading, item } = self.queue.front_mut()?;
            let (slot, reading) = (*slot, *reading);
            let before = item.len();
            let partition = self.partitions.get(slot);
            if !self.partitions.current(slot, reading) {
                self.pop();
                continue;
            }
            if partition.paused {
                let item = self.pop();
                self.partitions.note(slot).held.extend(item);
                continue;
            }
            let Item::Range(range) = item else {
                let Some(item) = self.pop() else { continue };
                match self.halted(slot, item) {
                    Some(error) => return Some(Err(error)),
                    None => continue,
                }
            };
            match range.next(partition.position.offset, &mut self.decoder) {
                Ok(Some(portion)) => {
                    let bytes = before - range.len();
                    self.queued -= bytes;
                    let name = partition.name.clone();
                    self.partitions.advance(slot, portion.end);
                    self.metrics.bytes_consumed_total.increment(bytes as u64);
                    self.metrics.records_consumed_total.increment(portion.index.len() as u64);
                    self.show_lag(slot);
                    if !portion.index.is_empty() {
                        return Some(Ok(self.decoder.finish(portion, name)));
                    }
                    self.decoder.give_back(Some(portion));
                }
                Ok(None) => drop(self.pop()),
                Err(corruption) => {
                    self.pop();
                    return Some(Err(self.fail_now(slot, corruption.into(), State::Ready)));
                }
            }
        }
    }

    /// How far a partition's reader is from the end that the last fetch knew.
    pub(super) fn lag(&self, slot: Slot) -> Option<i64> {
        let partition = self.partitions.get(slot);
        let ends = partition.ends.filter(|_| partition.is_positioned())?;
        let end = match self.config.isolation {
            IsolationLevel::ReadCommitted => ends.last_stable,
            IsolationLevel::ReadUncommitted => ends.high_watermark,
        };
        Some(end.saturating_sub(partition.position.offset).max(0))
    }

    fn show_lag(&mut self, slot: Slot) {
        let Some(lag) = self.lag(slot) else { return };
        let id = &self.client.config().client_id;
        let Partition { name, lag: shown, .. } = self.partitions.note(slot);
        shown.get_or_insert_with(|| crate::metrics::lag(id, name)).set(lag as f64);
    }

    fn pop(&mut self) -> Option<Item> {
        let item = self.queue.pop_front()?.item;
        self.queued -= item.len();
        Some(item)
    }

    /// It is the turn of what has gone wrong with a partition.
    fn halted(&mut self, slot: Slot, item: Item) -> Option<Error> {
        match item {
            Item::Range(_) => None,
            Item::Failed(error, then) => Some(self.fail_now(slot, error, then)),
            Item::OutOfRange => {
                let position = self.partitions.get(slot).position;
                let Some(reset) = self.config.offset_reset.reset(now_ms()) else {
                    let code = milena_protocol::ErrorCode::OFFSET_OUT_OF_RANGE;
                    return Some(self.fail_now(slot, code.into(), State::Ready));
                };
                let name = &self.partitions.get(slot).name;
                tracing::info!(partition = %name, offset = position.offset, ?reset, "the offset is not in the log");
                self.partitions.reset(slot, reset);
                None
            }
        }
    }

    /// The error that a partition's reader gets. The partition is tried again after a while.
    fn fail_now(&mut self, slot: Slot, error: Error, then: State) -> Error {
        let position = self.partitions.get(slot).position;
        self.partitions.seek(slot, then, position);
        self.back_off(slot, Instant::now());
        let partition = self.partitions.get(slot).name.clone();
        let offset = (position.offset >= 0).then_some(position.offset);
        Error::Partition { partition, offset, cause: Box::new(error) }
    }

    /// Something has gone wrong that can't be mended; its reader hears of it in its turn.
    pub(super) fn fail(&mut self, slot: Slot, error: Error) {
        let then = self.partitions.get(slot).state;
        self.halt(slot, Item::Failed(error, then));
    }

    /// Nothing more is asked about a partition until its reader has taken this.
    pub(super) fn halt(&mut self, slot: Slot, item: Item) {
        self.partitions.change(slot).state = State::Halted;
        self.push(slot, item);
    }

    pub(super) fn push(&mut self, slot: Slot, item: Item) {
        let reading = self.partitions.get(slot).reading;
        self.queued += item.len();
        self.queue.push_back(Queued { slot, reading, item });
    }

    /// A partition is read again; what came before it was paused comes first.
    pub(super) fn resume(&mut self, slot: Slot) {
        let partition = self.partitions.change(slot);
        partition.paused = false;
        let reading = partition.reading;
        for item in std::mem::take(&mut partition.held).into_iter().rev() {
            self.queued += item.len();
            self.queue.push_front(Queued { slot, reading, item });
        }
    }

    /// A partition is not read for a while.
    pub(super) fn back_off(&mut self, slot: Slot, now: Instant) {
        let backoff = self.client.config().retry_backoff;
        let partition = self.partitions.change(slot);
        partition.failures += 1;
        partition.not_before = Some(now + backoff.after(partition.failures));
    }

    fn poll_links(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let mut events = Vec::new();
        for (broker, link) in &mut self.links {
            while let Poll::Ready(event) = link.poll(cx) {
                events.push((*broker, event));
            }
        }
        let came = !events.is_empty();
        for (broker, event) in events {
            match event {
                Event::Connected => {}
                Event::NotConnected(error) => self.lost(broker, &error, now),
                Event::Answered(Ok(frame), version) => self.answered(broker, &frame, version, now),
                Event::Answered(Err(error), _) => self.lost(broker, &error, now),
            }
        }
        came
    }

    fn poll_learning(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let Some(learning) = &mut self.learning else { return false };
        let Poll::Ready(learnt) = learning.as_mut().poll(cx) else { return false };
        self.learning = None;
        self.learn_at = now + self.client.config().metadata_max_age;
        let mut failed = false;
        for (name, topic) in learnt {
            let Err(error) = topic else { continue };
            tracing::debug!(topic = &*name, %error, "not learnt");
            failed = true;
            if error.is_retriable() {
                self.stale.insert(name);
                continue;
            }
            let of_topic = |(slot, partition): (Slot, &Partition)| {
                (partition.name.topic == name && partition.state != State::Halted).then_some(slot)
            };
            let slots: Vec<Slot> = self.partitions.assigned().filter_map(of_topic).collect();
            for slot in slots {
                self.fail(slot, error.clone());
            }
        }
        self.learn_failures = if failed { self.learn_failures + 1 } else { 0 };
        let backoff = self.client.config().retry_backoff;
        self.learn_not_before = failed.then(|| now + backoff.after(self.learn_failures));
        self.partitions.change_all();
        true
    }

    /// Begins to learn what is not known; whether it did.
    fn learn(&mut self, now: Instant) -> bool {
        let may_try = self.learn_not_before.is_none_or(|not_before| not_before <= now);
        if self.stale.is_empty() || self.learning.is_some() || !may_try {
            return false;
        }
        let names = std::mem::take(&mut self.stale);
        let (client, create) = (self.client.clone(), self.config.create_topics);
        self.learning = Some(Box::pin(async move {
            let mut learnt = Vec::with_capacity(names.len());
            for name in names {
                let topic = client.topic(&name, create).await;
                learnt.push((name, topic));
            }
            learnt
        }));
        true
    }

    fn poll_lookups(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let mut came = Vec::new();
        self.lookups.retain_mut(|lookup| match lookup.as_mut().poll(cx) {
            Poll::Ready(answers) => {
                came.extend(answers);
                false
            }
            Poll::Pending => true,
        });
        let any = !came.is_empty();
        for answer in came {
            if self.partitions.current(answer.slot, answer.reading) {
                self.looked_up(answer, now);
            }
        }
        any
    }

    /// Begins to ask for positions that are not known; whether it did.
    fn look_up(&mut self, now: Instant) -> bool {
        let mut questions = Vec::new();
        for slot in std::mem::take(&mut self.unasked) {
            if let Some(question) = self.question(slot, now) {
                self.partitions.note(slot).asking = true;
                questions.push(question);
            }
        }
        let any = !questions.is_empty();
        self.lookups.extend(lookup::begin(&self.client, &self.config, &self.name(), questions));
        any
    }

    /// What has to be asked about a partition, if anybody can be asked.
    fn question(&mut self, slot: Slot, now: Instant) -> Option<Question> {
        let partition = self.partitions.get(slot);
        let (state, name, reading) = (partition.state, partition.name.clone(), partition.reading);
        if partition.asking || !partition.assigned {
            return None;
        }
        let mut question = Question { slot, reading, name, ask: state, position: partition.fetch, leader: None };
        if state == State::New && self.config.group.is_some() {
            return Some(question);
        }
        let (topic, leader, leader_epoch) = self.leader(slot, now)?;
        drop(topic);
        question.leader = Some((leader, leader_epoch));
        if state == State::New {
            let Some(reset) = self.config.offset_reset.reset(now_ms()) else {
                self.fail(slot, Error::NoOffset);
                return None;
            };
            self.partitions.note(slot).state = State::Reset(reset);
            question.ask = State::Reset(reset);
        }
        Some(question)
    }

    /// The leader of a partition and its epoch. Without one, it is learnt anew.
    fn leader(&mut self, slot: Slot, now: Instant) -> Option<(Arc<Topic>, i32, i32)> {
        let name = self.partitions.get(slot).name.clone();
        let Some(topic) = self.client.known().topic(&name.topic).cloned() else {
            self.stale.insert(name.topic);
            return None;
        };
        if topic.is_expired() {
            self.stale.insert(Arc::clone(&name.topic));
        }
        let Some((leader, known)) = topic.partition(name.partition).and_then(|known| Some((known.leader?, known)))
        else {
            topic.expire();
            self.back_off(slot, now);
            return None;
        };
        let leader_epoch = known.leader_epoch;
        Some((topic, leader, leader_epoch))
    }

    /// Puts partitions that something has changed for into the sessions where they belong.
    fn place_all(&mut self, now: Instant) {
        for slot in self.partitions.take_dirty() {
            let place = self.place(slot, now);
            let partition = self.partitions.note(slot);
            let (before, at) = (partition.at, place.as_ref().map(|(broker, _)| *broker));
            partition.at = at;
            if let Some(link) =
                before.filter(|before| Some(*before) != at).and_then(|broker| self.links.get_mut(&broker))
            {
                link.session.remove(slot);
            }
            if let Some((broker, wanted)) = place {
                self.links.entry(broker).or_default().session.set(slot, wanted);
            }
        }
    }

    /// Whose session a partition belongs into, and how.
    fn place(&mut self, slot: Slot, now: Instant) -> Option<(i32, Wanted)> {
        let partition = self.partitions.get(slot);
        if !partition.assigned || partition.state == State::Halted {
            return None;
        }
        if partition.not_before.is_some_and(|not_before| not_before > now) {
            self.backing_off.insert(slot);
            return None;
        }
        if partition.state != State::Ready {
            self.unasked.push(slot);
            return None;
        }
        if partition.paused {
            return None;
        }
        let (topic, leader, leader_epoch) = self.leader(slot, now)?;
        let known = self.client.known();
        let partition = self.partitions.note(slot);
        partition.note_topic(topic.id);
        if leader_epoch > partition.leader_epoch && partition.fetch.leader_epoch.is_some() {
            partition.state = State::Validate;
            self.unasked.push(slot);
            return None;
        }
        partition.leader_epoch = leader_epoch;
        let replica = partition.replica.filter(|(id, until)| *until > now && known.broker(*id).is_some());
        let (offset, reading) = (partition.fetch.offset, partition.reading);
        let number = partition.name.partition;
        let wanted = Wanted { topic, partition: number, offset, leader_epoch, reading };
        Some((replica.map_or(leader, |(id, _)| id), wanted))
    }

    /// Sends a fetch to every broker that has none to answer, unless enough is there; whether it sent any.
    fn send(&mut self, now: Instant) -> bool {
        if self.queued >= self.config.prefetch_bytes {
            return false;
        }
        let mut began = false;
        let (client, own, config) = (&self.client, &self.connections, &self.config);
        for (broker, link) in &mut self.links {
            if !link.is_idle(now) || !link.session.is_wanted() {
                continue;
            }
            began = true;
            if let Some(connection) = link.connection(client, own, *broker) {
                let last = if link.session.has_ids() { i16::MAX } else { TOPIC_NAMES };
                let answer = match connection.versions().highest(ApiKey::FETCH, &(0..=last)) {
                    Ok(version) => encode(link, &connection, config, version).map(|frame| (frame, version)),
                    Err(error) => Err(error),
                };
                let timeout = client.config().request_timeout + config.max_wait;
                match answer {
                    Ok(((frame, correlation), version)) => {
                        let sent = async move { connection.send_frame(frame, correlation, timeout, true).await?.await };
                        link.send(sent, version);
                    }
                    Err(error) => link.send(async move { Err(error) }, 0),
                }
            }
        }
        began
    }

    /// Partitions whose time has come are looked at again, and topics that may be old.
    fn look_at_time(&mut self, now: Instant) {
        let partitions = &mut self.partitions;
        self.backing_off.retain(|slot| {
            let due = partitions.get(*slot).not_before.is_none_or(|not_before| not_before <= now);
            if due {
                partitions.change(*slot);
            }
            !due
        });
        if self.learn_at <= now {
            self.learn_at = now + self.client.config().metadata_max_age;
            self.stale.extend(self.partitions.assigned().map(|(_, partition)| Arc::clone(&partition.name.topic)));
        }
    }

    /// Sees to being polled again when anything is due; `false` when something is due now.
    fn set_timer(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let partitions = self.backing_off.iter().filter_map(|slot| self.partitions.get(*slot).not_before);
        let links = self.links.values().filter_map(|link| link.not_before.filter(|at| *at > now));
        let learning = self.learn_not_before.filter(|at| *at > now && !self.stale.is_empty());
        let due = partitions.chain(links).chain(learning).fold(self.learn_at, Instant::min);
        if self.timer.deadline() != due {
            self.timer.as_mut().reset(due);
        }
        self.timer.as_mut().poll(cx).is_pending()
    }

    /// What went wrong with a partition before it had a position.
    fn failure(&mut self, slot: Slot) -> Option<Error> {
        let partition = self.partitions.get(slot);
        let reading = partition.reading;
        if partition.position.offset >= 0 {
            return None;
        }
        let queued = self.queue.iter().position(|queued| {
            queued.slot == slot && queued.reading == reading && matches!(queued.item, Item::Failed(..))
        });
        // What had its turn while the partition was paused is held.
        let held = partition.held.iter().position(|item| matches!(item, Item::Failed(..)));
        let item = match queued {
            Some(place) => self.queue.remove(place).map(|queued| queued.item),
            None => self.partitions.note(slot).held.remove(held?),
        };
        match item? {
            Item::Failed(error, then) => Some(self.fail_now(slot, error, then)),
            _ => None,
        }
    }

    /// Waits until the position of a partition that is assigned is known.
    pub(super) fn poll_position(&mut self, slot: Slot, cx: &mut Context<'_>) -> Poll<Result<Position, Error>> {
        loop {
            let partition = self.partitions.get(slot);
            let position = partition.position;
            if partition.is_positioned() {
                return Poll::Ready(Ok(position));
            }
            if partition.state == State::Halted {
                return Poll::Ready(self.failure(slot).map_or(Ok(position), Err));
            }
            if !self.drive(cx) {
                return Poll::Pending;
            }
        }
    }

    /// Ends the sessions, as far as the brokers can be told in time, and the connections.
    pub(super) async fn close(mut self, until: Instant) {
        let timeout = until.saturating_duration_since(Instant::now());
        let mut ends = Vec::new();
        for link in self.links.values_mut() {
            if let Some(request) = link.session.end()
                && let Some(connection) = link.open().cloned()
                && let Ok(version) = connection.versions().highest(ApiKey::FETCH, &(0..=i16::MAX))
            {
                ends.push(async move { connection.send(&request, version, timeout).await?.await });
            }
        }
        // Fetches that are under way are not waited for, but the broker answers them first.
        for end in ends {
            let _ = timeout_at(until, end).await;
        }
        let connections = self.connections.clone();
        drop(self);
        connections.close(until.saturating_duration_since(Instant::now())).await;
    }
}

/// The frame of the next fetch, and its correlation id.
fn encode(
    link: &mut Link,
    connection: &crate::connection::Connection,
    config: &ConsumerConfig,
    version: i16,
) -> Result<(Frame, i32), Error> {
    let correlation = connection.correlation();
    let encoded = link.session.request(version, config.partition_bytes, |request| {
        let request = FetchRequest {
            max_wait_ms: i32::try_from(config.max_wait.as_millis()).unwrap_or(i32::MAX),
            min_bytes: config.min_bytes,
            max_bytes: config.max_bytes,
            isolation_level: config.isolation.code(),
            rack_id: config.rack.as_str().into(),
            ..request
        };
        let mut writer = Writer::new();
        request.encode_request(&mut writer, correlation, Some(connection.client_id()), version)?;
        Ok(Frame { bytes: writer.into_bytes(), gaps: Vec::new() })
    });
    encoded.map(|frame| (frame, correlation))
}

pub(super) fn now_ms() -> i64 {
    let since: Duration = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
