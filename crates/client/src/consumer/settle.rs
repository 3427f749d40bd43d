//! What the answers of brokers mean for the partitions of a consumer.

use bytes::Bytes;
use milena_protocol::messages::FetchRequest;
use milena_protocol::messages::fetch_response::PartitionData;
use milena_protocol::{ErrorCode, Records};
use std::sync::Arc;
use tokio::time::Instant;

use super::config::IsolationLevel;
use super::fetcher::{Fetcher, now_ms};
use super::lookup::{Answer, Found};
use super::partitions::{Item, LogEnds, Position, Slot, State};
use super::range::Range;
use crate::call::Target;
use crate::connection::decode;
use crate::error::Error;
use crate::metrics::ms;

/// What is said of the member that asks rather than of what it asks for.
const OF_MEMBERS: [ErrorCode; 3] =
    [ErrorCode::STALE_MEMBER_EPOCH, ErrorCode::UNKNOWN_MEMBER_ID, ErrorCode::ILLEGAL_GENERATION];

impl Fetcher {
    /// A broker can't be reached, or its connection was lost.
    pub(super) fn lost(&mut self, broker: i32, error: &Error, now: Instant) {
        tracing::debug!(broker, %error, "no fetch");
        self.client.note_error(Target::Broker(broker), error);
        let Some(link) = self.links.get_mut(&broker) else { return };
        link.session.failed();
        link.failures += 1;
        link.not_before = Some(now + self.client.config().retry_backoff.after(link.failures));
        let fatal = !error.is_retriable();
        let slots: Vec<Slot> = link.session.slots().collect();
        for slot in slots {
            if self.partitions.get(slot).at != Some(broker) {
                continue;
            }
            if fatal {
                self.fail(slot, error.clone());
            } else {
                self.look_elsewhere(slot);
            }
        }
    }

    /// The broker of a partition may be another by now.
    fn look_elsewhere(&mut self, slot: Slot) {
        let partition = self.partitions.change(slot);
        partition.replica = None;
        let topic = Arc::clone(&partition.name.topic);
        if let Some(known) = self.client.known().topic(&topic) {
            known.expire();
        }
        self.stale.insert(topic);
    }

    /// A fetch was answered.
    pub(super) fn answered(&mut self, broker: i32, frame: &Bytes, version: i16, now: Instant) {
        let response = match decode::<FetchRequest<'_>>(frame, version) {
            Ok(response) => response,
            Err(error) => return self.lost(broker, &error, now),
        };
        let Some(link) = self.links.get_mut(&broker) else { return };
        self.metrics.fetch_total.increment(1);
        self.metrics.fetch_size.record(frame.len() as f64);
        let throttled = link.open().and_then(|connection| connection.throttle().note(&response));
        link.not_before = throttled.map(|wait| now + wait);
        if let Some(wait) = throttled {
            self.metrics.fetch_throttle_time_ms.record(ms(wait));
        }
        if let Err(code) = link.session.answered(&response) {
            return self.session_lost(broker, code, now);
        }
        link.failures = 0;
        for topic in &response.responses {
            for data in &topic.partitions {
                let Some(link) = self.links.get(&broker) else { return };
                let Some(slot) = link.session.slot(&topic.topic, topic.topic_id, data.partition_index) else {
                    continue;
                };
                let Some(told) = link.session.told(slot) else { continue };
                let (reading, offset) = (told.reading, told.offset);
                if !self.partitions.current(slot, reading) || self.partitions.get(slot).state != State::Ready {
                    continue;
                }
                match ErrorCode(data.error_code) {
                    ErrorCode::NONE => self.came(slot, broker, frame, data, now),
                    code => self.refused(slot, offset, code, now),
                }
            }
        }
    }

    /// The broker does not go on with the session; the next fetch begins another.
    fn session_lost(&mut self, broker: i32, code: ErrorCode, now: Instant) {
        tracing::debug!(broker, code = code.name(), "the fetch session is over");
        let Some(link) = self.links.get_mut(&broker) else { return };
        link.failures += 1;
        let of_session = [ErrorCode::FETCH_SESSION_ID_NOT_FOUND, ErrorCode::INVALID_FETCH_SESSION_EPOCH];
        if of_session.contains(&code) && link.failures == 1 {
            return;
        }
        if !of_session.contains(&code) {
            return self.lost(broker, &code.into(), now);
        }
        link.not_before = Some(now + self.client.config().retry_backoff.after(link.failures));
    }

    /// A partition's part of a response.
    fn came(&mut self, slot: Slot, broker: i32, frame: &Bytes, data: &PartitionData<'_>, now: Instant) {
        if data.preferred_read_replica >= 0 && data.preferred_read_replica != broker {
            let until = now + self.client.config().metadata_max_age;
            self.partitions.change(slot).replica = Some((data.preferred_read_replica, until));
        }
        let partition = self.partitions.note(slot);
        let ends = LogEnds { high_watermark: data.high_watermark, last_stable: data.last_stable_offset };
        (partition.ends, partition.failures, partition.not_before) = (Some(ends), 0, None);
        let fetched = partition.fetch.offset;
        let Some(bytes) = data.records.as_ref().map(Records::bytes).filter(|bytes| !bytes.is_empty()) else { return };
        let aborted = (self.config.isolation == IsolationLevel::ReadCommitted)
            .then(|| data.aborted_transactions.as_deref().unwrap_or_default());
        match Range::new(frame.slice_ref(bytes), aborted) {
            Ok(Some((range, end))) if end.offset > fetched => {
                let leader_epoch = (end.leader_epoch >= 0).then_some(end.leader_epoch);
                self.partitions.change(slot).fetch = Position { offset: end.offset, leader_epoch };
                self.push(slot, Item::Range(range));
            }
            // Nothing that was asked for.
            Ok(_) => self.back_off(slot, now),
            Err(corruption) => self.fail(slot, corruption.into()),
        }
    }

    /// A partition was not fetched.
    fn refused(&mut self, slot: Slot, offset: i64, code: ErrorCode, now: Instant) {
        let partition = self.partitions.note(slot);
        tracing::debug!(partition = %partition.name, offset, code = code.name(), "not fetched");
        match code {
            // The replica may be behind; the leader knows. It may send the consumer back, which is given time to.
            ErrorCode::OFFSET_OUT_OF_RANGE if partition.replica.take().is_some() => self.back_off(slot, now),
            ErrorCode::OFFSET_OUT_OF_RANGE if partition.fetch.offset == offset => self.halt(slot, Item::OutOfRange),
            ErrorCode::OFFSET_OUT_OF_RANGE => {}
            ErrorCode::CORRUPT_MESSAGE => self.fail(slot, code.into()),
            // The broker will learn of it; others know no more.
            ErrorCode::UNKNOWN_LEADER_EPOCH | ErrorCode::UNKNOWN_SERVER_ERROR => self.back_off(slot, now),
            code if code.is_retriable() => {
                self.look_elsewhere(slot);
                self.back_off(slot, now);
            }
            code => self.fail(slot, code.into()),
        }
    }

    /// A question about a partition's position was answered.
    pub(super) fn looked_up(&mut self, answer: Answer, now: Instant) {
        let Answer { slot, found, .. } = answer;
        let partition = self.partitions.change(slot);
        partition.asking = false;
        let state = partition.state;
        let found = match found {
            Ok(found) => found,
            // As Kafka's client does, what a server can't name is asked again.
            Err(error) if error.is_retriable() || error.code() == Some(ErrorCode::UNKNOWN_SERVER_ERROR) => {
                tracing::debug!(partition = %partition.name, %error, "its position is not known yet");
                self.look_elsewhere(slot);
                return self.back_off(slot, now);
            }
            // The member has another epoch by now, or is none, and will hear of it.
            Err(error) if error.code().is_some_and(|code| OF_MEMBERS.contains(&code)) => {
                return self.back_off(slot, now);
            }
            Err(error) => return self.fail(slot, error),
        };
        partition.failures = 0;
        match found {
            Found::Committed(Some(position)) | Found::Offset(Some(position)) => self.begin_at(slot, position),
            Found::Committed(None) => match self.config.offset_reset.reset(now_ms()) {
                Some(reset) => partition.state = State::Reset(reset),
                None => self.fail(slot, Error::NoOffset),
            },
            // No record is as young as that.
            Found::Offset(None) => partition.state = State::Reset(super::partitions::Reset::Latest),
            Found::EpochEnd { leader_epoch, end } if state == State::Validate => {
                self.validated(slot, leader_epoch, end)
            }
            Found::EpochEnd { .. } => {}
        }
    }

    fn begin_at(&mut self, slot: Slot, position: Position) {
        let partition = self.partitions.change(slot);
        tracing::debug!(partition = %partition.name, offset = position.offset, "begins");
        (partition.position, partition.fetch, partition.state) = (position, position, State::Ready);
    }

    /// The leader of an epoch says how far its log agrees with what was read; `end` is the epoch and the offset after it.
    fn validated(&mut self, slot: Slot, leader_epoch: i32, end: Option<(i32, i64)>) {
        let partition = self.partitions.change(slot);
        partition.leader_epoch = leader_epoch;
        let (epoch, to) = match end {
            Some((_, to)) if to >= partition.fetch.offset => {
                partition.state = State::Ready;
                return;
            }
            Some((epoch, to)) => (Some(epoch), Some(to)),
            None => (None, None),
        };
        tracing::warn!(partition = %partition.name, offset = partition.fetch.offset, ?to, "the log was truncated");
        let position = partition.position;
        let to_go_on = to.map(|to| Position { offset: to, leader_epoch: epoch });
        match (to_go_on, self.config.offset_reset.reset(now_ms())) {
            // Only what was fetched and not given is concerned.
            (Some(to), _) if to.offset >= position.offset => self.partitions.seek(slot, State::Ready, position),
            (Some(to), Some(_)) => self.partitions.seek(slot, State::Ready, to),
            (None, Some(reset)) => self.partitions.reset(slot, reset),
            (_, None) => self.fail(slot, Error::Truncated { to }),
        }
    }
}
