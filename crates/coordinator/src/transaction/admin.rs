//! What administrators ask of transactions.

use milena_protocol::ErrorCode;
use milena_protocol::messages::describe_transactions_response::{TopicData, TransactionState as Described};
use milena_protocol::messages::list_transactions_response::TransactionState as Listed;

use super::api::{ListFilter, Reply};
use super::state::Transaction;
use super::{TransactionCx, Transactions};
use crate::engine::Ticket;

impl Transactions {
    pub(super) fn list(&self, ticket: Ticket, filter: &ListFilter<'_>, cx: &mut TransactionCx<'_, '_>) {
        let now_ms = cx.now().wall_ms;
        let admits = |id: &str, known: &Transaction| {
            (filter.states.is_empty() || filter.states.contains(known.state.name()))
                && (filter.producer_ids.is_empty() || filter.producer_ids.contains(&known.producer.id))
                && (filter.longer_than_ms < 0 || now_ms.saturating_sub(known.started_ms) > filter.longer_than_ms)
                && (filter.admits)(id)
        };
        let listed = self.all.iter().filter(|(id, known)| admits(id, known)).map(|(id, known)| Listed {
            transactional_id: id.to_string().into(),
            producer_id: known.producer.id,
            transaction_state: known.state.name().into(),
        });
        let listed = listed.collect();
        cx.reply_when_committed(ticket, Reply::Listed(listed));
    }

    pub(super) fn describe(&self, ticket: Ticket, id: &str, cx: &mut TransactionCx<'_, '_>) {
        let mut described = Described { transactional_id: id.to_owned().into(), ..Default::default() };
        match self.all.get(id) {
            Some(known) => {
                described.transaction_state = known.state.name().into();
                described.transaction_timeout_ms = known.timeout_ms;
                described.transaction_start_time_ms = known.started_ms;
                described.producer_id = known.producer.id;
                described.producer_epoch = known.producer.epoch;
                let topics = known.partitions.iter().map(|(topic, partitions)| TopicData {
                    topic: topic.to_string().into(),
                    partitions: partitions.iter().copied().collect::<Vec<_>>().into(),
                });
                described.topics = topics.collect();
            }
            None => described.error_code = ErrorCode::TRANSACTIONAL_ID_NOT_FOUND.0,
        }
        cx.reply_when_committed(ticket, Reply::Described(Box::new(described)));
    }
}
