//! Answers of Fetch. Small pieces of records are copied beside the headers; larger ones go from the file to the socket.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use milena_io::FileExt;
use milena_log::{AbortedTxn, Slice};
use milena_net::{FileOwner, FileRange, Outgoing};
use milena_protocol::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use milena_protocol::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchResponse, FetchableTopicResponse, LeaderIdAndEpoch, PartitionData,
};
use milena_protocol::{ApiKey, ErrorCode, Records};

use super::context::{FIRST_TOPIC_ID_VERSION, Fetch, SessionUse};
use super::read::{PartitionRead, Read};
use crate::fetch_sessions::{FetchSessions, Slot};
use crate::partition::Partition;
use crate::request::{Call, Header, Refusal, answer as put_answer};

/// First version in which a client that is wrong about the leader is told who it is.
const FIRST_LEADER_VERSION: i16 = 16;
/// Records up to this many bytes are copied: a file range of its own costs a system call.
const COPY_UP_TO: usize = 32 << 10;
/// Most bytes copied for one answer; beyond it, everything goes from the file.
const MOST_COPIED: usize = 1 << 20;

/// Puts the answer onto `out`, and notes in the session what it tells.
///
/// # Errors
/// When the answer is longer than a frame can be.
pub(super) fn answer(
    fetch: &Fetch,
    read: &mut Read,
    sessions: &FetchSessions,
    out: &mut Outgoing,
) -> Result<(), Refusal> {
    if let SessionUse::Refused(error) = fetch.session {
        return refuse(fetch, 0, error, out);
    }
    // This may wait for the disk, so it comes before the lock.
    let copied = Copied::small(&mut read.partitions);
    let mut partitions = fetch.partitions.lock();
    let incremental = match fetch.session {
        SessionUse::Incremental { id, request } if request != partitions.newest_request() => {
            return refuse(fetch, id, ErrorCode::INVALID_FETCH_SESSION_EPOCH, out);
        }
        SessionUse::Incremental { .. } => true,
        _ => false,
    };
    let session_id = session_id(fetch, sessions);
    let told = tell(partitions.slots(), &read.partitions, incremental);
    let slots: &[Slot] = partitions.slots();
    let response = FetchResponse {
        session_id,
        responses: topics(fetch, slots, &told, &read.partitions, &copied),
        ..Default::default()
    };
    let large = told.iter().filter(|&&at| copied.ranges[at].is_none()).map(|&at| &read.partitions[at]);
    let large = large.filter_map(|read| read.slice.as_ref().zip(read.partition.as_ref()));
    put(fetch, out, &response, large.collect())?;
    drop(response);
    if incremental && read.has_records() {
        partitions.rotate(|at| read.partitions[at].len() > 0);
    }
    Ok(())
}

/// Answers a request whose isolation level does not exist: with an error for the whole of it, and before topics had ids with the same one for
/// each partition that it names.
pub(super) fn refuse_isolation(call: &Call<'_>, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: FetchRequest<'_> = call.request()?;
    let error_code = ErrorCode::UNKNOWN_SERVER_ERROR.0;
    let partition = |partition: &FetchPartition| PartitionData {
        partition_index: partition.partition,
        error_code,
        high_watermark: -1,
        records: Some(Records::Bytes(&[])),
        ..Default::default()
    };
    let by_name = request.topics.iter().filter(|_| call.header.version < FIRST_TOPIC_ID_VERSION);
    let topic = |topic: &FetchTopic<'_>| FetchableTopicResponse {
        topic: Cow::Owned(topic.topic.to_string()),
        partitions: topic.partitions.iter().map(partition).collect(),
        ..Default::default()
    };
    let responses = by_name.map(topic).collect();
    let response = FetchResponse { error_code, session_id: request.session_id, responses, ..Default::default() };
    put_answer(&call.header, out, &response).map(drop)
}

/// Answers nothing but an error.
fn refuse(fetch: &Fetch, session_id: i32, error: ErrorCode, out: &mut Outgoing) -> Result<(), Refusal> {
    put(fetch, out, &FetchResponse { error_code: error.0, session_id, ..Default::default() }, Vec::new())
}

fn session_id(fetch: &Fetch, sessions: &FetchSessions) -> i32 {
    match fetch.session {
        SessionUse::Begin => {
            let by_id = fetch.version >= FIRST_TOPIC_ID_VERSION;
            sessions.begin(&fetch.partitions, by_id, Instant::now())
        }
        SessionUse::Incremental { id, .. } => id,
        _ => 0,
    }
}

/// Which slots are answered, and notes for each what the client now knows. A full answer has all of them, an
/// incremental one those with records, an error or a moved end. Topics that do not exist by their ids come behind those that
/// could be read, and partitions that do not exist otherwise come last.
fn tell(slots: &mut [Slot], reads: &[PartitionRead], incremental: bool) -> Vec<usize> {
    let mut told = Vec::with_capacity(slots.len());
    let place = |read: &PartitionRead| match read.error {
        ErrorCode::UNKNOWN_TOPIC_ID if read.unknown => 1,
        _ => 2 * u8::from(read.unknown),
    };
    for at_place in 0..=2 {
        for (at, (slot, read)) in slots.iter_mut().zip(reads).enumerate() {
            let moved = slot.told_high_watermark != read.high_watermark || slot.told_log_start != read.log_start;
            let news = moved || read.len() > 0 || read.error != ErrorCode::NONE || read.diverging.is_some();
            if place(read) == at_place && (news || !incremental) {
                (slot.told_high_watermark, slot.told_log_start) = (read.high_watermark, read.log_start);
                told.push(at);
            }
        }
    }
    told
}

/// Small pieces of records, read from their files.
struct Copied {
    bytes: Vec<u8>,
    ranges: Vec<Option<Range<usize>>>,
}

impl Copied {
    fn small(reads: &mut [PartitionRead]) -> Self {
        let mut copied = Self { bytes: Vec::new(), ranges: Vec::with_capacity(reads.len()) };
        for read in reads {
            let range = copied.copy(read);
            copied.ranges.push(range);
        }
        copied
    }

    fn copy(&mut self, read: &mut PartitionRead) -> Option<Range<usize>> {
        let start = self.bytes.len();
        let Some(slice) = &read.slice else { return Some(start..start) };
        if slice.len > COPY_UP_TO || start + slice.len > MOST_COPIED {
            return None;
        }
        self.bytes.resize(start + slice.len, 0);
        if let Err(error) = slice.file.read_exact_at(&mut self.bytes[start..], slice.position) {
            tracing::error!(segment = slice.segment, position = slice.position, %error, "records can't be read");
            if let Some(partition) = &read.partition {
                partition.read_failed(slice.segment, error);
            }
            self.bytes.truncate(start);
            read.fail(ErrorCode::KAFKA_STORAGE_ERROR);
        }
        Some(start..self.bytes.len())
    }
}

fn topics<'r>(
    fetch: &Fetch,
    slots: &'r [Slot],
    told: &[usize],
    reads: &[PartitionRead],
    copied: &'r Copied,
) -> Vec<FetchableTopicResponse<'r>> {
    let by_id = fetch.version >= FIRST_TOPIC_ID_VERSION;
    let mut topics: Vec<FetchableTopicResponse<'r>> = Vec::new();
    let mut last = None;
    for &at in told {
        let slot = &slots[at];
        if last != Some(&slot.topic) {
            last = Some(&slot.topic);
            let name = if by_id { "" } else { slot.topic.name.as_str() };
            topics.push(FetchableTopicResponse {
                topic: Cow::Borrowed(name),
                topic_id: slot.topic.id,
                ..Default::default()
            });
        }
        let records = match &copied.ranges[at] {
            Some(range) => Records::Bytes(&copied.bytes[range.clone()]),
            None => Records::Gap(reads[at].len()),
        };
        let topic = topics.last_mut().expect("a topic was pushed for the first slot");
        topic.partitions.push(partition(fetch, slot, &reads[at], records));
    }
    topics
}

fn partition<'r>(fetch: &Fetch, slot: &Slot, read: &PartitionRead, records: Records<'r>) -> PartitionData<'r> {
    let was_read = read.error == ErrorCode::NONE && read.diverging.is_none();
    let lists_aborted = read.unknown || (fetch.isolation != 0 && was_read);
    let wrong = [ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::FENCED_LEADER_EPOCH].contains(&read.error);
    let led = slot.place.as_ref().ok().filter(|_| wrong && fetch.version >= FIRST_LEADER_VERSION);
    let leader = |led: &Arc<Partition>| LeaderIdAndEpoch { leader_id: fetch.node_id, leader_epoch: led.leader_epoch() };
    PartitionData {
        partition_index: slot.index,
        error_code: read.error.0,
        high_watermark: read.high_watermark,
        last_stable_offset: read.last_stable_offset,
        log_start_offset: read.log_start,
        diverging_epoch: read
            .diverging
            .map_or_else(Default::default, |(epoch, end_offset)| EpochEndOffset { epoch, end_offset }),
        current_leader: led.map_or_else(Default::default, leader),
        aborted_transactions: lists_aborted.then(|| read.aborted.iter().map(aborted).collect()),
        records: Some(records),
        ..Default::default()
    }
}

fn aborted(found: &AbortedTxn) -> AbortedTransaction {
    AbortedTransaction { producer_id: found.producer_id, first_offset: found.first_offset }
}

/// Writes the answer, with file ranges in the gaps that the response leaves.
fn put(
    fetch: &Fetch,
    out: &mut Outgoing,
    response: &FetchResponse<'_>,
    large: Vec<(&Slice, &Arc<Partition>)>,
) -> Result<(), Refusal> {
    let header = Header::new(ApiKey::FETCH, fetch.version, fetch.correlation_id, None);
    let gaps = put_answer(&header, out, response)?;
    for (gap, (slice, partition)) in gaps.iter().zip(large) {
        let file = Arc::clone(slice.file.os_file().expect("a broker's log is in files"));
        let owner: Arc<dyn FileOwner> = Arc::<Partition>::clone(partition);
        let (position, cold, owner) = (slice.position, slice.cold, Some(owner));
        out.file_at(gap.at, FileRange { file, position, len: gap.len as u64, cold, owner });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use milena_protocol::{Message, Reader, Uuid};
    use parking_lot::Mutex;

    use super::super::read;
    use super::*;
    use crate::fetch_sessions::{FetchPartitions, TopicKey};
    use crate::partition::TopicIdentity;

    const VERSION: i16 = 12;

    fn add(partitions: &Mutex<FetchPartitions>, index: i32) {
        let topic = Arc::new(TopicIdentity { name: "t".into(), id: Uuid::ZERO });
        let slot = || Slot::new(topic, index, Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
        partitions.lock().topic(TopicKey::Name("t".into())).entry(index, slot);
    }

    #[test]
    fn a_fetch_is_refused_when_another_request_has_gone_on_with_its_session() {
        let partitions = Arc::<Mutex<FetchPartitions>>::default();
        add(&partitions, 0);
        let request = partitions.lock().begin_request();
        let fetch = Fetch {
            version: VERSION,
            node_id: 1,
            correlation_id: 1,
            max_wait: Duration::ZERO,
            min_bytes: 1,
            max_bytes: 1,
            isolation: 0,
            replica: -1,
            partitions: Arc::clone(&partitions),
            session: SessionUse::Incremental { id: 7, request },
        };
        let mut read = read::read(&fetch, read::Reach::Memory);
        add(&partitions, 1);
        partitions.lock().begin_request();
        let mut out = Outgoing::new();
        answer(&fetch, &mut read, &FetchSessions::new(1, Duration::ZERO), &mut out).unwrap();
        // In front of the body: size, correlation id, no tags.
        let response = FetchResponse::decode(&mut Reader::new(&out.bytes[9..]), VERSION).unwrap();
        let refused = (ErrorCode::INVALID_FETCH_SESSION_EPOCH.0, 7);
        assert_eq!((response.error_code, response.session_id), refused);
        assert!(response.responses.is_empty());
    }
}
