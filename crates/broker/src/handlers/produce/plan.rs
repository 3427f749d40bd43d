//! Produce requests that are taken together, between their checks and their answers.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use milena_log::VerificationGuard;
use milena_protocol::{ErrorCode, Uuid};

use super::records::{RejectedRecord, Rejection};
use crate::partition::{Partition, TopicIdentity};

/// Most parts that the room of a plan is kept for.
const MOST_KEPT: usize = 4096;

/// The requests, and what becomes of each of their batches.
#[derive(Default)]
pub(super) struct Plan {
    /// In the order of their frames.
    pub requests: Vec<Request>,
    /// Their topics, in order.
    pub topics: Vec<Topic>,
    /// In the order of their frames, and of their bytes in each frame.
    pub parts: Vec<Part>,
}

thread_local!(static KEPT: Cell<Plan> = Cell::default());

impl Plan {
    /// An empty plan in the room of an earlier one of this thread.
    pub(super) fn take() -> Self {
        KEPT.take()
    }

    /// Ends it and keeps its room.
    pub(super) fn put_back(mut self) {
        if self.parts.capacity() <= MOST_KEPT {
            self.requests.clear();
            self.topics.clear();
            self.parts.clear();
            KEPT.set(self);
        }
    }

    /// The topics of a request.
    pub(super) fn topics(&self, request: &Request) -> &[Topic] {
        &self.topics[request.topics.clone()]
    }

    /// Whether a request can be answered.
    pub(super) fn settle(&mut self, request: usize) -> bool {
        let Self { requests, topics, parts } = self;
        let topics = &topics[requests[request].topics.clone()];
        topics.iter().fold(true, |settled, topic| {
            parts[topic.parts.clone()].iter_mut().fold(settled, |settled, part| part.settle() && settled)
        })
    }

    /// The partitions that keep a request from being answered.
    pub(super) fn awaited(&self, request: usize) -> impl Iterator<Item = Arc<Partition>> {
        let topics = self.topics(&self.requests[request]);
        let parts = topics.iter().flat_map(|topic| &self.parts[topic.parts.clone()]);
        parts.filter(|part| part.awaits > 0).filter_map(|part| part.partition.clone())
    }
}

/// One request.
pub(super) struct Request {
    /// Version of the request.
    pub version: i16,
    /// Comes back with the response.
    pub correlation_id: i32,
    /// As the client gave it.
    pub acks: i16,
    /// Of the transaction that some of its batches belong to.
    pub transactional_id: Option<Box<str>>,
    /// Its topics, as positions in [`Plan::topics`].
    pub topics: Range<usize>,
}

/// A topic of a request.
pub(super) struct Topic {
    /// What it is called.
    pub name: TopicName,
    /// Its id as the request gives it; zero when it names the topic.
    pub id: Uuid,
    /// Its partitions, as positions in [`Plan::parts`].
    pub parts: Range<usize>,
    /// Place of its answer among those of the request; a topic that comes again has the place of its first entry.
    pub answer: usize,
}

/// The name of a topic in a request.
pub(super) enum TopicName {
    /// Of a topic that exists.
    Known(Arc<TopicIdentity>),
    /// As the request gives it.
    Unknown(String),
}

impl TopicName {
    /// As text.
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Known(topic) => &topic.name,
            Self::Unknown(name) => name,
        }
    }
}

/// A batch for a partition, and its outcome.
pub(super) struct Part {
    /// Number of the frame it stands in.
    pub frame: usize,
    /// Where in the frame.
    pub batch: Range<usize>,
    /// The partition's number.
    pub index: i32,
    /// Where it goes; `None` when unknown.
    pub partition: Option<Arc<Partition>>,
    /// What to answer.
    pub error: ErrorCode,
    /// Why, for people.
    pub message: Option<&'static str>,
    /// The records to blame for it, when it is single ones.
    pub rejected: Vec<RejectedRecord>,
    /// The broker's time that the records were stored with, ms, or -1.
    pub append_time: i64,
    /// First offset of the stored batch, or -1.
    pub base_offset: i64,
    /// First offset of the log, or -1 when the request never got as far as the log.
    pub log_start_offset: i64,
    /// The log end offset that must be reached by what may be acknowledged before this is; 0 when nothing is in the way.
    pub awaits: i64,
    /// What the log asks for before a transaction begins in the partition.
    pub guard: Option<VerificationGuard>,
    /// A later entry for the same partition in the same request has taken this one's place: it is neither written nor
    /// answered.
    pub replaced: bool,
}

impl Part {
    /// A batch of which nothing is known but where it goes.
    pub(super) fn new(frame: usize, batch: Range<usize>, index: i32, to: Result<Arc<Partition>, ErrorCode>) -> Self {
        let error = to.as_ref().err().copied().unwrap_or(ErrorCode::NONE);
        Self {
            frame,
            batch,
            index,
            partition: to.ok(),
            error,
            message: None,
            rejected: Vec::new(),
            append_time: -1,
            base_offset: -1,
            log_start_offset: -1,
            awaits: 0,
            guard: None,
            replaced: false,
        }
    }

    /// Whether it can be answered. One whose flush has failed, or whose partition has gone, turns into a failure.
    pub(super) fn settle(&mut self) -> bool {
        let Some(partition) = self.partition.as_ref().filter(|_| self.awaits > 0) else { return true };
        match partition.acknowledges(self.awaits) {
            None => return false,
            Some(Ok(())) => {}
            Some(Err(error)) => {
                (self.base_offset, self.append_time, self.log_start_offset) = (-1, -1, -1);
                self.refuse(error, None);
            }
        }
        self.awaits = 0;
        true
    }

    /// Whether it is to be written.
    pub(super) fn is_good(&self) -> bool {
        self.error == ErrorCode::NONE && !self.replaced
    }

    /// Equal for parts of the same partition; 0 for unknown ones.
    pub(super) fn partition_key(&self) -> usize {
        self.partition.as_ref().map_or(0, |partition| Arc::as_ptr(partition) as usize)
    }

    /// Notes why it is not written. The first reason stands.
    pub(super) fn refuse(&mut self, error: ErrorCode, message: Option<&'static str>) {
        if self.error == ErrorCode::NONE {
            (self.error, self.message) = (error, message);
        }
    }

    /// Notes what is wrong with its records.
    pub(super) fn reject(&mut self, rejection: Rejection) {
        let Rejection { error, message, records } = rejection;
        if error == ErrorCode::MESSAGE_TOO_LARGE {
            return self.refuse(error, message);
        }
        self.refuse_at_log(error);
        (self.message, self.rejected) = (message, records);
    }

    /// Notes why the log refuses it: the answer tells the log's start.
    pub(super) fn refuse_at_log(&mut self, error: ErrorCode) {
        self.refuse(error, None);
        self.log_start_offset = self.partition.as_ref().map_or(-1, |partition| partition.log_start_offset());
    }
}
