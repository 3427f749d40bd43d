//! AlterReplicaLogDirs. v2: flexible. Answered when the moves have begun; they end when everything is copied.

use std::borrow::Cow;
use std::sync::Arc;

use indexmap::IndexMap;
use milena_controller::Records;
use milena_net::{LocalBoxFuture, Reply};
use milena_protocol::messages::AlterReplicaLogDirsRequest;
use milena_protocol::messages::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult, AlterReplicaLogDirsResponse,
};
use milena_protocol::{ApiKey, ErrorCode};

use crate::dispatch::frame;
use crate::registry::{Api, Handler};
use crate::request::{OwnedRequest, Refusal};
use crate::services::Services;
use crate::storage::Move;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::ALTER_REPLICA_LOG_DIRS, 1..=2, Handler::Later(handle));

fn handle(request: OwnedRequest, services: Arc<Services>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    Box::pin(async move {
        let call = request.call();
        let moves: Arc<[Move]> = asked(&call.request()?).into();
        let (storage, replicas, begun) =
            (Arc::clone(&services.storage), Arc::clone(&services.replicas), Arc::clone(&moves));
        // The controller's thread is the one that changes partitions.
        let altered =
            services.controller.change(move |_| (Records::new(), storage.alter_directories(&replicas, &begun)));
        let errors = altered.await.unwrap_or_else(|_| vec![ErrorCode::KAFKA_STORAGE_ERROR; moves.len()]);
        frame(|out| call.answer(out, &answer(&moves, &errors)))
    })
}

/// Each partition once, topic by topic; the directory that is named last counts. Names are copied once for all their
/// partitions, however long they are.
fn asked(request: &AlterReplicaLogDirsRequest<'_>) -> Vec<Move> {
    let mut asked: IndexMap<&str, IndexMap<i32, Arc<str>>> = IndexMap::new();
    for named in &request.dirs {
        let directory: Arc<str> = (*named.path).into();
        for topic in &named.topics {
            let directories = topic.partitions.iter().map(|index| (*index, Arc::clone(&directory)));
            asked.entry(&*topic.name).or_default().extend(directories);
        }
    }
    let moves = asked.into_iter().flat_map(|(topic, directories)| {
        let topic: Arc<str> = topic.into();
        directories.into_iter().map(move |(index, directory)| Move { topic: Arc::clone(&topic), index, directory })
    });
    moves.collect()
}

/// One entry for each topic, whose moves share its name.
fn answer<'m>(moves: &'m [Move], errors: &[ErrorCode]) -> AlterReplicaLogDirsResponse<'m> {
    let mut errors = errors.iter();
    let topics = moves.chunk_by(|one, next| Arc::ptr_eq(&one.topic, &next.topic));
    let results = topics.map(|moves| {
        let partitions = moves
            .iter()
            .zip(&mut errors)
            .map(|(one, error)| AlterReplicaLogDirPartitionResult { partition_index: one.index, error_code: error.0 });
        AlterReplicaLogDirTopicResult { topic_name: Cow::Borrowed(&moves[0].topic), partitions: partitions.collect() }
    });
    AlterReplicaLogDirsResponse { results: results.collect(), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use milena_protocol::messages::alter_replica_log_dirs_request::{AlterReplicaLogDir, AlterReplicaLogDirTopic};

    use super::*;

    fn directory(path: &str, topic: &str, partitions: Vec<i32>) -> AlterReplicaLogDir<'static> {
        let topic = AlterReplicaLogDirTopic { name: topic.to_owned().into(), partitions: partitions.into() };
        AlterReplicaLogDir { path: path.to_owned().into(), topics: vec![topic] }
    }

    #[test]
    fn each_partition_moves_once_to_the_directory_that_is_named_last() {
        let dirs =
            vec![directory("/a", "t", vec![0, 1, 0]), directory("/b", "u", vec![0]), directory("/b", "t", vec![1])];
        let moves = asked(&AlterReplicaLogDirsRequest { dirs });
        let named = |one: &Move| (one.topic.to_string(), one.index, one.directory.to_string());
        let expected = [("t", 0, "/a"), ("t", 1, "/b"), ("u", 0, "/b")];
        assert_eq!(moves.iter().map(named).collect::<Vec<_>>(), expected.map(|(t, i, d)| (t.into(), i, d.into())));
        let answered = answer(&moves, &[ErrorCode(1), ErrorCode(2), ErrorCode(3)]);
        let told = |topic: &AlterReplicaLogDirTopicResult<'_>| {
            let partitions = topic.partitions.iter().map(|told| (told.partition_index, told.error_code));
            (topic.topic_name.to_string(), partitions.collect())
        };
        let expected = [("t".to_owned(), vec![(0, 1), (1, 2)]), ("u".to_owned(), vec![(0, 3)])];
        assert_eq!(answered.results.iter().map(told).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn long_names_are_kept_once_for_all_their_partitions() {
        let long = "n".repeat(32_000);
        let moves = asked(&AlterReplicaLogDirsRequest { dirs: vec![directory(&long, &long, (0..1000).collect())] });
        assert_eq!(moves.len(), 1000);
        assert!(moves.iter().all(|one| Arc::ptr_eq(&one.topic, &moves[0].topic)));
        assert!(moves.iter().all(|one| Arc::ptr_eq(&one.directory, &moves[0].directory)));
    }
}
