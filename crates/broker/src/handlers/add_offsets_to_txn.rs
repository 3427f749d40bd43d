//! AddOffsetsToTxn. v1: throttle time. v2: PRODUCER_FENCED. v3: flexible. v4: TRANSACTION_ABORTABLE.
//!
//! The partition of `__consumer_offsets` that the group belongs to becomes one of the transaction's.

use std::sync::Arc;

use milena_coordinator::partition_for;
use milena_coordinator::transaction::{Producer, Reply, Request};
use milena_net::{Outgoing, Replies};
use milena_protocol::messages::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};
use milena_protocol::{ApiKey, ErrorCode};

use super::end_txn::{FIRST_FENCED_VERSION, fenced};
use super::find_coordinator::GROUPS_TOPIC;
use crate::coordinators::Answer;
use crate::registry::{Api, Handler};
use crate::request::{Call, Header, Refusal, answer};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::ADD_OFFSETS_TO_TXN, 0..=4, Handler::Either(serve));

fn serve(call: &Call<'_>, services: &Arc<Services>, replies: &mut Replies<'_>) -> Result<(), Refusal> {
    let asked: AddOffsetsToTxnRequest<'_> = call.request()?;
    let coordinators = &services.coordinators;
    let made = || partition_for(&asked.group_id, services.config().offsets_topic_num_partitions());
    let partition = coordinators.groups().partition_of(&asked.group_id).unwrap_or_else(made);
    let answered = if asked.transactional_id.is_empty() {
        Answer::Now(Err(ErrorCode::INVALID_REQUEST))
    } else {
        let request = Request::Add {
            id: &asked.transactional_id,
            producer: Producer { id: asked.producer_id, epoch: asked.producer_epoch },
            partitions: &[(GROUPS_TOPIC.into(), partition)],
            client_version: 0,
        };
        coordinators.transactions().request(&asked.transactional_id, request)
    };
    answered.send(call, replies, write)
}

fn write(header: &Header<'_>, reply: Result<Reply, ErrorCode>, out: &mut Outgoing) -> Result<(), Refusal> {
    let error = match reply {
        Ok(Reply::Done(outcome)) => outcome.err().unwrap_or(ErrorCode::NONE),
        other => other.err().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR),
    };
    let error = fenced(error, header.version, FIRST_FENCED_VERSION);
    answer(header, out, &AddOffsetsToTxnResponse { error_code: error.0, ..Default::default() }).map(drop)
}
