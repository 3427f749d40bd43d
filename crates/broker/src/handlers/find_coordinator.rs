//! FindCoordinator. v1: key type, message. v3: flexible. v4: several keys. v6: share groups.
//!
//! No coordinator runs here, so every valid key is answered with an error that makes clients ask again.

use std::borrow::Cow;

use milena_net::Outgoing;
use milena_protocol::messages::FindCoordinatorRequest;
use milena_protocol::messages::find_coordinator_response::{Coordinator, FindCoordinatorResponse};
use milena_protocol::{ApiKey, ErrorCode, Str, Uuid};

use crate::ports::Ports;
use crate::registry::Api;
use crate::request::{Call, Refusal};

/// The registry's line.
pub const API: Api = Api::now(ApiKey::FIND_COORDINATOR, 0..=6, handle);

/// First version with a list of keys.
const FIRST_KEYS_VERSION: i16 = 4;
/// First version with share groups.
const FIRST_SHARE_VERSION: i16 = 6;

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;

fn handle(call: &Call<'_>, _ports: &Ports, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: FindCoordinatorRequest<'_> = call.request()?;
    call.answer(out, &response(&request, call.header.version))
}

fn response<'r>(request: &'r FindCoordinatorRequest<'r>, version: i16) -> FindCoordinatorResponse<'r> {
    if version < FIRST_KEYS_VERSION {
        let error = find(request.key_type, &request.key, version);
        return FindCoordinatorResponse {
            error_code: error.0,
            error_message: Some(message(error)),
            node_id: -1,
            port: -1,
            ..Default::default()
        };
    }
    let is_known_type = (GROUP..=SHARE).contains(&request.key_type);
    let coordinator = |key: &'r Str<'r>| {
        let error = find(request.key_type, key, version);
        Coordinator {
            key: Cow::Borrowed(key),
            node_id: -1,
            port: -1,
            error_code: error.0,
            error_message: Some(if is_known_type { "".into() } else { message(error) }),
            ..Default::default()
        }
    };
    FindCoordinatorResponse {
        coordinators: request.coordinator_keys.iter().map(coordinator).collect(),
        ..Default::default()
    }
}

/// The reason why a key has no coordinator.
fn find(key_type: i8, key: &str, version: i16) -> ErrorCode {
    match key_type {
        GROUP | TRANSACTION => ErrorCode::COORDINATOR_NOT_AVAILABLE,
        SHARE if version >= FIRST_SHARE_VERSION && is_share_key(key) => ErrorCode::COORDINATOR_NOT_AVAILABLE,
        _ => ErrorCode::INVALID_REQUEST,
    }
}

/// Whether a key names a partition of a share group, `group:topic id:partition`. A group may have colons in its name.
fn is_share_key(key: &str) -> bool {
    let mut parts = key.rsplitn(3, ':');
    let (partition, topic, group) = (parts.next(), parts.next(), parts.next());
    partition.is_some_and(|number| number.parse::<i32>().is_ok())
        && topic.is_some_and(|id| id.parse::<Uuid>().is_ok())
        && group.is_some_and(|group| !group.is_empty())
}

fn message(error: ErrorCode) -> Str<'static> {
    match error {
        ErrorCode::COORDINATOR_NOT_AVAILABLE => "no coordinator is available".into(),
        _ => "the key or its type is not valid in this version".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_key_is_a_group_a_topic_id_and_a_partition() {
        for good in ["g:AAAAAAAAAAAAAAAAAAAAAQ:0", "a:b:AAAAAAAAAAAAAAAAAAAAAQ:0", "g:AAAAAAAAAAAAAAAAAAAAAA:-1"] {
            assert!(is_share_key(good), "{good}");
        }
        let bad = ["", "noparts", "g:bad-uuid:0", "g:AAAAAAAAAAAAAAAAAAAAAQ", ":AAAAAAAAAAAAAAAAAAAAAQ:0"];
        assert!(!bad.into_iter().any(is_share_key));
        assert!(!is_share_key("g:AAAAAAAAAAAAAAAAAAAAAQ:x"));
    }

    #[test]
    fn groups_and_transactions_are_asked_to_come_back() {
        for (version, key_type) in [(0, GROUP), (1, TRANSACTION), (3, GROUP)] {
            let request = FindCoordinatorRequest { key: "g".into(), key_type, ..Default::default() };
            let response = response(&request, version);
            assert_eq!((response.error_code, response.node_id, response.port), (15, -1, -1));
            assert!(response.coordinators.is_empty());
        }
    }

    #[test]
    fn each_key_of_a_list_has_its_own_answer() {
        let keys = vec!["a".into(), "g:AAAAAAAAAAAAAAAAAAAAAQ:0".into()];
        let codes = |key_type, version| {
            let request = FindCoordinatorRequest { key_type, coordinator_keys: keys.clone(), ..Default::default() };
            let response = response(&request, version);
            response.coordinators.iter().map(|c| c.error_code).collect::<Vec<_>>()
        };
        assert_eq!(codes(GROUP, 4), [15, 15]);
        assert_eq!(codes(SHARE, 6), [42, 15]);
        assert_eq!(codes(SHARE, 5), [42, 42]);
        assert_eq!(codes(3, 6), [42, 42]);
        assert_eq!(codes(-1, 6), [42, 42]);
    }
}
