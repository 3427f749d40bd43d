//! FindCoordinator. v1: key type, message. v3: flexible. v4: several keys. v6: share groups.
//!
//! A group's coordinator leads its partition of `__consumer_offsets`, a transactional id's its partition of
//! `__transaction_state`; these topics are made when somebody asks. Other coordinators do not run here: their keys are answered
//! with an error that makes clients ask again.

use std::borrow::Cow;

use milena_coordinator::partition_for;
use milena_metadata::{Endpoint, Image};
use milena_net::Outgoing;
use milena_protocol::messages::FindCoordinatorRequest;
use milena_protocol::messages::find_coordinator_response::{Coordinator, FindCoordinatorResponse};
use milena_protocol::{ApiKey, ErrorCode, Str, Uuid};

use crate::cluster_view::ClusterView;
use crate::registry::{Api, Handler};
use crate::request::{Call, Refusal};
use crate::services::Services;

/// The registry's line.
pub const API: Api = Api::new(ApiKey::FIND_COORDINATOR, 0..=6, Handler::Now(handle));

/// First version with a list of keys.
const FIRST_KEYS_VERSION: i16 = 4;
/// First version with share groups.
const FIRST_SHARE_VERSION: i16 = 6;

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;

/// The topic whose partitions' leaders coordinate groups.
pub(super) const GROUPS_TOPIC: &str = "__consumer_offsets";
/// The topic whose partitions' leaders coordinate transactions.
const TRANSACTIONS_TOPIC: &str = "__transaction_state";

/// The topic whose partitions' leaders coordinate keys of a type.
fn topic_of(key_type: i8) -> Option<&'static str> {
    match key_type {
        GROUP => Some(GROUPS_TOPIC),
        TRANSACTION => Some(TRANSACTIONS_TOPIC),
        _ => None,
    }
}

fn handle(call: &Call<'_>, services: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: FindCoordinatorRequest<'_> = call.request()?;
    let image = services.image();
    let finder = Finder { image: &image, view: ClusterView::new(image.cluster(), &call.peer.listener) };
    call.answer(out, &finder.response(&request, call.header.version))?;
    if let Some(topic) = topic_of(request.key_type).filter(|topic| image.topics().get(topic).is_none()) {
        services.auto_topics.create([topic], &services.controller);
    }
    Ok(())
}

/// Where a coordinator is.
type Place<'i> = (i32, &'i Endpoint);

struct Finder<'i> {
    image: &'i Image,
    view: ClusterView<'i>,
}

impl<'i> Finder<'i> {
    fn response<'r>(&self, request: &'r FindCoordinatorRequest<'r>, version: i16) -> FindCoordinatorResponse<'r>
    where
        'i: 'r,
    {
        if version < FIRST_KEYS_VERSION {
            let found = self.find(request.key_type, &request.key, version);
            let (error, node_id, host, port) = fields(found);
            let error_message = Some(message(error));
            return FindCoordinatorResponse {
                error_code: error.0,
                error_message,
                node_id,
                host,
                port,
                ..Default::default()
            };
        }
        let is_known_type = (GROUP..=SHARE).contains(&request.key_type);
        let coordinator = |key: &'r Str<'r>| {
            let (error, node_id, host, port) = fields(self.find(request.key_type, key, version));
            Coordinator {
                key: Cow::Borrowed(key),
                node_id,
                host,
                port,
                error_code: error.0,
                error_message: Some(if is_known_type { "".into() } else { message(error) }),
            }
        };
        FindCoordinatorResponse {
            coordinators: request.coordinator_keys.iter().map(coordinator).collect(),
            ..Default::default()
        }
    }

    /// Where the coordinator of a key is, or why there is none.
    fn find(&self, key_type: i8, key: &str, version: i16) -> Result<Place<'i>, ErrorCode> {
        if let Some(topic) = topic_of(key_type) {
            return self.leader(topic, key).ok_or(ErrorCode::COORDINATOR_NOT_AVAILABLE);
        }
        match key_type {
            SHARE if version >= FIRST_SHARE_VERSION && is_share_key(key) => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
            _ => Err(ErrorCode::INVALID_REQUEST),
        }
    }

    /// The leader of the partition of an internal topic that a key belongs to.
    fn leader(&self, topic: &str, key: &str) -> Option<Place<'i>> {
        let topic = self.image.topics().get(topic)?;
        let partition = topic.partition(partition_for(key, i32::try_from(topic.partitions.len()).ok()?))?;
        let mut alive = self.view.alive();
        alive.find(|(broker, _)| broker.id == partition.leader).map(|(broker, endpoint)| (broker.id, endpoint))
    }
}

/// Error, node, host and port of an answer.
fn fields<'i>(found: Result<Place<'i>, ErrorCode>) -> (ErrorCode, i32, Str<'i>, i32) {
    match found {
        Ok((node, endpoint)) => (ErrorCode::NONE, node, endpoint.host.as_str().into(), i32::from(endpoint.port)),
        Err(error) => (error, -1, "".into(), -1),
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
        ErrorCode::NONE => "NONE".into(),
        ErrorCode::COORDINATOR_NOT_AVAILABLE => "no coordinator is available".into(),
        _ => "the key or its type is not valid in this version".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_image::{LISTENER, broker, image, topic};

    #[test]
    fn a_share_key_is_a_group_a_topic_id_and_a_partition() {
        for good in ["g:AAAAAAAAAAAAAAAAAAAAAQ:0", "a:b:AAAAAAAAAAAAAAAAAAAAAQ:0", "g:AAAAAAAAAAAAAAAAAAAAAA:-1"] {
            assert!(is_share_key(good), "{good}");
        }
        let bad = ["", "noparts", "g:bad-uuid:0", "g:AAAAAAAAAAAAAAAAAAAAAQ", ":AAAAAAAAAAAAAAAAAAAAAQ:0"];
        assert!(!bad.into_iter().any(is_share_key));
        assert!(!is_share_key("g:AAAAAAAAAAAAAAAAAAAAAQ:x"));
    }

    /// Two brokers, of which the second one is fenced, and a partition of groups on each.
    fn cluster() -> Image {
        let brokers = [broker(1, false), broker(2, true)];
        image(brokers.into_iter().chain(topic(GROUPS_TOPIC, 1, &[&[1], &[2]])))
    }

    fn find(image: &Image, version: i16, request: &FindCoordinatorRequest<'static>) -> Vec<(i16, i32, String, i32)> {
        let finder = Finder { image, view: ClusterView::new(image.cluster(), LISTENER) };
        let response = finder.response(request, version);
        let one = (response.error_code, response.node_id, response.host.to_string(), response.port);
        if version < FIRST_KEYS_VERSION {
            return vec![one];
        }
        let all = response.coordinators.iter();
        all.map(|found| (found.error_code, found.node_id, found.host.to_string(), found.port)).collect()
    }

    #[test]
    fn a_groups_coordinator_leads_its_partition_and_is_alive() {
        let image = cluster();
        let request = |key: &'static str| FindCoordinatorRequest { key: key.into(), ..Default::default() };
        assert_eq!(find(&image, 0, &request("b")), [(0, 1, "broker1".into(), 9092)]);
        assert_eq!(find(&image, 3, &request("a")), [(15, -1, String::new(), -1)]);
        assert_eq!(find(&Image::default(), 3, &request("b")), [(15, -1, String::new(), -1)]);
    }

    #[test]
    fn each_key_of_a_list_has_its_own_answer() {
        let image = cluster();
        let keys = vec!["b".into(), "g:AAAAAAAAAAAAAAAAAAAAAQ:0".into()];
        let codes = |key_type, version| {
            let request = FindCoordinatorRequest { key_type, coordinator_keys: keys.clone(), ..Default::default() };
            find(&image, version, &request).into_iter().map(|(error, ..)| error).collect::<Vec<_>>()
        };
        assert_eq!(codes(GROUP, 4), [0, 15]);
        assert_eq!(codes(TRANSACTION, 4), [15, 15]);
        assert_eq!(codes(SHARE, 6), [42, 15]);
        assert_eq!(codes(SHARE, 5), [42, 42]);
        assert_eq!(codes(3, 6), [42, 42]);
        assert_eq!(codes(-1, 6), [42, 42]);
    }
}
