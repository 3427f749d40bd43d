//! Typed getters of the keys that the broker reads often, filled once per configuration: a getter is a field
//! access, so it may stand on a request's way. Everything else is read by name.

use std::collections::BTreeMap;

use super::BrokerConfig;
use crate::value::{FromValue, Value};

macro_rules! getters {
    ($($field:ident: $kind:ty = $name:literal;)*) => {
        /// The often-read values.
        #[derive(Debug, Clone)]
        pub(super) struct Typed {
            $($field: $kind,)*
        }

        impl Typed {
            pub(super) fn new(values: &BTreeMap<&'static str, Value>) -> Self {
                Self { $($field: <$kind>::from_value(values.get($name)),)* }
            }
        }

        impl BrokerConfig {
            $(
                #[doc = concat!("`", $name, "`, effective.")]
                pub fn $field(&self) -> $kind {
                    self.typed.$field
                }
            )*
        }

        #[cfg(test)]
        pub(super) const GETTERS: &[(&str, &str)] = &[$(($name, stringify!($kind)),)*];
    };
}

getters! {
    add_partitions_to_txn_retry_backoff_ms: i32 = "add.partitions.to.txn.retry.backoff.ms";
    auto_create_topics_enable: bool = "auto.create.topics.enable";
    background_threads: i32 = "background.threads";
    broker_heartbeat_interval_ms: i32 = "broker.heartbeat.interval.ms";
    broker_session_timeout_ms: i32 = "broker.session.timeout.ms";
    connections_max_idle_ms: i64 = "connections.max.idle.ms";
    connections_max_reauth_ms: i64 = "connections.max.reauth.ms";
    controlled_shutdown_enable: bool = "controlled.shutdown.enable";
    controller_quorum_append_linger_ms: i32 = "controller.quorum.append.linger.ms";
    controller_quorum_election_backoff_max_ms: i32 = "controller.quorum.election.backoff.max.ms";
    controller_quorum_election_timeout_ms: i32 = "controller.quorum.election.timeout.ms";
    controller_quorum_fetch_timeout_ms: i32 = "controller.quorum.fetch.timeout.ms";
    controller_quorum_request_timeout_ms: i32 = "controller.quorum.request.timeout.ms";
    default_replication_factor: i32 = "default.replication.factor";
    delete_records_purgatory_purge_interval_requests: i32 = "delete.records.purgatory.purge.interval.requests";
    delete_topic_enable: bool = "delete.topic.enable";
    fetch_max_bytes: i32 = "fetch.max.bytes";
    fetch_purgatory_purge_interval_requests: i32 = "fetch.purgatory.purge.interval.requests";
    group_consumer_assignment_interval_ms: i32 = "group.consumer.assignment.interval.ms";
    group_consumer_heartbeat_interval_ms: i32 = "group.consumer.heartbeat.interval.ms";
    group_consumer_max_heartbeat_interval_ms: i32 = "group.consumer.max.heartbeat.interval.ms";
    group_consumer_max_session_timeout_ms: i32 = "group.consumer.max.session.timeout.ms";
    group_consumer_max_size: i32 = "group.consumer.max.size";
    group_consumer_min_heartbeat_interval_ms: i32 = "group.consumer.min.heartbeat.interval.ms";
    group_consumer_min_session_timeout_ms: i32 = "group.consumer.min.session.timeout.ms";
    group_consumer_session_timeout_ms: i32 = "group.consumer.session.timeout.ms";
    group_coordinator_append_linger_ms: i32 = "group.coordinator.append.linger.ms";
    group_coordinator_threads: i32 = "group.coordinator.threads";
    group_initial_rebalance_delay_ms: i32 = "group.initial.rebalance.delay.ms";
    group_max_session_timeout_ms: i32 = "group.max.session.timeout.ms";
    group_max_size: i32 = "group.max.size";
    group_min_session_timeout_ms: i32 = "group.min.session.timeout.ms";
    initial_broker_registration_timeout_ms: i32 = "initial.broker.registration.timeout.ms";
    log_cleaner_backoff_ms: i64 = "log.cleaner.backoff.ms";
    log_cleaner_dedupe_buffer_size: i64 = "log.cleaner.dedupe.buffer.size";
    log_cleaner_enable: bool = "log.cleaner.enable";
    log_cleaner_io_buffer_load_factor: f64 = "log.cleaner.io.buffer.load.factor";
    log_cleaner_io_buffer_size: i32 = "log.cleaner.io.buffer.size";
    log_cleaner_io_max_bytes_per_second: f64 = "log.cleaner.io.max.bytes.per.second";
    log_cleaner_threads: i32 = "log.cleaner.threads";
    log_dir_failure_timeout_ms: i64 = "log.dir.failure.timeout.ms";
    log_flush_offset_checkpoint_interval_ms: i32 = "log.flush.offset.checkpoint.interval.ms";
    log_flush_scheduler_interval_ms: i64 = "log.flush.scheduler.interval.ms";
    log_flush_start_offset_checkpoint_interval_ms: i32 = "log.flush.start.offset.checkpoint.interval.ms";
    log_initial_task_delay_ms: i64 = "log.initial.task.delay.ms";
    log_retention_check_interval_ms: i64 = "log.retention.check.interval.ms";
    max_connection_creation_rate: i32 = "max.connection.creation.rate";
    max_connections: i32 = "max.connections";
    max_connections_per_ip: i32 = "max.connections.per.ip";
    max_decompressed_message_bytes: i32 = "max.decompressed.message.bytes";
    max_incremental_fetch_session_cache_slots: i32 = "max.incremental.fetch.session.cache.slots";
    max_request_partition_size_limit: i32 = "max.request.partition.size.limit";
    message_max_bytes: i32 = "message.max.bytes";
    metadata_log_max_record_bytes_between_snapshots: i64 = "metadata.log.max.record.bytes.between.snapshots";
    metadata_log_max_snapshot_interval_ms: i64 = "metadata.log.max.snapshot.interval.ms";
    metadata_log_segment_bytes: i32 = "metadata.log.segment.bytes";
    metadata_log_segment_ms: i64 = "metadata.log.segment.ms";
    metadata_max_idle_interval_ms: i32 = "metadata.max.idle.interval.ms";
    metadata_max_retention_bytes: i64 = "metadata.max.retention.bytes";
    metadata_max_retention_ms: i64 = "metadata.max.retention.ms";
    min_insync_replicas: i32 = "min.insync.replicas";
    node_id: i32 = "node.id";
    num_io_threads: i32 = "num.io.threads";
    num_network_threads: i32 = "num.network.threads";
    num_partitions: i32 = "num.partitions";
    num_recovery_threads_per_data_dir: i32 = "num.recovery.threads.per.data.dir";
    num_replica_fetchers: i32 = "num.replica.fetchers";
    offset_metadata_max_bytes: i32 = "offset.metadata.max.bytes";
    offsets_commit_timeout_ms: i32 = "offsets.commit.timeout.ms";
    offsets_load_buffer_size: i32 = "offsets.load.buffer.size";
    offsets_retention_check_interval_ms: i64 = "offsets.retention.check.interval.ms";
    offsets_retention_minutes: i32 = "offsets.retention.minutes";
    offsets_topic_compression_codec: i32 = "offsets.topic.compression.codec";
    offsets_topic_num_partitions: i32 = "offsets.topic.num.partitions";
    offsets_topic_replication_factor: i16 = "offsets.topic.replication.factor";
    offsets_topic_segment_bytes: i32 = "offsets.topic.segment.bytes";
    producer_id_expiration_check_interval_ms: i32 = "producer.id.expiration.check.interval.ms";
    producer_id_expiration_ms: i32 = "producer.id.expiration.ms";
    producer_purgatory_purge_interval_requests: i32 = "producer.purgatory.purge.interval.requests";
    queued_max_request_bytes: i64 = "queued.max.request.bytes";
    queued_max_requests: i32 = "queued.max.requests";
    remote_log_storage_system_enable: bool = "remote.log.storage.system.enable";
    replica_alter_log_dirs_io_max_bytes_per_second: i64 = "replica.alter.log.dirs.io.max.bytes.per.second";
    replica_fetch_backoff_ms: i32 = "replica.fetch.backoff.ms";
    replica_fetch_max_bytes: i32 = "replica.fetch.max.bytes";
    replica_fetch_min_bytes: i32 = "replica.fetch.min.bytes";
    replica_fetch_response_max_bytes: i32 = "replica.fetch.response.max.bytes";
    replica_fetch_wait_max_ms: i32 = "replica.fetch.wait.max.ms";
    replica_high_watermark_checkpoint_interval_ms: i64 = "replica.high.watermark.checkpoint.interval.ms";
    replica_lag_time_max_ms: i64 = "replica.lag.time.max.ms";
    replica_socket_receive_buffer_bytes: i32 = "replica.socket.receive.buffer.bytes";
    replica_socket_timeout_ms: i32 = "replica.socket.timeout.ms";
    request_timeout_ms: i32 = "request.timeout.ms";
    share_coordinator_state_topic_num_partitions: i32 = "share.coordinator.state.topic.num.partitions";
    share_coordinator_state_topic_replication_factor: i16 = "share.coordinator.state.topic.replication.factor";
    share_coordinator_state_topic_segment_bytes: i32 = "share.coordinator.state.topic.segment.bytes";
    share_coordinator_state_topic_min_isr: i16 = "share.coordinator.state.topic.min.isr";
    socket_connection_setup_timeout_max_ms: i64 = "socket.connection.setup.timeout.max.ms";
    socket_connection_setup_timeout_ms: i64 = "socket.connection.setup.timeout.ms";
    socket_listen_backlog_size: i32 = "socket.listen.backlog.size";
    socket_receive_buffer_bytes: i32 = "socket.receive.buffer.bytes";
    socket_request_max_bytes: i32 = "socket.request.max.bytes";
    socket_send_buffer_bytes: i32 = "socket.send.buffer.bytes";
    transaction_abort_timed_out_cleanup_interval_ms: i32 = "transaction.abort.timed.out.transaction.cleanup.interval.ms";
    transaction_max_timeout_ms: i32 = "transaction.max.timeout.ms";
    transaction_partition_verification_enable: bool = "transaction.partition.verification.enable";
    transaction_remove_expired_cleanup_interval_ms: i32 = "transaction.remove.expired.transaction.cleanup.interval.ms";
    transaction_state_log_load_buffer_size: i32 = "transaction.state.log.load.buffer.size";
    transaction_state_log_min_isr: i32 = "transaction.state.log.min.isr";
    transaction_state_log_num_partitions: i32 = "transaction.state.log.num.partitions";
    transaction_state_log_replication_factor: i16 = "transaction.state.log.replication.factor";
    transaction_state_log_segment_bytes: i32 = "transaction.state.log.segment.bytes";
    transaction_two_phase_commit_enable: bool = "transaction.two.phase.commit.enable";
    transactional_id_expiration_ms: i32 = "transactional.id.expiration.ms";
    unclean_leader_election_enable: bool = "unclean.leader.election.enable";
    unstable_api_versions_enable: bool = "unstable.api.versions.enable";
    unstable_feature_versions_enable: bool = "unstable.feature.versions.enable";
}

#[cfg(test)]
mod tests {
    use super::GETTERS;
    use crate::definition;

    #[test]
    fn every_getter_has_the_type_of_its_definition() {
        for (name, kind) in GETTERS {
            let definition = definition::broker().get(name).unwrap_or_else(|| panic!("{name}"));
            let expected = match definition.kind.name() {
                "BOOLEAN" => "bool",
                "INT" => "i32",
                "SHORT" => "i16",
                "LONG" => "i64",
                "DOUBLE" => "f64",
                other => panic!("{name}: {other}"),
            };
            assert_eq!(*kind, expected, "{name}");
        }
    }
}
