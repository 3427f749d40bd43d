//! A client of Apache Kafka and of Milena, in Rust alone.
//!
//! [`Client`] is a cheap handle on the connections to a cluster and on what is known of it; everything else is built on
//! it. It needs a tokio runtime with I/O and time, and keeps one task for each connection, and one while it learns
//! metadata. A [`Producer`] has another, a [`Consumer`] one while it commits offsets and two while it is a member of a group.
//!
//! ```no_run
//! use milena_client::{Client, Target};
//! use milena_client::protocol::messages::ListGroupsRequest;
//!
//! # async fn example() -> Result<(), milena_client::Error> {
//! let client = Client::builder().bootstrap_servers("localhost:9092").client_id("example").build()?;
//! let groups = client
//!     .call(Target::Any, &ListGroupsRequest::default())
//!     .read(|response| {
//!         milena_client::check(response.error_code, None)?;
//!         Ok(response.groups.iter().map(|group| group.group_id.to_string()).collect::<Vec<_>>())
//!     })
//!     .await?;
//! println!("{groups:?}");
//! client.close(std::time::Duration::from_secs(5)).await;
//! # Ok(())
//! # }
//! ```
//!
//! What happens is told to `tracing`, in spans of connections, calls, producers and members, and counted by way of the crate
//! `metrics`: a program that installs a recorder before it builds a client, such as an exporter for Prometheus, sees these, with
//! the label `client_id`. They are Kafka's with `kafka_` and the group in front; times are in milliseconds, and those of throttling
//! are of answers that asked for it.
//!
//! | counters, gauges and histograms | begin with |
//! |---|---|
//! | `connection_creation_total`, `connection_close_total`, `request_total`, `response_total`, `outgoing_byte_total`, `incoming_byte_total`, `request_latency_ms`, `throttle_time_ms` | `kafka_client_` |
//! | `record_send_total`, `record_retry_total`, `record_error_total`, `batch_split_total`, `buffer_exhausted_total`, `buffer_available_bytes`, `batch_size`, `records_per_request`, `compression_rate`, `record_queue_time_ms`, `produce_throttle_time_ms` | `kafka_producer_` |
//! | `records_consumed_total`, `bytes_consumed_total`, `fetch_total`, `fetch_size`, `fetch_throttle_time_ms`, and `records_lag` with the labels `topic` and `partition` too | `kafka_consumer_` |
//!
//! Settings have Kafka's names and defaults; see [`ClientBuilder`]. Errors are one type, [`Error`], which knows whether
//! trying again can help. Every future may be dropped at any time: what was not sent by then is not sent.

/// Administration of a cluster.
pub mod admin;
/// How long to wait before the next try.
mod backoff;
/// One request with all its tries.
mod call;
/// The handle: what every part of a client shares.
mod client;
/// The settings that all parts of a client share.
mod config;
/// One connection to a broker.
mod connection;
/// At most one connection to each broker.
mod connections;
/// Reading records, alone or as a member of a group.
mod consumer;
/// Which broker coordinates a group or a transactional id.
mod coordinators;
/// What can go wrong, as one type.
mod error;
/// What is known of the cluster.
mod metadata;
/// What is counted.
mod metrics;
/// Sending records, in transactions too.
mod producer;
/// Texts of Kafka's properties as values.
mod settings;
#[cfg(test)]
mod test_peer;
/// The name of a partition.
mod topic_partition;
/// What a connection runs on.
mod transport;
/// Work that goes on as long as somebody waits for it.
mod unless_dropped;

pub use admin::{Admin, CommittedOffset};
pub use call::{Call, Target};
pub use client::Client;
pub use config::ClientBuilder;
pub use connection::{ApiVersions, Connection, Pending, Reply};
pub use consumer::{
    Assignor, Commit, Consumer, ConsumerBuilder, ConsumerRecord, ConsumerRecordIter, ConsumerRecords, GroupProtocol,
    IsolationLevel, OffsetReset, RebalanceListener, SeekTo,
};
pub use coordinators::CoordinatorKind;
pub use error::{Corruption, Error, check};
pub use metadata::{Broker, Metadata, Partition, Topic};
pub use milena_protocol as protocol;
pub use milena_records::{Compression, Headers, TimestampType};
pub use producer::{
    Acks, Delivery, GroupMetadata, Header, Partitioner, Producer, ProducerBuilder, Record, RecordMetadata, RoundRobin,
    Transaction, partition_of_key,
};
pub use topic_partition::TopicPartition;
