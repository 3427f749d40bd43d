//! What becomes of batches: written, sent again, split, or failed.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use milena_protocol::messages::ProduceRequest;
use milena_protocol::{ErrorCode, Uuid};
use milena_records::add_sequence;
use tokio::time::Instant;

use super::Sender;
use super::link::InFlight;
use super::request::{self, Answered};
use crate::connection::decode;
use crate::error::Error;
use crate::metadata::Topic;
use crate::metrics::ms;
use crate::producer::accumulator::OpenBatch;
use crate::producer::batch::SealedBatch;
use crate::producer::delivery::Outcome;

impl Sender {
    /// A request has its answer, or never will.
    pub(super) fn answered(&mut self, request: InFlight, answer: Result<Bytes, Error>) {
        let InFlight { version, batches, throttle, .. } = request;
        let frame = match answer {
            Ok(frame) => frame,
            Err(error) => return self.unanswered(batches, &error),
        };
        if self.config.acks.code() == 0 {
            for (_, batch) in batches {
                self.came_back(&batch);
                self.written(batch, None, None);
            }
            return;
        }
        let places: HashMap<&str, usize> = batches.iter().map(|(topic, batch)| (&*topic.name, batch.key.0)).collect();
        let ids: HashMap<Uuid, usize> = batches.iter().map(|(topic, batch)| (topic.id, batch.key.0)).collect();
        let response = match decode::<ProduceRequest<'_>>(&frame, version) {
            Ok(response) => response,
            Err(error) => return self.unanswered(batches, &error),
        };
        if let Some(wait) = throttle.note(&response) {
            self.accumulator.metrics.produce_throttle_time_ms.record(ms(wait));
        }
        let mut answers = request::answers(&response, |name, id| {
            if name.is_empty() { ids.get(&id).copied() } else { places.get(name).copied() }
        });
        for (topic, batch) in batches {
            match answers.remove(&batch.key) {
                Some(answer) => self.settle(&topic, batch, answer),
                None => self.unanswered(vec![(topic, batch)], &ErrorCode::UNKNOWN_SERVER_ERROR.into()),
            }
        }
    }

    /// Nothing is known of these batches: each is sent again if that can help.
    fn unanswered(&mut self, batches: Vec<(Arc<Topic>, SealedBatch)>, error: &Error) {
        for (topic, mut batch) in batches {
            topic.expire();
            self.stale.insert(batch.key.0);
            batch.in_doubt = true;
            self.came_back(&batch);
            self.retry_or_fail(batch, error.clone(), error.is_retriable());
        }
    }

    /// These batches have not left.
    pub(super) fn not_sent(&mut self, batches: Vec<(Arc<Topic>, SealedBatch)>, error: &Error) {
        for (_, batch) in batches {
            self.came_back(&batch);
            self.retry_or_fail(batch, error.clone(), error.is_retriable());
        }
    }

    fn came_back(&mut self, batch: &SealedBatch) {
        self.partitions.entry(batch.key).or_default().came_back();
    }

    /// The broker has answered for one batch.
    fn settle(&mut self, topic: &Topic, batch: SealedBatch, answer: Answered) {
        self.came_back(&batch);
        let error = || Error::Broker { code: answer.code, message: answer.message.clone() };
        match answer.code {
            ErrorCode::NONE | ErrorCode::DUPLICATE_SEQUENCE_NUMBER => {
                let known = |number: i64| (number >= 0).then_some(number);
                self.written(batch, known(answer.base_offset), known(answer.append_time));
            }
            ErrorCode::MESSAGE_TOO_LARGE if batch.records > 1 && !batch.completion.is_done() => self.split(batch),
            ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER | ErrorCode::UNKNOWN_PRODUCER_ID if self.config.idempotence => {
                let transactional = self.transactional.is_some();
                let partition = self.partitions.entry(batch.key).or_default();
                let first = partition.is_first(&batch);
                if first && !transactional {
                    partition.sequences.lost();
                }
                self.retry_or_fail(batch, error(), !first || !transactional);
            }
            ErrorCode::INVALID_PRODUCER_EPOCH if self.config.idempotence && self.transactional.is_none() => {
                // Somebody else has this id, or its state was taken over: begin with another.
                self.identity = None;
                self.retry_or_fail(batch, error(), false);
            }
            code => {
                if is_about_leaders(code) {
                    topic.expire();
                    self.stale.insert(batch.key.0);
                }
                let failed = if answer.records.is_empty() {
                    Outcome::Failed { error: error(), records: None }
                } else {
                    let message = Some("other records of the batch are invalid".into());
                    let records = Some(Arc::new(own_reasons(&answer)));
                    Outcome::Failed { error: Error::Broker { code, message }, records }
                };
                self.retry_or(batch, failed, code.is_retriable());
            }
        }
    }

    fn written(&mut self, batch: SealedBatch, base_offset: Option<i64>, append_time: Option<i64>) {
        let partition = self.partitions.entry(batch.key).or_default();
        partition.failures = 0;
        partition.sequences.written(add_sequence(batch.sequence, batch.records));
        self.finish(batch, Outcome::Written { base_offset, append_time });
    }

    fn finish(&mut self, batch: SealedBatch, outcome: Outcome) {
        batch.completion.complete(outcome);
        self.accumulator.finished(batch.number, batch.memory);
    }

    fn retry_or_fail(&mut self, batch: SealedBatch, error: Error, can_help: bool) {
        self.retry_or(batch, Outcome::Failed { error, records: None }, can_help);
    }

    /// Sends a batch again, if that can help and it has tries and time left.
    fn retry_or(&mut self, batch: SealedBatch, failed: Outcome, can_help: bool) {
        let partition = self.partitions.entry(batch.key).or_default();
        if can_help && batch.sent <= self.config.retries && !batch.completion.is_done() {
            self.accumulator.metrics.record_retry_total.increment(batch.records.unsigned_abs().into());
            partition.failures += 1;
            let wait = self.client.config().retry_backoff.after(partition.failures);
            partition.not_before = Some(Instant::now() + wait);
            self.again.insert(batch.key);
            partition.send_again(batch);
            return;
        }
        if batch.in_doubt {
            partition.sequences.given_up();
        } else if batch.sent > 0 {
            partition.sequences.refused();
        }
        self.batch_failed(&failed, batch.records);
        self.finish(batch, failed);
    }

    /// A batch of so many records has failed, and with it the transaction that it is of.
    fn batch_failed(&mut self, failed: &Outcome, records: i32) {
        self.accumulator.metrics.record_error_total.increment(records.unsigned_abs().into());
        if let Outcome::Failed { error, .. } = failed
            && !matches!(error, Error::Aborted)
        {
            self.fail_transaction(error, is_fatal_for_batch(error));
        }
    }

    /// Sends a batch that was too large for the broker as several.
    fn split(&mut self, batch: SealedBatch) {
        self.accumulator.metrics.batch_split_total.increment(1);
        tracing::debug!(bytes = batch.bytes.len(), "a batch is too large for the broker and is split");
        self.accumulator.forget_ratio(batch.key.0);
        let (key, mut sequence) = (batch.key, batch.sequence);
        let parts = batch.split(&self.accumulator, &self.template, self.config.batch_size, &mut self.compressor);
        let partition = self.partitions.entry(key).or_default();
        match parts {
            Ok(parts) => {
                for mut part in parts {
                    if let Some(identity) = partition.sequences.identity().filter(|_| self.config.idempotence) {
                        part.place(identity, sequence);
                        sequence = add_sequence(sequence, part.records);
                    }
                    partition.send_again(part);
                }
                self.again.insert(key);
            }
            Err(failed) => self.retry_or_fail(failed.0, failed.1, false),
        }
    }

    /// Ends batches that have waited for longer than `delivery.timeout.ms`.
    pub(super) fn expire(&mut self, now: Instant) {
        let Some(oldest) = now.checked_sub(self.config.delivery_timeout) else { return };
        let error = Error::timeout("the delivery of a record", self.config.delivery_timeout, None);
        for open in self.accumulator.take_older_than(oldest) {
            self.fail_open(open, error.clone());
        }
        let mut expired = Vec::new();
        for key in &self.again {
            let Some(partition) = self.partitions.get_mut(key) else { continue };
            while partition.again.front().is_some_and(|batch| batch.begun <= oldest) {
                expired.extend(partition.again.pop_front());
            }
        }
        for batch in expired {
            self.retry_or_fail(batch, error.clone(), false);
        }
        // Those on their way keep their place until they come back.
        let on_their_way = self.links.values().flat_map(|link| &link.in_flight).flat_map(|request| &request.batches);
        for (_, batch) in on_their_way.filter(|(_, batch)| batch.begun <= oldest) {
            batch.completion.complete(Outcome::Failed { error: error.clone(), records: None });
        }
    }

    /// When the next batch expires.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        let on_their_way = self.links.values().flat_map(|link| &link.in_flight).flat_map(|request| &request.batches);
        let on_their_way = on_their_way.map(|(_, batch)| batch).filter(|batch| !batch.completion.is_done());
        let again = self.again.iter().filter_map(|key| self.partitions.get(key)?.again.front());
        let oldest = on_their_way.chain(again).map(|batch| batch.begun).chain(self.accumulator.oldest()).min();
        oldest.map(|begun| begun + self.config.delivery_timeout)
    }

    /// When the next batch may be sent again.
    pub(super) fn next_retry(&self, now: Instant) -> Option<Instant> {
        let due = self.again.iter().filter_map(|key| self.partitions.get(key)?.not_before);
        due.filter(|at| *at > now).min()
    }

    /// Ends a batch that was never sent.
    pub(super) fn fail_open(&mut self, open: OpenBatch, error: Error) {
        let memory = open.builder.uncompressed_size();
        let failed = Outcome::Failed { error, records: None };
        self.batch_failed(&failed, open.builder.count());
        open.completion.complete(failed);
        self.accumulator.finished(open.number, memory);
    }

    /// Ends all batches of a topic that can't be written to.
    pub(super) fn fail_topic(&mut self, place: usize, error: &Error) {
        let open = self.accumulator.take_where(|key| key.0 == place);
        self.fail_waiting(open, |key| key.0 == place, error);
    }

    /// Ends all batches that are not on their way.
    pub(super) fn fail_unsent(&mut self, error: &Error) {
        let open = self.accumulator.take_where(|_| true);
        self.fail_waiting(open, |_| true, error);
    }

    /// Ends all batches, and takes no more records.
    pub(super) fn fail_all(&mut self, error: &Error) {
        if std::mem::replace(&mut self.failed, true) {
            return;
        }
        if let Some(transactional) = &self.transactional {
            transactional.shared.fail_for_ever(error);
        }
        self.accumulator.end(error.clone());
        self.fail_unsent(error);
    }

    fn fail_waiting(&mut self, open: Vec<OpenBatch>, which: impl Fn(&(usize, i32)) -> bool, error: &Error) {
        for open in open {
            self.fail_open(open, error.clone());
        }
        let keys: Vec<_> = self.again.iter().copied().filter(|key| which(key)).collect();
        for key in keys {
            let Some(partition) = self.partitions.get_mut(&key) else { continue };
            for batch in std::mem::take(&mut partition.again) {
                self.retry_or_fail(batch, error.clone(), false);
            }
        }
    }
}

/// Whether a producer whose batch was refused with this can't have any more transactions; otherwise an abort is enough.
fn is_fatal_for_batch(error: &Error) -> bool {
    let codes = [
        ErrorCode::PRODUCER_FENCED,
        ErrorCode::INVALID_PRODUCER_ID_MAPPING,
        ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode::CLUSTER_AUTHORIZATION_FAILED,
    ];
    matches!(error, Error::UnsupportedVersion { .. }) || error.code().is_some_and(|code| codes.contains(&code))
}

/// Whether the code says that somebody else leads the partition, or that the topic is not what it was.
fn is_about_leaders(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::LEADER_NOT_AVAILABLE
            | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode::UNKNOWN_TOPIC_ID
            | ErrorCode::INCONSISTENT_TOPIC_ID
            | ErrorCode::REPLICA_NOT_AVAILABLE
            | ErrorCode::KAFKA_STORAGE_ERROR
            | ErrorCode::FENCED_LEADER_EPOCH
            | ErrorCode::NETWORK_EXCEPTION
    )
}

/// The reasons of the records that made the broker refuse a batch; the others failed with them.
fn own_reasons(answer: &Answered) -> HashMap<i32, Error> {
    let error = |message: &Option<Arc<str>>| {
        let message = message.clone().or_else(|| answer.message.clone());
        Error::Broker { code: answer.code, message }
    };
    answer.records.iter().map(|(index, message)| (*index, error(message))).collect()
}
