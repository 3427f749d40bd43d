//! AlterReplicaLogDirs. v2: flexible. Answered when the moves have begun; they end when everything is copied.

use std::borrow::Cow;
use std::sync::Arc;

use milena_controller::Records;
use milena_net::{LocalBoxFuture, Reply};
use milena_protocol::messages::AlterReplicaLogDirsRequest;
use milena_protocol::messages::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult, AlterReplicaLogDirsResponse,
};
use milena_protocol::{ApiKey, ErrorCode};
use rustc_hash::FxHashMap;

use crate::dispatch::frame;
use crate::ports::Ports;
use crate::registry::Api;
use crate::request::{OwnedRequest, Refusal};
use crate::storage::Move;

/// The registry's line.
pub const API: Api = Api::later(ApiKey::ALTER_REPLICA_LOG_DIRS, 1..=2, handle);

fn handle(request: OwnedRequest, ports: Arc<Ports>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    Box::pin(async move {
        let call = request.call();
        let moves = asked(&call.request()?);
        let (storage, replicas, begun) = (Arc::clone(&ports.storage), Arc::clone(&ports.replicas), moves.clone());
        // The controller's thread is the one that changes partitions.
        let altered = ports.controller.change(move |_| (Records::new(), storage.alter_directories(&replicas, &begun)));
        let errors = altered.await.unwrap_or_else(|_| vec![ErrorCode::KAFKA_STORAGE_ERROR; moves.len()]);
        frame(|out| call.answer(out, &answer(&moves, &errors)))
    })
}

/// Each partition once, where it was named first; the directory that is named last counts.
fn asked(request: &AlterReplicaLogDirsRequest<'_>) -> Vec<Move> {
    let mut moves: Vec<Move> = Vec::new();
    let mut places: FxHashMap<(&str, i32), usize> = FxHashMap::default();
    for directory in &request.dirs {
        for topic in &directory.topics {
            for &index in topic.partitions.iter() {
                let at = *places.entry((&topic.name, index)).or_insert_with(|| {
                    moves.push(Move { topic: topic.name.to_string(), index, directory: String::new() });
                    moves.len() - 1
                });
                moves[at].directory = directory.path.to_string();
            }
        }
    }
    moves
}

/// One entry for each topic.
fn answer<'m>(moves: &'m [Move], errors: &[ErrorCode]) -> AlterReplicaLogDirsResponse<'m> {
    let mut results: Vec<AlterReplicaLogDirTopicResult<'m>> = Vec::new();
    let mut places: FxHashMap<&str, usize> = FxHashMap::default();
    for (one, error) in moves.iter().zip(errors) {
        let at = *places.entry(&one.topic).or_insert_with(|| {
            let topic_name = Cow::Borrowed(one.topic.as_str());
            results.push(AlterReplicaLogDirTopicResult { topic_name, ..Default::default() });
            results.len() - 1
        });
        let result = AlterReplicaLogDirPartitionResult { partition_index: one.index, error_code: error.0 };
        results[at].partitions.push(result);
    }
    AlterReplicaLogDirsResponse { results, ..Default::default() }
}
