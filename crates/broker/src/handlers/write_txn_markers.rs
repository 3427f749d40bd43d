//! WriteTxnMarkers. v1: flexible. v2: the transactions' version.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use milena_log::Marker;
use milena_net::{LocalBoxFuture, Reply};
use milena_protocol::messages::WriteTxnMarkersRequest;
use milena_protocol::messages::write_txn_markers_request::WritableTxnMarker;
use milena_protocol::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult, WriteTxnMarkersResponse,
};
use milena_protocol::{ApiKey, ErrorCode};
use milena_records::EndTransaction;

use crate::dispatch::frame;
use crate::partition::Partition;
use crate::purgatory::Waiting;
use crate::registry::{Api, Handler};
use crate::request::{OwnedRequest, Refusal, Turns};
use crate::services::Services;

/// The id, and the epoch, of no producer.
const NOBODY: i16 = -1;

/// The version of transactions that nobody has: a marker with it can be written nowhere.
const NO_VERSION: i8 = -1;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::WRITE_TXN_MARKERS, 1..=2, Handler::Later(handle));

fn handle(request: OwnedRequest, services: Arc<Services>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    Box::pin(async move {
        let call = request.call();
        let asked: WriteTxnMarkersRequest<'_> = call.request()?;
        let mut markers = Vec::with_capacity(asked.markers.len());
        let mut turns = Turns::default();
        // What has no partitions is not spoken of.
        let has_partitions =
            |marker: &&WritableTxnMarker<'_>| marker.topics.iter().any(|topic| !topic.partition_indexes.is_empty());
        for marker in asked.markers.iter().filter(has_partitions) {
            markers.push(write(marker, &services, &mut turns).await);
        }
        frame(|out| call.answer(out, &WriteTxnMarkersResponse { markers }))
    })
}

/// Writes one marker to its partitions, each of them once; comes back when all are committed.
async fn write<'r>(
    asked: &'r WritableTxnMarker<'r>,
    services: &Services,
    turns: &mut Turns,
) -> WritableTxnMarkerResult<'r> {
    let marker = Marker {
        producer_id: asked.producer_id,
        producer_epoch: asked.producer_epoch,
        end: EndTransaction { committed: asked.transaction_result, coordinator_epoch: asked.coordinator_epoch },
        transaction_version: asked.transaction_version.into(),
        log_append_time: false,
    };
    let mut topics = Vec::with_capacity(asked.topics.len());
    // No batch can name it.
    let is_nobody = asked.producer_id == i64::from(NOBODY) || asked.producer_epoch == NOBODY;
    let append = |topic: &str, index: i32| {
        if is_nobody {
            return Err(ErrorCode::UNKNOWN_SERVER_ERROR);
        }
        if asked.transaction_version == NO_VERSION {
            services.replicas.topics().by_name(topic).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?.served(index)?;
            return Err(ErrorCode::UNKNOWN_SERVER_ERROR);
        }
        services.coordinators.markers().append(topic, index, marker)
    };
    let mut seen: HashMap<&str, HashSet<i32>> = HashMap::new();
    for topic in asked.topics.iter().filter(|topic| !topic.partition_indexes.is_empty()) {
        let seen = seen.entry(&topic.name).or_default();
        let mut appended = Vec::new();
        for index in topic.partition_indexes.iter().copied().filter(|&index| seen.insert(index)) {
            turns.part().await;
            appended.push((index, append(&topic.name, index)));
        }
        let mut partitions = Vec::with_capacity(appended.len());
        for (partition_index, appended) in appended {
            let outcome = match appended {
                Ok((partition, end)) => committed(&partition, end).await,
                Err(error) => Err(error),
            };
            let error_code = outcome.err().unwrap_or(ErrorCode::NONE).0;
            partitions.push(WritableTxnMarkerPartitionResult { partition_index, error_code });
        }
        if partitions.is_empty() {
            continue;
        }
        topics.push(WritableTxnMarkerTopicResult { name: topic.name.as_ref().into(), partitions });
    }
    WritableTxnMarkerResult { producer_id: asked.producer_id, topics }
}

async fn committed(partition: &Arc<Partition>, end: i64) -> Result<(), ErrorCode> {
    let waiting = Waiting::join([Arc::clone(partition)].into_iter());
    loop {
        match partition.acknowledges(end) {
            Some(outcome) => return outcome,
            None => waiting.changed().await,
        }
    }
}
