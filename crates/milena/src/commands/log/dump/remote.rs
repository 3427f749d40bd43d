//! Records of the remote log metadata topic, in the text that Kafka's objects of them have.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result, ensure};
use milena_protocol::RemoteLogRecord;
use milena_protocol::Uuid;

/// Names of `RemoteLogSegmentState`, by id.
const SEGMENT_STATES: [&str; 4] =
    ["COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED"];
/// Names of `RemotePartitionDeleteState`, by id.
const PARTITION_STATES: [&str; 3] =
    ["DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED"];

/// The text of a record.
///
/// # Errors
/// What is no such record, and what Kafka makes no object of.
pub(super) fn text(value: &[u8]) -> Result<String> {
    Ok(match RemoteLogRecord::decode_framed(value)?.0 {
        RemoteLogRecord::RemoteLogSegmentMetadata(r) => {
            let id = &r.remote_log_segment_id;
            let partition = &id.topic_id_partition;
            let segment = Segment {
                offsets: (r.start_offset, r.end_offset),
                max_timestamp: r.max_timestamp_ms,
                epochs: r.segment_leader_epochs.iter().map(|e| (e.leader_epoch, e.offset)).collect(),
                size: r.segment_size_in_bytes,
                custom: r.custom_metadata.as_deref(),
                state: r.remote_log_segment_state,
                txn_index_empty: r.txn_index_empty,
            };
            format!(
                "RemoteLogSegmentMetadata{{remoteLogSegmentId={}, {}}}",
                segment_id(&partition_name(partition.id, &partition.name, partition.partition), id.id),
                segment.text(Some((r.broker_id, r.event_timestamp_ms)))?
            )
        }
        RemoteLogRecord::RemoteLogSegmentMetadataUpdate(r) => {
            let id = &r.remote_log_segment_id;
            let partition = &id.topic_id_partition;
            format!(
                "RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={}, customMetadata={}, state={}, \
                 eventTimestampMs={}, brokerId={}}}",
                segment_id(&partition_name(partition.id, &partition.name, partition.partition), id.id),
                custom(r.custom_metadata.as_deref()),
                state(&SEGMENT_STATES, r.remote_log_segment_state)?,
                r.event_timestamp_ms,
                r.broker_id
            )
        }
        RemoteLogRecord::RemotePartitionDeleteMetadata(r) => {
            let partition = &r.topic_id_partition;
            format!(
                "RemotePartitionDeleteMetadata{{topicPartition={}, state={}, eventTimestampMs={}, brokerId={}}}",
                partition_name(partition.id, &partition.name, partition.partition),
                state(&PARTITION_STATES, r.remote_partition_delete_state)?,
                r.event_timestamp_ms,
                r.broker_id
            )
        }
        RemoteLogRecord::RemoteLogSegmentMetadataSnapshot(r) => {
            let segment = Segment {
                offsets: (r.start_offset, r.end_offset),
                max_timestamp: r.max_timestamp_ms,
                epochs: r.segment_leader_epochs.iter().map(|e| (e.leader_epoch, e.offset)).collect(),
                size: r.segment_size_in_bytes,
                custom: r.custom_metadata.as_deref(),
                state: r.remote_log_segment_state,
                txn_index_empty: r.txn_index_empty,
            };
            format!("RemoteLogSegmentMetadataSnapshot{{segmentId={}, {}}}", r.segment_id, segment.text(None)?)
        }
    })
}

/// What two kinds of records say of a segment.
struct Segment<'r> {
    offsets: (i64, i64),
    max_timestamp: i64,
    epochs: BTreeMap<i32, i64>,
    size: i32,
    custom: Option<&'r [u8]>,
    state: i8,
    txn_index_empty: bool,
}

impl Segment<'_> {
    /// The fields; `event` is the broker and the time, which a snapshot's record does not show.
    fn text(&self, event: Option<(i32, i64)>) -> Result<String> {
        let (start, end) = self.offsets;
        ensure!(start >= 0, "Unexpected start offset = {start}. StartOffset for a remote segment cannot be negative");
        ensure!(
            end >= start,
            "Unexpected end offset = {end}. EndOffset for a remote segment cannot be less than startOffset = {start}"
        );
        ensure!(!self.epochs.is_empty(), "segmentLeaderEpochs can not be null or empty");
        let epochs: Vec<String> = self.epochs.iter().map(|(epoch, offset)| format!("{epoch}={offset}")).collect();
        let broker = event.map_or(String::new(), |(broker, _)| format!("brokerId={broker}, "));
        let time = event.map_or(String::new(), |(_, time)| format!("eventTimestampMs={time}, "));
        Ok(format!(
            "startOffset={start}, endOffset={end}, {broker}maxTimestampMs={}, {time}segmentLeaderEpochs={{{}}}, \
             segmentSizeInBytes={}, customMetadata={}, state={}, txnIdxEmpty={}",
            self.max_timestamp,
            epochs.join(", "),
            self.size,
            custom(self.custom),
            state(&SEGMENT_STATES, self.state)?,
            self.txn_index_empty
        ))
    }
}

fn partition_name(id: Uuid, name: &str, partition: i32) -> String {
    format!("{id}:{name}-{partition}")
}

fn segment_id(partition: &str, id: impl fmt::Display) -> String {
    format!("RemoteLogSegmentId{{topicIdPartition={partition}, id={id}}}")
}

fn custom(bytes: Option<&[u8]>) -> String {
    bytes.map_or_else(
        || "Optional.empty".to_owned(),
        |bytes| format!("Optional[CustomMetadata{{{} bytes}}]", bytes.len()),
    )
}

fn state<'n>(names: &[&'n str], id: i8) -> Result<&'n str> {
    usize::try_from(id).ok().and_then(|id| names.get(id)).copied().with_context(|| format!("state {id} is unknown"))
}
