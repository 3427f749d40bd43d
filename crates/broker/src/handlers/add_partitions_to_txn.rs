//! AddPartitionsToTxn. v1: throttle time. v2: PRODUCER_FENCED. v3: flexible. v4: several transactions, and verification
//! without adding; for brokers. v5: TRANSACTION_ABORTABLE.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use milena_coordinator::transaction::{Producer, Reply as TransactionReply, Request};
use milena_metadata::Image;
use milena_net::{LocalBoxFuture, Reply};
use milena_protocol::messages::AddPartitionsToTxnRequest;
use milena_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use milena_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResponse, AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
};
use milena_protocol::{ApiKey, ErrorCode, Str};

use super::end_txn::{FIRST_FENCED_VERSION, fenced};
use crate::dispatch::frame;
use crate::registry::{Api, Handler};
use crate::replicas::is_internal;
use crate::request::{OwnedRequest, Refusal, Turns};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::ADD_PARTITIONS_TO_TXN, 0..=5, Handler::Later(handle));

/// First version that brokers speak; those before are the clients'.
const FIRST_BROKER_VERSION: i16 = 4;
/// Version of transactions with which brokers add partitions.
const BROKERS_ADD: i16 = 2;

/// What one transaction asks for.
struct Asked<'r> {
    id: &'r str,
    producer: Producer,
    verify_only: bool,
    topics: &'r [AddPartitionsToTxnTopic<'r>],
}

fn handle(request: OwnedRequest, services: Arc<Services>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    Box::pin(async move {
        let call = request.call();
        let asked: AddPartitionsToTxnRequest<'_> = call.request()?;
        let version = call.header.version;
        let mut response = AddPartitionsToTxnResponse::default();
        if version < FIRST_BROKER_VERSION {
            let one = Asked {
                id: &asked.v3_and_below_transactional_id,
                producer: Producer { id: asked.v3_and_below_producer_id, epoch: asked.v3_and_below_producer_epoch },
                verify_only: false,
                topics: &asked.v3_and_below_topics,
            };
            response.results_by_topic_v3_and_below = serve(&one, version, &services).await;
        }
        let mut turns = Turns::default();
        for transaction in &asked.transactions {
            turns.part().await;
            let one = Asked {
                id: &transaction.transactional_id,
                producer: Producer { id: transaction.producer_id, epoch: transaction.producer_epoch },
                verify_only: transaction.verify_only,
                topics: &transaction.topics,
            };
            response.results_by_transaction.push(AddPartitionsToTxnResult {
                transactional_id: transaction.transactional_id.as_ref().into(),
                topic_results: serve(&one, version, &services).await,
            });
        }
        frame(|out| call.answer(out, &response))
    })
}

/// When one partition can't be added, none is. What the coordinator says is answered as it was asked, everything else once for
/// each partition.
async fn serve<'r>(asked: &Asked<'r>, version: i16, services: &Services) -> Vec<AddPartitionsToTxnTopicResult<'r>> {
    let all = asked.topics.iter().flat_map(|topic| topic.partitions.iter().map(|partition| (&*topic.name, *partition)));
    let unique: BTreeSet<(&'r str, i32)> = all.collect();
    let partitions: Vec<(Str<'r>, i32)> = unique.iter().map(|(topic, at)| ((*topic).into(), *at)).collect();
    let refused = refused(&partitions, version, &services.image());
    let is_as_asked = refused.is_none() && !asked.verify_only;
    let errors = match refused {
        Some(errors) => errors,
        None if asked.id.is_empty() => vec![ErrorCode::INVALID_REQUEST; partitions.len()],
        None => ask(asked, &partitions, version, services).await,
    };
    let results: BTreeMap<(&'r str, i32), ErrorCode> =
        unique.into_iter().zip(errors.into_iter().map(|error| fenced(error, version, FIRST_FENCED_VERSION))).collect();
    if is_as_asked { as_asked(asked, &results) } else { once_each(&results) }
}

fn result(partition_index: i32, error: ErrorCode) -> AddPartitionsToTxnPartitionResult {
    AddPartitionsToTxnPartitionResult { partition_index, partition_error_code: error.0 }
}

/// In the order of the request, with everything that it names twice, and topics without partitions.
fn as_asked<'r>(
    asked: &Asked<'r>,
    results: &BTreeMap<(&str, i32), ErrorCode>,
) -> Vec<AddPartitionsToTxnTopicResult<'r>> {
    let of = |topic: &str, index: i32| result(index, results.get(&(topic, index)).copied().unwrap_or(ErrorCode::NONE));
    let topic = |topic: &'r AddPartitionsToTxnTopic<'r>| AddPartitionsToTxnTopicResult {
        name: topic.name.as_ref().into(),
        results_by_partition: topic.partitions.iter().map(|index| of(&topic.name, *index)).collect(),
    };
    asked.topics.iter().map(topic).collect()
}

fn once_each<'r>(results: &BTreeMap<(&'r str, i32), ErrorCode>) -> Vec<AddPartitionsToTxnTopicResult<'r>> {
    let mut topics: Vec<AddPartitionsToTxnTopicResult<'r>> = Vec::new();
    for ((name, index), error) in results {
        let result = result(*index, *error);
        match topics.last_mut().filter(|last| last.name == *name) {
            Some(last) => last.results_by_partition.push(result),
            None => {
                topics.push(AddPartitionsToTxnTopicResult { name: (*name).into(), results_by_partition: vec![result] })
            }
        }
    }
    topics
}

/// The answers if some partition may not be added. Clients have no say over internal topics.
fn refused(partitions: &[(Str<'_>, i32)], version: i16, image: &Image) -> Option<Vec<ErrorCode>> {
    let check = |(topic, partition): &(Str<'_>, i32)| {
        if version < FIRST_BROKER_VERSION && is_internal(topic) {
            Some(ErrorCode::TOPIC_AUTHORIZATION_FAILED)
        } else if image.topics().get(topic).and_then(|topic| topic.partition(*partition)).is_none() {
            Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
        } else {
            None
        }
    };
    let errors: Vec<Option<ErrorCode>> = partitions.iter().map(check).collect();
    let any = errors.iter().any(Option::is_some);
    any.then(|| errors.into_iter().map(|error| error.unwrap_or(ErrorCode::OPERATION_NOT_ATTEMPTED)).collect())
}

async fn ask(asked: &Asked<'_>, partitions: &[(Str<'_>, i32)], version: i16, services: &Services) -> Vec<ErrorCode> {
    let (id, producer) = (asked.id, asked.producer);
    let request = if asked.verify_only {
        Request::Verify { id, producer, partitions }
    } else {
        let client_version = if version >= FIRST_BROKER_VERSION { BROKERS_ADD } else { 0 };
        Request::Add { id, producer, partitions, client_version }
    };
    let error = match services.coordinators.transactions().request(id, request).get().await {
        Ok(TransactionReply::Verified(errors)) => return errors,
        Ok(TransactionReply::Done(outcome)) => outcome.err().unwrap_or(ErrorCode::NONE),
        other => other.err().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR),
    };
    vec![error; partitions.len()]
}
