//! AddRaftVoter. v1: when the answer comes. A quorum of one takes in nobody: it has no connections to other controllers.

use milena_net::Outgoing;
use milena_protocol::messages::{AddRaftVoterRequest, AddRaftVoterResponse};
use milena_protocol::{ApiKey, ErrorCode};
use milena_raft::ReplicaKey;

use super::remove_raft_voter::{Refused, check, voters};
use crate::registry::{Api, Handler};
use crate::request::{Call, Refusal};
use crate::services::{Services, Voting};

/// The registry's line.
pub const API: Api = Api::new(ApiKey::ADD_RAFT_VOTER, 0..=1, Handler::Now(handle));

fn handle(call: &Call<'_>, services: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: AddRaftVoterRequest<'_> = call.request()?;
    let refused = refusal(&request, &services.node.cluster_id, &services.live.voting.load());
    let (error_code, error_message) = (refused.0.0, Some(refused.1.into()));
    call.answer(out, &AddRaftVoterResponse { error_code, error_message, ..Default::default() })
}

fn refusal(request: &AddRaftVoterRequest<'_>, cluster_id: &str, voting: &Voting) -> Refused {
    let key = ReplicaKey { id: request.voter_id, directory_id: request.voter_directory_id };
    if let Err(refused) = check(request.cluster_id.as_deref(), cluster_id, key, voting, "adding") {
        return refused;
    }
    if voting.voters.iter().any(|voter| voter.key.id == key.id) {
        let message = format!("The voter id for {key} is already part of the set of voters {}.", voters(voting));
        return (ErrorCode::DUPLICATE_VOTER, message);
    }
    let message = "Aborted add voter operation for since API_VERSIONS returned an error BROKER_NOT_AVAILABLE";
    (ErrorCode::REQUEST_TIMED_OUT, message.to_owned())
}

#[cfg(test)]
mod tests {
    use milena_protocol::Uuid;
    use milena_raft::{Voter, VoterSet};

    use super::*;

    #[test]
    fn nobody_is_taken_in() {
        let key = ReplicaKey { id: 1, directory_id: Uuid::ONE };
        let voters = VoterSet::new([Voter { key, endpoints: vec![], kraft_versions: (0, 1) }]);
        let ask = |kraft_version, voter_id, cluster_id: Option<&'static str>| {
            let cluster_id = cluster_id.map(Into::into);
            let request =
                AddRaftVoterRequest { voter_id, voter_directory_id: Uuid::ONE, cluster_id, ..Default::default() };
            refusal(&request, "c", &Voting { kraft_version, voters: voters.clone() })
        };
        let lacking = "Cluster doesn't support adding voter because the kraft.version feature is 0".to_owned();
        assert_eq!(ask(0, 7, Some("c")), (ErrorCode::UNSUPPORTED_VERSION, lacking));
        assert_eq!(ask(1, 7, None).0, ErrorCode::REQUEST_TIMED_OUT);
        assert_eq!(ask(1, 7, Some("d")).0, ErrorCode::INCONSISTENT_CLUSTER_ID);
        assert_eq!(ask(1, -1, None).0, ErrorCode::INVALID_REQUEST);
        let (code, message) = ask(1, 1, None);
        assert_eq!(code, ErrorCode::DUPLICATE_VOTER);
        let twice = "The voter id for ReplicaKey(id=1, directoryId=AAAAAAAAAAAAAAAAAAAAAQ) is already part of the set of \
                     voters [ReplicaKey(id=1, directoryId=AAAAAAAAAAAAAAAAAAAAAQ)].";
        assert_eq!(message, twice);
    }
}
