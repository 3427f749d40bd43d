//! DeleteRecords. v2: flexible. An answer without error leaves when the new log start offsets are on disk.

use std::borrow::Cow;
use std::sync::Arc;

use indexmap::IndexMap;
use milena_log::LogError;
use milena_net::{LocalBoxFuture, Reply};
use milena_protocol::messages::delete_records_request::DeleteRecordsRequest;
use milena_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsResponse, DeleteRecordsTopicResult,
};
use milena_protocol::{ApiKey, ErrorCode};

use crate::dispatch::frame;
use crate::partition::Partition;
use crate::registry::{Api, Handler};
use crate::replicas::{Topics, is_internal};
use crate::request::{OwnedRequest, Refusal};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::DELETE_RECORDS, 0..=2, Handler::Later(handle));

/// Stands for the high watermark.
const HIGH_WATERMARK: i64 = -1;

fn handle(request: OwnedRequest, services: Arc<Services>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    Box::pin(async move {
        let call = request.call();
        let asked: DeleteRecordsRequest<'_> = call.request()?;
        let mut response = delete(&asked, &services.replicas.topics());
        if answers(&mut response).any(|answer| succeeded(answer)) && !services.maintenance.keep_log_starts().await {
            answers(&mut response).filter(|answer| succeeded(answer)).for_each(|answer| {
                *answer = failed(answer.partition_index, ErrorCode::KAFKA_STORAGE_ERROR);
            });
        }
        frame(|out| call.answer(out, &response))
    })
}

fn answers<'r>(
    response: &'r mut DeleteRecordsResponse<'_>,
) -> impl Iterator<Item = &'r mut DeleteRecordsPartitionResult> {
    response.topics.iter_mut().flat_map(|topic| &mut topic.partitions)
}

fn succeeded(answer: &DeleteRecordsPartitionResult) -> bool {
    answer.error_code == ErrorCode::NONE.0
}

fn failed(partition_index: i32, error: ErrorCode) -> DeleteRecordsPartitionResult {
    DeleteRecordsPartitionResult { partition_index, low_watermark: -1, error_code: error.0 }
}

/// Answers each partition once, under one entry for each topic. Of one that is named several times the last offset counts.
fn delete<'r>(request: &'r DeleteRecordsRequest<'r>, topics: &Topics) -> DeleteRecordsResponse<'r> {
    let mut asked: IndexMap<&str, IndexMap<i32, i64>> = IndexMap::new();
    for topic in request.topics.iter().filter(|topic| !topic.partitions.is_empty()) {
        let offsets = topic.partitions.iter().map(|asked| (asked.partition_index, asked.offset));
        asked.entry(&*topic.name).or_default().extend(offsets);
    }
    let answered = asked.into_iter().map(|(name, offsets)| {
        let hosted = topics.by_name(name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        let answer = |(partition_index, offset)| {
            let partition = hosted.and_then(|hosted| hosted.served(partition_index));
            match delete_from(name, partition.map(|partition| &**partition), offset) {
                Ok(low_watermark) => DeleteRecordsPartitionResult { partition_index, low_watermark, error_code: 0 },
                Err(error) => failed(partition_index, error),
            }
        };
        DeleteRecordsTopicResult { name: Cow::Borrowed(name), partitions: offsets.into_iter().map(answer).collect() }
    });
    DeleteRecordsResponse { topics: answered.collect(), ..Default::default() }
}

/// Checks in Kafka's order, then raises the log start offset; the low watermark is that of the only replica.
fn delete_from(topic: &str, partition: Result<&Partition, ErrorCode>, offset: i64) -> Result<i64, ErrorCode> {
    let partition = partition?;
    if is_internal(topic) {
        return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
    }
    if partition.is_retired() || partition.directory().is_offline() {
        return Err(partition.retired_error());
    }
    let settings = partition.settings();
    if settings.log.compact && !settings.log.delete {
        return Err(ErrorCode::POLICY_VIOLATION);
    }
    let deleted = partition.change_log_start(|log| {
        let offset = if offset == HIGH_WATERMARK { partition.high_watermark() } else { offset };
        if !(0..=partition.high_watermark()).contains(&offset) {
            let (start, end) = (log.log_start_offset(), log.log_end_offset());
            return Err(LogError::OffsetOutOfRange { offset, start, end });
        }
        log.set_log_start_offset(offset)?;
        Ok(log.log_start_offset())
    });
    deleted.map_err(|error| match error {
        LogError::OffsetOutOfRange { .. } => ErrorCode::OFFSET_OUT_OF_RANGE,
        _ => partition.failure_error(),
    })
}

#[cfg(test)]
mod tests {
    use milena_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};

    use super::*;
    use crate::replicas::Replicas;
    use crate::settings::PartitionSettings;
    use crate::test_partitions;

    fn partition(partition_index: i32, offset: i64) -> DeleteRecordsPartition {
        DeleteRecordsPartition { partition_index, offset }
    }

    /// A topic's name, and of each answer its partition, low watermark and error.
    type Answers = (String, Vec<(i32, i64, i16)>);

    fn ask(replicas: &Replicas, topics: Vec<(&'static str, Vec<(i32, i64)>)>) -> Vec<Answers> {
        let asked = topics.into_iter().map(|(name, partitions)| DeleteRecordsTopic {
            name: name.into(),
            partitions: partitions.into_iter().map(|(index, offset)| partition(index, offset)).collect(),
        });
        let request = DeleteRecordsRequest { topics: asked.collect(), timeout_ms: 0 };
        let response = delete(&request, &replicas.topics());
        let answers = response.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|it| (it.partition_index, it.low_watermark, it.error_code));
            (topic.name.to_string(), partitions.collect())
        });
        answers.collect()
    }

    fn one(replicas: &Replicas, offset: i64) -> (i64, i16) {
        let (_, low_watermark, error) = ask(replicas, vec![("t", vec![(0, offset)])])[0].1[0];
        (low_watermark, error)
    }

    #[test]
    fn the_log_start_offset_is_raised_up_to_the_high_watermark_and_never_lowered() {
        let replicas = test_partitions::topic(&[&[&[1, 2, 3], &[4, 5, 6]]]);
        assert_eq!(one(&replicas, 0), (0, 0));
        assert_eq!(one(&replicas, 4), (4, 0));
        assert_eq!(one(&replicas, 2), (4, 0));
        let out_of_range = (-1, ErrorCode::OFFSET_OUT_OF_RANGE.0);
        assert_eq!((one(&replicas, 7), one(&replicas, -2)), (out_of_range, out_of_range));
        let topics = replicas.topics();
        let partition = topics.by_name("t").unwrap().partition(0).unwrap();
        assert_eq!((partition.log_start_offset(), partition.log().leader_epochs()[0].start_offset), (4, 4));
        assert_eq!(one(&replicas, -1), (6, 0));
        assert_eq!(partition.log_start_offset(), 6);
    }

    #[test]
    fn each_partition_is_answered_once_and_its_last_offset_counts() {
        let replicas = test_partitions::topic(&[&[&[1, 2, 3]], &[&[1]]]);
        let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0;
        let answers = ask(
            &replicas,
            vec![("t", vec![(0, 3), (5, 0), (0, 1)]), ("u", vec![(0, 0)]), ("t", vec![(1, 1)]), ("v", vec![])],
        );
        let expected = [("t", vec![(0, 1, 0), (5, -1, unknown), (1, 1, 0)]), ("u", vec![(0, -1, unknown)])];
        assert_eq!(answers, expected.map(|(name, partitions)| (name.to_owned(), partitions)));
    }

    #[test]
    fn a_partition_that_is_only_compacted_keeps_its_records() {
        let replicas = test_partitions::topic(&[&[&[1, 2, 3]]]);
        let topics = replicas.topics();
        let partition = topics.by_name("t").unwrap().partition(0).unwrap();
        let with = |compact, delete| {
            let log = milena_log::LogConfig { compact, delete, ..milena_log::LogConfig::default() };
            let (records, compaction) = (partition.settings().records.clone(), partition.settings().compaction);
            let settings = PartitionSettings { log: log.into(), file_delete_delay_ms: 0, records, compaction };
            partition.set_settings(Arc::new(settings));
            one(&replicas, 1)
        };
        assert_eq!(with(true, false), (-1, ErrorCode::POLICY_VIOLATION.0));
        assert_eq!([with(true, true), with(false, false)], [(1, 0), (1, 0)]);
    }

    #[test]
    fn internal_topics_keep_their_records() {
        let replicas = test_partitions::topic(&[&[&[1]]]);
        let topics = replicas.topics();
        let partition = topics.by_name("t").unwrap().partition(0);
        let of = |name| delete_from(name, Ok(partition.unwrap()), 1);
        assert_eq!(of("__consumer_offsets"), Err(ErrorCode::INVALID_TOPIC_EXCEPTION));
        assert_eq!(of("t"), Ok(1));
    }
}
