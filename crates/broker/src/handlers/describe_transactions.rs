//! DescribeTransactions. v0: flexible.

use std::sync::Arc;

use milena_coordinator::transaction::{Reply as TransactionReply, Request};
use milena_net::{LocalBoxFuture, Reply};
use milena_protocol::messages::DescribeTransactionsRequest;
use milena_protocol::messages::describe_transactions_response::{
    DescribeTransactionsResponse, TopicData, TransactionState,
};
use milena_protocol::{ApiKey, ErrorCode};

use crate::dispatch::frame;
use crate::registry::{Api, Handler};
use crate::request::{OwnedRequest, Refusal, Room, Turns};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::DESCRIBE_TRANSACTIONS, 0..=0, Handler::Later(handle));

fn handle(request: OwnedRequest, services: Arc<Services>) -> LocalBoxFuture<'static, Result<Reply, Refusal>> {
    Box::pin(async move {
        let call = request.call();
        let asked: DescribeTransactionsRequest<'_> = call.request()?;
        let (mut room, mut turns) = (Room::default(), Turns::default());
        let mut transaction_states = Vec::with_capacity(asked.transactional_ids.len());
        for id in &asked.transactional_ids {
            turns.part().await;
            let described = match describe(id, &services).await {
                Ok(described) => described,
                Err(error) => {
                    TransactionState { error_code: error.0, transactional_id: id.as_ref().into(), ..Default::default() }
                }
            };
            room.take(bytes_of(&described))?;
            transaction_states.push(described);
        }
        frame(|out| call.answer(out, &DescribeTransactionsResponse { transaction_states, ..Default::default() }))
    })
}

/// What a transaction takes in memory.
fn bytes_of(transaction: &TransactionState<'_>) -> usize {
    let topic = |topic: &TopicData<'_>| size_of_val(topic) + topic.topic.len() + size_of_val(&*topic.partitions);
    size_of_val(transaction) + transaction.topics.iter().map(topic).sum::<usize>()
}

async fn describe(id: &str, services: &Services) -> Result<TransactionState<'static>, ErrorCode> {
    if id.is_empty() {
        return Err(ErrorCode::INVALID_REQUEST);
    }
    match services.coordinators.transactions().request(id, Request::Describe(id)).get().await? {
        TransactionReply::Described(described) => Ok(*described),
        _ => Err(ErrorCode::UNKNOWN_SERVER_ERROR),
    }
}
