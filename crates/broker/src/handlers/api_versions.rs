//! ApiVersions. v1: throttle time. v3: flexible, client software, features. v4: features whose lowest level is 0 may be
//! told. v5: the cluster and node that the client means to talk to.

use std::borrow::Cow;

use milena_metadata::{Image, KRAFT_VERSION, features};
use milena_net::Outgoing;
use milena_protocol::messages::ApiVersionsRequest;
use milena_protocol::messages::api_versions_response::{
    ApiVersion, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};
use milena_protocol::{ApiKey, ErrorCode};

use crate::registry::{APIS, Api, Handler};
use crate::request::{Call, Header, Refusal, answer};
use crate::services::{Node, Services};

/// The registry's line.
pub const API: Api = Api::new(ApiKey::API_VERSIONS, 0..=5, Handler::Now(handle));

/// First version in which the client says what software it is.
const FIRST_SOFTWARE_VERSION: i16 = 3;
/// First version whose clients understand a feature that may have level 0.
const FIRST_LEVEL_0_VERSION: i16 = 4;

fn handle(call: &Call<'_>, services: &Services, out: &mut Outgoing) -> Result<(), Refusal> {
    let request: ApiVersionsRequest<'_> = call.request()?;
    match check(&request, call.header.version, &services.node) {
        Ok(()) => {
            let unstable = services.config().unstable_api_versions_enable();
            call.answer(
                out,
                &response(call.header.version, &services.image(), services.live.voting.load().kraft_version, unstable),
            )
        }
        Err(error) => call.answer(out, &ApiVersionsResponse { error_code: error.0, ..Default::default() }),
    }
}

/// Answers a version that is not served: in version 0, with the one API whose versions the client needs to ask again.
///
/// # Errors
/// When the response can't be said, which does not happen.
pub fn unsupported(call: &Call<'_>, out: &mut Outgoing) -> Result<(), Refusal> {
    let response = ApiVersionsResponse {
        error_code: ErrorCode::UNSUPPORTED_VERSION.0,
        api_keys: vec![advertised(&API, false)],
        ..Default::default()
    };
    let header = Header::new(call.header.key, 0, call.header.correlation_id, None);
    answer(&header, out, &response)?;
    Ok(())
}

/// Checks what the client says about itself and about where it wants to be. Cluster and node are given together or not
/// at all.
fn check(request: &ApiVersionsRequest<'_>, version: i16, node: &Node) -> Result<(), ErrorCode> {
    if version < FIRST_SOFTWARE_VERSION {
        return Ok(());
    }
    if !is_software_word(&request.client_software_name) || !is_software_word(&request.client_software_version) {
        return Err(ErrorCode::INVALID_REQUEST);
    }
    match (&request.cluster_id, request.node_id) {
        (None, -1) => Ok(()),
        (None, _) | (_, -1) => Err(ErrorCode::INVALID_REQUEST),
        (Some(cluster), id) if *cluster == node.cluster_id && id == node.id => Ok(()),
        _ => Err(ErrorCode::REBOOTSTRAP_REQUIRED),
    }
}

/// Letters, digits, and between them `-` and `.`.
fn is_software_word(word: &str) -> bool {
    let word = word.as_bytes();
    let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    is_edge(word.first()) && is_edge(word.last()) && word.iter().all(is_inner)
}

fn response<'r>(version: i16, image: &'r Image, kraft_version: i16, unstable: bool) -> ApiVersionsResponse<'r> {
    let finalized = |(name, level): (&'r str, i16)| FinalizedFeatureKey {
        name: Cow::Borrowed(name),
        max_version_level: level,
        min_version_level: level,
    };
    let kraft = (kraft_version > 0).then_some((KRAFT_VERSION, kraft_version));
    ApiVersionsResponse {
        api_keys: APIS.iter().map(|api| advertised(api, unstable)).collect(),
        supported_features: supported_features(version),
        finalized_features_epoch: image.provenance().last_contained_offset,
        finalized_features: image.features().iter().chain(kraft).map(finalized).collect(),
        ..Default::default()
    }
}

fn advertised(api: &Api, unstable: bool) -> ApiVersion {
    ApiVersion { api_key: api.key.0, min_version: api.advertised_min, max_version: api.newest(unstable) }
}

/// Features that this software supports. Older clients can't tell a lowest level of 0 from a missing one and fail, so
/// they are not told of such features.
fn supported_features(version: i16) -> Vec<SupportedFeatureKey<'static>> {
    let is_told = |min: i16| min > 0 || version >= FIRST_LEVEL_0_VERSION;
    let told = features().iter().filter(|feature| is_told(feature.min));
    told.map(|feature| SupportedFeatureKey {
        name: Cow::Borrowed(feature.name),
        min_version: feature.min,
        max_version: feature.max,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Node {
        Node { id: 1, cluster_id: "c".into() }
    }

    fn request(software: &'static str, cluster: Option<&'static str>, node_id: i32) -> ApiVersionsRequest<'static> {
        ApiVersionsRequest {
            client_software_name: software.into(),
            client_software_version: "1.0".into(),
            cluster_id: cluster.map(Cow::Borrowed),
            node_id,
        }
    }

    #[test]
    fn software_is_named_by_letters_digits_and_inner_dots_and_dashes() {
        for good in ["a", "apache-kafka-java", "x.y", "9"] {
            assert_eq!(check(&request(good, None, -1), 3, &node()), Ok(()), "{good}");
        }
        for bad in ["", "-a", "a.", "a b", "\u{e9}"] {
            assert_eq!(check(&request(bad, None, -1), 3, &node()), Err(ErrorCode::INVALID_REQUEST), "{bad}");
        }
        assert_eq!(check(&request("", None, -1), 2, &node()), Ok(()));
    }

    #[test]
    fn cluster_and_node_come_together_and_must_be_this_one() {
        let check = |cluster, id| check(&request("a", cluster, id), 5, &node());
        assert_eq!(check(Some("c"), 1), Ok(()));
        assert_eq!(check(Some("c"), 2), Err(ErrorCode::REBOOTSTRAP_REQUIRED));
        assert_eq!(check(Some("d"), 1), Err(ErrorCode::REBOOTSTRAP_REQUIRED));
        assert_eq!(check(Some("c"), -1), Err(ErrorCode::INVALID_REQUEST));
        assert_eq!(check(None, 1), Err(ErrorCode::INVALID_REQUEST));
    }

    #[test]
    fn a_feature_of_level_0_is_told_from_version_4_on() {
        let names = |version| supported_features(version).iter().map(|f| f.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(3), ["metadata.version"]);
        assert_eq!(names(4).len(), features().len());
    }

    #[test]
    fn every_api_is_told_with_its_versions() {
        let image = Image::default();
        let response = response(4, &image, 1, false);
        let told = |key: ApiKey| {
            response.api_keys.iter().find(|api| api.api_key == key.0).map(|a| (a.min_version, a.max_version))
        };
        assert_eq!(told(ApiKey::PRODUCE), Some((0, 13)));
        assert_eq!(told(ApiKey::API_VERSIONS), Some((0, 5)));
        assert!(response.api_keys.is_sorted_by_key(|api| api.api_key));
        assert_eq!(response.finalized_features.len(), 1);
    }
}
