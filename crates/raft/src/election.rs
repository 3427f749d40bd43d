//! What a replica must remember about elections: the file `quorum-state`, one JSON object without a newline. Version 0
//! belongs to `kraft.version` 0, version 1 to 1.

use milena_protocol::Uuid;
use serde_json::{Map, Value, json};

use crate::voters::{ReplicaKey, VoterSet};

/// The last epoch a replica knows, and its leader or the replica's vote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElectionState {
    /// The epoch.
    pub epoch: i32,
    /// The epoch's leader.
    pub leader_id: Option<i32>,
    /// Whom this replica voted for in the epoch; the directory id is zero in version 0 of the file.
    pub voted: Option<ReplicaKey>,
}

/// A `quorum-state` file that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElectionStateError {
    /// Not one JSON object.
    #[error("not a JSON object: {0}")]
    Json(String),
    /// A field is missing or of the wrong kind.
    #[error("field {0} is missing or has no usable value")]
    Field(&'static str),
    /// A version of the format this software does not know.
    #[error("unknown data_version {0}")]
    Version(i64),
}

impl ElectionState {
    /// The file's content for a `kraft.version`; version 0 also lists the voters' ids.
    pub fn to_json(&self, kraft_version: i16, voters: &VoterSet) -> String {
        let leader_id = self.leader_id.unwrap_or(-1);
        let voted_id = self.voted.map_or(-1, |v| v.id);
        let content = if kraft_version == 0 {
            let ids: Vec<Value> = voters.iter().map(|v| json!({ "voterId": v.key.id })).collect();
            json!({
                "clusterId": "", "leaderId": leader_id, "leaderEpoch": self.epoch, "votedId": voted_id,
                "appliedOffset": 0, "currentVoters": ids, "data_version": 0,
            })
        } else {
            let directory_id = self.voted.map_or(Uuid::ZERO, |v| v.directory_id);
            json!({
                "leaderId": leader_id, "leaderEpoch": self.epoch, "votedId": voted_id,
                "votedDirectoryId": directory_id.to_string(), "data_version": 1,
            })
        };
        content.to_string()
    }

    /// Reads a file's content.
    ///
    /// # Errors
    /// [`ElectionStateError`] when it is not JSON, a field is unusable, or the version is unknown.
    pub fn from_json(text: &str) -> Result<Self, ElectionStateError> {
        let value: Value = serde_json::from_str(text).map_err(|e| ElectionStateError::Json(e.to_string()))?;
        let object = value.as_object().ok_or_else(|| ElectionStateError::Json("another kind of value".to_owned()))?;
        let version = object.get("data_version").and_then(Value::as_i64);
        let version = version.ok_or(ElectionStateError::Field("data_version"))?;
        if !(0..=1).contains(&version) {
            return Err(ElectionStateError::Version(version));
        }
        let epoch = number(object, "leaderEpoch")?;
        if epoch < 0 {
            return Err(ElectionStateError::Field("leaderEpoch"));
        }
        let leader_id = Some(number(object, "leaderId")?).filter(|id| *id >= 0);
        let voted_id = Some(number(object, "votedId")?).filter(|id| *id >= 0);
        let directory_id = match object.get("votedDirectoryId").and_then(Value::as_str) {
            Some(text) => text.parse().map_err(|_| ElectionStateError::Field("votedDirectoryId"))?,
            None => Uuid::ZERO,
        };
        Ok(Self { epoch, leader_id, voted: voted_id.map(|id| ReplicaKey { id, directory_id }) })
    }
}

fn number(object: &Map<String, Value>, field: &'static str) -> Result<i32, ElectionStateError> {
    let value = object.get(field).and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok());
    value.ok_or(ElectionStateError::Field(field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::voters::Voter;

    fn voters() -> VoterSet {
        let key = ReplicaKey { id: 1, directory_id: Uuid::ZERO };
        VoterSet::new([Voter { key, endpoints: vec![], kraft_versions: (0, 1) }])
    }

    #[test]
    fn a_leader_of_a_static_quorum_is_written_as_kafka_writes_it() {
        let state = ElectionState { epoch: 1, leader_id: Some(1), voted: None };
        let text = state.to_json(0, &voters());
        assert_eq!(
            text,
            r#"{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}"#
        );
        assert_eq!(ElectionState::from_json(&text), Ok(state));
    }

    #[test]
    fn a_leader_of_a_dynamic_quorum_is_written_as_kafka_writes_it() {
        let state = ElectionState { epoch: 1, leader_id: Some(1), voted: None };
        let text = state.to_json(1, &voters());
        assert_eq!(
            text,
            r#"{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}"#
        );
        assert_eq!(ElectionState::from_json(&text), Ok(state));
    }

    #[test]
    fn a_vote_keeps_its_directory_in_version_1() {
        let directory_id = "VUK78uoJyllVz-GqkcCBCA".parse().unwrap();
        let state = ElectionState { epoch: 7, leader_id: None, voted: Some(ReplicaKey { id: 3, directory_id }) };
        assert_eq!(ElectionState::from_json(&state.to_json(1, &voters())), Ok(state));
    }

    #[test]
    fn unusable_content_is_refused() {
        let error = |text| ElectionState::from_json(text).unwrap_err();
        assert!(matches!(error(""), ElectionStateError::Json(_)));
        assert!(matches!(error("[]"), ElectionStateError::Json(_)));
        assert_eq!(error("{}"), ElectionStateError::Field("data_version"));
        assert_eq!(error(r#"{"data_version":2}"#), ElectionStateError::Version(2));
        assert_eq!(error(r#"{"data_version":1,"leaderEpoch":-4}"#), ElectionStateError::Field("leaderEpoch"));
    }
}
