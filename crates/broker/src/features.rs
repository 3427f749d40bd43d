//! What follows when levels of features go up: the quorum's own records, and what older metadata could not say of this node.

use milena_controller::Records;
use milena_metadata::{KRAFT_VERSION, MetadataVersion};
use milena_protocol::MetadataRecord;
use milena_protocol::messages::NoOpRecord;
use milena_quorum::{BrokerRegistration, ControllerRegistration, MetadataLog, QuorumError};
use milena_raft::VoterEndpoint;

use crate::publisher::Publisher;
use crate::services::Voting;

/// How this node has registered.
pub struct Registrations {
    /// As a controller.
    pub controller: ControllerRegistration,
    /// As a broker.
    pub broker: BrokerRegistration,
}

/// Writes the level of `kraft.version` that is among decided records, which is none of the metadata log's, as the quorum does.
///
/// # Errors
/// As [`MetadataLog::append`].
pub fn raise_kraft_version(
    log: &mut MetadataLog,
    records: &mut Records,
    publisher: &Publisher,
    node: &Registrations,
    now_ms: i64,
) -> Result<(), QuorumError> {
    let level = |record: &MetadataRecord<'static>| match record {
        MetadataRecord::FeatureLevel(level) if level.name == KRAFT_VERSION => Some(level.feature_level),
        _ => None,
    };
    let Some(level) = records.iter().find_map(level) else { return Ok(()) };
    let endpoints = node.controller.listeners.iter().map(|listener| VoterEndpoint {
        name: listener.name.clone(),
        host: listener.host.clone(),
        port: listener.port,
    });
    log.raise_kraft_version(level, endpoints.collect(), now_ms)?;
    publisher.live.voting.store(Voting::of(log).into());
    // In its place goes a record that says nothing: what the quorum has written comes into no image.
    records.retain(|record| !matches!(record, MetadataRecord::FeatureLevel(level) if level.name == KRAFT_VERSION));
    records.push(NoOpRecord {}.into());
    Ok(())
}

/// Tells of this node what metadata of version `before` had no room for.
///
/// # Errors
/// As [`MetadataLog::append`].
pub fn follow(
    log: &mut MetadataLog,
    publisher: &Publisher,
    node: &Registrations,
    before: MetadataVersion,
    now_ms: i64,
) -> Result<(), QuorumError> {
    let version = log.image().features().metadata_version();
    if version <= before {
        return Ok(());
    }
    publisher.follow(log.complete_registrations(&node.controller, &node.broker, now_ms)?);
    if version.supports_cordoned_directories() && !before.supports_cordoned_directories() {
        publisher.storage.cordons_untold();
    }
    Ok(())
}
