//! What one Fetch request is about: its limits, its session, its partitions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use milena_protocol::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use milena_protocol::{ErrorCode, Uuid};
use parking_lot::Mutex;

use crate::fetch_sessions::{FINAL_EPOCH, FetchPartitions, FetchSessions, INITIAL_EPOCH, Slot, TopicKey};
use crate::partition::{Isolation, TopicIdentity};
use crate::replicas::Topics;
use crate::request::{Call, Refusal};

/// First version with sessions.
const FIRST_SESSION_VERSION: i16 = 7;
/// First version that names topics by id.
pub(super) const FIRST_TOPIC_ID_VERSION: i16 = 13;
/// First version that gives the replica's state instead of its id.
const FIRST_REPLICA_STATE_VERSION: i16 = 15;

/// Most bytes of records in an answer, whatever is configured: its length prefix has 31 bits.
const MOST_BYTES: i32 = 1 << 30;

/// A Fetch request, independent of the bytes it came in.
pub(super) struct Fetch {
    /// Version of the request.
    pub version: i16,
    /// The node that leads what it serves.
    pub node_id: i32,
    /// Comes back with the response.
    pub correlation_id: i32,
    /// How long it may wait.
    pub max_wait: Duration,
    /// How many bytes it waits for.
    pub min_bytes: i64,
    /// About how many bytes it takes.
    pub max_bytes: i64,
    /// 0 read uncommitted, 1 read committed, anything else is refused as soon as there is something to read.
    pub isolation: i8,
    /// The replica that asks; -1 for a consumer.
    pub replica: i32,
    /// What it fetches.
    pub partitions: Arc<Mutex<FetchPartitions>>,
    /// Its session.
    pub session: SessionUse,
}

impl Fetch {
    /// Whether the isolation level is one that exists.
    pub(super) fn isolation_is_known(&self) -> bool {
        (0..=1).contains(&self.isolation)
    }

    /// Whether there is a partition to read from: Kafka looks at the isolation level only then.
    pub(super) fn finds_a_partition(&self) -> bool {
        self.partitions.lock().slots().iter().any(|slot| !slot.is_unknown())
    }

    /// What the client wants to see.
    pub(super) fn isolation(&self) -> Isolation {
        if self.isolation == 0 { Isolation::Uncommitted } else { Isolation::Committed }
    }
}

/// How a request uses a session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionUse {
    /// Not at all.
    None,
    /// Begins one with the answer.
    Begin,
    /// Goes on with one: only what changed is answered.
    Incremental {
        /// The session's id.
        id: i32,
        /// Number of this request, see [`FetchPartitions::begin_request`].
        request: u64,
    },
    /// Asks for one that can't be had: nothing but this error is answered.
    Refused(ErrorCode),
}

/// Reads a request and opens its session.
///
/// # Errors
/// When its bytes are not a Fetch request.
pub(super) fn open(
    call: &Call<'_>,
    topics: &Topics,
    sessions: &FetchSessions,
    most_bytes: i32,
    node_id: i32,
) -> Result<Fetch, Refusal> {
    let request: FetchRequest<'_> = call.request()?;
    let version = call.header.version;
    let (partitions, session) = open_session(&request, version, topics, sessions);
    let replica =
        if version >= FIRST_REPLICA_STATE_VERSION { request.replica_state.replica_id } else { request.replica_id };
    Ok(Fetch {
        version,
        node_id,
        correlation_id: call.header.correlation_id,
        max_wait: Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)),
        min_bytes: i64::from(request.min_bytes),
        max_bytes: i64::from(request.max_bytes.min(most_bytes).min(MOST_BYTES)),
        isolation: request.isolation_level,
        replica,
        partitions,
        session,
    })
}

fn open_session(
    request: &FetchRequest<'_>,
    version: i16,
    topics: &Topics,
    sessions: &FetchSessions,
) -> (Arc<Mutex<FetchPartitions>>, SessionUse) {
    let by_id = version >= FIRST_TOPIC_ID_VERSION;
    let full = |session| {
        let mut partitions = FetchPartitions::default();
        add(&mut partitions, &request.topics, by_id, topics);
        (Arc::new(Mutex::new(partitions)), session)
    };
    if version < FIRST_SESSION_VERSION {
        return full(SessionUse::None);
    }
    let (id, epoch) = (request.session_id, request.session_epoch);
    if epoch == INITIAL_EPOCH || epoch == FINAL_EPOCH {
        if id != 0 {
            sessions.end(id);
        }
        return full(if epoch == INITIAL_EPOCH { SessionUse::Begin } else { SessionUse::None });
    }
    match sessions.resume(id, epoch, by_id, Instant::now()) {
        Ok(partitions) => match go_on(&partitions, request, by_id, topics, sessions) {
            Some(session) => (partitions, session),
            None => full(SessionUse::None),
        },
        Err(error) => (Arc::default(), SessionUse::Refused(error)),
    }
}

/// Brings a session up to date with an incremental request. One that has no partitions left is over, and the request is answered
/// without it.
fn go_on(
    partitions: &Mutex<FetchPartitions>,
    request: &FetchRequest<'_>,
    by_id: bool,
    topics: &Topics,
    sessions: &FetchSessions,
) -> Option<SessionUse> {
    let mut partitions = partitions.lock();
    add(&mut partitions, &request.topics, by_id, topics);
    let forgotten = request.forgotten_topics_data.iter();
    partitions
        .forget(forgotten.map(|topic| (key(topic.topic_id, &topic.topic, by_id), topic.partitions.iter().copied())));
    if partitions.is_empty() {
        sessions.end(request.session_id);
        return None;
    }
    for slot in partitions.slots() {
        refresh(slot, by_id, topics);
    }
    Some(SessionUse::Incremental { id: request.session_id, request: partitions.begin_request() })
}

fn key(id: Uuid, name: &str, by_id: bool) -> TopicKey {
    if by_id { TopicKey::Id(id) } else { TopicKey::Name(name.to_owned()) }
}

/// Adds what a request names, or updates what is there.
fn add(partitions: &mut FetchPartitions, wanted: &[FetchTopic<'_>], by_id: bool, topics: &Topics) {
    for topic in wanted.iter().filter(|topic| !topic.partitions.is_empty()) {
        let found = if by_id { topics.by_id(topic.topic_id) } else { topics.by_name(&topic.topic) };
        let identity = match found {
            Some(found) => Arc::clone(&found.identity),
            None => Arc::new(TopicIdentity { name: topic.topic.to_string(), id: topic.topic_id }),
        };
        let mut slots = partitions.topic(key(topic.topic_id, &topic.topic, by_id));
        for partition in &topic.partitions {
            let index = partition.partition;
            let slot = slots.entry(index, || {
                let unknown = if by_id && found.is_none() {
                    ErrorCode::UNKNOWN_TOPIC_ID
                } else {
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
                };
                let place = found.ok_or(unknown).and_then(|topic| topic.served(index)).cloned();
                Slot::new(Arc::clone(&identity), index, place)
            });
            update(slot, partition);
        }
    }
}

fn update(slot: &mut Slot, wanted: &FetchPartition) {
    slot.offset = wanted.fetch_offset;
    slot.max_bytes = wanted.partition_max_bytes;
    slot.current_leader_epoch = wanted.current_leader_epoch;
    slot.last_fetched_epoch = wanted.last_fetched_epoch;
}

/// Looks again for a partition that was not there, or that is gone since. A session by id stays with the topic that it
/// found under that id, and tells when another one has its name; a session by name takes whatever has the name.
fn refresh(slot: &mut Slot, by_id: bool, topics: &Topics) {
    if slot.place.as_ref().is_ok_and(|partition| !partition.is_retired()) {
        return;
    }
    let is_resolved = !slot.topic.name.is_empty();
    let found = if by_id && !is_resolved { topics.by_id(slot.topic.id) } else { topics.by_name(&slot.topic.name) };
    slot.place = match found {
        Some(found) if by_id && found.identity.id != slot.topic.id => Err(ErrorCode::INCONSISTENT_TOPIC_ID),
        Some(found) => {
            slot.topic = Arc::clone(&found.identity);
            found.served(slot.index).cloned()
        }
        None if by_id && !is_resolved => Err(ErrorCode::UNKNOWN_TOPIC_ID),
        None => Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
    };
}
