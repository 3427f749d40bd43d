//! Tells the metadata what becomes of the log directories: which have failed, and in which of them replicas are. It is the way back of the
//! publisher, and like it only for the controller's thread.

use std::time::Duration;

use milena_config::BrokerConfig;
use milena_quorum::{Assignment, MetadataLog, QuorumError, TopicDefaults};

use crate::publisher::Publisher;

/// The static settings that elections need.
pub fn topic_defaults(config: &BrokerConfig) -> TopicDefaults {
    TopicDefaults {
        min_insync_replicas: config.min_insync_replicas(),
        unclean_leader_election: config.unclean_leader_election_enable(),
    }
}

/// Takes the partitions of failed directories away and tells the metadata of those and of new replicas. What can't be told is told by the next
/// call; failures that can't be told for `log.dir.failure.timeout.ms` end the broker.
pub fn tell(log: &mut MetadataLog, publisher: &Publisher, now_ms: i64) {
    if !publisher.storage.has_untold() {
        return;
    }
    let config = publisher.live.config.load_full();
    let defaults = topic_defaults(&config);
    if let Err(error) = tell_failed(log, publisher, defaults, now_ms) {
        tracing::error!(%error, "the metadata can't be told of a failed log directory");
        let patience = config.log_dir_failure_timeout_ms();
        publisher.storage.failures_untold(Duration::from_millis(u64::try_from(patience).unwrap_or(0)));
    }
    match log.cordon_directories(publisher.node_id, &publisher.storage.take_cordoned(), now_ms) {
        Ok(loaded) => publisher.follow(loaded),
        Err(error) => {
            tracing::error!(%error, "the metadata can't be told which log directories are cordoned");
            publisher.storage.cordons_untold();
        }
    }
    let placed = publisher.storage.take_placed();
    match log.assign_directories(publisher.node_id, &placed, defaults, now_ms) {
        Ok(loaded) => publisher.follow(loaded),
        Err(error) => {
            tracing::error!(%error, "the metadata can't be told in which log directories replicas are");
            publisher.storage.note_placed(placed);
        }
    }
    end_moves(log, publisher, defaults, now_ms);
}

/// Has future replicas that lack nothing take over, after the metadata knows of it.
fn end_moves(log: &mut MetadataLog, publisher: &Publisher, defaults: TopicDefaults, now_ms: i64) {
    let caught_up = publisher.storage.mover().take_caught_up();
    if caught_up.is_empty() {
        return;
    }
    let assigned = caught_up.iter().filter_map(|partition| {
        let directory = partition.future()?.directory.id;
        let (topic_id, partition_id) = (partition.topic.id, partition.index);
        Some(Assignment { topic_id, partition_id, directory, may_lead: false })
    });
    match log.assign_directories(publisher.node_id, &assigned.collect::<Vec<_>>(), defaults, now_ms) {
        Ok(loaded) => {
            publisher.follow(loaded);
            publisher.storage.finish_moves(&publisher.replicas, caught_up);
        }
        Err(error) => {
            tracing::error!(%error, "the metadata can't be told of moves between log directories");
            publisher.storage.mover().stall(caught_up);
        }
    }
}

fn tell_failed(
    log: &mut MetadataLog,
    publisher: &Publisher,
    defaults: TopicDefaults,
    now_ms: i64,
) -> Result<(), QuorumError> {
    let failed: Vec<_> = publisher.storage.take_failed().iter().map(|directory| directory.id).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let taken = publisher.replicas.take_offline();
    tracing::warn!(partitions = taken.len(), "partitions are offline, their log directory has failed");
    publisher.storage.end_failed_moves(&publisher.replicas, &taken);
    let lost: Vec<_> = taken.iter().map(|partition| (partition.topic.id, partition.index)).collect();
    publisher.follow(log.fail_directories(publisher.node_id, &failed, &lost, defaults, now_ms)?);
    publisher.storage.failures_told();
    Ok(())
}
