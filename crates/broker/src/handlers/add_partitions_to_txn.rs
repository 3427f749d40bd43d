//! AddPartitionsToTxn. v1: throttle time. v2: PRODUCER_FENCED. v3: flexible. v4: several transactions, and verification
//! without adding; for brokers. v5: TRANSACTION_ABORTABLE.

use std::collections::BTreeSet;
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
use crate::ports::Ports;
use crate::registry::Api;
use crate::replicas::is_internal;
use crate::request::{OwnedRequest, Refusal};

/// The registry's line.
pub const API: Api = Api::later(ApiKey::ADD_PARTITIONS_TO_TXN, 0..=5, handle);

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

fn handle(request: OwnedRequest, ports: Arc<Ports>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
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
            response.results_by_topic_v3_and_below = serve(&one, version, &ports).await;
        }
        for transaction in &asked.transactions {
            let one = Asked {
                id: &transaction.transactional_id,
                producer: Producer { id: transaction.producer_id, epoch: transaction.producer_epoch },
                verify_only: transaction.verify_only,
                topics: &transaction.topics,
            };
            response.results_by_transaction.push(AddPartitionsToTxnResult {
                transactional_id: transaction.transactional_id.as_ref().into(),
                topic_results: serve(&one, version, &ports).await,
            });
        }
        frame(|out| call.answer(out, &response))
    })
}

/// Answers each partition once. When one can't be added, none is.
async fn serve<'r>(asked: &Asked<'r>, version: i16, ports: &Ports) -> Vec<AddPartitionsToTxnTopicResult<'r>> {
    let partitions: BTreeSet<(&'r str, i32)> = asked
        .topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(|partition| (&*topic.name, *partition)))
        .collect();
    let partitions: Vec<(Str<'r>, i32)> = partitions.into_iter().map(|(topic, at)| (topic.into(), at)).collect();
    let errors = if asked.id.is_empty() {
        vec![ErrorCode::INVALID_REQUEST; partitions.len()]
    } else {
        match refused(&partitions, version, &ports.image()) {
            Some(errors) => errors,
            None => ask(asked, &partitions, version, ports).await,
        }
    };
    let mut results: Vec<AddPartitionsToTxnTopicResult<'r>> = Vec::with_capacity(asked.topics.len());
    for ((name, partition_index), error) in partitions.into_iter().zip(errors) {
        let partition_error_code = fenced(error, version, FIRST_FENCED_VERSION).0;
        let result = AddPartitionsToTxnPartitionResult { partition_index, partition_error_code };
        match results.last_mut().filter(|last| last.name == name) {
            Some(last) => last.results_by_partition.push(result),
            None => results.push(AddPartitionsToTxnTopicResult { name, results_by_partition: vec![result] }),
        }
    }
    results
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

async fn ask(asked: &Asked<'_>, partitions: &[(Str<'_>, i32)], version: i16, ports: &Ports) -> Vec<ErrorCode> {
    let (id, producer) = (asked.id, asked.producer);
    let request = if asked.verify_only {
        Request::Verify { id, producer, partitions }
    } else {
        let client_version = if version >= FIRST_BROKER_VERSION { BROKERS_ADD } else { 0 };
        Request::Add { id, producer, partitions, client_version }
    };
    let error = match ports.coordinators.transactions().request(id, request).get().await {
        Ok(TransactionReply::Verified(errors)) => return errors,
        Ok(TransactionReply::Done(outcome)) => outcome.err().unwrap_or(ErrorCode::NONE),
        other => other.err().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR),
    };
    vec![error; partitions.len()]
}
