//! RemoveRaftVoter. The only voter stays one.

use milena_net::Outgoing;
use milena_protocol::messages::{RemoveRaftVoterRequest, RemoveRaftVoterResponse};
use milena_protocol::{ApiKey, ErrorCode};
use milena_raft::ReplicaKey;

use crate::registry::{Api, Handler};
use crate::request::{Call, Refusal};
use crate::services::{Services, Voting};

/// The registry's line.
pub const API: Api = Api::new(ApiKey::REMOVE_RAFT_VOTER, 0..=0, Handler::Now(handle));

/// Why the voters stay those that they are.
pub(super) type Refused = (ErrorCode, String);

fn handle(call: &Call<'_>, services: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: RemoveRaftVoterRequest<'_> = call.request()?;
    let refused = refusal(&request, &services.node.cluster_id, &services.live.voting.load());
    let (error_code, error_message) = (refused.0.0, Some(refused.1.into()));
    call.answer(out, &RemoveRaftVoterResponse { error_code, error_message, ..Default::default() })
}

fn refusal(request: &RemoveRaftVoterRequest<'_>, cluster_id: &str, voting: &Voting) -> Refused {
    let key = ReplicaKey { id: request.voter_id, directory_id: request.voter_directory_id };
    if let Err(refused) = check(request.cluster_id.as_deref(), cluster_id, key, voting, "removing") {
        return refused;
    }
    let message = format!("Cannot remove voter {key} from the set of voters {}", voters(voting));
    (ErrorCode::VOTER_NOT_FOUND, message)
}

/// What no change of the voters gets past: another cluster, a voter that can't be, a quorum whose voters the log does not know.
pub(super) fn check(
    asked: Option<&str>,
    cluster_id: &str,
    key: ReplicaKey,
    voting: &Voting,
    doing: &str,
) -> Result<(), Refused> {
    if let Some(asked) = asked.filter(|asked| *asked != cluster_id) {
        let message = format!("The given id \"{asked}\" doesn't match the cluster id \"{cluster_id}\"");
        return Err((ErrorCode::INCONSISTENT_CLUSTER_ID, message));
    }
    if key.id < 0 || key.directory_id.is_zero() {
        return Err((ErrorCode::INVALID_REQUEST, "Invalid voter".to_owned()));
    }
    if voting.kraft_version == 0 {
        let message = format!("Cluster doesn't support {doing} voter because the kraft.version feature is 0");
        return Err((ErrorCode::UNSUPPORTED_VERSION, message));
    }
    Ok(())
}

/// The voters as Kafka writes a set of them.
pub(super) fn voters(voting: &Voting) -> String {
    format!("[{}]", voting.voters.iter().map(|voter| voter.key.to_string()).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use milena_protocol::Uuid;

    use super::*;

    #[test]
    fn nobody_is_taken_out() {
        let request = RemoveRaftVoterRequest { cluster_id: None, voter_id: 7, voter_directory_id: Uuid::ONE };
        let voting = Voting { kraft_version: 1, ..Default::default() };
        let message =
            "Cannot remove voter ReplicaKey(id=7, directoryId=AAAAAAAAAAAAAAAAAAAAAQ) from the set of voters []";
        assert_eq!(refusal(&request, "c", &voting), (ErrorCode::VOTER_NOT_FOUND, message.to_owned()));
    }
}
