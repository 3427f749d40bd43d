//! DescribeLogDirs. v2: flexible. v3: an error of the whole answer. v4: how large the file system is and how much of it
//! is left. v5: cordoned directories.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use milena_log::Log;
use milena_net::{LocalBoxFuture, Outgoing, Reply};
use milena_protocol::messages::describe_log_dirs_request::{DescribableLogDirTopic, DescribeLogDirsRequest};
use milena_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResponse, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use milena_protocol::{ApiKey, ErrorCode};
use rustc_hash::FxHashSet;

use crate::dispatch;
use crate::partition::Partition;
use crate::registry::{Api, Handler};
use crate::replicas::Topics;
use crate::request::{Call, OwnedRequest, Refusal};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::DESCRIBE_LOG_DIRS, 1..=5, Handler::Later(serve));

/// A file system may take its time to say how large it is, and the lock of each partition is taken.
fn serve(request: OwnedRequest, services: Arc<Services>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    Box::pin(dispatch::read(request, services, handle))
}

fn handle(call: &Call<'_>, services: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: DescribeLogDirsRequest<'_> = call.request()?;
    let topics = services.replicas.topics();
    let mut hosted =
        hosted_by_directory(&asked(request.topics.as_deref(), &topics), services.storage.directories().len());
    let results = services.storage.directories().iter().zip(&mut hosted).map(|(directory, topics)| {
        let mut result = describe(&directory.absolute_path(), directory.is_offline(), std::mem::take(topics));
        result.is_cordoned = directory.is_cordoned();
        result
    });
    call.answer(out, &DescribeLogDirsResponse { results: results.collect(), ..Default::default() })
}

/// The partitions that are here and asked for; `None` asks for all.
fn asked<'t>(topics: Option<&[DescribableLogDirTopic<'_>]>, hosted: &'t Topics) -> Vec<&'t Arc<Partition>> {
    let Some(topics) = topics else { return hosted.partitions().collect() };
    let mut seen = FxHashSet::default();
    let mut asked = Vec::new();
    for topic in topics {
        let Some(hosted) = hosted.by_name(&topic.topic) else { continue };
        for &index in topic.partitions.iter() {
            let new = hosted.partition(index).filter(|partition| seen.insert(Arc::as_ptr(partition)));
            asked.extend(new);
        }
    }
    asked
}

/// By directory and topic.
type TopicsOfDirectory<'t> = BTreeMap<&'t str, Vec<DescribeLogDirsPartition>>;

fn hosted_by_directory<'t>(partitions: &[&'t Arc<Partition>], directories: usize) -> Vec<TopicsOfDirectory<'t>> {
    let mut hosted = vec![TopicsOfDirectory::new(); directories];
    for &partition in partitions {
        for (directory, measured) in measure(partition) {
            if let Some(topics) = hosted.get_mut(directory) {
                topics.entry(&partition.topic.name).or_default().push(measured);
            }
        }
    }
    hosted
}

/// Its log and, if there is one, the future one, with the places of their directories.
fn measure(partition: &Partition) -> impl Iterator<Item = (usize, DescribeLogDirsPartition)> {
    let log = partition.log();
    let measured = |log: &Log, offset_lag, is_future_key| DescribeLogDirsPartition {
        partition_index: partition.index,
        partition_size: i64::try_from(log.size()).unwrap_or(i64::MAX),
        offset_lag,
        is_future_key,
    };
    let end = log.log_end_offset();
    let here = (partition.directory().index(), measured(&log, (partition.high_watermark() - end).max(0), false));
    let future = partition.future().map(|future| {
        let copy = future.log();
        (future.directory.index(), measured(&copy, end - copy.log_end_offset(), true))
    });
    std::iter::once(here).chain(future)
}

fn describe<'r>(dir: &Path, is_offline: bool, hosted: TopicsOfDirectory<'r>) -> DescribeLogDirsResult<'r> {
    let log_dir = Cow::Owned(dir.to_string_lossy().into_owned());
    let space = (!is_offline).then(|| space(dir).ok()).flatten();
    let Some((total_bytes, usable_bytes)) = space else {
        return DescribeLogDirsResult { error_code: ErrorCode::KAFKA_STORAGE_ERROR.0, log_dir, ..Default::default() };
    };
    let topics = hosted.into_iter().map(|(name, mut partitions)| {
        partitions.sort_by_key(|partition| partition.partition_index);
        DescribeLogDirsTopic { name: Cow::Borrowed(name), partitions }
    });
    DescribeLogDirsResult { log_dir, topics: topics.collect(), total_bytes, usable_bytes, ..Default::default() }
}

/// Size of a directory's file system and what an ordinary user may still use of it, bytes.
fn space(dir: &Path) -> rustix::io::Result<(i64, i64)> {
    let stat = rustix::fs::statvfs(dir)?;
    let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(stat.f_frsize)).unwrap_or(i64::MAX);
    Ok((bytes(stat.f_blocks), bytes(stat.f_bavail)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_has_room_and_a_missing_directory_is_an_error() {
        let (total, usable) = space(Path::new("/")).unwrap();
        assert!(total > 0 && usable <= total);
        for (dir, is_offline) in [("/nowhere/at/all", false), ("/", true)] {
            let missing = describe(Path::new(dir), is_offline, TopicsOfDirectory::new());
            assert_eq!((missing.error_code, missing.total_bytes), (ErrorCode::KAFKA_STORAGE_ERROR.0, -1));
        }
    }
}
