//! Produce requests and their answers, as bytes.

use std::collections::HashMap;
use std::sync::Arc;

use milena_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use milena_protocol::messages::produce_response::PartitionProduceResponse;
use milena_protocol::messages::{ProduceRequest, ProduceResponse};
use milena_protocol::{ApiKey, ErrorCode, Records, Request, Uuid, Writer};
use milena_records::Compression;

use crate::connection::{ApiVersions, Frame};
use crate::error::Error;
use crate::metadata::Topic;
use crate::producer::batch::SealedBatch;
use crate::producer::config::ProducerConfig;

/// First version with topic ids instead of names.
const TOPIC_IDS: i16 = 13;
/// First version that takes zstd.
const ZSTD: i16 = 7;

/// What one partition was answered.
#[derive(Debug, Clone)]
pub(super) struct Answered {
    pub(super) code: ErrorCode,
    pub(super) base_offset: i64,
    pub(super) append_time: i64,
    pub(super) message: Option<Arc<str>>,
    pub(super) records: Vec<(i32, Option<Arc<str>>)>,
}

/// First version whose transactional batches join the transaction by themselves.
const JOINS: i16 = 12;

/// The version to use with a broker; `version_2` is that of transactions.
pub(super) fn version(
    versions: &ApiVersions,
    config: &ProducerConfig,
    ids: bool,
    version_2: bool,
) -> Result<i16, Error> {
    let mut first = if config.compression == Compression::Zstd { ZSTD } else { 3 };
    let mut last = if ids { i16::MAX } else { TOPIC_IDS - 1 };
    match (config.transactional_id.is_some(), version_2) {
        (true, true) => first = JOINS,
        (true, false) => last = JOINS - 1,
        (false, _) => {}
    }
    versions.highest(ApiKey::PRODUCE, &(first..=last))
}

/// A request with these batches, each of a partition of its own; batches of one topic follow each other.
pub(super) fn encode(
    batches: &[(Arc<Topic>, SealedBatch)],
    config: &ProducerConfig,
    timeout_ms: i32,
    version: i16,
    correlation: i32,
    client_id: &str,
) -> Result<Frame, Error> {
    let mut request = ProduceRequest {
        transactional_id: config.transactional_id.as_deref().map(Into::into),
        acks: config.acks.code(),
        timeout_ms,
        topic_data: Vec::new(),
    };
    let mut last = None;
    for (topic, batch) in batches {
        if last != Some(batch.key.0) {
            last = Some(batch.key.0);
            let (name, topic_id) = if version < TOPIC_IDS { (&*topic.name, Uuid::ZERO) } else { ("", topic.id) };
            request.topic_data.push(TopicProduceData { name: name.into(), topic_id, partition_data: Vec::new() });
        }
        if let Some(topic) = request.topic_data.last_mut() {
            let records = Some(Records::Gap(batch.bytes.len()));
            topic.partition_data.push(PartitionProduceData { index: batch.key.1, records });
        }
    }
    let mut writer = Writer::new();
    request.encode_request(&mut writer, correlation, Some(client_id), version)?;
    let places = writer.gaps.iter().map(|gap| gap.at);
    let gaps = places.zip(batches.iter().map(|(_, batch)| batch.bytes.clone())).collect();
    Ok(Frame { bytes: writer.buf, gaps })
}

/// The answers of a response's partitions: by topic, as `place` knows its name or id, and partition.
pub(super) fn answers(
    response: &ProduceResponse<'_>,
    place: impl Fn(&str, Uuid) -> Option<usize>,
) -> HashMap<(usize, i32), Answered> {
    let mut answers = HashMap::new();
    for topic in &response.responses {
        let Some(place) = place(&topic.name, topic.topic_id) else { continue };
        for partition in &topic.partition_responses {
            answers.insert((place, partition.index), answered(partition));
        }
    }
    answers
}

fn answered(partition: &PartitionProduceResponse<'_>) -> Answered {
    let text = |text: &Option<milena_protocol::Str<'_>>| text.as_deref().map(Into::into);
    Answered {
        code: ErrorCode(partition.error_code),
        base_offset: partition.base_offset,
        append_time: partition.log_append_time_ms,
        message: text(&partition.error_message),
        records: partition
            .record_errors
            .iter()
            .map(|record| (record.batch_index, text(&record.batch_index_error_message)))
            .collect(),
    }
}
