//! The log directories before anything in them is used: read, checked, and formatted where that is wanted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use milena_config::BrokerConfig;
use milena_io::{Clock, Disk, RealRng, Rng};
use milena_log::LogError;
use milena_metadata::Endpoint;
use milena_protocol::Uuid;
pub(super) use milena_quorum::Directories;
use milena_quorum::{DirectoryError, FormatOptions, MetadataLogOptions, QuorumMode, format};
use milena_raft::{ReplicaKey, Voter, VoterEndpoint, VoterSet};

use super::{BrokerError, registration};

/// Reads the directories; missing and empty ones are formatted first when `may_format`. Also what formatting said.
///
/// # Errors
/// [`BrokerError::Directories`] or [`BrokerError::Format`]; then nothing was changed, but where formatting failed half-way.
pub(super) fn prepare(
    disk: &Arc<dyn Disk>,
    clock: &dyn Clock,
    config: &BrokerConfig,
    may_format: bool,
) -> Result<(Directories, Vec<String>), BrokerError> {
    let dirs = config.all_dirs();
    let metadata_dir = PathBuf::from(config.metadata_log_dir());
    let load = || Directories::load(disk, &dirs, &metadata_dir, config.node_id(), &mut RealRng, clock.now_ms());
    match load() {
        Err(DirectoryError::NoneFormatted { .. }) if may_format => {
            if let Some(dir) = dirs.iter().find(|dir| !is_empty(&**disk, dir)) {
                return Err(BrokerError::Foreign { dir: dir.clone() });
            }
            let formatted = format(disk, &format_options(config), &mut RealRng, clock.now_ms())?;
            Ok((load()?, formatted.lines))
        }
        loaded => Ok((loaded?, Vec::new())),
    }
}

/// Each of `log.dirs` with its id, or why it can't be used.
pub(super) fn in_order(config: &BrokerConfig, directories: &mut Directories) -> Vec<(PathBuf, Result<Uuid, LogError>)> {
    let failed = std::mem::take(&mut directories.failed).into_iter().map(|(dir, error)| (dir, Err(error)));
    let mut all: Vec<_> = directories.ids.iter().map(|(dir, id)| (dir.clone(), Ok(*id))).chain(failed).collect();
    let place = |wanted: &PathBuf| config.log_dirs().iter().position(|dir| Path::new(dir) == wanted);
    all.retain(|(dir, _)| place(dir).is_some());
    all.sort_by_key(|(dir, _)| place(dir));
    all
}

fn is_empty(disk: &dyn Disk, dir: &Path) -> bool {
    disk.list(dir).map_or(true, |entries| entries.iter().all(|entry| entry.name == "lost+found"))
}

/// How the directories of a node that nobody formatted are formatted: a cluster of its own, with a quorum of one.
fn format_options(config: &BrokerConfig) -> FormatOptions {
    let Endpoint { name, host, port, .. } = registration::controller_listener(config);
    let mode = if config.quorum_voters().is_empty() {
        QuorumMode::Standalone { endpoint: VoterEndpoint { name, host, port } }
    } else {
        QuorumMode::StaticVoters
    };
    FormatOptions {
        cluster_id: Uuid::random(|bytes| RealRng.fill(bytes)).to_string(),
        node_id: config.node_id(),
        dirs: config.all_dirs(),
        metadata_dir: PathBuf::from(config.metadata_log_dir()),
        is_controller: true,
        mode,
        release: None,
        features: Default::default(),
        ignore_formatted: false,
        scram: Vec::new(),
    }
}

/// What the metadata log is opened with.
pub(super) fn metadata_options(config: &BrokerConfig, directories: &Directories) -> MetadataLogOptions {
    let metadata_dir = PathBuf::from(config.metadata_log_dir());
    let directory_id = directories.id(&metadata_dir).unwrap_or(Uuid::ZERO);
    MetadataLogOptions {
        min_insync_replicas: config.min_insync_replicas(),
        snapshot_max_bytes: u64::try_from(config.metadata_log_max_record_bytes_between_snapshots()).unwrap_or(0),
        snapshot_max_interval_ms: config.metadata_log_max_snapshot_interval_ms(),
        segment_bytes: u64::try_from(config.metadata_log_segment_bytes()).unwrap_or(0),
        segment_ms: config.metadata_log_segment_ms(),
        retention_bytes: config.metadata_max_retention_bytes(),
        retention_ms: config.metadata_max_retention_ms(),
        ..MetadataLogOptions::new(metadata_dir, config.node_id(), directory_id, static_voters(config))
    }
}

/// The voters of `controller.quorum.voters`; all of them are met at a listener of the name that this node's has.
fn static_voters(config: &BrokerConfig) -> VoterSet {
    let name = registration::controller_listener(config).name;
    let voters = config.quorum_voters().iter().map(|voter| Voter {
        key: ReplicaKey { id: voter.id, directory_id: Uuid::ZERO },
        endpoints: vec![VoterEndpoint { name: name.clone(), host: voter.host.clone(), port: voter.port }],
        kraft_versions: (0, 0),
    });
    VoterSet::new(voters)
}
