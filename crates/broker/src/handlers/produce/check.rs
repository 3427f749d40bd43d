//! What a Produce request must satisfy before anything is written, in Kafka's order: addressing, shape, acks, internal
//! topics, batch header, size, checksum. What is checked record by record is `records`' business.

use std::ops::Range;
use std::sync::Arc;

use milena_controller::is_internal;
use milena_protocol::messages::produce_request::{ProduceRequest, TopicProduceData};
use milena_protocol::{ErrorCode, Message, Reader, Records};
use milena_records::{Batch, BatchError, Compression, batches};

use super::plan::{Part, Plan, Request, Topic, TopicName};
use super::repeats;
use crate::partition::Partition;
use crate::replicas::Topics;
use crate::request::{Header, Refusal};

/// First version that may carry zstd.
const FIRST_ZSTD_VERSION: i16 = 7;
/// First version that names topics by id.
pub(super) const FIRST_TOPIC_ID_VERSION: i16 = 13;

/// Checks one request and adds it to the plan.
///
/// # Errors
/// When its bytes are not a Produce request; the connection is closed for it.
pub(super) fn request(frame: &[u8], topics: &Topics, plan: &mut Plan) -> Result<(), Refusal> {
    let (header, body_at) = Header::parse(frame)?;
    let body = ProduceRequest::decode(&mut Reader::new(&frame[body_at..]), header.version)?;
    let (first, first_topic) = (plan.parts.len(), plan.topics.len());
    // A topic without partitions is not answered.
    let asked = body.topic_data.iter().filter(|topic| !topic.partition_data.is_empty());
    for (answer, topic) in asked.enumerate() {
        add_topic(topic, answer, header.version, frame, topics, plan);
    }
    if repeats::may_be_in(&body.topic_data) {
        repeats::mark(&mut plan.topics[first_topic..], &mut plan.parts);
    }
    let parts = &mut plan.parts[first..];
    check_leading_headers(parts, frame, body.transactional_id.is_some());
    let mut is_transactional = false;
    for part in parts {
        is_transactional |= check_part(part, frame, header.version, body.acks);
    }
    plan.requests.push(Request {
        version: header.version,
        correlation_id: header.correlation_id,
        acks: body.acks,
        transactional_id: is_transactional.then(|| body.transactional_id.as_deref().map(Box::from)).flatten(),
        topics: first_topic..plan.topics.len(),
    });
    Ok(())
}

/// Finds the partitions of one topic of a request; `answer` is the place of its answer.
fn add_topic(
    topic: &TopicProduceData<'_>,
    answer: usize,
    version: i16,
    frame: &[u8],
    topics: &Topics,
    plan: &mut Plan,
) {
    let by_id = version >= FIRST_TOPIC_ID_VERSION;
    let found = if by_id { topics.by_id(topic.topic_id) } else { topics.by_name(&topic.name) };
    let unknown = if by_id { ErrorCode::UNKNOWN_TOPIC_ID } else { ErrorCode::UNKNOWN_TOPIC_OR_PARTITION };
    let start = plan.parts.len();
    for data in &topic.partition_data {
        let served = found.ok_or(unknown).and_then(|topic| topic.served(data.index));
        let batch = place_in(frame, data.records.as_ref());
        plan.parts.push(Part::new(plan.requests.len(), batch, data.index, served.cloned()));
    }
    let name = match found {
        Some(topic) => TopicName::Known(Arc::clone(&topic.identity)),
        None => TopicName::Unknown(topic.name.to_string()),
    };
    plan.topics.push(Topic { name, id: topic.topic_id, parts: start..plan.parts.len(), answer });
}

/// Where a partition's records stand in the frame; null and empty ones stand nowhere.
fn place_in(frame: &[u8], records: Option<&Records<'_>>) -> Range<usize> {
    records.filter(|records| !records.is_empty()).and_then(|records| records.range_in(frame)).unwrap_or(0..0)
}

/// Kafka looks at the first headers of the partitions until one is transactional; one that can't be read before that
/// fails the whole request.
fn check_leading_headers(parts: &mut [Part], frame: &[u8], has_transactional_id: bool) {
    let failure = parts.iter().find_map(|part| match batches(&frame[part.batch.clone()]).next() {
        Some(Err(BatchError::LengthTooSmall { .. } | BatchError::UnknownMagic(_))) => {
            Some((ErrorCode::CORRUPT_MESSAGE, Some("A batch header can't be read")))
        }
        Some(Ok(batch)) if batch.is_transactional() && has_transactional_id => Some((ErrorCode::NONE, None)),
        Some(Ok(batch)) if batch.is_transactional() => Some((ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED, None)),
        _ => None,
    });
    if let Some((error, message)) = failure.filter(|(error, _)| *error != ErrorCode::NONE) {
        for part in parts {
            part.error = ErrorCode::NONE;
            part.refuse(error, message);
        }
    }
}

/// Checks what one partition is given. True for a batch of a transaction that passed.
fn check_part(part: &mut Part, frame: &[u8], version: i16, acks: i16) -> bool {
    let Some(partition) = part.partition.clone().filter(|_| part.is_good()) else { return false };
    match sole_batch(&frame[part.batch.clone()], version) {
        Ok(batch) => {
            part.batch.end = part.batch.start + batch.size();
            if !(-1..=1).contains(&acks) {
                part.refuse(ErrorCode::INVALID_REQUIRED_ACKS, None);
            } else if is_internal(&partition.topic.name) {
                part.refuse(ErrorCode::INVALID_TOPIC_EXCEPTION, None);
            } else if !batch.is_transactional() {
                check_batch(part, &batch, &partition);
            }
            part.error == ErrorCode::NONE && batch.is_transactional()
        }
        Err(error) => {
            part.refuse(error, None);
            false
        }
    }
}

/// Checks the headers of batches of transactions, which come after what their coordinators say of them.
pub(super) fn transactional(frames: &[&mut [u8]], plan: &mut Plan) {
    for part in plan.parts.iter_mut().filter(|part| part.is_good()) {
        let batch = Batch::parse(&frames[part.frame][part.batch.clone()]).ok();
        if let (Some(batch), Some(partition)) = (batch.filter(Batch::is_transactional), part.partition.clone()) {
            check_batch(part, &batch, &partition);
        }
    }
}

/// The one whole batch in what a partition is given. A rest that is no whole batch is dropped.
fn sole_batch(bytes: &[u8], version: i16) -> Result<Batch<'_>, ErrorCode> {
    let mut found = batches(bytes);
    let batch = match found.next() {
        Some(Ok(batch)) => batch,
        Some(Err(
            BatchError::BelowOverhead { .. } | BatchError::LengthTooSmall { .. } | BatchError::UnknownMagic(_),
        )) => return Err(ErrorCode::CORRUPT_MESSAGE),
        _ => return Err(ErrorCode::INVALID_RECORD),
    };
    if batch.compression() == Some(Compression::Zstd) && version < FIRST_ZSTD_VERSION {
        return Err(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE);
    }
    match found.next() {
        None | Some(Err(BatchError::Truncated { .. })) => Ok(batch),
        Some(Err(BatchError::LengthTooSmall { .. } | BatchError::UnknownMagic(_))) => Err(ErrorCode::CORRUPT_MESSAGE),
        Some(_) => Err(ErrorCode::INVALID_RECORD),
    }
}

/// Checks a batch by its header and checksum.
fn check_batch(part: &mut Part, batch: &Batch<'_>, partition: &Partition) {
    if batch.base_offset() != 0 {
        return part.refuse_at_log(ErrorCode::INVALID_RECORD);
    }
    if batch.size() > partition.settings().records.max_batch_bytes {
        return part.refuse(ErrorCode::MESSAGE_TOO_LARGE, None);
    }
    if batch.verify_crc().is_err() {
        return part.refuse(ErrorCode::CORRUPT_MESSAGE, None);
    }
    let counted = i64::from(batch.last_offset_delta()) + 1;
    if batch.count() <= 0 || i64::from(batch.count()) != counted || batch.is_control() {
        return part.refuse_at_log(ErrorCode::INVALID_RECORD);
    }
    if batch.has_producer_id() && batch.base_sequence() < 0 {
        part.refuse_at_log(ErrorCode::INVALID_RECORD);
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
