//! ListOffsets. v1: one offset for a timestamp. v2: isolation level, throttle time. v4: leader epochs. v6: flexible.
//! v7: -3, the largest timestamp. v8: -4, the local log start. v9: -5, the last tiered offset. v10: timeout. v11: -6, the
//! first offset that waits for tiering.

use std::borrow::Cow;
use std::sync::Arc;

use indexmap::IndexMap;
use milena_log::{Log, LogError, LogView, TimestampOffset};
use milena_net::{Outgoing, Replies};
use milena_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsRequest};
use milena_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use milena_protocol::{ApiKey, ErrorCode};
use milena_records::Decompressor;

use crate::dispatch;
use crate::partition::Partition;
use crate::registry::{Api, Handler};
use crate::replicas::Topics;
use crate::request::{Call, OwnedRequest, Refusal};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::LIST_OFFSETS, 1..=11, Handler::Either(serve));

/// First version that tells leader epochs.
const FIRST_LEADER_EPOCH_VERSION: i16 = 4;
/// The client does not know the current leader epoch.
const NO_EPOCH: i32 = -1;
/// No replica asks, but a consumer.
const CONSUMER: i32 = -1;
/// Longest decompressed batch that is searched for a timestamp, bytes.
const MOST_DECOMPRESSED: usize = 256 << 20;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

/// Answers at once what needs no look into the log's files; the rest is for a reader thread.
fn serve(call: &Call<'_>, services: &Arc<Services>, replies: &mut Replies<'_>) -> Result<(), Refusal> {
    let request: ListOffsetsRequest<'_> = call.request()?;
    let mut asked = request.topics.iter().flat_map(|topic| &topic.partitions);
    if !asked.any(|asked| is_in_records(asked.timestamp)) {
        return replies.try_ready(|out| handle(call, &request, services, out));
    }
    let request = OwnedRequest::new(call, replies);
    let search =
        |call: &Call<'_>, services: &Services, out: &mut Outgoing| handle(call, &call.request()?, services, out);
    dispatch::later(dispatch::read(request, Arc::clone(services), search), replies);
    Ok(())
}

fn handle(
    call: &Call<'_>,
    request: &ListOffsetsRequest<'_>,
    services: &Services,
    out: &mut Outgoing,
) -> Result<(), Refusal> {
    let topics = services.replicas.topics();
    call.answer(out, &response(request, call.header.version, &topics))
}

fn response<'r>(request: &'r ListOffsetsRequest<'r>, version: i16, topics: &Topics) -> ListOffsetsResponse<'r> {
    let answered = match Bound::of(request) {
        Some(bound) => {
            let mut lookup = Lookup { version, bound, decompressor: Decompressor::new(MOST_DECOMPRESSED) };
            answer(request, &mut lookup, topics)
        }
        None => refuse(request),
    };
    ListOffsetsResponse { topics: answered, ..Default::default() }
}

/// How far the asker may see.
#[derive(Clone, Copy)]
enum Bound {
    /// Up to what all in-sync replicas have.
    HighWatermark,
    /// Up to the first open transaction.
    LastStableOffset,
    /// Up to the end of the log.
    LogEnd,
}

impl Bound {
    /// `None` for an isolation level that does not exist.
    fn of(request: &ListOffsetsRequest<'_>) -> Option<Self> {
        match request.isolation_level {
            0 | 1 if request.replica_id != CONSUMER => Some(Self::LogEnd),
            0 => Some(Self::HighWatermark),
            1 => Some(Self::LastStableOffset),
            _ => None,
        }
    }

    fn offset(self, partition: &Partition) -> i64 {
        match self {
            Self::HighWatermark => partition.high_watermark(),
            Self::LastStableOffset => partition.last_stable_offset(),
            Self::LogEnd => partition.log().log_end_offset(),
        }
    }
}

/// Answers each partition once, under one entry for each topic. One that is named twice is refused.
fn answer<'r>(
    request: &'r ListOffsetsRequest<'r>,
    lookup: &mut Lookup,
    topics: &Topics,
) -> Vec<ListOffsetsTopicResponse<'r>> {
    let mut asked: IndexMap<&str, IndexMap<i32, Result<&ListOffsetsPartition, ErrorCode>>> = IndexMap::new();
    for topic in request.topics.iter().filter(|topic| !topic.partitions.is_empty()) {
        let partitions = asked.entry(&*topic.name).or_default();
        for partition in &topic.partitions {
            let named = partitions.entry(partition.partition_index);
            named.and_modify(|asked| *asked = Err(ErrorCode::INVALID_REQUEST)).or_insert(Ok(partition));
        }
    }
    let answered = asked.into_iter().map(|(name, partitions)| {
        let hosted = topics.by_name(name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        let answer = |(index, asked): (i32, Result<&ListOffsetsPartition, ErrorCode>)| match asked {
            Ok(asked) => {
                let partition = hosted.and_then(|topic| topic.served(index));
                lookup.answer(asked, partition.map(|partition| &**partition))
            }
            Err(error) => failed(index, error),
        };
        let partitions = partitions.into_iter().map(answer).collect();
        ListOffsetsTopicResponse { name: Cow::Borrowed(name), partitions }
    });
    answered.collect()
}

/// Answers everything that is asked with an error.
fn refuse<'r>(request: &'r ListOffsetsRequest<'r>) -> Vec<ListOffsetsTopicResponse<'r>> {
    let refused = |asked: &ListOffsetsPartition| failed(asked.partition_index, ErrorCode::UNKNOWN_SERVER_ERROR);
    let topics = request.topics.iter().map(|topic| ListOffsetsTopicResponse {
        name: Cow::Borrowed(&topic.name),
        partitions: topic.partitions.iter().map(refused).collect(),
    });
    topics.collect()
}

fn failed(partition_index: i32, error: ErrorCode) -> ListOffsetsPartitionResponse {
    ListOffsetsPartitionResponse { partition_index, error_code: error.0, timestamp: -1, offset: -1, leader_epoch: -1 }
}

/// How offsets are looked up for one request.
struct Lookup {
    version: i16,
    bound: Bound,
    decompressor: Decompressor,
}

impl Lookup {
    fn answer(
        &mut self,
        asked: &ListOffsetsPartition,
        partition: Result<&Partition, ErrorCode>,
    ) -> ListOffsetsPartitionResponse {
        let found = match self.find(asked, partition) {
            Ok(Some(found)) => found,
            Ok(None) => return failed(asked.partition_index, ErrorCode::NONE),
            Err(error) => return failed(asked.partition_index, error),
        };
        ListOffsetsPartitionResponse {
            partition_index: asked.partition_index,
            error_code: ErrorCode::NONE.0,
            timestamp: found.timestamp,
            offset: found.offset,
            leader_epoch: if self.version < FIRST_LEADER_EPOCH_VERSION { -1 } else { found.leader_epoch },
        }
    }

    /// `None` when there is no such record.
    fn find(
        &mut self,
        asked: &ListOffsetsPartition,
        partition: Result<&Partition, ErrorCode>,
    ) -> Result<Option<TimestampOffset>, ErrorCode> {
        if !is_served(asked.timestamp, self.version) {
            return Err(ErrorCode::UNSUPPORTED_VERSION);
        }
        let partition = partition?;
        if asked.current_leader_epoch != NO_EPOCH {
            partition.check_leader_epoch(asked.current_leader_epoch)?;
        }
        match asked.timestamp {
            LATEST => {
                let (offset, leader_epoch) = (self.bound.offset(partition), partition.leader_epoch());
                Ok(Some(TimestampOffset { timestamp: -1, offset, leader_epoch }))
            }
            EARLIEST | EARLIEST_LOCAL => {
                let log = partition.log();
                let offset = log.log_start_offset();
                let leader_epoch = log.epoch_for_offset(offset).unwrap_or(-1);
                Ok(Some(TimestampOffset { timestamp: -1, offset, leader_epoch }))
            }
            LATEST_TIERED | EARLIEST_PENDING_UPLOAD => Ok(None),
            timestamp => self.find_record(timestamp, partition),
        }
    }

    /// A record by its timestamp, if the asker may see it.
    fn find_record(&mut self, timestamp: i64, partition: &Partition) -> Result<Option<TimestampOffset>, ErrorCode> {
        let limit = self.bound.offset(partition);
        let wanted = Some(timestamp).filter(|&timestamp| timestamp != MAX_TIMESTAMP);
        let view = |log: &Log| log.view_since(wanted);
        let found = partition.look(view, |view| self.search(wanted, view)).0;
        Ok(found.map_err(|error| code_of(partition, &error))?.filter(|found| found.offset < limit))
    }

    fn search(&mut self, wanted: Option<i64>, view: &LogView) -> Result<Option<TimestampOffset>, LogError> {
        match wanted {
            Some(timestamp) => view.offset_for_timestamp(timestamp, &mut self.decompressor),
            None => view.max_timestamp_offset(&mut self.decompressor),
        }
    }
}

/// Whether a timestamp is looked for in the records.
fn is_in_records(timestamp: i64) -> bool {
    timestamp >= 0 || timestamp == MAX_TIMESTAMP
}

/// Whether a version has this timestamp, of which the negative ones have meanings of their own.
fn is_served(timestamp: i64, version: i16) -> bool {
    match timestamp {
        LATEST | EARLIEST => true,
        MAX_TIMESTAMP => version >= 7,
        EARLIEST_LOCAL => version >= 8,
        LATEST_TIERED => version >= 9,
        EARLIEST_PENDING_UPLOAD => version >= 11,
        timestamp => timestamp >= 0,
    }
}

fn code_of(partition: &Partition, error: &LogError) -> ErrorCode {
    tracing::error!(%partition, %error, "a timestamp can't be looked up");
    partition.note_error(error);
    match error {
        LogError::Io { .. } => partition.failure_error(),
        LogError::BadRecord { .. } => ErrorCode::INVALID_RECORD,
        _ => ErrorCode::UNKNOWN_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests;
