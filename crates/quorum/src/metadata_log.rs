//! The metadata log of a quorum of one: open, append, snapshot, close. What it has acknowledged is on disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use milena_io::Disk;
use milena_log::{Log, LogConfig, LogError, OpenParams, read_file, read_topic_id, replace_file, write_topic_id};
use milena_metadata::{ConfigResourceType, Image, Loaded, Loader, MetadataVersion, Provenance, VersionedRecord};
use milena_protocol::messages::{
    AbortTransactionRecord, BeginTransactionRecord, ConfigRecord, EndTransactionRecord, FeatureLevelRecord,
};
use milena_protocol::{MetadataRecord, Uuid};
use milena_raft::{
    Effect, ElectionState, Event, Quorum, ReplicaKey, State as QuorumState, Voter, VoterEndpoint, VoterSet,
};

use crate::batches::{
    ControlRecord, MAX_BATCH_BYTES, MAX_BATCH_RECORDS, Position, control_batch, data_batch, encode_value,
};
use crate::error::{IoContext, QuorumError};
use crate::load;
use crate::retention::{self, Limits};
use crate::snapshot::{self, QuorumRecords, SnapshotId};
use crate::{files, integrity};

/// Name of the metadata log's directory.
pub(crate) const METADATA_DIR: &str = "__cluster_metadata-0";
const QUORUM_STATE: &str = "quorum-state";
/// The lowest and the highest `kraft.version` that this software knows.
pub(crate) const KRAFT_VERSIONS: (i16, i16) = (0, 1);
/// The metadata topic's id, which is 1.
const METADATA_TOPIC_ID: &str = "AAAAAAAAAAAAAAAAAAAAAQ";

/// What the metadata log is opened with. The names in the field comments are Kafka's configurations.
#[derive(Clone, Debug)]
pub struct MetadataLogOptions {
    /// The log directory that holds the metadata log (`metadata.log.dir`).
    pub metadata_dir: PathBuf,
    /// `node.id`.
    pub node_id: i32,
    /// The metadata directory's id.
    pub directory_id: Uuid,
    /// `controller.quorum.voters`, for a quorum whose voters are not in the log.
    pub static_voters: VoterSet,
    /// `min.insync.replicas`, recorded when a cluster with eligible leader replicas starts for the first time.
    pub min_insync_replicas: i32,
    /// `metadata.log.max.record.bytes.between.snapshots`.
    pub snapshot_max_bytes: u64,
    /// `metadata.log.max.snapshot.interval.ms`; 0 for never.
    pub snapshot_max_interval_ms: i64,
    /// `metadata.max.retention.bytes`; negative for no limit.
    pub retention_bytes: i64,
    /// `metadata.max.retention.ms`; negative for no limit.
    pub retention_ms: i64,
    /// `metadata.log.segment.bytes`.
    pub segment_bytes: u64,
    /// `metadata.log.segment.ms`.
    pub segment_ms: i64,
}

impl MetadataLogOptions {
    /// Options with Kafka's defaults.
    pub fn new(metadata_dir: PathBuf, node_id: i32, directory_id: Uuid, static_voters: VoterSet) -> Self {
        Self {
            metadata_dir,
            node_id,
            directory_id,
            static_voters,
            min_insync_replicas: 1,
            snapshot_max_bytes: 20 << 20,
            snapshot_max_interval_ms: 3_600_000,
            retention_bytes: 100 << 20,
            retention_ms: 7 * 24 * 3_600_000,
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3_600_000,
        }
    }

    /// The voter set of `controller.quorum.voters` that names node ids only.
    pub fn static_voter_ids(ids: impl IntoIterator<Item = i32>) -> VoterSet {
        VoterSet::new(ids.into_iter().map(|id| crate::batches::static_voter(id, Vec::new())))
    }
}

/// Records that are now on disk and committed.
#[derive(Clone, Debug)]
pub struct CommittedRecords {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Offset of the last record.
    pub last_offset: i64,
    /// The images this led to, in order: one unless a transaction began or stays open.
    pub loaded: Vec<Loaded>,
}

/// The metadata log of a node that leads a quorum of one.
pub struct MetadataLog {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: MetadataLogOptions,
    log: Log,
    quorum: Quorum,
    kraft_version: i16,
    recorded_voters: Option<VoterSet>,
    loader: Loader,
    image: Arc<Image>,
    newest_snapshot: Option<SnapshotId>,
    bytes_since_snapshot: u64,
    oldest_unsnapshotted: Option<i64>,
    failure: Option<String>,
}

impl std::fmt::Debug for MetadataLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.quorum.state();
        f.debug_struct("MetadataLog").field("dir", &self.dir).field("state", &state).finish_non_exhaustive()
    }
}

impl MetadataLog {
    /// Opens the metadata log of a formatted directory and makes this node its leader: loads the newest snapshot and the
    /// log, cuts a torn tail, elects itself in the next epoch, and writes the records of a fresh cluster if the log has
    /// none. `now_ms` is milliseconds since 1970.
    ///
    /// # Errors
    /// [`QuorumError`]; [`QuorumError::NotTheOnlyVoter`] when the quorum has other voters.
    pub fn open(disk: Arc<dyn Disk>, options: MetadataLogOptions, now_ms: i64) -> Result<Self, QuorumError> {
        let dir = options.metadata_dir.join(METADATA_DIR);
        let local = ReplicaKey { id: options.node_id, directory_id: options.directory_id };
        // First what may fail, and then has changed nothing.
        let walked = integrity::check(&*disk, &dir)?;
        let state = load::load(&*disk, &options.metadata_dir, &dir, &walked)?;
        let voters = state.voters.clone().unwrap_or_else(|| options.static_voters.clone());
        if !voters.is_only_voter(local) {
            return Err(not_the_only_voter(local, &voters));
        }
        let stored = stored_election(&*disk, &dir)?;
        files::create_dir(&*disk, &dir).context("cannot create", &dir)?;
        snapshot::remove_remains(&*disk, &dir)?;
        let config =
            LogConfig { segment_bytes: options.segment_bytes, segment_ms: options.segment_ms, ..LogConfig::default() };
        let params = OpenParams { clean: false, recovery_point: 0, log_start_offset: 0, cleaned_to: 0, now_ms };
        let (mut log, recovery) = Log::open(disk.clone(), &dir, Arc::new(config), params)?;
        if let Some(offset) = recovery.cut_at {
            let reason = recovery.reason.as_deref().unwrap_or("the batch is incomplete");
            tracing::warn!("{}: {} bytes at offset {offset} were cut: {reason}", dir.display(), recovery.bytes_cut);
        }
        write_partition_metadata(&*disk, &dir)?;
        if let Some(offset) = state.begins_anew {
            let end = log.log_end_offset();
            tracing::warn!("the metadata log ends at {end}, before the snapshot at {offset}: it is emptied");
            log.truncate_fully_and_start_at(offset)?;
        } else if log.log_end_offset() != walked.end {
            let reason = format!("the log was opened up to {} only", log.log_end_offset());
            return Err(QuorumError::Batch { path: dir, offset: walked.end, reason });
        }
        let mut opened = Self {
            quorum: Quorum::new(local, voters),
            kraft_version: state.kraft_version,
            recorded_voters: state.voters,
            image: Arc::new(state.loader.image().clone()),
            loader: state.loader,
            newest_snapshot: None,
            bytes_since_snapshot: state.bytes_since_snapshot,
            oldest_unsnapshotted: state.oldest_unsnapshotted,
            failure: None,
            disk,
            dir,
            options,
            log,
        };
        opened.elect(stored, state.epoch, state.voters_unlogged, now_ms)?;
        opened.activate(state.bootstrap, now_ms)?;
        Ok(opened)
    }

    /// The current image.
    pub fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// Offset of the next record.
    pub fn end_offset(&self) -> i64 {
        self.log.log_end_offset()
    }

    /// First offset that is not committed; -1 when nothing is.
    pub fn high_watermark(&self) -> i64 {
        self.quorum.high_watermark().unwrap_or(-1)
    }

    /// Where the log begins.
    pub fn log_start_offset(&self) -> i64 {
        self.log.log_start_offset()
    }

    /// The epoch this node leads.
    pub fn epoch(&self) -> i32 {
        self.quorum.state().epoch()
    }

    /// Level of `kraft.version`.
    pub fn kraft_version(&self) -> i16 {
        self.kraft_version
    }

    /// The voters.
    pub fn voters(&self) -> &VoterSet {
        self.quorum.voters()
    }

    /// The newest snapshot this process has written.
    pub fn newest_snapshot(&self) -> Option<SnapshotId> {
        self.newest_snapshot
    }

    /// Runs the election; afterwards this node leads and a record of its epoch is committed.
    fn elect(
        &mut self,
        stored: Option<ElectionState>,
        log_epoch: i32,
        voters_unlogged: bool,
        now_ms: i64,
    ) -> Result<(), QuorumError> {
        let mut effects: Vec<Effect> = self.quorum.on(Event::Start { stored, log_epoch });
        while !effects.is_empty() {
            let mut next = Vec::new();
            for effect in effects {
                next.extend(self.execute(effect, voters_unlogged, now_ms)?);
            }
            effects = next;
        }
        if matches!(self.quorum.state(), QuorumState::Leader { .. }) {
            return Ok(());
        }
        let local = ReplicaKey { id: self.options.node_id, directory_id: self.options.directory_id };
        Err(not_the_only_voter(local, self.quorum.voters()))
    }

    fn execute(&mut self, effect: Effect, voters_unlogged: bool, now_ms: i64) -> Result<Vec<Effect>, QuorumError> {
        match effect {
            Effect::Persist(election) => {
                let path = self.dir.join(QUORUM_STATE);
                let text = election.to_json(self.kraft_version, self.quorum.voters());
                replace_file(&*self.disk, &path, text.as_bytes())?;
                Ok(self.quorum.on(Event::Persisted { log_end_offset: self.log.log_end_offset() }))
            }
            Effect::Lead { epoch, voters, granting_voters } => {
                let leader_id = self.options.node_id;
                let mut records = vec![ControlRecord::LeaderChange { leader_id, voters, granting_voters }];
                if voters_unlogged {
                    records.push(ControlRecord::KRaftVersion(self.kraft_version));
                    records.extend(self.recorded_voters.clone().map(ControlRecord::Voters));
                }
                let at = Position { base_offset: self.log.log_end_offset(), epoch, timestamp: now_ms };
                let batch = control_batch(at, &records)?;
                self.write(vec![batch], epoch, now_ms)?;
                Ok(Vec::new())
            }
            Effect::AdvanceHighWatermark(_) | Effect::StopLeading => Ok(Vec::new()),
        }
    }

    /// What a new leader writes first: the end of a transaction that an earlier one left open, and the records of a fresh
    /// cluster.
    fn activate(&mut self, bootstrap: Vec<Vec<u8>>, now_ms: i64) -> Result<(), QuorumError> {
        if self.loader.in_transaction() {
            let reason = Some("A new leader began in the middle of the transaction".into());
            let abort = MetadataRecord::AbortTransaction(AbortTransactionRecord { reason });
            self.append(&[VersionedRecord::new(abort, 0)], now_ms)?;
        }
        if self.image.features().has_metadata_version() {
            return Ok(());
        }
        let mut records = Vec::with_capacity(bootstrap.len());
        for value in &bootstrap {
            let decoded = MetadataRecord::decode_framed(value);
            let (record, version) = decoded.expect("these bytes were encoded by this process");
            records.push(VersionedRecord::new(record, version));
        }
        if records.is_empty() {
            records = default_bootstrap();
        }
        let image = Image::default().apply(records.iter().map(|r| &r.record));
        let (image, _) = image.map_err(|source| QuorumError::Replay { base_offset: 0, last_offset: 0, source })?;
        if image.features().elr_enabled() {
            let config = ConfigRecord {
                resource_type: ConfigResourceType::BROKER.0,
                resource_name: "".into(),
                name: "min.insync.replicas".into(),
                value: Some(self.options.min_insync_replicas.to_string().into()),
            };
            records.push(VersionedRecord::new(MetadataRecord::Config(config), 0));
        }
        if image.features().metadata_version().supports_transactions() {
            let begin = BeginTransactionRecord { name: Some("Bootstrap records".into()) };
            records.insert(0, VersionedRecord::new(MetadataRecord::BeginTransaction(begin), 0));
            records.push(VersionedRecord::new(MetadataRecord::EndTransaction(EndTransactionRecord {}), 0));
        }
        self.append(&records, now_ms)?;
        Ok(())
    }

    /// Raises `kraft.version`: from now on the log itself says who votes, this node alone, at these addresses.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn raise_kraft_version(
        &mut self,
        level: i16,
        endpoints: Vec<VoterEndpoint>,
        now_ms: i64,
    ) -> Result<(), QuorumError> {
        if let Some(reason) = &self.failure {
            return Err(QuorumError::Failed { reason: reason.clone() });
        }
        let key = ReplicaKey { id: self.options.node_id, directory_id: self.options.directory_id };
        let voters = VoterSet::new([Voter { key, endpoints, kraft_versions: KRAFT_VERSIONS }]);
        let epoch = self.epoch();
        let at = Position { base_offset: self.log.log_end_offset(), epoch, timestamp: now_ms };
        let records = [ControlRecord::KRaftVersion(level), ControlRecord::Voters(voters.clone())];
        self.write(vec![control_batch(at, &records)?], epoch, now_ms)?;
        self.kraft_version = level;
        self.recorded_voters = Some(voters.clone());
        self.quorum.change_voters(voters);
        Ok(())
    }

    /// Appends records as one batch, which is on disk entirely or not at all. They are on disk and applied to the image
    /// when this returns.
    ///
    /// # Errors
    /// [`QuorumError::TooLarge`] or [`QuorumError::Encode`] when nothing was changed, [`QuorumError::Log`] with a full
    /// disk when it may be tried again; anything else is final, and every later call fails with [`QuorumError::Failed`].
    pub fn append(&mut self, records: &[VersionedRecord<'_>], now_ms: i64) -> Result<CommittedRecords, QuorumError> {
        let values = encode_all(records)?;
        self.append_values(records, &[values], now_ms)
    }

    /// Appends any number of records in as many batches as they need. After a crash a prefix of them may be there.
    ///
    /// # Errors
    /// As [`append`](Self::append), except that no number of records is too large.
    pub fn append_split(
        &mut self,
        records: &[VersionedRecord<'_>],
        now_ms: i64,
    ) -> Result<CommittedRecords, QuorumError> {
        let mut batches = vec![Vec::new()];
        let mut bytes = 0;
        for value in encode_all(records)? {
            let last = batches.last_mut().expect("there is always one");
            if last.len() == MAX_BATCH_RECORDS || (bytes + value.len() > MAX_BATCH_BYTES && !last.is_empty()) {
                bytes = value.len();
                batches.push(vec![value]);
            } else {
                bytes += value.len();
                last.push(value);
            }
        }
        self.append_values(records, &batches, now_ms)
    }

    fn append_values(
        &mut self,
        records: &[VersionedRecord<'_>],
        values: &[Vec<Vec<u8>>],
        now_ms: i64,
    ) -> Result<CommittedRecords, QuorumError> {
        if let Some(reason) = &self.failure {
            return Err(QuorumError::Failed { reason: reason.clone() });
        }
        let base_offset = self.log.log_end_offset();
        let last_offset = base_offset + records.len() as i64 - 1;
        if records.is_empty() {
            return Ok(CommittedRecords { base_offset, last_offset, loaded: Vec::new() });
        }
        let epoch = self.epoch();
        let mut at = Position { base_offset, epoch, timestamp: now_ms };
        let mut batches = Vec::with_capacity(values.len());
        for values in values {
            batches.push(data_batch(at, values)?);
            at.base_offset += values.len() as i64;
        }
        let provenance = Provenance {
            last_contained_offset: last_offset,
            last_contained_epoch: epoch,
            last_contained_timestamp: now_ms,
        };
        let loaded = self.loader.load(base_offset, records.iter().map(|r| &r.record), provenance);
        let loaded = loaded.map_err(|source| self.fail(QuorumError::Replay { base_offset, last_offset, source }))?;
        self.write(batches, epoch, now_ms)?;
        self.image = Arc::new(self.loader.image().clone());
        Ok(CommittedRecords { base_offset, last_offset, loaded })
    }

    /// Writes batches and waits for the disk after each, so that only the last one can be torn. Only a full disk leaves the
    /// log usable after an error.
    fn write(&mut self, batches: Vec<Vec<u8>>, epoch: i32, now_ms: i64) -> Result<(), QuorumError> {
        for (index, mut batch) in batches.into_iter().enumerate() {
            // Apache Kafka opens the metadata log before it looks at the directory's lock. What it wrote is not to be
            // written over.
            self.log.check_sole_writer().map_err(|error| self.fail(error.into()))?;
            match self.log.append(&mut [&mut batch], &[], epoch, now_ms) {
                Ok(_) => {}
                Err(error) if error.is_disk_full() && index == 0 && !self.loader.in_transaction() => {
                    self.loader = Loader::new(Image::clone(&self.image));
                    return Err(error.into());
                }
                Err(error) => return Err(self.fail(error.into())),
            }
            self.log.flush().map_err(|error: LogError| self.fail(error.into()))?;
            self.bytes_since_snapshot += batch.len() as u64;
        }
        self.quorum.on(Event::Flushed { end_offset: self.log.log_end_offset() });
        self.oldest_unsnapshotted.get_or_insert(now_ms);
        Ok(())
    }

    fn fail(&mut self, error: QuorumError) -> QuorumError {
        self.failure.get_or_insert_with(|| error.to_string());
        error
    }

    /// Writes a snapshot if enough was appended since the last one, or the oldest of it is old enough.
    ///
    /// # Errors
    /// [`QuorumError`] when the snapshot could not be written; the log is not affected.
    pub fn maybe_snapshot(&mut self, now_ms: i64) -> Result<Option<SnapshotId>, QuorumError> {
        let interval = self.options.snapshot_max_interval_ms;
        let age = self.oldest_unsnapshotted.map_or(0, |oldest| now_ms.saturating_sub(oldest));
        let due = self.bytes_since_snapshot >= self.options.snapshot_max_bytes || (interval > 0 && age >= interval);
        if !due || self.bytes_since_snapshot == 0 || self.loader.in_transaction() {
            return Ok(None);
        }
        self.snapshot(now_ms).map(Some)
    }

    /// Writes a snapshot of everything appended so far, and removes those that are too old or too many.
    ///
    /// # Errors
    /// As [`maybe_snapshot`](Self::maybe_snapshot).
    pub fn snapshot(&mut self, now_ms: i64) -> Result<SnapshotId, QuorumError> {
        let id = SnapshotId { end_offset: self.log.log_end_offset(), epoch: self.epoch() };
        let quorum = QuorumRecords {
            last_contained_log_timestamp: self.image.provenance().last_contained_timestamp,
            kraft_version: self.kraft_version,
            voters: self.recorded_voters.clone(),
        };
        let values = self.image.records().map(|record| encode_value(&record));
        snapshot::write(&*self.disk, &self.dir, id, &quorum, values, now_ms)?;
        self.newest_snapshot = Some(id);
        self.bytes_since_snapshot = 0;
        self.oldest_unsnapshotted = None;
        let limits = Limits { bytes: self.options.retention_bytes, ms: self.options.retention_ms };
        retention::clean(&*self.disk, &self.dir, self.log.size(), limits, now_ms)?;
        Ok(id)
    }

    /// Gives up leadership and leaves the files as a clean stop does.
    ///
    /// # Errors
    /// [`QuorumError`] when the log cannot be closed; everything acknowledged is on disk all the same.
    pub fn close(mut self) -> Result<(), QuorumError> {
        self.quorum.on(Event::Resign);
        self.log.close()?;
        Ok(())
    }
}

fn encode_all(records: &[VersionedRecord<'_>]) -> Result<Vec<Vec<u8>>, QuorumError> {
    records.iter().map(encode_value).collect()
}

/// The records of a cluster whose formatting left none: the newest stable metadata version and no other feature.
fn default_bootstrap() -> Vec<VersionedRecord<'static>> {
    let feature_level = MetadataVersion::LATEST_PRODUCTION.level();
    let record = FeatureLevelRecord { name: "metadata.version".into(), feature_level };
    vec![VersionedRecord::new(MetadataRecord::FeatureLevel(record), 0)]
}

/// The election that the file `quorum-state` tells of; `None` without a file.
fn stored_election(disk: &dyn Disk, dir: &Path) -> Result<Option<ElectionState>, QuorumError> {
    let path = dir.join(QUORUM_STATE);
    let stored = read_file(disk, &path)?.map(|text| ElectionState::from_json(&String::from_utf8_lossy(&text)));
    stored.transpose().map_err(|source| QuorumError::QuorumState { path, source })
}

fn not_the_only_voter(local: ReplicaKey, voters: &VoterSet) -> QuorumError {
    let ids: Vec<String> = voters.iter().map(|voter| voter.key.id.to_string()).collect();
    QuorumError::NotTheOnlyVoter {
        node_id: local.id,
        directory_id: local.directory_id.to_string(),
        voters: ids.join(", "),
    }
}

fn write_partition_metadata(disk: &dyn Disk, dir: &Path) -> Result<(), QuorumError> {
    if read_topic_id(disk, dir)?.is_none() {
        write_topic_id(disk, dir, METADATA_TOPIC_ID)?;
    }
    Ok(())
}
