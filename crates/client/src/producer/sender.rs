//! The task behind a producer: takes batches that are ready, sends them to their leaders, and settles what is answered. All
//! that it waits for it waits for at once, and nothing it does blocks.

mod link;
mod partition;
mod request;
mod settle;
mod transaction;

use std::collections::{HashMap, HashSet};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use milena_protocol::messages::InitProducerIdRequest;
use milena_records::{BatchBuilder, Compressor};
use tokio::time::{Instant, sleep_until};

use super::accumulator::{Accumulator, Key, OpenBatch};
use super::batch::SealedBatch;
use super::config::ProducerConfig;
use super::sequences::Identity;
use super::transaction::{Phase, Transactions};
use crate::call::Target;
use crate::client::Client;
use crate::error::{Error, check};
use crate::metadata::Topic;
use crate::metrics::ms;
use link::{Event, Link};
use partition::Partition;
use transaction::Transactional;

type Waiting<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Drop for Sender {
    fn drop(&mut self) {
        self.accumulator.abandon(&Error::Closed);
        if let Some(transactional) = &self.transactional {
            transactional.shared.fail_for_ever(&Error::Closed);
        }
    }
}

/// Topics by place, each as it was learnt or with the reason why not.
type Learnt = Vec<(usize, Result<Arc<Topic>, Error>)>;

/// What is sent at once: a request for each broker, with one batch a partition.
struct Round {
    now: Instant,
    requests: HashMap<i32, Vec<(Arc<Topic>, SealedBatch)>>,
    /// Bytes for each broker.
    sizes: HashMap<i32, usize>,
}

pub(super) struct Sender {
    client: Client,
    config: Arc<ProducerConfig>,
    accumulator: Arc<Accumulator>,
    template: BatchBuilder,
    compressor: Compressor,
    links: HashMap<i32, Link>,
    partitions: HashMap<Key, Partition>,
    /// Partitions with batches to be sent again.
    again: HashSet<Key>,
    /// Of an idempotent producer, once it has one.
    identity: Option<Identity>,
    identifying: Option<Waiting<Result<(Identity, bool), Error>>>,
    transactional: Option<Transactional>,
    /// There is no more use in going on.
    failed: bool,
    /// Topics to be learnt anew, and the try to do so.
    stale: HashSet<usize>,
    learning: Option<Waiting<Learnt>>,
    /// No new try of anything that has just failed before this.
    not_before: Option<Instant>,
    failures: u32,
    /// No batch expires before this.
    expires_at: Instant,
}

impl Sender {
    pub(super) fn new(
        client: Client,
        config: Arc<ProducerConfig>,
        accumulator: Arc<Accumulator>,
        transactions: Option<Arc<Transactions>>,
    ) -> Self {
        let expires_at = Instant::now() + config.delivery_timeout;
        let template = accumulator.template().clone();
        let id = config.transactional_id.clone();
        let transactional = transactions.zip(id).map(|(shared, id)| Transactional::new(shared, id));
        Self {
            client,
            config,
            accumulator,
            template,
            compressor: Compressor::new(),
            links: HashMap::new(),
            partitions: HashMap::new(),
            again: HashSet::new(),
            identity: None,
            identifying: None,
            transactional,
            failed: false,
            stale: HashSet::new(),
            learning: None,
            not_before: None,
            failures: 0,
            expires_at,
        }
    }

    /// Works until no more records come and all have their end.
    pub(super) async fn run(mut self) {
        loop {
            let now = Instant::now();
            if self.expires_at <= now {
                self.expire(now);
                self.expires_at = self.next_expiry().unwrap_or(now + self.config.delivery_timeout);
            }
            self.identify(now);
            self.go_on_with_transaction(now);
            let look_at = self.send_ready(now);
            self.go_on_with_transaction(now);
            self.learn(now);
            if self.is_over() {
                return;
            }
            let throttled = self.links.values().filter_map(|link| link.throttled(now)).min();
            let dues = [look_at, self.not_before.filter(|at| *at > now), self.next_retry(now), throttled];
            let until = dues.into_iter().flatten().fold(self.expires_at, Instant::min);
            self.accumulator.sender_waits(until);
            self.wait(until).await;
        }
    }

    /// Whether nothing is left to do: no more records come, all have their end, and so has the transaction.
    fn is_over(&self) -> bool {
        let ending = |transactional: &Transactional| matches!(transactional.shared.phase(), Phase::Ending { .. });
        self.accumulator.is_over() && !self.transactional.as_ref().is_some_and(ending)
    }

    /// Waits until anything has happened, and settles it.
    async fn wait(&mut self, until: Instant) {
        let accumulator = Arc::clone(&self.accumulator);
        let mut work = pin!(accumulator.work.notified());
        let mut timer = pin!(sleep_until(until));
        poll_fn(|cx| {
            let mut happened = work.as_mut().poll(cx).is_ready();
            happened |= self.poll_links(cx);
            happened |= self.poll_identity(cx);
            happened |= self.poll_transaction(cx);
            happened |= self.poll_learning(cx);
            if happened || timer.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn poll_links(&mut self, cx: &mut Context<'_>) -> bool {
        let mut events = Vec::new();
        for (broker, link) in &mut self.links {
            while let Poll::Ready(event) = link.poll(cx) {
                events.push((*broker, event));
            }
        }
        let happened = !events.is_empty();
        for (broker, event) in events {
            match event {
                Event::Connected => {}
                Event::NotConnected(error) => self.not_connected(broker, &error),
                Event::Answered(request, answer) => self.answered(request, answer),
            }
        }
        happened
    }

    fn not_connected(&mut self, broker: i32, error: &Error) {
        tracing::debug!(broker, %error, "no connection for producing");
        self.client.note_error(Target::Broker(broker), error);
        for (key, topic) in self.accumulator.topics_led_by(broker) {
            topic.expire();
            self.stale.insert(key);
        }
    }

    fn back_off(&mut self) {
        self.failures += 1;
        self.not_before = Some(Instant::now() + self.client.config().retry_backoff.after(self.failures));
    }

    fn may_try(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|not_before| not_before <= now)
    }

    /// Sends all that is ready and may be sent; when to look again.
    fn send_ready(&mut self, now: Instant) -> Option<Instant> {
        loop {
            let mut round = Round { now, requests: HashMap::new(), sizes: HashMap::new() };
            self.take_again(&mut round);
            let look_at = self.take_ready(&mut round);
            if round.requests.is_empty() {
                return look_at;
            }
            for (broker, batches) in round.requests {
                self.send(broker, batches);
            }
        }
    }

    /// Batches that failed and whose time has come again.
    fn take_again(&mut self, round: &mut Round) {
        let keys: Vec<Key> = self.again.iter().copied().collect();
        for key in keys {
            let topic = self.accumulator.topic(key.0);
            let Some(size) = self.partitions.get(&key).and_then(|p| p.again.front()).map(|batch| batch.bytes.len())
            else {
                self.again.remove(&key);
                continue;
            };
            let Some(broker) = self.ready_broker(key, &topic, size, true, round) else { continue };
            if let Some(partition) = self.partitions.get_mut(&key)
                && let Some(batch) = partition.again.pop_front()
            {
                partition.sending(broker);
                round.requests.entry(broker).or_default().push((topic, batch));
            }
        }
    }

    /// New batches that are ready; when others will be.
    fn take_ready(&mut self, round: &mut Round) -> Option<Instant> {
        let accumulator = Arc::clone(&self.accumulator);
        let mut brokers = Vec::new();
        let ready = accumulator.take_ready(round.now, |key, topic, size| {
            // One batch a partition: those that are sent again have come first.
            let again = || round.requests.values().flatten().any(|(_, batch)| batch.key == key);
            if !self.again.is_empty() && again() {
                return false;
            }
            let broker = self.ready_broker(key, topic, size, false, round);
            brokers.extend(broker.map(|broker| (Arc::clone(topic), broker)));
            broker.is_some()
        });
        for ((topic, broker), open) in brokers.into_iter().zip(ready.batches) {
            self.partitions.entry(open.key).or_default().sending(broker);
            if let Some(batch) = self.seal(open) {
                round.requests.entry(broker).or_default().push((topic, batch));
            }
        }
        ready.look_at
    }

    /// The partition's leader, if a batch of this size can be sent to it.
    fn ready_broker(
        &mut self,
        key: Key,
        topic: &Arc<Topic>,
        size: usize,
        again: bool,
        round: &mut Round,
    ) -> Option<i32> {
        if !topic.is_fresh(self.client.oldest()) {
            self.stale.insert(key.0);
        }
        let leader = topic.leader(key.1).filter(|_| !topic.is_expired());
        let Some(broker) = leader else {
            topic.expire();
            self.stale.insert(key.0);
            return None;
        };
        let partition = self.partitions.entry(key).or_default();
        if !partition.may_send(broker, again, round.now) {
            return None;
        }
        if self.config.idempotence && !self.settle_sequences(key) {
            return None;
        }
        let link = self.links.entry(broker).or_default();
        if link.in_flight.len() >= self.config.max_in_flight {
            return None;
        }
        let connection = link.connection(&self.client, broker)?;
        if connection.throttle().until(round.now).is_some() {
            return None;
        }
        let sum = round.sizes.entry(broker).or_default();
        if *sum > 0 && *sum + size > self.config.max_request_size {
            return None;
        }
        if self.transactional.as_mut().is_some_and(|transactional| !transactional.may_send(key)) {
            return None;
        }
        *sum += size;
        Some(broker)
    }

    /// Whether the partition's sequences are in order; begins a new epoch where they need one.
    fn settle_sequences(&mut self, key: Key) -> bool {
        let Some(identity) = self.identity else { return false };
        let partition = self.partitions.entry(key).or_default();
        if !partition.is_idle() {
            return partition.sequences.are_sound(identity);
        }
        // A transactional producer has its new epoch when the transaction is aborted.
        if partition.settle(identity) || self.transactional.is_some() {
            return partition.sequences.are_sound(identity);
        }
        tracing::debug!(?key, "a new producer epoch");
        self.identity = identity.epoch.checked_add(1).map(|epoch| Identity { epoch, ..identity });
        self.identity.is_some_and(|identity| self.partitions.entry(key).or_default().settle(identity))
    }

    /// Compresses a batch and gives it its sequence.
    fn seal(&mut self, open: OpenBatch) -> Option<SealedBatch> {
        let (key, size) = (open.key, open.builder.uncompressed_size());
        let partition = self.partitions.entry(key).or_default();
        let records = open.builder.count();
        let identity = partition.sequences.identity().filter(|_| self.config.idempotence);
        let place = identity.map(|identity| (identity, partition.sequences.assign(records)));
        match SealedBatch::seal(open, place, &mut self.compressor) {
            Ok(batch) => {
                self.accumulator.note_ratio(key.0, size, batch.bytes.len());
                self.accumulator.metrics.compression_rate.record(batch.bytes.len() as f64 / size as f64);
                Some(batch)
            }
            Err(failed) => {
                let (open, error) = *failed;
                partition.came_back();
                partition.sequences.refused();
                self.fail_open(open, error);
                None
            }
        }
    }

    fn send(&mut self, broker: i32, mut batches: Vec<(Arc<Topic>, SealedBatch)>) {
        let timeout = self.client.config().request_timeout;
        // Topics together: the request has each once.
        batches.sort_by_key(|(_, batch)| batch.key);
        for (_, batch) in &mut batches {
            batch.sent += 1;
        }
        self.count_sent(&batches);
        let Some(link) = self.links.get_mut(&broker) else { return };
        let Some(connection) = link.connection(&self.client, broker).cloned() else {
            let lost = Error::disconnected(&"the broker".into(), std::io::ErrorKind::NotConnected.into());
            return self.not_sent(batches, &lost);
        };
        let ids = batches.iter().all(|(topic, _)| topic.id != milena_protocol::Uuid::ZERO);
        let correlation = connection.correlation();
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let version_2 = self.transactional.as_ref().is_some_and(|transactional| transactional.shared.is_version_2());
        let frame = request::version(connection.versions(), &self.config, ids, version_2).and_then(|version| {
            let name = connection.client_id();
            Ok((version, request::encode(&batches, &self.config, timeout_ms, version, correlation, name)?))
        });
        match frame {
            Ok((version, frame)) => {
                let answered = self.config.acks.code() != 0;
                let throttle = connection.throttle().clone();
                let answer = async move { connection.send_frame(frame, correlation, timeout, answered).await?.await };
                link.send(answer, version, batches, throttle);
            }
            Err(error) => self.not_sent(batches, &error),
        }
    }

    fn count_sent(&self, batches: &[(Arc<Topic>, SealedBatch)]) {
        let metrics = &self.accumulator.metrics;
        let now = Instant::now();
        for (_, batch) in batches {
            metrics.batch_size.record(batch.bytes.len() as f64);
            if batch.sent == 1 {
                metrics.record_queue_time_ms.record(ms(now - batch.begun));
            }
        }
        let records = batches.iter().map(|(_, batch)| batch.records.unsigned_abs()).sum::<u32>();
        metrics.record_send_total.increment(records.into());
        metrics.records_per_request.record(f64::from(records));
    }

    /// Learns topics that are out of date, unless that is under way.
    fn learn(&mut self, now: Instant) {
        if self.stale.is_empty() || self.learning.is_some() || !self.may_try(now) {
            return;
        }
        let places: Vec<usize> = self.stale.drain().collect();
        let topics: Vec<_> = places.into_iter().map(|place| (place, self.accumulator.topic(place))).collect();
        let client = self.client.clone();
        self.learning = Some(Box::pin(async move {
            let mut learnt = Vec::with_capacity(topics.len());
            for (place, topic) in topics {
                learnt.push((place, client.topic(&topic.name, true).await));
            }
            learnt
        }));
    }

    fn poll_learning(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(learning) = &mut self.learning else { return false };
        let Poll::Ready(learnt) = learning.as_mut().poll(cx) else { return false };
        self.learning = None;
        let mut failed = false;
        for (place, topic) in learnt {
            match topic {
                Ok(topic) => {
                    failed |= topic.partitions.iter().any(|partition| partition.leader.is_none());
                    self.accumulator.put_topic(topic);
                }
                Err(error) if error.is_retriable() => failed = true,
                Err(error) => self.fail_topic(place, &error),
            }
        }
        if failed {
            self.back_off();
        } else {
            self.failures = 0;
        }
        true
    }

    /// Asks for a producer id where one is needed.
    fn identify(&mut self, now: Instant) {
        if self.failed
            || !self.config.idempotence
            || self.identity.is_some()
            || self.identifying.is_some()
            || !self.may_try(now)
        {
            return;
        }
        if let Some(transactional) = &self.transactional {
            if transactional.shared.phase() != Phase::Starting {
                return;
            }
            let timeout_ms = i32::try_from(self.config.transaction_timeout.as_millis()).unwrap_or(i32::MAX);
            self.identifying = Some(transactional.identify(&self.client, timeout_ms));
            return;
        }
        let client = self.client.clone();
        self.identifying = Some(Box::pin(async move {
            let request = InitProducerIdRequest {
                transactional_id: None,
                transaction_timeout_ms: i32::MAX,
                ..Default::default()
            };
            let identity = client.call(Target::Any, &request).read(|response| {
                check(response.error_code, None)?;
                Ok((Identity { id: response.producer_id, epoch: response.producer_epoch }, false))
            });
            identity.await
        }));
    }

    fn poll_identity(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(identifying) = &mut self.identifying else { return false };
        let Poll::Ready(identity) = identifying.as_mut().poll(cx) else { return false };
        self.identifying = None;
        match identity {
            Ok((identity, version_2)) => {
                tracing::debug!(id = identity.id, epoch = identity.epoch, "producer id");
                self.identity = Some(identity);
                if let Some(transactional) = &self.transactional {
                    transactional.shared.identified(identity, version_2);
                }
            }
            Err(error) if error.is_retriable() => self.back_off(),
            Err(error) => self.fail_all(&error),
        }
        true
    }
}
