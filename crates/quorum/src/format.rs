//! `storage format`: prepares empty log directories for a node. The records a cluster starts with become the snapshot
//! `0-0` of the metadata directory; `meta.properties`, written last, is what makes a directory formatted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use milena_io::{Disk, Rng};
use milena_log::{LogDirectory, MetaProperties};
use milena_metadata::{FeatureError, MetadataVersion, VersionedRecord, bootstrap_features};
use milena_protocol::messages::{FeatureLevelRecord, UserScramCredentialRecord};
use milena_protocol::{MetadataRecord, Uuid};
use milena_raft::{ReplicaKey, Voter, VoterEndpoint, VoterSet};

use crate::batches::encode_value;
use crate::directories::{DirectoryError, Found};
use crate::error::QuorumError;
use crate::files;
use crate::metadata_log::{KRAFT_VERSIONS, METADATA_DIR};
use crate::quorum_mode::{InitialController, QuorumMode, QuorumModeError};
use crate::snapshot::{self, QuorumRecords, SnapshotId};

/// What to format, and how.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// Id of the cluster; any text.
    pub cluster_id: String,
    /// Id of the node.
    pub node_id: i32,
    /// All log directories.
    pub dirs: Vec<PathBuf>,
    /// The one of them that holds the metadata log.
    pub metadata_dir: PathBuf,
    /// Whether the node has the controller role; only controllers get a snapshot.
    pub is_controller: bool,
    /// How the quorum's voters are found.
    pub mode: QuorumMode,
    /// `--release-version`; `None` is the newest stable one.
    pub release: Option<MetadataVersion>,
    /// `--feature` arguments.
    pub features: BTreeMap<String, i16>,
    /// Leave directories alone that are formatted already.
    pub ignore_formatted: bool,
    /// Credentials the cluster starts with.
    pub scram: Vec<UserScramCredentialRecord<'static>>,
}

/// Formatting that was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The features cannot be combined.
    #[error(transparent)]
    Feature(#[from] FeatureError),
    /// The quorum's mode cannot be used.
    #[error(transparent)]
    Mode(#[from] QuorumModeError),
    /// The directories cannot be used together.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A directory is formatted already.
    #[error(
        "Log directory {} is already formatted. Use --ignore-formatted to ignore this directory and format the others.",
        dir.display()
    )]
    AlreadyFormatted {
        /// The first such directory.
        dir: PathBuf,
    },
    /// The metadata directory is none of the directories.
    #[error("The specified metadata log directory, {} was not one of the given directories", dir.display())]
    MetadataDirectory {
        /// The metadata directory.
        dir: PathBuf,
    },
    /// Credentials for a metadata version that cannot hold them.
    #[error("SCRAM is only supported in metadata.version 3.5-IV2 or later.")]
    Scram,
    /// Writing failed.
    #[error(transparent)]
    Write(#[from] QuorumError),
}

/// What formatting did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Formatted {
    /// The directories that were formatted.
    pub dirs: Vec<PathBuf>,
    /// The lines for standard output, Kafka's.
    pub lines: Vec<String>,
}

/// Formats all directories that are not formatted yet. Running it again after a crash completes it.
///
/// # Errors
/// [`FormatError`]; before [`FormatError::Write`] nothing was changed.
pub fn format(
    disk: &Arc<dyn Disk>,
    options: &FormatOptions,
    rng: &mut dyn Rng,
    now_ms: i64,
) -> Result<Formatted, FormatError> {
    if !options.dirs.contains(&options.metadata_dir) {
        return Err(FormatError::MetadataDirectory { dir: options.metadata_dir.clone() });
    }
    options.mode.check_kraft_version(options.features.get("kraft.version").copied())?;
    let levels = bootstrap_features(options.release, &options.features)?;
    let version = MetadataVersion::from_level(levels[0].1).map_err(FeatureError::from)?;
    if !options.scram.is_empty() && !version.supports_scram() {
        return Err(FormatError::Scram);
    }
    let mut found = Found::read(disk, &options.dirs)?;
    if let Some((_, error)) = found.failed.pop() {
        return Err(DirectoryError::from(error).into());
    }
    found.verify(Some(&options.cluster_id), options.node_id)?;
    if let Some((dir, _)) = found.formatted.iter().min_by_key(|(dir, _)| dir).filter(|_| !options.ignore_formatted) {
        return Err(FormatError::AlreadyFormatted { dir: dir.clone() });
    }
    if found.empty.is_empty() {
        let lines = vec!["All of the log directories are already formatted.".to_owned()];
        return Ok(Formatted { dirs: Vec::new(), lines });
    }
    let bootstrap = Bootstrap { options, levels: &levels, version, now_ms };
    let mut formatted = Formatted { dirs: Vec::new(), lines: vec![bootstrap.describe()] };
    for dir in found.empty {
        let kind = bootstrap.kind(&dir);
        formatted.lines.push(format!("Formatting {kind} {} with metadata.version {version}.", dir.display()));
        bootstrap.format_dir(disk, &dir, rng)?;
        formatted.dirs.push(dir);
    }
    Ok(formatted)
}

/// The records a cluster starts with, and where they go.
struct Bootstrap<'a> {
    options: &'a FormatOptions,
    levels: &'a [(String, i16)],
    version: MetadataVersion,
    now_ms: i64,
}

impl Bootstrap<'_> {
    fn records(&self) -> impl Iterator<Item = VersionedRecord<'_>> {
        let features = self.levels.iter().map(|(name, level)| {
            MetadataRecord::FeatureLevel(FeatureLevelRecord { name: name.as_str().into(), feature_level: *level })
        });
        let scram = self.options.scram.iter().map(|r| MetadataRecord::UserScramCredential(r.clone()));
        features.chain(scram).map(|record| VersionedRecord::new(record, 0))
    }

    /// Kafka's line about the records. Keys and salts of credentials are left out.
    fn describe(&self) -> String {
        let records = self.records().map(|r| {
            let text = match &r.record {
                MetadataRecord::FeatureLevel(f) => {
                    format!("FeatureLevelRecord(name='{}', featureLevel={})", f.name, f.feature_level)
                }
                MetadataRecord::UserScramCredential(s) => format!(
                    "UserScramCredentialRecord(name='{}', mechanism={}, iterations={})",
                    s.name, s.mechanism, s.iterations
                ),
                other => other.name().to_owned(),
            };
            format!("ApiMessageAndVersion({text} at version {})", r.version)
        });
        format!(
            "Bootstrap metadata: BootstrapMetadata(records=[{}], metadataVersionLevel={}, source=format command)",
            records.collect::<Vec<_>>().join(", "),
            self.version.level()
        )
    }

    fn is_metadata_dir(&self, dir: &Path) -> bool {
        dir == self.options.metadata_dir
    }

    /// Kafka's words for a directory.
    fn kind(&self, dir: &Path) -> &'static str {
        match &self.options.mode {
            _ if !self.is_metadata_dir(dir) => "data directory",
            QuorumMode::Standalone { .. } => "dynamic metadata voter directory",
            QuorumMode::InitialControllers(voters) if voters.iter().any(|v| v.id == self.options.node_id) => {
                "dynamic metadata voter directory"
            }
            QuorumMode::InitialControllers(_) => "dynamic metadata directory",
            QuorumMode::StaticVoters | QuorumMode::NoInitialControllers => "metadata directory",
        }
    }

    fn format_dir(&self, disk: &Arc<dyn Disk>, dir: &Path, rng: &mut dyn Rng) -> Result<(), QuorumError> {
        let io = |operation, path: PathBuf| move |source| QuorumError::Io { operation, path, source };
        files::create_dir(&**disk, dir).map_err(io("cannot create", dir.to_owned()))?;
        let directory_id = self.directory_id(dir, rng);
        if self.is_metadata_dir(dir) && self.options.is_controller {
            let log_dir = dir.join(METADATA_DIR);
            files::create_dir(&**disk, &log_dir).map_err(io("cannot create", log_dir.clone()))?;
            let quorum = self.quorum_records(directory_id);
            let values = self.records().map(|r| encode_value(&r));
            snapshot::write(&**disk, &log_dir, SnapshotId::BOOTSTRAP, &quorum, values, self.now_ms)?;
        }
        let properties = MetaProperties {
            version: 1,
            cluster_id: Some(self.options.cluster_id.clone()),
            node_id: Some(self.options.node_id),
            directory_id: Some(directory_id.to_string()),
        };
        LogDirectory::unlocked(disk.clone(), dir).write_meta_properties(&properties, self.now_ms)?;
        Ok(())
    }

    /// The id a voter list gives the metadata directory, or a random one.
    fn directory_id(&self, dir: &Path, rng: &mut dyn Rng) -> Uuid {
        let given = match &self.options.mode {
            QuorumMode::InitialControllers(voters) if self.is_metadata_dir(dir) => {
                voters.iter().find(|v| v.id == self.options.node_id).map(|v| v.directory_id)
            }
            _ => None,
        };
        given.unwrap_or_else(|| Uuid::random(|bytes| rng.fill(bytes)))
    }

    fn quorum_records(&self, directory_id: Uuid) -> QuorumRecords {
        let voter = |id, directory_id, endpoint: &VoterEndpoint| Voter {
            key: ReplicaKey { id, directory_id },
            endpoints: vec![endpoint.clone()],
            kraft_versions: KRAFT_VERSIONS,
        };
        let voters = match &self.options.mode {
            QuorumMode::StaticVoters | QuorumMode::NoInitialControllers => None,
            QuorumMode::Standalone { endpoint } => {
                Some(VoterSet::new([voter(self.options.node_id, directory_id, endpoint)]))
            }
            QuorumMode::InitialControllers(voters) => {
                let voter = |v: &InitialController| voter(v.id, v.directory_id, &v.endpoint);
                Some(VoterSet::new(voters.iter().map(voter)))
            }
        };
        QuorumRecords {
            last_contained_log_timestamp: self.now_ms,
            kraft_version: self.options.mode.kraft_version(),
            voters,
        }
    }
}
