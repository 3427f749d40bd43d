//! Which partitions belong to a transaction. Partitions of `__consumer_offsets` are among them when it commits offsets.

use std::sync::Arc;

use milena_protocol::ErrorCode;

use super::api::{Producer, Reply, TopicPartitions};
use super::state::{State, Transaction};
use super::{After, TransactionCx, Transactions};
use crate::engine::Ticket;

impl Transactions {
    pub(super) fn add(
        &mut self,
        ticket: Ticket,
        id: &str,
        producer: Producer,
        partitions: TopicPartitions<'_>,
        client_version: i16,
        cx: &mut TransactionCx<'_, '_>,
    ) {
        let (id, known) = match self.find(id, producer) {
            Ok(found) => found,
            Err(error) => return cx.reply(ticket, Reply::Done(Err(error))),
        };
        if known.state == State::Ongoing && known.has_all(partitions) {
            return cx.reply(ticket, Reply::Done(Ok(())));
        }
        let now_ms = cx.now().wall_ms;
        let mut next = known.next(State::Ongoing, now_ms);
        if known.state != State::Ongoing {
            next.started_ms = now_ms;
        }
        next.client_version = client_version;
        next.add(partitions);
        let id = Arc::clone(id);
        self.write(&id, next, After::Added(ticket, Arc::clone(&id)), cx);
    }

    /// What is known of a transactional id, if it is this producer's and free.
    fn find(&self, id: &str, producer: Producer) -> Result<(&Arc<str>, &Transaction), ErrorCode> {
        let (id, known) = self.all.get_key_value(id).ok_or(ErrorCode::INVALID_PRODUCER_ID_MAPPING)?;
        if known.pending.is_some() {
            return Err(ErrorCode::CONCURRENT_TRANSACTIONS);
        }
        check_producer(known, producer)?;
        Ok((id, known))
    }

    pub(super) fn verify(
        &self,
        ticket: Ticket,
        id: &str,
        producer: Producer,
        partitions: TopicPartitions<'_>,
        cx: &mut TransactionCx<'_, '_>,
    ) {
        let known = self.all.get(id).ok_or(ErrorCode::INVALID_PRODUCER_ID_MAPPING);
        let known = known.and_then(|known| check_producer(known, producer).map(|()| known));
        let verified = partitions.iter().map(|(topic, partition)| match known {
            Ok(known) if known.has(topic, *partition) => ErrorCode::NONE,
            Ok(_) => ErrorCode::TRANSACTION_ABORTABLE,
            Err(error) => error,
        });
        let verified = verified.collect();
        cx.reply_when_committed(ticket, Reply::Verified(verified));
    }
}

fn check_producer(known: &Transaction, producer: Producer) -> Result<(), ErrorCode> {
    if known.producer.id != producer.id {
        Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING)
    } else if known.producer.epoch != producer.epoch {
        Err(ErrorCode::PRODUCER_FENCED)
    } else if known.state.is_decided() {
        Err(ErrorCode::CONCURRENT_TRANSACTIONS)
    } else {
        Ok(())
    }
}
