//! Transactions: which there are, what they have written to, who writes to a partition, and the end of one that hangs.

use milena_protocol::ErrorCode;
use milena_protocol::messages::describe_producers_request::{DescribeProducersRequest, TopicRequest};
use milena_protocol::messages::describe_producers_response;
use milena_protocol::messages::write_txn_markers_request::{
    WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest,
};
use milena_protocol::messages::{DescribeTransactionsRequest, InitProducerIdRequest, ListTransactionsRequest};

use super::topics::CONTROLLER_TIMEOUT;
use super::{Admin, Outcomes, TopicPartition};
use crate::call::Target;
use crate::coordinators::CoordinatorKind;
use crate::error::{Error, check};

/// Which transactions to list; all by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TransactionFilter {
    /// Only those in one of these states, if there are any, by Kafka's names.
    pub states: Vec<String>,
    /// Only those of these producers, if there are any.
    pub producer_ids: Vec<i64>,
    /// Only those that have been going on for longer, milliseconds.
    pub longer_than: Option<i64>,
    /// Only those whose id this regular expression matches as a whole.
    pub id_pattern: Option<String>,
}

/// A transaction in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionListing {
    /// The transactional id.
    pub id: String,
    /// The broker that coordinates it.
    pub coordinator: i32,
    /// The producer's id.
    pub producer_id: i64,
    /// Such as `Ongoing`.
    pub state: String,
}

/// A transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionDescription {
    /// The transactional id.
    pub id: String,
    /// The broker that coordinates it.
    pub coordinator: i32,
    /// Such as `Ongoing`.
    pub state: String,
    /// The producer's id.
    pub producer_id: i64,
    /// The producer's epoch.
    pub producer_epoch: i16,
    /// How long it may take, milliseconds.
    pub timeout: i32,
    /// When it began, milliseconds since 1970; `None` when none is going on.
    pub started: Option<i64>,
    /// What it has written to, in order.
    pub partitions: Vec<TopicPartition>,
}

/// A producer that writes to a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerState {
    /// Its id.
    pub id: i64,
    /// Its epoch.
    pub epoch: i32,
    /// The epoch of the coordinator that ended its last transaction.
    pub coordinator_epoch: Option<i32>,
    /// The number of its last record.
    pub last_sequence: i32,
    /// When it wrote last, milliseconds since 1970.
    pub last_timestamp: i64,
    /// Where the transaction that is going on begins.
    pub transaction_start: Option<i64>,
}

impl Admin {
    /// The transactional ids of all brokers.
    ///
    /// # Errors
    /// When a broker does not answer, or is too old for the filter.
    pub async fn list_transactions(&self, filter: &TransactionFilter) -> Result<Vec<TransactionListing>, Error> {
        let request = ListTransactionsRequest {
            state_filters: filter.states.iter().map(|state| state.as_str().into()).collect(),
            producer_id_filters: filter.producer_ids.as_slice().into(),
            duration_filter: filter.longer_than.unwrap_or(-1),
            transactional_id_pattern: filter.id_pattern.as_deref().map(Into::into),
        };
        let first = match filter {
            TransactionFilter { id_pattern: Some(_), .. } => 2,
            TransactionFilter { longer_than: Some(_), .. } => 1,
            _ => 0,
        };
        let mut transactions = Vec::new();
        for broker in self.brokers().await? {
            let read = self.client.call(Target::Broker(broker), &request).versions(first..).read(|response| {
                check(response.error_code, None)?;
                let listing = |listed: &milena_protocol::messages::list_transactions_response::TransactionState<'_>| {
                    TransactionListing {
                        id: listed.transactional_id.to_string(),
                        coordinator: broker,
                        producer_id: listed.producer_id,
                        state: listed.transaction_state.to_string(),
                    }
                };
                Ok(response.transaction_states.iter().map(listing).collect::<Vec<_>>())
            });
            transactions.extend(read.await?);
        }
        Ok(transactions)
    }

    /// Describes the transactions of transactional ids.
    ///
    /// # Errors
    /// Never as a whole; an id that is not known is an error of its own.
    pub async fn describe_transactions(
        &self,
        ids: &[String],
    ) -> Result<Outcomes<String, TransactionDescription>, Error> {
        let mut described = Vec::new();
        for id in ids {
            described.push((id.clone(), self.describe_transaction(id).await));
        }
        Ok(described)
    }

    async fn describe_transaction(&self, id: &str) -> Result<TransactionDescription, Error> {
        let request = DescribeTransactionsRequest { transactional_ids: vec![id.into()] };
        let read = self.client.call(Target::Coordinator(CoordinatorKind::Transaction, id), &request).read(|response| {
            let found = response.transaction_states.first().ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)?;
            check(found.error_code, None)?;
            let partitions = found.topics.iter().flat_map(|topic| {
                topic.partitions.iter().map(|partition| TopicPartition::new(topic.topic.as_ref(), *partition))
            });
            let mut partitions: Vec<TopicPartition> = partitions.collect();
            partitions.sort();
            Ok(TransactionDescription {
                id: found.transactional_id.to_string(),
                coordinator: -1,
                state: found.transaction_state.to_string(),
                producer_id: found.producer_id,
                producer_epoch: found.producer_epoch,
                timeout: found.transaction_timeout_ms,
                started: (found.transaction_start_time_ms >= 0).then_some(found.transaction_start_time_ms),
                partitions,
            })
        });
        let described = read.await?;
        let coordinator = self.client.coordinator(CoordinatorKind::Transaction, id).await?.id;
        Ok(TransactionDescription { coordinator, ..described })
    }

    /// The producers that write to a partition, as its leader knows them, or a broker that has a replica.
    ///
    /// # Errors
    /// When the broker does not answer, or refuses.
    pub async fn describe_producers(
        &self,
        partition: &TopicPartition,
        broker: Option<i32>,
    ) -> Result<Vec<ProducerState>, Error> {
        let topic =
            TopicRequest { name: (&*partition.topic).into(), partition_indexes: vec![partition.partition].into() };
        let request = DescribeProducersRequest { topics: vec![topic] };
        if broker.is_none() {
            self.has_leader(partition).await?;
        }
        let leader = Target::Leader(&partition.topic, partition.partition);
        let read = self.client.call(broker.map_or(leader, Target::Broker), &request).read(|response| {
            let found = response.topics.first().and_then(|topic| topic.partitions.first());
            let found = found.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
            check(found.error_code, found.error_message.as_deref())?;
            Ok(found.active_producers.iter().map(producer).collect())
        });
        read.await
    }

    /// Aborts the transaction of a transactional id, and keeps its producer from going on.
    ///
    /// # Errors
    /// When the coordinator does not answer, or refuses.
    pub async fn terminate_transaction(&self, id: &str) -> Result<(), Error> {
        let request = InitProducerIdRequest {
            transactional_id: Some(id.into()),
            transaction_timeout_ms: CONTROLLER_TIMEOUT,
            ..Default::default()
        };
        let call = self.client.call(Target::Coordinator(CoordinatorKind::Transaction, id), &request);
        call.read(|response| check(response.error_code, None)).await
    }

    /// Ends a transaction on one partition, of a producer that nobody coordinates any more.
    ///
    /// # Errors
    /// When the leader does not answer, or refuses.
    pub async fn abort_transaction(
        &self,
        partition: &TopicPartition,
        producer_id: i64,
        producer_epoch: i16,
        coordinator_epoch: i32,
    ) -> Result<(), Error> {
        let marker = WritableTxnMarker {
            producer_id,
            producer_epoch,
            transaction_result: false,
            topics: vec![WritableTxnMarkerTopic {
                name: (&*partition.topic).into(),
                partition_indexes: vec![partition.partition].into(),
            }],
            coordinator_epoch,
            ..Default::default()
        };
        let request = WriteTxnMarkersRequest { markers: vec![marker] };
        self.has_leader(partition).await?;
        let target = Target::Leader(&partition.topic, partition.partition);
        let read = self.client.call(target, &request).read(|response| {
            let written = response.markers.first().and_then(|marker| marker.topics.first()?.partitions.first());
            check(written.ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)?.error_code, None)
        });
        read.await
    }
}

fn producer(producer: &describe_producers_response::ProducerState) -> ProducerState {
    let known = |number: i64| (number >= 0).then_some(number);
    ProducerState {
        id: producer.producer_id,
        epoch: producer.producer_epoch,
        coordinator_epoch: (producer.coordinator_epoch >= 0).then_some(producer.coordinator_epoch),
        last_sequence: producer.last_sequence,
        last_timestamp: producer.last_timestamp,
        transaction_start: known(producer.current_txn_start_offset),
    }
}
