//! Batches of the metadata log and of snapshots: records and control records to bytes and back.

use milena_metadata::VersionedRecord;
use milena_protocol::messages::{
    KRaftVersionRecord, LeaderChangeMessage, SnapshotFooterRecord, SnapshotHeaderRecord, VotersRecord,
    leader_change_message, voters_record,
};
use milena_protocol::{EncodeError, Message, MetadataRecord, Reader, Uuid, Writer};
use milena_raft::{ReplicaKey, Voter, VoterEndpoint, VoterSet};
use milena_records::{Batch, BatchBuilder, BuildError, ControlType};

use crate::error::QuorumError;

/// Most records of one batch.
pub(crate) const MAX_BATCH_RECORDS: usize = 10_000;
/// Most bytes of one batch's records.
pub(crate) const MAX_BATCH_BYTES: usize = 8 << 20;

/// A control record of the metadata log or of a snapshot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ControlRecord {
    LeaderChange { leader_id: i32, voters: Vec<i32>, granting_voters: Vec<i32> },
    SnapshotHeader { last_contained_log_timestamp: i64 },
    SnapshotFooter,
    KRaftVersion(i16),
    Voters(VoterSet),
}

/// What a batch holds.
#[derive(Debug, PartialEq)]
pub(crate) enum Contents<'a> {
    Control(Vec<ControlRecord>),
    Data(Vec<MetadataRecord<'a>>),
}

/// Where a batch stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    pub(crate) base_offset: i64,
    pub(crate) epoch: i32,
    /// Of the batch and all its records, milliseconds since 1970.
    pub(crate) timestamp: i64,
}

impl Position {
    fn builder(self) -> BatchBuilder {
        BatchBuilder::new().base_offset(self.base_offset).leader_epoch(self.epoch)
    }
}

/// A record as the value it has in a batch.
pub(crate) fn encode_value(record: &VersionedRecord<'_>) -> Result<Vec<u8>, QuorumError> {
    let mut w = Writer::new();
    record.record.encode_framed(&mut w, record.version).map_err(|e| QuorumError::Encode {
        record: record.record.name(),
        version: record.version,
        reason: e.to_string(),
    })?;
    Ok(w.into_bytes())
}

/// A batch of encoded records.
pub(crate) fn data_batch(at: Position, values: &[Vec<u8>]) -> Result<Vec<u8>, QuorumError> {
    let bytes: usize = values.iter().map(Vec::len).sum();
    if values.len() > MAX_BATCH_RECORDS || bytes > MAX_BATCH_BYTES {
        return Err(QuorumError::TooLarge { records: values.len(), bytes });
    }
    let mut builder = at.builder();
    for value in values {
        builder.push(at.timestamp, None, Some(value), &[]);
    }
    built(builder.build(), values.len(), bytes)
}

/// A batch of control records.
pub(crate) fn control_batch(at: Position, records: &[ControlRecord]) -> Result<Vec<u8>, QuorumError> {
    let mut builder = at.builder().control(true);
    for record in records {
        let (kind, value) = record.encode().map_err(|e| QuorumError::Encode {
            record: "control record",
            version: 0,
            reason: e.to_string(),
        })?;
        builder.push_control(at.timestamp, kind, &value);
    }
    built(builder.build(), records.len(), 0)
}

fn built(batch: Result<Vec<u8>, BuildError>, records: usize, bytes: usize) -> Result<Vec<u8>, QuorumError> {
    batch.map_err(|_| QuorumError::TooLarge { records, bytes })
}

impl ControlRecord {
    fn encode(&self) -> Result<(ControlType, Vec<u8>), EncodeError> {
        let mut w = Writer::new();
        let kind = match self {
            Self::LeaderChange { leader_id, voters, granting_voters } => {
                let voter = |id: &i32| leader_change_message::Voter { voter_id: *id, ..Default::default() };
                let message = LeaderChangeMessage {
                    leader_id: *leader_id,
                    voters: voters.iter().map(voter).collect(),
                    granting_voters: granting_voters.iter().map(voter).collect(),
                    ..Default::default()
                };
                message.encode(&mut w, 0)?;
                ControlType::LeaderChange
            }
            Self::SnapshotHeader { last_contained_log_timestamp } => {
                let last_contained_log_timestamp = *last_contained_log_timestamp;
                SnapshotHeaderRecord { last_contained_log_timestamp, ..Default::default() }.encode(&mut w, 0)?;
                ControlType::SnapshotHeader
            }
            Self::SnapshotFooter => {
                SnapshotFooterRecord::default().encode(&mut w, 0)?;
                ControlType::SnapshotFooter
            }
            Self::KRaftVersion(level) => {
                KRaftVersionRecord { kraft_version: *level, ..Default::default() }.encode(&mut w, 0)?;
                ControlType::KRaftVersion
            }
            Self::Voters(voters) => {
                VotersRecord { voters: voters.iter().map(voter_to_wire).collect(), ..Default::default() }
                    .encode(&mut w, 0)?;
                ControlType::KRaftVoters
            }
        };
        Ok((kind, w.into_bytes()))
    }

    fn decode(kind: ControlType, value: &[u8]) -> Result<Option<Self>, String> {
        let mut r = Reader::new(value);
        let text = |e: milena_protocol::DecodeError| e.to_string();
        Ok(Some(match kind {
            ControlType::Abort | ControlType::Commit => return Ok(None),
            ControlType::LeaderChange => {
                let message = LeaderChangeMessage::decode(&mut r, 0).map_err(text)?;
                let ids = |voters: &[leader_change_message::Voter]| voters.iter().map(|v| v.voter_id).collect();
                Self::LeaderChange {
                    leader_id: message.leader_id,
                    voters: ids(&message.voters),
                    granting_voters: ids(&message.granting_voters),
                }
            }
            ControlType::SnapshotHeader => {
                let header = SnapshotHeaderRecord::decode(&mut r, 0).map_err(text)?;
                Self::SnapshotHeader { last_contained_log_timestamp: header.last_contained_log_timestamp }
            }
            ControlType::SnapshotFooter => {
                SnapshotFooterRecord::decode(&mut r, 0).map_err(text)?;
                Self::SnapshotFooter
            }
            ControlType::KRaftVersion => {
                Self::KRaftVersion(KRaftVersionRecord::decode(&mut r, 0).map_err(text)?.kraft_version)
            }
            ControlType::KRaftVoters => {
                let record = VotersRecord::decode(&mut r, 0).map_err(text)?;
                Self::Voters(VoterSet::new(record.voters.iter().map(voter_from_wire)))
            }
        }))
    }
}

fn voter_to_wire(voter: &Voter) -> voters_record::Voter<'_> {
    let endpoints = voter.endpoints.iter().map(|e| voters_record::Endpoint {
        name: e.name.as_str().into(),
        host: e.host.as_str().into(),
        port: e.port,
    });
    voters_record::Voter {
        voter_id: voter.key.id,
        voter_directory_id: voter.key.directory_id,
        endpoints: endpoints.collect(),
        kraft_version_feature: voters_record::KRaftVersionFeature {
            min_supported_version: voter.kraft_versions.0,
            max_supported_version: voter.kraft_versions.1,
        },
    }
}

fn voter_from_wire(voter: &voters_record::Voter<'_>) -> Voter {
    let endpoint = |e: &voters_record::Endpoint<'_>| VoterEndpoint {
        name: e.name.to_string(),
        host: e.host.to_string(),
        port: e.port,
    };
    let range = &voter.kraft_version_feature;
    Voter {
        key: ReplicaKey { id: voter.voter_id, directory_id: voter.voter_directory_id },
        endpoints: voter.endpoints.iter().map(endpoint).collect(),
        kraft_versions: (range.min_supported_version, range.max_supported_version),
    }
}

/// The records of a batch. Unknown kinds of control records are skipped, as Kafka skips them; unknown metadata records
/// are an error.
pub(crate) fn decode<'a>(batch: &Batch<'a>) -> Result<Contents<'a>, String> {
    let records = batch.plain_records().map_err(|e| e.to_string())?;
    if batch.is_control() {
        let mut control = Vec::new();
        for record in records {
            let record = record.map_err(|e| e.to_string())?;
            let key = record.key.ok_or("a control record without a key")?;
            let Some(kind) = ControlType::from_key(key) else { continue };
            control.extend(ControlRecord::decode(kind, record.value.unwrap_or_default())?);
        }
        return Ok(Contents::Control(control));
    }
    let mut data = Vec::new();
    for record in records {
        let value = record.map_err(|e| e.to_string())?.value.ok_or("a record without a value")?;
        data.push(MetadataRecord::decode_framed(value).map_err(|e| e.to_string())?.0);
    }
    Ok(Contents::Data(data))
}

/// Voters named in the static configuration: no directories, no `kraft.version` above 0.
pub(crate) fn static_voter(id: i32, endpoints: Vec<VoterEndpoint>) -> Voter {
    Voter { key: ReplicaKey { id, directory_id: Uuid::ZERO }, endpoints, kraft_versions: (0, 0) }
}
